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
	Until time.Duration `json:"until"` // on the boot clock
	Parts []memoPart    `json:"parts"`
	Pools []Pool        `json:"pools"` // of the parts
}

type memoPart struct {
	Pool   string       `json:"pool"`
	Block  netip.Prefix `json:"block"` // the whole of it
	Prefix netip.Prefix `json:"prefix"`
}

// readMemo returns what is in the file, if it may be relied on now. The boot clock begins anew with each boot, so a file
// of an earlier one says a time that is far ahead of it: no memo reaches further than the fence.
func readMemo(path string, now, fence time.Duration) (memo, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return memo{}, false
	}
	var m memo
	if err := json.Unmarshal(text, &m); err != nil || m.Until <= now || m.Until > now+fence {
		return memo{}, false
	}
	return m, true
}

// write replaces the file, as a whole or not at all.
func (m memo) write(path string) error {
	text, err := json.Marshal(m)
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("note the own blocks: %w", err)
	}
	return nil
}

// recall gives out from what the memo says until the store is there.
func (m *Manager) recall() {
	known, ok := readMemo(m.cfg.MemoPath, m.clock(), m.cfg.fence())
	if !ok {
		return
	}
	for _, pool := range known.Pools {
		m.local.Configure(pool)
	}
	for _, p := range known.Parts {
		m.own.doubts[slotID{p.Pool, p.Block}] = true
		m.warn(m.local.Add(p.Pool, p.Prefix), "a block of the last time cannot be given out from")
	}
	m.local.Until(known.Until)
	m.noted = known
}

// note writes the memo when it says something new, or its time is about to be over.
func (m *Manager) note() error {
	var parts []memoPart
	for _, h := range m.own.holdings() {
		parts = append(parts, memoPart{h.pool, h.block, h.part})
	}
	return m.writeMemo(parts)
}

// forgo writes the memo without a part, before that is given up: an agent that is killed then does not rely on it.
func (m *Manager) forgo(pool string, given netip.Prefix) error {
	var parts []memoPart
	for _, p := range m.noted.Parts {
		if p.Pool == pool && p.Prefix.Overlaps(given) {
			continue // of which half is kept is not relied on either, until it is noted again
		}
		parts = append(parts, p)
	}
	return m.writeMemo(parts)
}

func (m *Manager) writeMemo(parts []memoPart) error {
	if m.cfg.MemoPath == "" {
		return nil
	}
	now := memo{Until: m.clock() + m.cfg.fence(), Parts: parts}
	for _, name := range slices.Sorted(maps.Keys(m.pools)) {
		now.Pools = append(now.Pools, m.pools[name])
	}
	same := slices.Equal(now.Parts, m.noted.Parts) && reflect.DeepEqual(now.Pools, m.noted.Pools)
	if same && now.Until-m.noted.Until < m.cfg.fence()/10 {
		return nil
	}
	if err := now.write(m.cfg.MemoPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	m.noted = now
	return nil
}
