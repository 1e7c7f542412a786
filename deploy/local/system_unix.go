//go:build unix

package local

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// tryLock takes f's lock unless another process, or another open file of this one, holds it.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// account is a user that PostgreSQL runs as. The zero value is whoever runs this process.
type account struct {
	name     string
	uid, gid uint32
}

// serverAccount is the account for a server on data. Only root needs another than its own, since PostgreSQL refuses to
// run as root: whoever owns the data, else postgres, else nobody.
func serverAccount(data string) (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	if info, err := os.Stat(data); err == nil {
		if owner := info.Sys().(*syscall.Stat_t); owner.Uid != 0 {
			return account{name: accountName(owner.Uid), uid: owner.Uid, gid: owner.Gid}, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return account{}, err
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return account{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
		}
	}
	return account{}, errors.New("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody: " +
		"run tooltape as an ordinary user, or give it the URL of a database")
}

func accountName(uid uint32) string {
	if u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10)); err == nil {
		return u.Username
	}
	return strconv.FormatUint(uint64(uid), 10)
}

// canEnter asks the kernel whether the account can enter a directory, rather than reading the modes of all above it.
func (a account) canEnter(dir string) bool {
	program, err := exec.LookPath("true")
	if err != nil {
		return false
	}
	cmd := exec.Command(program)
	cmd.Dir = dir // entered after the change of user
	a.attach(cmd, syscall.SIGKILL)
	return cmd.Run() == nil
}

// own gives a file to the account.
func (a account) own(path string) error {
	if a == (account{}) {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// attach makes cmd run as the account, out of reach of the terminal's Ctrl-C (its end is ours to decide), and makes the
// kernel send it a signal when this process dies.
func (a account) attach(cmd *exec.Cmd, atDeath syscall.Signal) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if a != (account{}) {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	setDeathSignal(cmd.SysProcAttr, atDeath)
}
