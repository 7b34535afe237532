package crash

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// operation is what is interrupted at every effect of victim.
type operation struct {
	victim  *tracer
	prepare func() error // makes the state before the operation
	run     func()       // the operation that may be interrupted
	judge   func() error // what must be so after
	// only says at which effects it is interrupted; nil is at all.
	only func(effect) bool
}

var every = flag.Int("every", 96, "kill at every Nth effect, the first one at random; 1: at every effect")

const (
	maxPoints     = 500 // an operation with more does not end
	maxViolations = 10  // of an operation, after which it is given up
)

// enumerate runs the operation with a kill at one effect after the other, until it ends without having been killed.
// Where something is wrong, the rest goes on in another scene.
func enumerate(t *testing.T, name string, set func() *scene, of func(*scene) operation) (points, violations int) {
	s := set()
	o := of(s)
	for k := 1 + rand.IntN(*every); k <= maxPoints; k += *every {
		seen, hit, err := o.once(s, k)
		points++
		if err != nil {
			violations++
			t.Errorf("%s, point %d, killed %s:\n%v", name, k, where(hit), err)
			if violations == maxViolations {
				t.Fatalf("%s: given up after %d violations", name, violations)
			}
			s = set()
			o = of(s)
		}
		if hit == nil {
			fmt.Printf("crash matrix: %s: %d points, %d violations: %s\n", name, points, violations, histogram(seen))
			return points, violations
		}
	}
	t.Fatalf("%s: %d effects and no end", name, maxPoints)
	return points, violations
}

// once kills the victim at its kth effect.
func (o operation) once(s *scene, k int) (seen []effect, hit *effect, err error) {
	s.hit, s.guests = nil, nil
	if err := o.prepare(); err != nil {
		return nil, nil, fmt.Errorf("prepare: %w", err)
	}
	o.victim.arm(nth(k, o.only))
	o.run()
	if o.victim == s.agents && !o.victim.wasHit() {
		s.quiet()
	}
	seen, s.hit, _ = o.victim.state()
	o.victim.arm(nil)
	err = o.judge()
	_, _, broken := o.victim.state()
	return seen, s.hit, errors.Join(err, broken)
}

func where(hit *effect) string {
	if hit == nil {
		return "after the last effect"
	}
	return "before " + hit.String()
}

// histogram counts effects by kind.
func histogram(seen []effect) string {
	count := map[string]int{}
	for _, e := range seen {
		count[e.kind()]++
	}
	kinds := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%d %s", count[kind], kind)
	}
	return strings.Join(kinds, ", ")
}

// quiet waits until the agent does nothing more: an effect may come after the answer.
func (s *scene) quiet() {
	const looks, between = 3, 3 * time.Millisecond
	for still, deadline := 0, time.Now().Add(reach); still < looks && time.Now().Before(deadline); time.Sleep(between) {
		before, hit, _ := s.agents.state()
		if hit != nil || !s.agent.Running() {
			return
		}
		idle := asleep(s.agent.PID())
		if after, _, _ := s.agents.state(); idle && len(after) == len(before) {
			still++
		} else {
			still = 0
		}
	}
}

// asleep says whether every thread of the process waits for something to happen.
func asleep(pid int) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	return !slices.ContainsFunc(files, func(file string) bool {
		text, _ := os.ReadFile(file)
		_, rest, _ := strings.Cut(string(text), ") ")
		return !strings.HasPrefix(rest, "S")
	})
}
