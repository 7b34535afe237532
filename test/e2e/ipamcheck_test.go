package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/store/storetest"
	"porin.dev/porin/cells/store/storetest/etcdtest"
	"porin.dev/porin/internal/rtnl"
)

// checked runs "porin ipam check", whose exit code tells whether all agrees.
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

// blockOf is the block of an address, and blockKey where the store has it.
func blockOf(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, 26).Masked() }

func blockKey(block netip.Prefix) string {
	shard := netip.PrefixFrom(block.Addr(), block.Bits()-8).Masked() // blocks are kept 256 together
	text := func(prefix netip.Prefix) string { return strings.ReplaceAll(prefix.String(), "/", "_") }
	return "blocks/default/" + text(shard) + "/" + text(block)
}

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

func TestWhatIsBrokenBehindTheAgentsBackIsNamedByIPAMCheckAndMended(t *testing.T) {
	etcd := etcdtest.Start(t, nil)
	r := onEtcd(t, etcd, "--node-name=one", "--doctor-interval=0s")
	behind := storetest.Open(t, r.storeConfig(etcd))
	p := r.pod()
	r.wantChecked(r.checked(), "", "")
	if done := r.cli("ipam", "check"); done.code != 0 || !strings.HasPrefix(done.out, "All agrees: blocks of the cluster ") {
		t.Errorf("exit code %d: %s%s", done.code, done.out, done.err)
	}

	// The store loses the block that the pod's address is of, and has another one that the node knows nothing of.
	own, others := blockOf(p.ipv4), otherBlocks(p.ipv4)
	if err := behind.Delete(t.Context(), blockKey(own), 0); err != nil {
		t.Fatal(err)
	}
	r.wantChecked(r.checked(), "", "block-not-owned")
	value := fmt.Sprintf(`{"version":1,"parts":[{"prefix":%q,"node":"one"}]}`, others[0])
	if _, err := behind.Create(t.Context(), blockKey(others[0]), []byte(value), nil); err != nil {
		t.Fatal(err)
	}
	r.wantChecked(r.checked("--repair"), "block-not-held block-not-owned", "")
	r.wantChecked(r.checked(), "", "")
	if e, err := behind.Get(t.Context(), blockKey(own)); err != nil || !strings.Contains(string(e.Value), `"one"`) {
		t.Errorf("the pod's block is %s, %v", e.Value, err)
	}

	// A route of Porin's that leads to nobody is removed; one of others, and an address that the node takes, are not.
	free := own.Addr()
	for free == p.ipv4 {
		free = free.Next()
	}
	host, theirs := r.host(p.Container), others[0].Addr()
	stray := rtnl.Route{Dst: prefixOf(theirs), Link: host.Index, Scope: unix.RT_SCOPE_LINK, Protocol: unix.RTPROT_STATIC}
	err := r.node.Conn(t).Do(
		rtnl.AddRoute(rtnl.Route{Dst: prefixOf(free), Link: host.Index, Scope: unix.RT_SCOPE_LINK, Protocol: rtnl.Protocol}),
		rtnl.AddRoute(stray), rtnl.AddAddr(1, prefixOf(theirs.Next())),
	)
	if err != nil {
		t.Fatal(err)
	}
	r.wantChecked(r.checked("--repair"), "route-orphan", "address-foreign address-foreign")
	if err := r.node.Conn(t).Do(rtnl.DelRoute(stray), rtnl.DelAddr(1, prefixOf(theirs.Next()))); err != nil {
		t.Fatal(err)
	}
	r.wantChecked(r.checked(), "", "")

	// A block that nobody can read, and one of a pool that is none, are for a person.
	for key, value := range map[string]string{blockKey(others[1]): "?", "blocks/gone/10.99.0.0_18/10.99.0.0_26": `{"version":1,"parts":[{"prefix":"10.99.0.0/26","node":"two"}]}`} {
		if _, err := behind.Create(t.Context(), key, []byte(value), nil); err != nil {
			t.Fatal(err)
		}
	}
	r.wantChecked(r.checked("--repair"), "", "block-poolless block-unreadable")

	// Without the store nothing is said to agree.
	etcd.Stop()
	done := r.cli("ipam", "check", "--repair")
	if done.code != 1 || !strings.Contains(done.out, "Not examined:  blocks: ") || strings.Contains(done.out, "All agrees") {
		t.Errorf("without etcd: exit code %d: %s%s", done.code, done.out, done.err)
	}
	etcd.Start(t)
}

// storeConfig is the one of the rig's agent.
func (r *rig) storeConfig(etcd *etcdtest.Server) store.Config {
	cfg := etcd.Config()
	cfg.Etcd.Prefix = store.DefaultConfig().Etcd.Prefix
	return cfg
}

func TestAnAddressOfNoPrefixIsANoteOfIPAMCheck(t *testing.T) {
	r := newRig(t)
	p := r.pod()
	r.wantChecked(r.checked(), "", "")
	r.agent.Kill(t)
	r.agent.Configure("--ipam-pod-cidr=10.77.0.0/24,fd00:77::/64")
	r.agent.Start(t)
	answer := r.checked()
	r.wantChecked(answer, "", "")
	if got := namesOf(answer.Notes); got != "address-outside address-outside" || !strings.Contains(answer.Notes[0].Subject, p.ipv4.String()) {
		t.Errorf("notes %+v", answer.Notes)
	}
	if found := r.examined(); len(found.Findings)+len(found.Notes) > 0 {
		t.Errorf("porin doctor: %+v", found)
	}
	r.cni.MustDel(t, p.Container)
	if answer := r.checked(); len(answer.Notes) > 0 {
		t.Errorf("after the container: notes %+v", answer.Notes)
	}
}

func TestAReservationByTheCommandLine(t *testing.T) {
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
