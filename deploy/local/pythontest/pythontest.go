// Package pythontest gives a test a Python with packages of its own, for holding this project against readers that others wrote. It
// ships in no binary.
package pythontest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// With is the path of a Python that has these packages (pip's words, such as fastavro==1.13.1). It is made once, under the user's
// cache, in a folder of that name. Where it cannot be had the test is skipped; in CI (the variable CI is set) it fails.
func With(t testing.TB, name string, packages ...string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(cache, "tooltape-test", name)
	python := filepath.Join(home, "bin", "python")
	if _, err := os.Stat(python); err == nil {
		return python
	}
	if err := build(t, home, packages); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return python
}

// build makes the environment aside and renames it, so that one that was broken off is never taken for whole.
func build(t testing.TB, home string, packages []string) error {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(home), 0o755); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(home), "new-") //nolint:usetesting // what is renamed must lie on the same file system
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = os.RemoveAll(fresh) })
	commands := [][]string{{"python3", "-m", "venv", fresh}}
	if len(packages) > 0 {
		commands = append(commands, append([]string{filepath.Join(fresh, "bin", "python"), "-m", "pip", "install", "--quiet"}, packages...))
	}
	for _, command := range commands {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("no Python with %s is to be had: %s: %w\n%s", strings.Join(packages, ", "), command[0], err, out)
		}
	}
	if err := os.Rename(fresh, home); err != nil && !os.IsExist(err) {
		return err
	}
	return nil
}
