//go:build !unix

package local

import (
	"context"
	"errors"
	"io"
	"os"
)

// PostgresOptions is described for Unix.
type PostgresOptions struct {
	Dir    string
	Port   int
	NoSync bool
	Log    io.Writer
}

// Postgres is described for Unix.
type Postgres struct{ URL, Dir string }

// StartPostgres runs on Linux, macOS and the BSDs only.
func StartPostgres(context.Context, PostgresOptions) (*Postgres, error) {
	return nil, errors.New("tooltape starts no PostgreSQL on this system: give it the URL of a database")
}

// Stop has nothing to do.
func (p *Postgres) Stop() error { return nil }

// Done is never closed.
func (p *Postgres) Done() <-chan struct{} { return nil }

func tryLock(*os.File) (bool, error) { return true, nil }
