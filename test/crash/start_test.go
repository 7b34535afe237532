package crash

import (
	"context"
	"errors"
	"os"

	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/test/nodecheck"
)

// agentFirstStart: whatever a start leaves that was cut short, the next one works.
func agentFirstStart(s *scene) operation {
	c := s.fresh(0)
	return operation{
		victim: s.agents,
		prepare: func() error {
			s.agent.End()
			return errors.Join(os.RemoveAll(s.node.StateDir), os.RemoveAll(s.node.BPFRoot), os.RemoveAll(s.node.Socket))
		},
		run: func() { _ = s.agent.TryStart() },
		judge: func() error {
			if err := errors.Join(s.agentDies(), s.restart(), s.check("after the restart", nil)); err != nil {
				return err
			}
			c = s.fresh(0)
			pod, err := s.add(c)
			if err != nil {
				return err
			}
			return errors.Join(s.check("after an ADD", []nodecheck.Pod{pod}), s.gone(c))
		},
	}
}

// agentRestore: live endpoints come back, half made ones are undone, and endpoints deleted meanwhile are gone.
func agentRestore(s *scene) operation {
	var half, deleted *testutil.Container
	return operation{
		victim: s.agents,
		prepare: func() (err error) {
			half, deleted = s.fresh(0), s.fresh(1)
			if _, err := s.add(deleted); err != nil {
				return err
			}
			if err := s.halfMade(half); err != nil {
				return err
			}
			return s.del(deleted) // no agent answers: it leaves a record
		},
		run: func() { _ = s.agent.TryStart() },
		judge: func() error {
			if err := errors.Join(s.agentDies(), s.restart()); err != nil {
				return err
			}
			return errors.Join(s.check("after the restart", nil), s.gone(half, deleted))
		},
	}
}

// halfMade leaves the record of an ADD whose agent died before it attached the programs, and the link.
func (s *scene) halfMade(c *testutil.Container) error {
	s.agents.arm(when("RTM_NEWQDISC"))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		if s.agent.Ended(reach) {
			cancel() // or the plugin waits for another agent
		}
	}()
	if _, err := s.cni.AddContext(ctx, c); err == nil {
		return errors.New("ADD succeeded, and nobody was killed")
	}
	if !s.agents.wasHit() {
		return errors.New("the agent came to no such effect")
	}
	if !s.agent.Ended(reach) {
		return errors.New("the agent lives though it was killed")
	}
	s.agents.arm(nil)
	return nil
}

// agentResize: the next start continues with the maps as they are, and no entry is lost.
func agentResize(s *scene) operation {
	sizes := []string{"--max-endpoints=2048", "--max-endpoints=1024"}
	return operation{
		victim: s.agents,
		prepare: func() error {
			s.agent.End()
			s.agent.Configure(s.flags(sizes[0])...)
			sizes[0], sizes[1] = sizes[1], sizes[0]
			return nil
		},
		run: func() { _ = s.agent.TryStart() },
		judge: func() error {
			if err := errors.Join(s.agentDies(), s.restart()); err != nil {
				return err
			}
			return s.check("after the restart", nil)
		},
	}
}

// agentStop: an agent that is asked to end may be killed at any point of its way out.
func agentStop(s *scene) operation {
	return operation{
		victim:  s.agents,
		prepare: func() error { return nil },
		run:     s.stop,
		judge: func() error {
			if err := errors.Join(s.agentDies(), s.restart()); err != nil {
				return err
			}
			return s.check("after the restart", nil)
		},
	}
}

// relapsing is the operation whose agent is killed once more in the next start: at its first effect, its eighth, its
// fifteenth and so on, by turns, up to its sixtieth.
func relapsing(of func(*scene) operation) func(*scene) operation {
	const stride, most = 7, 60
	return func(s *scene) operation {
		o := of(s)
		judge, k := o.judge, 1
		o.judge = func() error {
			if err := s.agentDies(); err != nil {
				return err
			}
			s.agents.arm(at(k))
			_ = s.agent.TryStart()
			if s.agents.wasHit() && !s.agent.Ended(reach) {
				return errors.New("the second agent lives though it was killed")
			}
			s.agents.arm(nil)
			s.agent.End() // it came so far as to serve
			k = (k+stride-1)%most + 1
			return judge()
		}
		return o
	}
}
