package event

// Code says why an event could not be read, projected or stored. The set is closed and spelled alike in SQL, CLI, HTTP and
// metrics; docs/OPERATIONS.md says for each what to do.
type Code string

// The codes for which a session is parked.
const (
	BadFrame          Code = "bad_frame"           // the value has neither of the two framings
	UnknownSchema     Code = "unknown_schema"      // no frozen schema has this id or fingerprint
	BadEnvelope       Code = "bad_envelope"        // the envelope cannot be read, or breaks its rules
	BadPayload        Code = "bad_payload"         // the payload cannot be read, or breaks its rules
	LeftOverBytes     Code = "left_over_bytes"     // the record is followed by something
	TooManyItems      Code = "too_many_items"      // more array items than a record may have
	KeyMismatch       Code = "key_mismatch"        // the record's key names another event than its value
	UnknownType       Code = "unknown_type"        // no such event type
	NewerVersion      Code = "newer_version"       // a payload version newer than this build knows
	ResultItemMissing Code = "result_item_missing" // a tool result without the item that the model was given
	BadEvent          Code = "bad_event"           // well-formed, but it cannot be projected
	Gap               Code = "gap"                 // an event before it has not come
	Conflict          Code = "conflict"            // two events claim one place in the session
	StoreRefused      Code = "store_refused"       // the database refuses what it holds
)

// The codes for which a record is set aside: it belongs to no session, or to none here.
const (
	BadKey             Code = "bad_key"             // the key cannot be read
	EmptyValue         Code = "empty_value"         // an empty value, which is neither an event nor a tombstone
	UnannouncedRemoval Code = "unannounced_removal" // a tombstone that no marker announced
	WrongPartition     Code = "wrong_partition"     // the session has its watermark on another partition
)

// ParkingCodes and SetAsideCodes are all codes, in the order of the documentation.
var (
	ParkingCodes = []Code{BadFrame, UnknownSchema, BadEnvelope, BadPayload, LeftOverBytes, TooManyItems, KeyMismatch, UnknownType,
		NewerVersion, ResultItemMissing, BadEvent, Gap, Conflict, StoreRefused}
	SetAsideCodes = []Code{BadKey, EmptyValue, UnannouncedRemoval, WrongPartition}
)

// Error is an event that cannot be taken: a fact about the event, never about the moment. Trying again with the same build
// gives the same error.
type Error struct {
	Code Code
	// Field is the path of the field at fault, such as "payload.result_item"; empty where no one field is.
	Field string
	// Message is a sentence without the field's name and without any content of the event.
	Message string
}

func (e *Error) Error() string {
	if e.Field == "" {
		return string(e.Code) + ": " + e.Message
	}
	return string(e.Code) + ": " + e.Field + ": " + e.Message
}
