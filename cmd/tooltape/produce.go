package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tooltape/tooltape/producer"
	"github.com/tooltape/tooltape/schemas"
	"github.com/tooltape/tooltape/schemas/event"
)

// maxLine bounds a line of events in JSON form; what is longer could not be recorded either.
const maxLine = 32 << 20

// appendAtOnce is how many lines of one session go to the broker together.
const appendAtOnce = 500

func (a *app) produceCommand() *cobra.Command {
	var backfill bool
	cmd := &cobra.Command{
		Use:   "produce FILE|-",
		Short: "Append events in JSON form, one a line",
		Long: `Append events in JSON form, one a line (docs/CONTRACT.md). What a line leaves out, the writer fills: event_id, seq,
prev_event_id, payload_version, tenant_id, partition_key.

The first line that may not be recorded ends it: nothing of that line is written, every line before it is. Starting again with the same
file is safe where the lines state event_id and seq.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, name, err := a.open(args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			summary, err := a.produce(cmd.Context(), in, name, backfill)
			if err != nil && summary.Events == 0 {
				return err
			}
			if printErr := a.printOne(summary); printErr != nil {
				return printErr
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&backfill, "backfill", false, "bring in an older log: each event keeps its stated payload version and is checked against that version's schema")
	return cmd
}

// produced is what produce prints.
type produced struct {
	Events   int `json:"events"`
	Sessions int `json:"sessions"`
}

// open is a file, or standard input for -.
func (a *app) open(path string) (io.ReadCloser, string, error) {
	if path == "-" {
		return io.NopCloser(a.in), "standard input", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	return f, path, nil
}

func (a *app) produce(ctx context.Context, in io.Reader, name string, backfill bool) (produced, error) {
	f, err := a.finder(ctx)
	if err != nil {
		return produced{}, err
	}
	defer f.close()
	w, err := a.writer(ctx, f.find)
	if err != nil {
		return produced{}, err
	}
	defer w.Close()
	p := producing{writer: w, name: name, backfill: backfill, sessions: map[string]bool{}}
	err = p.lines(ctx, in)
	// What was good before a bad line is kept.
	if flushErr := p.flush(ctx); flushErr != nil {
		err = flushErr
	}
	return produced{Events: p.events, Sessions: len(p.sessions)}, eventCode(err)
}

// producing gathers consecutive lines of one session and appends them together.
type producing struct {
	writer   *producer.Writer
	name     string
	backfill bool

	waiting  []schemas.Stored
	at       []int // the lines of waiting
	events   int
	sessions map[string]bool
}

func (p *producing) lines(ctx context.Context, in io.Reader) error {
	return eachLine(in, p.name, func(n int, line []byte) error {
		e, err := schemas.ParseJSON(line)
		if err == nil && e.SessionID == "" {
			err = &event.Error{Code: event.BadEnvelope, Field: "session_id", Message: "is missing"}
		}
		if err != nil {
			return err
		}
		if len(p.waiting) > 0 && (p.waiting[0].SessionID != e.SessionID || len(p.waiting) == appendAtOnce) {
			if err := p.flush(ctx); err != nil {
				return err
			}
		}
		p.waiting, p.at = append(p.waiting, e), append(p.at, n)
		return nil
	})
}

// flush appends what waits. Where one line is refused, those before it are appended alone.
func (p *producing) flush(ctx context.Context) error {
	if len(p.waiting) == 0 {
		return nil
	}
	batch, at := p.waiting, p.at
	p.waiting, p.at = nil, nil
	err := p.append(ctx, batch)
	if err == nil {
		return nil
	}
	refused := (*producer.RefusedError)(nil)
	if !errors.As(err, &refused) {
		return &lineError{p.name, at[0], err}
	}
	if refused.Index > 0 {
		if err := p.append(ctx, batch[:refused.Index]); err != nil {
			return err
		}
	}
	return &lineError{p.name, at[refused.Index], refused.Err}
}

func (p *producing) append(ctx context.Context, batch []schemas.Stored) error {
	session, write := batch[0].SessionID, p.writer.AppendStored
	if p.backfill {
		write = p.writer.Backfill
	}
	if _, err := write(ctx, session, batch...); err != nil {
		return err
	}
	p.events += len(batch)
	p.sessions[session] = true
	return nil
}

// lineError is what is wrong with a line of a file.
type lineError struct {
	file string
	line int
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("%s line %d: %s", e.file, e.line, e.err) }

func (e *lineError) Unwrap() error { return e.err }

// eachLine hands on the lines that are not blank, with their numbers. An error is the line's, unless it is another's already.
func eachLine(in io.Reader, name string, do func(n int, line []byte) error) error {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(make([]byte, 64<<10), maxLine)
	n := 0
	for scanner.Scan() {
		n++
		if len(bytes.TrimSpace(scanner.Bytes())) == 0 {
			continue
		}
		if err := do(n, scanner.Bytes()); err != nil {
			if errors.As(err, new(*lineError)) {
				return err
			}
			return &lineError{name, n, err}
		}
	}
	err := scanner.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("the line is longer than %d bytes", maxLine)
	}
	if err != nil {
		return &lineError{name, n + 1, err}
	}
	return nil
}
