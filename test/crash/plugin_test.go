package crash

import (
	"errors"

	"porin.dev/porin/internal/testutil"
)

// pluginAdd: the runtime's DEL removes whatever there is of an ADD that was cut short.
func pluginAdd(s *scene) operation {
	var c *testutil.Container
	return operation{
		victim:  s.plugins,
		prepare: func() error { c = s.fresh(0); return nil },
		run:     func() { _, _ = s.add(c) },
		judge:   func() error { return s.gone(c) },
	}
}

// pluginDel: the runtime's next DEL ends what was cut short.
func pluginDel(s *scene) operation {
	var c *testutil.Container
	return operation{
		victim: s.plugins,
		prepare: func() error {
			c = s.fresh(0)
			_, err := s.add(c)
			return err
		},
		run:   func() { _ = s.del(c) },
		judge: func() error { return s.gone(c) },
	}
}

// restarting is the operation with a new agent before the runtime's DEL. To it, each attachment is whole or gone.
func restarting(of func(*scene) operation) func(*scene) operation {
	return func(s *scene) operation {
		o := of(s)
		judge := o.judge
		o.judge = func() error {
			return errors.Join(s.restart(), s.check("after the restart", nil, s.guests...), judge())
		}
		return o
	}
}

// away is the operation without an agent.
func away(of func(*scene) operation) func(*scene) operation {
	return func(s *scene) operation {
		o := of(s)
		prepare := o.prepare
		o.prepare = func() error {
			err := prepare()
			s.agent.End()
			return err
		}
		return o
	}
}

// again is the operation with the runtime's DEL while there is no agent yet. To the next one there is nothing left.
func again(of func(*scene) operation) func(*scene) operation {
	return func(s *scene) operation {
		o := of(s)
		judge := o.judge
		o.judge = func() error {
			err := s.del(s.guests[0])
			return errors.Join(err, s.restart(), s.check("after the restart", nil), judge())
		}
		return o
	}
}

// pluginGC: the next GC removes the leftovers of an interrupted one.
func pluginGC(s *scene) operation {
	var stale [2]*testutil.Container
	return operation{
		victim: s.plugins,
		prepare: func() (err error) {
			stale, err = s.stale()
			return err
		},
		run: func() { _ = s.gc() },
		judge: func() error {
			return errors.Join(s.check("after the kill", nil, stale[:]...), s.gc(), s.gone(stale[:]...))
		},
	}
}
