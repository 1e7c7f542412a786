package schemas

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tooltape/tooltape/schemas/event"
)

// sampleEvent is a sound event of a rather deep type.
func sampleEvent() event.Event {
	return event.Event{
		Envelope: event.Envelope{
			EnvelopeVersion: 1, EventID: someID, TenantID: event.DefaultTenant, SessionID: "s1", RunID: event.Some("r1"), Seq: 2,
			PrevEventID: event.Some("01890a5d-ac96-774b-bcce-b302099a8056"), Type: event.ToolCallDeniedType, PayloadVersion: 2,
			ActorType: "runtime", PartitionKey: "s1",
		},
		Payload: event.ToolCallDenied{ToolResult: event.ToolResult{CallID: "c1", Name: "search", ReasonCode: event.Some("policy"),
			ResultItem: event.Recorded(event.ResultItem{CallID: "c1", Content: []event.Part{event.Text{Text: "no"}}, Trust: event.Platform})}},
	}
}

func sampleRecord(t testing.TB) []byte {
	t.Helper()
	stored, err := StoredOf(sampleEvent())
	if err != nil {
		t.Fatal(err)
	}
	record, err := stored.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

// shelf is a registry of a test: every frozen schema under an id of its own, from 1.
func shelf() (IDs, func(context.Context, uint32) (string, error)) {
	ids, texts := IDs{}, map[uint32]string{}
	for i, name := range slices.Sorted(maps.Keys(index().byName)) {
		ids[name] = uint32(i + 1)
		s := index().byName[name]
		texts[uint32(i+1)], _ = Schema(s.of, s.version)
	}
	return ids, func(_ context.Context, id uint32) (string, error) {
		if text, ok := texts[id]; ok {
			return text, nil
		}
		return "", ErrUnknownID
	}
}

func confluent(id uint32, record []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, id), record...)
}

func single(fingerprint uint64, record []byte) []byte {
	return append(binary.LittleEndian.AppendUint64([]byte{0xC3, 0x01}, fingerprint), record...)
}

func TestBothFramingsAreReadWhateverIsWritten(t *testing.T) {
	ids, lookup := shelf()
	registered, err := NewRegistryEncoder(ids)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := StoredOf(sampleEvent())
	if err != nil {
		t.Fatal(err)
	}
	d := NewDecoder(lookup)
	for head, encoder := range map[string]*Encoder{"\xC3\x01": NewEncoder(), "\x00\x00\x00": registered} {
		value, err := encoder.Encode([]byte("before"), stored)
		if err != nil {
			t.Fatal(err)
		}
		value, found := []byte(strings.TrimPrefix(string(value), "before")), strings.HasPrefix(string(value), "before"+head)
		if !found {
			t.Fatalf("the value begins %x", value[:8])
		}
		if got, err := d.Decode(t.Context(), value); err != nil || !reflect.DeepEqual(got, sampleEvent()) {
			t.Errorf("%x: got %+v, %v", head, got, err)
		}
		if got, err := d.DecodeStored(t.Context(), value); err != nil || got.EventID != someID {
			t.Errorf("%x as stored: got %+v, %v", head, got, err)
		}
	}
}

func TestEveryFrozenSchemaHasAHeadInBothFramings(t *testing.T) {
	ids, lookup := shelf()
	d := NewDecoder(lookup)
	for name, id := range ids {
		want := index().byName[name].shape
		fingerprint, _ := Fingerprint(want.of, want.version)
		for _, value := range [][]byte{confluent(id, nil), single(fingerprint, nil)} {
			if got, _, err := d.open(t.Context(), value); err != nil || got != want {
				t.Errorf("%s: got %v, %v", name, got, err)
			}
		}
	}
}

func TestEveryFixtureIsAnEventThatReadersTake(t *testing.T) {
	fixtures, err := filepath.Glob("testdata/fixtures/*.json")
	if err != nil || len(fixtures) < len(Types()) {
		t.Fatal(fixtures, err)
	}
	d, encoder := NewDecoder(nil), NewEncoder()
	for _, name := range fixtures {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var fixture struct{ Event json.RawMessage }
		if err := json.Unmarshal(text, &fixture); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		stored, err := ParseJSON(fixture.Event)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		value, err := encoder.Encode(nil, stored)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := d.Decode(t.Context(), value); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValuesThatCannotBeOpened(t *testing.T) {
	_, lookup := shelf()
	record := sampleRecord(t)
	denial, _ := Fingerprint(event.ToolCallDeniedType, 2)
	failure, _ := Fingerprint(event.RunFailedType, 1)
	changed := func(change func(*event.Envelope)) []byte {
		e := sampleEvent().Envelope
		change(&e)
		return appendEnvelope(nil, e)
	}
	for _, c := range []struct {
		name   string
		value  []byte
		code   event.Code
		field  string
		read   bool // whether the envelope is there
		lookup func(context.Context, uint32) (string, error)
	}{
		{"nothing", nil, event.BadFrame, "", false, lookup},
		{"one byte", []byte{0}, event.BadFrame, "", false, lookup},
		{"half an id", []byte{0, 0, 0, 1}, event.BadFrame, "", false, lookup},
		{"half a fingerprint", single(denial, nil)[:9], event.BadFrame, "", false, lookup},
		{"another magic byte", append([]byte{1}, record...), event.BadFrame, "", false, lookup},
		{"another second magic byte", append([]byte{0xC3, 0x02}, record...), event.BadFrame, "", false, lookup},
		{"an id that the registry does not know", confluent(9999, record), event.UnknownSchema, "", true, lookup},
		{"an id where no registry is configured", confluent(1, record), event.UnknownSchema, "", true, nil},
		{"a fingerprint that nothing has", single(1, record), event.UnknownSchema, "", true, lookup},
		{"a fingerprint that nothing has, before anything", single(1, []byte("anything")), event.UnknownSchema, "", false, lookup},
		{"an unknown type", single(1, changed(func(e *event.Envelope) { e.Type = "run.paused" })), event.UnknownType, "type", true, lookup},
		{"a newer version", single(1, changed(func(e *event.Envelope) { e.PayloadVersion = 3 })), event.NewerVersion, "payload_version", true, lookup},
		{"a newer version without a registry", confluent(9, changed(func(e *event.Envelope) { e.PayloadVersion = 3 })), event.NewerVersion,
			"payload_version", true, nil},
		{"an envelope that breaks its rules", single(1, changed(func(e *event.Envelope) { e.Type, e.Seq = "run.paused", 0 })),
			event.UnknownSchema, "", false, lookup},
		{"the schema of another type", single(failure, record), event.BadEnvelope, "type", true, lookup},
		{"bytes after the record", single(denial, append(slices.Clone(record), 0)), event.LeftOverBytes, "", true, lookup},
		{"a record cut off", single(denial, record[:len(record)-1]), event.BadPayload, "payload.result_item.trust", true, lookup},
		{"a sound record that breaks a rule", single(denial, breakRule(t)), event.BadEnvelope, "actor_type", true, lookup},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := NewDecoder(c.lookup).Decode(t.Context(), c.value)
			fact, ok := errors.AsType[*event.Error](err)
			if !ok || fact.Code != c.code || fact.Field != c.field {
				t.Fatalf("got %v; want %s in %q", err, c.code, c.field)
			}
			if got.Payload != nil || (got.EventID != "") != c.read {
				t.Errorf("beside the error: got %+v; want an envelope: %t", got, c.read)
			}
			stored, err := NewDecoder(c.lookup).DecodeStored(t.Context(), c.value)
			if c.name != "a sound record that breaks a rule" && (err == nil || stored.EventID != got.EventID) {
				t.Errorf("as stored: got %+v, %v", stored, err)
			}
		})
	}
}

func breakRule(t *testing.T) []byte {
	e := sampleEvent()
	e.ActorType = "nobody"
	stored, err := StoredOf(e)
	if err != nil {
		t.Fatal(err)
	}
	record, err := stored.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

func TestARegistryThatIsAwayIsNoFactAboutTheRecord(t *testing.T) {
	away, up := errors.New("connection refused"), false
	ids, shelved := shelf()
	d := NewDecoder(func(ctx context.Context, id uint32) (string, error) {
		if !up {
			return "", away
		}
		return shelved(ctx, id)
	})
	value := confluent(ids["tooltape.tool.call.denied.V2"], sampleRecord(t))
	_, err := d.Decode(t.Context(), value)
	if _, fact := errors.AsType[*event.Error](err); fact || !errors.Is(err, away) {
		t.Fatalf("got %v", err)
	}
	up = true
	if _, err := d.Decode(t.Context(), value); err != nil {
		t.Errorf("once it is back: %v", err)
	}
	up = false
	if _, err := d.Decode(t.Context(), value); err != nil {
		t.Errorf("away again, with the id known: %v", err)
	}
}

func TestAnUnknownIDIsAskedForAgain(t *testing.T) {
	ids, shelved := shelf()
	id, registered := ids["tooltape.tool.call.denied.V2"], false
	d := NewDecoder(func(ctx context.Context, id uint32) (string, error) {
		if !registered {
			return "", ErrUnknownID
		}
		return shelved(ctx, id)
	})
	value := confluent(id, sampleRecord(t))
	if _, err := d.Decode(t.Context(), value); err == nil {
		t.Fatal("read without its schema")
	}
	registered = true
	if _, err := d.Decode(t.Context(), value); err != nil {
		t.Errorf("once it is registered: %v", err)
	}
}

func TestIDsAreKeptInBounds(t *testing.T) {
	_, lookup := shelf()
	d := NewDecoder(func(ctx context.Context, id uint32) (string, error) { return lookup(ctx, 1+id%3) })
	var all sync.WaitGroup
	for start := range uint32(4) {
		all.Go(func() {
			for id := start; id < 3*maxIDs; id += 4 {
				if _, err := d.resolve(context.Background(), id); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if len(d.ids) > maxIDs {
		t.Errorf("%d ids are kept", len(d.ids))
	}
}

func TestIdentifyTakesWhatRegistriesRewrite(t *testing.T) {
	text, _ := Schema(event.ToolCallDeniedType, 1)
	if of, v, err := Identify(rewritten(t, text)); err != nil || of != event.ToolCallDeniedType || v != 1 {
		t.Errorf("got %s, %d, %v", of, v, err)
	}
	for name, text := range map[string]string{
		"no JSON":                  `{`,
		"a JSON text of no schema": `7`,
		"a primitive":              `"string"`,
		"another's record":         `{"type":"record","name":"V1","namespace":"com.example","fields":[]}`,
		"a field less":             `{"type":"record","name":"tooltape.tool.call.denied.V1","fields":[]}`,
		"another type":             strings.Replace(text, `"seq","type":"long"`, `"seq","type":"int"`, 1),
		"another order":            strings.Replace(text, `["null","string"]`, `["string","null"]`, 1),
		"another unit of time":     strings.Replace(text, "timestamp-micros", "timestamp-millis", 1),
		"another version's name":   strings.Replace(text, `"V1"`, `"V2"`, 1),
	} {
		if _, _, err := Identify(text); err == nil {
			t.Errorf("%s is taken for a frozen schema", name)
		}
	}
}

// rewritten is a schema as another client may register it: names in full, no namespaces, no docs, types as objects, other key order.
func rewritten(t *testing.T, text string) string {
	t.Helper()
	var rewrite func(any, string) any
	rewrite = func(s any, namespace string) any {
		switch s := s.(type) {
		case string:
			return map[string]any{"type": fullName(s, namespace), "avro.java.string": "String"}
		case []any:
			out := make([]any, len(s))
			for i := range s {
				out[i] = rewrite(s[i], namespace)
			}
			return out
		}
		m := maps.Clone(s.(map[string]any))
		delete(m, "doc")
		if ns, ok := m["namespace"].(string); ok {
			namespace = ns
			delete(m, "namespace")
		}
		if name, ok := m["name"].(string); ok {
			m["name"] = fullName(name, namespace)
		}
		if items, ok := m["items"]; ok {
			m["items"] = rewrite(items, namespace)
		}
		if fields, ok := m["fields"].([]any); ok {
			for _, f := range fields {
				f := f.(map[string]any)
				delete(f, "doc")
				delete(f, "default")
				f["type"] = rewrite(f["type"], namespace)
			}
		}
		return m
	}
	var parsed any
	if err := json.Unmarshal([]byte(text), &parsed); err != nil {
		t.Fatal(err)
	}
	out, err := json.MarshalIndent(rewrite(parsed, ""), "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestAnEncoderWantsAllIDs(t *testing.T) {
	ids, _ := shelf()
	delete(ids, "tooltape.run.failed.V1")
	if _, err := NewRegistryEncoder(ids); err == nil || !strings.Contains(err.Error(), "tooltape.run.failed.V1") {
		t.Errorf("got %v", err)
	}
}

func TestWhatCannotBeEncodedLeavesTheBufferAlone(t *testing.T) {
	stored, err := StoredOf(sampleEvent())
	if err != nil {
		t.Fatal(err)
	}
	newer := stored
	newer.PayloadVersion = 3
	older := stored
	older.PayloadVersion = 1 // the payload has the shape of version 2
	for _, s := range []Stored{{}, newer, older} {
		if got, err := NewEncoder().Encode([]byte("before"), s); err == nil || string(got) != "before" {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	ids, lookup := shelf()
	record := sampleRecord(f)
	denial, _ := Fingerprint(event.ToolCallDeniedType, 2)
	f.Add(single(denial, record))
	f.Add(confluent(ids["tooltape.tool.call.denied.V2"], record))
	f.Add(single(1, record))
	f.Add([]byte{0xC3})
	d, encoder := NewDecoder(lookup), NewEncoder()
	f.Fuzz(func(t *testing.T, value []byte) {
		e, err := d.Decode(t.Context(), value)
		if err != nil {
			if _, ok := errors.AsType[*event.Error](err); !ok || e.Payload != nil {
				t.Fatalf("got %+v, %v", e, err)
			}
			return
		}
		stored, err := d.DecodeStored(t.Context(), value)
		if err != nil {
			t.Fatal(err)
		}
		again, err := encoder.Encode(nil, stored)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if got, err := d.Decode(t.Context(), again); err != nil || !reflect.DeepEqual(got, e) {
			t.Fatalf("got %+v, %v; want %+v", got, err, e)
		}
	})
}
