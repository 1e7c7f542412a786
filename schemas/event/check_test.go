package event

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

const (
	id1 = "01890a5d-ac96-774b-bcce-b302099a8057"
	id2 = "01890a5d-ac96-774b-bcce-b302099a8058"
)

// sound is an event of this payload that breaks no rule.
func sound(p Payload) Event {
	return Event{
		Envelope: Envelope{
			EnvelopeVersion: 1, EventID: id2, TenantID: DefaultTenant, SessionID: "s1", RunID: Some("r1"), Seq: 5,
			PrevEventID: Some(id1), Type: p.Type(), PayloadVersion: 1, OccurredAt: Some(time.Unix(1, 0)),
			ActorType: "runtime", PartitionKey: "s1",
		},
		Payload: p,
	}
}

func result() ToolResult {
	return ToolResult{CallID: "c1", Name: "search", ReasonCode: Some("policy"), ResultItem: Recorded(ResultItem{
		CallID: "c1", Content: []Part{Text{"ok"}}, Trust: ExternalUntrusted})}
}

func resultWith(change func(*ToolResult)) ToolResult {
	r := result()
	change(&r)
	return r
}

// enveloped is an event whose envelope was changed.
func enveloped(change func(*Envelope)) Event {
	e := sound(RunCancelled{Reason: "stopped"})
	change(&e.Envelope)
	return e
}

// A rule is one event that breaks it, beside one that just does not.
type rule struct {
	name  string
	bad   Event
	code  Code
	field string
	good  Event
}

func envelopeRule(name, field string, bad, good func(*Envelope)) rule {
	return rule{name, enveloped(bad), BadEnvelope, field, enveloped(good)}
}

func payloadRule(name, field string, bad, good Payload) rule {
	return rule{name, sound(bad), BadPayload, "payload." + field, sound(good)}
}

func checkRules(t *testing.T, check func(Event) error, rules []rule) {
	t.Helper()
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			var got *Error
			if err := check(r.bad); !errors.As(err, &got) {
				t.Fatalf("the event that breaks it: got %v, want an *Error", err)
			}
			if got.Code != r.code || got.Field != r.field || got.Message == "" {
				t.Errorf("got code %q, field %q, message %q; want code %q, field %q", got.Code, got.Field, got.Message, r.code, r.field)
			}
			if err := check(r.good); err != nil {
				t.Errorf("the event that does not break it: %v", err)
			}
		})
	}
}

func TestEnvelopeRules(t *testing.T) {
	x := strings.Repeat
	checkRules(t, Check, []rule{
		envelopeRule("the envelope version is 1", "envelope_version",
			func(e *Envelope) { e.EnvelopeVersion = 2 }, func(e *Envelope) { e.EnvelopeVersion = 1 }),
		envelopeRule("an event id is a UUID", "event_id",
			func(e *Envelope) { e.EventID = id2[:35] }, func(e *Envelope) { e.EventID = id2 }),
		envelopeRule("a UUID has lower case", "event_id",
			func(e *Envelope) { e.EventID = strings.ToUpper(id2) }, func(e *Envelope) { e.EventID = id2 }),
		envelopeRule("a UUID has its hyphens in their places", "event_id",
			func(e *Envelope) { e.EventID = "0189-0a5dac96-774b-bcce-b302099a8058" }, func(e *Envelope) { e.EventID = id2 }),
		envelopeRule("a tenant is named", "tenant_id",
			func(e *Envelope) { e.TenantID = "" }, func(e *Envelope) { e.TenantID = "t" }),
		envelopeRule("a session id is not empty", "session_id",
			func(e *Envelope) { e.SessionID = "" }, func(e *Envelope) { e.SessionID = "s" }),
		envelopeRule("a session id has at most 200 bytes", "session_id",
			func(e *Envelope) { e.SessionID = x("é", 101) }, func(e *Envelope) { e.SessionID = x("é", 100) }),
		envelopeRule("a session id has no control characters", "session_id",
			func(e *Envelope) { e.SessionID = "a\tb" }, func(e *Envelope) { e.SessionID = "a b" }),
		envelopeRule("a session id is UTF-8", "session_id",
			func(e *Envelope) { e.SessionID = "a\xff" }, func(e *Envelope) { e.SessionID = "a\u00ff" }),
		envelopeRule("a run id is absent, not empty", "run_id",
			func(e *Envelope) { e.RunID = Some("") }, func(e *Envelope) { e.RunID = Some("r") }),
		envelopeRule("an event that ends a run names it", "run_id",
			func(e *Envelope) { e.RunID = Opt[string]{} }, func(e *Envelope) { e.RunID = Some("r") }),
		envelopeRule("seq counts from 1", "seq",
			func(e *Envelope) { e.Seq, e.PrevEventID = 0, Opt[string]{} }, func(e *Envelope) { e.Seq, e.PrevEventID = 1, Opt[string]{} }),
		envelopeRule("the first event has none before it", "prev_event_id",
			func(e *Envelope) { e.Seq = 1 }, func(e *Envelope) { e.Seq = 2 }),
		envelopeRule("a later event has one before it", "prev_event_id",
			func(e *Envelope) { e.PrevEventID = Opt[string]{} }, func(e *Envelope) { e.PrevEventID = Some(id1) }),
		envelopeRule("the event before it is named by a UUID", "prev_event_id",
			func(e *Envelope) { e.PrevEventID = Some("x") }, func(e *Envelope) { e.PrevEventID = Some(id1) }),
		envelopeRule("an event does not come before itself", "prev_event_id",
			func(e *Envelope) { e.PrevEventID = Some(e.EventID) }, func(e *Envelope) { e.PrevEventID = Some(id1) }),
		envelopeRule("a payload version is stated", "payload_version",
			func(e *Envelope) { e.PayloadVersion = 0 }, func(e *Envelope) { e.PayloadVersion = 1 }),
		envelopeRule("a payload version is an int", "payload_version",
			func(e *Envelope) { e.PayloadVersion = 1 << 31 }, func(e *Envelope) { e.PayloadVersion = 1<<31 - 1 }),
		envelopeRule("a time is no finer than a microsecond", "occurred_at",
			func(e *Envelope) { e.OccurredAt = Some(time.Unix(1, 1001)) }, func(e *Envelope) { e.OccurredAt = Some(time.Unix(1, 1000)) }),
		envelopeRule("a time is one that RFC 3339 can say", "occurred_at",
			func(e *Envelope) { e.OccurredAt = Some(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)) },
			func(e *Envelope) { e.OccurredAt = Some(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)) }),
		envelopeRule("an actor type is in its set", "actor_type",
			func(e *Envelope) { e.ActorType = "Runtime" }, func(e *Envelope) { e.ActorType = "operator" }),
		envelopeRule("an actor id is absent, not empty", "actor_id",
			func(e *Envelope) { e.ActorID = Some("") }, func(e *Envelope) { e.ActorID = Some("me") }),
		envelopeRule("an id has at most 1,024 bytes", "actor_id",
			func(e *Envelope) { e.ActorID = Some(x("a", 1025)) }, func(e *Envelope) { e.ActorID = Some(x("a", 1024)) }),
		envelopeRule("a partition key is not empty", "partition_key",
			func(e *Envelope) { e.PartitionKey = "" }, func(e *Envelope) { e.PartitionKey = "p" }),
		envelopeRule("a partition key has at most 1,024 bytes", "partition_key",
			func(e *Envelope) { e.PartitionKey = x("p", 1025) }, func(e *Envelope) { e.PartitionKey = x("p", 1024) }),
		envelopeRule("an extension has a name", "ext[1].name",
			func(e *Envelope) { e.Ext = []Ext{{"a", ""}, {"", "b"}} }, func(e *Envelope) { e.Ext = []Ext{{"a", ""}, {"b", "b"}} }),
		envelopeRule("there are at most 64 extensions", "ext",
			func(e *Envelope) { e.Ext = manyExt(65) }, func(e *Envelope) { e.Ext = manyExt(64) }),
		envelopeRule("the value of an extension has at most 8,192 bytes", "ext[0].value",
			func(e *Envelope) { e.Ext = []Ext{{"a", x("v", 8193)}} }, func(e *Envelope) { e.Ext = []Ext{{"a", x("v", 8192)}} }),
	})
}

func manyExt(n int) []Ext {
	all := make([]Ext, n)
	for i := range all {
		all[i].Name = "x"
	}
	return all
}

func TestPayloadRules(t *testing.T) {
	call := func(id, name string) ModelResponseCompleted {
		return ModelResponseCompleted{Items: []ResponseItem{AssistantMessage{}, ToolCall{CallID: id, Name: name}}}
	}
	media := func(uri, mediaType string) SystemMessageCreated {
		return SystemMessageCreated{Content: []Part{Text{}, Image{Media{URI: uri, MediaType: mediaType}}}}
	}
	responded := func(items ...ResponseItem) ModelResponseCompleted { return ModelResponseCompleted{Items: items} }
	usage := func(change func(*Usage)) ModelResponseCompleted {
		var u Usage
		change(&u)
		return ModelResponseCompleted{Usage: Some(u)}
	}
	verdict := func(change func(*VerdictRecorded)) VerdictRecorded {
		v := VerdictRecorded{Name: "helpful", AnnotatorKind: "human", Identifier: "me"}
		change(&v)
		return v
	}
	checkRules(t, Check, []rule{
		payloadRule("a fork names its parent session", "forked_from.session_id",
			SessionCreated{ForkedFrom: Some(SessionRef{"", 1})}, SessionCreated{ForkedFrom: Some(SessionRef{"s0", 1})}),
		payloadRule("a fork names an event of its parent", "forked_from.seq",
			SessionCreated{ForkedFrom: Some(SessionRef{"s0", 0})}, SessionCreated{ForkedFrom: Some(SessionRef{"s0", 1})}),
		payloadRule("a title is UTF-8", "title", SessionCreated{Title: Some("\xc3")}, SessionCreated{Title: Some("")}),
		payloadRule("an image says where it is", "content[1].uri", media("", "image/png"), media("s3://b/k", "image/png")),
		payloadRule("an image says what it is", "content[1].media_type", media("s3://b/k", ""), media("s3://b/k", "image/png")),
		payloadRule("a part is of a known kind", "content[0]",
			SystemMessageCreated{Content: []Part{nil}}, SystemMessageCreated{Content: []Part{File{Media{URI: "u", MediaType: "m"}}}}),
		payloadRule("a text is UTF-8", "content[0].text",
			SystemMessageCreated{Content: []Part{Text{"\xed\xa0\x80"}}}, SystemMessageCreated{Content: []Part{Text{"\x00"}}}),
		payloadRule("the trust of a user message is in its set", "trust",
			UserMessageCreated{Trust: "root"}, UserMessageCreated{Trust: User}),
		payloadRule("offered tools have a digest", "digest", ToolsOffered{}, ToolsOffered{Digest: "d"}),
		payloadRule("an offered tool has a name", "tools[0].name",
			ToolsOffered{Digest: "d", Tools: []ToolDefinition{{}}}, ToolsOffered{Digest: "d", Tools: []ToolDefinition{{Name: "t", Parameters: "{}"}}}),
		payloadRule("the effect of an offered tool is in its set", "tools[0].effect",
			ToolsOffered{Digest: "d", Tools: []ToolDefinition{{Name: "t", Parameters: "{}", Effect: Some(Effect(""))}}},
			ToolsOffered{Digest: "d", Tools: []ToolDefinition{{Name: "t", Parameters: "{}", Effect: Some(ReadOnly)}}}),
		payloadRule("a record names its batch", "record.batch",
			RunStarted{Record: Some(RecordRef{"", "k"})}, RunStarted{Record: Some(RecordRef{"b", "k"})}),
		payloadRule("a record has a key", "record.key",
			RunStarted{Record: Some(RecordRef{"b", ""})}, RunStarted{Record: Some(RecordRef{"b", "k"})}),
		payloadRule("a parent names its session", "parent.session_id",
			RunStarted{Parent: Some(CallRef{"", "r", "c"})}, RunStarted{Parent: Some(CallRef{"s", "r", "c"})}),
		payloadRule("a parent names its run", "parent.run_id",
			RunStarted{Parent: Some(CallRef{"s", "", "c"})}, RunStarted{Parent: Some(CallRef{"s", "r", "c"})}),
		payloadRule("a parent names its call", "parent.call_id",
			RunStarted{Parent: Some(CallRef{"s", "r", ""})}, RunStarted{Parent: Some(CallRef{"s", "r", "c"})}),
		payloadRule("a skill has a name", "skills[1].name",
			RunStarted{Skills: []Skill{{Name: "a"}, {}}}, RunStarted{Skills: []Skill{{Name: "a"}, {Name: "b"}}}),
		payloadRule("a round of a request is not negative", "round", ModelRequestStarted{Round: -1}, ModelRequestStarted{}),
		payloadRule("a round of a response is not negative", "round", ModelResponseCompleted{Round: -1}, ModelResponseCompleted{}),
		payloadRule("a round of a failure is an int", "round",
			ModelResponseFailed{Round: 1 << 31}, ModelResponseFailed{Round: 1<<31 - 1}),
		payloadRule("a model's call has an id", "items[1].call_id", call("", "n"), call("c", "n")),
		payloadRule("a model's call has a name", "items[1].name", call("c", ""), call("c", "n")),
		payloadRule("a response item is of a known kind", "items[0]",
			ModelResponseCompleted{Items: []ResponseItem{nil}}, ModelResponseCompleted{Items: []ResponseItem{AssistantMessage{}}}),
		payloadRule("a provider item names its provider", "items[0].provider",
			ModelResponseCompleted{Items: []ResponseItem{ProviderItem{ProviderKind: "k"}}},
			ModelResponseCompleted{Items: []ResponseItem{ProviderItem{Provider: "p", ProviderKind: "k", Data: "{}"}}}),
		payloadRule("a provider item names its kind", "items[0].provider_kind",
			ModelResponseCompleted{Items: []ResponseItem{ProviderItem{Provider: "p"}}},
			ModelResponseCompleted{Items: []ResponseItem{ProviderItem{Provider: "p", ProviderKind: "k", Data: "{}"}}}),
		payloadRule("tokens are not negative", "usage.input_tokens",
			usage(func(u *Usage) { u.InputTokens = -1 }), usage(func(u *Usage) { u.InputTokens = 0 })),
		payloadRule("cached tokens are not negative", "usage.cached_tokens",
			usage(func(u *Usage) { u.CachedTokens = Some(int64(-1)) }), usage(func(u *Usage) { u.CachedTokens = Some(int64(9)) })),
		payloadRule("a cost is not negative", "usage.cost_usd",
			usage(func(u *Usage) { u.CostUSD = Some(-0.1) }), usage(func(u *Usage) { u.CostUSD = Some(0.1) })),
		payloadRule("a cost is a number", "usage.cost_usd",
			usage(func(u *Usage) { u.CostUSD = Some(math.NaN()) }), usage(func(u *Usage) { u.CostUSD = Some(0.0) })),
		payloadRule("a proposed call has an id", "call_id", ToolCallProposed{Name: "n"}, ToolCallProposed{CallID: "c", Name: "n"}),
		payloadRule("a proposed call has a name", "name", ToolCallProposed{CallID: "c"}, ToolCallProposed{CallID: "c", Name: "n"}),
		payloadRule("the effect of a call is in its set", "effect",
			ToolCallProposed{CallID: "c", Name: "n", Effect: Some(Effect("write"))},
			ToolCallProposed{CallID: "c", Name: "n", Effect: Some(IdempotentWrite)}),
		payloadRule("the skill of a call has a name", "skill.name",
			ToolCallProposed{CallID: "c", Name: "n", Skill: Some(Skill{})},
			ToolCallProposed{CallID: "c", Name: "n", Skill: Some(Skill{Name: "k"})}),
		payloadRule("a standing approval is absent, not empty", "approval_id",
			ToolCallAuthorized{CallID: "c", Name: "n", ApprovalID: Some("")}, ToolCallAuthorized{CallID: "c", Name: "n"}),
		payloadRule("a started call has an id", "call_id", ToolCallStarted{Name: "n"}, ToolCallStarted{CallID: "c", Name: "n"}),
		payloadRule("a result names its call", "call_id",
			ToolCallUncertain{resultWith(func(r *ToolResult) { r.CallID = "" })}, ToolCallUncertain{result()}),
		payloadRule("a result names its tool", "name",
			ToolCallCancelled{resultWith(func(r *ToolResult) { r.Name = "" })}, ToolCallCancelled{result()}),
		payloadRule("the trust of a result is in its set", "result_item.trust",
			ToolCallCompleted{resultWith(func(r *ToolResult) { r.ResultItem.Item.Trust = "" })}, ToolCallCompleted{result()}),
		payloadRule("a denial names its call", "call_id",
			ToolCallDenied{resultWith(func(r *ToolResult) { r.CallID = "" })}, ToolCallDenied{result()}),
		payloadRule("a denial names its tool", "name",
			ToolCallDenied{resultWith(func(r *ToolResult) { r.Name = "" })}, ToolCallDenied{result()}),
		payloadRule("a denial has a reason code", "reason_code",
			ToolCallDenied{resultWith(func(r *ToolResult) { r.ReasonCode = Opt[string]{} })}, ToolCallDenied{result()}),
		payloadRule("the reason code of a denial is not empty", "reason_code",
			ToolCallDenied{resultWith(func(r *ToolResult) { r.ReasonCode = Some("") })}, ToolCallDenied{result()}),
		payloadRule("an approval has an id", "approval_id", ApprovalRequested{}, ApprovalRequested{ApprovalID: "a"}),
		payloadRule("an approval's calls are named", "call_ids[1]",
			ApprovalRequested{ApprovalID: "a", CallIDs: []string{"c", ""}}, ApprovalRequested{ApprovalID: "a", CallIDs: []string{"c", "d"}}),
		payloadRule("an answer names its approval", "approval_id",
			ApprovalResolved{Resolution: "deny"}, ApprovalResolved{ApprovalID: "a", Resolution: "deny"}),
		payloadRule("a resolution is in its set", "resolution",
			ApprovalResolved{ApprovalID: "a", Resolution: "approve"}, ApprovalResolved{ApprovalID: "a", Resolution: "approve_once"}),
		payloadRule("who decided is absent, not empty", "decided_by",
			ApprovalResolved{ApprovalID: "a", Resolution: "deny", DecidedBy: Some("")}, ApprovalResolved{ApprovalID: "a", Resolution: "deny"}),
		payloadRule("an invalidated approval has a reason code", "reason_code",
			ApprovalInvalidated{ApprovalID: "a"}, ApprovalInvalidated{ApprovalID: "a", ReasonCode: "x"}),
		payloadRule("a request for input has an id", "input_id", InputRequested{}, InputRequested{InputID: "i"}),
		payloadRule("an input has an id", "input_id", InputReceived{Action: "accept"}, InputReceived{InputID: "i", Action: "accept"}),
		payloadRule("an input's action is in its set", "action",
			InputReceived{InputID: "i", Action: "yes"}, InputReceived{InputID: "i", Action: "cancel"}),
		payloadRule("a compaction covers an event", "through_seq",
			ContextCompacted{ThroughSeq: 0, Method: "other"}, ContextCompacted{ThroughSeq: 1, Method: "other"}),
		payloadRule("a compaction's method is in its set", "method",
			ContextCompacted{ThroughSeq: 1}, ContextCompacted{ThroughSeq: 1, Method: "summary"}),
		payloadRule("a completion's reason is in its set", "reason", RunCompleted{Reason: "done"}, RunCompleted{Reason: "completed"}),
		payloadRule("a failure's reason is UTF-8", "reason", RunFailed{Reason: "\x80"}, RunFailed{}),
		payloadRule("a verdict has a name", "name",
			verdict(func(v *VerdictRecorded) { v.Name = "" }), verdict(func(v *VerdictRecorded) { v.Name = "x" })),
		payloadRule("a verdict's annotator is in its set", "annotator_kind",
			verdict(func(v *VerdictRecorded) { v.AnnotatorKind = "LLM" }), verdict(func(v *VerdictRecorded) { v.AnnotatorKind = "llm" })),
		payloadRule("a verdict says who gave it", "identifier",
			verdict(func(v *VerdictRecorded) { v.Identifier = "" }), verdict(func(v *VerdictRecorded) { v.Identifier = "x" })),
		payloadRule("a score is finite", "score",
			verdict(func(v *VerdictRecorded) { v.Score = Some(math.Inf(-1)) }), verdict(func(v *VerdictRecorded) { v.Score = Some(-1.0) })),
		payloadRule("a verdict's target names a run", "target.run_id",
			verdict(func(v *VerdictRecorded) { v.Target = Some(VerdictTarget{}) }),
			verdict(func(v *VerdictRecorded) { v.Target = Some(VerdictTarget{RunID: "r"}) })),
		payloadRule("the parameters of an offered tool are JSON text", "tools[0].parameters",
			ToolsOffered{Digest: "d", Tools: []ToolDefinition{{Name: "t"}}},
			ToolsOffered{Digest: "d", Tools: []ToolDefinition{{Name: "t", Parameters: "[]"}}}),
		payloadRule("what only the provider understands is JSON text", "items[0].provider_data", responded(AssistantMessage{ProviderData: Some("{")}),
			responded(AssistantMessage{ProviderData: Some(`{"a":1,"a":"\ud800"}`)}, AssistantMessage{})),
		payloadRule("that of a call too", "items[1].provider_data",
			responded(AssistantMessage{}, ToolCall{CallID: "c", Name: "n", ProviderData: Some("")}),
			responded(AssistantMessage{}, ToolCall{CallID: "c", Name: "n", Arguments: "{", ProviderData: Some(" 1 ")})),
		payloadRule("the whole of a provider item is JSON text", "items[0].data",
			responded(ProviderItem{Provider: "p", ProviderKind: "k", Data: "NaN"}),
			responded(ProviderItem{Provider: "p", ProviderKind: "k", Data: "null"})),
		payloadRule("a note is JSON text", "data", NoteRecorded{Name: "n", Data: "{} {}"}, NoteRecorded{Name: "n", Data: `""`}),
		payloadRule("a note has a name", "name", NoteRecorded{}, NoteRecorded{Name: "n", Data: "{}"}),
		payloadRule("a purged event says what stood there", "purged_type", EventPurged{}, EventPurged{PurgedType: "a.later.type"}),
	})
}

func TestRulesThatNeedMoreThanOneField(t *testing.T) {
	unlike := sound(RunFailed{})
	unlike.Type = RunCancelledType
	none := sound(RunFailed{})
	none.Payload = nil
	pointer := sound(RunFailed{})
	pointer.Payload = &RunFailed{}
	state := func(s ItemState) ToolResult {
		return resultWith(func(r *ToolResult) { r.ResultItem = RecordedItem{State: s} })
	}

	checkRules(t, Check, []rule{
		{"the type is the payload's", unlike, BadEvent, "type", sound(RunFailed{})},
		{"a payload is there", none, BadPayload, "payload", sound(RunFailed{})},
		{"a payload is a value, as every reader of one expects", pointer, BadPayload, "payload", sound(RunFailed{})},
		{"a session is no fork of itself", sound(SessionCreated{ForkedFrom: Some(SessionRef{"s1", 1})}), BadEvent,
			"payload.forked_from.session_id", sound(SessionCreated{ForkedFrom: Some(SessionRef{"s2", 1})})},
		{"a compaction covers only what came before it", sound(ContextCompacted{ThroughSeq: 5, Method: "other"}), BadEvent,
			"payload.through_seq", sound(ContextCompacted{ThroughSeq: 4, Method: "other"})},
		{"a result's item answers the same call",
			sound(ToolCallFailed{resultWith(func(r *ToolResult) { r.ResultItem.Item.CallID = "c2" })}), BadEvent,
			"payload.result_item.call_id", sound(ToolCallFailed{result()})},
		{"a denial's item is not left out", sound(ToolCallDenied{state(Absent)}), ResultItemMissing, "payload.result_item",
			sound(ToolCallDenied{state(Null)})},
		{"the item of another result is not left out", sound(ToolCallCompleted{state(Absent)}), ResultItemMissing,
			"payload.result_item", sound(ToolCallCompleted{result()})},
		{"the item of another result is not null", sound(ToolCallUncertain{state(Null)}), ResultItemMissing,
			"payload.result_item", sound(ToolCallUncertain{result()})},
	})
}

func TestWhatMayBeRecorded(t *testing.T) {
	isError := func(flag Opt[bool]) ToolResult {
		return resultWith(func(r *ToolResult) { r.ResultItem.Item.IsError = flag })
	}
	unknown := isError(Opt[bool]{})
	itemless := resultWith(func(r *ToolResult) { r.ResultItem = RecordedItem{State: Null} })
	resolved := func(approved bool, resolution string) Event {
		return sound(ApprovalResolved{ApprovalID: "a", Approved: approved, Resolution: resolution})
	}
	untimed, recordless := sound(RunStarted{Record: Some(RecordRef{"b", "k"})}), sound(RunStarted{})
	untimed.OccurredAt, recordless.OccurredAt = Opt[time.Time]{}, Opt[time.Time]{}

	checkRules(t, CheckRecordable, []rule{
		{"what no reader takes is not recorded", sound(NoteRecorded{}), BadPayload, "payload.name", sound(NoteRecorded{Name: "n", Data: "{}"})},
		{"a denial has the item that the model is given", sound(ToolCallDenied{itemless}), ResultItemMissing, "payload.result_item",
			sound(ToolCallDenied{result()})},
		{"a completed call has no item that says error", sound(ToolCallCompleted{isError(Some(true))}), BadEvent,
			"payload.result_item.is_error", sound(ToolCallCompleted{unknown})},
		{"a failed call has no item that says none", sound(ToolCallFailed{isError(Some(false))}), BadEvent,
			"payload.result_item.is_error", sound(ToolCallFailed{unknown})},
		{"a denied call has no item that says none", sound(ToolCallDenied{isError(Some(false))}), BadEvent,
			"payload.result_item.is_error", sound(ToolCallDenied{isError(Some(true))})},
		{"a denial is no approval", resolved(true, "deny"), BadEvent, "payload.approved", resolved(false, "deny")},
		{"what expired is no approval", resolved(true, "expired"), BadEvent, "payload.approved", resolved(false, "expired")},
		{"an approval approves", resolved(false, "approve_policy"), BadEvent, "payload.approved", resolved(true, "approve_policy")},
		{"a run about a record has a time", untimed, BadEnvelope, "occurred_at", recordless},
	})
}

func TestReadersTakeWhatTheWriterNoLongerRecords(t *testing.T) {
	for _, e := range []Event{
		sound(ToolCallDenied{resultWith(func(r *ToolResult) { r.ResultItem = RecordedItem{State: Null} })}),
		sound(ToolCallCompleted{resultWith(func(r *ToolResult) { r.ResultItem.Item.IsError = Some(true) })}),
		sound(ApprovalResolved{ApprovalID: "a", Approved: true, Resolution: "deny"}),
	} {
		if err := Check(e); err != nil {
			t.Errorf("%s: %v", e.Type, err)
		}
	}
}

func TestErrorsNeverQuoteTheEvent(t *testing.T) {
	const secret = "hunter2"
	e := sound(UserMessageCreated{Content: []Part{Text{secret}}, Trust: secret})
	e.ActorType = secret
	if err := Check(e); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("got %v", err)
	}
}

func BenchmarkCheck(b *testing.B) {
	e := sound(ToolCallCompleted{result()})
	for b.Loop() {
		if err := Check(e); err != nil {
			b.Fatal(err)
		}
	}
}
