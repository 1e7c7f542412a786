//go:build unix

package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// oldestPostgres is the first version whose columns know COMPRESSION, which the migrations use.
const oldestPostgres = 14

// downloads are the versions that embedded-postgres offers, by their first number. The largest is what a new directory
// gets where none is installed; the others serve directories that an installed one made.
var downloads = map[int]embeddedpostgres.PostgresVersion{
	14: embeddedpostgres.V14, 15: embeddedpostgres.V15, 16: embeddedpostgres.V16, 17: embeddedpostgres.V17,
	18: embeddedpostgres.V18,
}

const newestDownload = 18

// programs are one version of PostgreSQL's server programs.
type programs struct {
	bin   string
	major int
}

// findPrograms finds an installed version that the account can run, or downloads one. major is the version that made the
// data, which no other can read; 0 takes the newest.
func findPrograms(ctx context.Context, major int, as account, log io.Writer) (programs, error) {
	installed := slices.DeleteFunc(installedPrograms(ctx), func(p programs) bool {
		return p.major < oldestPostgres || (major != 0 && p.major != major) || !as.canEnter(p.bin)
	})
	if len(installed) > 0 {
		return slices.MaxFunc(installed, func(a, b programs) int { return cmp.Compare(a.major, b.major) }), nil
	}
	if major == 0 {
		major = newestDownload
	}
	version, ok := downloads[major]
	if !ok {
		return programs{}, fmt.Errorf("the data was made by PostgreSQL %d, which is neither installed nor to be downloaded: "+
			"install it, or choose another directory", major)
	}
	return download(ctx, major, version, as, log)
}

// installedPrograms looks on the PATH, where pg_config says, and where Debian, Red Hat and Homebrew put them.
func installedPrograms(ctx context.Context) []programs {
	var bins []string
	if initdb, err := exec.LookPath("initdb"); err == nil {
		if initdb, err = filepath.EvalSymlinks(initdb); err == nil {
			bins = append(bins, filepath.Dir(initdb))
		}
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		bins = append(bins, string(regexp.MustCompile(`\s+$`).ReplaceAll(out, nil)))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin",
	} {
		found, _ := filepath.Glob(pattern)
		bins = append(bins, found...)
	}
	slices.Sort(bins)
	var all []programs
	for _, bin := range slices.Compact(bins) {
		if major, ok := versionOf(ctx, bin); ok {
			all = append(all, programs{bin: bin, major: major})
		}
	}
	return all
}

var versionNumber = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// versionOf is the first number of the version in bin, if both programs that we need are there.
func versionOf(ctx context.Context, bin string) (int, bool) {
	if _, err := os.Stat(filepath.Join(bin, "initdb")); err != nil {
		return 0, false
	}
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--version").Output()
	found := versionNumber.FindSubmatch(out)
	if err != nil || found == nil {
		return 0, false
	}
	var major int
	_, err = fmt.Sscan(string(found[1]), &major)
	return major, err == nil
}

// download fetches a version once, into a cache that the account can run it from.
func download(ctx context.Context, major int, version embeddedpostgres.PostgresVersion, as account, log io.Writer) (programs, error) {
	cache, err := cacheDir(as)
	if err != nil {
		return programs{}, err
	}
	home := filepath.Join(cache, "postgres-"+string(version))
	found := programs{bin: filepath.Join(home, "bin"), major: major}
	lock, err := waitForLock(ctx, filepath.Join(cache, "lock"))
	if err != nil {
		return programs{}, err
	}
	defer func() { _ = lock.Close() }()
	if _, err := os.Stat(home); err == nil {
		return found, nil
	}
	fmt.Fprintf(log, "PostgreSQL is not installed; downloading version %s, once, to %s\n", version, home)
	unpacked, err := fetch(ctx, cache, version)
	if err != nil {
		return programs{}, fmt.Errorf("PostgreSQL is neither installed nor to be downloaded (%w): install it (on Debian: "+
			"apt-get install postgresql), or give the URL of a database", err)
	}
	return found, os.Rename(unpacked, home)
}

// waitForLock waits while another process downloads.
func waitForLock(ctx context.Context, name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		taken, err := tryLock(f)
		if taken {
			return f, nil
		}
		if err == nil {
			select {
			case <-tick.C:
				continue
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		return nil, errors.Join(err, f.Close())
	}
}

// fetch downloads and unpacks a version into a directory below cache, and returns that; the caller holds cache's lock.
func fetch(ctx context.Context, cache string, version embeddedpostgres.PostgresVersion) (string, error) {
	work := filepath.Join(cache, "download")
	if err := os.RemoveAll(work); err != nil { // of one that was interrupted
		return "", err
	}
	home, unpacked := filepath.Join(work, "postgres"), filepath.Join(work, "unpacked")
	port, err := tryPort(0) // it insists on a free one, although it will not come to listen
	if err != nil {
		return "", err
	}
	// embedded-postgres cannot only download: it goes on to make a database, as whoever it runs as, root or not. So it is
	// given a place for the data that cannot be. It makes its runtime directory once everything is unpacked: what counts
	// is that this is there.
	server := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(version).Logger(io.Discard).Port(uint32(port)).
		CachePath(filepath.Join(work, "archive")).BinariesPath(home).RuntimePath(unpacked).
		DataPath(filepath.Join(os.DevNull, "nowhere")))
	result := make(chan error, 1)
	go func() { result <- server.Start() }() // it knows no context
	select {
	case err = <-result:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if _, statErr := os.Stat(unpacked); statErr != nil {
		return "", err
	}
	return home, nil
}

// cacheDir is the user's cache directory; root's is closed to the account, so root uses the machine's.
func cacheDir(as account) (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		user = os.TempDir()
	}
	for _, dir := range []string{filepath.Join(user, "tooltape"), "/var/cache/tooltape"} {
		if err = os.MkdirAll(dir, 0o755); err == nil && as.canEnter(dir) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("there is no cache directory that the user %s can enter: install PostgreSQL, or run as an ordinary user", as.name)
}
