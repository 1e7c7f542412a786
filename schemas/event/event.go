// Package event is the vocabulary: what can happen in a session, in its current shape.
//
// It has no Avro, no JSON form, no I/O, no clock. Older payload versions have no type here: they are upcast while they are decoded
// (package schemas), so whoever holds an Event holds the current shape.
package event

import "time"

// Event is one fact of one session, immutable once recorded.
type Event struct {
	Envelope

	// Payload is what only this type of event has; never nil in an event that was decoded.
	Payload Payload
}

// Envelope is what every event has, whatever its type. Its fields stand in the order of the Avro record.
type Envelope struct {
	// EnvelopeVersion is 1.
	EnvelopeVersion int
	// EventID is a UUID: version 7 for new events, a derived one for imports.
	EventID string
	// TenantID is DefaultTenant where there is one tenant.
	TenantID string
	// SessionID is unique across tenants: 1 to MaxSessionID bytes of UTF-8, no personal data.
	SessionID string
	// RunID is unique within its session; absent outside a run.
	RunID Opt[string]
	// Seq numbers the events of a session 1, 2, 3… without a hole.
	Seq int64
	// PrevEventID is the event before this one in the session; absent at seq 1.
	PrevEventID Opt[string]
	Type        Type
	// PayloadVersion is the version the event was stored with. In an upcast event it is below Type's current one, and such
	// an event can never be appended again.
	PayloadVersion int
	// OccurredAt is UTC, microseconds at most; absent where the source did not record it.
	OccurredAt Opt[time.Time]
	ActorType  string
	ActorID    Opt[string]
	// PartitionKey is fixed for a session by its first event.
	PartitionKey string
	// Ext is room to grow: unknown names are kept and ignored.
	Ext []Ext
}

// Ext is one extension of an envelope.
type Ext struct{ Name, Value string }

// Limits and defaults of the envelope (docs/CONTRACT.md).
const (
	EnvelopeVersion = 1
	MaxSessionID    = 200
	MaxExt          = 64
	DefaultTenant   = "default"
)

// Opt is a value that the source may not have recorded. The zero Opt is the recorded absence, an Avro or JSON null.
type Opt[T any] struct {
	Value T
	OK    bool
}

// Some is a recorded value.
func Some[T any](v T) Opt[T] { return Opt[T]{Value: v, OK: true} }

// Or is the value, or other where none was recorded.
func (o Opt[T]) Or(other T) T {
	if o.OK {
		return o.Value
	}
	return other
}

// Payload is what only one type of event has. The types of this package are all there are.
type Payload interface {
	// Type is the event type that this payload belongs to.
	Type() Type
}

// Type names an event type, spelled alike in Go, Avro, JSON, SQL, metrics and folders.
type Type string

// All event types.
const (
	SessionCreatedType         Type = "session.created"
	SystemMessageCreatedType   Type = "system.message.created"
	UserMessageCreatedType     Type = "user.message.created"
	ToolsOfferedType           Type = "tools.offered"
	RunStartedType             Type = "run.started"
	ModelRequestStartedType    Type = "model.request.started"
	ModelResponseCompletedType Type = "model.response.completed"
	ModelResponseFailedType    Type = "model.response.failed"
	ToolCallProposedType       Type = "tool.call.proposed"
	ToolCallAuthorizedType     Type = "tool.call.authorized"
	ToolCallStartedType        Type = "tool.call.started"
	ToolCallCompletedType      Type = "tool.call.completed"
	ToolCallFailedType         Type = "tool.call.failed"
	ToolCallUncertainType      Type = "tool.call.uncertain"
	ToolCallCancelledType      Type = "tool.call.cancelled"
	ToolCallDeniedType         Type = "tool.call.denied"
	ApprovalRequestedType      Type = "approval.requested"
	ApprovalResolvedType       Type = "approval.resolved"
	ApprovalInvalidatedType    Type = "approval.invalidated"
	InputRequestedType         Type = "input.requested"
	InputReceivedType          Type = "input.received"
	ContextCompactedType       Type = "context.compacted"
	RunCompletedType           Type = "run.completed"
	RunFailedType              Type = "run.failed"
	RunCancelledType           Type = "run.cancelled"
	VerdictRecordedType        Type = "verdict.recorded"
	NoteRecordedType           Type = "note.recorded"
	EventPurgedType            Type = "event.purged"
)
