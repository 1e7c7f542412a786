package event

import (
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of what an event may hold (docs/CONTRACT.md). Texts have none of their own: the size of the record bounds them.
const (
	// MaxID bounds, in bytes, every id and every name but a session's id. A session's id and two of them fit one entry of a
	// PostgreSQL index, which has 2,704 bytes.
	MaxID = 1024
	// MaxPartitionKey bounds the partition key in bytes.
	MaxPartitionKey = 1024
	// MaxExtValue bounds the value of one extension in bytes.
	MaxExtValue = 8192
)

// Check is what every reader demands of an event of the current shape, whoever wrote it. The error is an *Error; its Field is
// spelled as in the JSON form, such as "payload.items[2].call_id". Its code is
//
//   - BadEnvelope or BadPayload where a field breaks its own rule,
//   - ResultItemMissing where a tool result has no item (a denial's may be null),
//   - BadEvent where each field is well-formed, but two of them contradict one another.
func Check(e Event) error { return check(e, false) }

// CheckDecoded is Check of an event whose texts are UTF-8, as those of a record are that was walked (package schemas): it does not
// look again, which is dear for long texts.
func CheckDecoded(e Event) error { return check(e, true) }

func check(e Event, walked bool) error {
	c := checker{code: BadEnvelope, envelope: &e.Envelope, walked: walked}
	c.checkEnvelope()
	c.code = BadPayload
	c.checkPayload(e.Payload)
	return c.found()
}

// CheckEnvelope is the part of Check that does not need the payload: all that can be said of an event whose payload cannot be read.
func CheckEnvelope(e Envelope) error {
	c := checker{code: BadEnvelope, envelope: &e}
	c.checkEnvelope()
	return c.found()
}

// CheckRecordable is Check, and what the writer refuses beyond it: facts that an older log may hold, but that nobody records
// any more. The errors are those of Check.
func CheckRecordable(e Event) error {
	if err := Check(e); err != nil {
		return err
	}
	c := checker{code: BadEvent, envelope: &e.Envelope}
	c.checkRecordable(e.Payload)
	return c.found()
}

// checker keeps the first rule that is broken; what is checked after it changes nothing.
type checker struct {
	envelope *Envelope
	code     Code
	// walked says that all texts are known to be UTF-8.
	walked bool
	// path leads to the struct being checked. It is spelled out only on failure: nearly every event passes.
	path []step
	err  *Error
}

type step struct {
	name  string
	index int // -1: not an array
}

// found is the error as an interface that is nil where there is none.
func (c *checker) found() error {
	if c.err == nil {
		return nil
	}
	return c.err
}

func (c *checker) fail(code Code, field, message string) {
	if c.err != nil {
		return
	}
	var b strings.Builder
	for _, s := range c.path {
		b.WriteString(s.name)
		if s.index >= 0 {
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		}
		b.WriteByte('.')
	}
	b.WriteString(field)
	c.err = &Error{Code: code, Field: strings.TrimSuffix(b.String(), "."), Message: message}
}

// in checks what stands under a field; at does so under one member of an array.
func (c *checker) in(field string, check func()) { c.at(field, -1, check) }

func (c *checker) at(field string, index int, check func()) {
	c.path = append(c.path, step{field, index})
	check()
	c.path = c.path[:len(c.path)-1]
}

// text may be anything that UTF-8 can say, also nothing.
func (c *checker) text(field, s string) {
	if !c.walked && !utf8.ValidString(s) {
		c.fail(c.code, field, "is not valid UTF-8")
	}
}

func (c *checker) optText(field string, o Opt[string]) { c.text(field, o.Value) }

// jsonText is a text that others will parse. It takes what any JSON parser takes.
func (c *checker) jsonText(field, s string) {
	c.text(field, s)
	if !json.Valid([]byte(s)) {
		c.fail(c.code, field, "is not JSON text")
	}
}

func (c *checker) optJSONText(field string, o Opt[string]) {
	if o.OK {
		c.jsonText(field, o.Value)
	}
}

// id is an id or a name: something must stand there, and it must fit a key.
func (c *checker) id(field, s string) {
	switch {
	case s == "":
		c.fail(c.code, field, "is missing or empty")
	case len(s) > MaxID:
		c.fail(c.code, field, "is longer than "+strconv.Itoa(MaxID)+" bytes")
	}
	c.text(field, s)
}

func (c *checker) optID(field string, o Opt[string]) {
	if o.OK {
		c.id(field, o.Value)
	}
}

func (c *checker) ids(field string, all []string) {
	for i, s := range all {
		c.at(field, i, func() { c.id("", s) })
	}
}

func (c *checker) sessionID(field, s string) {
	switch {
	case s == "":
		c.fail(c.code, field, "is missing or empty")
	case len(s) > MaxSessionID:
		c.fail(c.code, field, "is longer than "+strconv.Itoa(MaxSessionID)+" bytes")
	case strings.ContainsFunc(s, unicode.IsControl):
		c.fail(c.code, field, "contains a control character")
	}
	c.text(field, s)
}

func (c *checker) uuid(field, s string) {
	if !IsUUID(s) {
		c.fail(c.code, field, "is not a UUID of 36 characters in lower case")
	}
}

func (c *checker) member(field string, set Set, s string) {
	if !set.Has(s) {
		c.fail(c.code, field, "is not one of "+strings.Join(set, ", "))
	}
}

// number is a whole number that Avro calls an int.
func (c *checker) number(field string, n, least int) {
	if n < least || n > math.MaxInt32 {
		c.fail(c.code, field, "is not between "+strconv.Itoa(least)+" and 2147483647")
	}
}

func (c *checker) count(field string, n int64) {
	if n < 0 {
		c.fail(c.code, field, "is negative")
	}
}

func (c *checker) seq(field string, n int64) {
	if n < 1 {
		c.fail(c.code, field, "is less than 1")
	}
}

// IsUUID says whether s is a UUID in its canonical form: 36 characters, lower case. Any version will do: the ids of imported
// events are derived ones.
func IsUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		switch i {
		case 8, 13, 18, 23:
			if s[i] != '-' {
				return false
			}
		default:
			if !isLowerHex(s[i]) {
				return false
			}
		}
	}
	return true
}

func isLowerHex(b byte) bool { return '0' <= b && b <= '9' || 'a' <= b && b <= 'f' }

func (c *checker) checkEnvelope() {
	e := c.envelope
	if e.EnvelopeVersion != EnvelopeVersion {
		c.fail(c.code, "envelope_version", "is not 1, the only version there is")
	}
	c.uuid("event_id", e.EventID)
	c.id("tenant_id", e.TenantID)
	c.sessionID("session_id", e.SessionID)
	c.optID("run_id", e.RunID)
	c.seq("seq", e.Seq)
	c.checkPrevious()
	if e.Type == "" {
		c.fail(c.code, "type", "is missing or empty")
	}
	c.number("payload_version", e.PayloadVersion, 1)
	if e.OccurredAt.OK {
		c.checkTime(e.OccurredAt.Value)
	}
	c.member("actor_type", ActorTypes, e.ActorType)
	c.optID("actor_id", e.ActorID)
	c.checkPartitionKey(e.PartitionKey)
	c.checkExt(e.Ext)
}

func (c *checker) checkPrevious() {
	e := c.envelope
	switch {
	case e.Seq == 1 && e.PrevEventID.OK:
		c.fail(c.code, "prev_event_id", "names an event before the first one")
	case e.Seq > 1 && !e.PrevEventID.OK:
		c.fail(c.code, "prev_event_id", "is missing, and seq is not 1")
	case e.PrevEventID.OK:
		c.uuid("prev_event_id", e.PrevEventID.Value)
		if e.PrevEventID.Value == e.EventID {
			c.fail(c.code, "prev_event_id", "names the event itself")
		}
	}
}

// checkTime refuses what the stored form would change without a word, and what RFC 3339 cannot say.
func (c *checker) checkTime(t time.Time) {
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		c.fail(c.code, "occurred_at", "is not between the years 1 and 9999")
	}
	if t.Nanosecond()%1000 != 0 {
		c.fail(c.code, "occurred_at", "is finer than a microsecond")
	}
}

func (c *checker) checkPartitionKey(key string) {
	switch {
	case key == "":
		c.fail(c.code, "partition_key", "is missing or empty")
	case len(key) > MaxPartitionKey:
		c.fail(c.code, "partition_key", "is longer than "+strconv.Itoa(MaxPartitionKey)+" bytes")
	}
	c.text("partition_key", key)
}

func (c *checker) checkExt(all []Ext) {
	if len(all) > MaxExt {
		c.fail(c.code, "ext", "has more than "+strconv.Itoa(MaxExt)+" members")
	}
	for i, x := range all {
		c.at("ext", i, func() {
			c.id("name", x.Name)
			c.text("value", x.Value)
			if len(x.Value) > MaxExtValue {
				c.fail(c.code, "value", "is longer than "+strconv.Itoa(MaxExtValue)+" bytes")
			}
		})
	}
}

// ruled is a payload that states its own rules; every payload of this package does.
type ruled interface{ check(c *checker) }

func (c *checker) checkPayload(p Payload) {
	switch r, ok := p.(ruled); {
	case p == nil:
		c.fail(c.code, "payload", "is missing")
	case !ok || reflect.TypeOf(p).Kind() == reflect.Pointer:
		c.fail(c.code, "payload", "is none of this package's payloads")
	case p.Type() != c.envelope.Type:
		c.fail(BadEvent, "type", "is not the type of the payload, "+string(p.Type()))
	default:
		c.in("payload", func() { r.check(c) })
	}
}

func (p SessionCreated) check(c *checker) {
	c.optText("agent_id", p.AgentID)
	c.optText("title", p.Title)
	if p.ForkedFrom.OK {
		c.in("forked_from", func() {
			from := p.ForkedFrom.Value
			c.sessionID("session_id", from.SessionID)
			c.seq("seq", from.Seq)
			if from.SessionID == c.envelope.SessionID {
				c.fail(BadEvent, "session_id", "is the session's own")
			}
		})
	}
}

func (p SystemMessageCreated) check(c *checker) { c.parts(p.Content) }

func (p UserMessageCreated) check(c *checker) {
	c.parts(p.Content)
	c.member("trust", Trusts, string(p.Trust))
}

func (p ToolsOffered) check(c *checker) {
	c.id("digest", p.Digest)
	for i, t := range p.Tools {
		c.at("tools", i, func() {
			c.id("name", t.Name)
			c.optText("version", t.Version)
			c.optText("description", t.Description)
			c.jsonText("parameters", t.Parameters)
			c.optEffect(t.Effect)
		})
	}
}

func (p RunStarted) check(c *checker) {
	c.runID()
	c.optText("agent_id", p.AgentID)
	c.optText("agent_version", p.AgentVersion)
	if p.Record.OK {
		c.in("record", func() {
			c.id("batch", p.Record.Value.Batch)
			c.id("key", p.Record.Value.Key)
		})
	}
	if p.Parent.OK {
		c.in("parent", func() {
			c.sessionID("session_id", p.Parent.Value.SessionID)
			c.id("run_id", p.Parent.Value.RunID)
			c.id("call_id", p.Parent.Value.CallID)
		})
	}
	for i, s := range p.Skills {
		c.at("skills", i, func() { c.skill(s) })
	}
}

func (p ModelRequestStarted) check(c *checker) {
	c.number("round", p.Round, 0)
	c.optText("model", p.Model)
	c.optID("tools_digest", p.ToolsDigest)
}

func (p ModelResponseCompleted) check(c *checker) {
	c.number("round", p.Round, 0)
	c.optText("model", p.Model)
	c.optText("stop_reason", p.StopReason)
	for i, item := range p.Items {
		c.at("items", i, func() { c.responseItem(item) })
	}
	if p.Usage.OK {
		c.in("usage", func() { c.usage(p.Usage.Value) })
	}
}

func (p ModelResponseFailed) check(c *checker) {
	c.number("round", p.Round, 0)
	c.text("error_class", p.ErrorClass)
	c.optText("message", p.Message)
}

func (p ToolCallProposed) check(c *checker) {
	c.call(p.CallID, p.Name)
	c.optEffect(p.Effect)
	if p.Skill.OK {
		c.in("skill", func() { c.skill(p.Skill.Value) })
	}
}

func (p ToolCallAuthorized) check(c *checker) {
	c.call(p.CallID, p.Name)
	c.optID("approval_id", p.ApprovalID)
}

func (p ToolCallStarted) check(c *checker) {
	c.call(p.CallID, p.Name)
	c.optText("arguments", p.Arguments)
}

// check is the rule of the five tool results; a denial adds to it.
func (p ToolResult) check(c *checker) {
	c.call(p.CallID, p.Name)
	c.optText("reason_code", p.ReasonCode)
	if p.ResultItem.State != Present {
		c.fail(ResultItemMissing, "result_item", "is missing")
		return
	}
	item := p.ResultItem.Item
	c.in("result_item", func() {
		c.id("call_id", item.CallID)
		if item.CallID != p.CallID {
			c.fail(BadEvent, "call_id", "is not the call_id of the event")
		}
		c.parts(item.Content)
		c.member("trust", Trusts, string(item.Trust))
	})
}

func (p ToolCallDenied) check(c *checker) {
	c.call(p.CallID, p.Name)
	c.id("reason_code", p.ReasonCode.Or(""))
	if p.ResultItem.State != Null {
		p.ToolResult.check(c)
	}
}

func (p ApprovalRequested) check(c *checker) {
	c.id("approval_id", p.ApprovalID)
	c.ids("call_ids", p.CallIDs)
}

func (p ApprovalResolved) check(c *checker) {
	c.id("approval_id", p.ApprovalID)
	c.member("resolution", Resolutions, p.Resolution)
	c.ids("call_ids", p.CallIDs)
	c.optID("decided_by", p.DecidedBy)
	c.optText("reason_code", p.ReasonCode)
}

func (p ApprovalInvalidated) check(c *checker) {
	c.id("approval_id", p.ApprovalID)
	c.id("reason_code", p.ReasonCode)
}

func (p InputRequested) check(c *checker) {
	c.id("input_id", p.InputID)
	c.optID("call_id", p.CallID)
}

func (p InputReceived) check(c *checker) {
	c.id("input_id", p.InputID)
	c.optID("call_id", p.CallID)
	c.member("action", InputActions, p.Action)
}

func (p ContextCompacted) check(c *checker) {
	c.seq("through_seq", p.ThroughSeq)
	if p.ThroughSeq >= c.envelope.Seq {
		c.fail(BadEvent, "through_seq", "is not before the event itself")
	}
	c.parts(p.Content)
	c.member("method", CompactionMethods, p.Method)
}

func (p RunCompleted) check(c *checker) {
	c.runID()
	c.member("reason", CompletionReasons, p.Reason)
}

func (p RunFailed) check(c *checker) {
	c.runID()
	c.text("reason", p.Reason)
	c.optText("message", p.Message)
}

func (p RunCancelled) check(c *checker) {
	c.runID()
	c.text("reason", p.Reason)
}

func (p VerdictRecorded) check(c *checker) {
	c.id("name", p.Name)
	c.optText("label", p.Label)
	c.optText("explanation", p.Explanation)
	if s := p.Score.Value; math.IsNaN(s) || math.IsInf(s, 0) {
		c.fail(c.code, "score", "is not a finite number")
	}
	c.member("annotator_kind", AnnotatorKinds, p.AnnotatorKind)
	c.id("identifier", p.Identifier)
	if p.Target.OK {
		c.in("target", func() {
			c.id("run_id", p.Target.Value.RunID)
			c.optID("call_id", p.Target.Value.CallID)
		})
	}
}

func (p NoteRecorded) check(c *checker) {
	c.id("name", p.Name)
	c.jsonText("data", p.Data)
}

// The purged type may be one that this build does not know: nobody reads anything of it any more.
func (p EventPurged) check(c *checker) {
	c.id("purged_type", string(p.PurgedType))
	c.text("reason", p.Reason)
}

func (c *checker) call(id, name string) {
	c.id("call_id", id)
	c.id("name", name)
}

// runID is demanded where the event says that a run begins or ends.
func (c *checker) runID() {
	if !c.envelope.RunID.OK && c.err == nil {
		c.err = &Error{Code: BadEnvelope, Field: "run_id", Message: "is missing, and the event is about a run"}
	}
}

func (c *checker) skill(s Skill) {
	c.id("name", s.Name)
	c.optText("version", s.Version)
}

func (c *checker) optEffect(o Opt[Effect]) {
	if o.OK {
		c.member("effect", Effects, string(o.Value))
	}
}

func (c *checker) parts(all []Part) {
	for i, part := range all {
		c.at("content", i, func() {
			switch p := part.(type) {
			case Text:
				c.text("text", p.Text)
			case Image:
				c.media(p.Media)
			case File:
				c.media(p.Media)
			default:
				c.fail(c.code, "", "is none of text, image, file")
			}
		})
	}
}

func (c *checker) media(m Media) {
	if m.URI == "" {
		c.fail(c.code, "uri", "is missing or empty")
	}
	c.text("uri", m.URI)
	c.optText("sha256", m.SHA256)
	c.id("media_type", m.MediaType)
	c.optText("filename", m.Filename)
}

func (c *checker) responseItem(item ResponseItem) {
	switch it := item.(type) {
	case AssistantMessage:
		c.parts(it.Content)
		c.optJSONText("provider_data", it.ProviderData)
	case ToolCall:
		c.call(it.CallID, it.Name)
		c.text("arguments", it.Arguments)
		c.optJSONText("provider_data", it.ProviderData)
	case ProviderItem:
		c.id("provider", it.Provider)
		c.id("provider_kind", it.ProviderKind)
		c.optText("text", it.Text)
		c.jsonText("data", it.Data)
	default:
		c.fail(c.code, "", "is none of assistant, tool_call, provider")
	}
}

func (c *checker) usage(u Usage) {
	c.count("input_tokens", u.InputTokens)
	c.count("output_tokens", u.OutputTokens)
	c.count("cached_tokens", u.CachedTokens.Value)
	c.count("cache_write_tokens", u.CacheWriteTokens.Value)
	c.count("reasoning_tokens", u.ReasoningTokens.Value)
	if cost := u.CostUSD.Value; !(cost >= 0) || math.IsInf(cost, 1) {
		c.fail(c.code, "cost_usd", "is not a finite number from 0 up")
	}
}

func (c *checker) checkRecordable(p Payload) {
	switch p := p.(type) {
	case ToolCallCompleted:
		if p.ResultItem.Item.IsError == Some(true) {
			c.fail(c.code, "payload.result_item.is_error", "is true, but the call is recorded as completed")
		}
	case ToolCallFailed:
		c.notFine(p.ToolResult, "failed")
	case ToolCallDenied:
		if p.ResultItem.State != Present {
			c.fail(ResultItemMissing, "payload.result_item", "is missing: a denial is recorded with the item that the model is given")
		}
		c.notFine(p.ToolResult, "denied")
	case ApprovalResolved:
		if p.Approved != strings.HasPrefix(p.Resolution, "approve_") {
			c.fail(c.code, "payload.approved", "contradicts the resolution")
		}
	case RunStarted:
		if p.Record.OK && !c.envelope.OccurredAt.OK {
			c.fail(BadEnvelope, "occurred_at", "is missing: the newest run about a record decides, and only its time says which is newest")
		}
	}
}

func (c *checker) notFine(r ToolResult, outcome string) {
	if r.ResultItem.Item.IsError == Some(false) {
		c.fail(c.code, "payload.result_item.is_error", "is false, but the call is recorded as "+outcome)
	}
}
