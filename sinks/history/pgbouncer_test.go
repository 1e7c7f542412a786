package history_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tooltape/tooltape/sinks/history"
	"github.com/tooltape/tooltape/sinks/postgres"
	"github.com/tooltape/tooltape/sinks/sinktest"
)

// Each statement may run in another session of the server, which other clients use in between.
func TestSinkThroughAPoolerInTransactionMode(t *testing.T) {
	pool := sinktest.Connect(t, pgbouncer(t, sinktest.EmptyDatabase(t)))
	if err := postgres.Migrate(t.Context(), pool, history.View()); err != nil {
		t.Fatal(err)
	}
	runSuite(t, pool)
}

// pgbouncer is the address of a pooler before a database. It has fewer connections than its clients.
func pgbouncer(t *testing.T, address string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/pgbouncer")
	}
	if err != nil && os.Getenv("CI") == "" {
		t.Skip("pgbouncer is not installed")
	}
	if err != nil {
		t.Fatal("CI needs pgbouncer: apt-get install pgbouncer")
	}
	server, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	settings := fmt.Sprintf(`[databases]
pooled = host=%s port=%d dbname=%s user=%s password='%s'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
`, server.Host, server.Port, server.Database, server.User, strings.ReplaceAll(server.Password, "'", "''"), port)
	if os.Getuid() == 0 {
		settings += "user = nobody\n" // it refuses to run as root
	}
	file := filepath.Join(t.TempDir(), "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	startPooler(t, exec.Command(program, file))
	return fmt.Sprintf("postgres://anybody@127.0.0.1:%d/pooled?sslmode=disable", port)
}

// startPooler runs it until the test ends, and waits until it says that it is up.
func startPooler(t *testing.T, pooler *exec.Cmd) {
	t.Helper()
	output, err := pooler.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := pooler.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	drained := make(chan struct{})
	t.Cleanup(func() {
		_ = pooler.Process.Kill()
		<-drained
		_ = pooler.Wait()
	})
	var said []string
	for lines.Scan() {
		said = append(said, lines.Text())
		if strings.Contains(lines.Text(), "process up") {
			go drain(lines, drained)
			return
		}
	}
	close(drained)
	t.Fatalf("pgbouncer ended: %s", strings.Join(said, "\n"))
}

// drain reads on, so that the writer never waits.
func drain(lines *bufio.Scanner, drained chan<- struct{}) {
	for lines.Scan() {
	}
	close(drained)
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}
