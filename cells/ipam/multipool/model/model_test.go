package model

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// limit is above the largest search. A search that meets it has proved nothing, and the test fails.
const limit = 6_000_000

// The situations that are searched, each to the end.
var (
	claims       = bounds{nodes: 2, claims: 2, copies: true, restarts: 1, reboots: 1}
	claimsOf3    = bounds{nodes: 3, claims: 2, copies: true, restarts: 1, reboots: 1}
	deletion     = bounds{nodes: 2, claims: 2, copies: true, restarts: 1, reboots: 1, removals: 1, orphans: true}
	replaced     = bounds{nodes: 3, claims: 1, copies: true, restarts: 1, reboots: 1, removals: 1, orphans: true, replaced: true, late: nodeC}
	poolOnly     = bounds{nodes: 2, claims: 2, restarts: 1, pools: true, poolLost: true}
	poolAll      = bounds{nodes: 2, claims: 2, copies: true, restarts: 1, reboots: 1, pools: true, poolLost: true}
	restored     = bounds{nodes: 2, claims: 2, restarts: 1, reboots: 1, restore: true}
	known        = bounds{nodes: 2, claims: 2, restarts: 1, restore: true, known: true}
	restored3    = bounds{nodes: 3, claims: 1, restarts: 1, restore: true, known: true, late: nodeC}
	unmarked     = bounds{nodes: 2, claims: 2, restarts: 1, reboots: 1, restore: true, known: true, unmarked: true}
	bumped       = bounds{nodes: 2, claims: 2, restarts: 1, reboots: 1, restore: true, known: true, bumped: true}
	twiceBack    = bounds{nodes: 2, claims: 1, createCopies: true, restarts: 1, reboots: 1, restore: true, known: true}
	lateBack     = bounds{nodes: 2, claims: 2, copies: true, restarts: 1, restore: true, lateRequests: true}
	poolsBack    = bounds{nodes: 2, claims: 1, restore: true, known: true, pools: true}
	poolsBack2   = bounds{nodes: 2, claims: 1, copies: true, restarts: 1, reboots: 1, restore: true, known: true, pools: true}
	deleteBack   = bounds{nodes: 2, claims: 2, reboots: 1, restore: true, known: true, removals: 1, orphans: true}
	lateDelete   = bounds{nodes: 2, claims: 2, reboots: 1, restore: true, known: true, removals: 1, lateRequests: true}
	createsTwice = bounds{nodes: 2, claims: 2, createCopies: true, copies: true, reboots: 1, removals: 1}
	most         = bounds{nodes: 2, claims: 2, restarts: 1, reboots: 1, restore: true, known: true, removals: 1, orphans: true}
)

func TestMain(m *testing.M) {
	debug.SetMemoryLimit(1200 << 20)
	os.Exit(m.Run())
}

// quick reports whether only the smaller searches run.
func quick() bool { return !testutil.Full() }

// search logs the bounds and the number of states.
func search(t *testing.T, r rules, b bounds) (*explorer, result) {
	t.Helper()
	began := time.Now()
	x := &explorer{rules: r, bounds: b}
	found := x.explore(limit)
	t.Logf("%d states in %v, counterexample of %d steps, all visited: %v, bounds %+v",
		found.states, time.Since(began).Round(time.Millisecond), len(found.trace), found.complete, b)
	return x, found
}

func TestDesign(t *testing.T) {
	for _, c := range []struct {
		name   string
		bounds bounds
		large  bool
	}{
		{name: "claim", bounds: claims},
		{name: "claim, three nodes", bounds: claimsOf3, large: true},
		{name: "node delete", bounds: deletion},
		{name: "replaced machine and node delete", bounds: replaced},
		{name: "pool change", bounds: poolOnly},
		{name: "pool change with reboots", bounds: poolAll, large: true},
		{name: "restore", bounds: restored, large: true},
		{name: "restore, a third node is new", bounds: restored3, large: true},
		{name: "restore that only nodes notice", bounds: unmarked},
		{name: "restore whose position tells nothing", bounds: bumped},
		{name: "restore, creates arrive twice", bounds: twiceBack, large: true},
		{name: "restore and pool change", bounds: poolsBack},
		{name: "restore and pool change with reboots", bounds: poolsBack2, large: true},
		{name: "restore and node delete", bounds: deleteBack},
		{name: "restore, node delete and restarts", bounds: most, large: true},
		{name: "a create is sent twice with one claim ID", bounds: createsTwice},
		{name: "a second copy of a delete arrives after the restore", bounds: lateBack, large: true},
		{name: "restore and node delete, late requests", bounds: lateDelete, large: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.large && quick() {
				t.Skip("a large search: make model runs it")
			}
			_, found := search(t, designRules(), c.bounds)
			if found.trace != nil {
				t.Fatalf("two machines use one address:\n%s", strings.Join(found.trace, "\n"))
			}
			if !found.complete {
				t.Fatalf("not all states were visited: more than %d", limit)
			}
		})
	}
}

// TestRulesNeeded takes out one rule at a time.
func TestRulesNeeded(t *testing.T) {
	for _, c := range []struct {
		rule    string
		bounds  bounds
		without func(*rules)
		large   bool
	}{
		{"1 only a create makes an owner", claims, func(r *rules) { r.createMakesOwner = false }, false},
		{"2a delete by claim ID, not by name", claims, func(r *rules) { r.deleteByClaim = false }, false},
		{"2b delete by claim ID, not by revision", restored, func(r *rules) { r.noRevision = false }, true},
		{"3 random claim IDs", claims, func(r *rules) { r.randomClaims = false }, false},
		{"4a a give-back is on disk first", claims, func(r *rules) { r.releaseOnDiskFirst = false }, false},
		{"4b the store's position is on disk", unmarked, func(r *rules) { r.positionOnDisk = false }, false},
		{"5 read the pool after a create", poolOnly, func(r *rules) { r.readPool = false }, false},
		{"7 read the cluster record after a create", restored, func(r *rules) { r.readClusterRecord = false }, false},
		{"8 recovery is a durable mark", restored, func(r *rules) { r.durableMark = false }, false},
		{"9 no end before every node has written", restored, func(r *rules) { r.noTimeLimit = false }, false},
		{"10 a node with a conflict has not written", restored, func(r *rules) { r.conflictUnsettled = false }, false},
		{"11 wait for all nodes, not only those in the store", restored, func(r *rules) { r.waitForAll = false }, false},
		{"13 incarnations", replaced, func(r *rules) { r.incarnations = false }, false},
		{"14 node delete: compare-and-swap on the session", deletion, func(r *rules) { r.sessionGuards = false }, false},
		{"15a a claim is created again", restored, func(r *rules) { r.createAgain = false }, false},
		{"15b no new address in a conflict", restored, func(r *rules) { r.conflictStops = false }, false},
		{"16 a comparison after a boot", deletion, func(r *rules) { r.compareAfterBoot = false }, false},
		{"17 no overlap with older pool UIDs", poolOnly, func(r *rules) { r.refuseOverlap = false }, false},
		{"18 the block is read before its owner's record", deletion, func(r *rules) { r.blocksBeforeNodes = false }, false},
		{"19 a node with a block of a pool that is not accepted has not written", poolsBack, func(r *rules) { r.poolUnsettled = false }, false},
		{"20 after a boot the checkpoint from before a restore is void", deleteBack, func(r *rules) { r.restoreVoids = false }, true},
		{"21 after a boot the checkpoint of a node whose record is gone is void", deletion, func(r *rules) { r.deletionVoids = false }, false},
		{"4c, if only the checkpoint counts: a claim is on disk first", claims, func(r *rules) { r.renewInUse, r.claimOnDiskFirst = true, false }, false},
	} {
		t.Run(c.rule, func(t *testing.T) {
			if c.large && quick() {
				t.Skip("a large search: make model runs it")
			}
			r := designRules()
			c.without(&r)
			_, found := search(t, r, c.bounds)
			if found.trace == nil {
				t.Fatal("no counterexample: in these bounds the rule is not needed, or the model is wrong")
			}
			t.Logf("two machines use one address:\n%s", strings.Join(found.trace, "\n"))
		})
	}
}

// TestLimits shows what the rules do not cover. A limit that is gone belongs into TestDesign.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name   string
		bounds bounds
	}{
		{"no mark, and a node that is new", bounds{nodes: 3, claims: 1, restore: true, known: true, late: nodeC, unmarked: true}},
		{"no mark, and a position that tells nothing", bounds{nodes: 2, claims: 2, restore: true, known: true, unmarked: true, bumped: true}},
		{"the administrator ends a recovery by force", bounds{nodes: 2, claims: 2, restore: true, force: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, found := search(t, designRules(), c.bounds)
			if found.trace == nil {
				t.Fatal("no counterexample: the limit is gone")
			}
			t.Logf("two machines use one address:\n%s", strings.Join(found.trace, "\n"))
		})
	}
}

func TestNoBlockLost(t *testing.T) {
	anyStep := func(*step) bool { return true }
	for name, b := range map[string]bounds{"claim": claims, "node delete": deletion, "restore": known, "pool": poolOnly} {
		x, _ := search(t, designRules(), b)
		if lost, trace := x.lostForGood(owned, anyStep); lost > 0 {
			t.Errorf("%s: in %d states no node can own a block any more:\n%s", name, lost, strings.Join(trace, "\n"))
		}
	}
}

func owned(s *state) bool {
	for _, n := range s.nodes {
		if n.life == up && n.check == checked && !n.leaving && n.memory != [maxBlocks]claim{} && s.store.recovery != recoveryBegun {
			return true
		}
	}
	return false
}

// TestRecoveryEnds: the recovery can end while all pods run on, if nodes delete what carries their own name and is not
// theirs.
func TestRecoveryEnds(t *testing.T) {
	notRecovering := func(s *state) bool { return s.store.recovery != recoveryBegun }
	podsStay := func(to *step) bool { return to.what != podEnds && to.what != machineGoesDown }
	for _, deleteOwn := range []bool{true, false} {
		r := designRules()
		r.deleteOwnUnknown = deleteOwn
		x, _ := search(t, r, known)
		stuck, trace := x.lostForGood(notRecovering, podsStay)
		t.Logf("deleteOwnUnknown %v: in %d states the recovery cannot end before a pod ends:\n%s", deleteOwn, stuck, strings.Join(trace, "\n"))
		if (stuck == 0) != deleteOwn {
			t.Errorf("deleteOwnUnknown %v: %d states", deleteOwn, stuck)
		}
	}
}
