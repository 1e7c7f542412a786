package schemas

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/linkedin/goavro/v2"
	"github.com/twmb/avro"
	"pgregory.net/rapid"

	"github.com/tooltape/tooltape/schemas/event"
)

// What is written is read back the same: goavro drops keys that it does not know and cuts integers, both without a word.
func TestRandomEventsComeBackTheSame(t *testing.T) {
	forEverySchema(t, func(t *rapid.T, s *schema) {
		want := randomStored(t, s)
		record, err := want.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeRecord(s.eventType, s.version, record)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, "the record", got, want)
	})
}

func TestRandomEventsComeBackTheSameFromJSON(t *testing.T) {
	forEverySchema(t, func(t *rapid.T, s *schema) {
		want := randomStored(t, s)
		want.Seq = max(want.Seq, 1)
		for _, id := range []*string{&want.EventID, &want.TenantID, &want.SessionID, &want.PartitionKey} {
			*id = cmp.Or(*id, "some") // what the writer fills cannot be stated empty
		}
		line, err := want.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseJSON(line)
		if err != nil {
			t.Fatalf("%v\n%s", err, line)
		}
		wantSame(t, "the JSON form", got, want)
	})
}

func TestGoStructsLoseNothing(t *testing.T) {
	forEverySchema(t, func(t *rapid.T, s *schema) {
		stored := randomStored(t, s)
		if s.version != Latest(s.eventType) {
			return // only the current version has a Go struct
		}
		mapping := released[s.eventType].mapping
		again, err := mapping.write(mapping.read(stored.payload))
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, "the payload", again, stored.payload)
	})
}

// The fields of the Go structs are named as those of the schemas, which tells whether each is mapped to its own.
func TestGoFieldsAreMappedByName(t *testing.T) {
	forEverySchema(t, func(t *rapid.T, s *schema) {
		stored := randomStored(t, s)
		if s.version != Latest(s.eventType) {
			return // only the current version has a Go struct
		}
		line, err := stored.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		var want struct {
			Payload any `json:"payload"`
		}
		if err := json.Unmarshal(line, &want); err != nil {
			t.Fatal(err)
		}
		payload := released[s.eventType].mapping.read(stored.payload)
		text, err := json.Marshal(byFieldNames(reflect.ValueOf(payload)))
		if err != nil {
			t.Fatal(err)
		}
		var got any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		wantSame(t, "the payload by its Go fields", got, want.Payload)
	})
}

// Two other implementations see the same values in our bytes, and we in theirs: goavro with the composed schema, where here the
// envelope is read by hand, and twmb/avro, which shares no line with goavro.
func TestOtherImplementationsAgreeValueForValue(t *testing.T) {
	oracles := map[*schema]struct {
		goavro *goavro.Codec
		twmb   *avro.Schema
	}{}
	for s := range allReleased() {
		codec, err := goavro.NewCodecWithOptions(s.composed, &goavro.CodecOption{EnableStringNull: false})
		if err != nil {
			t.Fatalf("%s: %v", s.file(), err)
		}
		oracle := oracles[s]
		oracle.goavro, oracle.twmb = codec, avro.MustParse(s.composed)
		oracles[s] = oracle
	}
	forEverySchema(t, func(t *rapid.T, s *schema) {
		stored, oracle := randomStored(t, s), oracles[s]
		r := record{&mapping{writing: true}, map[string]any{}}
		envelopeFields(r, &stored.Envelope)
		inAvro := maps.Clone(stored.payload)
		if _, ok := inAvro[s.mayBeAbsent]; !ok && s.mayBeAbsent != "" {
			inAvro[s.mayBeAbsent] = nil // what is absent here is null there
		}
		r.values["payload"] = inAvro

		ours, err := stored.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		byGoavro, err := oracle.goavro.BinaryFromNative(nil, r.values)
		if err != nil {
			t.Fatal(err)
		}
		byTwmb, err := oracle.twmb.Encode(r.values)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(ours, byGoavro) || !bytes.Equal(ours, byTwmb) {
			t.Fatalf("three encoders, three records:\nours   %x\ngoavro %x\ntwmb   %x", ours, byGoavro, byTwmb)
		}

		inGoavro, rest, err := oracle.goavro.NativeFromBinary(ours)
		if err != nil || len(rest) > 0 {
			t.Fatal(err, len(rest))
		}
		wantSame(t, "what goavro reads", inGoavro, any(r.values))
		var inTwmb any
		if rest, err := oracle.twmb.Decode(ours, &inTwmb, avro.TaggedUnions(), avro.TagLogicalTypes()); err != nil || len(rest) > 0 {
			t.Fatal(err, len(rest))
		}
		wantSame(t, "what twmb/avro reads", inTwmb, any(r.values))
	})
}

func TestRecordsOfOtherEncodersWithSizedBlocksAreTaken(t *testing.T) {
	forEverySchema(t, func(t *rapid.T, s *schema) {
		want := randomStored(t, s)
		r := record{&mapping{writing: true}, map[string]any{}}
		envelopeFields(r, &want.Envelope)
		bytes := appendSized(appendSized(nil, envelopeTree, r.values), s.payload, want.payload)
		got, err := DecodeRecord(s.eventType, s.version, bytes)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, "the record", got, want)
	})
}

func forEverySchema(t *testing.T, property func(t *rapid.T, s *schema)) {
	for s := range allReleased() {
		t.Run(s.file(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { property(t, s) })
		})
	}
}

func wantSame(t *rapid.T, about string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s has become another:\ngot  %#v\nwant %#v", about, got, want)
	}
}

// randomStored is any event that the schema can hold, whether or not it makes sense.
func randomStored(t *rapid.T, s *schema) Stored {
	env := event.Envelope{
		EnvelopeVersion: event.EnvelopeVersion,
		EventID:         randomText.Draw(t, "event_id"),
		TenantID:        randomText.Draw(t, "tenant_id"),
		SessionID:       randomText.Draw(t, "session_id"),
		RunID:           randomOptional(t, randomText),
		Seq:             rapid.Int64().Draw(t, "seq"),
		PrevEventID:     randomOptional(t, randomText),
		Type:            s.eventType,
		PayloadVersion:  s.version,
		OccurredAt:      randomOptional(t, randomTime),
		ActorType:       randomText.Draw(t, "actor_type"),
		ActorID:         randomOptional(t, randomText),
		PartitionKey:    randomText.Draw(t, "partition_key"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "ext") {
		env.Ext = append(env.Ext, event.Ext{Name: randomText.Draw(t, "name"), Value: randomText.Draw(t, "value")})
	}
	payload := asMap(randomNative(t, "payload", s.payload))
	if payload[s.mayBeAbsent] == nil {
		delete(payload, s.mayBeAbsent) // as every reading of Avro has it
	}
	return Stored{Envelope: env, StatedVersion: true, payload: payload, schema: s}
}

var (
	randomText = rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "null", "\x00", "\u2028", "🦊", `"<>&\`, "\ufffd"}))
	randomJSON = rapid.SampledFrom([]string{`{}`, `{"a":1,"a":2}`, ` [1e999, "\ud800"] `, `"x"`, `null`, `18446744073709551616`})
	randomTime = rapid.Map(rapid.Int64Range(minMicros, maxMicros), func(micros int64) time.Time { return time.UnixMicro(micros).UTC() })
)

func randomOptional[T any](t *rapid.T, value *rapid.Generator[T]) event.Opt[T] {
	if rapid.Bool().Draw(t, "null") {
		return event.Opt[T]{}
	}
	return event.Some(value.Draw(t, "value"))
}

// randomNative is any value of a schema in goavro's native form. Only it knows what the schemas say; nothing of it knows which
// fields there are.
func randomNative(t *rapid.T, name string, n *node) any {
	switch n.kind {
	case nullKind:
		return nil
	case booleanKind:
		return rapid.Bool().Draw(t, name)
	case intKind:
		return rapid.Int32().Draw(t, name)
	case longKind:
		return rapid.Int64().Draw(t, name)
	case doubleKind:
		return rapid.Float64().Draw(t, name)
	case stringKind:
		if jsonTextFields[name] {
			return randomJSON.Draw(t, name)
		}
		return randomText.Draw(t, name)
	case unionKind:
		branch := rapid.SampledFrom(n.branches).Draw(t, name)
		if branch.kind == nullKind {
			return nil
		}
		return map[string]any{branch.name: randomNative(t, name, branch)}
	case arrayKind:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, name) {
			list = append(list, randomNative(t, name, n.items))
		}
		return list
	case recordKind:
		values := map[string]any{}
		for _, f := range n.fields {
			values[f.name] = randomNative(t, f.name, f.node)
		}
		return values
	}
	panic("no payload has such a field")
}

// byFieldNames is a Go value as the JSON form would have it, if that were made of nothing but the names of Go's fields.
func byFieldNames(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case event.RecordedItem:
		return byFieldNames(reflect.ValueOf(x.Item))
	case event.Part, event.ResponseItem, event.ResultItem:
		v = reflect.ValueOf(x)
	}
	switch v.Kind() {
	case reflect.Slice:
		list := []any{}
		for i := range v.Len() {
			list = append(list, byFieldNames(v.Index(i)))
		}
		return list
	case reflect.Struct:
		if ok := v.FieldByName("OK"); ok.IsValid() {
			if !ok.Bool() {
				return nil
			}
			return byFieldNames(v.FieldByName("Value"))
		}
		values := map[string]any{}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Anonymous {
				maps.Copy(values, byFieldNames(v.Field(i)).(map[string]any))
			} else {
				values[snakeCase(f.Name)] = byFieldNames(v.Field(i))
			}
		}
		if tag, ok := jsonTags[v.Type().Name()]; ok {
			values[tag.key] = tag.value
		}
		return values
	}
	return v.Interface()
}

func snakeCase(name string) string {
	name = strings.NewReplacer("IDs", "Ids", "ID", "Id", "URI", "Uri", "SHA", "Sha", "USD", "Usd").Replace(name)
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// appendSized encodes like those writers that give every item a block of its own, and every block its size.
func appendSized(dst []byte, n *node, native any) []byte {
	switch n.kind {
	case recordKind:
		for _, f := range n.fields {
			dst = appendSized(dst, f.node, asMap(native)[f.name])
		}
		return dst
	case unionKind:
		if native == nil {
			return appendLong(dst, 0)
		}
		for i, b := range n.branches {
			if v, ok := asMap(native)[b.name]; ok {
				return appendSized(appendLong(dst, int64(i)), b, v)
			}
		}
	case arrayKind:
		for _, v := range native.([]any) {
			item := appendSized(nil, n.items, v)
			dst = append(appendLong(appendLong(dst, -1), int64(len(item))), item...)
		}
		return appendLong(dst, 0)
	}
	codec, err := goavro.NewCodec(map[kind]string{booleanKind: `"boolean"`, intKind: `"int"`, longKind: `"long"`, doubleKind: `"double"`,
		stringKind: `"string"`, microsKind: `{"type":"long","logicalType":"timestamp-micros"}`}[n.kind])
	if err != nil {
		panic(err)
	}
	dst, err = codec.BinaryFromNative(dst, native)
	if err != nil {
		panic(err)
	}
	return dst
}
