package control

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/testutil"
)

// agentNames are the names of an agent that has started.
type agentNames struct {
	mu      sync.Mutex // guards the fields below
	scope   policy.NameScope
	changed func()
}

func (*agentNames) Learn(uint16, string, []dnsname.Address) (func(context.Context) error, error) {
	return nil, nil
}

func (n *agentNames) Scope() policy.NameScope {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.scope
}

func (n *agentNames) OnScopeChange(changed func()) { n.changed = changed }

func (n *agentNames) setScope(s policy.NameScope) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.scope = s
	n.changed() // while others wait for the scope
}

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
func startClientAt(t *testing.T, socket string) (*Client, *agentNames) {
	t.Helper()
	n := &agentNames{}
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

// TestClientRefused: a proxy that goes while it says hello, or refuses the agent, is tried again, and what waits for it
// is done then.
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

// TestClientScope: the proxy gets the rules for names with the hello, and again when they change.
func TestClientScope(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	proxy := newFakeProxy(t, socket)
	c, n := startClientAt(t, socket)
	scopeOf := func(name string) policy.NameScope {
		return policy.NameScope{Rules: []model.DNSRule{{Name: name}}, Cluster: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	}
	n.setScope(scopeOf("first.example"))
	got := make(chan policy.NameScope, 20)
	go func() { _ = c.Prepare(t.Context(), someRules) }()
	proxy.next(func(_ context.Context, m message) (any, []*os.File, error) {
		var h hello
		var err error
		if m.Method == methodHello {
			err = json.Unmarshal(m.Body, &h)
		} else {
			err = json.Unmarshal(m.Body, &h.Rules)
		}
		got <- *h.Rules.Names
		return helloAnswer{Protocol: 1}, nil, err
	})
	if diff := cmp.Diff(scopeOf("first.example"), <-got, prefixes); diff != "" {
		t.Errorf("with the hello (-want +got):\n%s", diff)
	}
	n.setScope(scopeOf("second.example"))
	testutil.Eventually(t, func() error {
		select {
		case s := <-got:
			if diff := cmp.Diff(scopeOf("second.example"), s, prefixes); diff != "" {
				return errors.New(diff)
			}
			return nil
		default:
			return errors.New("nothing is sent")
		}
	})
}

var prefixes = cmp.Comparer(func(x, y netip.Prefix) bool { return x == y })

// TestClientPrepareHeldUp: while the proxy does not answer about other rules, a caller waits for no longer than it
// wants.
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

// TestClientPrevious: a proxy that was replaced and still serves requests gets rules, too, before anything is decided
// by them.
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
