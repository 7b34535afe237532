package crash

import (
	"path/filepath"
	"testing"
)

// TestReadOnlyCalls holds CHECK and STATUS to it that they change nothing. STATUS asks whether the ledger can be
// written, and there is one way to know.
func TestReadOnlyCalls(t *testing.T) {
	s := newScene(t, 1)
	for name, verb := range map[string]struct {
		call func() error
		on   string // a file that may be written
	}{
		"CHECK":  {call: func() error { return s.cni.Check(s.live[0].Container) }},
		"STATUS": {call: s.cni.Status, on: "ledger.db"},
	} {
		s.agents.arm(never)
		s.plugins.arm(never)
		if err := verb.call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		s.quiet()
		talks := 0
		for _, side := range []*tracer{s.agents, s.plugins} {
			seen, _, err := side.state()
			if err != nil {
				t.Error(err)
			}
			for _, e := range seen {
				if e.talk {
					talks++
				} else if filepath.Base(e.on) != verb.on {
					t.Errorf("%s has an effect: %s", name, e)
				}
			}
		}
		if talks < 2 { // a question and its answer: else the check has read nothing
			t.Errorf("%s: %d messages seen", name, talks)
		}
	}
}
