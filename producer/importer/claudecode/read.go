// Package claudecode reads the transcripts that Claude Code keeps, one JSON object a line.
//
// The lines of one message id are one model response, and each content block one of its items: thinking becomes a provider
// item with the block verbatim, so that its signature stays good. A tool result is completed, failed (is_error true), denied or
// cancelled (where the line says that the call was not run), and its error flag is null where the block has none.
//
// What the runtime put before the model as a user message (isMeta) is in the session, with trust external_untrusted: nobody
// recorded who wrote it. Attachment lines (files, reminders, queued commands) are kept verbatim as notes, since the words in
// which the model was shown them are not recorded. Skipped and counted are: lines of a subagent (isSidechain), whose own
// conversation this is not; lines that only the transcript's reader sees; and all other types of line (snapshots, system,
// summary, progress…). What toolUseResult says beside a result was not shown to the model, and is not imported.
//
// A transcript in which the user went back to an earlier message is refused at that line: a session is one line of history.
package claudecode

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/tooltape/tooltape/producer/importer"
	"github.com/tooltape/tooltape/producer/importer/internal/strict"
)

// Options say what the session is called.
type Options struct {
	// SessionID is the session's id; empty: the id that the lines give. It is refused where the file holds several sessions.
	SessionID string
}

// Read reads the sessions of a transcript, one for each sessionId in the order in which they begin; name is what the file is
// called in errors. What was good before an error is returned with it.
func Read(r io.Reader, name string, opts Options) (importer.Source, error) {
	f := file{sessions: map[string]*session{}}
	line, err := f.readLines(bufio.NewReaderSize(r, 64<<10))
	found := importer.Source{Skipped: f.skipped.Skipped}
	for _, s := range f.order {
		if len(s.entries) > 0 {
			found.Sessions = append(found.Sessions, importer.Session{ID: s.id, Entries: s.entries})
		}
	}
	if err == nil && len(found.Sessions) == 0 {
		line, err = 0, errors.New(nothing(line))
	}
	if idErr := nameSessions(found.Sessions, opts.SessionID); idErr != nil {
		return importer.Source{}, &importer.Error{File: name, Message: idErr.Error()}
	}
	if err != nil {
		return found, &importer.Error{File: name, Line: line, Message: err.Error()}
	}
	return found, nil
}

func nothing(lines int) string {
	if lines == 0 {
		return "the file is empty"
	}
	return "there is no user or assistant line of a main conversation in it"
}

func nameSessions(sessions []importer.Session, id string) error {
	if id != "" && len(sessions) > 1 {
		return fmt.Errorf("the file holds %d sessions, which cannot all be called %s", len(sessions), id)
	}
	for i := range sessions {
		if id != "" {
			sessions[i].ID = id
		}
		if err := importer.CheckID(sessions[i].ID); err != nil {
			return err
		}
	}
	return nil
}

// file is a transcript while it is read.
type file struct {
	sessions map[string]*session
	order    []*session
	skipped  importer.Source
}

// readLines reads all lines, and says at which it stopped.
func (f *file) readLines(r *bufio.Reader) (int, error) {
	for n := 1; ; n++ {
		text, err := readLine(r)
		if errors.Is(err, io.EOF) {
			return n - 1, nil
		}
		if err != nil {
			return n, err
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if err := f.line(text, n); err != nil {
			return n, err
		}
	}
}

// readLine is the next line, with its newline if it has one.
func readLine(r *bufio.Reader) ([]byte, error) {
	var text []byte
	for {
		chunk, err := r.ReadSlice('\n')
		text = append(text, chunk...)
		switch {
		case len(text) > strict.MaxValue:
			return nil, fmt.Errorf("the line is longer than %d MiB", strict.MaxValue>>20)
		case err == nil || errors.Is(err, io.EOF) && len(text) > 0:
			return text, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// line reads one line into the session that it belongs to.
func (f *file) line(text []byte, number int) error {
	value, err := strict.Parse(text)
	if err != nil {
		return fmt.Errorf("the line is not good: %w", err)
	}
	object, err := strict.ReadObject(value)
	if err != nil {
		return err
	}
	l, err := readLineHead(object, number)
	if err != nil {
		return err
	}
	s := f.sessions[l.sessionID]
	if s == nil {
		s = &session{id: l.sessionID, rounds: map[string]int{}, usage: map[string]tokens{}, parents: map[string]node{}}
		f.sessions[l.sessionID] = s
		f.order = append(f.order, s)
	}
	if err := s.know(l); err != nil {
		return err
	}
	if reason := l.skipReason(); reason != "" {
		f.skipped.Skip(reason)
		return nil
	}
	return s.add(l)
}
