package event

import "slices"

// Trust says where content comes from, and so how far a model may be led by it.
type Trust string

// Trust levels. Trust that a source did not record is ExternalUntrusted.
const (
	Platform             Trust = "platform"
	TrustedConfiguration Trust = "trusted_configuration"
	User                 Trust = "user"
	InternalTool         Trust = "internal_tool"
	ExternalUntrusted    Trust = "external_untrusted"
	Memory               Trust = "memory"
	Knowledge            Trust = "knowledge"
)

// Effect is what a call may do to the world.
type Effect string

// Effects. Where none was recorded a call is never taken for a write.
const (
	ReadOnly           Effect = "read_only"
	IdempotentWrite    Effect = "idempotent_write"
	NonIdempotentWrite Effect = "non_idempotent_write"
)

// The closed sets that are Avro strings, by what they name; a new member means a new payload version (DESIGN chapter 2).
// Strings of a provider (stop_reason, error_class, model) are in none of them: they are kept verbatim and never checked.
var (
	ActorTypes        = Set{"principal", "application", "runtime", "worker", "batch", "importer", "operator"}
	Trusts            = Set{"platform", "trusted_configuration", "user", "internal_tool", "external_untrusted", "memory", "knowledge"}
	Effects           = Set{"read_only", "idempotent_write", "non_idempotent_write"}
	Resolutions       = Set{"approve_once", "approve_edited", "approve_always", "approve_policy", "deny", "expired"}
	InputActions      = Set{"accept", "decline", "cancel"}
	CompactionMethods = Set{"summary", "truncation", "other"}
	CompletionReasons = Set{"completed", "max_iterations", "budget_exhausted", "policy_denied", "context_truncated", "source_ended", "other"}
	AnnotatorKinds    = Set{"human", "llm", "code"}
)

// Set is a closed set of names.
type Set []string

// Has says whether name is a member, to the letter.
func (s Set) Has(name string) bool { return slices.Contains(s, name) }
