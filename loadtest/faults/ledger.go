// Package faults proves that nothing is lost and nothing is twice while things break: a ledger kept outside the product, what must hold
// of the product's tables, and the tests that break things. It ships in no binary.
package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tooltape/tooltape/producer"
	"github.com/tooltape/tooltape/schemas/event"
)

// Entry is one event that the broker has acknowledged.
type Entry struct {
	SessionID string
	Seq       int64
	EventID   string
	// Text is the text of the one item that the event yields; empty where it yields none.
	Text string
}

// Ledger is what was acknowledged, kept by who wrote it. It is safe for concurrent use.
type Ledger struct {
	mu      sync.Mutex
	entries map[string][]Entry    // by session, in order
	poison  map[string]event.Code // the code for which a session must be parked behind its entries
}

// NewLedger is an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{entries: map[string][]Entry{}, poison: map[string]event.Code{}}
}

// Poisoned enters that a session ends with a record that no build can read.
func (l *Ledger) Poisoned(sessionID string, code event.Code) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.poison[sessionID] = code
}

// Cured enters that what was poisonous is withdrawn.
func (l *Ledger) Cured() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.poison)
}

// Sessions is how many sessions have an entry, Events how many entries there are.
func (l *Ledger) Sessions() int { l.mu.Lock(); defer l.mu.Unlock(); return len(l.entries) }

// Events is how many entries there are.
func (l *Ledger) Events() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.entries {
		n += len(s)
	}
	return n
}

// Add enters events that were acknowledged.
func (l *Ledger) Add(events []event.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		entry := Entry{SessionID: e.SessionID, Seq: e.Seq, EventID: e.EventID}
		if said, ok := e.Payload.(event.UserMessageCreated); ok {
			entry.Text = said.Content[0].(event.Text).Text
		}
		l.entries[e.SessionID] = append(l.entries[e.SessionID], entry)
	}
}

// Load appends events to sessions, in turns of random length, and enters what is acknowledged, until enough is closed. pace is the
// pause between turns. The seed decides who says what.
func (l *Ledger) Load(ctx context.Context, w *producer.Writer, seed uint64, sessions int, pace time.Duration, enough <-chan struct{}) error {
	random := rand.New(rand.NewPCG(seed, 0))
	for tick := time.NewTicker(pace); ; {
		select {
		case <-enough:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		id := fmt.Sprintf("session-%d", random.IntN(sessions))
		drafts := make([]event.Event, 1+random.IntN(20))
		for i := range drafts {
			drafts[i] = draft(random)
		}
		recorded, err := Append(ctx, w, id, drafts...)
		if err != nil {
			return err
		}
		l.Add(recorded)
	}
}

// Append appends until the outcome is known.
func Append(ctx context.Context, w *producer.Writer, sessionID string, drafts ...event.Event) ([]event.Event, error) {
	recorded, err := w.Append(ctx, sessionID, drafts...)
	for errors.As(err, new(*producer.UnknownOutcomeError)) && ctx.Err() == nil {
		recorded, err = w.Retry(ctx, sessionID)
	}
	return recorded, err
}

// draft is an event with an item, or, now and then, one without.
func draft(random *rand.Rand) event.Event {
	env := event.Envelope{ActorType: "application"}
	if random.IntN(5) == 0 {
		return event.Event{Envelope: env, Payload: event.NoteRecorded{Name: "step", Data: "{}"}}
	}
	text := fmt.Sprintf("%d says %x", random.IntN(1000), random.Uint64())
	return event.Event{Envelope: env, Payload: event.UserMessageCreated{Content: []event.Part{event.Text{Text: text}}, Trust: event.User}}
}

const selectRows = `
SELECT session_id, seq, event_id::text, item #>> '{content,0,text}' FROM tooltape.history_item ORDER BY session_id, seq, item_index`

const selectWatermarks = `SELECT session_id, seq, event_id::text FROM tooltape.watermark WHERE projection = 'history'`

const selectParked = `SELECT session_id, code FROM tooltape.parked WHERE projection = 'history'`

// Check holds the tables against the ledger: every entry with an item has its one row with its text, in order, no row is without an
// entry, every session's watermark is its last entry, and parked are the poisoned sessions and no others, for the right reason. It returns a sentence for each thing that is wrong, the first few.
func (l *Ledger) Check(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := check{want: map[string][]Entry{}}
	for id, entries := range l.entries {
		for _, e := range entries {
			if e.Text != "" {
				c.want[id] = append(c.want[id], e)
			}
		}
	}
	if err := c.rows(ctx, pool); err != nil {
		return nil, err
	}
	if err := c.watermarks(ctx, pool, l.entries); err != nil {
		return nil, err
	}
	if err := c.parked(ctx, pool, l.poison); err != nil {
		return nil, err
	}
	return c.wrong, nil
}

// check gathers what is wrong. want are the rows that are still to come.
type check struct {
	want  map[string][]Entry
	wrong []string
}

func (c *check) say(format string, args ...any) {
	if len(c.wrong) < 20 {
		c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
	}
}

func (c *check) rows(ctx context.Context, pool *pgxpool.Pool) error {
	rows, err := pool.Query(ctx, selectRows)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var got Entry
		if err := rows.Scan(&got.SessionID, &got.Seq, &got.EventID, &got.Text); err != nil {
			return err
		}
		next := c.want[got.SessionID]
		switch {
		case len(next) == 0:
			c.say("session %s has a row for seq %d, which nobody wrote", got.SessionID, got.Seq)
		case next[0] != got:
			c.say("session %s has the row %+v where %+v belongs", got.SessionID, got, next[0])
			c.want[got.SessionID] = next[1:]
		default:
			c.want[got.SessionID] = next[1:]
		}
	}
	for id, left := range c.want {
		if len(left) > 0 {
			c.say("session %s lacks %d rows from seq %d on", id, len(left), left[0].Seq)
		}
	}
	return rows.Err()
}

func (c *check) watermarks(ctx context.Context, pool *pgxpool.Pool, entries map[string][]Entry) error {
	rows, err := pool.Query(ctx, selectWatermarks)
	if err != nil {
		return err
	}
	defer rows.Close()
	seen := map[string]bool{}
	for rows.Next() {
		var id, eventID string
		var seq int64
		if err := rows.Scan(&id, &seq, &eventID); err != nil {
			return err
		}
		seen[id] = true
		all := entries[id]
		if len(all) == 0 || all[len(all)-1].Seq != seq || all[len(all)-1].EventID != eventID {
			c.say("session %s has its watermark at seq %d (event %s), which is not its last event", id, seq, eventID)
		}
	}
	for id := range entries {
		if !seen[id] {
			c.say("session %s has no watermark", id)
		}
	}
	return rows.Err()
}

func (c *check) parked(ctx context.Context, pool *pgxpool.Pool, poison map[string]event.Code) error {
	rows, err := pool.Query(ctx, selectParked)
	if err != nil {
		return err
	}
	defer rows.Close()
	seen := map[string]bool{}
	for rows.Next() {
		var id string
		var code event.Code
		if err := rows.Scan(&id, &code); err != nil {
			return err
		}
		seen[id] = true
		if poison[id] != code {
			c.say("session %s is parked for %s, the ledger knows %q", id, code, poison[id])
		}
	}
	for id, code := range poison {
		if !seen[id] {
			c.say("session %s is not parked, and should be for %s", id, code)
		}
	}
	return rows.Err()
}
