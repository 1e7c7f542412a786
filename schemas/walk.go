package schemas

import (
	"fmt"
	"unicode/utf8"

	"github.com/tooltape/tooltape/schemas/event"
)

// MaxItems is how many array items a record may have, in all its arrays together. It bounds what a record can grow to in
// memory: 8 MiB of empty parts would otherwise take gigabytes.
const MaxItems = 16384

// walker goes over the Avro bytes of a record before goavro sees them, and takes only what it can vouch for: goavro allocates
// what an array header claims, cuts integers and lets any bytes pass for a string. It allocates nothing but an error.
type walker struct {
	buf   []byte
	at    int
	items int
	// code is what an error says: which of envelope and payload is walked.
	code event.Code
}

// walk goes over one value. The field of an error is a path relative to it: ".content[2].text".
func (w *walker) walk(n *node) *event.Error {
	switch n.kind {
	case nullKind:
		return nil
	case booleanKind:
		return w.boolean()
	case intKind:
		v, err := w.long()
		if err == nil && v != int64(int32(v)) {
			return w.fail("is outside the range of an Avro int")
		}
		return err
	case longKind:
		_, err := w.long()
		return err
	case microsKind:
		return w.micros()
	case doubleKind:
		return w.double()
	case stringKind:
		return w.str()
	case arrayKind:
		return w.array(n.items)
	case recordKind:
		return w.record(n)
	case unionKind:
		return w.union(n)
	}
	panic("schemas: a node without a kind")
}

func (w *walker) record(n *node) *event.Error {
	for i := range n.fields {
		if err := w.walk(n.fields[i].node); err != nil {
			return within("."+n.fields[i].name, err)
		}
	}
	return nil
}

func (w *walker) union(n *node) *event.Error {
	branch, err := w.long()
	if err != nil {
		return err
	}
	if branch < 0 || branch >= int64(len(n.branches)) {
		return w.fail("has a union index that its schema does not have")
	}
	return w.walk(n.branches[branch])
}

func (w *walker) array(items *node) *event.Error {
	for i := 0; ; {
		count, end, err := w.block()
		if err != nil || count == 0 {
			return err
		}
		if w.items += count; w.items > MaxItems {
			return &event.Error{Code: event.TooManyItems, Message: tooManyItems}
		}
		for ; count > 0; count-- {
			if err := w.walk(items); err != nil {
				return within(fmt.Sprintf("[%d]", i), err)
			}
			i++
		}
		if end != unsized && w.at != end {
			return w.fail("has an array block of another size than it states")
		}
	}
}

var tooManyItems = fmt.Sprintf("has more than %d array items in all", MaxItems)

// unsized is the end of an array block that does not state its size.
const unsized = -1

// block reads the header of an array block: how many items, and where it ends if it says so, which it does by a negative
// count. Java writes no sizes, some other languages do.
func (w *walker) block() (count, end int, err *event.Error) {
	n, err := w.long()
	if err != nil {
		return 0, 0, err
	}
	end = unsized
	if n < 0 {
		size, err := w.long()
		if err != nil {
			return 0, 0, err
		}
		if size < 0 || size > int64(len(w.buf)-w.at) {
			return 0, 0, w.fail("has an array block that ends outside the record")
		}
		n, end = -n, w.at+int(size)
	}
	if n < 0 || n > MaxItems { // the negative of the smallest long is itself
		n = MaxItems + 1
	}
	return int(n), end, nil
}

func (w *walker) boolean() *event.Error {
	if w.at >= len(w.buf) {
		return w.cut()
	}
	if w.buf[w.at] > 1 {
		return w.fail("is a boolean that is neither 0 nor 1")
	}
	w.at++
	return nil
}

// double takes finite numbers only: JSON has no others, and so neither have the JSON form, the exports and the console.
func (w *walker) double() *event.Error {
	if len(w.buf)-w.at < 8 {
		return w.cut()
	}
	const exponent = 0x7ff0
	if high := uint16(w.buf[w.at+7])<<8 | uint16(w.buf[w.at+6]); high&exponent == exponent {
		return w.fail("is not a finite number")
	}
	w.at += 8
	return nil
}

// The years that RFC 3339 and PostgreSQL can both write, as microseconds.
const (
	minMicros = -62135596800_000000 // 0001-01-01T00:00:00Z
	maxMicros = 253402300799_999999 // 9999-12-31T23:59:59.999999Z
)

func (w *walker) micros() *event.Error {
	v, err := w.long()
	if err == nil && (v < minMicros || v > maxMicros) {
		return w.fail("is outside the years 1 to 9999")
	}
	return err
}

func (w *walker) str() *event.Error {
	n, err := w.long()
	if err != nil {
		return err
	}
	if n < 0 || n > int64(len(w.buf)-w.at) {
		return w.fail("has a length that goes beyond the record")
	}
	s := w.buf[w.at : w.at+int(n)]
	if !utf8.Valid(s) {
		return w.fail("is not UTF-8")
	}
	w.at += int(n)
	return nil
}

// long reads a zig-zag varint of at most 64 bits.
func (w *walker) long() (int64, *event.Error) {
	var u uint64
	for i := 0; w.at+i < len(w.buf); i++ {
		b := w.buf[w.at+i]
		if i == 9 && b > 1 {
			return 0, w.fail("is a number of more than 64 bits")
		}
		u |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			w.at += i + 1
			return int64(u>>1) ^ -int64(u&1), nil
		}
	}
	return 0, w.cut()
}

func (w *walker) cut() *event.Error { return w.fail("is cut off: the record ends before it") }

func (w *walker) fail(message string) *event.Error {
	return &event.Error{Code: w.code, Message: message}
}

// within puts the step that leads to the field of err before its path.
func within(step string, err *event.Error) *event.Error {
	err.Field = step + err.Field
	return err
}
