package local

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

func setDeathSignal(attr *syscall.SysProcAttr, signal syscall.Signal) { attr.Pdeathsig = signal }

// arguments are the words of a running process's command line; none for one that has ended and waits for its parent.
func arguments(pid int) []string {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
}
