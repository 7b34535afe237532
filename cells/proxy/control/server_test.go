package control

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy"
	"porin.dev/porin/cells/proxy/accesslog"
	"porin.dev/porin/cells/proxy/redirect"
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

func (noMaps) Open() error { return nil }

// newServer returns a proxy without rules, which touches nothing in the kernel, and what is closed when another one has
// taken over.
func newServer(t *testing.T, dir string) (s *Server, replaced chan struct{}) {
	t.Helper()
	return newServerWith(t, dir, noListener{})
}

func newServerWith(t *testing.T, dir string, listener proxy.Listener) (s *Server, replaced chan struct{}) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	cfg := ServerConfig{Socket: filepath.Join(dir, "s"), StateDir: dir}
	p := proxy.New(redirect.New(redirect.Config{BPFRoot: dir}, nil, log), listener, log)
	replaced = make(chan struct{})
	s, err := NewServer(ServerParams{Config: cfg, Proxy: p, Maps: noMaps{}, Learner: NewLearner(log), Requests: &accesslog.Log{}, Log: log}, func() { close(replaced) })
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
	p.helloWith(t, snapshot{})
}

func (p *rpcConn) helloWith(t *testing.T, rules snapshot) {
	t.Helper()
	h := newHello()
	h.Rules = rules
	if _, err := p.call(t.Context(), methodHello, h, nil); err != nil {
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

// TestTakeOverAborted: an agent that was sent to the next proxy, which has left, comes back by a new connection: its
// old one is not kept.
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
		if _, err := agent.call(t.Context(), methodChanged, nil, nil); !errors.Is(err, errConnClosed) {
			return errors.New("the agent's old connection is open")
		}
		return nil
	})
}

// TestTakeOverSilent: a next proxy that does not begin to serve is not waited for for ever, and when it says later that
// it serves, it is told that it may not.
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

// TestTakeOver gives the next proxy the place, the rules for names, and the acknowledged rules. Waiting answers of the
// previous proxy are learned by the next one's agent.
func TestTakeOver(t *testing.T) {
	dir := t.TempDir()
	previous, replaced := newServer(t, dir)
	previous.start(t)
	agent := connect(t, previous, learnAll)
	agent.helloWith(t, snapshot{Names: exampleScope})
	answer := learnRequest{7, "www.example", addresses("192.0.2.1")}
	if err := learnWithin(t, previous.learner, time.Minute, answer); err != nil {
		t.Fatal(err)
	}
	_ = agent.wire.close()
	testutil.Eventually(t, func() error {
		if agent, _ := previous.learner.currentAgent(); agent != nil {
			return errors.New("the agent is not gone")
		}
		return nil
	})
	waiting := make(chan error, 1)
	go func() {
		waiting <- learnWithin(t, previous.learner, time.Minute, learnRequest{7, "new.example", addresses("192.0.2.2")})
	}()

	next, _ := newServer(t, dir)
	next.start(t)
	<-replaced
	for _, row := range []struct {
		name, addr string
		want       bool
	}{{"www.example", "192.0.2.1", true}, {"www.example", "192.0.2.3", false}, {"www.other", "192.0.2.3", true}} {
		if got := next.learner.passes(learnRequest{7, row.name, addresses(row.addr)}); got != row.want {
			t.Errorf("%s with %s passes in the next proxy: %t, want %t", row.name, row.addr, got, row.want)
		}
	}
	select {
	case err := <-waiting:
		t.Errorf("an answer of the previous proxy has not waited for an agent: %v", err)
	default:
	}
	connect(t, next, learnAll).sayHello(t)
	if err := <-waiting; err != nil {
		t.Errorf("an answer of the previous proxy, when an agent is there: %v", err)
	}
	previous.stop(t)
}

// TestRulesFileHasNames: the file for a start without an agent says which names rules select.
func TestRulesFileHasNames(t *testing.T) {
	dir := t.TempDir()
	s, _ := newServer(t, dir)
	s.start(t)
	connect(t, s, refuse).helloWith(t, snapshot{Names: exampleScope})
	kept, err := rulesFile{dir}.read()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(exampleScope, kept.Names, prefixes); diff != "" {
		t.Errorf("in the file (-want +got):\n%s", diff)
	}
}

// TestPartialRules: while an agent starts, the rules for names that there were before select names, too.
func TestPartialRules(t *testing.T) {
	s, _ := newServer(t, t.TempDir())
	s.start(t)
	agent := connect(t, s, refuse)
	agent.helloWith(t, snapshot{Version: 1, Names: exampleScope})
	_ = agent.wire.close()
	agent = connect(t, s, refuse)
	other := &policy.NameScope{Rules: []model.DNSRule{{Pattern: "*.other"}}}
	agent.helloWith(t, snapshot{Version: 1, Partial: true, Names: other})
	passes := func(name string) bool { return s.learner.passes(learnRequest{7, name, addresses("192.0.2.1")}) }
	if passes("www.example") || passes("www.other") || !passes("www.third") {
		t.Error("not all names are selected that rules select before or now, or others are")
	}
	if _, err := agent.call(t.Context(), methodRules, snapshot{Version: 2, Names: other}, nil); err != nil {
		t.Fatal(err)
	}
	if !passes("www.example") || passes("www.other") {
		t.Error("rules that are gone select names, or those that are there do not")
	}
}

// TestPartialRulesOfNewProxy: agent and proxy start together. Until the agent has written its policies, rows have
// numbers of earlier rules.
func TestPartialRulesOfNewProxy(t *testing.T) {
	dir := t.TempDir()
	rule := func(path string) json.RawMessage {
		text, err := json.Marshal(model.Layer7{HTTP: []model.HTTPRule{{Path: path}}})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if err := (rulesFile{dir}).write(snapshot{Version: 1, Rules: map[uint32]json.RawMessage{5: rule("/a")}}); err != nil {
		t.Fatal(err)
	}
	listener := &refusing{}
	s, _ := newServerWith(t, dir, listener)
	s.start(t)
	agent := connect(t, s, refuse)
	now := snapshot{Version: 1, Partial: true, Rules: map[uint32]json.RawMessage{6: rule("/b")}}
	agent.helloWith(t, now)
	listener.asked(t, "/a", "/b")
	now.Version, now.Partial = 2, false
	if _, err := agent.call(t.Context(), methodRules, now, nil); err != nil {
		t.Fatal(err)
	}
	listener.asked(t, "/b")
}

// refusing is a listener that refuses all rules, so that nothing is redirected to it.
type refusing struct {
	noListener
	mu    sync.Mutex // guards the field below
	paths []string
}

func (l *refusing) Supports(rules model.Layer7) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paths = append(l.paths, rules.HTTP[0].Path)
	return errors.New("refused")
}

// asked checks which rules the listener was to have since the last time.
func (l *refusing) asked(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Sort(l.paths); !slices.Equal(l.paths, want) {
		t.Errorf("the listener was to have rules for %v, want %v", l.paths, want)
	}
	l.paths = nil
}

// TestCloseEndpointNames: a name that was acknowledged for an endpoint is not acknowledged for the next endpoint with
// its ID.
func TestCloseEndpointNames(t *testing.T) {
	s, _ := newServer(t, t.TempDir())
	s.start(t)
	agent := connect(t, s, learnAll)
	agent.helloWith(t, snapshot{Names: exampleScope})
	answer := learnRequest{7, "www.example", addresses("192.0.2.1")}
	if err := learnWithin(t, s.learner, time.Minute, answer); err != nil || !s.learner.passes(answer) {
		t.Fatalf("learn: %v, passes then: %t", err, s.learner.passes(answer))
	}
	if _, err := agent.call(t.Context(), methodCloseEndpoint, closeEndpoint{7}, nil); err != nil {
		t.Fatal(err)
	}
	if s.learner.passes(answer) {
		t.Error("an answer passes that another endpoint has got")
	}
}

// TestStartWhilePreviousStops: the next proxy does not wait for requests of a stopping one.
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

// TestReplacedWithDamagedRules: a proxy that could not read the rules of its file, while no agent is there, is replaced
// by the next one as any other.
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
