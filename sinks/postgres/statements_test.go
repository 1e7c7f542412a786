package postgres

import "testing"

// The server would break off the connection, which says nothing about the batch.
func TestABatchLargerThanAStatementIsRefused(t *testing.T) {
	st := &Statements{}
	st.reset()
	column := st.Texts()
	column.rows, column.buf = 1, make([]byte, maxStatement+1)
	st.Add("SELECT $1::text[]", column)
	if st.refused == nil {
		t.Error("it is not refused")
	}
	st.reset()
	st.Add("SELECT $1::text[]", st.Texts())
	if st.refused != nil {
		t.Error("the next batch is refused too")
	}
}
