package simulation

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
)

// kind is what a record of the log is.
type kind string

const (
	good       kind = "event"
	poison     kind = "poison" // no build can read it
	purgedCopy kind = "event.purged"
	tombstone  kind = "tombstone"
	emptyValue kind = "empty value"
	badKey     kind = "bad key"
	misplaced  kind = "on a wrong partition"
	closed     kind = "marker closed"
	runPurged  kind = "marker run"
	withdrawn  kind = "marker withdrawn"
)

// entry is a record of the log, as the harness knows it: not by reading it again, but from having made it.
type entry struct {
	kind       kind
	session    string
	seq        int64
	id, prev   string // of a withdrawn marker, id is the withdrawn event's
	run        string
	texts      []string   // the rows that it comes to
	code       event.Code // of poison
	unreadable bool       // poison of which not even the envelope can be read, or whose key is not that of its envelope
	newBuild   bool       // the old build cannot take it

	key       string
	value     []byte
	partition int32
	offset    int64 // -1 until it is acknowledged
	envelope  event.Envelope
	// after is the watermark that must be reached before it is written.
	after int64
}

// The text that the old build's store refuses.
const newThing = "new thing"

var (
	plainEncoder = schemas.NewEncoder()
	schemaTexts  = map[uint32]string{} // what the new build's registry knows
	idEncoder    = func() *schemas.Encoder {
		ids := schemas.IDs{}
		for _, t := range schemas.Types() {
			for v := 1; v <= schemas.Latest(t); v++ {
				id := uint32(len(ids) + 1)
				ids[schemas.FullName(t, v)] = id
				schemaTexts[id], _ = schemas.Schema(t, v)
			}
		}
		return must(schemas.NewRegistryEncoder(ids))
	}()
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// author writes the script of one session: its records, in the order in which they are sent.
type author struct {
	*rand.Rand
	session string
	ids     *int // counts the event ids of a seed
}

func (a *author) chance(percent int) bool { return a.IntN(100) < percent }

func (a *author) newID() string {
	*a.ids++
	return fmt.Sprintf("018f0000-0000-7000-8000-%012x", *a.ids)
}

// event is a good event, encoded.
func (a *author) event(seq int64, prev, run string) entry {
	e := entry{kind: good, session: a.session, seq: seq, id: a.newID(), prev: prev, run: run}
	text := fmt.Sprintf("text %d of %s", seq, e.id[24:])
	encoder := plainEncoder
	switch a.IntN(16) {
	case 0:
		e.newBuild, text = true, newThing+" "+text
	case 1:
		e.newBuild, encoder = true, idEncoder
	}
	var payload event.Payload = event.UserMessageCreated{Content: []event.Part{event.Text{Text: text}}, Trust: event.User}
	e.texts = []string{text}
	switch a.IntN(6) {
	case 0:
		if !strings.HasPrefix(text, newThing) {
			payload, e.texts = event.NoteRecorded{Name: "note", Data: "{}"}, nil
		}
	case 1:
		payload, e.texts = event.ModelResponseCompleted{Round: 1, Items: []event.ResponseItem{
			event.AssistantMessage{Content: []event.Part{event.Text{Text: text}}}, event.AssistantMessage{Content: []event.Part{event.Text{Text: "and " + text}}},
		}}, []string{text, "and " + text}
	}
	full := event.Event{Envelope: event.Envelope{
		EnvelopeVersion: 1, EventID: e.id, TenantID: event.DefaultTenant, SessionID: a.session, Seq: seq, ActorType: "runtime", PartitionKey: a.session,
		RunID: event.Opt[string]{Value: run, OK: run != ""}, PrevEventID: event.Opt[string]{Value: prev, OK: prev != ""},
	}, Payload: payload}
	stored := must(schemas.StoredOf(full))
	e.envelope, e.key = stored.Envelope, schemas.EventKey(a.session, seq, e.id)
	e.value = must(encoder.Encode(nil, stored))
	return e
}

// chain is n good events from seq first on, which follow prev.
func (a *author) chain(first int64, prev string, n int) []entry {
	var out []entry
	run := ""
	for i := range n {
		if a.chance(30) {
			run = []string{"", "r1", "r2"}[a.IntN(3)]
		}
		e := a.event(first+int64(i), prev, run)
		out, prev = append(out, e), e.id
	}
	return out
}

// spoil makes poison of a good event: what no build can read.
func (a *author) spoil(e entry) entry {
	e.kind, e.texts, e.newBuild = poison, nil, false
	frame := 10
	if e.value[0] == 0 {
		frame = 5
	}
	body := slices.Clone(e.value[frame:])
	alien := func(patched []byte) []byte { // framed with a fingerprint that nobody has
		return append(binary.LittleEndian.AppendUint64([]byte{0xC3, 1}, 0x1234), patched...)
	}
	typeEnds := strings.Index(string(body), string(e.envelope.Type)) + len(e.envelope.Type)
	switch a.IntN(8) {
	case 0:
		e.value, e.code, e.unreadable = append([]byte{7}, e.value[1:]...), event.BadFrame, true
	case 1:
		e.value, e.code = e.value[:len(e.value)-1-a.IntN(2)], event.BadPayload
	case 2:
		e.value, e.code = append(slices.Clone(e.value), 0), event.LeftOverBytes
	case 3:
		e.value, e.code, e.unreadable = append(slices.Clone(e.value[:frame]), 0xfe, 0xff, 0xff, 0xff, 0x0f), event.BadEnvelope, true
	case 4:
		body[typeEnds-1] = 'X'
		e.value, e.code = alien(body), event.UnknownType
	case 5:
		body[typeEnds] = 9 << 1
		e.value, e.code = alien(body), event.NewerVersion
	case 6:
		e.value, e.code, e.unreadable = []byte{0, 0, 0, 0xff, 0xff, 1, 2, 3}, event.UnknownSchema, true
	case 7: // the value of another event
		e.value, e.code, e.unreadable = a.event(e.seq+1, e.id, e.run).value, event.KeyMismatch, true
		if e.value[0] == 0 { // which the old build would park for another reason
			e.value = append([]byte{7}, e.value[1:]...)
			e.code = event.BadFrame
		}
	}
	return e
}

// script writes a session.
func (a *author) script() []entry {
	chain := a.chain(1, "", 3+a.IntN(11))
	switch roll := a.IntN(100); {
	case roll < 50:
		return a.incidents(a.disorder(chain), true)
	case roll < 70:
		return a.poisoned(chain)
	default:
		return a.rivals(chain)
	}
}

// disorder holds events back, sends some again, and loses one for good now and then.
func (a *author) disorder(s []entry) []entry {
	if len(s) > 1 && a.chance(12) {
		i := a.IntN(len(s))
		s = slices.Delete(slices.Clone(s), i, i+1)
	}
	for range a.IntN(3) {
		if len(s) < 2 {
			break
		}
		from := a.IntN(len(s) - 1)
		held := s[from]
		s = slices.Delete(slices.Clone(s), from, from+1)
		s = slices.Insert(s, from+1+a.IntN(len(s)-from), held)
	}
	for range a.IntN(4) {
		s = a.again(s)
	}
	return s
}

// again sends one of the events again, later.
func (a *author) again(s []entry) []entry {
	if len(s) == 0 {
		return s
	}
	from := a.IntN(len(s))
	if s[from].kind != good {
		return s
	}
	return slices.Insert(slices.Clone(s), from+1+a.IntN(len(s)-from), s[from])
}

// poisoned puts poison in an event's place: for good, until it is written again as it should be, or until it is withdrawn.
func (a *author) poisoned(chain []entry) []entry {
	k := a.IntN(len(chain))
	bad := a.spoil(chain[k])
	switch a.IntN(3) {
	case 0:
		s := slices.Clone(chain)
		s[k] = bad
		return a.incidents(a.disorder(s), false)
	case 1:
		s := slices.Clone(chain)
		s[k] = bad
		s = a.disorder(s)
		at := slices.IndexFunc(s, func(e entry) bool { return e.kind == poison })
		if at < 0 { // lost
			return s
		}
		s = slices.Insert(s, at+1+a.IntN(len(s)-at), chain[k])
		return a.incidents(s, false)
	default:
		bad = a.spoil(a.event(chain[k].seq, chain[k].prev, chain[k].run))
		before := append(slices.Clone(chain[:k]), bad)
		if a.chance(50) {
			before = append(before, a.chain(bad.seq+1, bad.id, 1+a.IntN(2))...)
		}
		return a.incidents(append(a.settle(before, before[k:]), a.disorder(chain[k:])...), false)
	}
}

// rivals makes two events claim one place, or a fork that shows only in what an event says it follows; settled or not.
func (a *author) rivals(chain []entry) []entry {
	k := a.IntN(len(chain) - 1) // the last event that both have, or none at all
	fork, prev := chain[k].seq, ""
	if k > 0 {
		prev = chain[k-1].id
	}
	branch := a.chain(fork, prev, 1+a.IntN(2))
	at := k + 1
	switch a.IntN(4) {
	case 0: // only its second event is in the log
		branch = a.chain(fork+1, a.newID(), 1)
	case 1: // it comes when the session is far ahead
		at = min(len(chain), k+3)
	case 2: // a stray far ahead
		branch = a.chain(fork+100, a.newID(), 1)
	}
	s := slices.Insert(slices.Clone(chain), at, branch...)
	if a.chance(40) { // the log's order says who was first, so nothing may change it
		if a.chance(15) {
			return a.close(s)
		}
		return s
	}
	if a.chance(30) { // the first one loses, with all that followed it
		s = append(slices.Clone(chain[:at]), branch...)
		if len(branch) == 1 && branch[0].seq == fork {
			return a.incidents(append(a.settle(s, chain[k:at]), a.disorder(a.chain(fork+1, branch[0].id, 1+a.IntN(4)))...), false)
		}
		return a.incidents(a.settle(s, chain[k:at]), false)
	}
	cut := at + len(branch) + a.IntN(len(s)-at-len(branch)+1)
	return a.incidents(append(a.settle(s[:cut], branch), a.disorder(s[cut:])...), false)
}

// settle withdraws events: markers, then tombstones; now and then a tombstone comes first, or the event again.
func (a *author) settle(s []entry, losers []entry) []entry {
	s = slices.Clone(s)
	for _, l := range losers {
		marker := entry{kind: withdrawn, session: a.session, id: l.id, key: schemas.WithdrawnKey(a.session, l.id)}
		removal := entry{kind: tombstone, session: a.session, seq: l.seq, id: l.id, key: l.key}
		switch a.IntN(6) {
		case 0:
			s = append(s, removal, marker)
		case 1:
			s = append(s, marker, removal, l)
		case 2:
			s = append(s, marker)
		default:
			s = append(s, marker, removal)
		}
	}
	return s
}

// incidents adds purges and what belongs to no session. plain says that nothing of the session was withdrawn or is bad.
func (a *author) incidents(s []entry, plain bool) []entry {
	if a.chance(30) {
		return a.purgeRun(s)
	}
	if a.chance(8) {
		return a.close(s)
	}
	if a.chance(25) {
		if i := a.IntN(len(s)); s[i].kind == good && !s[i].newBuild {
			e := s[i]
			e.kind = misplaced
			s = slices.Insert(slices.Clone(s), a.IntN(len(s)+1), e)
		}
	}
	if a.chance(20) {
		id := a.newID()
		e := entry{kind: emptyValue, session: a.session, seq: 1 + int64(a.IntN(9)), id: id, value: []byte{}}
		e.key = schemas.EventKey(a.session, e.seq, id)
		s = slices.Insert(slices.Clone(s), a.IntN(len(s)+1), e)
	}
	if a.chance(20) {
		id := a.newID()
		e := entry{kind: tombstone, session: a.session, seq: 1 + int64(a.IntN(9)), id: id}
		e.key = schemas.EventKey(a.session, e.seq, id)
		s = slices.Insert(slices.Clone(s), a.IntN(len(s)+1), e)
	}
	if plain && a.chance(15) { // the tombstone of an event that is projected
		if i := a.IntN(len(s)); s[i].kind == good {
			e := s[i]
			s = append(slices.Clone(s), entry{kind: tombstone, session: a.session, seq: e.seq, id: e.id, key: e.key, after: e.seq})
		}
	}
	return s
}

// latest is what the log, up to here, holds under each key, in the order of their first coming.
func latest(s []entry) []entry {
	var keys []string
	last := map[string]entry{}
	for _, e := range s {
		if _, seen := last[e.key]; !seen {
			keys = append(keys, e.key)
		}
		last[e.key] = e
	}
	out := make([]entry, 0, len(keys))
	for _, k := range keys {
		out = append(out, last[k])
	}
	return out
}

// purgeRun writes the run's marker and then event.purged over what the log holds of it; what comes later comes late.
func (a *author) purgeRun(s []entry) []entry {
	at := a.IntN(len(s) + 1)
	out := append(slices.Clone(s[:at]), entry{kind: runPurged, session: a.session, run: "r1", key: schemas.RunKey(a.session, "r1")})
	for _, e := range latest(s[:at]) {
		if e.run == "r1" && (e.kind == good || e.kind == poison && !e.unreadable) {
			e.kind, e.texts, e.newBuild = purgedCopy, nil, false
			e.value = must(plainEncoder.Encode(nil, must(schemas.StoredOf(event.Purged(e.envelope, "asked for")))))
			out = append(out, e)
		}
	}
	return append(out, s[at:]...)
}

// close purges the session: its marker, then tombstones. Now and then a tombstone is faster.
func (a *author) close(s []entry) []entry {
	at := a.IntN(len(s) + 1)
	out := slices.Clone(s[:at])
	removals := []entry{{kind: closed, session: a.session, key: schemas.ClosedKey(a.session)}}
	for _, e := range latest(s[:at]) {
		if e.kind == good || e.kind == poison {
			removals = append(removals, entry{kind: tombstone, session: a.session, seq: e.seq, id: e.id, key: e.key})
		}
	}
	if len(removals) > 1 && a.chance(20) {
		removals[0], removals[1] = removals[1], removals[0]
	}
	return append(append(out, removals...), s[at:]...)
}

// newLoad is all that a seed writes, in the order in which it is sent; that of each session is kept.
func newLoad(r *rand.Rand, partitions int32) []entry {
	ids := 0
	var scripts [][]entry
	for i := range 8 + r.IntN(9) {
		a := &author{Rand: r, session: fmt.Sprintf("session-%d", i), ids: &ids}
		s := a.script()
		for j := range s {
			s[j].partition = schemas.Partition(a.session, partitions)
			if s[j].kind == misplaced {
				s[j].partition = (s[j].partition + 1) % partitions
			}
		}
		scripts = append(scripts, s)
	}
	var nobodys []entry
	for i, k := range []string{"nonsense", "a/0/unknown", "\xff/1/2", "a//b"}[:r.IntN(5)] {
		nobodys = append(nobodys, entry{kind: badKey, key: fmt.Sprintf("%s%d", k, i), value: []byte("x"), partition: r.Int32N(partitions)})
	}
	scripts = append(scripts, nobodys)
	var load []entry
	for len(scripts) > 0 {
		i := r.IntN(len(scripts))
		n := min(len(scripts[i]), 1+r.IntN(4))
		load, scripts[i] = append(load, scripts[i][:n]...), scripts[i][n:]
		if len(scripts[i]) == 0 {
			scripts = slices.Delete(scripts, i, i+1)
		}
	}
	for i := range load {
		load[i].offset = -1
	}
	return load
}
