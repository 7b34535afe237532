package blocks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"time"
)

// memo is what this node owned when it last knew, and until when it may rely on that: an agent that starts while the store
// is away gives out from it. It is a file beside the ledger, and ends with the node's boot as that does.
type memo struct {
	Agent string        `json:"agent"` // whose memo it is
	Until time.Duration `json:"until"` // on the boot clock
	Parts []memoPart    `json:"parts"`
	// Doubts are blocks of which it may have something, and that are not relied on: it was about to claim or to give up some.
	Doubts []memoBlock `json:"doubts,omitempty"`
	Pools  []Pool      `json:"pools"` // of the parts
}

type memoBlock struct {
	Pool  string       `json:"pool"`
	Block netip.Prefix `json:"block"`
}

type memoPart struct {
	Pool   string       `json:"pool"`
	Block  netip.Prefix `json:"block"` // the whole of it
	Prefix netip.Prefix `json:"prefix"`
}

// readMemo returns what is in the file, and whether it may be relied on now. The boot clock begins anew with each boot, so a
// file of an earlier one says a time that is far ahead of it: no memo reaches further than the fence.
func readMemo(path string, now, fence time.Duration) (m memo, relied bool) {
	text, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(text, &m) != nil {
		return memo{}, false
	}
	return m, m.Until > now && m.Until <= now+fence
}

// halfWritten ends the name of a memo that is being written. An agent that is killed then leaves it.
const halfWritten = ".new"

// write replaces the file, as a whole or not at all.
func (m memo) write(path string) error {
	if path == "" {
		return nil
	}
	text, err := json.Marshal(m)
	if err == nil {
		err = os.WriteFile(path+halfWritten, text, 0o600)
	}
	if err == nil {
		err = os.Rename(path+halfWritten, path)
	}
	if err != nil {
		return fmt.Errorf("note the own blocks: %w", err)
	}
	return nil
}

// recall gives out from what the memo says until the store is there. What is in a memo that is too old is asked for first.
func (m *Manager) recall() {
	_ = os.Remove(m.cfg.MemoPath + halfWritten) // usually there is none
	known, relied := readMemo(m.cfg.MemoPath, m.clock(), m.cfg.fence())
	m.agent = identify(known.Agent)
	for _, pool := range known.Pools {
		m.local.Configure(pool)
		m.pools[pool.Name] = pool
	}
	for _, p := range known.Parts {
		m.own.doubts[slotID{p.Pool, p.Block}] = true
		m.warn(m.local.Add(p.Pool, p.Prefix), "a block of the last time cannot be given out from")
	}
	for _, d := range known.Doubts {
		m.own.doubts[slotID{d.Pool, d.Block}] = true
	}
	m.noted = known
	m.notices.setPools(known.Pools) // until it is told
	if relied && known.Agent == m.agent {
		m.local.Until(known.Until)
		return
	}
	m.noted.Agent, m.noted.Until = m.agent, 0
	m.warn(m.noted.write(m.cfg.MemoPath), "for the store the next agent is another node's")
}

// note writes the memo when it says something new, or its time is about to be over.
func (m *Manager) note() error { return m.writeMemo(m.reliable(), m.own.doubts) }

// reliable are the parts that the next agent may give out from. Of a block in doubt these are the ones that were noted
// before: what is about to be given up was taken out.
func (m *Manager) reliable() (parts []memoPart) {
	for _, h := range m.own.holdings() {
		part := memoPart{h.pool, h.block, h.part}
		if !m.own.doubts[h.slotID] || slices.Contains(m.noted.Parts, part) {
			parts = append(parts, part)
		}
	}
	return parts
}

// intend writes the memo before a block is claimed: an agent that is killed before it has noted the claim asks for it.
func (m *Manager) intend(at slotID) error { return m.writeMemo(m.reliable(), m.doubting(at)) }

// forgo writes the memo without a part, before that is given up: an agent that is killed then does not rely on it, and asks.
func (m *Manager) forgo(at slotID, given netip.Prefix) error {
	var parts []memoPart
	for _, p := range m.noted.Parts {
		if p.Pool == at.pool && p.Prefix.Overlaps(given) {
			continue // of which half is kept is not relied on either, until it is noted again
		}
		parts = append(parts, p)
	}
	return m.writeMemo(parts, m.doubting(at))
}

// doubting are the blocks in doubt, and one more.
func (m *Manager) doubting(at slotID) map[slotID]bool {
	doubts := maps.Clone(m.own.doubts)
	doubts[at] = true
	return doubts
}

func (m *Manager) writeMemo(parts []memoPart, doubts map[slotID]bool) error {
	if m.cfg.MemoPath == "" {
		return nil
	}
	now := memo{Agent: m.agent, Until: m.clock() + m.cfg.fence(), Parts: parts}
	for _, at := range slices.SortedFunc(maps.Keys(doubts), slotID.compare) {
		now.Doubts = append(now.Doubts, memoBlock{at.pool, at.block})
	}
	for _, name := range slices.Sorted(maps.Keys(m.pools)) {
		now.Pools = append(now.Pools, m.pools[name])
	}
	same := now.Agent == m.noted.Agent && slices.Equal(now.Parts, m.noted.Parts) && slices.Equal(now.Doubts, m.noted.Doubts) &&
		reflect.DeepEqual(now.Pools, m.noted.Pools)
	if same && now.Until-m.noted.Until < m.cfg.fence()/10 {
		return nil
	}
	if err := now.write(m.cfg.MemoPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	m.noted = now
	return nil
}
