package schemas

import (
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/avro"

	"github.com/tooltape/tooltape/schemas/event"
)

var rewrite = flag.Bool("rewrite", false, "add what is new to the frozen list and to the golden files; what is released stays")

// A released schema lies in logs that will be read for ever. The frozen list holds what it was when it was released.
func TestAReleasedSchemaNeverChanges(t *testing.T) {
	for line := range strings.Lines(frozen) {
		words := strings.Fields(line)
		name := fmt.Sprintf("%s/v%s.avsc", words[0], words[1])
		if got := sha256Of(avsc(name)); got != words[2] {
			t.Errorf("schemas/%s was changed after its release (sha256 %s, released as %s): add the next version instead", name, got, words[2])
		}
	}
}

func TestEverySchemaIsReleased(t *testing.T) {
	for _, unlisted := range unlistedSchemas(t) {
		line := fmt.Sprintf("%s %d %s %016x\n", unlisted.eventType, unlisted.version, sha256Of(avsc(unlisted.file())), fingerprintOf(t, unlisted.composed))
		if *rewrite {
			appendTo(t, "frozen.txt", line)
			continue
		}
		t.Errorf("schemas/%s is not on the frozen list, and so no build reads it. To release it, run go test ./schemas -rewrite, which adds to "+
			"frozen.txt the line\n\t%sThen add an upcaster from version %d in upcast.go, and a fixture testdata/fixtures/%s.v%d.json.",
			unlisted.file(), line, unlisted.version-1, unlisted.eventType, unlisted.version)
	}
}

// goavro computes other fingerprints than the specification, so that the list is checked by another implementation.
func TestFingerprintsAreThoseOfTheSpecification(t *testing.T) {
	for s := range allReleased() {
		if want := fingerprintOf(t, s.composed); s.fingerprint != want {
			t.Errorf("%s: the frozen list has fingerprint %016x, and the schema has %016x", s.file(), s.fingerprint, want)
		}
	}
}

func TestNoTwoSchemasShareAFingerprint(t *testing.T) {
	seen := map[uint64]string{}
	for s := range allReleased() {
		if other, ok := seen[s.fingerprint]; ok {
			t.Errorf("%s and %s have the same fingerprint: a reader could not tell them apart", s.file(), other)
		}
		seen[s.fingerprint] = s.file()
	}
}

func TestAnotherImplementationTakesEverySchema(t *testing.T) {
	for s := range allReleased() {
		for _, text := range []string{avsc(s.file()), s.composed} {
			if _, err := avro.Parse(text); err != nil {
				t.Errorf("%s: %v", s.file(), err)
			}
		}
	}
}

func TestTheFrozenListSaysWhatAReleaseLacks(t *testing.T) {
	v1, v2 := upcastStep{event.SessionCreatedType, 1}, fmt.Sprintf("session.created 2 x %016x\n", 2)
	step := upcasters[v1]
	delete(upcasters, v1)
	_, noStep := load(fmt.Sprintf("session.created 1 x %016x\n%s", 1, v2))
	upcasters[v1] = step
	_, outOfTurn := load(v2)
	_, noFile := load("run.failed 2 x 02\n")
	_, words := load("run.failed 1 x\n")
	for says, err := range map[string]error{
		"upcast.go: no step takes session.created from version 1 to 2": noStep,
		"version 2 of session.created is out of turn":                  outOfTurn,
		"run.failed/v2.avsc": noFile,
		"four words":         words,
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, and it should say: %s", err, says)
		}
	}
}

func allReleased() func(yield func(*schema) bool) {
	return func(yield func(*schema) bool) {
		for _, name := range Types() {
			for _, s := range released[name].versions {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// unlistedSchemas are the .avsc files that the frozen list does not name, lower versions first.
func unlistedSchemas(t *testing.T) []*schema {
	names, err := fs.Glob(files, "*/v*.avsc")
	if err != nil {
		t.Fatal(err)
	}
	var unlisted []*schema
	for _, name := range names {
		folder, file, _ := strings.Cut(name, "/")
		version := 0
		if _, err := fmt.Sscanf(file, "v%d.avsc", &version); err != nil {
			t.Errorf("schemas/%s: a schema's file is named v<N>.avsc", name)
			continue
		}
		if version > Latest(event.Type(folder)) {
			s, err := newSchema(event.Type(folder), version)
			if err != nil {
				t.Fatalf("schemas/%s: %v", name, err)
			}
			unlisted = append(unlisted, s)
		}
	}
	slices.SortFunc(unlisted, func(a, b *schema) int {
		return strings.Compare(fmt.Sprintf("%s %4d", a.eventType, a.version), fmt.Sprintf("%s %4d", b.eventType, b.version))
	})
	return unlisted
}

func (s *schema) file() string { return fmt.Sprintf("%s/v%d.avsc", s.eventType, s.version) }

func sha256Of(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

func fingerprintOf(t *testing.T, schema string) uint64 {
	parsed, err := avro.Parse(schema)
	if err != nil {
		t.Fatal(err)
	}
	return binary.BigEndian.Uint64(parsed.Fingerprint(avro.NewRabin()))
}

func appendTo(t *testing.T, name, text string) {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}
