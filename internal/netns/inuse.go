package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// InUse returns the cookies of the network namespaces that a thread is in, as far as the process file system shows it:
// all of the node's when the agent is in the node's PID namespace, and else only its own container's. Its own namespace
// and its own threads do not count. It takes CAP_SYS_PTRACE: without it a thread of another user cannot be looked into,
// and is not even listed where /proc is mounted with hidepid (proc(5)). Then InUse fails.
func InUse() (cookies map[uint64]bool, err error) {
	if err := checkPtrace(); err != nil {
		return nil, err
	}
	own, err := inode("/proc/self/ns/net")
	if err != nil {
		return nil, err
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	seen := map[uint64]bool{own: true}
	cookies = map[uint64]bool{}
	for _, process := range processes {
		pid, err := strconv.Atoi(process.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		tasks := filepath.Join("/proc", process.Name(), "task")
		threads, err := os.ReadDir(tasks)
		if err != nil && !hasEnded(err) {
			return nil, err
		}
		for _, thread := range threads { // the first one may have ended before the others, or be somewhere else
			if err := look(filepath.Join(tasks, thread.Name(), "ns/net"), seen, cookies); err != nil {
				return nil, fmt.Errorf("look into thread %s of process %d: %w", thread.Name(), pid, err)
			}
		}
	}
	return cookies, nil
}

// checkPtrace fails unless the calling thread has CAP_SYS_PTRACE. All threads of the agent have the same rights.
func checkPtrace() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var rights [2]unix.CapUserData
	if err := unix.Capget(&header, &rights[0]); err != nil {
		return fmt.Errorf("read the rights of the agent: %w", err)
	}
	if rights[0].Effective&(1<<unix.CAP_SYS_PTRACE) == 0 {
		return fmt.Errorf("look into other processes: %w: that takes CAP_SYS_PTRACE", fs.ErrPermission)
	}
	return nil
}

// look adds the namespace of a thread, unless it was seen or the thread has ended.
func look(path string, seen, cookies map[uint64]bool) error {
	number, err := inode(path)
	if hasEnded(err) || err == nil && seen[number] {
		return nil
	}
	if err != nil { // what cannot be seen is no evidence
		return err
	}
	cookie, err := cookieOf(path)
	if hasEnded(err) {
		return nil
	}
	if err != nil {
		return err
	}
	seen[number], cookies[cookie] = true, true
	return nil
}

// hasEnded reports whether the error is of a process that is not there any more.
func hasEnded(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

func inode(path string) (uint64, error) {
	var stat unix.Stat_t
	err := unix.Stat(path, &stat)
	return stat.Ino, err
}

func cookieOf(path string) (uint64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return Cookie(int(file.Fd()))
}
