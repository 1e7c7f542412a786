package schemas

import "github.com/tooltape/tooltape/schemas/event"

// payloadMappings are all event types, each with the one function that maps its current version.
var payloadMappings = []payloadMapping{
	mapped(sessionCreated), mapped(systemMessageCreated), mapped(userMessageCreated), mapped(toolsOffered), mapped(runStarted),
	mapped(modelRequestStarted), mapped(modelResponseCompleted), mapped(modelResponseFailed), mapped(toolCallProposed),
	mapped(toolCallAuthorized), mapped(toolCallStarted), mapped(toolCallCompleted), mapped(toolCallFailed),
	mapped(toolCallUncertain), mapped(toolCallCancelled), mapped(toolCallDenied), mapped(approvalRequested),
	mapped(approvalResolved), mapped(approvalInvalidated), mapped(inputRequested), mapped(inputReceived),
	mapped(contextCompacted), mapped(runCompleted), mapped(runFailed), mapped(runCancelled), mapped(verdictRecorded),
	mapped(noteRecorded), mapped(eventPurged),
}

func sessionCreated(r record, p *event.SessionCreated) {
	optionalText(r, "agent_id", &p.AgentID)
	optionalRecord(r, "forked_from", "SessionRef", &p.ForkedFrom, func(r record, ref *event.SessionRef) {
		text(r, "session_id", &ref.SessionID)
		plain(r, "seq", &ref.Seq)
	})
	optionalText(r, "title", &p.Title)
}

func systemMessageCreated(r record, p *event.SystemMessageCreated) {
	variants(r, "content", &p.Content, part)
}

func userMessageCreated(r record, p *event.UserMessageCreated) {
	variants(r, "content", &p.Content, part)
	text(r, "trust", &p.Trust)
}

func toolsOffered(r record, p *event.ToolsOffered) {
	text(r, "digest", &p.Digest)
	records(r, "tools", &p.Tools, func(r record, t *event.ToolDefinition) {
		text(r, "name", &t.Name)
		optionalText(r, "version", &t.Version)
		optionalText(r, "description", &t.Description)
		text(r, "parameters", &t.Parameters)
		optionalText(r, "effect", &t.Effect)
	})
}

func runStarted(r record, p *event.RunStarted) {
	optionalText(r, "agent_id", &p.AgentID)
	optionalText(r, "agent_version", &p.AgentVersion)
	optionalRecord(r, "record", "RecordRef", &p.Record, func(r record, ref *event.RecordRef) {
		text(r, "batch", &ref.Batch)
		text(r, "key", &ref.Key)
	})
	optionalRecord(r, "parent", "CallRef", &p.Parent, func(r record, ref *event.CallRef) {
		text(r, "session_id", &ref.SessionID)
		text(r, "run_id", &ref.RunID)
		text(r, "call_id", &ref.CallID)
	})
	records(r, "skills", &p.Skills, skill)
}

func skill(r record, s *event.Skill) {
	text(r, "name", &s.Name)
	optionalText(r, "version", &s.Version)
}

func modelRequestStarted(r record, p *event.ModelRequestStarted) {
	integer(r, "round", &p.Round)
	optionalText(r, "model", &p.Model)
	optionalText(r, "tools_digest", &p.ToolsDigest)
}

func modelResponseCompleted(r record, p *event.ModelResponseCompleted) {
	integer(r, "round", &p.Round)
	optionalText(r, "model", &p.Model)
	optionalText(r, "stop_reason", &p.StopReason)
	variants(r, "items", &p.Items, responseItem)
	optionalRecord(r, "usage", "Usage", &p.Usage, func(r record, u *event.Usage) {
		plain(r, "input_tokens", &u.InputTokens)
		plain(r, "output_tokens", &u.OutputTokens)
		optional(r, "cached_tokens", longBranch, &u.CachedTokens)
		optional(r, "cache_write_tokens", longBranch, &u.CacheWriteTokens)
		optional(r, "reasoning_tokens", longBranch, &u.ReasoningTokens)
		optional(r, "cost_usd", doubleBranch, &u.CostUSD)
	})
}

func responseItem(r record, branch string, item *event.ResponseItem) string {
	if r.writing {
		switch (*item).(type) {
		case event.AssistantMessage:
			branch = "AssistantMessage"
		case event.ToolCall:
			branch = "ToolCall"
		case event.ProviderItem:
			branch = "ProviderItem"
		default:
			r.fail(event.BadPayload, "", "is no response item that package event defines")
		}
	}
	switch branch {
	case "AssistantMessage":
		variant(r, item, func(r record, m *event.AssistantMessage) {
			variants(r, "content", &m.Content, part)
			optionalText(r, "provider_data", &m.ProviderData)
		})
	case "ToolCall":
		variant(r, item, func(r record, c *event.ToolCall) {
			text(r, "call_id", &c.CallID)
			text(r, "name", &c.Name)
			text(r, "arguments", &c.Arguments)
			optionalText(r, "provider_data", &c.ProviderData)
		})
	case "ProviderItem":
		variant(r, item, func(r record, i *event.ProviderItem) {
			text(r, "provider", &i.Provider)
			text(r, "provider_kind", &i.ProviderKind)
			optionalText(r, "text", &i.Text)
			text(r, "data", &i.Data)
		})
	}
	return branch
}

func part(r record, branch string, p *event.Part) string {
	if r.writing {
		switch (*p).(type) {
		case event.Text:
			branch = "Text"
		case event.Image:
			branch = "Image"
		case event.File:
			branch = "File"
		default:
			r.fail(event.BadPayload, "", "is no part that package event defines")
		}
	}
	switch branch {
	case "Text":
		variant(r, p, func(r record, t *event.Text) { text(r, "text", &t.Text) })
	case "Image":
		variant(r, p, func(r record, i *event.Image) { media(r, &i.Media) })
	case "File":
		variant(r, p, func(r record, f *event.File) { media(r, &f.Media) })
	}
	return branch
}

func media(r record, m *event.Media) {
	text(r, "uri", &m.URI)
	optionalText(r, "sha256", &m.SHA256)
	text(r, "media_type", &m.MediaType)
	optionalText(r, "filename", &m.Filename)
}

func modelResponseFailed(r record, p *event.ModelResponseFailed) {
	integer(r, "round", &p.Round)
	text(r, "error_class", &p.ErrorClass)
	optionalText(r, "message", &p.Message)
}

func toolCallProposed(r record, p *event.ToolCallProposed) {
	text(r, "call_id", &p.CallID)
	text(r, "name", &p.Name)
	optionalText(r, "effect", &p.Effect)
	optionalRecord(r, "skill", "Skill", &p.Skill, skill)
}

func toolCallAuthorized(r record, p *event.ToolCallAuthorized) {
	text(r, "call_id", &p.CallID)
	text(r, "name", &p.Name)
	optionalText(r, "approval_id", &p.ApprovalID)
}

func toolCallStarted(r record, p *event.ToolCallStarted) {
	text(r, "call_id", &p.CallID)
	text(r, "name", &p.Name)
	optionalText(r, "arguments", &p.Arguments)
}

func toolCallCompleted(r record, p *event.ToolCallCompleted) { toolResult(r, &p.ToolResult) }
func toolCallFailed(r record, p *event.ToolCallFailed)       { toolResult(r, &p.ToolResult) }
func toolCallUncertain(r record, p *event.ToolCallUncertain) { toolResult(r, &p.ToolResult) }
func toolCallCancelled(r record, p *event.ToolCallCancelled) { toolResult(r, &p.ToolResult) }

func toolResult(r record, p *event.ToolResult) {
	text(r, "call_id", &p.CallID)
	text(r, "name", &p.Name)
	optionalText(r, "reason_code", &p.ReasonCode)
	recordedItem(r, &p.ResultItem)
}

// toolCallDenied differs from the other tool results in that its reason code is no nullable field.
func toolCallDenied(r record, p *event.ToolCallDenied) {
	text(r, "call_id", &p.CallID)
	text(r, "name", &p.Name)
	if r.writing && !p.ReasonCode.OK {
		r.fail(event.BadPayload, ".reason_code", "is missing")
	}
	text(r, "reason_code", &p.ReasonCode.Value)
	p.ReasonCode.OK = true
	recordedItem(r, &p.ResultItem)
}

// recordedItem maps the result item, which every current version requires: only an upcast one can be null, and none is absent.
func recordedItem(r record, item *event.RecordedItem) {
	if r.writing {
		if item.State != event.Present {
			r.fail(event.ResultItemMissing, ".result_item", "must say what the model was given as the result of the call")
			return
		}
		values := map[string]any{}
		nested(r, ".result_item", values, &item.Item, resultItem)
		r.values["result_item"] = values
		return
	}
	recorded, ok := r.values["result_item"]
	switch values := asMap(recorded); {
	case values != nil:
		item.State = event.Present
		resultItem(record{r.mapping, values}, &item.Item)
	case ok:
		item.State = event.Null
	}
}

func resultItem(r record, i *event.ResultItem) {
	text(r, "call_id", &i.CallID)
	variants(r, "content", &i.Content, part)
	optional(r, "is_error", booleanBranch, &i.IsError)
	text(r, "trust", &i.Trust)
}

func approvalRequested(r record, p *event.ApprovalRequested) {
	text(r, "approval_id", &p.ApprovalID)
	texts(r, "call_ids", &p.CallIDs)
}

func approvalResolved(r record, p *event.ApprovalResolved) {
	text(r, "approval_id", &p.ApprovalID)
	plain(r, "approved", &p.Approved)
	text(r, "resolution", &p.Resolution)
	texts(r, "call_ids", &p.CallIDs)
	optionalText(r, "decided_by", &p.DecidedBy)
	optionalText(r, "reason_code", &p.ReasonCode)
}

func approvalInvalidated(r record, p *event.ApprovalInvalidated) {
	text(r, "approval_id", &p.ApprovalID)
	text(r, "reason_code", &p.ReasonCode)
}

func inputRequested(r record, p *event.InputRequested) {
	text(r, "input_id", &p.InputID)
	optionalText(r, "call_id", &p.CallID)
}

func inputReceived(r record, p *event.InputReceived) {
	text(r, "input_id", &p.InputID)
	optionalText(r, "call_id", &p.CallID)
	text(r, "action", &p.Action)
}

func contextCompacted(r record, p *event.ContextCompacted) {
	plain(r, "through_seq", &p.ThroughSeq)
	variants(r, "content", &p.Content, part)
	text(r, "method", &p.Method)
}

func runCompleted(r record, p *event.RunCompleted) { text(r, "reason", &p.Reason) }

func runFailed(r record, p *event.RunFailed) {
	text(r, "reason", &p.Reason)
	optionalText(r, "message", &p.Message)
}

func runCancelled(r record, p *event.RunCancelled) { text(r, "reason", &p.Reason) }

func verdictRecorded(r record, p *event.VerdictRecorded) {
	text(r, "name", &p.Name)
	optionalText(r, "label", &p.Label)
	optional(r, "score", doubleBranch, &p.Score)
	optionalText(r, "explanation", &p.Explanation)
	text(r, "annotator_kind", &p.AnnotatorKind)
	text(r, "identifier", &p.Identifier)
	optionalRecord(r, "target", "VerdictTarget", &p.Target, func(r record, t *event.VerdictTarget) {
		text(r, "run_id", &t.RunID)
		optionalText(r, "call_id", &t.CallID)
	})
}

func noteRecorded(r record, p *event.NoteRecorded) {
	text(r, "name", &p.Name)
	text(r, "data", &p.Data)
}

func eventPurged(r record, p *event.EventPurged) {
	text(r, "purged_type", &p.PurgedType)
	text(r, "reason", &p.Reason)
}
