// Package history is the view that keeps each session's items, and reads them back for a model.
package history

import (
	"embed"

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
	return postgres.View{Name: Name, BuilderVersion: BuilderVersion, Migrations: migrations, Rows: addRows}
}

const insertItems = `
INSERT INTO tooltape.history_item (builder_version, seq, item_index, occurred_at, event_id, run_id, session_id, item)
SELECT $1, * FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[], $5::uuid[], $6::text[], $7::text[], $8::json[])
ON CONFLICT (session_id, seq, item_index) DO NOTHING`

func addRows(s *postgres.Statements, events []*sinks.Projected) {
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
