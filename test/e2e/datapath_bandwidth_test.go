package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

// wide are limits that slow nothing down here.
var wide = v1.Bandwidth{IngressRate: 40e9, EgressRate: 40e9}

// limited attaches a container with limits.
func (r *rig) limited(b v1.Bandwidth) pod {
	r.Helper()
	c := testutil.NewContainer(r)
	c.Caps = map[string]any{"bandwidth": b}
	return r.add(c)
}

// queues are the links whose root qdisc the packets of a container pass: to it, and from it.
type queues struct{ ingress, egress int }

func (r *rig) queuesOf(p pod) (q queues) {
	r.Helper()
	q.ingress = r.node.HostLink(r, p.Container).Attrs().Index
	filters, err := r.node.Filters(q.ingress, netlink.HANDLE_MIN_INGRESS)
	if err != nil {
		r.Fatal(err)
	}
	for _, f := range filters {
		if u32, ok := f.(*netlink.U32); ok && len(u32.Actions) == 1 {
			q.egress = u32.Actions[0].(*netlink.MirredAction).Ifindex
		}
	}
	return q
}

// bucketAt is the token bucket of a link; nil for none.
func (r *rig) bucketAt(link int) *netlink.Tbf {
	r.Helper()
	qdiscs, err := r.node.Qdiscs(link)
	if err != nil {
		r.Fatal(err)
	}
	for _, q := range qdiscs {
		if tbf, ok := q.(*netlink.Tbf); ok {
			return tbf
		}
	}
	return nil
}

// passed is how many bytes have passed the queues.
func (r *rig) passed(q queues) (ingress, egress uint64) {
	r.Helper()
	count := func(link int) uint64 {
		bucket := r.bucketAt(link)
		if bucket == nil || bucket.Attrs().Statistics == nil {
			r.Fatalf("link %d has no token bucket", link)
		}
		return bucket.Attrs().Statistics.Basic.Bytes
	}
	return count(q.ingress), count(q.egress)
}

// exchange sends bytes to an echo and reads them back.
func exchange(from *testutil.Namespace, to netip.AddrPort, size int) error {
	conn, err := from.Dial(to, reach)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(reach))
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(make([]byte, size))
		sent <- err
	}()
	_, err = io.ReadFull(conn, make([]byte, size))
	return errors.Join(err, <-sent)
}

// TestBandwidthPath: all that a limited container gets and sends passes its token buckets, whoever is at the other end
// and whoever has begun, also after a restart of the agent.
func TestBandwidthPath(t *testing.T) {
	const size = 1 << 20
	r := newRig(t)
	a, b, c := r.limited(wide), r.pod(), r.limited(wide)
	q := r.queuesOf(a)
	check := func(t *testing.T, from *testutil.Namespace, to netip.AddrPort) {
		t.Helper()
		in, out := r.passed(q)
		if err := exchange(from, to, size); err != nil {
			t.Fatal(err)
		}
		nowIn, nowOut := r.passed(q)
		if nowIn-in < size || nowOut-out < size {
			t.Errorf("%d bytes passed the bucket of what it gets, %d that of what it sends, want %d each at least", nowIn-in, nowOut-out, size)
		}
	}
	for _, six := range []bool{false, true} {
		of := func(p pod) netip.Addr {
			if six {
				return p.ipv6
			}
			return p.ipv4
		}
		node := r.node.IPv4
		if six {
			node = r.node.IPv6
		}
		own := a.Echo(t, of(a))
		for name, path := range map[string]struct {
			from *testutil.Namespace
			to   netip.AddrPort
		}{
			"from a container": {b.Namespace, own}, "to a container": {a.Namespace, b.Echo(t, of(b))},
			"from a limited one": {c.Namespace, own}, "to a limited one": {a.Namespace, c.Echo(t, of(c))},
			"from the node": {r.node.Namespace, own}, "to the node": {a.Namespace, r.node.Echo(t, node)},
		} {
			t.Run(fmt.Sprintf("%s, IPv6 %v", name, six), func(t *testing.T) { check(t, path.from, path.to) })
		}
	}
	server := b.Echo(t, b.ipv4)
	conn, err := a.Dial(server, reach)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r.agent.Kill(t)
	r.agent.Start(t)
	if replaced := r.status().Restored.Replaced; replaced != 0 {
		t.Errorf("the start replaced parts of %d endpoints", replaced)
	}
	in, out := r.passed(q)
	_ = conn.SetDeadline(time.Now().Add(reach))
	go func() { _, _ = conn.Write(make([]byte, size)) }()
	if _, err := io.ReadFull(conn, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if nowIn, nowOut := r.passed(q); nowIn-in < size || nowOut-out < size {
		t.Errorf("after a restart %d and %d bytes of a connection passed the buckets, want %d", nowIn-in, nowOut-out, size)
	}
	for _, p := range []pod{a, b, c} {
		r.cni.MustDel(t, p.Container)
	}
	r.nothingLeft()
}

func TestBandwidthRefused(t *testing.T) {
	r := newRig(t)
	for name, b := range map[string]map[string]any{
		"a burst without a rate": {"ingressBurst": 1000}, "a rate below 1 kbit/s": {"egressRate": 999}, "a rate above 1 Pbit/s": {"ingressRate": uint64(1e15 + 1)},
		"a negative rate": {"egressRate": -1}, "a rate that is a text": {"egressRate": "1M"}, "a burst above 4 GB": {"egressRate": 1e6, "egressBurst": uint64(1) << 36},
		"some subnets": {"egressRate": 1e6, "shapedSubnets": []string{"10.0.0.0/8"}},
	} {
		c := testutil.NewContainer(t)
		c.Caps = map[string]any{"bandwidth": b}
		_, err := r.cni.Add(c)
		t.Log(name, err)
		failedAs(t, err, codeInvalidConfig)
		failedWith(t, err, "andwidth")
	}
	r.nothingLeft()
}

// TestBandwidthRepaired: the agent and a start each find missing parts of the limits, and make them again. The agent
// does so within a second; an orphan waits for the doctor.
func TestBandwidthRepaired(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--doctor-interval=0s")
	a, b := r.limited(wide), r.pod()
	node := r.node.Netlink(t)
	damages := map[string]func(q queues) error{
		"bandwidth-limit-missing": func(q queues) error {
			return errors.Join(node.QdiscDel(r.bucketAt(q.ingress)), node.LinkDel(nl.LinkAt(q.egress)))
		},
		"bandwidth-limit-differs": func(q queues) error {
			bucket := r.bucketAt(q.ingress)
			bucket.Rate = 1000
			return errors.Join(node.QdiscReplace(bucket), node.LinkSetDown(nl.LinkAt(q.egress)))
		},
		"bandwidth-device-orphan": func(queues) error {
			return node.LinkAdd(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "pbwaaaaaaaaaaaa"}})
		},
	}
	whole := func(when string) {
		t.Helper()
		q := r.queuesOf(a)
		in, out := r.passed(q)
		if err := exchange(b.Namespace, a.Echo(t, a.ipv4), 1<<16); err != nil {
			t.Fatal(when, err)
		}
		if nowIn, nowOut := r.passed(q); nowIn-in < 1<<16 || nowOut-out < 1<<16 {
			t.Errorf("%s %d and %d bytes passed the buckets", when, nowIn-in, nowOut-out)
		}
	}
	nothing := func() error {
		if findings := r.answered().Findings; len(findings) > 0 {
			return fmt.Errorf("found %+v", findings)
		}
		return nil
	}
	for kind, damage := range damages {
		if err := damage(r.queuesOf(a)); err != nil {
			t.Fatal(kind, err)
		}
		if kind == "bandwidth-device-orphan" {
			if findings := r.answered().Findings; len(findings) != 1 || findings[0].Kind != kind {
				t.Errorf("the doctor finds %+v, want %s", findings, kind)
			}
		} else if err := testutil.Poll(time.Second, nothing); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		r.agrees()
		whole("after the repair of " + kind)
		r.agent.Kill(t)
		if err := damage(r.queuesOf(a)); err != nil {
			t.Fatal(kind, err)
		}
		r.agent.Start(t)
		if answer := r.answered(); len(answer.Findings) > 0 {
			t.Errorf("%s is not repaired by a start: %+v", kind, answer.Findings)
		}
		whole("after a start with " + kind)
	}
}

// TestBandwidthWithoutLedger: a start that has lost the ledger holds what is limited, and its DEL leaves nothing.
func TestBandwidthWithoutLedger(t *testing.T) {
	r := newRig(t)
	a := r.limited(wide)
	r.agent.Kill(t)
	if err := os.Remove(filepath.Join(r.node.StateDir, "ledger.db")); err != nil {
		t.Fatal(err)
	}
	r.agent.Start(t)
	q := r.queuesOf(a)
	if r.bucketAt(q.ingress) == nil || r.bucketAt(q.egress) == nil {
		t.Error("a start without the ledger removed a limit")
	}
	if err := testutil.Ping(a.Namespace, r.node.IPv4, reach); err != nil {
		t.Error(err)
	}
	r.cni.MustDel(t, a.Container)
	for _, name := range r.node.LinkNames(t) {
		if strings.HasPrefix(name, "pbw") {
			t.Errorf("device %s is left", name)
		}
	}
}

const limitedPolicies = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: client, namespace: client}
spec: {podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: web}}}], ports: [{port: 8080}, {port: 8082}]}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: web}
spec: {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: client}}}], ports: [{port: 8080}, {port: 8081}]}]}
`

// TestBandwidthPolicy: policies of both ends are in force where either end, or both, have limits.
func TestBandwidthPolicy(t *testing.T) {
	r := newRig(t)
	if _, err := r.api.PutPolicies(t.Context(), []byte(limitedPolicies)); err != nil {
		t.Fatal(err)
	}
	named := func(namespace string, limits v1.Bandwidth) pod {
		c := testutil.NewContainer(t)
		c.Args = [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", namespace}, {"K8S_POD_NAME", c.ID[:16]}, {"K8S_POD_UID", c.ID}}
		c.Caps = map[string]any{"bandwidth": limits}
		return r.add(c)
	}
	onNode := r.node.Echo(t, r.node.IPv4)
	for i, limits := range [][2]v1.Bandwidth{{wide, {}}, {{}, wide}, {wide, wide}} {
		client, other, web := named("client", limits[0]), named("other", limits[0]), named("web", limits[1])
		for _, port := range []uint16{8080, 8081, 8082} {
			web.serve(t, netip.AddrPortFrom(web.ipv4, port))
		}
		try := func(from pod, to netip.AddrPort) error {
			conn, err := from.Dial(to, unreachable)
			if err == nil {
				conn.Close()
			}
			return err
		}
		if err := exchange(client.Namespace, netip.AddrPortFrom(web.ipv4, 8080), 1<<16); err != nil {
			t.Errorf("%d: what both policies allow: %v", i, err)
		}
		for what, err := range map[string]error{
			"the sender's policy":              try(client, netip.AddrPortFrom(web.ipv4, 8081)),
			"the receiver's policy":            try(client, netip.AddrPortFrom(web.ipv4, 8082)),
			"the receiver's policy, by sender": try(other, netip.AddrPortFrom(web.ipv4, 8080)),
			"the sender's policy, to the node": try(client, onNode),
		} {
			if err == nil {
				t.Errorf("%d: what %s denies passes", i, what)
			}
		}
	}
	for _, at := range r.inspect().Attachments { // before the node's translation it would decide wrongly
		if strings.HasPrefix(at.IfName, "pbw") {
			t.Errorf("a program is on %s, where packets wait", at.IfName)
		}
	}
}

// serve is an echo at a port.
func (p pod) serve(t *testing.T, addr netip.AddrPort) {
	t.Helper()
	listener := p.Listen(t, addr)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() { listener.Close(); running.Wait() })
}
