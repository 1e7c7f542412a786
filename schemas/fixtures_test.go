package schemas

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tooltape/tooltape/schemas/event"
)

// fixture is a recorded event. Its file is named <type>.v<version>[.<case>].json.
type fixture struct {
	About string `json:"about"`
	// Event is the event as stored, in its JSON form; Avro the same as the bytes of its record. Both are released with the
	// schema and never change.
	Event json.RawMessage `json:"event"`
	Avro  string          `json:"avro,omitempty"`
	// Current is the payload after upcasting: it changes with every later version of its type.
	Current json.RawMessage `json:"current,omitempty"`

	file string
}

// The totality contract: every version that was ever released is read as the current one.
func TestEveryReleasedVersionHasAFixture(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range fixtures(t) {
		s := f.parse(t)
		seen[fmt.Sprintf("%s %d", s.Type, s.PayloadVersion)] = true
		if !strings.HasPrefix(filepath.Base(f.file), fmt.Sprintf("%s.v%d.", s.Type, s.PayloadVersion)) {
			t.Errorf("%s holds an event of type %s, version %d", f.file, s.Type, s.PayloadVersion)
		}
	}
	for s := range allReleased() {
		if !seen[fmt.Sprintf("%s %d", s.eventType, s.version)] {
			t.Errorf(`%s has no fixture: write schemas/testdata/fixtures/%s.v%d.json as {"about": …, "event": …}, and run go test ./schemas -rewrite`,
				s.file(), s.eventType, s.version)
		}
	}
}

func TestEveryFixtureIsStoredAsRecorded(t *testing.T) {
	for _, f := range fixtures(t) {
		got, err := f.parse(t).AppendBinary(nil)
		if err != nil {
			t.Errorf("%s: %v", f.file, err)
			continue
		}
		if *rewrite && f.Avro == "" {
			f.Avro = hex.EncodeToString(got)
			f.write(t)
		}
		if hex.EncodeToString(got) != f.Avro {
			t.Errorf("%s: the event is stored as\n%x\nand was recorded as\n%s", f.file, got, f.Avro)
		}
	}
}

func TestEveryFixtureReadsAsRecordedAndAsCurrent(t *testing.T) {
	for _, f := range fixtures(t) {
		s := f.decode(t)
		if got, want := appendJSONOf(t, s), compact(t, f.Event); got != want {
			t.Errorf("%s: the record reads as\n%s\nand was recorded as\n%s", f.file, got, want)
		}
		upcast, err := s.Upcast()
		if err != nil {
			t.Fatalf("%s: %v", f.file, err)
		}
		current := compact(t, member(t, appendJSONOf(t, upcast), "payload"))
		if *rewrite {
			f.Current = json.RawMessage(current)
			f.write(t)
		}
		if want := compact(t, f.Current); current != want {
			t.Errorf("%s: upcast, the payload is\n%s\nand should be\n%s", f.file, current, want)
		}
	}
}

func TestEveryFixtureIsAnEventOfToday(t *testing.T) {
	for _, f := range fixtures(t) {
		s := f.decode(t)
		e, err := s.Event()
		if err != nil {
			t.Errorf("%s: %v", f.file, err)
		} else if e.Payload.Type() != s.Type || e.PayloadVersion != s.PayloadVersion {
			t.Errorf("%s: decodes to %s, version %d", f.file, e.Payload.Type(), e.PayloadVersion)
		}
	}
}

func TestUpcastingIsPure(t *testing.T) {
	for _, f := range fixtures(t) {
		s, untouched := f.decode(t), f.decode(t)
		first, _ := s.Upcast()
		second, _ := s.Upcast()
		if !reflect.DeepEqual(first, second) {
			t.Errorf("%s: the second upcast gives another event than the first", f.file)
		}
		if !reflect.DeepEqual(s, untouched) {
			t.Errorf("%s: upcasting changed its input", f.file)
		}
		if again, _ := first.Upcast(); !reflect.DeepEqual(again, first) {
			t.Errorf("%s: upcasting an upcast event changes it", f.file)
		}
	}
}

func TestAnUpcastEventIsNeverStoredAgain(t *testing.T) {
	for _, f := range fixtures(t) {
		s := f.decode(t)
		if s.PayloadVersion == Latest(s.Type) {
			continue
		}
		upcast, _ := s.Upcast()
		_, err := upcast.AppendBinary(nil)
		wantError(t, f.file, err, event.BadEnvelope, "payload_version")
		e, _ := s.Event()
		_, err = StoredOf(e)
		wantError(t, f.file, err, event.BadEnvelope, "payload_version")
	}
}

func TestTheVersionAfterTheNewestIsRefused(t *testing.T) {
	for _, name := range Types() {
		newer := Latest(name) + 1
		_, err := DecodeEvent(name, newer, nil)
		wantError(t, string(name), err, event.NewerVersion, "")
		_, err = ParseJSON(fmt.Appendf(nil, `{"type":%q,"payload_version":%d,"payload":{"new":1}}`, name, newer))
		wantError(t, string(name), err, event.NewerVersion, "")
		if want := fmt.Sprintf("payload version %d of %s is newer than this build knows (%d)", newer, name, newer-1); !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %q, and should say: %s", err, want)
		}
	}
}

func TestEveryTypeOfTheVocabularyCanBeStored(t *testing.T) {
	for _, m := range payloadMappings {
		if Latest(m.eventType) == 0 {
			t.Errorf("%s has no released schema: add schemas/%s/v1.avsc", m.eventType, m.eventType)
		}
	}
}

func fixtures(t testing.TB) []fixture {
	names, err := filepath.Glob("testdata/fixtures/*.json")
	if err != nil || len(names) == 0 {
		t.Fatal("no fixtures", err)
	}
	var all []fixture
	for _, name := range names {
		f := fixture{file: name}
		text, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(text, &f)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, f)
	}
	return all
}

// fixtureOf is the recorded event of a file, as stored.
func fixtureOf(t testing.TB, name string) Stored {
	for _, f := range fixtures(t) {
		if filepath.Base(f.file) == name+".json" {
			return f.decode(t)
		}
	}
	t.Fatalf("no fixture %s", name)
	return Stored{}
}

func (f fixture) parse(t testing.TB) Stored {
	s, err := ParseJSON(f.Event)
	if err != nil {
		t.Fatalf("%s: %v", f.file, err)
	}
	return s
}

func (f fixture) decode(t testing.TB) Stored {
	record, err := hex.DecodeString(f.Avro)
	if err != nil {
		t.Fatalf("%s: %v", f.file, err)
	}
	env, _, err := DecodeEnvelope(record)
	if err != nil {
		t.Fatalf("%s: %v", f.file, err)
	}
	s, err := DecodeRecord(env.Type, env.PayloadVersion, record)
	if err != nil {
		t.Fatalf("%s: %v", f.file, err)
	}
	return s
}

// write keeps the file readable: the parts that people write are indented, the rest stands in one line.
func (f fixture) write(t *testing.T) {
	var b bytes.Buffer
	indented := jsontext.Value(f.Event).Clone()
	if err := indented.Indent(jsontext.WithIndentPrefix("  "), jsontext.WithIndent("  ")); err != nil {
		t.Fatal(err)
	}
	about, _ := jsontext.AppendQuote(nil, f.About)
	fmt.Fprintf(&b, "{\n  \"about\": %s,\n  \"event\": %s,\n  \"avro\": %q", about, indented, f.Avro)
	if f.Current != nil {
		fmt.Fprintf(&b, ",\n  \"current\": %s", compact(t, f.Current))
	}
	b.WriteString("\n}\n")
	if err := os.WriteFile(f.file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func appendJSONOf(t testing.TB, s Stored) string {
	t.Helper()
	line, err := s.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(line)
}

func compact(t testing.TB, text []byte) string {
	v := jsontext.Value(text).Clone()
	if err := v.Compact(); err != nil {
		t.Fatal(err)
	}
	return string(v)
}

func member(t testing.TB, object, key string) []byte {
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(object), &members); err != nil {
		t.Fatal(err)
	}
	return members[key]
}

// wantError demands an error about the event, with that code and field.
func wantError(t testing.TB, about string, err error, code event.Code, field string) {
	t.Helper()
	e, ok := errors.AsType[*event.Error](err)
	if !ok || e.Code != code || e.Field != field {
		t.Errorf("%s: got %v (%T), want %s: %s", about, err, err, code, field)
	}
}
