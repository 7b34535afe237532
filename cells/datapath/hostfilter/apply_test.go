package hostfilter_test

import (
	"errors"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/datapath/hostfilter"
)

func (h *host) list(t testing.TB) string { return h.rules(t, "", "nft", "-y", "list", "ruleset") }

func (h *host) generation(t testing.TB) uint32 {
	t.Helper()
	generation, err := hostfilter.Generation(h.File())
	must(t, err)
	return generation
}

func TestNoTableWithoutPods(t *testing.T) {
	h := newHost(t)
	p := h.newPeer(t)
	h.apply(t, hostfilter.Desired{Enforced: []int{p.link}})
	if text := h.list(t); text != "" {
		t.Errorf("nobody is restricted, and there is\n%s", text)
	}
	h.apply(t, hostfilter.Desired{Pods: []hostfilter.Pod{{Link: p.link}}, Enforced: []int{p.link}})
	if text := h.list(t); !strings.Contains(text, "table inet porin") {
		t.Errorf("no table:\n%s", text)
	}
	h.apply(t, hostfilter.Desired{Enforced: []int{p.link}})
	if text := h.list(t); text != "" {
		t.Errorf("nobody is restricted any more, and there is\n%s", text)
	}
	// Leftovers of a previous agent.
	h.apply(t, hostfilter.Desired{Pods: []hostfilter.Pod{{Link: p.link}}})
	must(t, h.newFilter(t).Apply(hostfilter.Desired{}))
	if text := h.list(t); text != "" {
		t.Errorf("the previous agent's table is left:\n%s", text)
	}
}

// Whatever another program does to the table, the next Apply repairs it, and leaves the tables of others alone.
func TestApplyRepairs(t *testing.T) {
	h := newHost(t)
	p, q := h.newPeer(t), h.newPeer(t)
	desired := hostfilter.Desired{
		Pods:     []hostfilter.Pod{{Link: p.link, Rows: toPorts()}, {Link: q.link, Rows: []hostfilter.Row{{Allow: true}}}},
		Enforced: []int{p.link, q.link},
		Groups:   map[netip.Addr]hostfilter.Group{h.addrs[0]: 7, h.addrs[1]: 8},
	}
	desired.Pods[0].OfGroup = map[hostfilter.Group][]hostfilter.Row{7: {{Allow: true}}, 8: toPorts()}
	h.apply(t, desired)
	want := elementsOf(h.list(t))
	for _, change := range []string{
		"flush ruleset",
		"delete table inet porin",
		"flush chain inet porin input",
		"insert rule inet porin input accept",
		"add table inet porin { flags dormant; }",
		"flush map inet porin ports",
		"flush map inet porin port_ranges",
		"flush set inet porin restricted",
		"flush map inet porin others",
		"delete element inet porin rows_of { " + q.index() + " }",
		"flush map inet porin rows_to-ipv4",
		"add element inet porin rows_to-ipv4 { none . 198.51.100.1 : none }",
		"add element inet porin enforced { 4711 }",
		"add element inet porin port_ranges { 0:7 . tcp . 100-200 : accept }",
		"delete table inet porin; add table inet porin; add chain inet porin input",
		"add chain inet porin input { policy drop; }",
	} {
		for name, filter := range map[string]*hostfilter.Filter{"the same agent": h.filter, "the next agent": h.newFilter(t)} {
			h.rules(t, change+"\n", "nft", "-f", "-")
			if elementsOf(h.list(t)) == want {
				t.Errorf("%s: nothing changed", change)
			}
			must(t, filter.Apply(desired))
			if got := elementsOf(h.list(t)); got != want {
				t.Errorf("%s, repaired by %s:\n%s\nwant\n%s", change, name, got, want)
			}
			if differences, err := filter.Compare(); err != nil || len(differences) > 0 {
				t.Errorf("%s, repaired by %s: there still differ %q, error %v", change, name, differences, err)
			}
		}
	}
	h.rules(t, "table inet other {\nchain input {\ntype filter hook input priority 0;\n}\n}\n", "nft", "-f", "-")
	h.apply(t, hostfilter.Desired{})
	if text := h.list(t); !strings.Contains(text, "table inet other") || strings.Contains(text, "porin") {
		t.Errorf("there is left\n%s", text)
	}
}

// A change is written over what is there, ranges that overlap with former ones too.
func TestApplyChange(t *testing.T) {
	h := newHost(t)
	p, q := h.newPeer(t), h.newPeer(t)
	tcp := func(first, last uint16, allow bool) hostfilter.Row {
		return hostfilter.Row{Protocol: unix.IPPROTO_TCP, First: first, Last: last, Allow: allow}
	}
	for i, rows := range [][]hostfilter.Row{
		{tcp(80, 90, true), {}},
		{tcp(80, 95, true), {}},
		{tcp(80, 95, false), {Allow: true}},
		{tcp(1, 85, true), tcp(86, 86, false), tcp(87, 65535, true)},
		{tcp(0, 65535, true)},
		{},
	} {
		desired := hostfilter.Desired{Pods: []hostfilter.Pod{{Link: p.link, Rows: rows}, {Link: q.link, Rows: toPorts()}}, Enforced: []int{p.link, q.link}}
		before := h.generation(t)
		h.apply(t, desired)
		after := h.generation(t)
		if after != before+1 {
			t.Errorf("change %d took %d transactions", i, after-before)
		}
		h.apply(t, desired)
		must(t, h.newFilter(t).Apply(desired)) // which reads what there is
		if h.generation(t) != after {
			t.Errorf("change %d is not what there is", i)
		}
	}
}

// elementsOf leaves out how the elements are ordered.
// rowsNumber is the number of a set of rows: nft prints some with their bytes swapped. Damaged rows get another one.
var rowsNumber = regexp.MustCompile(`\b[0-9a-f]{1,4}:[0-9a-f]{1,4}\b`)

func elementsOf(list string) string {
	fields := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == '\n' || r == '{' || r == '}' })
	for i := range fields {
		fields[i] = rowsNumber.ReplaceAllString(strings.TrimSpace(fields[i]), "ROWS")
	}
	return strings.Join(sorted(fields), "\n")
}

func TestApplyMalformed(t *testing.T) {
	h := newHost(t)
	before := h.generation(t)
	for name, rows := range map[string][]hostfilter.Row{
		"ports without a protocol":       {{First: 80, Last: 80}},
		"types of ICMP":                  {{Protocol: unix.IPPROTO_ICMP, First: 8, Last: 9}},
		"a type of ICMP":                 {{Protocol: unix.IPPROTO_ICMPV6, First: 256, Last: 256}},
		"the last port before the first": {{Protocol: unix.IPPROTO_TCP, First: 80, Last: 79}},
		"overlapping ranges":             {{Protocol: unix.IPPROTO_TCP, First: 80, Last: 90}, {Protocol: unix.IPPROTO_TCP, First: 90, Last: 91, Allow: true}},
		"a protocol twice":               {{Protocol: unix.IPPROTO_TCP, Last: 65535}, {Protocol: unix.IPPROTO_TCP, Last: 65535, Allow: true}},
	} {
		if err := h.filter.Apply(hostfilter.Desired{Pods: []hostfilter.Pod{{Link: 1, Rows: rows}}}); !errors.Is(err, hostfilter.ErrRows) {
			t.Errorf("%s: error %v, want %v", name, err, hostfilter.ErrRows)
		}
	}
	twice := hostfilter.Desired{Pods: []hostfilter.Pod{{Link: 1}, {Link: 1}}}
	if err := h.filter.Apply(twice); !errors.Is(err, hostfilter.ErrRows) {
		t.Errorf("a pod twice: error %v, want %v", err, hostfilter.ErrRows)
	}
	if h.generation(t) != before {
		t.Error("the ruleset has changed")
	}
}

func TestUnsupportedKernel(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EOPNOTSUPP, unix.EINVAL, unix.ENOENT} { // no nf_tables, no such set, no such expression
		if err := hostfilter.Refused(errno); !errors.Is(err, hostfilter.ErrUnsupported) || !errors.Is(err, errno) {
			t.Errorf("%v: %v", errno, err)
		}
	}
	if err := hostfilter.Refused(unix.EPERM); errors.Is(err, hostfilter.ErrUnsupported) {
		t.Errorf("without the right: %v", err)
	}
}

// While others change the ruleset all the time, Apply ends, and what it says is so.
func TestApplyBesideOthers(t *testing.T) {
	h := newHost(t)
	p := h.newPeer(t)
	service(t, h.Namespace, netip.AddrPortFrom(h.addrs[0], allowedPort))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				h.rules(t, "add table ip other\ndelete table ip other\n", "nft", "-f", "-")
			}
		}
	}()
	for i := range 12 {
		allow := i%2 == 0
		h.apply(t, hostfilter.Desired{Pods: []hostfilter.Pod{{Link: p.link, Rows: []hostfilter.Row{{Allow: allow}}}}})
		h.wantReaches(t, p.Namespace, "icmp", netip.AddrPortFrom(h.addrs[0], 0), allow)
	}
	close(stop)
	<-done
}

// BenchmarkChange is one pod's change, and a change of the set of devices, on a node with a thousand restricted pods.
func BenchmarkChange(b *testing.B) {
	h := newHost(b)
	desired := hostfilter.Desired{}
	for i := range 1000 {
		desired.Pods = append(desired.Pods, hostfilter.Pod{Link: 100 + i, Rows: toPorts()})
		desired.Enforced = append(desired.Enforced, 100+i)
	}
	begin := time.Now()
	h.apply(b, desired)
	first := time.Since(begin)
	for i := 0; b.Loop(); i++ {
		desired.Pods[500].Rows = toPorts()[i%2:]
		h.apply(b, desired)
	}
	b.ReportMetric(float64(first.Microseconds()), "µs-first")
	begin = time.Now()
	must(b, h.newFilter(b).Apply(desired))
	b.ReportMetric(float64(time.Since(begin).Microseconds()), "µs-compare")
}
