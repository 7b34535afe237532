package control

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/names"
	"porin.dev/porin/internal/fault"
)

// agentNames are the names of an agent that has started.
type agentNames struct{ imported chan []names.Lookup }

func (agentNames) Learn(uint16, string, []dnsname.Address) (func(context.Context) error, error) {
	return nil, nil
}

func (n agentNames) Import(learned []names.Lookup) { n.imported <- learned }

func (agentNames) FinishImport(context.Context) error { return nil }

// fakeProxy is the other end of a [Client], for one connection after the other.
type fakeProxy struct {
	*testing.T
	listener *net.UnixListener
	serving  sync.WaitGroup
}

func newFakeProxy(t *testing.T, socket string) *fakeProxy {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	p := &fakeProxy{T: t, listener: listener}
	t.Cleanup(func() { listener.Close(); p.serving.Wait() })
	return p
}

// next serves the next connection until one of both ends closes it.
func (p *fakeProxy) next(handle handler) (end func()) {
	p.Helper()
	c := p.nextConn(handle)
	return func() { _ = c.wire.close() }
}

func (p *fakeProxy) nextConn(handle handler) *rpcConn {
	p.Helper()
	if err := p.listener.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		p.Fatal(err)
	}
	conn, err := p.listener.AcceptUnix()
	if err != nil {
		p.Fatal(err)
	}
	c := newRPCConn(conn, handle)
	p.serving.Go(func() { _ = c.serve(context.Background()) })
	p.Cleanup(func() { _ = conn.Close() })
	return c
}

// startClientAt starts the agent's end.
func startClientAt(t *testing.T, socket string) (*Client, agentNames) {
	t.Helper()
	n := agentNames{make(chan []names.Lookup, 10)}
	c := NewClient(ClientConfig{Mode: ModeExternal, Socket: socket}, n, slog.New(slog.DiscardHandler))
	c.Task().Start(nil)
	t.Cleanup(func() {
		if err := errors.Join(c.Task().Stop(context.Background()), c.Close()); err != nil {
			t.Error(err)
		}
	})
	return c, n
}

var someRules = map[uint32]model.Layer7{7: {HTTP: []model.HTTPRule{{Path: "/x"}}}}

// TestClientRefused: a proxy that goes while it says hello, or refuses the agent, is tried again, and what waits for it is done then.
func TestClientRefused(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	proxy := newFakeProxy(t, socket)
	c, _ := startClientAt(t, socket)
	prepared := make(chan error, 1)
	go func() { prepared <- c.Prepare(t.Context(), someRules) }()

	proxy.next(refuse)()
	proxy.next(refuse)
	proxy.next(func(ctx context.Context, m message) (any, []*os.File, error) {
		if m.Method != methodHello {
			return refuse(ctx, m)
		}
		return helloAnswer{Protocol: 1, PID: 4711}, nil, nil
	})
	if err := <-prepared; err != nil {
		t.Error(err)
	}
	if s := c.Status(); !s.Connected || s.PID != 4711 {
		t.Errorf("status %+v", s)
	}
}

// TestClientImportNames: the agent imports what the proxy has learned when it is about to write policies, from each proxy that connects later, and when a proxy
// says that there are names.
func TestClientImportNames(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	proxy := newFakeProxy(t, socket)
	c, n := startClientAt(t, socket)
	go func() { _ = c.Prepare(t.Context(), someRules) }()
	removed, asked := make(chan uint64, 10), make(chan string, 10)
	serve := func(name string) handler {
		return func(ctx context.Context, m message) (any, []*os.File, error) {
			switch m.Method {
			case methodHello:
				return helloAnswer{Protocol: 1}, nil, nil
			case methodImportNames:
				asked <- name
				return importNamesAnswer{Learned: []names.Lookup{{Endpoint: 1, Name: name}}, Mark: 5}, nil, nil
			case methodNamesImported:
				var body namesImported
				if err := json.Unmarshal(m.Body, &body); err != nil {
					return nil, nil, err
				}
				removed <- body.Mark
				return nil, nil, nil
			}
			return nil, nil, fault.New(fault.NotFound, "no such call")
		}
	}
	expect := func(name string) {
		t.Helper()
		if got := <-n.imported; len(got) != 1 || got[0].Name != name {
			t.Errorf("imported %+v, want %s", got, name)
		}
		if mark := <-removed; mark != 5 {
			t.Errorf("removed up to %d", mark)
		}
		if got := <-asked; got != name {
			t.Errorf("asked %s, want %s", got, name)
		}
	}
	first := proxy.nextConn(serve("first"))
	if _, err := c.conns.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.notify(methodNamesAvailable, struct{}{}); err != nil {
		t.Fatal(err)
	}
	if _, err := first.call(t.Context(), "nothing", nil, nil); err == nil { // the notification was handled before
		t.Error("the agent knows a call that there is not")
	}
	if len(asked) > 0 {
		t.Error("an agent that starts imports names at once")
	}
	c.ImportNames(t.Context())
	expect("first")
	_ = first.wire.close()
	second := proxy.nextConn(serve("second"))
	expect("second")
	if err := second.notify(methodNamesAvailable, struct{}{}); err != nil {
		t.Fatal(err)
	}
	expect("second")
}

// TestClientImportNamesUnanswered: a proxy that does not answer holds up the agent's start for no longer than it is told, and has to connect again.
func TestClientImportNamesUnanswered(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	proxy := newFakeProxy(t, socket)
	c, _ := startClientAt(t, socket)
	go func() { _ = c.Prepare(t.Context(), someRules) }()
	hangs := func(ctx context.Context, m message) (any, []*os.File, error) {
		if m.Method == methodImportNames {
			<-ctx.Done()
		}
		return helloAnswer{Protocol: 1}, nil, nil
	}
	proxy.next(hangs)
	if _, err := c.conns.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	c.ImportNames(ctx)
	proxy.next(hangs) // it connects again
}

// TestClientImportNamesFails: a proxy that cannot give its names is connected to anew.
func TestClientImportNamesFails(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	proxy := newFakeProxy(t, socket)
	c, n := startClientAt(t, socket)
	go func() { _ = c.Prepare(t.Context(), someRules) }()
	c.ImportNames(t.Context()) // there is no proxy yet
	proxy.next(func(ctx context.Context, m message) (any, []*os.File, error) {
		if m.Method == methodImportNames {
			return refuse(ctx, m)
		}
		return helloAnswer{Protocol: 1}, nil, nil
	})
	proxy.next(func(_ context.Context, m message) (any, []*os.File, error) {
		if m.Method == methodImportNames {
			return importNamesAnswer{Learned: []names.Lookup{{Endpoint: 1, Name: "a.example"}}}, nil, nil
		}
		return helloAnswer{Protocol: 1, PID: 4711}, nil, nil
	})
	if got := <-n.imported; len(got) != 1 {
		t.Errorf("imported %+v", got)
	}
	if s := c.Status(); s.PID != 4711 {
		t.Errorf("status %+v", s)
	}
}

// TestClientPrepareHeldUp: while the proxy does not answer about other rules, a caller waits for no longer than it wants.
func TestClientPrepareHeldUp(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	proxy := newFakeProxy(t, socket)
	c, _ := startClientAt(t, socket)
	go func() { _ = c.Prepare(t.Context(), someRules) }()
	asked := make(chan struct{}, 10)
	proxy.next(func(ctx context.Context, m message) (any, []*os.File, error) {
		if m.Method == methodRules {
			asked <- struct{}{}
			<-ctx.Done()
		}
		return helloAnswer{Protocol: 1}, nil, nil
	})
	if _, err := c.conns.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Release([]uint32{1}) // which tells the proxy, without waiting
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := c.Prepare(ctx, map[uint32]model.Layer7{9: {}}); err == nil || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// TestClientPrevious: a proxy that was replaced and still serves requests gets rules, too, before anything is decided by them.
func TestClientPrevious(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	proxy := newFakeProxy(t, socket)
	c, _ := startClientAt(t, socket)
	go func() { _ = c.Prepare(t.Context(), someRules) }()
	got := make(chan string, 20)
	serve := func(name string) handler {
		return func(_ context.Context, m message) (any, []*os.File, error) {
			var rules snapshot
			var err error
			switch m.Method {
			case methodRules:
				err = json.Unmarshal(m.Body, &rules)
			case methodHello: // the agent may connect when it has the rules
				var h hello
				err = json.Unmarshal(m.Body, &h)
				rules = h.Rules
			}
			if err != nil {
				return nil, nil, err
			}
			if _, ok := rules.Rules[9]; ok {
				got <- name
			}
			return helloAnswer{Protocol: 1}, nil, nil
		}
	}
	conn := proxy.nextConn(serve("previous"))
	if _, err := c.conns.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := conn.notify(methodReplaced, struct{}{}); err != nil {
		t.Fatal(err)
	}
	proxy.next(serve("current"))
	if err := c.Prepare(t.Context(), map[uint32]model.Layer7{9: {}}); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for len(got) > 0 {
		names[<-got] = true
	}
	if !names["previous"] || !names["current"] {
		t.Errorf("when Prepare returns, the rules are with %v", names)
	}
}
