package schemas

import (
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/tooltape/tooltape/schemas/event"
)

const someID = "01890a5d-ac96-774b-bcce-b302099a8057"

func TestKeysAsTheyStandOnTheTopic(t *testing.T) {
	for _, c := range []struct {
		key  string
		want Key
	}{
		{"s1/1/" + someID, Key{SessionID: "s1", Seq: 1, EventID: someID}},
		{"a%2Fb%25c/9223372036854775807/x", Key{SessionID: "a/b%c", Seq: 1<<63 - 1, EventID: "x"}},
		{"s1/0/closed", Key{Marker: ClosedMarker, SessionID: "s1"}},
		{"s1/0/run/r%2F1", Key{Marker: RunMarker, SessionID: "s1", RunID: "r/1"}},
		{"s1/0/withdrawn/" + someID, Key{Marker: WithdrawnMarker, SessionID: "s1", EventID: someID}},
		{"s1/7/closed", Key{SessionID: "s1", Seq: 7, EventID: "closed"}},
		{"é 1/7/x", Key{SessionID: "é 1", Seq: 7, EventID: "x"}},
	} {
		if got := c.want.String(); got != c.key {
			t.Errorf("%+v is written %q, want %q", c.want, got, c.key)
		}
		if got, err := ParseKey([]byte(c.key)); err != nil || got != c.want {
			t.Errorf("%q is read %+v, %v; want %+v", c.key, got, err, c.want)
		}
	}
}

func TestKeysThatNobodyWrites(t *testing.T) {
	for name, key := range map[string]string{
		"nothing":                               "",
		"a session alone":                       "s1",
		"no event id":                           "s1/1",
		"an empty session id":                   "/1/x",
		"an empty event id":                     "s1/1/",
		"an empty seq":                          "s1//x",
		"a fourth part":                         "s1/1/x/y",
		"a leading zero":                        "s1/01/x",
		"a sign":                                "s1/+1/x",
		"a negative seq":                        "s1/-1/x",
		"minus zero":                            "s1/-0/closed",
		"a seq beyond a long":                   "s1/9223372036854775808/x",
		"a seq that is no number":               "s1/one/x",
		"seq 0 that is no marker":               "s1/0/x",
		"a closed marker with more":             "s1/0/closed/x",
		"a run marker without its run":          "s1/0/run",
		"a run marker with an empty run":        "s1/0/run/",
		"a withdrawn marker without its event":  "s1/0/withdrawn",
		"a percent sign that need not be there": "s%41/1/x",
		"a lower case encoding":                 "s%2f/1/x",
		"a percent sign alone":                  "s%/1/x",
		"half an encoding":                      "s%2/1/x",
		"bad UTF-8":                             "s\xff/1/x",
		"a control character in the session id": "s\n/1/x",
		"a session id that is too long":         strings.Repeat("s", event.MaxSessionID+1) + "/1/x",
		"an event id that is too long":          "s/1/" + strings.Repeat("x", event.MaxID+1),
		"a key that is too long":                "s/1/" + strings.Repeat("%25", MaxKey/3),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := ParseKey([]byte(key)); err == nil {
				t.Errorf("read as %+v", got)
			}
		})
	}
}

func TestTheLongestIDsHaveAKey(t *testing.T) {
	k := Key{Marker: WithdrawnMarker, SessionID: strings.Repeat("/", event.MaxSessionID), EventID: strings.Repeat("%", event.MaxID)}
	if got, err := ParseKey([]byte(k.String())); err != nil || got != k {
		t.Errorf("got %v", err)
	}
}

// keyPart draws ids that are awkward in keys.
var keyPart = rapid.StringOf(rapid.RuneFrom([]rune("%/25FfaZ09é€ 😀-"))).Filter(func(s string) bool { return s != "" && len(s) <= event.MaxSessionID })

func drawKey(t *rapid.T) Key {
	k := Key{Marker: Marker(rapid.IntRange(0, 3).Draw(t, "marker")), SessionID: keyPart.Draw(t, "session")}
	switch k.Marker {
	case NoMarker:
		k.Seq, k.EventID = rapid.Int64Min(1).Draw(t, "seq"), keyPart.Draw(t, "event")
	case RunMarker:
		k.RunID = keyPart.Draw(t, "run")
	case WithdrawnMarker:
		k.EventID = keyPart.Draw(t, "event")
	}
	return k
}

func TestWhatWasWrittenIsReadTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawKey(t)
		if got, err := ParseKey([]byte(k.String())); err != nil || got != k {
			t.Fatalf("%q is read %+v, %v; want %+v", k.String(), got, err, k)
		}
	})
}

func TestRecordKeysAreReadAsTheyWereWritten(t *testing.T) {
	if got := RecordKey("default", "alt-text", "sys_file:2"); got != "default/alt-text/sys_file:2" {
		t.Errorf("got %q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		want := [3]string{keyPart.Draw(t, "tenant"), keyPart.Draw(t, "batch"), keyPart.Draw(t, "key")}
		tenant, batch, record, err := ParseRecordKey(RecordKey(want[0], want[1], want[2]))
		if got := [3]string{tenant, batch, record}; err != nil || got != want {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	})
	for _, key := range []string{"", "s1", "a/b", "a/b/c/d", "a//c", "a/b/%2f"} {
		if _, _, _, err := ParseRecordKey(key); err == nil {
			t.Errorf("%q is taken for the key of a record", key)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, key := range []string{"s1/1/x", "a%2Fb%25/2/y", "s/0/closed", "s/0/run/r", "s/0/withdrawn/x", "s%41/1/x", "s/01/x", "\xff"} {
		f.Add([]byte(key))
	}
	f.Fuzz(func(t *testing.T, key []byte) {
		k, err := ParseKey(key)
		if err != nil {
			if !reflect.ValueOf(k).IsZero() {
				t.Fatalf("an error beside %+v", k)
			}
			return
		}
		if k.String() != string(key) {
			t.Fatalf("%q is read as %+v, which is written %q", key, k, k)
		}
	})
}

func TestPartitionIsTheJavaClients(t *testing.T) {
	// The first are Kafka's own (UtilsTest.testMurmur2), as signed there.
	for s, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	} {
		if got := int32(murmur2(s)); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", s, got, want)
		}
	}
	kafka := kgo.StickyKeyPartitioner(nil).ForTopic("any")
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.String().Draw(t, "key")
		partitions := rapid.Int32Range(1, 1000).Draw(t, "partitions")
		want := kafka.Partition(&kgo.Record{Key: []byte(key)}, int(partitions))
		if got := Partition(key, partitions); int(got) != want {
			t.Fatalf("got %d, want %d", got, want)
		}
	})
}

func TestTopicNames(t *testing.T) {
	if got := (Topics{}).Events(); got != "tooltape.events" {
		t.Errorf("got %q", got)
	}
	own := Topics{Prefix: "acme"}
	got := []string{own.Events(), own.Runs(), own.Decisions(), own.Retries()}
	want := []string{"acme.events", "acme.runs", "acme.decisions", "acme.retries"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
