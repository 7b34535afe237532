package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy"
	"porin.dev/porin/cells/proxy/redirect"
)

// discovery is what a proxy that is controlled as by xDS is sent: all rules, with a version.
type discovery struct {
	version uint64
	rules   map[uint32]model.Layer7
}

// acknowledgement is its answer; with an error (NACK) it goes on with the rules that it has.
type acknowledgement struct {
	version uint64
	err     error
}

// xds is a [proxy.Listener] that controls an [envoy].
type xds struct {
	envoy *envoy

	mu       sync.Mutex // guards the fields below
	sent     discovery
	answered chan struct{} // closed when the fields below change
	acked    uint64
	nacked   acknowledgement
}

func newXDS(kernel proxy.Kernel) *xds {
	x := &xds{sent: discovery{rules: map[uint32]model.Layer7{}}, answered: make(chan struct{})}
	x.envoy = &envoy{kernel: kernel, answer: x.receive, connections: map[net.Conn]map[uint16]bool{}}
	return x
}

func (x *xds) Supports(rules model.Layer7) error {
	if len(rules.DNS) > 0 {
		return errors.New("no DNS")
	}
	return nil
}

// change sends what there is after it, and returns the version.
func (x *xds) change(f func(rules map[uint32]model.Layer7)) uint64 {
	x.mu.Lock()
	f(x.sent.rules)
	x.sent.version++
	sent := discovery{x.sent.version, maps.Clone(x.sent.rules)}
	x.mu.Unlock()
	x.envoy.receive(sent)
	return sent.version
}

func (x *xds) Prepare(ctx context.Context, rules map[uint32]model.Layer7) error {
	version := x.change(func(all map[uint32]model.Layer7) { maps.Copy(all, rules) })
	for {
		x.mu.Lock()
		acked, nacked, answered := x.acked, x.nacked, x.answered
		x.mu.Unlock()
		switch {
		case acked >= version:
			return nil
		case nacked.version >= version:
			x.change(func(all map[uint32]model.Layer7) {
				maps.DeleteFunc(all, func(n uint32, _ model.Layer7) bool { _, ok := rules[n]; return ok })
			})
			return nacked.err
		}
		select {
		case <-answered:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// receive takes an answer of the envoy.
func (x *xds) receive(a acknowledgement) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a.err != nil {
		x.nacked = a
	} else {
		x.acked = max(x.acked, a.version)
	}
	close(x.answered)
	x.answered = make(chan struct{})
}

func (x *xds) Release(numbers []uint32) {
	x.change(func(all map[uint32]model.Layer7) {
		for _, n := range numbers {
			delete(all, n)
		}
	})
}

func (x *xds) Healthy() error { return nil }

func (x *xds) Changed() {}

func (x *xds) CloseEndpoint(ctx context.Context, id uint16) error {
	return x.envoy.closeEndpoint(ctx, id)
}

func (x *xds) Serve(sockets *redirect.Listeners) error {
	x.envoy.listen(sockets)
	return nil
}

func (x *xds) Stop(context.Context) error { return x.envoy.stop() }

func (x *xds) Connections() (int, uint64) { return x.envoy.count() }

// envoy stands for another program that serves HTTP: it has copies of the sockets, and rules when it has acknowledged
// them.
type envoy struct {
	kernel  proxy.Kernel
	answer  func(acknowledgement)
	serving sync.WaitGroup

	mu          sync.Mutex // guards the fields below
	silent      bool       // it answers nothing
	refuses     error
	pending     discovery // not answered yet
	rules       map[uint32]model.Layer7
	sockets     redirect.Sockets
	server      *http.Server
	connections map[net.Conn]map[uint16]bool // with the endpoints that are their ends
	accepted    uint64
}

// set changes how it answers, also what it has not answered before.
func (e *envoy) set(silent bool, refuses error) {
	e.mu.Lock()
	e.silent, e.refuses = silent, refuses
	pending := e.pending
	e.mu.Unlock()
	e.receive(pending)
}

func (e *envoy) receive(d discovery) {
	e.mu.Lock()
	if d.version < e.pending.version || e.silent {
		e.pending = d
		e.mu.Unlock()
		return
	}
	e.pending = d
	a := acknowledgement{d.version, e.refuses}
	if a.err == nil {
		e.rules = d.rules
	}
	e.mu.Unlock()
	e.answer(a)
}

func (e *envoy) waits() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.silent && e.pending.rules != nil
}

// listen serves copies of the sockets.
func (e *envoy) listen(sockets *redirect.Listeners) {
	copies, err := sockets.Sockets()
	if err != nil {
		panic(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sockets = copies
	e.server = &http.Server{
		Handler: http.HandlerFunc(e.serve), ConnState: e.follow,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, conn)
		},
	}
	listener, err := net.FileListener(copies[abi.ListenerTCP4])
	if err != nil {
		panic(err)
	}
	e.serving.Go(func() { _ = e.server.Serve(listener) })
}

func (e *envoy) stop() error {
	e.mu.Lock()
	server, sockets := e.server, e.sockets
	e.mu.Unlock()
	if server == nil {
		return nil
	}
	err := errors.Join(server.Close(), sockets.Close())
	e.serving.Wait()
	return err
}

type connectionKey struct{}

// follow keeps the connections with their ends.
func (e *envoy) follow(conn net.Conn, state http.ConnState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch state {
	case http.StateNew:
		e.accepted++
		e.connections[conn] = map[uint16]bool{}
	case http.StateClosed, http.StateHijacked:
		delete(e.connections, conn)
	}
}

// serve answers what the rules of the connection's row allow.
func (e *envoy) serve(w http.ResponseWriter, r *http.Request) {
	conn := r.Context().Value(connectionKey{}).(net.Conn)
	number, err := e.row(conn)
	e.mu.Lock()
	rules, ok := e.rules[number]
	e.mu.Unlock()
	if err != nil || !ok {
		http.Error(w, fmt.Sprint("no rules: ", err), http.StatusForbidden)
		return
	}
	for _, rule := range rules.HTTP {
		if rule.Path == r.URL.Path {
			fmt.Fprint(w, "envoy")
			return
		}
	}
	http.Error(w, "envoy denies", http.StatusForbidden)
}

// row returns the number of the rules of the server's policy.
func (e *envoy) row(conn net.Conn) (uint32, error) {
	client, server := conn.RemoteAddr().(*net.TCPAddr).AddrPort(), conn.LocalAddr().(*net.TCPAddr).AddrPort()
	client, server = netip.AddrPortFrom(client.Addr().Unmap(), client.Port()), netip.AddrPortFrom(server.Addr().Unmap(), server.Port())
	opener, err := e.kernel.Opener(model.TCP, client, server)
	if err != nil {
		return 0, err
	}
	receiver, err := e.kernel.EndpointAt(server.Addr())
	if err != nil {
		return 0, err
	}
	e.mu.Lock()
	if ends := e.connections[conn]; ends != nil {
		ends[opener.Endpoint], ends[receiver] = true, true
	}
	e.mu.Unlock()
	return e.kernel.Verdict(policy.Question{
		Local: policy.Local{ID: receiver}, Direction: model.Ingress, Peer: opener.Source, FromNode: opener.FromNode, Protocol: model.TCP, Port: server.Port(),
	})
}

// closeEndpoint answers when the connections are closed; never when it is silent.
func (e *envoy) closeEndpoint(ctx context.Context, id uint16) error {
	e.mu.Lock()
	var all []net.Conn
	for conn, ends := range e.connections {
		if ends[id] {
			all = append(all, conn)
		}
	}
	silent := e.silent
	e.mu.Unlock()
	if silent {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for _, conn := range all {
		_ = conn.Close()
		e.follow(conn, http.StateClosed) // its server says it later
	}
	return nil
}

func (e *envoy) count() (open int, accepted uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.connections), e.accepted
}
