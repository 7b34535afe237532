package supervisor_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/restored"
	"porin.dev/porin/internal/task"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// cell tells how it is.
type cell struct{ condition supervisor.Condition }

func (c *cell) Condition() supervisor.Condition { return c.condition }

// started returns a supervisor that runs until the end of the test, and what it was told of a task that ended.
func started(t *testing.T, barrier *restored.Barrier, tasks []*task.Task, cells ...supervisor.HealthReporter) (*supervisor.Supervisor, <-chan error) {
	t.Helper()
	s, err := supervisor.New(supervisor.DefaultConfig(), quiet, barrier, tasks, cells)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	if err := s.Start(t.Context(), func(err error) { failed <- err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s, failed
}

// probe returns the status code of an endpoint of a kubelet's, and the body.
func probe(s *supervisor.Supervisor, path string) (int, string) {
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestTasksWaitForRestore(t *testing.T) {
	barrier, ran := restored.New(), make(chan struct{}, 1)
	started(t, barrier, []*task.Task{task.Every(quiet, task.Round{Name: "x", Run: func(context.Context) error { ran <- struct{}{}; return nil }}),
		task.Every(quiet, task.Round{Name: "y", Interval: testutil.Patience, Run: func(context.Context) error {
			if !barrier.IsOpen() {
				t.Error("a task runs before everything is restored")
			}
			ran <- struct{}{}
			return nil
		}})})
	barrier.Open()
	<-ran
}

func TestTaskEnds(t *testing.T) {
	no := errors.New("no")
	_, failed := started(t, restored.Opened(), []*task.Task{task.Forever(quiet, "x", func(context.Context) error { return no })})
	if err := <-failed; !errors.Is(err, no) {
		t.Errorf("told %v, want %v", err, no)
	}
}

func TestTasksOfOneName(t *testing.T) {
	one := func() *task.Task { return task.Forever(quiet, "x", func(context.Context) error { return nil }) }
	if _, err := supervisor.New(supervisor.DefaultConfig(), quiet, restored.Opened(), []*task.Task{one(), one()}, nil); err == nil {
		t.Error("two tasks of one name were accepted")
	}
}

func TestProbes(t *testing.T) {
	one := &cell{supervisor.Condition{Cell: "ledger", State: supervisor.OK}}
	s, _ := started(t, restored.Opened(), nil, one)
	if code, body := probe(s, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "starting") {
		t.Errorf("before the API serves: readyz %d %q", code, body)
	}
	if code, _ := probe(s, "/livez"); code != http.StatusOK {
		t.Errorf("before the API serves: livez %d", code)
	}
	s.Serving()
	for state, want := range map[supervisor.State]int{
		supervisor.OK: http.StatusOK, supervisor.Degraded: http.StatusOK, supervisor.Failing: http.StatusServiceUnavailable,
	} {
		one.condition.State, one.condition.Reason = state, "the reason"
		for _, path := range []string{"/livez", "/readyz"} {
			if code, body := probe(s, path); code != want || !strings.Contains(body, "ledger: "+string(state)+": the reason\n") {
				t.Errorf("%s of an agent that is %s: %d %q, want %d", path, state, code, body, want)
			}
		}
		status := v1.Status{Ready: true}
		if s.Report(&status); status.Ready != (want == http.StatusOK) || status.Health.State != string(state) || len(status.Health.Cells) != 2 {
			t.Errorf("the status of an agent that is %s has ready %v, %+v", state, status.Ready, status.Health)
		}
	}
	s.Stopping()
	if code, _ := probe(s, "/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("while it stops: readyz %d", code)
	}
}

func TestFailingTaskDegrades(t *testing.T) {
	ran := make(chan struct{})
	one := task.Every(quiet, task.Round{Name: "x", Run: func(context.Context) error { ran <- struct{}{}; return errors.New("no") }})
	s, _ := started(t, restored.Opened(), []*task.Task{one})
	for want := range 3 {
		if state := stateOfTasks(s); state != supervisor.OK {
			t.Errorf("after %d failures it is %s", want, state)
		}
		one.Trigger()
		<-ran
		testutil.Eventually(t, func() error {
			if got := one.Status().Failures; got != want+1 {
				return errors.New("the round has not ended")
			}
			return nil
		})
	}
	if state := stateOfTasks(s); state != supervisor.Degraded {
		t.Errorf("after 3 failures it is %s", state)
	}
}

func stateOfTasks(s *supervisor.Supervisor) supervisor.State {
	for _, c := range s.Conditions() {
		if c.Cell == "tasks" {
			return c.State
		}
	}
	return ""
}

func TestValidate(t *testing.T) {
	for address, valid := range map[string]bool{"": true, "127.0.0.1:9092": true, ":9092": true, "9092": false, "127.0.0.1:nowhere": false} {
		if err := (supervisor.Config{Address: address}).Validate(); (err == nil) != valid {
			t.Errorf("%q: %v", address, err)
		}
	}
}
