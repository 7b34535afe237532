package control

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/names"
	"porin.dev/porin/cells/policy/policymap"
	"porin.dev/porin/cells/proxy"
	"porin.dev/porin/cells/proxy/offline"
	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/testutil"
)

// noListener is a [proxy.Listener] that serves nothing.
type noListener struct{}

func (noListener) Supports(model.Layer7) error                            { return nil }
func (noListener) Prepare(context.Context, map[uint32]model.Layer7) error { return nil }
func (noListener) Release([]uint32)                                       {}
func (noListener) Healthy() error                                         { return nil }
func (noListener) Changed()                                               {}
func (noListener) CloseEndpoint(context.Context, uint16) error            { return nil }
func (noListener) Serve(*redirect.Listeners) error                        { return nil }
func (noListener) Stop(context.Context) error                             { return nil }
func (noListener) Connections() (open int, accepted uint64)               { return 0, 0 }

type noMaps struct{}

func (noMaps) Open(func(policymap.Maps, *policymap.Lock) error) error { return nil }

// newServer returns a proxy without rules, which touches nothing in the kernel, and what is closed when another one has taken over.
func newServer(t *testing.T, dir string) (s *Server, replaced chan struct{}) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	cfg := ServerConfig{Socket: filepath.Join(dir, "s"), StateDir: dir}
	p := proxy.New(redirect.New(redirect.Config{BPFRoot: dir}, nil, log), noListener{}, log)
	replaced = make(chan struct{})
	s, err := NewServer(cfg, p, noMaps{}, NewLearnRouter(cfg, log), func() { close(replaced) }, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, replaced
}

func (s *Server) start(t *testing.T) {
	t.Helper()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop(t) })
}

func (s *Server) stop(t *testing.T) {
	t.Helper()
	if err := s.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// connect returns the other end of a connection to a proxy.
func connect(t *testing.T, s *Server, handle handler) *rpcConn {
	t.Helper()
	conn, err := dial(t.Context(), s.cfg.Socket)
	if err != nil {
		t.Fatal(err)
	}
	p := newRPCConn(conn, handle)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = p.serve(context.Background())
	}()
	t.Cleanup(func() {
		_ = p.wire.close()
		<-served
	})
	return p
}

func newHello() hello { return hello{Oldest: oldestProtocol, Newest: newestProtocol} }

func (p *rpcConn) sayHello(t *testing.T) {
	t.Helper()
	if _, err := p.call(t.Context(), methodHello, newHello(), nil); err != nil {
		t.Fatal(err)
	}
}

func (p *rpcConn) takeOver(t *testing.T) {
	t.Helper()
	files, err := p.call(t.Context(), methodTakeOver, newHello(), nil)
	if err != nil {
		t.Fatal(err)
	}
	closeFiles(files)
}

func (s *Server) agentCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.agents)
}

// TestTakeOverAborted: an agent that was sent to the next proxy, which has left, comes back by a new connection: its old one is not kept.
func TestTakeOverAborted(t *testing.T) {
	s, _ := newServer(t, t.TempDir())
	s.start(t)
	agent := connect(t, s, refuse)
	agent.sayHello(t)
	next := connect(t, s, refuse)
	next.takeOver(t)
	_ = next.wire.close()
	connect(t, s, refuse).sayHello(t) // when this one accepts again
	testutil.Eventually(t, func() error {
		if n := s.agentCount(); n != 1 {
			return errors.New("the agent's old connection is kept")
		}
		if _, err := agent.call(t.Context(), methodImportNames, nil, nil); !errors.Is(err, errConnClosed) {
			return errors.New("the agent's old connection is open")
		}
		return nil
	})
}

// TestTakeOverSilent: a next proxy that does not begin to serve is not waited for for ever, and when it says later that it serves, it is told that it may not.
func TestTakeOverSilent(t *testing.T) {
	s, replaced := newServer(t, t.TempDir())
	s.handoverTimeout = 50 * time.Millisecond
	s.start(t)
	next := connect(t, s, refuse)
	next.takeOver(t)
	connect(t, s, refuse).sayHello(t)
	if _, err := next.call(t.Context(), methodServing, nil, nil); err == nil || errors.Is(err, errConnClosed) {
		t.Errorf("it serves when the previous one has gone on: %v, want an error of that", err)
	}
	select {
	case <-replaced:
		t.Error("the previous proxy ends")
	default:
	}
	connect(t, s, refuse).takeOver(t) // another one
}

// TestUpdateWhileHandingOver: rules that the next proxy does not know of are not confirmed.
func TestUpdateWhileHandingOver(t *testing.T) {
	s, _ := newServer(t, t.TempDir())
	s.start(t)
	agent := connect(t, s, refuse)
	agent.sayHello(t)
	connect(t, s, refuse).takeOver(t)
	if _, err := agent.call(t.Context(), methodRules, snapshot{Version: 7}, nil); err == nil {
		t.Error("rules are confirmed that the next proxy does not have")
	}
}

// TestTakeOver hands journal and place to the next proxy, which starts while the previous one ends.
func TestTakeOver(t *testing.T) {
	dir := t.TempDir()
	previous, replaced := newServer(t, dir)
	previous.start(t)
	next, _ := newServer(t, dir)
	next.start(t)
	<-replaced
	previous.stop(t)
	testutil.Eventually(t, func() error {
		next.router.mu.Lock()
		defer next.router.mu.Unlock()
		if next.router.local == nil {
			return errors.New("the next proxy has no journal")
		}
		return nil
	})
	connect(t, next, refuse).sayHello(t)
}

// TestStartWhilePreviousStops: the next proxy does not wait for requests of one that was told to stop.
func TestStartWhilePreviousStops(t *testing.T) {
	dir := t.TempDir()
	previous, _ := newServer(t, dir)
	previous.start(t)
	previous.serving.Add(1) // something that takes long
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		previous.stop(t)
	}()
	testutil.Eventually(t, func() error {
		conn, err := dial(t.Context(), previous.cfg.Socket)
		if err == nil {
			conn.Close()
			err = errors.New("it still accepts")
		} else {
			err = nil
		}
		return err
	})
	next, _ := newServer(t, dir)
	next.start(t)
	previous.serving.Done()
	<-stopped
	connect(t, next, refuse).sayHello(t)
}

// TestJournalOpensLate: an agent that has taken names before the journal was open, as another process had it, hears of them then.
func TestJournalOpensLate(t *testing.T) {
	dir := t.TempDir()
	held, err := offline.OpenJournal(filepath.Join(dir, "proxy-names"), offline.DefaultLimits(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Add(1, "www.example", map[netip.Addr]time.Time{netip.MustParseAddr("192.0.2.1"): time.Now().Add(time.Hour)}, true); err != nil {
		t.Fatal(err)
	}
	s, _ := newServer(t, dir)
	s.start(t)
	told := make(chan struct{}, 1)
	agent := connect(t, s, func(_ context.Context, m message) (any, []*os.File, error) {
		if m.Method == methodNamesAvailable {
			told <- struct{}{}
		}
		return nil, nil, nil
	})
	agent.sayHello(t)
	take := func() (names []names.Lookup) {
		t.Helper()
		var all importNamesAnswer
		if _, err := agent.call(t.Context(), methodImportNames, nil, &all); err != nil {
			t.Fatal(err)
		}
		return all.Learned
	}
	if got := take(); len(got) > 0 {
		t.Errorf("names %v of a journal that is not open", got)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	<-told
	if got := take(); len(got) != 1 || got[0].Name != "www.example" {
		t.Errorf("names %v, want that of the journal", got)
	}
}

// TestReplacedWithDamagedRules: a proxy that could not read the rules of its file, while no agent is there, is replaced by the next one as any other.
func TestReplacedWithDamagedRules(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(rulesFile{dir}.path(), []byte(`{"version":1,"rules":{"5":`), 0o600); err != nil {
		t.Fatal(err)
	}
	first, _ := newServer(t, dir)
	first.start(t)
	second, _ := newServer(t, dir)
	if err := second.Start(t.Context()); err != nil {
		t.Fatalf("the next proxy: %v", err)
	}
	second.stop(t)
}

// TestJournalCannotBeOpened: the proxy says so, goes on without, and opens it when it can.
func TestJournalCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	inTheWay := filepath.Join(dir, "proxy-names.lock")
	if err := os.Mkdir(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	s, _ := newServer(t, dir)
	s.start(t)
	agent := make(chan report, 10)
	connect(t, s, func(_ context.Context, m message) (any, []*os.File, error) {
		var r report
		if m.Method == methodReport {
			if err := json.Unmarshal(m.Body, &r); err != nil {
				t.Error(err)
			}
			agent <- r
		}
		return nil, nil, nil
	}).sayHello(t)
	for r := range agent {
		if strings.Contains(r.Error, "proxy-names") {
			break
		}
	}
	if c := newJournalReporter(s.router).Condition(); c.State != supervisor.Degraded {
		t.Errorf("condition %+v, want that it is degraded", c)
	}
	if s.router.journalError() == nil || s.router.isInForce(learnRequest{Name: "www.example"}) {
		t.Error("it is not known that there is no journal, or a name is in force without maps")
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	for r := range agent {
		if r.Error == "" {
			break
		}
	}
	if c := newJournalReporter(s.router).Condition(); c.State != supervisor.OK {
		t.Errorf("condition %+v, want that it is well", c)
	}
}
