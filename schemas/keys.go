package schemas

import (
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tooltape/tooltape/schemas/event"
)

// Topics names the topics of one installation.
type Topics struct {
	// Prefix comes before every name; empty means DefaultPrefix.
	Prefix string
}

// DefaultPrefix is the prefix of topics where none is configured.
const DefaultPrefix = "tooltape"

// Events holds the events and the markers, the record itself.
func (t Topics) Events() string { return t.name("events") }

// Runs holds the state of the decision processor.
func (t Topics) Runs() string { return t.name("runs") }

// Decisions holds where each record of a batch stands.
func (t Topics) Decisions() string { return t.name("decisions") }

// Retries is, as a table, the set of records to offer now.
func (t Topics) Retries() string { return t.name("retries") }

// Group is the consumer group of a projection.
func (t Topics) Group(projection string) string { return t.name(projection) }

func (t Topics) name(topic string) string {
	if t.Prefix == "" {
		return DefaultPrefix + "." + topic
	}
	return t.Prefix + "." + topic
}

// MaxKey bounds the key of a record in bytes: the longest ids, with every byte of them percent-encoded.
const MaxKey = 3*(event.MaxSessionID+event.MaxID) + 32

// Marker says what a key of the events topic announces.
type Marker uint8

// A key is an event's, or that of one of the three markers, which are written before what they announce and are never deleted.
const (
	NoMarker        Marker = iota
	ClosedMarker           // the session is purged
	RunMarker              // the run is purged
	WithdrawnMarker        // the event lost a conflict and is withdrawn
)

// Key is a key of the events topic, taken apart.
type Key struct {
	Marker    Marker
	SessionID string
	// Seq is 0 for markers, and only for them.
	Seq int64
	// EventID is the event's id, or the withdrawn one's; empty for the other markers. A key may hold a text that is no UUID: then
	// its event is bad, but the session is known, and the event can be withdrawn.
	EventID string
	// RunID is the run of a RunMarker.
	RunID string
}

// String is the key as it stands on the topic; ParseKey is its inverse.
func (k Key) String() string {
	switch k.Marker {
	case ClosedMarker:
		return ClosedKey(k.SessionID)
	case RunMarker:
		return RunKey(k.SessionID, k.RunID)
	case WithdrawnMarker:
		return WithdrawnKey(k.SessionID, k.EventID)
	default:
		return EventKey(k.SessionID, k.Seq, k.EventID)
	}
}

// EventKey is the key of an event: <session_id>/<seq>/<event_id>. By the session alone, compaction would destroy history; without
// the event id it would decide a conflict by deleting the first event.
func EventKey(session string, seq int64, eventID string) string {
	return JoinKey(session, strconv.FormatInt(seq, 10), eventID)
}

// ClosedKey is the key of the marker that a session is purged.
func ClosedKey(session string) string { return JoinKey(session, "0", "closed") }

// RunKey is the key of the marker that a run is purged.
func RunKey(session, run string) string { return JoinKey(session, "0", "run", run) }

// WithdrawnKey is the key of the marker that an event is withdrawn.
func WithdrawnKey(session, eventID string) string { return JoinKey(session, "0", "withdrawn", eventID) }

// ParseKey takes a key of the events topic apart. It takes exactly what the functions above make of an event's ids, so one event
// has one key: compaction compares bytes. The error never contains the key.
func ParseKey(key []byte) (Key, error) {
	if len(key) > MaxKey {
		return Key{}, errors.New("the key is longer than " + strconv.Itoa(MaxKey) + " bytes")
	}
	parts, err := SplitKey(string(key))
	if err != nil {
		return Key{}, err
	}
	if len(parts) < 3 {
		return Key{}, errors.New("the key has fewer than three parts")
	}
	k := Key{SessionID: parts[0]}
	if len(k.SessionID) > event.MaxSessionID || strings.ContainsFunc(k.SessionID, unicode.IsControl) {
		return Key{}, errors.New("the key's session id is longer than " + strconv.Itoa(event.MaxSessionID) +
			" bytes or contains a control character")
	}
	if len(parts[len(parts)-1]) > event.MaxID {
		return Key{}, errors.New("the key's last part is longer than " + strconv.Itoa(event.MaxID) + " bytes")
	}
	if parts[1] == "0" {
		return k.marker(parts[2:])
	}
	return k.event(parts[1:])
}

func (k Key) marker(parts []string) (Key, error) {
	switch {
	case len(parts) == 1 && parts[0] == "closed":
		k.Marker = ClosedMarker
	case len(parts) == 2 && parts[0] == "run":
		k.Marker, k.RunID = RunMarker, parts[1]
	case len(parts) == 2 && parts[0] == "withdrawn":
		k.Marker, k.EventID = WithdrawnMarker, parts[1]
	default:
		return Key{}, errors.New("the key has seq 0, but is none of the markers closed, run/… and withdrawn/…")
	}
	return k, nil
}

func (k Key) event(parts []string) (Key, error) {
	seq, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil || seq < 1 || strconv.FormatInt(seq, 10) != parts[0] {
		return Key{}, errors.New("the key's seq is not a whole number from 1 up, without sign and leading zeros")
	}
	if len(parts) != 2 {
		return Key{}, errors.New("the key of an event has more than three parts")
	}
	k.Seq, k.EventID = seq, parts[1]
	return k, nil
}

// RecordKey is the key of a batch's record, <tenant>/<batch>/<key>: the partition key of every session about it, and its key on the
// topics of decisions and retries.
func RecordKey(tenant, batch, key string) string { return JoinKey(tenant, batch, key) }

// ParseRecordKey is the inverse of RecordKey. A session about no record has its own id as its partition key; whoever asks compares
// with that first.
func ParseRecordKey(key string) (tenant, batch, record string, err error) {
	parts, err := SplitKey(key)
	if err != nil {
		return "", "", "", err
	}
	if len(parts) != 3 {
		return "", "", "", errors.New("the key of a record does not have three parts")
	}
	return parts[0], parts[1], parts[2], nil
}

var encodePart = strings.NewReplacer("%", "%25", "/", "%2F")

// JoinKey makes a key of parts: a slash between them, and in each of them % as %25 and / as %2F. Nothing else is encoded.
func JoinKey(parts ...string) string {
	var b strings.Builder
	for i, p := range parts {
		if i > 0 {
			b.WriteByte('/')
		}
		if strings.ContainsAny(p, "%/") {
			p = encodePart.Replace(p)
		}
		b.WriteString(p)
	}
	return b.String()
}

// SplitKey is the inverse of JoinKey for parts that are not empty. It refuses what JoinKey never writes: bad UTF-8, empty parts,
// any percent sign but those of %25 and %2F. The error never contains the key.
func SplitKey(key string) ([]string, error) {
	if !utf8.ValidString(key) {
		return nil, errors.New("the key is not valid UTF-8")
	}
	parts := strings.Split(key, "/")
	for i, p := range parts {
		if p == "" {
			return nil, errors.New("the key has an empty part")
		}
		if !strings.Contains(p, "%") {
			continue
		}
		var err error
		if parts[i], err = decodePart(p); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

func decodePart(p string) (string, error) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(p, "%")
		b.WriteString(before)
		switch {
		case !found:
			return b.String(), nil
		case strings.HasPrefix(after, "25"):
			b.WriteByte('%')
		case strings.HasPrefix(after, "2F"):
			b.WriteByte('/')
		default:
			return "", errors.New("the key has a percent sign that is neither %25 nor %2F")
		}
		p = after[2:]
	}
}

// Partition is where a session lies: murmur2 of its partition key, as the Java client computes it, modulo the number of
// partitions, which must be positive. Writers set it explicitly: a client's own partitioner would hash the record's key.
func Partition(partitionKey string, partitions int32) int32 {
	return int32(murmur2(partitionKey)&0x7fffffff) % partitions
}

// murmur2 is org.apache.kafka.common.utils.Utils.murmur2.
func murmur2(s string) uint32 {
	const m = 0x5bd1e995
	h := 0x9747b28c ^ uint32(len(s))
	for ; len(s) >= 4; s = s[4:] {
		k := uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
		k *= m
		k ^= k >> 24
		h = h*m ^ k*m
	}
	if len(s) > 0 {
		for i := range len(s) {
			h ^= uint32(s[i]) << (8 * i)
		}
		h *= m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}
