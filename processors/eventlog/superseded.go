package eventlog

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tooltape/tooltape/schemas"
)

// Superseded knows what still lies in the log although a marker has announced its end: compaction takes its time.
type Superseded struct {
	marked map[string]*marks
	// newest is the offset of the newest record under each key of a marked session.
	newest map[string]int64
}

type marks struct {
	closed    bool
	withdrawn map[string]bool
}

// Superseded reads the log for markers, and, where there are any, again for what they are about.
func (l *Log) Superseded(ctx context.Context) (*Superseded, error) {
	s := &Superseded{marked: map[string]*marks{}, newest: map[string]int64{}}
	if err := l.ReadAll(ctx, s.mark); err != nil || len(s.marked) == 0 {
		return s, err
	}
	return s, l.ReadAll(ctx, func(r *kgo.Record) error {
		if key, err := schemas.ParseKey(r.Key); err == nil && s.marked[key.SessionID] != nil {
			s.newest[string(r.Key)] = r.Offset
		}
		return nil
	})
}

func (s *Superseded) mark(r *kgo.Record) error {
	key, err := schemas.ParseKey(r.Key)
	if err != nil || key.Marker == schemas.NoMarker {
		return nil
	}
	m := s.marked[key.SessionID]
	if m == nil {
		m = &marks{withdrawn: map[string]bool{}}
		s.marked[key.SessionID] = m
	}
	switch key.Marker {
	case schemas.ClosedMarker:
		m.closed = true
	case schemas.WithdrawnMarker:
		m.withdrawn[key.EventID] = true
	}
	return nil
}

// Counts says whether the record under this key still says what happened.
func (s *Superseded) Counts(key schemas.Key, r *kgo.Record) bool {
	m := s.marked[key.SessionID]
	return m == nil || !m.closed && !m.withdrawn[key.EventID] && s.newest[string(r.Key)] == r.Offset
}
