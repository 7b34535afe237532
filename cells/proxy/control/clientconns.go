package control

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"

	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/internal/fd"
)

// proxyConn is a connection to a proxy.
type proxyConn struct {
	rpc    *rpcConn
	status Status // guarded by the lock of proxyConns

	sending  chan struct{} // holds a token while it is given rules: guards the fields below
	version  uint64        // of the rules that it has
	rejected rejectedRules
}

// Status is what an operator wants to know of the proxy.
type Status struct {
	Connected   bool
	PID         int
	Version     string // of the program
	InUse       bool
	RuleSets    int
	Connections int
	Previous    int   // proxies that were replaced, and whose requests have not ended
	Err         error // why the proxy does not work, or not as it should
}

// proxyConns are the connections to the proxy, and to previous ones whose requests have not ended.
type proxyConns struct {
	mu      sync.Mutex // guards the fields below
	all     map[*proxyConn]struct{}
	current *proxyConn    // nil while no proxy is connected
	arrived chan struct{} // closed when current is set
	lastErr error         // of the last dial, while no proxy is connected
}

func newProxyConns() proxyConns {
	return proxyConns{all: map[*proxyConn]struct{}{}, arrived: make(chan struct{})}
}

func (x *proxyConns) add(p *proxyConn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all[p] = struct{}{}
}

func (x *proxyConns) remove(p *proxyConn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.all, p)
}

func (x *proxyConns) list() []*proxyConn {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Keys(x.all))
}

// setCurrent has callers use a connection whose hello was answered.
func (x *proxyConns) setCurrent(p *proxyConn, answer helloAnswer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p.status.PID, p.status.Version, p.status.Connected = answer.PID, answer.Version, true
	x.current = p
	close(x.arrived)
}

// clearCurrent has callers wait for the next connection.
func (x *proxyConns) clearCurrent(p *proxyConn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.current == p {
		x.current, x.arrived = nil, make(chan struct{})
	}
}

// get returns the current connection, nil if there is none.
func (x *proxyConns) get() *proxyConn {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.current
}

// await returns the current connection, and waits for one.
func (x *proxyConns) await(ctx context.Context) (*proxyConn, error) {
	for {
		x.mu.Lock()
		p, arrived, lastErr := x.current, x.arrived, x.lastErr
		x.mu.Unlock()
		if p != nil {
			return p, nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil, errors.Join(ErrNotConnected, lastErr)
		}
	}
}

func (x *proxyConns) recordDial(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.lastErr = err
}

func (x *proxyConns) recordReport(p *proxyConn, r report) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p.status.InUse, p.status.RuleSets, p.status.Connections, p.status.Err = r.InUse, r.RuleSets, r.Connections, nil
	if r.Error != "" {
		p.status.Err = errors.New(r.Error)
	}
}

// status returns how the current proxy is, and why the last dial has failed.
func (x *proxyConns) status() (status Status, lastErr error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.current == nil {
		return Status{Previous: len(x.all)}, x.lastErr
	}
	status = x.current.status
	status.Previous = len(x.all) - 1
	return status, nil
}

// heldSockets are copies of the proxy's listening sockets: while it is away, connections wait in them.
type heldSockets struct {
	mu   sync.Mutex // guards the field below
	held redirect.Sockets
}

// replace keeps sockets in place of others.
func (x *heldSockets) replace(sockets redirect.Sockets) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.held
	x.held = sockets
	return before.Close()
}

// copies returns copies of the sockets, and their indexes.
func (x *heldSockets) copies() (indexes []uint32, files []*os.File, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	indexes = slices.Sorted(maps.Keys(x.held))
	for _, index := range indexes {
		file, err := fd.Duplicate(x.held[index], "listening socket of the proxy")
		if err != nil {
			closeFiles(files)
			return nil, nil, err
		}
		files = append(files, file)
	}
	return indexes, files, nil
}
