package crash

import (
	"errors"
	"net/http"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/test/nodecheck"
)

// agentAdd: an ADD whose agent dies is answered by the next one.
func agentAdd(s *scene) operation {
	var (
		c   *testutil.Container
		add *pendingAdd
	)
	return operation{
		victim:  s.agents,
		prepare: func() error { c = s.fresh(0); return nil },
		run:     func() { add = s.startAdd(c) },
		judge: func() error {
			if err := errors.Join(s.agentDies(), s.restart()); err != nil {
				return err
			}
			pod, err := add.wait()
			if err != nil {
				return err
			}
			return errors.Join(s.check("after the restart", []nodecheck.Pod{pod}), s.gone(c))
		},
	}
}

// agentSupersede: of two containers of one pod, the newer one's ADD retires the older. Both together are there never.
func agentSupersede(s *scene) operation {
	var (
		older, newer *testutil.Container
		add          *pendingAdd
	)
	return operation{
		victim: s.agents,
		prepare: func() error {
			older, newer = s.fresh(0), s.fresh(1)
			newer.Args = older.Args
			_, err := s.add(older)
			return err
		},
		run: func() { add = s.startAdd(newer) },
		judge: func() error {
			if err := errors.Join(s.agentDies(), s.restart()); err != nil {
				return err
			}
			pod, err := add.wait()
			if err != nil {
				return err
			}
			return errors.Join(s.check("after the restart", []nodecheck.Pod{pod}), s.del(older),
				s.check("after the DEL of the older", []nodecheck.Pod{pod}), s.gone(newer, older))
		},
	}
}

// pendingAdd is an ADD that may still wait for an agent.
type pendingAdd struct {
	done chan struct{}
	pod  nodecheck.Pod
	err  error
}

// startAdd starts an ADD, and returns when it has ended or the agent was hit.
func (s *scene) startAdd(c *testutil.Container) *pendingAdd {
	a := &pendingAdd{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.pod, a.err = s.add(c)
	}()
	for {
		select {
		case <-a.done:
			return a
		case <-time.After(time.Millisecond):
			if s.agents.wasHit() {
				return a
			}
		}
	}
}

// wait returns the result of the ADD.
func (a *pendingAdd) wait() (nodecheck.Pod, error) {
	<-a.done
	return a.pod, a.err
}

// agentDel: DEL succeeds whatever becomes of the agent, and what it took down does not come back.
func agentDel(s *scene) operation {
	var (
		c   *testutil.Container
		err error
	)
	return operation{
		victim: s.agents,
		prepare: func() error {
			c = s.fresh(0)
			_, err := s.add(c)
			return err
		},
		run: func() { err = s.del(c) },
		judge: func() error {
			if err := errors.Join(err, s.agentDies(), s.restart()); err != nil {
				return err
			}
			return errors.Join(s.check("after the restart", nil), s.gone(c))
		},
	}
}

// agentBatch: each interface of the container is there as a whole, or gone.
func agentBatch(s *scene) operation {
	var first, second *testutil.Container
	return operation{
		victim: s.agents,
		prepare: func() (err error) {
			first, second, err = s.twoInterfaces()
			return err
		},
		run: func() {
			_ = s.agent.Do(http.MethodDelete, "/v1/endpoint", v1.DeleteRequest{ContainerID: first.ID}, nil)
		},
		judge: func() error {
			if err := errors.Join(s.agentDies(), s.restart()); err != nil {
				return err
			}
			return errors.Join(s.check("after the restart", nil, first, second), s.gone(first, second))
		},
	}
}

// twoInterfaces attaches a container twice.
func (s *scene) twoInterfaces() (first, second *testutil.Container, err error) {
	first = s.fresh(0)
	second = &testutil.Container{Namespace: first.Namespace, ID: first.ID, IfName: "eth1", Args: first.Args}
	_, err1 := s.add(first)
	_, err2 := s.add(second)
	return first, second, errors.Join(err1, err2)
}

// agentGC: each stale attachment is there as a whole, or gone, and the next GC removes it.
func agentGC(s *scene) operation {
	var stale [2]*testutil.Container
	return operation{
		victim: s.agents,
		prepare: func() (err error) {
			stale, err = s.stale()
			return err
		},
		run: func() { _ = s.gc() },
		judge: func() error {
			if err := errors.Join(s.agentDies(), s.restart()); err != nil {
				return err
			}
			return errors.Join(s.check("after the restart", nil, stale[:]...), s.gc(), s.gone(stale[:]...))
		},
	}
}

// stale attaches two containers that the runtime will know nothing about.
func (s *scene) stale() (stale [2]*testutil.Container, err error) {
	for i := range stale {
		stale[i] = s.fresh(i)
		_, one := s.add(stale[i])
		err = errors.Join(err, one)
	}
	return stale, err
}
