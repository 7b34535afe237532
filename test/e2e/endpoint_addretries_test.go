package e2e

import (
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// signal sends one to the agent.
func (r *rig) signal(s unix.Signal) {
	r.Helper()
	if err := unix.Kill(r.agent.PID(), s); err != nil {
		r.Fatal(err)
	}
}

// undoTime is how long the plugin may take beyond its timeout, for the undo of an ADD.
const undoTime = 5 * time.Second

// within makes the call, which may take so long, and not more than a second longer.
func within(t *testing.T, limit time.Duration, call func() error) error {
	t.Helper()
	began := time.Now()
	err := call()
	if took := time.Since(began); took > limit+time.Second {
		t.Errorf("it took %v", took)
	}
	return err
}

func TestAgentHangs(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	r := newRig(t, "--doctor-interval=0s")
	impatient := r.node.NewCNI(t, testutil.CNIConfig{Bin: testutil.Build(t), Plugin: map[string]any{"timeout": timeout.String()}})
	p, c := r.pod(), testutil.NewContainer(t)
	r.signal(unix.SIGSTOP)
	var calls sync.WaitGroup
	calls.Go(func() {
		failedAs(t, within(t, timeout+undoTime, func() error { _, err := impatient.Add(c); return err }), codeTryAgainLater)
	})
	calls.Go(func() {
		if err := within(t, timeout, func() error { return impatient.Del(p.Container) }); err != nil || len(r.recorded()) != 1 {
			t.Errorf("DEL: %v, records %v; want success and a record", err, r.recorded())
		}
	})
	calls.Wait()
	r.noLinks(p.Container)
	if names := c.LinkNames(t); len(names) != 1 {
		t.Errorf("links after a failed ADD: %v", names)
	}
	r.signal(unix.SIGCONT)
	r.agrees() // about what both callers have given up
	r.nothingLeft()
	for _, container := range []*testutil.Container{p.Container, c} {
		r.cni.MustDel(t, container)
	}
	r.nothingLeft()
}

func TestSameADDConcurrently(t *testing.T) {
	r := newRig(t)
	c := testutil.NewContainer(t)
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() { _, _ = r.cni.Add(c) }) // whoever began later takes the link of the one before
	}
	calls.Wait()
	p := r.add(c)
	if err := testutil.Ping(p.Namespace, r.node.IPv6, reach); err != nil {
		t.Error(err)
	}
	if all := r.endpoints(); len(all) != 1 || all[0].State != "ready" {
		t.Errorf("endpoints: %+v", all)
	}
	for range 8 {
		calls.Go(func() {
			if err := r.cni.Del(c); err != nil {
				t.Errorf("DEL: %v", err)
			}
		})
	}
	calls.Wait()
	r.nothingLeft()
}

func TestADDBeganBeforeDEL(t *testing.T) {
	r := newRig(t)
	var began unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &began); err != nil {
		t.Fatal(err)
	}
	p := r.pod()
	old := r.endpoints()[0]
	r.cni.MustDel(t, p.Container)
	// The plugin of an ADD whose runtime has given it up.
	request := v1.EndpointRequest{Network: "porin", Began: began.Nano()}
	if _, err := r.api.CreateEndpoint(t.Context(), p.ID, "eth0", p.File(), request); err == nil {
		t.Errorf("it was let in: %+v", r.endpoints())
	}
	if r.node.HasLink(t, old.Host.Index) {
		t.Errorf("link %d is there", old.Host.Index)
	}
	r.add(p.Container) // an ADD that begins after it is a new life
	r.cni.MustDel(t, p.Container)
	r.nothingLeft()
}
