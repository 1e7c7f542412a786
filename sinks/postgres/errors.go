package postgres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tooltape/tooltape/sinks"
)

// The SQLSTATEs that tooltape.move_position raises, and those of PostgreSQL that mean something here.
const (
	stateFenced        = "TT001"
	stateStale         = "TT002"
	stateNoRight       = "42501"
	stateNoSchema      = "3F000"
	stateNoTable       = "42P01"
	stateNoFunction    = "42883"
	stateNoColumn      = "42703"
	stateSameRowTwice  = "21000"
	stateReadOnly      = "25006"
	classBadData       = "22"
	classConstraint    = "23"
	classLimitExceeded = "54"
)

// classify turns what PostgreSQL says into this contract's errors. What is none of them is the server's trouble and comes back
// as it is: away, overloaded, read-only for now, a deadlock, a full disk.
//
// So does all that a server says to a new connection: it is not about a batch.
//
// Only the primary message is kept of a refusal: the detail repeats the values.
func classify(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || errors.As(err, new(*pgconn.ConnectError)) {
		return err
	}
	switch pg.Code {
	case stateFenced:
		return sinks.ErrFenced
	case stateStale:
		return sinks.ErrStale
	case stateNoSchema, stateNoTable, stateNoFunction, stateNoColumn:
		return &sinks.UnusableError{Err: fmt.Errorf("%w (%s)", ErrNotMigrated, pg.Message)}
	case stateNoRight:
		return &sinks.UnusableError{Err: fmt.Errorf("the database user may not do this: %w; docs/OPERATIONS.md lists the rights", err)}
	case stateSameRowTwice:
		return &sinks.RefusedError{Message: refusals[pg.Code]}
	}
	switch pg.Code[:2] {
	case classBadData, classConstraint, classLimitExceeded:
		return &sinks.RefusedError{Message: refusal(pg)}
	}
	return err
}

// IsShutdown says that a server has ended the connection, or takes none for the moment: it is stopping, starting or failing over.
func IsShutdown(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && strings.HasPrefix(pg.Code, "57P")
}

// refusals are PostgreSQL's reasons in words of ours. Its own messages quote the value for some of them ("invalid input syntax
// for type uuid: …"), so none is passed on.
var refusals = map[string]string{
	"21000": "two rows of the batch have the same key",
	"22001": "a value is too long for its column",
	"22003": "a number is out of range",
	"22007": "a time cannot be read",
	"22008": "a time is out of range",
	"22021": "a text is not valid UTF-8, or holds U+0000",
	"22P02": "a value does not have the form its column needs",
	"22P03": "a value does not have the form its column needs",
	"22P05": "a text holds a character that the database cannot hold",
	"23502": "a value is missing",
	"23505": "a row contradicts one that is there",
	"23514": "a value is not one of those allowed",
	"54000": "a value is too large for an index or a row",
	"54001": "a value is nested too deeply",
}

func refusal(pg *pgconn.PgError) string {
	why, known := refusals[pg.Code]
	if !known {
		why = "a value is not one that the database takes"
	}
	where := pg.ConstraintName
	if where == "" {
		where = pg.ColumnName
	}
	if where != "" {
		return fmt.Sprintf("%s (SQLSTATE %s, %s)", why, pg.Code, where)
	}
	return fmt.Sprintf("%s (SQLSTATE %s)", why, pg.Code)
}
