package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// drain is how long a porin-proxy that is replaced may take.
const drain = time.Second

// proxies are the processes of porin-proxy on a node: one, and while it is replaced two.
type proxies struct {
	host  *host
	file  *os.File // for their logs
	state string   // folder of its own

	mu  sync.Mutex // guards the field below
	all []*proxy   // that run, or ran
}

// proxy is one process.
type proxy struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func (h *host) proxySocket() string { return filepath.Join(h.node.Dir, "proxy.sock") }

// startProxies gives the node a porin-proxy.
func (h *host) startProxies(t *testing.T) {
	t.Helper()
	path := filepath.Join(h.node.Dir, "proxy.log")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	h.proxies = &proxies{host: h, file: file, state: filepath.Join(h.node.Dir, "proxy")}
	t.Cleanup(func() {
		for _, p := range h.proxies.running() {
			p.kill()
		}
		_ = file.Close()
		if text, _ := os.ReadFile(path); t.Failed() {
			t.Logf("log of porin-proxy on %s ends with:\n%s", h.node.Name, text[max(0, len(text)-20_000):])
		}
	})
	if _, err := h.proxies.start(); err != nil {
		t.Fatal(err)
	}
}

// start does not wait.
func (x *proxies) start() (*proxy, error) {
	n := x.host.node
	p := &proxy{done: make(chan struct{}), cmd: exec.Command(filepath.Join(x.host.bin, "porin-proxy"),
		"--proxy-socket="+x.host.proxySocket(), "--state-dir="+x.state, "--bpf-root="+n.BPFRoot, "--drain-timeout="+drain.String(), "--log-level=warn")}
	p.cmd.Stdout, p.cmd.Stderr = x.file, x.file
	if err := n.Do(p.cmd.Start); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all = append(x.all, p)
	return p, nil
}

func (x *proxies) running() (all []*proxy) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range x.all {
		select {
		case <-p.done:
		default:
			all = append(all, p)
		}
	}
	x.all = all
	return all
}

func (p *proxy) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// disturb kills porin-proxy, stops it, or has another one take its place, which may be killed meanwhile, until it is
// told to end. One runs at the end, and the agent is connected to it.
func (x *proxies) disturb(random *rand.Rand, stop <-chan struct{}) {
	w := x.host.world
	for sleep(between(random, shortestLife, longestLife), stop) {
		if err := x.replace(random, stop); err != nil {
			w.wrongs.add("porin-proxy does not start", err.Error())
			return
		}
	}
	if err := x.settle(); err != nil {
		w.wrongs.add("porin-proxy", err.Error())
	}
}

func (x *proxies) replace(random *rand.Rand, stop <-chan struct{}) error {
	before := x.running()
	switch random.IntN(4) {
	case 0: // the next one takes the place of the first, which ends by itself
		x.host.counts.proxiesReplaced.Add(1)
	case 1: // the same, and both are killed at some moment
		next, err := x.start()
		if err != nil {
			return err
		}
		sleep(between(random, 0, 4*drain/10), stop)
		for _, p := range append(before, next) {
			p.kill()
			x.host.counts.proxiesKilled.Add(1)
		}
	case 2:
		for _, p := range before {
			_ = p.cmd.Process.Signal(unix.SIGTERM)
		}
	default:
		for _, p := range before {
			p.kill()
			x.host.counts.proxiesKilled.Add(1)
		}
	}
	_, err := x.start()
	return err
}

// settle waits until one proxy is left, and the agent has that. It starts a proxy when none runs, as a service manager
// does: a proxy that begins while another is stopping gives up.
func (x *proxies) settle() error {
	return testutil.Poll(patience, func() error {
		all := x.running()
		if len(all) == 0 {
			_, err := x.start()
			return errors.Join(fmt.Errorf("%s has none", x.host.node.Name), err)
		}
		var status v1.Status
		if err := x.host.agent.Get("/v1/status", &status); err != nil {
			return err
		}
		if p := status.Proxy; len(all) > 1 || !p.Connected || p.PID != all[0].cmd.Process.Pid {
			return fmt.Errorf("%s has %d processes, and the agent says %+v", x.host.node.Name, len(all), p)
		}
		return nil
	})
}

// shell runs a script in the namespace of the thread.
func shell(script string) ([]byte, error) {
	text, err := exec.Command("sh", "-c", script).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", script, err, text)
	}
	return text, err
}
