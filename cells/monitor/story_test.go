package monitor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/monitor"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/testutil/story"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestStories runs the scripts of testdata against a monitor behind a real socket.
func TestStories(t *testing.T) {
	story.Run(t, newWorld, map[string]story.Command[*world]{
		"start": (*world).start, "shutdown": (*world).stop,
		"add": operation(endpoint.OperationAdd), "del": operation(endpoint.OperationDel),
		"restore": operation(endpoint.OperationRestore),
		"events":  (*world).events, "follow": (*world).follow, "read": (*world).read,
		"leave": (*world).leave, "ended": (*world).ended,
	})
}

// world is an agent of a monitor and a server, and those who listen to it.
type world struct {
	socket    string
	monitor   *monitor.Monitor
	server    *server.Server
	client    *client.Client
	followers map[string]*follower
}

type follower struct {
	next func() (v1.Event, error, bool)
	stop func()
}

func newWorld(env *testscript.Env) *world {
	socket := filepath.Join(env.WorkDir, "agent.sock")
	w := &world{socket: socket, client: client.New(socket), followers: map[string]*follower{}}
	env.Defer(func() {
		for _, f := range w.followers {
			f.stop()
		}
		w.client.Close()
		_ = w.stop(nil, nil)
	})
	return w
}

// start [keep=N]
func (w *world) start(_ *testscript.TestScript, args []string) (err error) {
	cfg := monitor.DefaultConfig()
	for _, arg := range args {
		if cfg.Events, err = strconv.Atoi(strings.TrimPrefix(arg, "keep=")); err != nil {
			return err
		}
	}
	if w.monitor, err = monitor.New(cfg); err != nil {
		return err
	}
	w.server, err = serve(w.socket, w.monitor)
	return err
}

func serve(socket string, m *monitor.Monitor) (*server.Server, error) {
	s, err := server.New(server.Config{Socket: socket}, server.Info{}, slog.New(slog.DiscardHandler), server.Parts{
		Routes: []server.Routes{m}, Watchers: []server.Watcher{m},
	})
	if err != nil {
		return nil, err
	}
	return s, s.Start(context.Background(), func(err error) { panic(err) })
}

func (w *world) stop(*testscript.TestScript, []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return w.server.Stop(ctx)
}

// operation ATTACHMENT [error=TEXT]
func operation(op endpoint.Operation) func(*world, *testscript.TestScript, []string) error {
	return func(w *world, _ *testscript.TestScript, args []string) error {
		a, err := endpoint.ParseAttachment(args[0])
		if err != nil {
			return err
		}
		trace := endpoint.Trace{
			Operation: op,
			Endpoint:  endpoint.Endpoint{ID: 7, Spec: endpoint.Spec{Attachment: a}},
			Phases:    []endpoint.Phase{{Name: "queue"}, {Name: "ipam"}},
		}
		for _, arg := range args[1:] {
			trace.Err = errors.New(strings.TrimPrefix(arg, "error="))
		}
		w.monitor.Observe(trace)
		return nil
	}
}

// events [since=N], and prints all of them.
func (w *world) events(ts *testscript.TestScript, args []string) error {
	n := 0
	for event, err := range w.client.Events(context.Background(), options(args)) {
		if err != nil {
			return err
		}
		show(ts.Stdout(), event)
		n++
	}
	if n == 0 {
		_, _ = fmt.Fprintln(ts.Stdout(), "none")
	}
	return nil
}

func options(args []string) (o client.EventOptions) {
	for _, arg := range args {
		o.Since, _ = strconv.ParseUint(strings.TrimPrefix(arg, "since="), 10, 64)
	}
	return o
}

func show(w io.Writer, e v1.Event) {
	_, _ = fmt.Fprint(w, e.Seq, " ", e.Type)
	if e.Endpoint != nil {
		var phases []string
		for _, p := range e.Phases {
			phases = append(phases, p.Name)
		}
		_, _ = fmt.Fprintf(w, " %s %s:%s %s", e.Operation, e.Endpoint.ContainerID, e.Endpoint.IfName, strings.Join(phases, ","))
	}
	if e.Error != "" {
		_, _ = fmt.Fprintf(w, " error=%q", e.Error)
	}
	_, _ = fmt.Fprintln(w)
}

// follow NAME [since=N]
func (w *world) follow(_ *testscript.TestScript, args []string) error {
	o := options(args[1:])
	o.Follow = true
	f := new(follower)
	f.next, f.stop = iter.Pull2(w.client.Events(context.Background(), o))
	w.followers[args[0]] = f
	return nil
}

// read NAME N reads that many events, and waits for them.
func (w *world) read(ts *testscript.TestScript, args []string) error {
	n, err := strconv.Atoi(args[1])
	for ; n > 0 && err == nil; n-- {
		event, failed, ok := w.followers[args[0]].next()
		if !ok {
			return errors.New("the stream has ended")
		}
		if failed != nil {
			return failed
		}
		show(ts.Stdout(), event)
	}
	return err
}

func (w *world) leave(_ *testscript.TestScript, args []string) error {
	w.followers[args[0]].stop()
	return nil
}

// ended NAME is an error when there is another event.
func (w *world) ended(_ *testscript.TestScript, args []string) error {
	if event, err, ok := w.followers[args[0]].next(); ok {
		return fmt.Errorf("there is event %+v, error %w", event, err)
	}
	return nil
}
