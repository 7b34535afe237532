package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/kubernetes/records"
	"porin.dev/porin/internal/testutil"
)

// checked runs "porin ipam check", whose exit code says whether all agrees.
func (r *rig) checked(flags ...string) (answer v1.Doctor) {
	r.Helper()
	done := r.cli(append([]string{"ipam", "check", "-o", "json"}, flags...)...)
	if err := json.Unmarshal([]byte(done.out), &answer); err != nil {
		r.Fatalf("porin ipam check: %v: %s%s", err, done.out, done.err)
	}
	if failed := len(answer.Findings)+len(answer.Errors) > 0; failed != (done.code == 1) {
		r.Errorf("porin ipam check: exit code %d: %s%s", done.code, done.out, done.err)
	}
	return answer
}

// namesOf are the kinds of the findings, in order.
func namesOf(findings []v1.Finding) string {
	var names []string
	for _, f := range findings {
		names = append(names, f.Kind)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (r *rig) wantChecked(answer v1.Doctor, repaired, found string) {
	r.Helper()
	if got := namesOf(answer.Repaired); got != repaired {
		r.Errorf("repaired %q, want %q: %+v", got, repaired, answer.Repaired)
	}
	if got := namesOf(answer.Findings); got != found || len(answer.Errors) > 0 {
		r.Errorf("found %q, want %q: %+v %v", got, found, answer.Findings, answer.Errors)
	}
}

// blockOf is the block of an address.
func blockOf(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, 26).Masked() }

// otherBlocks are two that an address is not in.
func otherBlocks(addr netip.Addr) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range []string{"10.64.0.0/26", "10.64.0.64/26", "10.64.0.128/26"} {
		if block := netip.MustParsePrefix(text); !block.Contains(addr) {
			all = append(all, block)
		}
	}
	return all[:2]
}

func TestIPAMCheckRepair(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	r := api.newRig("--node-name=one", "--doctor-interval=0s")
	p := r.pod()
	r.wantChecked(r.checked(), "", "")
	if done := r.cli("ipam", "check"); done.code != 0 || !strings.HasPrefix(done.out, "All agrees, ") {
		t.Errorf("exit code %d: %s%s", done.code, done.out, done.err)
	}

	// The store loses the block of the pod's address, and has another one that the node knows nothing of.
	own, others := blockOf(p.ipv4), otherBlocks(p.ipv4)
	behind := api.backend
	was, err := behind.Blocks.Get(t.Context(), own)
	if err == nil {
		err = behind.Blocks.Delete(t.Context(), own, was.Claim)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.wantChecked(r.checked(), "", "block-missing")
	unknown := was
	unknown.CIDR, unknown.Claim = others[0], "unknown"
	if err := behind.Blocks.Create(t.Context(), unknown); err != nil {
		t.Fatal(err)
	}
	if answer := r.checked("--repair"); namesOf(answer.Repaired) != "block-missing block-unknown" {
		t.Errorf("repaired %+v", answer.Repaired)
	}
	testutil.Eventually(t, func() error { // a block that is lost begins a recovery
		if done := api.asAdmin("ipam", "recover", "--end"); done.code != 0 {
			return fmt.Errorf("porin ipam recover --end: %+v", done)
		}
		return nil
	})
	r.agreesSoon()
	if now, err := behind.Blocks.Get(t.Context(), own); err != nil || now.Owner != was.Owner || now.Claim != was.Claim {
		t.Errorf("the pod's block is %+v, %v", now, err)
	}

	// Porin removes its own route that leads to no endpoint, and leaves alone a route of another program and an address
	// of the node.
	free := own.Addr()
	for free == p.ipv4 {
		free = free.Next()
	}
	host, theirs := r.host(p.Container), free.Next().Next()
	if theirs == p.ipv4 || theirs.Next() == p.ipv4 {
		theirs = p.ipv4.Next()
	}
	stray, lo, taken := testutil.HostRoute(host.Index, theirs, unix.RTPROT_STATIC), testutil.LinkAt(1), testutil.Address(prefixOf(theirs.Next()))
	handle := r.node.Netlink(t)
	err = errors.Join(
		handle.RouteAdd(testutil.HostRoute(host.Index, free, testutil.RouteProtocol)),
		handle.RouteAdd(stray), handle.AddrAdd(lo, taken),
	)
	if err != nil {
		t.Fatal(err)
	}
	r.wantChecked(r.checked("--repair"), "route-orphan", "address-foreign address-foreign")
	if err := errors.Join(handle.RouteDel(stray), handle.AddrDel(lo, taken)); err != nil {
		t.Fatal(err)
	}
	r.wantChecked(r.checked(), "", "")

	// An unreadable block, and a block of a pool that does not exist, are for a person.
	gone := was
	gone.CIDR, gone.Pool, gone.Owner.Name, gone.Claim = netip.MustParsePrefix("10.99.0.0/26"), "gone", "two", "gone"
	if err := behind.Blocks.Create(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	api.Put(map[string]any{
		"apiVersion": records.Version.String(), "kind": "PorinBlock", "metadata": map[string]any{"name": cluster.BlockName(others[1])}, "spec": map[string]any{"claim": "?"},
	})
	r.wantChecked(r.checked("--repair"), "", "block-orphan block-unreadable block-without-pool")

	// Without the store nothing is said to agree.
	r.server.stop()
	done := r.cli("ipam", "check", "--repair")
	if done.code != 1 || !strings.Contains(done.out, "Not examined:  multipool: ") || strings.Contains(done.out, "All agrees") {
		t.Errorf("without the API server: exit code %d: %s%s", done.code, done.out, done.err)
	}
}

// agreesSoon waits until porin ipam check finds nothing.
func (r *rig) agreesSoon() {
	r.Helper()
	testutil.Eventually(r, func() error {
		if answer := r.checked(); len(answer.Findings)+len(answer.Errors) > 0 {
			return fmt.Errorf("%+v %v", answer.Findings, answer.Errors)
		}
		return nil
	})
}

// TestIPAMCheckNewPrefixes: a pod keeps an address that is in no prefix any more.
func TestIPAMCheckNewPrefixes(t *testing.T) {
	r := newRig(t)
	r.pod()
	r.wantChecked(r.checked(), "", "")
	r.agent.Kill(t)
	r.agent.Configure("--ipam-pod-cidr=10.77.0.0/24,fd00:77::/64")
	r.agent.Start(t)
	r.wantChecked(r.checked(), "", "")
}

func TestReservationCommands(t *testing.T) {
	r := newRig(t)
	got := decoded[v1.Reservation](r, "ipam", "reserve", "--owner", "move", "--expires", "5m")
	wanted := got.Addresses.IPv4
	if !wanted.IsValid() || got.Token == "" {
		t.Fatalf("reserved %+v", got)
	}
	if done := r.cli("ipam", "release", wanted.String(), "--token", "another"); done.code != 1 {
		t.Errorf("another token: exit code %d: %s", done.code, done.err)
	}
	r.wantChecked(r.checked(), "", "")
	if was := decoded[v1.Reservation](r, "ipam", "release", wanted.String(), "--token", got.Token); was.Owner != "move" {
		t.Errorf("released %+v", was)
	}
	if done := r.cli("ipam", "release", wanted.String()); done.code != 3 {
		t.Errorf("twice: exit code %d: %s", done.code, done.err)
	}
}
