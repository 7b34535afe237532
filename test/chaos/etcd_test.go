package chaos

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/store/storetest/etcdtest"
)

// envEtcd names the folder of an etcd, and has this program be that.
const envEtcd = "PORIN_CHAOS_ETCD"

// etcdMain is the etcd: until it is killed, or its input ends, which it does however its parent ends.
func etcdMain(dir string) error {
	etcd, err := embed.StartEtcd(etcdtest.Config(dir))
	if err != nil {
		return err
	}
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		return err
	}
	fmt.Println("serving")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// etcd is one in a process of its own, so that it can be stopped in the middle of anything.
type etcd struct {
	dir   string
	cmd   *exec.Cmd
	input io.Closer
}

func startEtcd(t *testing.T) *etcd {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	e := &etcd{dir: dir}
	t.Cleanup(func() {
		e.kill()
		_ = os.RemoveAll(dir)
	})
	if err := e.start(); err != nil {
		t.Fatal(err)
	}
	return e
}

// start returns when it serves.
func (e *etcd) start() error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stderr = append(os.Environ(), envEtcd+"="+e.dir), os.Stderr
	input, err1 := cmd.StdinPipe()
	output, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	e.cmd, e.input = cmd, input
	if line, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		return fmt.Errorf("etcd does not begin to serve: %q, %w", line, err)
	}
	return nil
}

func (e *etcd) kill() {
	_ = e.cmd.Process.Kill()
	_ = e.cmd.Wait()
	_ = e.input.Close()
}

// How long etcd is there, and how long it is not.
const shortestPeace, longestPeace, shortestOutage, longestOutage = 500 * time.Millisecond, 4 * time.Second, 50 * time.Millisecond, 5 * time.Second

// disturb kills etcd and starts it again, or stops it for a while with all its connections, until it is told to end. An etcd
// runs at the end.
func (e *etcd) disturb(w *world, random *rand.Rand, stop <-chan struct{}) {
	for sleep(between(random, shortestPeace, longestPeace), stop) {
		w.counts.outages.Add(1)
		outage := between(random, shortestOutage, longestOutage)
		if random.IntN(2) == 0 {
			w.counts.hangs.Add(1)
			_ = e.cmd.Process.Signal(unix.SIGSTOP)
			sleep(outage, stop)
			_ = e.cmd.Process.Signal(unix.SIGCONT)
			continue
		}
		e.kill()
		sleep(outage, stop)
		if err := e.start(); err != nil {
			w.wrongs.add("etcd does not start", err.Error())
			return
		}
	}
}

func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}

// sleep is false when it was ended.
func sleep(d time.Duration, stop <-chan struct{}) bool {
	select {
	case <-stop:
		return false
	case <-time.After(d):
		return true
	}
}
