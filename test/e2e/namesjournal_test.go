package e2e

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"porin.dev/porin/cells/proxy/offline"
	"porin.dev/porin/internal/testutil"
)

// TestExternalProxyReplacedWithFullJournal replaces the proxy while no agent is there, when pods have asked for as many names as there is room for: no query fails.
func TestExternalProxyReplacedWithFullJournal(t *testing.T) {
	n, p := newExternal(t)
	n.ciliumPolicy(webAndNames)
	serveNames(t, n.b)
	serveNames(t, n.d)
	if _, err := n.a.resolve("udp", n.b.at(false, dnsPort), "www.example.com."); err != nil {
		t.Fatal(err)
	}
	n.one.agent.Kill(t)
	p.kill()
	j, err := offline.OpenJournal(filepath.Join(n.one.node.StateDir, "proxy-names"), offline.DefaultLimits(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for i := range offline.DefaultLimits().All - 500 { // of four pods
		name := fmt.Sprintf("node-%05d.storage.eu-west-1.provider.example.com", i)
		answer := map[netip.Addr]time.Time{netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}): time.Now().Add(time.Hour)}
		if err := j.Add(uint16(10+i%4), name, answer, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	p = startProxy(t, n.one.node)
	time.Sleep(4 * time.Second)
	queries := n.queries()
	for range 3 {
		time.Sleep(time.Second)
		next := startProxy(t, n.one.node)
		p.ended()
		p = next
	}
	queries.check(t, "queries, replaced three times without an agent")
}

// TestExternalProxyJournalCannotBeWritten: the disk is full, or read-only, when a proxy starts while no agent is there (here: the journal cannot be opened). A
// name whose addresses are in the datapath, and one that no rule selects, need no journal: they are answered as ever.
func TestExternalProxyJournalCannotBeWritten(t *testing.T) {
	n, p := newExternal(t)
	n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{toPorts: [{ports: [{port: \"5053\", protocol: ANY}], rules: {dns: [{matchPattern: \"*\"}]}}]}, " +
		"{toFQDNs: [{matchPattern: \"*.example.com\"}], toPorts: [{ports: [{port: \"443\"}]}]}]}")
	serveNames(t, n.b)
	ask := func(when string) {
		t.Helper()
		for _, name := range []string{"www.example.com.", "www.example.net."} {
			answer, err := n.a.resolve("udp", n.b.at(false, dnsPort), name)
			if err != nil || answer.Rcode != dns.RcodeSuccess {
				t.Errorf("%s: %s: %v, %v", when, name, answer, err)
			}
		}
	}
	ask("with an agent")
	n.one.agent.Kill(t)
	ask("without an agent")
	lock := filepath.Join(n.one.node.StateDir, "proxy-names.lock")
	if err := errors.Join(os.Remove(lock), os.Mkdir(lock, 0o700)); err != nil {
		t.Fatal(err)
	}
	next := startProxy(t, n.one.node)
	p.ended()
	ask("with a proxy that cannot write its journal")
	n.one.agent.Start(t)
	n.one.connected(next)
	testutil.Eventually(t, func() error {
		if s := n.one.status().Proxy; !strings.Contains(s.Error, "proxy-names") {
			return fmt.Errorf("status %+v, want that the journal cannot be written", s)
		}
		return nil
	})
}
