//go:build unix

package local

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	database = "tooltape" // and the name of its owner, a superuser
	// A clean stop writes a checkpoint, which a slow disk may draw out.
	stopTimeout  = 20 * time.Second
	pollInterval = 5 * time.Millisecond
)

// fallbackDir holds the data of directories that PostgreSQL's user cannot enter.
var fallbackDir = "/var/lib/tooltape"

// PostgresOptions says where a PostgreSQL keeps its data and where it listens.
type PostgresOptions struct {
	Dir    string    // the data is kept here, for the next start; empty: in a temporary directory that Stop deletes
	Port   int       // 0: the one it had in Dir before if that is free, else any free one
	NoSync bool      // leave fsync off: for tests, whose data need not outlive a loss of power
	Log    io.Writer // told in sentences what is unusual: a download, another directory, a server left behind
}

// Postgres is a server that belongs to this process. Its own log is postgres.log in Dir.
type Postgres struct {
	URL string // of a database in UTF-8 with locale C, as its owner; holds the password
	Dir string // where the data is: not the directory asked for where the server's user cannot enter that

	options PostgresOptions
	as      account
	lock    *os.File
	bin     string
	discard []string // to delete at Stop
	server  *exec.Cmd
	ended   chan struct{} // closed when the server has ended
	stop    sync.Once
	stopErr error
}

// StartPostgres starts a PostgreSQL, installed or else downloaded once. ctx bounds the start; the server runs until Stop,
// and is shut down cleanly when this process ends without it, by a SIGKILL too. Run by root, the server runs as the
// data's owner, postgres or nobody. One Dir serves one process at a time.
func StartPostgres(ctx context.Context, o PostgresOptions) (_ *Postgres, err error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	p := &Postgres{options: o}
	defer func() {
		if err != nil {
			_ = p.Stop()
		}
	}()
	if err := p.claimDir(); err != nil {
		return nil, err
	}
	if err := p.stopOrphan(); err != nil {
		return nil, err
	}
	if err := p.prepare(ctx); err != nil {
		return nil, err
	}
	if err := p.run(ctx); err != nil {
		return nil, err
	}
	if err := p.createDatabase(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// Stop shuts the server down, waits for its end and deletes what was temporary. Calling it again does nothing more.
func (p *Postgres) Stop() error {
	p.stop.Do(func() {
		if p.server != nil {
			p.stopErr = p.end(p.server.Process.Pid, func() bool {
				select {
				case <-p.ended:
					return true
				default:
					return false
				}
			})
		}
		for _, dir := range p.discard {
			p.stopErr = errors.Join(p.stopErr, os.RemoveAll(dir))
		}
		if p.lock != nil {
			p.stopErr = errors.Join(p.stopErr, p.lock.Close())
		}
	})
	return p.stopErr
}

// Done is closed when the server has ended, whether by Stop or by itself.
func (p *Postgres) Done() <-chan struct{} { return p.ended }

func (p *Postgres) data() string { return filepath.Join(p.Dir, "postgres") }

func (p *Postgres) logf(format string, args ...any) {
	fmt.Fprintf(p.options.Log, format+"\n", args...)
}

// claimDir settles where the data is and who runs the server, and locks the directory.
func (p *Postgres) claimDir() (err error) {
	if p.options.Dir == "" {
		if p.Dir, err = temporary("postgres"); err != nil {
			return fmt.Errorf("cannot make a temporary directory for PostgreSQL: %w", err)
		}
		p.discard = append(p.discard, p.Dir)
	} else if p.Dir, err = filepath.Abs(p.options.Dir); err != nil {
		return err
	} else if err = os.MkdirAll(p.Dir, 0o755); err != nil {
		return fmt.Errorf("cannot make the directory for PostgreSQL's data: %w", err)
	}
	if p.as, err = serverAccount(p.data()); err != nil {
		return err
	}
	if p.options.Dir == "" && p.as != (account{}) {
		// To pass through, not to look around.
		if err := os.Chmod(p.Dir, 0o711); err != nil {
			return err
		}
	}
	if !p.as.canEnter(p.Dir) {
		if err := p.fallBack(); err != nil {
			return err
		}
	}
	p.lock, err = lock(p.Dir, "postgres")
	return err
}

// fallBack moves to a directory that the server's user can enter, named by the one asked for so that the next start finds
// the same.
func (p *Postgres) fallBack() error {
	if _, err := os.Stat(p.data()); err == nil {
		return fmt.Errorf("PostgreSQL's data in %s belongs to the user %s, who cannot enter that directory any more: "+
			"allow it with chmod o+x on it and all above it", p.data(), p.as.name)
	}
	sum := sha256.Sum256([]byte(p.Dir))
	dir := filepath.Join(fallbackDir, filepath.Base(p.Dir)+"-"+hex.EncodeToString(sum[:4]))
	if err := os.MkdirAll(dir, 0o755); err != nil || !p.as.canEnter(dir) {
		return fmt.Errorf("PostgreSQL runs as the user %s, who can enter neither %s nor %s: choose a directory that everyone "+
			"can enter, or run as an ordinary user", p.as.name, p.Dir, dir)
	}
	if p.options.Dir == "" {
		p.discard = append(p.discard, dir)
	} else {
		p.logf("PostgreSQL runs as the user %s, who cannot enter %s; its data is in %s", p.as.name, p.Dir, dir)
	}
	p.Dir = dir
	var err error
	p.as, err = serverAccount(p.data())
	return err
}

// stopOrphan ends a server that an earlier process left on the data, which the lock says is ours now. Usually it is about
// to end anyway.
func (p *Postgres) stopOrphan() error {
	pidFile := filepath.Join(p.data(), "postmaster.pid")
	text, err := os.ReadFile(pidFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("cannot see whether a PostgreSQL is running in %s: %w", p.data(), err)
	}
	lines := strings.Split(string(text), "\n")
	pid, err := strconv.Atoi(lines[0])
	if err != nil || pid < 2 {
		return nil // torn; PostgreSQL knows what to do
	}
	serves := func() bool { return slices.Contains(arguments(pid), p.data()) }
	if len(lines) < 2 || lines[1] != p.data() || !serves() {
		// Another process has that number today. PostgreSQL would take it for a server and refuse to start.
		if syscall.Kill(pid, 0) == nil {
			return os.Remove(pidFile)
		}
		return nil
	}
	p.logf("stopping the PostgreSQL (pid %d) that an earlier process left in %s", pid, p.Dir)
	return p.end(pid, func() bool { return !serves() })
}

// end shuts a server down: fast, then at once (it recovers at the next start), then by force.
func (p *Postgres) end(pid int, ended func() bool) error {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL} {
		if ended() {
			return nil
		}
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("cannot stop the PostgreSQL with pid %d in %s (%w): stop it by hand", pid, p.Dir, err)
		}
		for deadline := time.Now().Add(stopTimeout); time.Now().Before(deadline); time.Sleep(pollInterval) {
			if ended() {
				return nil
			}
		}
	}
	return fmt.Errorf("the PostgreSQL with pid %d in %s does not end: stop it by hand", pid, p.Dir)
}

// prepare finds the programs and, in a new directory, makes the data.
func (p *Postgres) prepare(ctx context.Context) error {
	major := 0
	version, err := os.ReadFile(filepath.Join(p.data(), "PG_VERSION"))
	if err == nil {
		major, err = strconv.Atoi(strings.TrimSpace(string(version)))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot tell which PostgreSQL made the data in %s: %w", p.data(), err)
	}
	found, err := findPrograms(ctx, major, p.as, p.options.Log)
	if err != nil {
		return err
	}
	p.bin = found.bin
	if major != 0 {
		return nil
	}
	return p.initialize(ctx)
}

// initialize makes the data beside its place and moves it there, so that an interrupted start leaves nothing half made.
func (p *Postgres) initialize(ctx context.Context) error {
	if err := p.makePassword(); err != nil {
		return err
	}
	unfinished := p.data() + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		return err
	}
	if err := p.as.own(unfinished); err != nil {
		return err
	}
	args := []string{
		"--pgdata", unfinished, "--username", database, "--pwfile", p.passwordFile(), "--auth", "scram-sha-256",
		"--encoding", "UTF8", "--locale", "C", "--no-instructions",
	}
	if p.options.NoSync {
		args = append(args, "--no-sync")
	}
	var out bytes.Buffer
	cmd := p.command("initdb", syscall.SIGKILL, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := start(cmd); err != nil {
		return fmt.Errorf("cannot run initdb: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("initdb failed in %s (%w): %s", p.Dir, err, strings.TrimSpace(out.String()))
	}
	return os.Rename(unfinished, p.data())
}

func (p *Postgres) passwordFile() string { return filepath.Join(p.Dir, "postgres.password") }

// makePassword writes a new password where initdb, and only it and we, can read it.
func (p *Postgres) makePassword() error {
	_ = os.Remove(p.passwordFile())
	if err := os.WriteFile(p.passwordFile(), []byte(rand.Text()+"\n"), 0o600); err != nil {
		return fmt.Errorf("cannot keep a password for PostgreSQL: %w", err)
	}
	return p.as.own(p.passwordFile())
}

// run starts the server, on another port when the one found free was taken meanwhile.
func (p *Postgres) run(ctx context.Context) (err error) {
	if p.options.Port != 0 {
		if _, err := tryPort(p.options.Port); err != nil {
			return portTaken("PostgreSQL", p.options.Port, err)
		}
		return p.serve(ctx, p.options.Port)
	}
	wanted := lastPort(p.Dir, "postgres")
	for range 5 {
		port, portErr := tryPort(wanted)
		if portErr != nil {
			if port, portErr = tryPort(0); portErr != nil {
				return fmt.Errorf("PostgreSQL finds no free port: %w", portErr)
			}
		}
		if err = p.serve(ctx, port); err == nil || ctx.Err() != nil {
			return err
		}
		wanted = 0
	}
	return err
}

// serve starts the server on a port and waits until it takes connections.
func (p *Postgres) serve(ctx context.Context, port int) error {
	password, err := os.ReadFile(p.passwordFile())
	if err != nil {
		return fmt.Errorf("the password of the data in %s is gone (%w): delete that directory to begin anew", p.data(), err)
	}
	logName := filepath.Join(p.Dir, "postgres.log")
	log, err := os.Create(logName)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	if err := p.as.own(logName); err != nil {
		return err
	}
	// Fast shutdown is SIGINT: clean, and waiting for no client.
	p.server = p.command("postgres", syscall.SIGINT, p.settings(port)...)
	p.server.Stdout, p.server.Stderr = log, log
	if err := start(p.server); err != nil {
		p.server = nil
		return fmt.Errorf("cannot run postgres: %w", err)
	}
	p.ended = make(chan struct{})
	go func() {
		_ = p.server.Wait()
		close(p.ended)
	}()
	if err := p.awaitReady(ctx, logName); err != nil {
		return err
	}
	p.URL = (&url.URL{
		Scheme: "postgres", User: url.UserPassword(database, strings.TrimSpace(string(password))),
		Host: "127.0.0.1:" + strconv.Itoa(port), Path: database, RawQuery: "sslmode=disable",
	}).String()
	return rememberPort(p.Dir, "postgres", port)
}

// settings are on the command line, not in the data, so that they change with the program.
func (p *Postgres) settings(port int) []string {
	args := []string{
		"-D", p.data(), "-c", "port=" + strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=", "-c", "max_connections=200", "-c", "timezone=UTC", "-c", "log_timezone=UTC",
	}
	if p.options.NoSync {
		args = append(args, "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off")
	}
	return args
}

// awaitReady waits until the server's own file says that it is ready; a connection that succeeds could be to another.
func (p *Postgres) awaitReady(ctx context.Context, logName string) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL in %s was not ready in time: %w; its log is %s", p.Dir, context.Cause(ctx), logName)
		case <-p.ended:
			log, _ := os.ReadFile(logName)
			return fmt.Errorf("PostgreSQL in %s ended at its start, saying: %s", p.Dir, lastLines(log, 5))
		case <-tick.C:
		}
		text, _ := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
		lines := strings.Split(string(text), "\n")
		const status = 7
		if lines[0] == strconv.Itoa(p.server.Process.Pid) && len(lines) > status && strings.TrimSpace(lines[status]) == "ready" {
			return nil
		}
	}
}

func lastLines(text []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// createDatabase makes the database where an earlier start did not come to it.
func (p *Postgres) createDatabase(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.URL)
	var missing *pgconn.PgError
	switch {
	case err == nil:
		return conn.Close(ctx)
	case !errors.As(err, &missing) || missing.Code != "3D000": // invalid_catalog_name
		return fmt.Errorf("cannot connect to the PostgreSQL in %s: %w", p.Dir, err)
	}
	config, err := pgx.ParseConfig(p.URL)
	if err != nil {
		return err
	}
	config.Database = "postgres"
	if conn, err = pgx.ConnectConfig(ctx, config); err != nil {
		return fmt.Errorf("cannot connect to the PostgreSQL in %s: %w", p.Dir, err)
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+database)
	return errors.Join(err, conn.Close(ctx))
}

// command is one of PostgreSQL's programs, as the server's user, with an environment that changes nothing and tells it
// none of ours.
func (p *Postgres) command(program string, atDeath syscall.Signal, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, program), args...)
	cmd.Dir = p.Dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.Dir, "LC_ALL=C", "TZ=UTC"}
	p.as.attach(cmd, atDeath)
	return cmd
}

// start starts cmd from a goroutine of its own. The kernel counts the thread that made a child as its parent, and a
// caller's goroutine may be locked to a thread that ends.
func start(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() { started <- cmd.Start() }()
	return <-started
}
