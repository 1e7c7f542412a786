//go:build unix && !linux

package local

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// setDeathSignal does nothing: only Linux tells a child of its parent's death. Elsewhere a server that was left behind
// runs until the next start on its directory, which stops it first.
func setDeathSignal(*syscall.SysProcAttr, syscall.Signal) {}

// arguments are the words of a running process's command line, as far as ps shows where one ends.
func arguments(pid int) []string {
	line, err := exec.Command("ps", "-ww", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return nil
	}
	text := strings.TrimSpace(string(line))
	program, rest, _ := strings.Cut(text, " -D ")
	data, _, _ := strings.Cut(rest, " -c ")
	return []string{program, "-D", data}
}
