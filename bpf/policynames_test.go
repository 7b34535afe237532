package bpf_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/manifest"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/oracle"
	"porin.dev/porin/cells/policy/policymap"
	"porin.dev/porin/cells/proxy/offline"
)

// TestPolicyNamesOffline: packets to an address that were denied pass when a proxy without agent has learned that a name has it: the first one that follows, of the same connection.
func TestPolicyNamesOffline(t *testing.T) {
	p := newPolicyFixture(t)
	policies, err := manifest.Read([]byte(`
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: names, namespace: shop}
spec:
  endpointSelector: {matchLabels: {app: client}}
  egress:
  - toFQDNs: [{matchPattern: "*.example"}]
    toPorts: [{ports: [{port: "443", protocol: TCP}, {port: "443", protocol: UDP}]}]
  - toEndpoints: [{matchLabels: {app: server}}]
`))
	if err != nil {
		t.Fatal(err)
	}
	p.apply(t, engine.Update{SetPolicies: policies})
	journal, err := offline.OpenJournal(filepath.Join(t.TempDir(), "journal"), offline.DefaultLimits(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = journal.Close() })
	lock, err := policymap.OpenLock(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	o := &p.objects
	learner := offline.NewWriter(policymap.Maps{
		Policies: o.Policies, ActiveCopy: o.ActiveCopy, Addresses: o.Addresses, Prefixes: o.Prefixes, Tables: o.Tables, Rows: o.Rows,
	}, lock, journal, func(revision uint32) (policy.NameClasses, error) {
		snapshot := policy.NameClasses{Revision: revision}
		rules, classes := p.e.NameClasses()
		for _, rule := range rules {
			snapshot.Rules = append(snapshot.Rules, policy.NameRule(rule))
		}
		for _, class := range classes {
			snapshot.Classes = append(snapshot.Classes, policy.NameClass(class))
		}
		return snapshot, nil
	})
	send := func(to netip.Addr, protocol model.Protocol, port uint16) uint32 {
		c := policyConnection(p.client, to, protocol, port)
		wantVerdict(t, "of from_pod", p.runFrom(t, o.FromPod, p.client, skBuff{}, opening(p.client.mac, p.client.hostMAC, c, 40000)), toStack)
		return p.request(t, o.ToUplink, p.uplink, &p.client, opening(p.uplink.hostMAC, p.uplink.mac, c, 40000))
	}
	for _, to := range []netip.Addr{outsider, netip.MustParseAddr("2001:db8::9")} {
		for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
			wantVerdict(t, fmt.Sprint(protocol, " before the name has the address"), send(to, protocol, 443), dropped)
		}
		if err := learner.Learn(t.Context(), 1, "www.example", []dnsname.Address{{Addr: to, TTL: time.Minute}}); err != nil {
			t.Fatal(err)
		}
		for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
			wantVerdict(t, fmt.Sprint(protocol, " when it has"), send(to, protocol, 443), toNext)
			wantVerdict(t, fmt.Sprint(protocol, " to another port"), send(to, protocol, 80), dropped)
		}
		wantVerdict(t, "to the next address", send(to.Next(), model.TCP, 443), dropped)
	}
	// The server's address stays the server's: what names say gives no right to reach it, and takes none away.
	server := []dnsname.Address{{Addr: p.server.ip4, TTL: time.Minute}}
	before := p.between(t, p.client, p.server, 40000, 80, syn)
	if err := learner.Learn(t.Context(), 1, "www.example", server); !errors.Is(err, offline.ErrProtected) {
		t.Errorf("a pod's address: %v, want %v", err, offline.ErrProtected)
	}
	wantVerdict(t, "to the server", p.between(t, p.client, p.server, 40001, 80, syn), before)
}

// policyConnection is one that a pod opens to an address of either family.
func policyConnection(from party, to netip.Addr, protocol model.Protocol, port uint16) oracle.Connection {
	c := oracle.Connection{From: from.ip4, To: to, Protocol: protocol, Port: port}
	if to.Is6() {
		c.From = from.ip6
	}
	return c
}
