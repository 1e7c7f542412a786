package schemas

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/tooltape/tooltape/schemas/event"
)

// ErrUnknownID is what a registry's lookup returns for an id that the registry does not know: a fact about the record, for which
// its session is parked. Any other error is the registry's trouble, and the reader backs off.
var ErrUnknownID = errors.New("the schema registry does not know this id")

// IDs are the ids that a schema registry gave the frozen schemas, by full name, such as "tooltape.run.started.V1".
type IDs map[string]uint32

// FullName is the name of the record schema of a type and payload version, such as "tooltape.run.started.V1".
func FullName(t event.Type, version int) string { return fmt.Sprintf("tooltape.%s.V%d", t, version) }

// The heads of the two framings. Single-object encoding is of the Avro specification; the other one is Confluent's.
const (
	singleObject0, singleObject1 = 0xC3, 0x01 // then 8 bytes of fingerprint, little-endian
	singleObjectLen              = 10
	confluent0                   = 0x00 // then 4 bytes of schema id, big-endian
	confluentLen                 = 5
)

// shape is one frozen schema: what a record was written with.
type shape struct {
	of      event.Type
	version int
}

// Decoder reads values of the events topic in both framings. It is safe for concurrent use.
type Decoder struct {
	lookup func(ctx context.Context, id uint32) (string, error)

	mu sync.RWMutex
	// ids never holds an id that is unknown: somebody may register its schema the next moment.
	ids map[uint32]resolved
}

// resolved is what an id stands for, for ever: registries never give an id to another schema.
type resolved struct {
	shape
	err *event.Error // the schema is none of the frozen ones
}

// maxIDs bounds the ids that are kept; there are as many as frozen schemas, unless somebody fills the topic with others.
const maxIDs = 4096

// NewDecoder makes a decoder that asks lookup for the text of the schema with an id: ErrUnknownID where there is none. A nil lookup
// means that no registry is configured; single-object encoding is read all the same.
func NewDecoder(lookup func(ctx context.Context, id uint32) (schemaText string, err error)) *Decoder {
	return &Decoder{lookup: lookup, ids: map[uint32]resolved{}}
}

// Decode reads an event in its current shape, and checks it (event.Check). An error that is an *event.Error is a fact about the
// record; beside it the event has its envelope, as far as that could be read, and no payload. Any other error says that the registry
// gave no answer: try again.
func (d *Decoder) Decode(ctx context.Context, value []byte) (event.Event, error) {
	s, record, err := d.open(ctx, value)
	if err != nil {
		envelope, err := explain(record, err)
		return event.Event{Envelope: envelope}, err
	}
	return DecodeEvent(s.of, s.version, record)
}

// DecodeStored reads an event as it was stored: before any upcaster, and unchecked but for its bytes. Its errors are those of Decode.
func (d *Decoder) DecodeStored(ctx context.Context, value []byte) (Stored, error) {
	s, record, err := d.open(ctx, value)
	if err != nil {
		envelope, err := explain(record, err)
		return Stored{Envelope: envelope}, err
	}
	return DecodeRecord(s.of, s.version, record)
}

// open takes the frame off and says which frozen schema the record was written with. The record comes back beside an error too,
// where the frame could be read.
func (d *Decoder) open(ctx context.Context, value []byte) (shape, []byte, error) {
	switch {
	case len(value) >= singleObjectLen && value[0] == singleObject0 && value[1] == singleObject1:
		s, ok := index().byFingerprint[binary.LittleEndian.Uint64(value[2:])]
		if !ok {
			return shape{}, value[singleObjectLen:], &event.Error{Code: event.UnknownSchema,
				Message: "no frozen schema has the fingerprint that the record states"}
		}
		return s, value[singleObjectLen:], nil
	case len(value) >= confluentLen && value[0] == confluent0:
		s, err := d.resolve(ctx, binary.BigEndian.Uint32(value[1:]))
		return s, value[confluentLen:], err
	default:
		return shape{}, nil, &event.Error{Code: event.BadFrame,
			Message: "the value begins neither as single-object encoding (C3 01 and a fingerprint) nor as a schema registry's (00 and an id)"}
	}
}

// resolve says which frozen schema an id stands for.
func (d *Decoder) resolve(ctx context.Context, id uint32) (shape, error) {
	d.mu.RLock()
	r, ok := d.ids[id]
	d.mu.RUnlock()
	if !ok {
		text, err := d.text(ctx, id)
		if err != nil {
			return shape{}, err
		}
		r = identify(text)
		d.remember(id, r)
	}
	if r.err != nil {
		return shape{}, r.err
	}
	return r.shape, nil
}

func (d *Decoder) text(ctx context.Context, id uint32) (string, error) {
	if d.lookup == nil {
		return "", &event.Error{Code: event.UnknownSchema,
			Message: "the record states the schema id " + strconv.FormatUint(uint64(id), 10) + ", and no schema registry is configured"}
	}
	text, err := d.lookup(ctx, id)
	switch {
	case errors.Is(err, ErrUnknownID):
		return "", &event.Error{Code: event.UnknownSchema,
			Message: "the schema registry does not know the schema id " + strconv.FormatUint(uint64(id), 10)}
	case err != nil:
		return "", fmt.Errorf("ask the schema registry for the schema id %d: %w", id, err)
	}
	return text, nil
}

func (d *Decoder) remember(id uint32, r resolved) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.ids) >= maxIDs {
		clear(d.ids)
	}
	d.ids[id] = r
}

// explain says more precisely why a schema is unknown: the envelope comes first in every record and is the same for every type, so it
// can be read even then.
func explain(record []byte, err error) (event.Envelope, error) {
	var fact *event.Error
	if !errors.As(err, &fact) || fact.Code != event.UnknownSchema {
		return event.Envelope{}, err
	}
	envelope, _, readErr := DecodeEnvelope(record)
	if readErr != nil || event.CheckEnvelope(envelope) != nil {
		// The schema may be anybody's, and its bytes may read as an envelope by chance: only a sound one counts.
		return event.Envelope{}, fact
	}
	return envelope, unknownSchema(envelope, fact)
}

func unknownSchema(e event.Envelope, otherwise *event.Error) *event.Error {
	switch latest := Latest(e.Type); {
	case latest == 0:
		return &event.Error{Code: event.UnknownType, Field: "type", Message: "is not an event type that this build knows"}
	case e.PayloadVersion > latest:
		return &event.Error{Code: event.NewerVersion, Field: "payload_version",
			Message: "is newer than this build knows: it knows versions up to " + strconv.Itoa(latest)}
	}
	return otherwise
}

// Encoder writes values of the events topic in one of the two framings. It is safe for concurrent use.
type Encoder struct{ heads map[shape][]byte }

// NewEncoder makes an encoder that writes single-object encoding: it needs no registry.
func NewEncoder() *Encoder {
	heads := make(map[shape][]byte)
	for fingerprint, s := range index().byFingerprint {
		heads[s] = binary.LittleEndian.AppendUint64([]byte{singleObject0, singleObject1}, fingerprint)
	}
	return &Encoder{heads}
}

// NewRegistryEncoder makes an encoder that writes the Confluent wire format with the ids of a registration. It is an error if one of
// the frozen schemas has no id: better now than at the first event of a rare type.
func NewRegistryEncoder(ids IDs) (*Encoder, error) {
	heads := make(map[shape][]byte)
	for name, s := range index().byName {
		id, ok := ids[name]
		if !ok {
			return nil, fmt.Errorf("the schema %s is not registered", name)
		}
		heads[s.shape] = binary.BigEndian.AppendUint32([]byte{confluent0}, id)
	}
	return &Encoder{heads}, nil
}

// Encode appends the framed event to dst. On an error, dst comes back as it was.
func (e *Encoder) Encode(dst []byte, s Stored) ([]byte, error) {
	head, ok := e.heads[shape{s.Type, s.PayloadVersion}]
	if !ok {
		return dst, unknownSchema(s.Envelope, &event.Error{Code: event.UnknownSchema, Field: "payload_version",
			Message: "is not a version of this event type"})
	}
	value, err := s.AppendBinary(append(dst, head...))
	if err != nil {
		return dst, err
	}
	return value, nil
}
