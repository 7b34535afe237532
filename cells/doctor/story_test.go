package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/rogpeppe/go-internal/testscript"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil/story"
)

// TestStories runs the scripts of testdata: a doctor, two checkers, and a clock that the script moves.
func TestStories(t *testing.T) {
	story.Run(t, newWorld, map[string]story.Command[*world]{
		"doctor": (*world).doctor, "break": (*world).breakThing, "fix": (*world).fix, "fail": (*world).fail,
		"later": (*world).later, "tick": (*world).tick, "get": (*world).get,
	})
}

// world is a doctor without a loop: "tick" is what it does at an interval.
type world struct {
	*Doctor
	clock  time.Time
	things map[string]*things // by cell
	log    io.Writer
}

func newWorld(*testscript.Env) *world {
	return &world{
		clock:  time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC),
		things: map[string]*things{"links": {kind: "link-orphan"}, "routes": {kind: "route-missing"}},
	}
}

// things are a checker whose findings the script writes.
type things struct {
	owner, kind string
	broken      map[string]string // what its repair fails with; "" for success, "manual" when a person has to
	fails       string            // how an examination fails
}

func (th *things) Owner() string { return th.owner }

func (th *things) Kinds() []Kind { return []Kind{{Name: th.kind, Repair: "repair it"}} }

func (th *things) Examine(_ context.Context, only string) (found []Finding, err error) {
	switch th.fails {
	case "":
	case "panic":
		panic("a bug")
	default:
		return nil, errors.New(th.fails)
	}
	for _, subject := range slices.Sorted(maps.Keys(th.broken)) {
		endpoint := subject + ":eth0"
		if only == "" || only == endpoint {
			found = append(found, Finding{th.kind, subject, endpoint, subject + " is broken", th.repair(subject)})
		}
	}
	return found, nil
}

func (th *things) repair(subject string) func(context.Context) error {
	if th.broken[subject] == "manual" {
		return nil
	}
	return func(context.Context) error {
		switch fails := th.broken[subject]; fails {
		case "":
			delete(th.broken, subject)
		case "in-vain":
		case "panic":
			panic("a bug")
		default:
			return errors.New(fails)
		}
		return nil
	}
}

// doctor [report-only]
func (w *world) doctor(ts *testscript.TestScript, args []string) (err error) {
	cfg := DefaultConfig()
	cfg.Repair = !slices.Contains(args, "report-only")
	var checkers []Checker
	for owner, th := range w.things {
		th.owner, th.broken = owner, map[string]string{}
		checkers = append(checkers, th)
	}
	log := slog.New(slog.NewTextHandler(writer{w}, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	w.Doctor, err = New(cfg, log, checkers...)
	w.now = func() time.Time { return w.clock }
	return err
}

// writer is the log of the command that runs.
type writer struct{ *world }

func (w writer) Write(p []byte) (int, error) {
	if w.log == nil {
		return len(p), nil
	}
	return w.log.Write(p)
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// break CELL SUBJECT [repair fails with]
func (w *world) breakThing(_ *testscript.TestScript, args []string) error {
	w.things[args[0]].broken[args[1]] = strings.Join(args[2:], " ")
	return nil
}

func (w *world) fix(_ *testscript.TestScript, args []string) error {
	delete(w.things[args[0]].broken, args[1])
	return nil
}

// fail CELL [how its examinations fail]
func (w *world) fail(_ *testscript.TestScript, args []string) error {
	w.things[args[0]].fails = strings.Join(args[1:], " ")
	return nil
}

// later DURATION
func (w *world) later(ts *testscript.TestScript, args []string) error {
	d, err := time.ParseDuration(args[0])
	w.clock = w.clock.Add(d)
	return err
}

// tick does what the loop does: it examines, and repairs what is due. Its log is on stdout.
func (w *world) tick(ts *testscript.TestScript, _ []string) error {
	w.log = ts.Stdout()
	defer func() { w.log = nil }()
	_ = w.examinePeriodically(context.Background())
	w.repairDue(context.Background())
	return nil
}

// get [ENDPOINT] prints the answer of GET /v1/doctor.
func (w *world) get(ts *testscript.TestScript, args []string) error {
	r := chi.NewRouter()
	(&routes{w.Doctor}).Mount(r)
	recorder := httptest.NewRecorder()
	r.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/v1/doctor?endpoint="+strings.Join(args, ""), nil))
	if recorder.Code != http.StatusOK {
		return errors.New(recorder.Body.String())
	}
	var answer v1.Doctor
	ts.Check(json.Unmarshal(recorder.Body.Bytes(), &answer))
	for _, f := range answer.Findings {
		_, _ = fmt.Fprintf(ts.Stdout(), "%s %s of %s: %s, %s (manual: %v), since %s, %d times, outcome %q\n", f.Owner, f.Kind, f.Endpoint,
			f.Detail, f.Repair, f.Manual, f.Since.Format(time.TimeOnly), f.Times, f.Outcome)
	}
	for _, fault := range answer.Errors {
		_, _ = fmt.Fprintln(ts.Stdout(), "error", fault)
	}
	if len(answer.Findings)+len(answer.Errors) == 0 {
		_, _ = fmt.Fprintln(ts.Stdout(), "all agrees")
	}
	return nil
}
