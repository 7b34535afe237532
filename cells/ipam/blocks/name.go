package blocks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/store"
	"porin.dev/porin/internal/fault"
)

// ErrNameTaken is that another agent has the name of this node: what either owns would be the other's as well. It may be
// this node's own before a boot, and is over with its lease then.
var ErrNameTaken = fault.New(fault.Conflict, "another agent has this node's name")

// identity is who this node is, among all agents of its name.
type identity struct {
	agent string // drawn by the first of its lives in this boot
	rival rival
	taken taken // for any goroutine: another agent has the node's name
}

// rival is another agent of this node's name, as it was seen.
type rival struct {
	agent string
	last  time.Duration // when it was seen last
	seen  time.Duration // for how long, as far as the store was asked
	told  time.Duration // when the log said so last
}

// lives tells whether it was there for longer than what a boot leaves behind, whose lease ends in its time.
func (r rival) lives(ttl time.Duration) bool { return r.seen > 3*ttl }

// identify has this agent be the one of the memo, when that is of this boot: its earlier lives are no rivals. A folder that
// was copied to another machine makes no other agent the same.
func identify(noted string) string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without one, no agent is the same after its end
	suffix := "." + strings.TrimSpace(string(boot))
	if len(suffix) > 1 && strings.HasSuffix(noted, suffix) {
		return noted
	}
	return rand.Text() + suffix
}

// checkName asks the store whether another agent has this node's name.
func (m *Manager) checkName(ctx context.Context) error {
	e, err := m.store.Get(ctx, nodesPrefix+m.cfg.Node)
	switch {
	case err == nil:
		return m.notMine(e)
	case !errors.Is(err, store.ErrNotFound):
		return err
	case m.rival.lives(m.cfg.LeaseTTL) && m.clock()-m.rival.last < m.cfg.Grace:
		return m.yield(fmt.Sprintf("it was there %s ago, and has its blocks for %s yet", (m.clock() - m.rival.last).Round(time.Second), m.cfg.Grace))
	}
	m.rival = rival{}
	m.taken.Store(nil)
	return nil
}

// notMine is nil for what this agent, or an earlier life of it, has said of the node.
func (m *Manager) notMine(e store.Entry) error {
	said, err := store.Decode[presence](e, version)
	if err == nil && said.Agent == m.agent || store.Alone(m.store) {
		m.taken.Store(nil)
		return nil
	}
	now := m.clock()
	if said.Agent != m.rival.agent {
		m.rival = rival{agent: said.Agent, last: now, told: m.rival.told}
	} else if gap := now - m.rival.last; gap <= 2*m.cfg.Interval {
		m.rival.seen += gap
	}
	m.rival.last = now
	return m.yield("it lives, or did until its lease ends in " + m.cfg.LeaseTTL.String())
}

// tellAgain is how often the log says the same.
const tellAgain = time.Minute

// yield has this node give nothing out any more, and its next agent rely on nothing.
func (m *Manager) yield(why string) error {
	err := fmt.Errorf("%w, %s: %s; give each agent a --node-name of its own", ErrNameTaken, m.cfg.Node, why)
	m.local.Until(0)
	m.taken.Store(&err)
	m.warn(m.writeMemo(nil, m.own.doubts), "the next agent may give out what another owns")
	if now := m.clock(); m.rival.told == 0 || now-m.rival.told >= tellAgain {
		m.rival.told = now
		m.log.Error("this node gives out no address", "error", err)
	}
	return err
}

// taken is an [ErrNameTaken], or nil, for who asks from another goroutine.
type taken struct{ atomic.Pointer[error] }

func (t *taken) err() error {
	if p := t.Load(); p != nil {
		return *p
	}
	return nil
}

// NameTaken is an [ErrNameTaken] as long as another agent has this node's name, and else nil. It does not block.
func (m *Manager) NameTaken() error { return m.taken.err() }

// source tells STATUS whether the node may give out addresses at all.
type source struct{ manager *Manager }

// Resources implements [capacity.Source].
func (s source) Resources() []capacity.Resource {
	return []capacity.Resource{{Name: "node-name", Err: s.manager.taken.err()}}
}
