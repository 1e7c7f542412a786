// Package history is the view that keeps each session's items, and reads them back for a model.
package history

import (
	"embed"

	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
	"github.com/tooltape/tooltape/sinks/postgres"
)

// Name is the projection's name.
const Name = "history"

// BuilderVersion is the version of the projection's logic. It goes up when the same events yield other rows; then the tables are
// built anew.
const BuilderVersion = 1

//go:embed migrations/*.sql
var migrations embed.FS

// View is the history in PostgreSQL.
func View() postgres.View {
	return postgres.View{Name: Name, BuilderVersion: BuilderVersion, EventIDs: selectEventIDs, Migrations: migrations, Rows: addRows, Erase: erase, EraseRuns: eraseRuns}
}

const insertItems = `
INSERT INTO tooltape.history_item (builder_version, seq, item_index, occurred_at, event_id, run_id, session_id, item)
SELECT $1, * FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[], $5::uuid[], $6::text[], $7::text[], $8::json[])
ON CONFLICT (session_id, seq, item_index) DO NOTHING`

const selectEventIDs = `
SELECT h.session_id, h.seq, h.event_id::text
FROM unnest($1::text[], $2::bigint[]) AS p (session_id, seq)
JOIN tooltape.history_item h ON h.session_id = p.session_id AND h.seq = p.seq AND h.item_index = 0`

func addRows(s *postgres.Statements, events []*sinks.Projected) {
	addItems(s, events)
	addForks(s, events)
}

func addItems(s *postgres.Statements, events []*sinks.Projected) {
	seqs, indexes, times, ids, runs, sessions, items := s.Bigints(), s.Integers(), s.Times(), s.UUIDs(), s.Texts(), s.Texts(), s.JSONs()
	for _, e := range events {
		for i, item := range e.Items {
			seqs.Bigint(e.Event.Seq)
			indexes.Integer(int32(i))
			times.OptTime(e.Event.OccurredAt)
			ids.UUID(e.Event.EventID)
			runs.OptText(e.Event.RunID)
			sessions.Text(e.Event.SessionID)
			items.Item(item)
		}
	}
	s.Add(insertItems, BuilderVersion, seqs, indexes, times, ids, runs, sessions, items)
}

const insertForks = `
INSERT INTO tooltape.history_fork (parent_seq, session_id, parent_session_id, run_id)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[])
ON CONFLICT (session_id) DO NOTHING`

// addForks remembers what sessions go on from; few batches hold any.
func addForks(s *postgres.Statements, events []*sinks.Projected) {
	var forks []*sinks.Projected
	for _, e := range events {
		if created, ok := e.Event.Payload.(event.SessionCreated); ok && created.ForkedFrom.OK {
			forks = append(forks, e)
		}
	}
	if len(forks) == 0 {
		return
	}
	seqs, sessions, parents, runs := s.Bigints(), s.Texts(), s.Texts(), s.Texts()
	for _, e := range forks {
		from := e.Event.Payload.(event.SessionCreated).ForkedFrom.Value
		seqs.Bigint(from.Seq)
		sessions.Text(e.Event.SessionID)
		parents.Text(from.SessionID)
		runs.OptText(e.Event.RunID)
	}
	s.Add(insertForks, seqs, sessions, parents, runs)
}

const (
	deleteItems = `DELETE FROM tooltape.history_item WHERE session_id = ANY ($1::text[])`
	deleteForks = `DELETE FROM tooltape.history_fork WHERE session_id = ANY ($1::text[])`
)

func erase(s *postgres.Statements, sessions []string) {
	s.Add(deleteItems, s.TextsOf(sessions))
	s.Add(deleteForks, s.TextsOf(sessions))
}

// The fork of a run goes too: projected anew, the event that stands in its place says nothing of it.
const (
	deleteRunItems = `
DELETE FROM tooltape.history_item AS i USING unnest($1::text[], $2::text[]) AS r (session_id, run_id)
WHERE i.session_id = r.session_id AND i.run_id = r.run_id`
	deleteRunForks = `
DELETE FROM tooltape.history_fork AS f USING unnest($1::text[], $2::text[]) AS r (session_id, run_id)
WHERE f.session_id = r.session_id AND f.run_id = r.run_id`
)

func eraseRuns(s *postgres.Statements, refs []sinks.RunRef) {
	sessions, runs := s.Texts(), s.Texts()
	for _, r := range refs {
		sessions.Text(r.SessionID)
		runs.Text(r.RunID)
	}
	s.Add(deleteRunItems, sessions, runs)
	s.Add(deleteRunForks, sessions, runs)
}
