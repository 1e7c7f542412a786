package producer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/tooltape/tooltape/producer"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
)

func TestASessionsEventsAreNumberedWithoutAHoleAndEachNamesTheOneBefore(t *testing.T) {
	s := newStage(t)
	w := s.writer()
	recorded := must(w.Append(t.Context(), "a", says("one"), says("two")))(t)
	recorded = append(recorded, must(w.Append(t.Context(), "a", says("three")))(t)...)
	previous := event.Opt[string]{}
	for i, e := range recorded {
		if e.Seq != int64(i+1) || e.PrevEventID != previous {
			t.Errorf("event %d has seq %d after %v, want %d after %v", i, e.Seq, e.PrevEventID, i+1, previous)
		}
		previous = event.Some(e.EventID)
	}
	stored := s.stored("a")
	if len(stored) != len(recorded) {
		t.Fatalf("%d events are on the topic, want %d", len(stored), len(recorded))
	}
	for i, e := range stored {
		if got := must(e.Event())(t); !reflect.DeepEqual(got, recorded[i]) {
			t.Errorf("on the topic is\n%+v\nand Append returned\n%+v", got, recorded[i])
		}
	}
}

func TestWhatADraftLeavesOpenIsStamped(t *testing.T) {
	s := newStage(t)
	e := must(s.writer().Append(t.Context(), "a", by(event.ToolCallDenied{ToolResult: result(event.Some(true))})))(t)[0]
	id, err := uuid.Parse(e.EventID)
	if err != nil || id.Version() != 7 {
		t.Errorf("the event id is %s, want a UUID of version 7", e.EventID)
	}
	e.EventID = ""
	want := event.Envelope{
		EnvelopeVersion: 1, TenantID: "default", SessionID: "a", Seq: 1, Type: event.ToolCallDeniedType, PayloadVersion: 2, ActorType: "runtime", PartitionKey: "a",
	}
	if !reflect.DeepEqual(e.Envelope, want) {
		t.Errorf("the envelope is\n%+v, want\n%+v", e.Envelope, want)
	}
}

func TestARecordHasTheKeyAndThePartitionThatTheContractSays(t *testing.T) {
	s := newStage(t)
	w := s.writer()
	record := by(event.RunStarted{Record: event.Some(event.RecordRef{Batch: "alt/text", Key: "sys_file:2"})})
	record.PartitionKey, record.OccurredAt = schemas.RecordKey("default", "alt/text", "sys_file:2"), event.Some(time.UnixMicro(1).UTC())
	for session, draft := range map[string]event.Event{"about a record": record, "a": says("x"), "b/ü%": says("x"), "c": says("x"), "d": says("x")} {
		e := must(w.Append(t.Context(), session, draft))(t)[0]
		r := s.log()[session][0]
		if key := schemas.EventKey(session, 1, e.EventID); string(r.Key) != key || r.Partition != schemas.Partition(e.PartitionKey, partitions) {
			t.Errorf("the record lies at %s on partition %d, want %s on %d", r.Key, r.Partition, key, schemas.Partition(e.PartitionKey, partitions))
		}
	}
	// The key holds for what follows, too, without being stated.
	if e := must(w.Append(t.Context(), "about a record", says("x")))(t)[0]; e.PartitionKey != record.PartitionKey {
		t.Errorf("the second event's partition key is %s, want %s", e.PartitionKey, record.PartitionKey)
	}
}

func TestARecordCarriesTheTraceOfItsAppend(t *testing.T) {
	s := newStage(t)
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	must(s.writer().Append(trace.ContextWithSpanContext(t.Context(), span), "a", says("x")))(t)
	headers := s.log()["a"][0].Headers
	want := fmt.Sprintf("00-%s-%s-01", span.TraceID(), span.SpanID())
	if len(headers) != 1 || headers[0].Key != "traceparent" || string(headers[0].Value) != want {
		t.Errorf("the headers are %s, want traceparent %s", headers, want)
	}
}

func TestARefusedDraftInTheMiddleLeavesNothingAndUsesUpNoNumber(t *testing.T) {
	s := newStage(t)
	w := s.writer()
	_, err := w.Append(t.Context(), "a", says("one"), by(event.ToolCallDenied{ToolResult: event.ToolResult{CallID: "c1", Name: "send", ReasonCode: event.Some("x")}}), says("three"))
	refused(t, err, 1, event.ResultItemMissing, "payload.result_item")
	s.holds(map[string]int{})
	if e := must(w.Append(t.Context(), "a", says("one")))(t)[0]; e.Seq != 1 || e.PrevEventID.OK {
		t.Errorf("after the refusal the next event has seq %d after %v, want 1 after none", e.Seq, e.PrevEventID)
	}
	s.holds(map[string]int{"a": 1})
}

// refusal is a draft, at the second place of a session, that may not be recorded.
type refusal struct {
	draft event.Event
	code  event.Code
	field string
}

// with changes a draft's envelope.
func with(e event.Event, change func(*event.Envelope)) event.Event {
	change(&e.Envelope)
	return e
}

func refusals() map[string]refusal {
	none := event.Opt[bool]{}
	nothing := event.ToolResult{CallID: "c1", Name: "send", ReasonCode: event.Some("x")}
	asNull := nothing
	asNull.ResultItem = event.RecordedItem{State: event.Null}
	other := result(none)
	other.ResultItem.Item.CallID = "c2"
	const otherID = "018f0000-0000-7000-8000-00000000ffff"
	isError := "payload.result_item.is_error"
	return map[string]refusal{
		"a denial without its item":             {by(event.ToolCallDenied{ToolResult: nothing}), event.ResultItemMissing, "payload.result_item"},
		"a denial whose item is null":           {by(event.ToolCallDenied{ToolResult: asNull}), event.ResultItemMissing, "payload.result_item"},
		"a completed call without its item":     {by(event.ToolCallCompleted{ToolResult: nothing}), event.ResultItemMissing, "payload.result_item"},
		"a failed call without its item":        {by(event.ToolCallFailed{ToolResult: nothing}), event.ResultItemMissing, "payload.result_item"},
		"an uncertain call without its item":    {by(event.ToolCallUncertain{ToolResult: nothing}), event.ResultItemMissing, "payload.result_item"},
		"a cancelled call whose item is null":   {by(event.ToolCallCancelled{ToolResult: asNull}), event.ResultItemMissing, "payload.result_item"},
		"an item for another call":              {by(event.ToolCallCompleted{ToolResult: other}), event.BadEvent, "payload.result_item.call_id"},
		"completed, but the item says error":    {by(event.ToolCallCompleted{ToolResult: result(event.Some(true))}), event.BadEvent, isError},
		"failed, but the item says no error":    {by(event.ToolCallFailed{ToolResult: result(event.Some(false))}), event.BadEvent, isError},
		"denied, but the item says no error":    {by(event.ToolCallDenied{ToolResult: result(event.Some(false))}), event.BadEvent, isError},
		"approved by a resolution that denies":  {by(event.ApprovalResolved{ApprovalID: "p", Approved: true, Resolution: "deny"}), event.BadEvent, "payload.approved"},
		"approved by a resolution that expired": {by(event.ApprovalResolved{ApprovalID: "p", Approved: true, Resolution: "expired"}), event.BadEvent, "payload.approved"},
		"not approved by one that approves":     {by(event.ApprovalResolved{ApprovalID: "p", Resolution: "approve_once"}), event.BadEvent, "payload.approved"},
		"a record in a session of another key": {
			with(by(event.RunStarted{Record: event.Some(event.RecordRef{Batch: "b", Key: "k"})}), func(e *event.Envelope) { e.OccurredAt = event.Some(time.UnixMicro(1)) }),
			event.BadEnvelope, "partition_key"},
		"another partition key":             {with(says("x"), func(e *event.Envelope) { e.PartitionKey = "other" }), event.BadEnvelope, "partition_key"},
		"another session":                   {with(says("x"), func(e *event.Envelope) { e.SessionID = "other" }), event.BadEnvelope, "session_id"},
		"a seq beyond the next":             {with(says("x"), func(e *event.Envelope) { e.Seq = 3 }), event.Gap, "seq"},
		"a negative seq":                    {with(says("x"), func(e *event.Envelope) { e.Seq = -1 }), event.Conflict, "seq"},
		"a seq that is taken":               {with(says("x"), func(e *event.Envelope) { e.Seq, e.EventID = 1, otherID }), event.Conflict, "seq"},
		"a seq that is taken, and no id":    {with(says("x"), func(e *event.Envelope) { e.Seq = 1 }), event.Conflict, "seq"},
		"another event before":              {with(says("x"), func(e *event.Envelope) { e.PrevEventID = event.Some(otherID) }), event.Conflict, "prev_event_id"},
		"an event id that is no UUID":       {with(says("x"), func(e *event.Envelope) { e.EventID = "x" }), event.BadEnvelope, "event_id"},
		"an older payload version":          {with(by(event.SessionCreated{}), func(e *event.Envelope) { e.PayloadVersion = 1 }), event.BadEnvelope, "payload_version"},
		"a newer payload version":           {with(says("x"), func(e *event.Envelope) { e.PayloadVersion = 2 }), event.NewerVersion, ""},
		"a type that the payload has not":   {with(says("x"), func(e *event.Envelope) { e.Type = event.RunCompletedType }), event.BadEnvelope, "type"},
		"an actor of no known type":         {with(says("x"), func(e *event.Envelope) { e.ActorType = "robot" }), event.BadEnvelope, "actor_type"},
		"a time finer than a microsecond":   {with(says("x"), func(e *event.Envelope) { e.OccurredAt = event.Some(time.Unix(0, 1)) }), event.BadEnvelope, "occurred_at"},
		"no payload":                        {event.Event{Envelope: event.Envelope{ActorType: "runtime"}}, event.BadPayload, "payload"},
		"text that is no UTF-8":             {says("a\xffb"), event.BadPayload, "payload.content[0].text"},
		"a lone surrogate, as WTF-8":        {says("\xed\xa0\x80"), event.BadPayload, "payload.content[0].text"},
		"a score that is no number":         {by(event.VerdictRecorded{Name: "n", AnnotatorKind: "code", Identifier: "i", Score: event.Some(math.NaN())}), event.BadPayload, "payload.score"},
		"a run that ends without an id":     {event.Event{Envelope: event.Envelope{ActorType: "runtime"}, Payload: event.RunCompleted{Reason: "completed"}}, event.BadEnvelope, "run_id"},
		"more parts than a record may have": {by(event.UserMessageCreated{Content: make100000Parts(), Trust: event.User}), event.TooManyItems, "payload.content"},
	}
}

func make100000Parts() []event.Part {
	parts := make([]event.Part, 100_000)
	for i := range parts {
		parts[i] = event.Text{}
	}
	return parts
}

func TestWhatMayNotBeRecordedIsRefusedWithItsField(t *testing.T) {
	s := newStage(t)
	w := s.writer()
	must(w.Append(t.Context(), "a", says("one")))(t)
	for name, c := range refusals() {
		t.Run(name, func(t *testing.T) {
			_, err := w.Append(t.Context(), "a", c.draft)
			refused(t, err, 0, c.code, c.field)
		})
	}
	s.holds(map[string]int{"a": 1})
	if e := must(w.Append(t.Context(), "a", says("two")))(t)[0]; e.Seq != 2 {
		t.Errorf("after all refusals the next event has seq %d, want 2", e.Seq)
	}
}

func TestAnEventInJSONFormMustHaveTheCurrentPayloadVersion(t *testing.T) {
	s := newStage(t)
	w := s.writer()
	v1 := parse(t, `{"type":"tool.call.denied","payload_version":1,"actor_type":"runtime","payload":{"call_id":"c1","name":"send","reason_code":"x"}}`)
	_, err := w.AppendStored(t.Context(), "a", v1)
	refused(t, err, 0, event.BadEnvelope, "payload_version")
	v2 := parse(t, `{"type":"session.created","actor_type":"runtime","payload":{}}`)
	if e := must(w.AppendStored(t.Context(), "a", v2))(t)[0]; e.PayloadVersion != 2 {
		t.Errorf("an event without a stated version got %d, want 2", e.PayloadVersion)
	}
	contradicts := parse(t, `{"type":"approval.resolved","actor_type":"runtime","payload":{"approval_id":"p","approved":true,"resolution":"deny","call_ids":[]}}`)
	_, err = w.AppendStored(t.Context(), "a", contradicts)
	refused(t, err, 0, event.BadEvent, "payload.approved")
	s.holds(map[string]int{"a": 1})
}

func TestAnUpcastEventIsNeverAppendedAgain(t *testing.T) {
	s := newStage(t)
	w := s.writer()
	v1 := parse(t, `{"type":"tool.call.denied","payload_version":1,"actor_type":"runtime","payload":{"call_id":"c1","name":"send","reason_code":"x"}}`)
	must(w.Backfill(t.Context(), "a", v1))(t)
	upcast := must(s.stored("a")[0].Event())(t)
	if got := upcast.Payload.(event.ToolCallDenied).ResultItem.State; got != event.Null {
		t.Fatalf("the upcast denial's item is in state %d, want an explicit null", got)
	}
	for session, w := range map[string]*producer.Writer{"a": w, "b": s.writer()} {
		upcast.SessionID = session
		_, err := w.Append(t.Context(), session, upcast)
		refused(t, err, 0, event.BadEnvelope, "payload_version")
	}
	s.holds(map[string]int{"a": 1})
}

func TestABackfillKeepsEachEventsPayloadVersion(t *testing.T) {
	s := newStage(t)
	w := s.writer()
	lines := []string{
		`{"type":"session.created","payload_version":1,"actor_type":"runtime","payload":{"agent_id":"x"}}`,
		`{"type":"tool.call.denied","payload_version":1,"actor_type":"runtime","payload":{"call_id":"c1","name":"send","reason_code":"x"}}`,
		`{"type":"tool.call.denied","payload_version":2,"actor_type":"runtime","payload":{"call_id":"c1","name":"send","reason_code":"x","result_item":{"kind":"tool_result","call_id":"c1","content":[],"is_error":true,"trust":"platform"}}}`,
	}
	var events []schemas.Stored
	for _, line := range lines {
		events = append(events, parse(t, line))
	}
	must(w.Backfill(t.Context(), "a", events...))(t)
	for i, stored := range s.stored("a") {
		if stored.PayloadVersion != []int{1, 1, 2}[i] {
			t.Errorf("event %d is stored at version %d", i+1, stored.PayloadVersion)
		}
		line := string(must(stored.AppendJSON(nil))(t))
		if hasItem := strings.Contains(line, `"result_item":{`); hasItem != (i == 2) {
			t.Errorf("event %d is stored as %s", i+1, line)
		}
	}
}

func TestWhatAppendsAgainIsHarmlessAndWhatClaimsItsPlaceIsRefused(t *testing.T) {
	s := newStage(t)
	w := s.writer()
	w.Resume("a", producer.Tail{Recorded: map[int64]string{}})
	recorded := must(w.Append(t.Context(), "a", says("one"), says("two"), says("three")))(t)
	again := must(w.Append(t.Context(), "a", recorded...))(t)
	if !reflect.DeepEqual(again, recorded) {
		t.Errorf("appended again, the events are\n%+v, want\n%+v", again, recorded)
	}
	bare := says("two") // states its id and its place, and leaves the rest to the writer
	bare.EventID, bare.Seq = recorded[1].EventID, 2
	if got := must(w.Append(t.Context(), "a", bare, says("four")))(t); !reflect.DeepEqual(got[0], recorded[1]) || got[1].Seq != 4 {
		t.Errorf("an event again and a new one are recorded as\n%+v", got)
	}
	s.holds(map[string]int{"a": 4})

	rival := recorded[1]
	rival.EventID = "018f0000-0000-7000-8000-00000000ffff"
	_, err := w.Append(t.Context(), "a", rival)
	refused(t, err, 0, event.Conflict, "seq")
	s.holds(map[string]int{"a": 4})
}

func TestAnEventTwiceInOneAppendIsRecordedOnce(t *testing.T) {
	s := newStage(t)
	one, two := says("one"), says("two")
	one.EventID, one.Seq = "018f0000-0000-7000-8000-000000000001", 1
	two.EventID, two.Seq = "018f0000-0000-7000-8000-000000000002", 2
	recorded := must(s.writer().Append(t.Context(), "a", one, two, one, two, says("three")))(t)
	if got := recorded[4]; got.Seq != 3 || got.PrevEventID != event.Some(two.EventID) {
		t.Errorf("the event after them has seq %d after %v, want 3 after %s", got.Seq, got.PrevEventID, two.EventID)
	}
	s.holds(map[string]int{"a": 3})
}

func TestASessionThatTheWriterDoesNotKnow(t *testing.T) {
	s := newStage(t)
	recorded := must(s.writer().Append(t.Context(), "a", says("one"), says("two")))(t)
	tail := producer.Tail{Seq: 2, EventID: recorded[1].EventID, Partition: event.Some(schemas.Partition("a", partitions))}
	t.Run("is refused where there is no way to find its end", func(t *testing.T) {
		if _, err := s.writerThatFinds(nil).Append(t.Context(), "a", says("x")); !errors.Is(err, producer.ErrUnknownSession) {
			t.Errorf("the error is %v, want ErrUnknownSession", err)
		}
	})
	t.Run("is new where its first event says so", func(t *testing.T) {
		first := says("x")
		first.Seq = 1
		must(s.writerThatFinds(nil).Append(t.Context(), "new", first, says("y")))(t)
	})
	t.Run("stays unknown after an append of nothing", func(t *testing.T) {
		w := s.writerThatFinds(nil)
		if got, err := w.Append(t.Context(), "a"); got != nil || err != nil {
			t.Errorf("an append of nothing gives %v, %v", got, err)
		}
		if _, err := w.Append(t.Context(), "a", says("x")); !errors.Is(err, producer.ErrUnknownSession) {
			t.Errorf("the error is %v, want ErrUnknownSession", err)
		}
	})
	t.Run("is found", func(t *testing.T) {
		w := s.writerThatFinds(func(context.Context, []string) (map[string]producer.Tail, error) {
			return map[string]producer.Tail{"a": tail}, nil
		})
		e := must(w.Append(t.Context(), "a", says("three")))(t)[0]
		if e.Seq != 3 || e.PrevEventID.Value != tail.EventID {
			t.Errorf("the next event has seq %d after %v", e.Seq, e.PrevEventID)
		}
	})
	t.Run("is not taken for new when the look-up fails", func(t *testing.T) {
		away := errors.New("the database is away")
		w := s.writerThatFinds(func(context.Context, []string) (map[string]producer.Tail, error) { return nil, away })
		if _, err := w.Append(t.Context(), "a", says("x")); !errors.Is(err, away) {
			t.Errorf("the error is %v, want the look-up's", err)
		}
	})
	t.Run("is refused on a partition that it does not lie on", func(t *testing.T) {
		elsewhere := tail
		elsewhere.Partition.Value = (tail.Partition.Value + 1) % partitions
		w := s.writer()
		w.Resume("a", elsewhere)
		_, err := w.Append(t.Context(), "a", says("x"))
		refused(t, err, 0, event.BadEnvelope, "partition_key")
	})
	s.holds(map[string]int{"a": 3, "new": 2})
}

func TestManyAppendToManySessionsAtOnce(t *testing.T) {
	s := newStage(t)
	w := s.writer()
	const sessions, writers, appends = 10, 4, 5
	var all sync.WaitGroup
	for i := range sessions {
		for range writers {
			all.Go(func() {
				for range appends {
					if _, err := w.Append(t.Context(), fmt.Sprint(i), says("x"), says("y")); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	for i := range sessions {
		previous := event.Opt[string]{}
		stored := s.stored(fmt.Sprint(i))
		if want := 2 * writers * appends; len(stored) != want {
			t.Fatalf("session %d has %d events, want %d", i, len(stored), want)
		}
		for n, e := range stored {
			if e.Seq != int64(n+1) || e.PrevEventID != previous {
				t.Fatalf("at place %d of session %d lies seq %d after %v", n+1, i, e.Seq, e.PrevEventID)
			}
			previous = event.Some(e.EventID)
		}
	}
}

func TestAPartitionKeyIsTheSessionsIDOrTheKeyOfARecord(t *testing.T) {
	s := newStage(t)
	w := s.writer()
	recorded := 0
	for key, good := range map[string]bool{
		"a/b": true, "default/batch/1": true, "default/a%2Fb/%25": true, // the session is a/b
		"":  true, // left out
		"a": false, "a%2Fb": false, "a/b/c/d": false, "a//c": false, "a/b%20/c": false, "/a/b": false,
	} {
		for i, write := range []func(draft event.Event) error{
			func(draft event.Event) error {
				_, err := w.Append(t.Context(), "a/b", draft)
				return err
			},
			func(draft event.Event) error {
				_, err := w.AppendStored(t.Context(), "a/b", must(schemas.StoredOf(draft))(t))
				return err
			},
			func(draft event.Event) error {
				_, err := w.Backfill(t.Context(), "a/b", must(schemas.StoredOf(draft))(t))
				return err
			},
		} {
			w.Resume("a/b", producer.Tail{})
			err := write(with(says("x"), func(e *event.Envelope) { e.PartitionKey = key }))
			if !good {
				refused(t, err, 0, event.BadEnvelope, "partition_key")
			} else if err != nil {
				t.Errorf("way %d, partition key %q: %v", i, key, err)
			} else {
				recorded++
			}
		}
	}
	if recorded != 12 {
		t.Errorf("%d events are recorded, want 12", recorded)
	}
}
