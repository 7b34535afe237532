package endpointmanager_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
)

// errDead is what a process that was killed hears at its next effect, which therefore does not happen. It hears it at
// all only because a goroutine cannot be killed.
var errDead = errors.New("the process was killed")

// errInjected is a failure of the kernel or the disk.
var errInjected = errors.New("the kernel said no")

// scheduler decides which of the effects that are about to happen is next. Everything between two effects is one step:
// so a schedule is a list of choices, and the same seed makes the same ones.
type scheduler struct {
	rng *rand.Rand

	mu       sync.Mutex // guards the fields below
	waiting  []*point
	failures int // that may still be injected
	log      []string
}

// point is an effect that waits for its turn.
type point struct {
	name    string
	process *process
	proceed chan error
}

// process is something that can be killed: an agent or a plugin.
type process struct {
	name string
	slow bool // its effects mostly wait for all other effects: races need a late process
	dead bool // guarded by the scheduler's lock
}

func newScheduler(seed uint64) *scheduler {
	rng := rand.New(rand.NewPCG(seed, 0x706f72))
	return &scheduler{rng: rng, failures: rng.IntN(3)}
}

// pass waits until it is the turn of an effect of the process. An error means that it must not happen.
func (s *scheduler) pass(p *process, effect string) error {
	s.mu.Lock()
	if p.dead {
		s.mu.Unlock()
		return errDead
	}
	at := &point{name: p.name + " " + effect, process: p, proceed: make(chan error, 1)}
	s.waiting = append(s.waiting, at)
	s.mu.Unlock()
	return <-at.proceed
}

// settle waits until nothing moves, and returns how many effects wait, in an order that does not depend on how the
// goroutines came there.
func (s *scheduler) settle() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortStableFunc(s.waiting, func(a, b *point) int { return strings.Compare(a.name, b.name) })
	return len(s.waiting)
}

// choose picks one of the waiting effects.
func (s *scheduler) choose() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var quick []int
	for i, at := range s.waiting {
		if !at.process.slow {
			quick = append(quick, i)
		}
	}
	if len(quick) == 0 || s.rng.IntN(40) == 0 {
		return s.rng.IntN(len(s.waiting))
	}
	return quick[s.rng.IntN(len(quick))]
}

// release lets one of the waiting effects happen, or fail.
func (s *scheduler) release(i int) {
	s.mu.Lock()
	at := s.waiting[i]
	s.waiting = slices.Delete(s.waiting, i, i+1)
	var err error
	if s.failures > 0 && at.mayFail() && s.rng.IntN(30) == 0 {
		s.failures--
		err = errInjected
	}
	s.note("%s: %v", at.name, err)
	s.mu.Unlock()
	at.proceed <- err
}

// mayFail spares effects that have no retry: the removal of leftovers, and the plugin, which is killed instead.
func (p *point) mayFail() bool {
	return strings.Contains(p.name, "kernel.") && !strings.Contains(p.name, "Prune") || strings.Contains(p.name, "ledger.")
}

// kill ends a process: none of its effects happens any more.
func (s *scheduler) kill(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.dead = true
	s.note("%s is killed", p.name)
	s.waiting = slices.DeleteFunc(s.waiting, func(at *point) bool {
		if at.process == p {
			at.proceed <- errDead
		}
		return at.process == p
	})
}

func (s *scheduler) isDead(p *process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.dead
}

// note expects the lock.
func (s *scheduler) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

// say is note without the lock.
func (s *scheduler) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(format, args...)
}

// calm ends the failures.
func (s *scheduler) calm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = 0
}

// brokenPromise returns the line of the log that tells of one, or "".
func (s *scheduler) brokenPromise() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.log, func(line string) bool { return strings.Contains(line, "breaks a promise") }); i >= 0 {
		return s.log[i]
	}
	return ""
}
