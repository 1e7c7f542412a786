//go:build unix

package local

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

func startPostgres(t *testing.T, o PostgresOptions) *Postgres {
	t.Helper()
	p, err := StartPostgres(t.Context(), o)
	must(t, err)
	t.Cleanup(func() { must(t, p.Stop()) })
	return p
}

// query runs SQL and returns its first value as text.
func query(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer func() { must(t, conn.Close(t.Context())) }()
	rows, err := conn.Query(t.Context(), sql)
	must(t, err)
	values, err := pgx.CollectRows(rows, pgx.RowTo[any])
	must(t, err)
	if len(values) == 0 {
		return ""
	}
	return fmt.Sprint(values[0])
}

// serverPid is the pid that the data names, 0 for none.
func serverPid(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "postgres", "postmaster.pid"))
	if os.IsNotExist(err) {
		return 0
	}
	must(t, err)
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	must(t, err)
	return pid
}

func TestPostgresKeepsItsData(t *testing.T) {
	dir := openDir(t)
	first := startPostgres(t, PostgresOptions{Dir: dir})
	query(t, first.URL, "CREATE TABLE kept AS SELECT 42 AS answer")
	for setting, want := range map[string]string{
		"server_encoding": "UTF8", "lc_collate": "C", "fsync": "on", "listen_addresses": "127.0.0.1", "unix_socket_directories": "",
	} {
		if got := query(t, first.URL, "SELECT current_setting('"+setting+"')"); setting != "lc_collate" && got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	if got := query(t, first.URL, "SELECT datcollate FROM pg_database WHERE datname = current_database()"); got != "C" {
		t.Errorf("the database has the locale %q", got)
	}
	must(t, first.Stop())
	must(t, first.Stop())
	<-first.Done()

	second := startPostgres(t, PostgresOptions{Dir: dir, NoSync: true})
	if second.URL != first.URL {
		t.Errorf("the URL changed from %s to %s", first.URL, second.URL)
	}
	if got := query(t, second.URL, "SELECT answer FROM kept"); got != "42" {
		t.Errorf("read %s", got)
	}
	if got := query(t, second.URL, "SHOW fsync"); got != "off" {
		t.Errorf("fsync is %s with NoSync", got)
	}
}

func TestPostgresIsTemporaryWithoutADirectory(t *testing.T) {
	p := startPostgres(t, PostgresOptions{NoSync: true})
	must(t, p.Stop())
	if _, err := os.Stat(p.Dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there after Stop: %v", p.Dir, err)
	}
}

func TestPostgresPasswordIsPrivate(t *testing.T) {
	dir := openDir(t)
	p := startPostgres(t, PostgresOptions{Dir: dir, NoSync: true})
	info, err := os.Stat(p.passwordFile())
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the password file has mode %o", info.Mode().Perm())
	}
	config, err := pgx.ParseConfig(p.URL)
	must(t, err)
	config.Password = "guess"
	if conn, err := pgx.ConnectConfig(t.Context(), config); err == nil {
		must(t, conn.Close(t.Context()))
		t.Error("a wrong password was good enough")
	}
}

func TestPostgresEndsWithItsParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a child of its parent's death")
	}
	dir := openDir(t)
	parent, s := startHelper(t, "postgres", dir)
	if s.Error != "" {
		t.Fatal(s.Error)
	}
	query(t, s.Address, "CREATE TABLE kept AS SELECT 42 AS answer")
	kill(t, parent)
	eventually(t, "PostgreSQL ends after its parent was killed", func() bool { return serverPid(t, dir) == 0 })
	log, err := os.ReadFile(filepath.Join(dir, "postgres.log"))
	must(t, err)
	if !strings.Contains(string(log), "database system is shut down") {
		t.Errorf("it did not shut down cleanly:\n%s", log)
	}
	again := startPostgres(t, PostgresOptions{Dir: dir, NoSync: true})
	if got := query(t, again.URL, "SELECT answer FROM kept"); got != "42" {
		t.Errorf("read %s", got)
	}
}

// A start right after a kill meets the old server still shutting down.
func TestPostgresStartsRightAfterAKill(t *testing.T) {
	dir := openDir(t)
	for range 3 {
		parent, s := startHelper(t, "postgres", dir)
		if s.Error != "" {
			t.Fatal(s.Error)
		}
		kill(t, parent)
	}
	startPostgres(t, PostgresOptions{Dir: dir, NoSync: true})
}

// Both were killed: tooltape, and whatever should have stopped the server.
func TestPostgresStopsAnOrphan(t *testing.T) {
	dir := openDir(t)
	p := startPostgres(t, PostgresOptions{Dir: dir, NoSync: true})
	must(t, p.Stop())
	orphan := p.command("postgres", 0, p.settings(occupiedOnce(t))...)
	must(t, orphan.Start())
	ended := make(chan struct{})
	go func() { _ = orphan.Wait(); close(ended) }()
	t.Cleanup(func() { _ = orphan.Process.Kill(); <-ended })
	eventually(t, "the orphan serves", func() bool { return serverPid(t, dir) == orphan.Process.Pid })

	var said bytes.Buffer
	again := startPostgres(t, PostgresOptions{Dir: dir, NoSync: true, Log: &said})
	<-ended
	if !strings.Contains(said.String(), fmt.Sprintf("pid %d", orphan.Process.Pid)) {
		t.Errorf("it said only %q", said.String())
	}
	query(t, again.URL, "SELECT 1")
}

// occupiedOnce is a port that was free a moment ago.
func occupiedOnce(t *testing.T) int {
	t.Helper()
	port, err := tryPort(0)
	must(t, err)
	return port
}

// The number in postmaster.pid may be another process's today: it must be left alone.
func TestPostgresLeavesOtherProcessesAlone(t *testing.T) {
	dir := openDir(t)
	p := startPostgres(t, PostgresOptions{Dir: dir, NoSync: true})
	must(t, p.Stop())
	bystander := exec.Command("sleep", "600")
	p.as.attach(bystander, syscall.SIGKILL)
	must(t, start(bystander))
	t.Cleanup(func() { _ = bystander.Process.Kill(); _ = bystander.Wait() })
	pidFile := filepath.Join(dir, "postgres", "postmaster.pid")
	must(t, os.WriteFile(pidFile, fmt.Appendf(nil, "%d\n%s\n", bystander.Process.Pid, p.data()), 0o600))
	must(t, p.as.own(pidFile))

	startPostgres(t, PostgresOptions{Dir: dir, NoSync: true})
	must(t, bystander.Process.Signal(syscall.Signal(0)))
}

// A copied directory names the server of the original, which goes on.
func TestPostgresLeavesTheServerOfACopiedDirectoryAlone(t *testing.T) {
	dir := openDir(t)
	p := startPostgres(t, PostgresOptions{Dir: dir, NoSync: true})
	other := openDir(t)
	stopped := startPostgres(t, PostgresOptions{Dir: other, NoSync: true})
	must(t, stopped.Stop())
	text, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
	must(t, err)
	copied := filepath.Join(stopped.data(), "postmaster.pid")
	must(t, os.WriteFile(copied, text, 0o600))
	must(t, stopped.as.own(copied))

	startPostgres(t, PostgresOptions{Dir: other, NoSync: true})
	query(t, p.URL, "SELECT 1")
}

func TestPostgresServesOneProcessADirectory(t *testing.T) {
	dir := openDir(t)
	p := startPostgres(t, PostgresOptions{Dir: dir, NoSync: true})
	_, s := startHelper(t, "postgres", dir)
	if !strings.Contains(s.Error, fmt.Sprintf("in use by another tooltape (pid %d)", os.Getpid())) {
		t.Errorf("the second start said %q", s.Error)
	}
	query(t, p.URL, "SELECT 1")
}

func TestPostgresPortTaken(t *testing.T) {
	taken := occupy(t, 0)
	dir := openDir(t)
	_, err := StartPostgres(t.Context(), PostgresOptions{Dir: dir, Port: taken, NoSync: true})
	refused(t, err, "PostgreSQL cannot have port", "choose another port")

	must(t, rememberPort(dir, "postgres", taken))
	startPostgres(t, PostgresOptions{Dir: dir, NoSync: true})
	if lastPort(dir, "postgres") == taken {
		t.Error("it says it listens on the taken port")
	}
}

func TestPostgresForgetsAnInterruptedStart(t *testing.T) {
	dir := openDir(t)
	must(t, os.MkdirAll(filepath.Join(dir, "postgres.new", "base"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "postgres.password"), []byte("old\n"), 0o600))
	startPostgres(t, PostgresOptions{Dir: dir, NoSync: true})
}

func TestPostgresSaysWhatFailed(t *testing.T) {
	dir := openDir(t)
	p := startPostgres(t, PostgresOptions{Dir: dir, NoSync: true})
	must(t, p.Stop())
	config := filepath.Join(p.data(), "postgresql.conf")
	must(t, os.WriteFile(config, []byte("no_such_setting = on\n"), 0o600))
	_, err := StartPostgres(t.Context(), PostgresOptions{Dir: dir, NoSync: true})
	refused(t, err, dir, "no_such_setting")

	must(t, os.WriteFile(filepath.Join(p.data(), "PG_VERSION"), []byte("9\n"), 0o600))
	_, err = StartPostgres(t.Context(), PostgresOptions{Dir: dir, NoSync: true})
	refused(t, err, "made by PostgreSQL 9", "choose another directory")
}

// Root's server runs as another user, to whom root's own folders are closed.
func TestPostgresFallsBackFromAClosedDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's server runs as another user")
	}
	defer func(dir string) { fallbackDir = dir }(fallbackDir)
	fallbackDir = openDir(t)
	closed := openDir(t)
	must(t, os.Chmod(closed, 0o700))
	dir := filepath.Join(closed, "project", ".tooltape")
	var said bytes.Buffer
	first := startPostgres(t, PostgresOptions{Dir: dir, NoSync: true, Log: &said})
	if filepath.Dir(first.Dir) != fallbackDir || !strings.Contains(said.String(), first.Dir) {
		t.Errorf("the data is in %s; it said %q", first.Dir, said.String())
	}
	must(t, first.Stop())
	second := startPostgres(t, PostgresOptions{Dir: dir, NoSync: true})
	if second.Dir != first.Dir {
		t.Errorf("the data moved from %s to %s", first.Dir, second.Dir)
	}
}

// Data that was made in the open and whose way was closed later must not be taken for missing.
func TestPostgresDoesNotBeginAnewWhereItsDataIsClosed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's server runs as another user")
	}
	dir := openDir(t)
	p := startPostgres(t, PostgresOptions{Dir: dir, NoSync: true})
	must(t, p.Stop())
	must(t, os.Chmod(dir, 0o700))
	_, err := StartPostgres(t.Context(), PostgresOptions{Dir: dir, NoSync: true})
	refused(t, err, p.data(), "chmod o+x")
}

func TestPostgresDownload(t *testing.T) {
	if os.Getenv("TOOLTAPE_TEST_DOWNLOAD") == "" {
		t.Skip("downloads 30 MB; set TOOLTAPE_TEST_DOWNLOAD=1")
	}
	t.Setenv("XDG_CACHE_HOME", filepath.Join(openDir(t), "cache"))
	as, err := serverAccount("")
	must(t, err)
	for range 2 { // the second finds it in the cache
		found, err := download(t.Context(), newestDownload, downloads[newestDownload], as, os.Stderr)
		must(t, err)
		p := &Postgres{options: PostgresOptions{NoSync: true, Log: os.Stderr}, bin: found.bin}
		must(t, p.claimDir())
		must(t, p.initialize(t.Context()))
		must(t, p.run(t.Context()))
		must(t, p.createDatabase(t.Context()))
		query(t, p.URL, "SELECT 1")
		must(t, p.Stop())
	}
}
