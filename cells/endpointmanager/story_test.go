package endpointmanager_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/deletionrecords"
	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/internal/testutil/story"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestStories runs the scripts of testdata: behaviour of the manager as a user sees it.
func TestStories(t *testing.T) {
	story.Run(t, newWorld, map[string]story.Command[*world]{
		"start": (*world).start, "shutdown": (*world).stop, "crash": (*world).crash,
		"add": (*world).add, "del": (*world).del, "delcontainer": (*world).delContainer,
		"fail": (*world).fail, "list": (*world).list, "get": (*world).get,
		"attached": (*world).attached, "log": (*world).log, "events": (*world).events,
		"until": (*world).until, "record": (*world).record,
		"gc": (*world).gc, "report": (*world).report, "lose": (*world).lose, "again": (*world).again, "repair": (*world).repair,
		"unlink": (*world).unlink, "held": (*world).held, "accept": (*world).accept,
		"boot": (*world).atBoot, "namespace": (*world).inNamespace,
	})
}

// world is a node: the steps stand for its kernel and outlive the manager.
type world struct {
	dir     string
	steps   []*endpointmanagertest.Step
	table   *endpointmanager.Table
	service endpointmanager.Service
	boot    string // of the node, and the namespace that the agent runs in
	netns   uint64

	mu   sync.Mutex // guards told
	told []string
}

func newWorld(env *testscript.Env) *world {
	w := &world{dir: filepath.Join(env.WorkDir, "state"), boot: "first", netns: 1}
	for _, name := range []string{"ipam", "policy", "datapath"} {
		w.steps = append(w.steps, endpointmanagertest.NewStep(name))
	}
	env.Defer(func() { _ = w.stop(nil, nil) })
	return w
}

func (w *world) start(*testscript.TestScript, []string) error {
	cfg := endpointmanager.DefaultConfig()
	cfg.StateDir, cfg.RetryInterval = w.dir, time.Millisecond
	var steps endpoint.Steps
	for _, s := range w.steps {
		steps = append(steps, s)
	}
	w.table = endpointmanager.NewTable()
	w.service = endpointmanager.New(endpointmanager.Params{
		Config: cfg, Log: slog.New(slog.DiscardHandler), Table: w.table, Steps: steps,
		Subscribers: []endpoint.Subscriber{w},
	})
	endpointmanager.At(w.service, w.boot, w.netns)
	return w.service.Start(context.Background())
}

// atBoot is the boot of the next start.
func (w *world) atBoot(_ *testscript.TestScript, args []string) error {
	w.boot = args[0]
	return nil
}

// inNamespace is the network namespace of the next start.
func (w *world) inNamespace(_ *testscript.TestScript, args []string) (err error) {
	w.netns, err = strconv.ParseUint(args[0], 10, 64)
	return err
}

// unlink takes the links of attachments away.
func (w *world) unlink(ts *testscript.TestScript, args []string) error {
	for _, a := range args {
		w.step(ts, "datapath").Unlink(a)
	}
	return nil
}

func (w *world) held(ts *testscript.TestScript, _ []string) error {
	var lines []string
	for _, h := range endpointmanager.Hold(w.service).Held() {
		lines = append(lines, fmt.Sprintln(h.Endpoint.Spec.Attachment, h.Reason, h.Endpoint.Addresses.IPv4))
	}
	return show(ts, lines)
}

// accept ends the hold of an attachment, or of all.
func (w *world) accept(ts *testscript.TestScript, args []string) error {
	var a endpoint.Attachment
	if len(args) > 0 {
		var err error
		if a, err = endpoint.ParseAttachment(args[0]); err != nil {
			return err
		}
	}
	return showResult(ts, endpointmanager.Hold(w.service).Accept(context.Background(), a))
}

func (w *world) stop(*testscript.TestScript, []string) error {
	if w.service == nil {
		return nil
	}
	service := w.service
	w.service = nil
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return service.Stop(ctx)
}

// crash keeps the ledger as it is on disk now, whatever the manager writes while it ends.
func (w *world) crash(ts *testscript.TestScript, _ []string) error {
	path := filepath.Join(w.dir, "ledger.db")
	now, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := w.stop(ts, nil); err != nil {
		return err
	}
	return os.WriteFile(path, now, 0o600)
}

func (w *world) add(ts *testscript.TestScript, args []string) error {
	spec := endpointmanagertest.Spec(args[0])
	for _, option := range args[1:] {
		switch key, value, _ := strings.Cut(option, "="); key {
		case "netns":
			spec.NetNSCookie, _ = strconv.ParseUint(value, 10, 64)
		case "began":
			began, _ := strconv.Atoi(value)
			spec.Began = time.Duration(began)
		case "pod":
			spec.Pod.Name = value
		case "uid":
			spec.Pod.UID = value
		case "network":
			spec.Network = value
		default:
			ts.Fatalf("add: unknown option %q", option)
		}
	}
	ep, err := w.service.Create(context.Background(), spec, nil)
	if err == nil {
		_, _ = fmt.Fprintln(ts.Stdout(), ep.ID, ep.State, ep.Addresses.IPv4)
	}
	return err
}

func (w *world) del(ts *testscript.TestScript, args []string) error {
	a, err := endpoint.ParseAttachment(args[0])
	if err != nil {
		return err
	}
	return showResult(ts, w.service.Delete(context.Background(), a, beganAt(args[1:])))
}

func (w *world) delContainer(ts *testscript.TestScript, args []string) error {
	return showResult(ts, w.service.DeleteContainer(context.Background(), args[0], beganAt(args[1:])))
}

// beganAt reads "began=N".
func beganAt(args []string) (cfg endpoint.DeleteConfig) {
	for _, arg := range args {
		began, _ := strconv.Atoi(strings.TrimPrefix(arg, "began="))
		cfg.Began = time.Duration(began)
	}
	return cfg
}

// gc keeps what is named: gc NETWORK [dry] [ATTACHMENT...].
func (w *world) gc(ts *testscript.TestScript, args []string) error {
	gc := endpointmanager.GC{Network: args[0], Valid: map[endpoint.Attachment]bool{}}
	for _, arg := range args[1:] {
		if arg == "dry" {
			gc.DryRun = true
			continue
		}
		a, err := endpoint.ParseAttachment(arg)
		ts.Check(err)
		gc.Valid[a] = true
	}
	result := w.service.Collect(context.Background(), gc)
	_, _ = fmt.Fprintf(ts.Stdout(), "stale %v, deleted %d, errors %d\n", result.Stale, result.Deleted, len(result.Errors))
	return result.Withheld
}

// report prints what the last start found.
func (w *world) report(ts *testscript.TestScript, _ []string) error {
	r := w.service.Restored()
	_, _ = fmt.Fprintf(ts.Stdout(), "adopted %d, replaced %d, undone %d\n", r.Adopted, r.Replaced, r.Undone)
	for _, reason := range r.Reasons {
		_, _ = fmt.Fprintln(ts.Stdout(), reason.Endpoint, strings.Join(reason.Reasons, "; "))
	}
	for _, removed := range r.Removed {
		_, _ = fmt.Fprintln(ts.Stdout(), "removed", removed)
	}
	return nil
}

// lose takes an attachment away from a step, as if another program had removed it.
func (w *world) lose(ts *testscript.TestScript, args []string) error {
	for _, s := range w.steps {
		if s.Name() == args[0] {
			s.Lose(args[1])
		}
	}
	return nil
}

// again makes another sandbox of a pod so many times, without a DEL: again TIMES UID.
func (w *world) again(ts *testscript.TestScript, args []string) error {
	times, _ := strconv.Atoi(args[0])
	for i := range times {
		spec := endpointmanagertest.Spec(fmt.Sprintf("again-%d:eth0", i))
		spec.Pod.UID = args[1]
		if _, err := w.service.Create(context.Background(), spec, nil); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) repair(ts *testscript.TestScript, args []string) error {
	a, err := endpoint.ParseAttachment(args[0])
	ts.Check(err)
	return w.service.Repair(context.Background(), a)
}

func showResult(ts *testscript.TestScript, result endpointmanager.DeleteResult) error {
	_, _ = fmt.Fprintf(ts.Stdout(), "deleted %d, errors %d\n", result.Deleted, len(result.Errors))
	return errors.Join(result.Errors...)
}

func (w *world) fail(ts *testscript.TestScript, args []string) error {
	err := errors.New("the kernel said no")
	if args[1] == "restore" && args[0] == "ipam" {
		err = endpointmanager.ErrAddressNotTaken
	}
	times := 1
	if len(args) > 2 {
		times, _ = strconv.Atoi(args[2])
	}
	w.step(ts, args[0]).Fail(args[1], times, err)
	return nil
}

func (w *world) step(ts *testscript.TestScript, name string) *endpointmanagertest.Step {
	for _, s := range w.steps {
		if s.Name() == name {
			return s
		}
	}
	ts.Fatalf("no step %q", name)
	return nil
}

func (w *world) list(ts *testscript.TestScript, _ []string) error {
	var lines []string
	for _, ep := range w.table.List() {
		lines = append(lines, fmt.Sprintln(ep.ID, ep.Spec.Attachment, ep.State, ep.Addresses.IPv4))
	}
	return show(ts, lines)
}

func (w *world) get(ts *testscript.TestScript, args []string) error {
	ref, err := endpoint.ParseRef(args[0])
	if err != nil {
		return err
	}
	ep, err := w.table.Get(ref)
	if err == nil {
		_, _ = fmt.Fprintln(ts.Stdout(), ep.ID, ep.Spec.Attachment)
	}
	return err
}

func (w *world) attached(ts *testscript.TestScript, _ []string) error {
	for _, s := range w.steps {
		_, _ = fmt.Fprintln(ts.Stdout(), strings.TrimSpace(s.Name()+" "+strings.Join(s.Attached(), " ")))
	}
	return nil
}

func (w *world) log(ts *testscript.TestScript, _ []string) error {
	var lines []string
	for _, s := range w.steps {
		for _, line := range s.Log() {
			lines = append(lines, line+"\n")
		}
	}
	return show(ts, lines)
}

func (w *world) events(ts *testscript.TestScript, _ []string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := w.told
	w.told = nil
	return show(ts, told)
}

// record leaves a deletion record, as the plugin does when no agent answers.
func (w *world) record(ts *testscript.TestScript, args []string) error {
	a, err := endpoint.ParseAttachment(args[0])
	ts.Check(err)
	return deletionrecords.Put(filepath.Join(w.dir, "deletions"), deletionrecords.Record{
		ContainerID: a.ContainerID, IfName: a.IfName, Began: boottime.Now().Nanoseconds(),
	})
}

// show prints the lines, or "none": a command that prints nothing leaves the stdout of the one before it.
func show(ts *testscript.TestScript, lines []string) error {
	if len(lines) == 0 {
		lines = []string{"none\n"}
	}
	_, err := fmt.Fprint(ts.Stdout(), strings.Join(lines, ""))
	return err
}

// until waits for the attachment to be gone.
func (w *world) until(ts *testscript.TestScript, args []string) error {
	a, err := endpoint.ParseAttachment(args[1])
	if err != nil || args[0] != "gone" {
		ts.Fatalf("usage: until gone containerID:ifname")
	}
	_ = eventually(func() bool {
		_, err = w.table.Get(endpoint.ByAttachment(a))
		return errors.Is(err, endpointmanager.ErrNotFound)
	})
	if err == nil {
		return fmt.Errorf("%s is still there", a)
	}
	w.service.Delete(context.Background(), a, endpoint.DeleteConfig{}) // takes its turn after what tells subscribers
	return nil
}

// eventually asks until the answer is yes, or for ten seconds.
func eventually(yes func() bool) bool {
	return testutil.Poll(10*time.Second, func() error {
		if !yes() {
			return errors.New("not yet")
		}
		return nil
	}) == nil
}

func waitFor(t *testing.T, yes func() bool) {
	t.Helper()
	if !eventually(yes) {
		t.Fatal("waited ten seconds for a condition that did not come")
	}
}

// EndpointCreated implements endpoint.Subscriber.
func (w *world) EndpointCreated(ep endpoint.Endpoint) { w.tell("created", ep) }

// EndpointDeleted implements endpoint.Subscriber.
func (w *world) EndpointDeleted(ep endpoint.Endpoint, _ endpoint.DeleteConfig) {
	w.tell("deleted", ep)
}

// EndpointRestored implements endpoint.Subscriber.
func (w *world) EndpointRestored(ep endpoint.Endpoint) { w.tell("restored", ep) }

// EndpointUpdated implements endpoint.Subscriber.
func (w *world) EndpointUpdated(ep endpoint.Endpoint) { w.tell("updated", ep) }

func (w *world) tell(what string, ep endpoint.Endpoint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, fmt.Sprintf("%s %d %s\n", what, ep.ID, ep.Spec.Attachment))
}
