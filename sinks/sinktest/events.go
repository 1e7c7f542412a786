package sinktest

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tooltape/tooltape/processors/projection"
	"github.com/tooltape/tooltape/schemas/event"
	"github.com/tooltape/tooltape/sinks"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// eventID is the same for the same event.
func eventID(sessionID string, seq int64) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, append([]byte(sessionID), byte(seq>>8), byte(seq))).String()
}

// message is an event of a user who says each text, an item each.
func message(sessionID string, seq int64, texts ...string) sinks.Projected {
	p := sinks.Projected{Event: event.Event{Envelope: event.Envelope{
		EnvelopeVersion: event.EnvelopeVersion, EventID: eventID(sessionID, seq), TenantID: event.DefaultTenant, SessionID: sessionID, Seq: seq,
		Type: event.UserMessageCreatedType, PayloadVersion: 1, OccurredAt: event.Some(noon), PartitionKey: sessionID,
	}}}
	for _, text := range texts {
		p.Items = append(p.Items, projection.User{Content: []event.Part{event.Text{Text: text}}, Trust: event.User, SourceSeq: seq})
	}
	return p
}

// watermark is a session of partition 0 that is projected up to seq.
func watermark(sessionID string, seq int64) sinks.Session {
	return sinks.Session{Watermark: sinks.Watermark{Seq: seq, EventID: eventID(sessionID, seq)}}
}

func parked(sessionID string, seq int64) sinks.Parked {
	return sinks.Parked{
		SessionID: sessionID, FromOffset: 10, Offset: 10, Seq: seq, Type: event.ToolCallDeniedType, PayloadVersion: 2,
		Code: event.ResultItemMissing, Message: "the result item is missing", Since: noon, Builds: []string{"abc"},
	}
}

func setAside(offset int64, code event.Code) sinks.SetAside {
	return sinks.SetAside{Offset: offset, Key: []byte("key"), Value: []byte("value"), Code: code, Message: "why", Since: noon}
}

// Hostile are texts that stores have lost, changed or choked on. All are valid UTF-8.
func Hostile() []string {
	return []string{
		"",
		" \t\r\n",
		"a\x00b", // the one character that PostgreSQL's text and jsonb refuse
		"\x01\x1f\x7f\u0080\u2028\u2029\ufeff\ufffd\uffff",
		"👩‍👩‍👧 e\u0301 \U0010ffff",
		`\u0000 \ud800 \udc00 \"`,                                     // escapes in the text itself
		`{"lone":"\ud800","nul":"\u0000"}`,                            // JSON that jsonb refuses
		`{"n":123456789012345678901234567890.10,"e":1e999999,"z":-0}`, // numbers that no float holds
		`{"b":1,"a":2,"a":3}`,                                         // order and duplicate keys
		strings.Repeat(`[{"a":`, 20_000) + "1" + strings.Repeat("}]", 20_000),
		`'; DROP TABLE tooltape.history_item; --`,
		`$1 $$ E'\'' {} {NULL} "quoted" \N \.`,
		"<script>&amp;</script>",
		strings.Repeat("x", 1<<20),
		strings.Repeat("\u00e9\x00", 1<<18),
	}
}
