package schemas

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tooltape/tooltape/deploy/local/pythontest"
)

const fastavroVersion = "1.13.1"

// TestFastavroReadsWhatIsWrittenHereAndWritesWhatIsReadHere holds this package against another implementation of Avro, on random
// values of every released schema.
func TestFastavroReadsWhatIsWrittenHereAndWritesWhatIsReadHere(t *testing.T) {
	python := pythontest.With(t, "fastavro-"+fastavroVersion, "fastavro=="+fastavroVersion)
	var cases []peerCase
	for s := range allReleased() {
		events := rapid.Custom(func(t *rapid.T) Stored { return randomStored(t, s) })
		for seed := range 20 {
			cases = append(cases, newPeerCase(t, events.Example(seed)))
		}
	}
	for i, answer := range askPeer(t, python, cases) {
		cases[i].compare(t, answer)
	}
}

// peerCase is one random event with its bytes, and its value as JSON says it.
type peerCase struct {
	stored Stored

	Schema string `json:"schema"`
	Record string `json:"record"`
	Want   any    `json:"want"`
}

type peerAnswer struct {
	Fingerprint string  `json:"fingerprint"`
	Difference  *string `json:"difference"`
	Written     string  `json:"written"`
}

func newPeerCase(t *testing.T, stored Stored) peerCase {
	t.Helper()
	r := record{&mapping{writing: true}, map[string]any{}}
	envelopeFields(r, &stored.Envelope)
	want := peerValue(envelopeTree, r.values).(map[string]any)
	want["payload"] = peerValue(stored.schema.payload, stored.payload)

	record, err := stored.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	return peerCase{stored, stored.schema.composed, hex.EncodeToString(record), want}
}

func (c peerCase) compare(t *testing.T, got peerAnswer) {
	t.Helper()
	name := FullName(c.stored.Type, c.stored.PayloadVersion)
	if got.Difference != nil {
		t.Errorf("%s: fastavro %s", name, *got.Difference)
	}
	fingerprint, _ := Fingerprint(c.stored.Type, c.stored.PayloadVersion)
	if want := hex.EncodeToString(binary.LittleEndian.AppendUint64(nil, fingerprint)); got.Fingerprint != want {
		t.Errorf("%s: fastavro's fingerprint is %s, the frozen one %s", name, got.Fingerprint, want)
	}
	written, err := hex.DecodeString(got.Written)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := DecodeRecord(c.stored.Type, c.stored.PayloadVersion, written)
	if err != nil {
		t.Errorf("%s: what fastavro wrote is refused: %v", name, err)
	} else if !reflect.DeepEqual(stored, c.stored) {
		t.Errorf("%s: what fastavro wrote is read as %+v, want %+v", name, stored, c.stored)
	}
}

// peerValue turns goavro's native form into the one that the peer compares: a nullable value as it is, a value of another union as
// [full name, record], a timestamp as its microseconds.
func peerValue(n *node, native any) any {
	switch n.kind {
	case microsKind:
		return native.(time.Time).UnixMicro()
	case doubleKind:
		return double(native.(float64))
	case arrayKind:
		list := []any{}
		for _, item := range native.([]any) {
			list = append(list, peerValue(n.items, item))
		}
		return list
	case recordKind:
		values := map[string]any{}
		for _, f := range n.fields {
			values[f.name] = peerValue(f.node, asMap(native)[f.name])
		}
		return values
	case unionKind:
		for _, branch := range n.branches {
			if v, ok := asMap(native)[branch.name]; ok && n.nullable() != nil {
				return peerValue(branch, v)
			} else if ok {
				return []any{branch.name, peerValue(branch, v)}
			}
		}
		return nil
	}
	return native
}

// double is written so that Python, too, takes it for one, whatever its value.
type double float64

func (d double) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(d), 'e', -1, 64), nil
}

func askPeer(t *testing.T, python string, cases []peerCase) []peerAnswer {
	t.Helper()
	var in, out bytes.Buffer
	for _, c := range cases {
		line, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		in.Write(append(line, '\n'))
	}
	peer := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "fastavro_peer.py"))
	peer.Stdin, peer.Stdout, peer.Stderr = &in, &out, t.Output()
	if err := peer.Run(); err != nil {
		t.Fatal(err)
	}
	answers := make([]peerAnswer, len(cases))
	d := json.NewDecoder(&out)
	for i := range answers {
		if err := d.Decode(&answers[i]); err != nil {
			t.Fatal(err)
		}
	}
	return answers
}
