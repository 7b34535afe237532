package plugin_test

import (
	"net/http"
	"testing"
	"time"

	"porin.dev/porin/cmd/cni/internal/agenttest"
	"porin.dev/porin/internal/testutil"
)

// TestUndoForbidsAnAddThatMayStillArriveAndNoOther tells when the deletion is said to begin, against the ADD.
func TestUndoForbidsAnAddThatMayStillArriveAndNoOther(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault agenttest.Fault
		args  string
		after time.Duration
	}{
		{"an ADD without an answer may arrive yet", agenttest.Hang, "", 1},
		{"one whose answer was lost is the same to the plugin", agenttest.Late, "", 1},
		{"an ADD that was answered has arrived, and may be tried again", agenttest.None, "IP=ff02::5", 0},
	} {
		w, ctr := newWorld(t), testutil.NewContainer(t)
		w.agent.Behave(func(b *agenttest.Behaviour) {
			b.Fault = func(r *http.Request) agenttest.Fault {
				if r.Method == http.MethodPut {
					return c.fault
				}
				return agenttest.None
			}
		})
		var add, del int64
		if a := w.call("ADD", ctr, map[string]any{"timeout": "100ms"}, "CNI_ARGS", c.args); a.code == 0 {
			t.Fatalf("%s: ADD succeeded: %s", c.name, a.stdout)
		}
		deletions := w.agent.Deletions()
		if len(deletions) != 1 || deletions[0].Timeout > 5*time.Second {
			t.Fatalf("%s: deletions %+v", c.name, deletions)
		}
		del = deletions[0].Began
		if c.fault != agenttest.Hang {
			add = w.agent.LastPut().Began
			if got := time.Duration(del - add); got != c.after {
				t.Errorf("%s: it began %d ns after the ADD, want %d", c.name, got, c.after)
			}
		}
		// The runtime's next ADD is welcome in any case.
		w.agent.Behave(func(b *agenttest.Behaviour) { b.Fault = nil })
		w.mustAdd(ctr, nil)
		if next := w.agent.LastPut().Began; next <= del {
			t.Errorf("%s: the next ADD began %d ns before the undo", c.name, del-next)
		}
	}
}

func TestDelSaysWhenItBegan(t *testing.T) {
	w, ctr := newWorld(t), testutil.NewContainer(t)
	w.mustAdd(ctr, nil)
	if a := w.call("DEL", ctr, nil); a.code != 0 {
		t.Fatal(a.stdout)
	}
	if d := w.agent.Deletions(); len(d) != 1 || d[0].Began <= w.agent.LastPut().Began {
		t.Errorf("deletions %+v, and the ADD began at %d", d, w.agent.LastPut().Began)
	}
}
