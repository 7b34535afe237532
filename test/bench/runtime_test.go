package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"
)

// envRuntime makes this program a container runtime: a process in a node's namespaces that calls plugins through
// libcni and does nothing else. A goroutine of the bench would have to be locked to a thread in the node's network
// namespace, and pay for every call with hand-offs between threads that no runtime knows.
const envRuntime = "PORIN_BENCH_RUNTIME"

// setup is the first thing a runtime reads.
type setup struct {
	Plugins string          `json:"plugins"` // path
	Cache   string          `json:"cache"`   // folder
	List    json.RawMessage `json:"list"`    // network configuration list
}

// command is what it reads then, any number of times. It answers each.
type command struct {
	Op         string      `json:"op"` // add or del
	Parallel   int         `json:"parallel"`
	Containers []container `json:"containers"`
}

type container struct {
	ID    string      `json:"id"`
	NetNS string      `json:"netns"`
	Args  [][2]string `json:"args,omitempty"`
}

// answer is what a command took. Durations are in nanoseconds.
type answer struct {
	Wall  time.Duration `json:"wall"`
	CPU   time.Duration `json:"cpu"`   // of the plugins, and of what they called
	Calls []call        `json:"calls"` // one for each container, in the command's order
}

// call is what one container took. A worker that meets an error ends: calls after it may be zero.
type call struct {
	Took  time.Duration `json:"took"`
	IPs   []netip.Addr  `json:"ips,omitempty"`
	Error string        `json:"error,omitempty"`
}

// runtimeMain is the whole process; it returns the exit code.
func runtimeMain() int {
	if err := serveRuntime(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "runtime:", err)
		return 1
	}
	return 0
}

// serveRuntime answers commands until the input ends, which it does however the bench ends.
func serveRuntime(in io.Reader, out io.Writer) error {
	commands, answers := json.NewDecoder(in), json.NewEncoder(out)
	var s setup
	if err := commands.Decode(&s); err != nil {
		return fmt.Errorf("read the setup: %w", err)
	}
	list, err := libcni.NetworkConfFromBytes(s.List)
	if err != nil {
		return err
	}
	r := containerRuntime{list: list, conf: libcni.NewCNIConfigWithCacheDir(filepath.SplitList(s.Plugins), s.Cache, nil)}
	for {
		var c command
		if err := commands.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a command: %w", err)
		}
		a, err := r.run(c)
		if err != nil {
			return err
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

type containerRuntime struct {
	list *libcni.NetworkConfigList
	conf *libcni.CNIConfig
}

func (r *containerRuntime) run(c command) (a answer, err error) {
	op, ok := map[string]func(*libcni.RuntimeConf) (call, error){"add": r.add, "del": r.del}[c.Op]
	if !ok {
		return answer{}, fmt.Errorf("no operation %q", c.Op)
	}
	a.Calls = make([]call, len(c.Containers))
	var (
		workers sync.WaitGroup
		taken   atomic.Int64
	)
	before, err := childrenCPU()
	if err != nil {
		return answer{}, err
	}
	began := time.Now()
	for range min(c.Parallel, len(c.Containers)) {
		workers.Go(func() {
			for i := taken.Add(1) - 1; i < int64(len(c.Containers)); i = taken.Add(1) - 1 {
				took, err := op(&libcni.RuntimeConf{ContainerID: c.Containers[i].ID, NetNS: c.Containers[i].NetNS, IfName: "eth0", Args: c.Containers[i].Args})
				if err != nil {
					a.Calls[i].Error = err.Error()
					return
				}
				a.Calls[i] = took
			}
		})
	}
	workers.Wait()
	a.Wall = time.Since(began)
	after, err := childrenCPU()
	a.CPU = after - before
	return a, err
}

func (r *containerRuntime) add(rc *libcni.RuntimeConf) (call, error) {
	began := time.Now()
	result, err := r.conf.AddNetworkList(context.Background(), r.list, rc)
	c := call{Took: time.Since(began)}
	if err != nil {
		return c, err
	}
	newest, err := types100.NewResultFromResult(result)
	if err != nil {
		return c, err
	}
	for _, ip := range newest.IPs {
		addr, _ := netip.AddrFromSlice(ip.Address.IP)
		c.IPs = append(c.IPs, addr.Unmap())
	}
	return c, nil
}

func (r *containerRuntime) del(rc *libcni.RuntimeConf) (call, error) {
	began := time.Now()
	err := r.conf.DelNetworkList(context.Background(), r.list, rc)
	return call{Took: time.Since(began)}, err
}

// childrenCPU is what the plugins so far have used: a runtime has no other children, and it has waited for them all.
func childrenCPU() (time.Duration, error) {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &usage); err != nil {
		return 0, fmt.Errorf("read the CPU time of the plugins: %w", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}
