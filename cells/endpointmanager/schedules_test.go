package endpointmanager_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/endpoint"
)

var (
	schedules    = flag.Int("schedules", 1000, "how many schedules TestSchedules tries")
	scheduleSeed = flag.Uint64("schedules.seed", 0, "try this schedule alone, and tell what happens in it")
)

// TestSchedules runs the cells on a fake kernel, clock and disk, with ADD, DEL, late ADD, second DEL, supersession, GC,
// PATCH, repair, restart, deadline and failure interleaved at random, and checks each against a small model. A failure
// names its seed:
//
//	go test ./cells/endpointmanager -run TestSchedules -schedules.seed=SEED
func TestSchedules(t *testing.T) {
	if *scheduleSeed != 0 {
		log, err := trySchedule(t, *scheduleSeed, scratch(t))
		t.Log(strings.Join(log, "\n"))
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	var parts sync.WaitGroup
	var tally tally
	workers := runtime.GOMAXPROCS(0)
	for part := range workers {
		dir := scratch(t)
		parts.Go(func() {
			for seed := part + 1; seed <= *schedules && !t.Failed(); seed += workers {
				log, err := trySchedule(t, uint64(seed), dir)
				if err != nil {
					t.Errorf("schedule %d: %v\n%s", seed, err, strings.Join(log, "\n"))
				}
				tally.count(log)
			}
		})
	}
	parts.Wait()
	t.Log(tally.String())
}

// tally counts what happened in all schedules, so that the output shows how much they try.
type tally struct {
	mu                                                                                       sync.Mutex // guards the fields below
	schedules, effects, kills, failures, added, refused, served, prepared, changed, repaired int
}

func (c *tally) count(log []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.schedules++
	for _, line := range log {
		switch {
		case strings.Contains(line, "kernel.Proxy.Prepare") && strings.HasSuffix(line, ": <nil>"):
			c.prepared++
		case strings.HasPrefix(line, "the change of") && strings.HasSuffix(line, "ends: <nil>"):
			c.changed++
		case strings.HasPrefix(line, "the repair of") && strings.HasSuffix(line, "ends: <nil>"):
			c.repaired++
		case strings.HasSuffix(line, "is killed"):
			c.kills++
		case strings.HasSuffix(line, "serves"):
			c.served++
		case strings.Contains(line, "deleted meanwhile"), strings.Contains(line, "taken its place"):
			c.refused++
		case strings.HasPrefix(line, "ADD") && strings.HasSuffix(line, "ends: <nil>"):
			c.added++
		case strings.HasSuffix(line, errInjected.Error()):
			c.failures++
		case strings.HasSuffix(line, ": <nil>"):
			c.effects++
		}
	}
}

func (c *tally) String() string {
	return fmt.Sprintf("%d schedules, %d effects, %d starts of the agent, %d kills, %d failures of the kernel or the disk; %d ADDs succeeded, %d were refused as late; %d changes of labels and %d repairs; "+
		"the proxy got layer 7 rules %d times",
		c.schedules, c.effects, c.served, c.kills, c.failures, c.added, c.refused, c.changed, c.repaired, c.prepared)
}

// TestScheduleDeterministic is what makes a seed worth anything.
func TestScheduleDeterministic(t *testing.T) {
	dir := scratch(t)
	for seed := uint64(1); seed <= 100; seed++ {
		first, _ := trySchedule(t, seed, dir)
		second, _ := trySchedule(t, seed, dir)
		if !slices.Equal(first, second) {
			for i := range min(len(first), len(second)) {
				if first[i] != second[i] {
					t.Fatalf("schedule %d differs at %d: %q, then %q", seed, i, first[i], second[i])
				}
			}
			t.Fatalf("schedule %d has %d steps, then %d", seed, len(first), len(second))
		}
	}
}

// scratch is a folder in memory where there is one: a schedule writes few files, but there are many schedules.
func scratch(t *testing.T) string {
	if dir, err := os.MkdirTemp("/dev/shm", "schedules"); err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		return dir
	}
	return t.TempDir()
}

// trySchedule returns what happened, and what was wrong with it.
func trySchedule(t *testing.T, seed uint64, scratch string) (log []string, err error) {
	return tryFaulty(t, seed, scratch, simFault{})
}

func tryFaulty(t *testing.T, seed uint64, scratch string, fault simFault) (log []string, err error) {
	dir := filepath.Join(scratch, fmt.Sprint(seed))
	defer func() { _ = os.RemoveAll(dir) }()
	synctest.Test(t, func(*testing.T) {
		s := newScheduler(seed)
		r := &simRuntime{simNode: newSimNode(s, dir, fault), labels: map[int][]*labelChange{}}
		err = r.play()
		r.end()
		log = s.log
	})
	return log, err
}

// simRuntime is a container runtime, and the hand that lets things happen.
type simRuntime struct {
	*simNode
	ops    []*simOp
	labels map[int][]*labelChange // by the link of the endpoint, in their order
	cookie uint64                 // of the next call's network namespace; 0 is one of two
}

// podOf says to which pod a container belongs: two sandboxes each.
var podOf = map[string]string{"c1": "u1", "c2": "u1", "c3": "u2", "c4": "u2"}

// play runs one schedule.
func (r *simRuntime) play() error {
	r.start()
	if r.rng.IntN(4) > 0 {
		if err := r.drain(); err != nil {
			return err
		}
	}
	for range 4 + r.rng.IntN(8) {
		r.next()
		for range r.rng.IntN(12) {
			if err := r.step(); err != nil {
				return err
			}
		}
	}
	return r.finish()
}

// next begins another call, or has something else happen.
func (r *simRuntime) next() {
	switch choice := r.rng.IntN(29); {
	case choice < 8:
		r.call("ADD")
	case choice < 14:
		r.call("DEL")
	case choice < 15 && r.idle():
		r.call("GC")
	case choice < 17:
		if r.current() != nil {
			r.crash()
		} else {
			r.start()
		}
	case choice < 18:
		if running := r.running(); len(running) > 0 {
			r.killPlugin(running[r.rng.IntN(len(running))])
		}
	case choice < 21:
		r.changePolicies()
	case choice < 24:
		r.changeLabels()
	case choice < 26:
		r.repair()
	case choice < 27:
		r.repeat()
	default:
		time.Sleep(time.Duration(1+r.rng.IntN(20)) * time.Second)
	}
}

// call begins a call of the plugin.
func (r *simRuntime) call(verb string) *simOp {
	containers := []string{"c1", "c2", "c3", "c4"}
	return r.callFor(verb, containers[r.rng.IntN(len(containers))])
}

func (r *simRuntime) callFor(verb, container string) *simOp {
	time.Sleep(time.Millisecond) // no two calls begin at the same time
	o := &simOp{
		process: &process{name: fmt.Sprintf("%s%d(%s)", verb, len(r.ops)+1, container), slow: r.rng.IntN(4) == 0},
		verb:    verb, pod: podOf[container],
		attachment: endpoint.Attachment{ContainerID: container, IfName: "eth0"},
		began:      r.boot(), timeout: time.Duration(1+r.rng.IntN(30)) * time.Second, cookie: 1 + r.rng.Uint64N(2),
	}
	if r.cookie != 0 {
		o.cookie = r.cookie
	}
	r.ops = append(r.ops, o)
	r.say("%s begins at %s", o.name, o.began)
	switch verb {
	case "ADD":
		go r.add(o)
	case "DEL":
		go r.del(o)
	case "GC":
		o.valid = r.attached()
		go r.collect(o)
	}
	return o
}

// repeat begins a DEL of something that is attached, and then the same ADD again, which spares it: in whatever order
// they come.
func (r *simRuntime) repeat() {
	container := slices.Sorted(maps.Keys(podOf))[r.rng.IntN(len(podOf))]
	born, is := r.lifeOf(endpoint.Attachment{ContainerID: container, IfName: "eth0"})
	if is != alive {
		return
	}
	r.callFor("DEL", container)
	r.cookie = born.cookie
	r.callFor("ADD", container)
	r.cookie = 0
}

// step lets one effect happen, if any waits, and checks what must hold at any time.
func (r *simRuntime) step() error {
	if r.settle() > 0 {
		r.release(r.choose())
		r.settle()
	}
	return r.check()
}

// finish lets everything come to its end: the runtime deletes what it does not know to be attached, as one does.
func (r *simRuntime) finish() error {
	r.calm()
	if r.rng.IntN(2) == 0 && r.current() != nil {
		r.crash() // perhaps while it begins
	}
	if r.current() == nil {
		r.start()
	}
	if err := r.drain(); err != nil {
		return err
	}
	attached := r.attached()
	for _, container := range sortedContainers() {
		a := endpoint.Attachment{ContainerID: container, IfName: "eth0"}
		if !attached[a] {
			r.deleteUntilDone(container)
		}
	}
	if err := r.drain(); err != nil {
		return err
	}
	if err := r.compare(); err != nil {
		return err
	}
	for _, container := range sortedContainers() {
		r.deleteUntilDone(container)
	}
	if err := r.drain(); err != nil {
		return err
	}
	return r.compare()
}

// deleteUntilDone is what a runtime does.
func (r *simRuntime) deleteUntilDone(container string) {
	for range 5 {
		o := r.callFor("DEL", container)
		_ = r.drain()
		if _, _, err := o.outcome(); err == nil {
			return
		}
	}
}

// drain lets all effects happen and all timers fire.
func (r *simRuntime) drain() error {
	for range 40 {
		for r.settle() > 0 {
			if err := r.step(); err != nil {
				return err
			}
		}
		if r.idle() && r.serves() != nil && r.quiet() {
			return r.check()
		}
		time.Sleep(5 * time.Second)
	}
	return fmt.Errorf("it does not come to an end: %d calls, agent %v", len(r.running()), r.current())
}

// quiet reports whether no deletion waits for its next try.
func (r *simRuntime) quiet() bool {
	for _, ep := range r.serves().table.List() {
		if ep.State != endpoint.Ready {
			return false
		}
	}
	return true
}

// end lets the bubble end.
func (r *simRuntime) end() {
	for _, o := range r.running() {
		r.killPlugin(o)
	}
	if r.current() != nil {
		r.crash()
	}
	synctest.Wait()
	time.Sleep(time.Hour)
}

func (r *simRuntime) running() (list []*simOp) {
	for _, o := range r.ops {
		if _, ended, _ := o.outcome(); !ended && !r.isDead(o.process) {
			list = append(list, o)
		}
	}
	return list
}

// idle reports whether no call is under way, in a plugin, or in the agent for a plugin that was killed.
func (r *simRuntime) idle() bool {
	for _, o := range r.ops {
		if _, ended, _ := o.outcome(); !ended {
			return false
		}
	}
	return true
}
