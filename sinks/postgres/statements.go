package postgres

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tooltape/tooltape/processors/projection"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
)

// Statements is what one write sends: all in one round trip, and one transaction.
//
// A view takes columns from it, fills them, and adds statements that unnest them. The columns are PostgreSQL's binary arrays,
// filled in place: pgx, which fills them value by value from slices of Go, needs twice the client's time for a row.
type Statements struct {
	batch   *pgconn.Batch
	columns []*Column
	taken   int
	sorted  []*sinks.Projected
	refused *sinks.RefusedError
}

// reset makes ready for another batch. It keeps the memory of the last, but nothing that others gave.
func (s *Statements) reset() {
	clear(s.sorted)
	*s = Statements{batch: &pgconn.Batch{}, columns: s.columns, sorted: s.sorted[:0]}
}

// size is how many bytes it holds on to.
func (s *Statements) size() int {
	n := 0
	for _, c := range s.columns {
		n += cap(c.buf)
	}
	return n
}

// Texts is an empty column of text[].
func (s *Statements) Texts() *Column { return s.column(pgtype.TextOID) }

// TextsOf is a column of these texts.
func (s *Statements) TextsOf(values []string) *Column {
	c := s.Texts()
	for _, v := range values {
		c.Text(v)
	}
	return c
}

// Bigints is an empty column of bigint[].
func (s *Statements) Bigints() *Column { return s.column(pgtype.Int8OID) }

// Integers is an empty column of integer[].
func (s *Statements) Integers() *Column { return s.column(pgtype.Int4OID) }

// Booleans is an empty column of boolean[].
func (s *Statements) Booleans() *Column { return s.column(pgtype.BoolOID) }

// UUIDs is an empty column of uuid[].
func (s *Statements) UUIDs() *Column { return s.column(pgtype.UUIDOID) }

// Times is an empty column of timestamptz[].
func (s *Statements) Times() *Column { return s.column(pgtype.TimestamptzOID) }

// JSONs is an empty column of json[].
func (s *Statements) JSONs() *Column { return s.column(pgtype.JSONOID) }

// Bytes is an empty column of bytea[].
func (s *Statements) Bytes() *Column { return s.column(pgtype.ByteaOID) }

// arrayHeader is the length of what stands before an array's elements: dimensions, whether it has nulls, the elements' type, and the
// one dimension's length and lower bound.
const arrayHeader = 5 * 4

func (s *Statements) column(oid uint32) *Column {
	if s.taken == len(s.columns) {
		s.columns = append(s.columns, &Column{})
	}
	c := s.columns[s.taken]
	s.taken++
	*c = Column{statements: s, buf: append(c.buf[:0], make([]byte, arrayHeader)...)}
	binary.BigEndian.PutUint32(c.buf[0:], 1)
	binary.BigEndian.PutUint32(c.buf[4:], 1) // there may be nulls: what is read does not depend on it
	binary.BigEndian.PutUint32(c.buf[8:], oid)
	binary.BigEndian.PutUint32(c.buf[16:], 1)
	return c
}

// maxStatement is well below the gigabyte at which the server breaks off the connection, again and again. The largest event is far
// smaller, so halving the batch always helps.
const maxStatement = 256 << 20

// Add adds a statement. Its parameters are columns, or a string, an int, an int32 or an int64; all columns of a statement are as
// long. Put the largest column last: what comes before it is then copied only once.
func (s *Statements) Add(sql string, parameters ...any) {
	values := make([][]byte, len(parameters))
	formats := make([]int16, len(parameters))
	bytes := 0
	for i, p := range parameters {
		switch p := p.(type) {
		case *Column:
			values[i], formats[i] = p.encoded(), pgtype.BinaryFormatCode
		case string:
			values[i] = []byte(p)
		case int:
			values[i] = strconv.AppendInt(nil, int64(p), 10)
		case int32:
			values[i] = strconv.AppendInt(nil, int64(p), 10)
		case int64:
			values[i] = strconv.AppendInt(nil, p, 10)
		default:
			panic(fmt.Sprintf("postgres: a statement cannot have a parameter of type %T", p))
		}
		bytes += len(values[i])
	}
	if bytes > maxStatement {
		s.refuse("the batch is larger than a statement may be")
		return
	}
	s.batch.ExecParams(sql, values, nil, formats, nil)
}

// send runs the statements: up to the one Sync at their end they are one transaction.
func (s *Statements) send(ctx context.Context, pool *pgxpool.Pool) error {
	if s.refused != nil {
		return s.refused
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	_, err = conn.Conn().PgConn().ExecBatch(ctx, s.batch).ReadAll()
	return classify(err)
}

// inOrder sorts events by session and seq, and leaves out the later of two at one place. Transactions that take their rows in one
// order do not deadlock.
func (s *Statements) inOrder(events []sinks.Projected) []*sinks.Projected {
	s.sorted = s.sorted[:0]
	for i := range events {
		s.sorted = append(s.sorted, &events[i])
	}
	slices.SortFunc(s.sorted, func(a, b *sinks.Projected) int {
		if c := cmp.Compare(a.Event.SessionID, b.Event.SessionID); c != 0 {
			return c
		}
		if c := cmp.Compare(a.Event.Seq, b.Event.Seq); c != 0 {
			return c
		}
		return cmp.Compare(a.Offset, b.Offset)
	})
	s.sorted = slices.CompactFunc(s.sorted, func(a, b *sinks.Projected) bool {
		return a.Event.Seq == b.Event.Seq && a.Event.SessionID == b.Event.SessionID
	})
	return s.sorted
}

// Column is one parameter that holds a value for each row.
type Column struct {
	statements *Statements
	buf        []byte
	rows       int
}

// encoded is the column as it is sent.
func (c *Column) encoded() []byte {
	if c.rows == 0 { // an empty array has no dimension, not one of length 0
		binary.BigEndian.PutUint32(c.buf[0:], 0)
		return c.buf[:arrayHeader-8]
	}
	binary.BigEndian.PutUint32(c.buf[12:], uint32(c.rows))
	return c.buf
}

// Null adds no value.
func (c *Column) Null() {
	c.rows++
	c.buf = binary.BigEndian.AppendUint32(c.buf, ^uint32(0))
}

// Text adds a text. One that PostgreSQL cannot hold makes it refuse the batch.
func (c *Column) Text(v string) {
	c.rows++
	c.buf = binary.BigEndian.AppendUint32(c.buf, uint32(len(v)))
	c.buf = append(c.buf, v...)
}

// OptText adds a text, or null.
func (c *Column) OptText(v event.Opt[string]) {
	if v.OK {
		c.Text(v.Value)
	} else {
		c.Null()
	}
}

// Bytes adds a bytea; a nil slice is null, an empty one is not.
func (c *Column) Bytes(v []byte) {
	if v == nil {
		c.Null()
		return
	}
	c.rows++
	c.buf = binary.BigEndian.AppendUint32(c.buf, uint32(len(v)))
	c.buf = append(c.buf, v...)
}

// Bigint adds a bigint.
func (c *Column) Bigint(v int64) {
	c.rows++
	c.buf = binary.BigEndian.AppendUint32(c.buf, 8)
	c.buf = binary.BigEndian.AppendUint64(c.buf, uint64(v))
}

// Integer adds an integer.
func (c *Column) Integer(v int32) {
	c.rows++
	c.buf = binary.BigEndian.AppendUint32(c.buf, 4)
	c.buf = binary.BigEndian.AppendUint32(c.buf, uint32(v))
}

// Boolean adds a boolean.
func (c *Column) Boolean(v bool) {
	c.rows++
	c.buf = append(c.buf, 0, 0, 0, 1, 0)
	if v {
		c.buf[len(c.buf)-1] = 1
	}
}

// UUID adds an id in its canonical form, the only one that comes back as it was.
func (c *Column) UUID(v string) {
	if !event.IsUUID(v) {
		c.statements.refuse("an id is not a UUID in its canonical form")
		c.Null()
		return
	}
	c.rows++
	c.buf = binary.BigEndian.AppendUint32(c.buf, 16)
	for i := 0; i < len(v); i += 2 {
		if v[i] == '-' {
			i++
		}
		c.buf = append(c.buf, nibble(v[i])<<4|nibble(v[i+1]))
	}
}

// nibble is the value of a lower-case hexadecimal digit.
func nibble(digit byte) byte {
	if digit >= 'a' {
		return digit - 'a' + 10
	}
	return digit - '0'
}

// PostgreSQL counts microseconds from 2000. The years from 1 to 9999 are those that every reader of the tables can show.
var (
	epoch       = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	firstSecond = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	lastSecond  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).Unix()
)

// Time adds a time, to the microsecond.
func (c *Column) Time(v time.Time) {
	if s := v.Unix(); s < firstSecond || s > lastSecond {
		c.statements.refuse("a time is not in the years 1 to 9999")
	}
	c.Bigint(v.UnixMicro() - epoch)
}

// OptTime adds a time, or null.
func (c *Column) OptTime(v event.Opt[time.Time]) {
	if v.OK {
		c.Time(v.Value)
	} else {
		c.Null()
	}
}

// Item adds an item's JSON.
func (c *Column) Item(item projection.Item) {
	c.rows++
	start := len(c.buf)
	c.buf = append(c.buf, 0, 0, 0, 0)
	c.buf = projection.AppendJSON(c.buf, item)
	binary.BigEndian.PutUint32(c.buf[start:], uint32(len(c.buf)-start-4))
}

// refuse makes the batch one that the store does not take; the first reason stands.
func (s *Statements) refuse(why string) {
	if s.refused == nil {
		s.refused = &sinks.RefusedError{Message: why}
	}
}
