package e2e

import (
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// noLinks checks that neither end of the container is there.
func (r *rig) noLinks(c *testutil.Container) {
	r.Helper()
	if names := c.LinkNames(r); len(names) != 1 || r.hasHostLink(c) {
		r.Errorf("links in the container %v; the host end is there: %v", names, r.hasHostLink(c))
	}
}

func TestLateADDOfUnknownContainer(t *testing.T) {
	for name, restart := range map[string]func(*rig){
		"the same agent":                 func(*rig) {},
		"another agent":                  func(r *rig) { r.agent.Restart(r) },
		"a DEL while there was no agent": nil,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c := testutil.NewContainer(t)
			late := r.hold(nil, addOf(c))
			if restart == nil {
				r.agent.Kill(t)
				r.cni.MustDel(t, c)
				r.agent.Start(t)
			} else {
				r.cni.MustDel(t, c)
				restart(r)
			}
			err := late.goOn()
			failedAs(t, err, codeTryAgainLater)
			failedWith(t, err, "it was deleted meanwhile")
			r.noLinks(c)
			r.nothingLeft()
			r.add(c) // begins after the DEL, and is a new life
			r.cni.MustDel(t, c)
			r.nothingLeft()
		})
	}
}

func TestLateADD(t *testing.T) {
	r := newRig(t)
	p := r.pod()
	late := r.hold(nil, addOf(p.Container))
	r.cni.MustDel(t, p.Container)
	again := r.add(p.Container)
	failedAs(t, late.goOn(), codeTryAgainLater)
	r.alone("after the late ADD", 1, again)
	if err := r.cni.Check(p.Container); err != nil {
		t.Errorf("CHECK: %v", err)
	}
}

func TestLateDEL(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ between, after func(*rig) }{
		"with an agent":                  {func(*rig) {}, func(*rig) {}},
		"with another agent":             {func(r *rig) { r.agent.Restart(r) }, func(*rig) {}},
		"without an agent":               {func(r *rig) { r.agent.Kill(r) }, func(r *rig) { r.agent.Start(r) }},
		"with an agent that hangs":       {func(r *rig) { r.signal(unix.SIGSTOP) }, func(r *rig) { r.signal(unix.SIGCONT) }},
		"with an agent that comes again": {func(r *rig) { r.agent.Kill(r); r.agent.Start(r) }, func(r *rig) { r.agent.Restart(r) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			witness, p := r.pod(), r.pod()
			late := r.hold(map[string]any{"timeout": "1s"}, delOf(p.Container))
			r.cni.MustDel(t, p.Container)
			again := r.add(p.Container)
			traffic := r.pingPong(witness, again, again.ipv4)
			c.between(r)
			if err := late.goOn(); err != nil {
				t.Errorf("the late DEL: %v", err)
			}
			if !r.hasHostLink(p.Container) {
				t.Error("the late DEL has removed the link")
			}
			c.after(r)
			r.alone("after the late DEL", 2, again)
			traffic.end()
			if traffic.lost > 0 {
				t.Errorf("lost %d of %d datagrams", traffic.lost, traffic.there)
			}
			r.cni.MustDel(t, p.Container)
			r.cni.MustDel(t, witness.Container)
			r.nothingLeft()
		})
	}
}
