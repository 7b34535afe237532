package ipam_test

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/internal/story"
)

// quietVerbs are those of time, of who names addresses, and of handles.
var quietVerbs = map[string]story.Command[*world]{
	"later": (*world).later, "restart": (*world).restart,
	"connect": (*world).connect, "disconnect": (*world).disconnect, "look": (*world).look, "asked": (*world).asked,
	"allocate-for": (*world).allocateFor, "note": (*world).note, "release-noted": (*world).releaseNoted,
}

// later: later DURATION passes.
func (w *world) later(ts *testscript.TestScript, args []string) error {
	by, err := time.ParseDuration(args[0])
	ts.Check(err)
	ipam.Later(w.sides, by)
	return nil
}

// restart: the next agent, of the same configuration, which has not been told anything yet.
func (w *world) restart(*testscript.TestScript, []string) error { return w.start(w.cfg) }

// connect: connect ADDRESS has a connection of the address that goes on; disconnect is its end.
func (w *world) connect(_ *testscript.TestScript, args []string) error {
	w.who.set(args[0], true)
	return nil
}

func (w *world) disconnect(_ *testscript.TestScript, args []string) error {
	w.who.set(args[0], false)
	return nil
}

// look is what the agent does in the background when something has rested.
func (w *world) look(*testscript.TestScript, []string) error {
	w.sides.Asker.Ask(context.Background())
	return nil
}

// asked: asked N questions since the last "asked".
func (w *world) asked(ts *testscript.TestScript, args []string) error {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := w.who.questions() - w.knownQuestions
	w.knownQuestions += got
	if got != want {
		return fmt.Errorf("%d questions, want %d", got, want)
	}
	return nil
}

// allocate-for: allocate-for POD OWNER, where the pod is a legacy handle.
func (w *world) allocateFor(ts *testscript.TestScript, args []string) error {
	return w.ask(ts, ipam.Request{Legacy: ipam.Handle(args[0]), Owner: ipam.Handle(args[1])})
}

// note: note NAME OWNER writes down what the owner has now, with its sequence number.
func (w *world) note(_ *testscript.TestScript, args []string) error {
	for _, a := range w.List() {
		if a.Owner == ipam.Handle(args[1]) {
			w.noted[args[0]] = a
			return nil
		}
	}
	return fmt.Errorf("%s has nothing", args[1])
}

// release-noted: release-noted NAME releases just that.
func (w *world) releaseNoted(_ *testscript.TestScript, args []string) error {
	if !w.ReleaseListed(w.noted[args[0]]) {
		return fmt.Errorf("%s is no more", args[0])
	}
	return nil
}
