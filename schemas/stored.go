package schemas

import (
	"fmt"

	"github.com/tooltape/tooltape/schemas/event"
)

// Stored is an event as it was stored: its payload has the shape of the version that the envelope states.
type Stored struct {
	event.Envelope

	// StatedVersion says of an event that was read from JSON whether it stated its payload version; where it did not, it was
	// read as its type's current one.
	StatedVersion bool

	// payload is in goavro's native form, and shared by copies of the event: nothing changes it.
	payload map[string]any
	// schema is the payload's shape. Only in an upcast event is it another than the envelope states.
	schema *schema
}

// StoredOf is the event as it is stored today: at its type's current payload version. An event of an older version is refused,
// since what an upcaster left open would become a recorded fact.
func StoredOf(e event.Event) (Stored, error) {
	if e.Payload == nil {
		return Stored{Envelope: e.Envelope}, errNoPayload()
	}
	known := released[e.Payload.Type()]
	current := known.versions[len(known.versions)-1]
	s := Stored{Envelope: e.Envelope, StatedVersion: e.PayloadVersion != 0, schema: current}
	if s.Type == "" {
		s.Type = current.eventType
	}
	if s.PayloadVersion == 0 {
		s.PayloadVersion = current.version
	}
	if err := s.storable(); err != nil {
		return s, err
	}
	payload, err := known.mapping.write(e.Payload)
	if err != nil {
		return s, within("payload", err)
	}
	s.payload = payload
	return s, nil
}

// storable says whether the payload has the shape that the envelope states.
func (s Stored) storable() *event.Error {
	switch {
	case s.schema == nil:
		return errNoPayload()
	case s.Type != s.schema.eventType:
		return &event.Error{Code: event.BadEnvelope, Field: "type", Message: "is not the type of the payload"}
	case s.PayloadVersion > Latest(s.Type):
		_, err := lookup(s.Type, s.PayloadVersion)
		return err
	case s.PayloadVersion != s.schema.version:
		return &event.Error{Code: event.BadEnvelope, Field: "payload_version",
			Message: fmt.Sprintf("is %d, and the payload has the shape of version %d: an upcast event cannot be stored again",
				s.PayloadVersion, s.schema.version)}
	}
	return nil
}

func errNoPayload() *event.Error {
	return &event.Error{Code: event.BadPayload, Field: "payload", Message: "is missing"}
}

// DecodeRecord reads an unframed record that its framing says is of that type and version. Beside an error stands the
// envelope, wherever it could be read.
func DecodeRecord(t event.Type, version int, record []byte) (Stored, error) {
	schema, unknown := lookup(t, version)
	w := walker{buf: record}
	env, err := w.envelope()
	s := Stored{Envelope: env, StatedVersion: true}
	switch {
	case unknown != nil:
		return s, unknown
	case err != nil:
		return s, err
	}
	if err := schema.agrees(env); err != nil {
		return s, err
	}
	payload, err := schema.decode(&w)
	if err != nil {
		return s, err
	}
	s.payload, s.schema = payload, schema
	return s, nil
}

// agrees says whether an envelope states what its record's framing says.
func (s *schema) agrees(env event.Envelope) *event.Error {
	const message = "is not what the record's schema is for"
	if env.Type != s.eventType {
		return &event.Error{Code: event.BadEnvelope, Field: "type", Message: message}
	}
	if env.PayloadVersion != s.version {
		return &event.Error{Code: event.BadEnvelope, Field: "payload_version", Message: message}
	}
	return nil
}

// decode reads the payload, which the record must end with.
func (s *schema) decode(w *walker) (map[string]any, *event.Error) {
	start := w.at
	if err := w.payload(s.payload); err != nil {
		return nil, err
	}
	native, rest, err := s.codec.NativeFromBinary(w.buf[start:w.at])
	if err != nil || len(rest) > 0 {
		return nil, &event.Error{Code: event.BadPayload, Field: "payload", Message: "is refused by the codec"}
	}
	payload := asMap(native)
	if s.mayBeAbsent != "" && payload[s.mayBeAbsent] == nil {
		delete(payload, s.mayBeAbsent) // Avro has no third state: its null says that nothing was recorded
	}
	return payload, nil
}

// payload walks the payload, which the record must end with.
func (w *walker) payload(tree *node) *event.Error {
	w.code = event.BadPayload
	if err := w.walk(tree); err != nil {
		return within("payload", err)
	}
	if left := len(w.buf) - w.at; left > 0 {
		return &event.Error{Code: event.LeftOverBytes, Message: fmt.Sprintf("the record is followed by %d bytes", left)}
	}
	return nil
}

// DecodeEvent reads an unframed record that its framing says is of that type and version, as the event of today, and checks it
// (event.Check). Beside an error stands the envelope, wherever it could be read.
func DecodeEvent(t event.Type, version int, record []byte) (event.Event, error) {
	s, err := DecodeRecord(t, version, record)
	if err != nil {
		return event.Event{Envelope: s.Envelope}, err
	}
	return s.checked(event.CheckDecoded)
}

// Upcast is the event with its payload in the current shape. It keeps the version that it was stored with, and so can be shown
// but not stored.
func (s Stored) Upcast() (Stored, error) {
	if s.schema == nil {
		return s, errNoPayload()
	}
	versions := released[s.schema.eventType].versions
	current := versions[len(versions)-1]
	s.payload = upcast(s.payload, s.schema.eventType, s.schema.version, current.version)
	s.schema = current
	return s, nil
}

// Event is the event of today, checked (event.Check). Beside an error stands the envelope alone.
func (s Stored) Event() (event.Event, error) { return s.checked(event.Check) }

func (s Stored) checked(check func(event.Event) error) (event.Event, error) {
	e := event.Event{Envelope: s.Envelope}
	s, err := s.Upcast()
	if err != nil {
		return e, err
	}
	e.Payload = released[s.schema.eventType].mapping.read(s.payload)
	if err := check(e); err != nil {
		return event.Event{Envelope: s.Envelope}, err
	}
	return e, nil
}

// AppendBinary appends the record's Avro bytes, without framing. What the reader would refuse is refused here.
func (s Stored) AppendBinary(dst []byte) ([]byte, error) {
	if err := s.storable(); err != nil {
		return dst, err
	}
	start := len(dst)
	out, err := s.schema.codec.BinaryFromNative(appendEnvelope(dst, s.Envelope), s.payload)
	if err != nil {
		return dst, &event.Error{Code: event.BadPayload, Field: "payload", Message: "is refused by the codec"}
	}
	w := walker{buf: out[start:]}
	if _, err := w.envelope(); err != nil {
		return dst, err
	}
	if err := w.payload(s.schema.payload); err != nil {
		return dst, err
	}
	return out, nil
}
