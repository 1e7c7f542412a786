package event

// Part is one piece of a message's or a result's content. Tooltape stores and fetches no media: images and files are named by
// where they are.
type Part interface{ part() }

// Text is a part of text.
type Text struct{ Text string }

// Image and File point at media.
type (
	Image struct{ Media }
	File  struct{ Media }
)

// Media is where a piece of media is and what it is.
type Media struct {
	URI       string
	SHA256    Opt[string]
	MediaType string
	Filename  Opt[string]
}

func (Text) part()  {}
func (Image) part() {}
func (File) part()  {}

// ResultItem is what the model was given as the result of a call.
type ResultItem struct {
	CallID  string
	Content []Part
	// IsError is absent where the source has no error flag; such a result counts as neither success nor failure.
	IsError Opt[bool]
	Trust   Trust
}

// RecordedItem is the result item of a tool result event. Absent, Null and Present are three things (decision record
// ADR-0142): Null says that the item was not recorded, and a denial is then rendered from its facts; Absent says nothing, and
// is refused.
type RecordedItem struct {
	State ItemState
	// Item is meaningful only where State is Present.
	Item ResultItem
}

// ItemState says whether a result item was recorded.
type ItemState uint8

// The three states of a recorded item.
const (
	Absent ItemState = iota
	Null
	Present
)

// Recorded is a result item that was recorded.
func Recorded(item ResultItem) RecordedItem { return RecordedItem{State: Present, Item: item} }

// ResponseItem is one entry of a model's response.
type ResponseItem interface{ responseItem() }

// AssistantMessage is what the model said.
type AssistantMessage struct {
	Content []Part
	// ProviderData is JSON text, kept verbatim.
	ProviderData Opt[string]
}

// ToolCall is a call that the model asked for.
type ToolCall struct {
	CallID string
	Name   string
	// Arguments is kept verbatim as the model wrote it: usually JSON text, not always.
	Arguments string
	// ProviderData is JSON text, kept verbatim.
	ProviderData Opt[string]
}

// ProviderItem is something only its provider understands: signed thinking, reasoning items, server-side tools.
type ProviderItem struct {
	Provider     string
	ProviderKind string
	Text         Opt[string]
	// Data is JSON text, kept verbatim.
	Data string
}

func (AssistantMessage) responseItem() {}
func (ToolCall) responseItem()         {}
func (ProviderItem) responseItem()     {}

// SessionRef names a point in another session.
type SessionRef struct {
	SessionID string
	Seq       int64
}

// RecordRef names the record of a batch that a run works on; the tenant is the envelope's.
type RecordRef struct{ Batch, Key string }

// CallRef names a call in another session's run.
type CallRef struct{ SessionID, RunID, CallID string }

// Skill names a skill and, where known, its version.
type Skill struct {
	Name    string
	Version Opt[string]
}

// ToolDefinition is a tool as it was offered to the model.
type ToolDefinition struct {
	Name        string
	Version     Opt[string]
	Description Opt[string]
	// Parameters is JSON text (a JSON schema), kept verbatim.
	Parameters string
	Effect     Opt[Effect]
}

// Usage counts tokens; InputTokens includes cached ones.
type Usage struct {
	InputTokens, OutputTokens                       int64
	CachedTokens, CacheWriteTokens, ReasoningTokens Opt[int64]
	CostUSD                                         Opt[float64]
}

// VerdictTarget says what a verdict is about.
type VerdictTarget struct {
	RunID  string
	CallID Opt[string]
}

// The payloads, one a type; DESIGN chapter 2 and docs/CONTRACT.md say what each field means.
type (
	SessionCreated struct {
		AgentID    Opt[string]
		ForkedFrom Opt[SessionRef]
		Title      Opt[string]
	}
	SystemMessageCreated struct{ Content []Part }
	UserMessageCreated   struct {
		Content []Part
		Trust   Trust
	}
	ToolsOffered struct {
		Digest string
		Tools  []ToolDefinition
	}
	RunStarted struct {
		AgentID      Opt[string]
		AgentVersion Opt[string]
		Record       Opt[RecordRef]
		Parent       Opt[CallRef]
		Skills       []Skill
	}
	ModelRequestStarted struct {
		Round       int
		Model       Opt[string]
		ToolsDigest Opt[string]
	}
	ModelResponseCompleted struct {
		Round      int
		Model      Opt[string]
		StopReason Opt[string]
		Items      []ResponseItem
		Usage      Opt[Usage]
	}
	ModelResponseFailed struct {
		Round      int
		ErrorClass string
		Message    Opt[string]
	}
	ToolCallProposed struct {
		CallID string
		Name   string
		Effect Opt[Effect]
		Skill  Opt[Skill]
	}
	ToolCallAuthorized struct {
		CallID     string
		Name       string
		ApprovalID Opt[string]
	}
	ToolCallStarted struct {
		CallID string
		Name   string
		// Arguments is what the call ran with, only where a person edited them.
		Arguments Opt[string]
	}
	ToolCallCompleted struct{ ToolResult }
	ToolCallFailed    struct{ ToolResult }
	ToolCallUncertain struct{ ToolResult }
	ToolCallCancelled struct{ ToolResult }
	ToolCallDenied    struct{ ToolResult }
	ApprovalRequested struct {
		ApprovalID string
		CallIDs    []string
	}
	ApprovalResolved struct {
		ApprovalID string
		Approved   bool
		Resolution string
		CallIDs    []string
		DecidedBy  Opt[string]
		ReasonCode Opt[string]
	}
	ApprovalInvalidated struct{ ApprovalID, ReasonCode string }
	InputRequested      struct {
		InputID string
		CallID  Opt[string]
	}
	InputReceived struct {
		InputID string
		CallID  Opt[string]
		Action  string
	}
	ContextCompacted struct {
		ThroughSeq int64
		Content    []Part
		Method     string
	}
	RunCompleted struct{ Reason string }
	RunFailed    struct {
		Reason  string
		Message Opt[string]
	}
	RunCancelled    struct{ Reason string }
	VerdictRecorded struct {
		Name          string
		Label         Opt[string]
		Score         Opt[float64]
		Explanation   Opt[string]
		AnnotatorKind string
		Identifier    string
		Target        Opt[VerdictTarget]
	}
	NoteRecorded struct {
		Name string
		// Data is JSON text, kept verbatim.
		Data string
	}
	EventPurged struct {
		PurgedType Type
		Reason     string
	}
)

// ToolResult is what the five tool result events share. ReasonCode is required of a denial and optional elsewhere.
type ToolResult struct {
	CallID     string
	Name       string
	ReasonCode Opt[string]
	ResultItem RecordedItem
}

// Type implements Payload.
func (SessionCreated) Type() Type         { return SessionCreatedType }
func (SystemMessageCreated) Type() Type   { return SystemMessageCreatedType }
func (UserMessageCreated) Type() Type     { return UserMessageCreatedType }
func (ToolsOffered) Type() Type           { return ToolsOfferedType }
func (RunStarted) Type() Type             { return RunStartedType }
func (ModelRequestStarted) Type() Type    { return ModelRequestStartedType }
func (ModelResponseCompleted) Type() Type { return ModelResponseCompletedType }
func (ModelResponseFailed) Type() Type    { return ModelResponseFailedType }
func (ToolCallProposed) Type() Type       { return ToolCallProposedType }
func (ToolCallAuthorized) Type() Type     { return ToolCallAuthorizedType }
func (ToolCallStarted) Type() Type        { return ToolCallStartedType }
func (ToolCallCompleted) Type() Type      { return ToolCallCompletedType }
func (ToolCallFailed) Type() Type         { return ToolCallFailedType }
func (ToolCallUncertain) Type() Type      { return ToolCallUncertainType }
func (ToolCallCancelled) Type() Type      { return ToolCallCancelledType }
func (ToolCallDenied) Type() Type         { return ToolCallDeniedType }
func (ApprovalRequested) Type() Type      { return ApprovalRequestedType }
func (ApprovalResolved) Type() Type       { return ApprovalResolvedType }
func (ApprovalInvalidated) Type() Type    { return ApprovalInvalidatedType }
func (InputRequested) Type() Type         { return InputRequestedType }
func (InputReceived) Type() Type          { return InputReceivedType }
func (ContextCompacted) Type() Type       { return ContextCompactedType }
func (RunCompleted) Type() Type           { return RunCompletedType }
func (RunFailed) Type() Type              { return RunFailedType }
func (RunCancelled) Type() Type           { return RunCancelledType }
func (VerdictRecorded) Type() Type        { return VerdictRecordedType }
func (NoteRecorded) Type() Type           { return NoteRecordedType }
func (EventPurged) Type() Type            { return EventPurgedType }

// Purged is what stands where an erased event stood: the same event id and place, no content, no actor id.
func Purged(e Envelope, reason string) Event {
	purgedType := e.Type
	e.Type, e.PayloadVersion, e.ActorID, e.Ext = EventPurgedType, 1, Opt[string]{}, nil
	return Event{Envelope: e, Payload: EventPurged{PurgedType: purgedType, Reason: reason}}
}

// ToolResultOf is the payload's tool result, if it is one of the five tool result events.
func ToolResultOf(p Payload) (ToolResult, bool) {
	switch p := p.(type) {
	case ToolCallCompleted:
		return p.ToolResult, true
	case ToolCallFailed:
		return p.ToolResult, true
	case ToolCallUncertain:
		return p.ToolResult, true
	case ToolCallCancelled:
		return p.ToolResult, true
	case ToolCallDenied:
		return p.ToolResult, true
	}
	return ToolResult{}, false
}
