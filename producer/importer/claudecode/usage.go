package claudecode

import (
	"fmt"
	"strconv"

	"github.com/tooltape/tooltape/producer/importer/internal/strict"
	"github.com/tooltape/tooltape/schemas/event"
)

// tokens is what the lines of one message have said so far. Each line repeats the count as it then was; the last is the
// message's.
type tokens struct {
	input, output, cached, cacheWrite event.Opt[int64]
}

// addUsage is what this piece adds to the tokens of its message: the count of the first, then the differences. So the pieces
// add up to the message's count, however they are recorded.
func (s *session) addUsage(m *strict.Object, id string) (event.Opt[event.Usage], error) {
	v, ok := m.Take("usage")
	if !ok {
		return event.Opt[event.Usage]{}, nil
	}
	o, err := strict.ReadObject(v)
	if err != nil {
		return event.Opt[event.Usage]{}, fmt.Errorf("usage: %w", err)
	}
	now, before := tokens{}, s.usage[id]
	for name, to := range map[string]*event.Opt[int64]{"input_tokens": &now.input, "output_tokens": &now.output,
		"cache_read_input_tokens": &now.cached, "cache_creation_input_tokens": &now.cacheWrite} {
		if *to, err = count(o, name); err != nil {
			return event.Opt[event.Usage]{}, fmt.Errorf("usage: %w", err)
		}
	}
	if !now.input.OK || !now.output.OK {
		return event.Opt[event.Usage]{}, nil
	}
	usage := event.Usage{
		OutputTokens:     more(&now.output, before.output).Value,
		CachedTokens:     more(&now.cached, before.cached),
		CacheWriteTokens: more(&now.cacheWrite, before.cacheWrite),
	}
	usage.InputTokens = more(&now.input, before.input).Value + usage.CachedTokens.Value + usage.CacheWriteTokens.Value
	s.usage[id] = now
	return event.Some(usage), nil
}

// more is how much the count has risen. A count never falls: one that does is taken to have stayed.
func more(now *event.Opt[int64], before event.Opt[int64]) event.Opt[int64] {
	now.Value, now.OK = max(now.Value, before.Value), now.OK || before.OK
	return event.Opt[int64]{Value: now.Value - before.Value, OK: now.OK}
}

func count(o *strict.Object, name string) (event.Opt[int64], error) {
	v, ok := o.Take(name)
	if !ok {
		return event.Opt[int64]{}, nil
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil || n < 0 {
		return event.Opt[int64]{}, fmt.Errorf("%s: %s is not a count", name, v)
	}
	return event.Some(n), nil
}
