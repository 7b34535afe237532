package hostport_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/hostport"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/testutil"
)

func TestStepConformance(t *testing.T) {
	endpointtest.TestStep(t, func(t *testing.T) endpointtest.Subject {
		n := newNode(t)
		return endpointtest.Subject{
			Step: n.step,
			Has: func(t testing.TB, ep endpoint.Endpoint) bool {
				for _, addr := range []string{fmt.Sprintf("10.0.0.%d ", ep.ID), fmt.Sprintf(" fd00::%x ", ep.ID)} {
					if strings.Contains(n.list(t), addr) {
						return true
					}
				}
				return false
			},
			Prepare: func(t testing.TB, ep endpoint.Endpoint) (endpoint.Endpoint, *endpoint.Namespace) {
				return n.endpoint(t, int(ep.ID), tcp(8000+ep.ID, 80)), nil
			},
			Restart: func(t testing.TB) endpoint.Step {
				n.restart(t)
				return n.step
			},
		}
	})
}

func TestNoTableWithoutPorts(t *testing.T) {
	n := newNode(t)
	plain := n.endpoint(t, 1)
	n.attach(t, plain)
	ep := n.endpoint(t, 2, tcp(8080, 80))
	n.attach(t, ep)
	if text := n.list(t); !strings.Contains(text, "table inet porin-hostport") {
		t.Errorf("no table:\n%s", text)
	}
	n.detach(t, ep)
	n.detach(t, plain)
	if text := n.list(t); text != "" {
		t.Errorf("no endpoint has ports, and there is\n%s", text)
	}
}

func hostIP(addr string, p endpoint.PortMapping) endpoint.PortMapping {
	p.HostIP = netip.MustParseAddr(addr)
	return p
}

func protocol(name string, p endpoint.PortMapping) endpoint.PortMapping {
	p.Protocol = name
	return p
}

func TestAttachTaken(t *testing.T) {
	for name, c := range map[string]struct {
		first, second endpoint.PortMapping
		taken         bool
	}{
		"the same":                   {tcp(80, 1), tcp(80, 2), true},
		"another port":               {tcp(80, 1), tcp(81, 1), false},
		"another protocol":           {tcp(80, 1), protocol("UDP", tcp(80, 1)), false},
		"other addresses":            {hostIP("192.0.2.1", tcp(80, 1)), hostIP("192.0.2.2", tcp(80, 1)), false},
		"one address":                {hostIP("192.0.2.1", tcp(80, 1)), hostIP("192.0.2.1", tcp(80, 1)), true},
		"all and one":                {tcp(80, 1), hostIP("192.0.2.1", tcp(80, 1)), true},
		"one and all of its family":  {hostIP("2001:db8::1", tcp(80, 1)), hostIP("::", tcp(80, 1)), true},
		"one and all of the other":   {hostIP("192.0.2.1", tcp(80, 1)), hostIP("::", tcp(80, 1)), false},
		"all of one family and all":  {hostIP("::", tcp(80, 1)), tcp(80, 1), true},
		"all of both, one at a time": {hostIP("::", tcp(80, 1)), hostIP("0.0.0.0", tcp(80, 1)), false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			first, second := n.endpoint(t, 1, c.first), n.endpoint(t, 2, c.second)
			n.attach(t, first)
			before := n.list(t)
			_, err := n.step.Attach(t.Context(), second, nil)
			if errors.Is(err, hostport.ErrTaken) != c.taken || !c.taken && err != nil {
				t.Fatalf("error %v, want it taken: %v", err, c.taken)
			}
			if c.taken {
				if fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "pod default/pod-c1, container c1:eth0") {
					t.Errorf("error %v, of kind %s: it does not name the other one", err, fault.KindOf(err))
				}
				n.detach(t, second)
				if after := n.list(t); after != before {
					t.Errorf("a refused ADD leaves\n%s\nof\n%s", after, before)
				}
			}
			n.detach(t, first)
			n.attach(t, second)
		})
	}
}

// The later life of a pod takes over from the former, whose DEL is yet to come. A container of another pod does not.
func TestAttachReplaces(t *testing.T) {
	n := newNode(t)
	old, new := n.endpoint(t, 1, tcp(8080, 80), tcp(9090, 90)), n.endpoint(t, 2, tcp(8080, 80))
	new.Spec.Pod = old.Spec.Pod
	new.Spec.Pod.UID = "the next"
	n.attach(t, old)
	n.attach(t, new)
	n.wantLeads(t, "after the ADD", "8080", new, true)
	n.detach(t, new)
	n.wantLeads(t, "after an ADD that failed", "8080", old, true)
	n.attach(t, new)
	before := n.list(t)
	for _, order := range [][]endpoint.Endpoint{{old, new}, {new, old}} {
		n.restart(t)
		for _, ep := range order {
			if replaced, err := n.step.Restore(t.Context(), ep); err != nil || len(replaced) > 0 {
				t.Errorf("replaced %q, %v", replaced, err)
			}
		}
		if removed, err := n.step.Prune(t.Context(), order); err != nil || len(removed) > 0 || n.list(t) != before {
			t.Errorf("a start with both: removed %q, %v, and there is\n%s\nwant\n%s", removed, err, n.list(t), before)
		}
	}
	n.detach(t, old)
	n.wantLeads(t, "after the late DEL", "8080", new, true)
	if text := n.list(t); strings.Contains(text, "9090") {
		t.Errorf("after the late DEL there is\n%s", text)
	}
	n.detach(t, new)
	late := n.endpoint(t, 3, tcp(8080, 80))
	late.Spec.Pod, late.Spec.Began = old.Spec.Pod, old.Spec.Began-1
	n.attach(t, old)
	if _, err := n.step.Attach(t.Context(), late, nil); !errors.Is(err, hostport.ErrTaken) {
		t.Errorf("an ADD that began before: error %v, want %v", err, hostport.ErrTaken)
	}
}

func TestAttachWrongFamily(t *testing.T) {
	n := newNode(t)
	for _, host := range []string{"192.0.2.1", "0.0.0.0"} {
		ep := n.endpoint(t, 1, hostIP(host, tcp(80, 80)))
		must(t, n.Netlink(t).LinkDel(testutil.LinkAt(ep.Host.Index)))
		ep.Addresses.IPv4 = netip.Addr{}
		if _, err := n.step.Attach(t.Context(), ep, nil); fault.KindOf(err) != fault.Invalid || err == nil || !strings.Contains(err.Error(), host) {
			t.Errorf("%s for a container with IPv6 alone: error %v", host, err)
		}
	}
}

// After a start the table is as it was until everything is restored; then only what is alive, or held, stays.
func TestRestart(t *testing.T) {
	n := newNode(t)
	live, dead, held, unknown := n.endpoint(t, 1, tcp(1001, 80)), n.endpoint(t, 2, tcp(1002, 80)), n.endpoint(t, 3, tcp(1003, 80)), n.endpoint(t, 4, tcp(1004, 80))
	for _, ep := range []endpoint.Endpoint{live, dead, held, unknown} {
		n.attach(t, ep)
	}
	before := n.list(t)
	n.restart(t)
	if replaced, err := n.step.Restore(t.Context(), live); err != nil || len(replaced) > 0 {
		t.Errorf("replaced %q, %v", replaced, err)
	}
	must(t, n.step.Occupy(held))
	withoutRecord := endpoint.Endpoint{Addresses: unknown.Addresses} // as the link and the datapath find it
	withoutRecord.Spec.Attachment = unknown.Spec.Attachment
	must(t, n.step.Occupy(withoutRecord))
	if now := n.list(t); now != before {
		t.Errorf("a start has changed the table to\n%s", now)
	}
	removed, err := n.step.Prune(t.Context(), []endpoint.Endpoint{live})
	want := []string{"host port TCP 0.0.0.0:1002 to 10.0.0.2:80", "host port TCP [::]:1002 to [fd00::2]:80"}
	if err != nil || !slices.Equal(removed, want) {
		t.Errorf("removed %q, %v, want %q", removed, err, want)
	}
	n.wantLeads(t, "alive", "1001", live, true)
	n.wantLeads(t, "dead", "1002", dead, false)
	n.wantLeads(t, "held", "1003", held, true)
	n.wantLeads(t, "held without a record", "1004", unknown, true)
	for _, port := range []uint16{1003, 1004} {
		if _, err := n.step.Attach(t.Context(), n.endpoint(t, int(port-990), tcp(port, 80)), nil); !errors.Is(err, hostport.ErrTaken) {
			t.Errorf("port %d of what is held: error %v, want %v", port, err, hostport.ErrTaken)
		}
	}
	n.detach(t, withoutRecord)
	n.detach(t, held)
	n.detach(t, live)
	if text := n.list(t); text != "" {
		t.Errorf("there is left\n%s", text)
	}
}

func TestRestoreReplaces(t *testing.T) {
	n := newNode(t)
	ep := n.endpoint(t, 1, hostIP("0.0.0.0", tcp(8080, 80)))
	n.attach(t, ep)
	want := n.list(t)
	n.rules(t, "flush ruleset")
	n.Sysctl(t, "net/ipv4/conf/"+ep.Host.Name+"/route_localnet", "0")
	n.restart(t)
	replaced, err := n.step.Restore(t.Context(), ep)
	if names := []string{"host port TCP 0.0.0.0:8080: missing", "route_localnet of " + ep.Host.Name + ": off"}; err != nil || !slices.Equal(replaced, names) {
		t.Errorf("replaced %q, %v, want %q", replaced, err, names)
	}
	if _, err := n.step.Prune(t.Context(), []endpoint.Endpoint{ep}); err != nil {
		t.Error(err)
	}
	if now := n.list(t); now != want {
		t.Errorf("there is\n%s\nwant\n%s", now, want)
	}
}

func TestFollowRestores(t *testing.T) {
	n := newNode(t)
	ep := n.endpoint(t, 1, hostIP("0.0.0.0", tcp(8080, 80)))
	n.attach(t, ep)
	_, err := n.step.Prune(t.Context(), []endpoint.Endpoint{ep})
	must(t, err)
	want := n.list(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- n.step.Follow(ctx) }()
	for _, damage := range []string{
		"flush ruleset", "flush chain inet porin-hostport ports", "flush map inet porin-hostport all-ipv4", "add element inet porin-hostport pods-ipv4 { 10.9.9.9 }",
		"add table inet porin-hostport { flags dormant; }", // after these five, a repair waits
	} {
		n.rules(t, damage)
		testutil.Eventually(t, func() error {
			if got := n.list(t); got != want {
				return fmt.Errorf("%s: there is\n%s\nwant\n%s", damage, got, want)
			}
			return nil
		})
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Follow ends with %v", err)
	}
}

func TestChecker(t *testing.T) {
	n := newNode(t)
	ep := n.endpoint(t, 1, tcp(8080, 80))
	n.attach(t, ep)
	_, err := n.step.Prune(t.Context(), []endpoint.Endpoint{ep})
	must(t, err)
	checker := hostport.NewChecker(n.step)
	examine := func(only string, want ...string) {
		t.Helper()
		findings, err := checker.Examine(t.Context(), only)
		must(t, err)
		var kinds []string
		for _, f := range findings {
			kinds = append(kinds, f.Kind)
			must(t, f.Repair(t.Context()))
		}
		if !slices.Equal(kinds, want) {
			t.Errorf("found %+v, want %q", findings, want)
		}
	}
	damage := func() {
		n.rules(t, "flush chain inet porin-hostport output")
		n.Sysctl(t, "net/ipv4/conf/"+ep.Host.Name+"/route_localnet", "0")
	}
	examine("")
	damage()
	examine("c2:eth0")
	examine("c1:eth0", "host-port-loopback-off", "host-port-table-differs")
	n.rules(t, "flush map inet porin-hostport all-ipv4")
	examine("c2:eth0")
	examine("c1:eth0", "host-port-table-differs")
	damage()
	examine("", "host-port-loopback-off", "host-port-table-differs")
	examine("")
}

func TestSCTPWithoutKernel(t *testing.T) {
	dir := t.TempDir()
	must(t, hostport.CheckSCTP(filepath.Join(dir, "absent")))
	must(t, os.WriteFile(filepath.Join(dir, "nf_conntrack_max"), nil, 0o600))
	if err := hostport.CheckSCTP(dir); !errors.Is(err, hostport.ErrNoSCTP) {
		t.Errorf("error %v, want %v", err, hostport.ErrNoSCTP)
	}
	must(t, os.WriteFile(filepath.Join(dir, "nf_conntrack_sctp_timeout_established"), nil, 0o600))
	must(t, hostport.CheckSCTP(dir))
}

// BenchmarkAttach is the ADD and DEL of an endpoint with one port, on a node where 100 others have one.
func BenchmarkAttach(b *testing.B) {
	n := newNode(b)
	for i := range 100 {
		n.attach(b, n.endpoint(b, i+2, tcp(uint16(2000+i), 80)))
	}
	ep := n.endpoint(b, 1, tcp(8080, 80))
	began := time.Duration(0)
	for b.Loop() {
		begin := time.Now()
		n.attach(b, ep)
		began += time.Since(begin)
		n.detach(b, ep)
	}
	b.ReportMetric(float64(began.Microseconds())/float64(b.N), "µs-attach")
}
