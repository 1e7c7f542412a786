package processors

import (
	"strings"

	"github.com/tooltape/tooltape/sinks"
)

// sessionCache holds what the store knows of the sessions that a partition met lately, also that it knows nothing of one. It is true
// as long as the partition's position is the one that it was read at. Two generations bound it: what is not met while the young one
// fills is forgotten. The limit is at least the records of a batch, so that what was loaded for a batch outlives it.
type sessionCache struct {
	limit      int
	young, old map[string]sinks.Session
}

func newSessionCache(limit int) sessionCache {
	return sessionCache{limit: limit, young: map[string]sinks.Session{}}
}

// get is what the store knows of a session that was loaded.
func (c *sessionCache) get(id string) sinks.Session {
	s, _ := c.find(id)
	return s
}

// find looks in both generations; what is found in the old one becomes young again.
func (c *sessionCache) find(id string) (sinks.Session, bool) {
	if s, ok := c.young[id]; ok {
		return s, true
	}
	s, ok := c.old[id]
	if ok {
		c.set(id, s)
	}
	return s, ok
}

func (c *sessionCache) set(id string, s sinks.Session) {
	if len(c.young) >= c.limit {
		c.old, c.young = c.young, make(map[string]sinks.Session, c.limit/4)
	}
	c.young[id] = s
}

// put is what a write made of its sessions. Their strings share the memory of whole events, so the cache keeps its own.
func (c *sessionCache) put(changed map[string]sinks.Session) {
	for id, s := range changed {
		s.Watermark.EventID = strings.Clone(s.Watermark.EventID)
		c.set(strings.Clone(id), s)
	}
}

func (c *sessionCache) clear() {
	clear(c.young)
	c.old = nil
}
