package schemas

import (
	"fmt"
	"strings"
	"time"

	"github.com/tooltape/tooltape/schemas/event"
)

// DecodeEnvelope reads the envelope that every record begins with, also that of an unknown type or version, and returns the
// bytes after it.
func DecodeEnvelope(record []byte) (event.Envelope, []byte, error) {
	w := walker{buf: record}
	env, err := w.envelope()
	if err != nil {
		return event.Envelope{}, nil, err
	}
	return env, record[w.at:], nil
}

// envelope reads the envelope at the walker's place. It is walked first, so that it can then be read without a doubt, and
// copied once as a whole, so that its strings cost one allocation together.
func (w *walker) envelope() (event.Envelope, *event.Error) {
	w.code = event.BadEnvelope
	start := w.at
	version, err := w.long()
	if err == nil && version != event.EnvelopeVersion {
		return event.Envelope{}, &event.Error{Code: event.BadEnvelope, Field: "envelope_version",
			Message: fmt.Sprintf("is %d, and this build knows %d only", version, event.EnvelopeVersion)}
	}
	w.at = start
	if err := w.walk(envelopeTree); err != nil {
		err.Field = strings.TrimPrefix(err.Field, ".")
		return event.Envelope{}, err
	}
	s := scanner{string(w.buf[start:w.at])}
	return s.envelope(), nil
}

// scanner reads Avro that was walked before. What it yields are pieces of the one string that it reads.
type scanner struct{ rest string }

func (s *scanner) envelope() event.Envelope {
	env := event.Envelope{
		EnvelopeVersion: int(s.long()),
		EventID:         s.text(),
		TenantID:        s.text(),
		SessionID:       s.text(),
		RunID:           s.optional(),
		Seq:             s.long(),
		PrevEventID:     s.optional(),
		Type:            event.Type(s.text()),
		PayloadVersion:  int(s.long()),
	}
	if s.long() == 1 {
		env.OccurredAt = event.Some(time.UnixMicro(s.long()).UTC())
	}
	env.ActorType = s.text()
	env.ActorID = s.optional()
	env.PartitionKey = s.text()
	env.Ext = s.ext()
	return env
}

func (s *scanner) ext() []event.Ext {
	var ext []event.Ext
	for {
		count := s.long()
		if count == 0 {
			return ext
		}
		if count < 0 {
			s.long() // the block's size in bytes
			count = -count
		}
		for ; count > 0; count-- {
			ext = append(ext, event.Ext{Name: s.text(), Value: s.text()})
		}
	}
}

func (s *scanner) text() string {
	n := s.long()
	t := s.rest[:n]
	s.rest = s.rest[n:]
	return t
}

func (s *scanner) optional() event.Opt[string] {
	if s.long() == 0 {
		return event.Opt[string]{}
	}
	return event.Some(s.text())
}

func (s *scanner) long() int64 {
	var u uint64
	for i := 0; ; i++ {
		b := s.rest[i]
		u |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			s.rest = s.rest[i+1:]
			return int64(u>>1) ^ -int64(u&1)
		}
	}
}

// appendEnvelope writes what envelope reads.
func appendEnvelope(dst []byte, env event.Envelope) []byte {
	dst = appendLong(dst, int64(env.EnvelopeVersion))
	dst = appendText(dst, env.EventID)
	dst = appendText(dst, env.TenantID)
	dst = appendText(dst, env.SessionID)
	dst = appendOptional(dst, env.RunID)
	dst = appendLong(dst, env.Seq)
	dst = appendOptional(dst, env.PrevEventID)
	dst = appendText(dst, string(env.Type))
	dst = appendLong(dst, int64(env.PayloadVersion))
	if env.OccurredAt.OK {
		dst = appendLong(appendLong(dst, 1), env.OccurredAt.Value.UnixMicro())
	} else {
		dst = appendLong(dst, 0)
	}
	dst = appendText(dst, env.ActorType)
	dst = appendOptional(dst, env.ActorID)
	dst = appendText(dst, env.PartitionKey)
	if len(env.Ext) > 0 {
		dst = appendLong(dst, int64(len(env.Ext)))
		for _, ext := range env.Ext {
			dst = appendText(appendText(dst, ext.Name), ext.Value)
		}
	}
	return appendLong(dst, 0)
}

func appendText(dst []byte, s string) []byte { return append(appendLong(dst, int64(len(s))), s...) }

func appendOptional(dst []byte, s event.Opt[string]) []byte {
	if !s.OK {
		return appendLong(dst, 0)
	}
	return appendText(appendLong(dst, 1), s.Value)
}

func appendLong(dst []byte, v int64) []byte {
	u := uint64(v)<<1 ^ uint64(v>>63)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}
