package e2e

import (
	"net/netip"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// promptly bounds what is not to wait for a store that hangs. A call to such a store takes 5 s, all else a fraction of
// a second on an idle machine.
const promptly = 4 * time.Second

func (r *rig) within(what string, limit time.Duration, do func()) {
	r.Helper()
	began := time.Now()
	do()
	took := time.Since(began)
	r.Logf("%-28s %s", what, took.Round(100*time.Microsecond))
	if took > limit {
		r.Errorf("%s took %s, want at most %s", what, took, limit)
	}
}

// addPromptly makes so many ADDs and DELs, none of which may wait for the API server.
func (r *rig) addPromptly(n int) {
	r.Helper()
	for range n {
		c := testutil.NewContainer(r)
		r.within("ADD", promptly, func() { r.cni.MustAdd(r, c) })
		r.within("DEL", promptly, func() { r.cni.MustDel(r, c) })
	}
}

// TestAPIServerHangs: the server accepts connections, and answers nothing. That is worse than no server.
func TestAPIServerHangs(t *testing.T) {
	t.Parallel()
	r := newAPI(t).newRig("--log-level=warn")
	r.pod()
	normal := r.agent.Started

	r.server.frontend.Hang()
	r.addPromptly(20)
	r.within("STATUS", promptly, func() {
		if err := r.cni.Status(); err != nil {
			t.Error(err)
		}
	})
	r.within("porin status", promptly, func() { r.cli("status") })
	r.within("porin doctor", promptly, func() { r.cli("doctor") })
	r.within("porin pool list", 2*promptly, func() { r.cli("pool", "list") })
	r.within("stop", promptly, func() { r.agent.Stop(t) })
	r.agent.Start(t)
	t.Logf("start: %s, with the API server hanging %s", normal, r.agent.Started)
	if r.agent.Started > 2*normal+promptly {
		t.Error("the start waits for the API server")
	}
	r.pod()
	r.within("stop after a start", promptly, func() { r.agent.Stop(t) })
	r.agent.Start(t)

	r.server.frontend.Resume()
	r.within("all agrees", 2*reach, r.agrees)
	r.server.putPool(v1.PoolSpec{Name: "blue", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.65.0.0/24")}})
	r.within("an ADD from a new pool", promptly, func() { r.add(asking(t, "", "PORIN_POOL=blue")) })
}
