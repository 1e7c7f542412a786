package schemas

import (
	"fmt"
	"math"
	"time"

	"github.com/tooltape/tooltape/schemas/event"
)

// record is a record in goavro's native form beside the Go struct that it maps to. The functions in payloads.go name every
// field once, and that one naming serves both directions: what is written is what is read.
//
// In goavro's native form a record is a map by field name, an array is []any, and a union's value is nil or a map of one key,
// the branch's full name.
type record struct {
	*mapping
	values map[string]any
}

// mapping is the direction of a mapping, and the first thing that went wrong in it. Reading cannot go wrong: what is read was
// checked against the schema.
type mapping struct {
	writing   bool
	namespace string
	err       *event.Error
}

// reading is the mapping that reads. It keeps nothing, and so there is one of it.
var reading = &mapping{}

func (m *mapping) fail(code event.Code, field, message string) {
	if m.err == nil {
		m.err = &event.Error{Code: code, Field: field, Message: message}
	}
}

// nested maps a record inside this one, and completes the path of what goes wrong in it by step.
func nested[T any](r record, step string, values map[string]any, v *T, f func(record, *T)) {
	failed := r.err != nil
	f(record{r.mapping, values}, v)
	if r.err != nil && !failed {
		r.err = within(step, r.err)
	}
}

// payloadMapping maps one type of event.
type payloadMapping struct {
	eventType event.Type
	read      func(values map[string]any) event.Payload
	write     func(event.Payload) (map[string]any, *event.Error)
}

func mapped[P event.Payload](f func(record, *P)) payloadMapping {
	var zero P
	namespace := fmt.Sprintf("tooltape.%s.", zero.Type())
	return payloadMapping{
		eventType: zero.Type(),
		read: func(values map[string]any) event.Payload {
			var p P
			f(record{reading, values}, &p)
			return p
		},
		write: func(payload event.Payload) (map[string]any, *event.Error) {
			p, ok := payload.(P)
			if !ok {
				return nil, &event.Error{Code: event.BadPayload, Message: fmt.Sprintf("is a %T, which no event type has", payload)}
			}
			r := record{&mapping{writing: true, namespace: namespace}, map[string]any{}}
			f(r, &p)
			return r.values, r.err
		},
	}
}

// plain maps a field whose native form is the Go value itself: boolean, long.
func plain[T any](r record, name string, v *T) {
	if r.writing {
		r.values[name] = *v
	} else {
		*v, _ = r.values[name].(T)
	}
}

func text[T ~string](r record, name string, v *T) {
	if r.writing {
		r.checkText(name, string(*v))
		r.values[name] = string(*v)
	} else {
		s, _ := r.values[name].(string)
		*v = T(s)
	}
}

// checkText refuses to write what is not the JSON text that its field is for.
func (r record) checkText(name, s string) {
	if jsonTextFields[name] && !isJSONText(s) {
		r.fail(event.BadPayload, "."+name, notJSONText)
	}
}

func integer(r record, name string, v *int) {
	if !r.writing {
		i, _ := r.values[name].(int32)
		*v = int(i)
		return
	}
	if *v < math.MinInt32 || *v > math.MaxInt32 {
		r.fail(event.BadPayload, "."+name, "is outside the range of an Avro int")
	}
	r.values[name] = int32(*v)
}

// The names of the branches beside null.
const (
	booleanBranch = "boolean"
	longBranch    = "long"
	doubleBranch  = "double"
	stringBranch  = "string"
	microsBranch  = "long.timestamp-micros"
)

// optional maps a nullable field whose native form is the Go value itself.
func optional[T any](r record, name, branch string, v *event.Opt[T]) {
	if !r.writing {
		v.Value, v.OK = branchValue(r.values[name]).(T)
		return
	}
	r.values[name] = nil
	if v.OK {
		r.values[name] = map[string]any{branch: v.Value}
	}
}

func optionalText[T ~string](r record, name string, v *event.Opt[T]) {
	s := event.Opt[string]{Value: string(v.Value), OK: v.OK}
	if r.writing && s.OK {
		r.checkText(name, s.Value)
	}
	optional(r, name, stringBranch, &s)
	v.Value, v.OK = T(s.Value), s.OK
}

func optionalRecord[T any](r record, name, branch string, v *event.Opt[T], f func(record, *T)) {
	if !r.writing {
		var values map[string]any
		if values, v.OK = branchValue(r.values[name]).(map[string]any); v.OK {
			nested(r, "."+name, values, &v.Value, f)
		}
		return
	}
	r.values[name] = nil
	if v.OK {
		values := map[string]any{}
		nested(r, "."+name, values, &v.Value, f)
		r.values[name] = map[string]any{r.namespace + branch: values}
	}
}

// branchValue is the value inside a union's native form; nil for null.
func branchValue(union any) any {
	for _, v := range asMap(union) {
		return v
	}
	return nil
}

// branchOf is the short name of a union's branch and the record inside.
func branchOf(union any) (string, map[string]any) {
	for name, v := range asMap(union) {
		return afterDot(name), asMap(v)
	}
	return "", nil
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func texts(r record, name string, v *[]string) {
	if r.writing {
		list := make([]any, len(*v))
		for i, s := range *v {
			list[i] = s
		}
		r.values[name] = list
		return
	}
	list, _ := r.values[name].([]any)
	*v = sized[string](list)
	for i := range list {
		(*v)[i], _ = list[i].(string)
	}
}

// records maps an array of records.
func records[T any](r record, name string, v *[]T, f func(record, *T)) {
	if r.writing {
		list := make([]any, len(*v))
		for i := range *v {
			values := map[string]any{}
			nested(r, fmt.Sprintf(".%s[%d]", name, i), values, &(*v)[i], f)
			list[i] = values
		}
		r.values[name] = list
		return
	}
	list, _ := r.values[name].([]any)
	*v = sized[T](list)
	for i := range list {
		nested(r, "", asMap(list[i]), &(*v)[i], f)
	}
}

// variants maps an array of a union of records. f maps one item: of the branch that it is given when it reads; when it
// writes, it returns the branch.
func variants[T any](r record, name string, v *[]T, f func(r record, branch string, v *T) string) {
	if r.writing {
		list := make([]any, len(*v))
		for i := range *v {
			values, branch := map[string]any{}, ""
			nested(r, fmt.Sprintf(".%s[%d]", name, i), values, &(*v)[i], func(r record, v *T) { branch = f(r, "", v) })
			list[i] = map[string]any{r.namespace + branch: values}
		}
		r.values[name] = list
		return
	}
	list, _ := r.values[name].([]any)
	*v = sized[T](list)
	for i := range list {
		branch, values := branchOf(list[i])
		f(record{r.mapping, values}, branch, &(*v)[i])
	}
}

// variant maps an item of a union as the Go type that its branch stands for.
func variant[I, T any](r record, item *I, f func(record, *T)) {
	v, _ := any(*item).(T)
	f(r, &v)
	if !r.writing {
		*item, _ = any(v).(I)
	}
}

// sized is a slice as long as list, and nil for none.
func sized[T any](list []any) []T {
	if len(list) == 0 {
		return nil
	}
	return make([]T, len(list))
}

// envelopeFields maps the envelope, for the JSON form; its Avro form is read and written by hand.
func envelopeFields(r record, e *event.Envelope) {
	integer(r, "envelope_version", &e.EnvelopeVersion)
	text(r, "event_id", &e.EventID)
	text(r, "tenant_id", &e.TenantID)
	text(r, "session_id", &e.SessionID)
	optionalText(r, "run_id", &e.RunID)
	plain(r, "seq", &e.Seq)
	optionalText(r, "prev_event_id", &e.PrevEventID)
	text(r, "type", &e.Type)
	integer(r, "payload_version", &e.PayloadVersion)
	optional[time.Time](r, "occurred_at", microsBranch, &e.OccurredAt)
	text(r, "actor_type", &e.ActorType)
	optionalText(r, "actor_id", &e.ActorID)
	text(r, "partition_key", &e.PartitionKey)
	records(r, "ext", &e.Ext, func(r record, e *event.Ext) {
		text(r, "name", &e.Name)
		text(r, "value", &e.Value)
	})
}
