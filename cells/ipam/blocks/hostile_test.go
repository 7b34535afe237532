package blocks

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/store"
)

const hostileKey = blocksPrefix + "default/10.0.0.0_18/10.0.0.0_26"

// parts is the value of a block with these parts.
func parts(list ...[2]string) []byte {
	var texts []string
	for _, p := range list {
		texts = append(texts, fmt.Sprintf(`{"prefix":%q,"node":%q}`, p[0], p[1]))
	}
	return []byte(`{"version":1,"parts":[` + strings.Join(texts, ",") + `]}`)
}

func TestABlockThatSaysWhatCannotBeIsNobodysToClaimOrToGiveOut(t *testing.T) {
	many := make([][2]string, 10_000)
	for i := range many {
		many[i] = [2]string{"10.0.0.0/28", "node-1"}
	}
	for what, value := range map[string][]byte{
		"a part outside":            parts([2]string{"10.9.0.0/26", "node-1"}),
		"a part that has the block": parts([2]string{"10.0.0.0/24", "node-1"}),
		"a part of one address":     parts([2]string{"10.0.0.1/32", "node-1"}),
		"a part that is no prefix":  parts([2]string{"10.0.0.1/28", "node-1"}),
		"no part":                   []byte(`{"version":1,"parts":[{"node":"node-1"}]}`),
		"another family":            parts([2]string{"fd00::/122", "node-1"}),
		"two owners":                parts([2]string{"10.0.0.0/27", "node-1"}, [2]string{"10.0.0.0/28", "node-2"}),
		"ten thousand parts":        parts(many...),
		"no node":                   parts([2]string{"10.0.0.0/27", ""}, [2]string{"10.0.0.32/27", "node-1"}),
		"a node with a slash":       parts([2]string{"10.0.0.0/27", "a/b"}, [2]string{"10.0.0.32/27", "node-1"}),
		"a node of two lines":       parts([2]string{"10.0.0.0/27", "a\nb"}, [2]string{"10.0.0.32/27", "node-1"}),
		"no JSON":                   []byte(strings.Repeat("[", 64<<10)),
	} {
		c := readCensus([]store.Entry{{Key: hostileKey, Value: value, Revision: 7}})
		got := c[slotID{"default", netip.MustParsePrefix("10.0.0.0/26")}]
		if !got.opaque || len(got.Parts) > 0 || got.revision != 7 {
			t.Errorf("%s: %+v", what, got)
		}
	}
	c := readCensus([]store.Entry{{Key: hostileKey, Value: parts([2]string{"10.0.0.32/27", "node-1"}, [2]string{"10.0.0.0/28", "node-2"}), Revision: 7}})
	if got := c[slotID{"default", netip.MustParsePrefix("10.0.0.0/26")}]; got.opaque || len(got.Parts) != 2 {
		t.Errorf("what is sound: %+v", got)
	}
}

func TestABlockOfAnImpossibleSizeIsNone(t *testing.T) {
	for _, key := range []string{"10.0.0.0_8", "10.0.0.0_15", "10.0.0.0_31", "fd00::_64", "::_0"} {
		prefix := netip.MustParsePrefix(strings.ReplaceAll(key, "_", "/"))
		if prefix.Bits() < shardBits {
			continue
		}
		e := store.Entry{Key: slotKey("default", prefix), Value: parts([2]string{prefix.String(), "node-1"}), Revision: 7}
		if _, err := decodeSlot(e); err == nil {
			t.Errorf("%s is taken for a block", e.Key)
		}
	}
}

// TestPoolsThatCannotBeAreNotTakenOver: the node goes on with those that it knew.
func TestPoolsThatCannotBeAreNotTakenOver(t *testing.T) {
	good := pool("default", "10.0.0.0/16")
	tiny := pool("tiny", "10.1.0.0/16")
	tiny.IPv4BlockBits = 4
	wide := pool("wide", "10.1.0.0/16")
	wide.IPv6BlockBits = 200
	slim := pool("slim", "10.1.0.0/30")
	for what, list := range map[string][]Pool{
		"addresses twice":    {good, pool("other", "10.0.64.0/24")},
		"in one pool twice":  {pool("default", "10.0.0.0/16", "10.0.1.0/24")},
		"a name twice":       {good, pool("default", "10.1.0.0/16")},
		"blocks of 4 bits":   {good, tiny},
		"blocks of 200 bits": {good, wide},
		"less than a block":  {good, slim},
		"no prefix at all":   {good, {Name: "none", Prefixes: []netip.Prefix{{}}, IPv4BlockBits: 26, IPv6BlockBits: 122}},
		"a name with a path": {good, pool("../nodes", "10.1.0.0/16")},
	} {
		e := store.Entry{Key: poolsKey, Value: encode(poolList{list})}
		if _, err := decodePools(e); !errors.Is(err, errUnreadable) {
			t.Errorf("%s: error %v", what, err)
		}
		n := newNotices()
		n.setPools([]Pool{good})
		n.take(store.Event{Type: store.Put, Entry: e})
		n.take(store.Event{Type: store.Resync, Entries: []store.Entry{e}})
		if names := n.poolNames(); !slices.Equal(names, []string{"default"}) || n.pools["default"].Prefixes[0] != good.Prefixes[0] {
			t.Errorf("%s: the node knows %v", what, n.pools)
		}
	}
}

// TestPoolsThatCannotBeReadTakeNothingFromANode: it lives, keeps its blocks and gives out from them.
func TestPoolsThatCannotBeReadTakeNothingFromANode(t *testing.T) {
	ctx, s, block := t.Context(), embedded(t), netip.MustParsePrefix("10.0.0.0/26")
	m, local := holder(t, "node-1", s, block)
	was, err := s.Get(ctx, poolsKey)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CompareAndSwap(ctx, poolsKey, was.Revision, []byte(`{"version":2}`)); err != nil {
		t.Fatal(err)
	}
	m.round(ctx)
	if m.lease == nil || len(local.blocks) != 1 || local.until <= 0 {
		t.Errorf("lease %v, it gives out from %v until %s", m.lease, local.blocks, local.until)
	}
}

// TestAMillionWantsAreNoWork that grows with them.
func TestAMillionWantsAreNoWork(t *testing.T) {
	var entries []store.Entry
	value := encode(want{Node: "a", Owners: -1 << 62})
	for i := range 1_000_000 {
		entries = append(entries, store.Entry{Key: wantKey("default", ipv4, fmt.Sprint("node-", i)), Value: value})
	}
	m := manage(t, "node-1", embedded(t))
	m.notices.take(store.Event{Type: store.Resync, Entries: entries})
	for _, e := range entries[:1000] {
		m.notices.take(store.Event{Type: store.Put, Entry: e})
	}
	began := time.Now()
	const times = 20
	for range times {
		m.demanded("default", ipv4)
	}
	if took := time.Since(began) / times; len(m.notices.wants) > mostWants || took > 50*time.Millisecond {
		t.Errorf("%d are kept, and a look at them takes %s", len(m.notices.wants), took)
	}
}

func TestANodesNameIsOneOfAKey(t *testing.T) {
	for name, ok := range map[string]bool{"node-1": true, "node-1.example.com": true, "a/b": false, "a\nb": false, "A": false, "": false} {
		cfg := DefaultConfig()
		cfg.Node = name
		if err := cfg.Validate(); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
