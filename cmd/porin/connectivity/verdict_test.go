package connectivity

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

// cluster has three nodes with both families, and CoreDNS on the second.
func cluster() ([]place, []dnsServer) {
	var places []place
	for i := range 3 {
		n := byte(i + 1)
		places = append(places, place{
			name: fmt.Sprintf("n%d", n), number: i, kubelet: 10250, nodePort: 30000 + i, ready: true,
			addresses:  []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, n}), netip.AddrFrom16([16]byte{0x20, 1, 15: n})},
			pod:        []netip.Addr{netip.AddrFrom4([4]byte{10, 244, n, 2}), netip.AddrFrom16([16]byte{0xfd, 14: n})},
			clusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 0, n}), netip.AddrFrom16([16]byte{0xfd, 1, 15: n})},
		})
	}
	return places, []dnsServer{{"n2", netip.MustParseAddr("10.244.2.9")}}
}

// TestFaultsOf breaks one part at a time, as far as the paths tell, and wants that part named, and no other.
func TestFaultsOf(t *testing.T) {
	overlay := func(p Path) bool { // from pod or node to a pod of another node
		switch p.What {
		case podToPod, podByUDP, podLarge, nodeToPod, dnsPod:
			return p.From != p.To
		case dnsService:
			return p.From != "n2"
		}
		return false
	}
	for name, c := range map[string]struct {
		breaks  func(Path) bool // the path's probe fails
		reaches func(Path) bool // or succeeds where it must not
		routing string
		facts   facts
		want    []string // "PART FROM>TO"
	}{
		"nothing": {},
		"dropped tunnel port of n3": {
			breaks:  func(p Path) bool { return overlay(p) && (p.To == "n3" || p.From == "n3") },
			routing: "vxlan", want: []string{"tunnel n1>n3", "tunnel n2>n3", "tunnel n3>n1", "tunnel n3>n2"},
		},
		"missing route": {
			breaks: func(p Path) bool { return overlay(p) && p.From == "n1" && p.To == "n2" }, routing: "native", want: []string{"route n1>n2"},
		},
		"missing route to pods of n3": {
			breaks: func(p Path) bool {
				return overlay(p) && (p.To == "n3" || p.From == "n3" && p.What != nodeToPod) || p.What == podToNode && p.From == "n3" && p.To != "n3"
			},
			routing: "native", want: []string{"route n1>n3", "route n2>n3", "route n3>n1", "route n3>n2"},
		},
		"denied path": {
			breaks: func(p Path) bool {
				return p.From == "n1" && p.To == "n1" && slices.Contains([]string{podToPod, podByUDP, podLarge}, p.What)
			},
			facts: facts{denied: map[pair]string{{"n1", "n1"}: "egress denied by a policy"}}, want: []string{"policy n1>n1"},
		},
		"dead CoreDNS":        {breaks: func(p Path) bool { return p.What == dnsService || p.What == dnsPod }, want: []string{"dns n1>n2", "dns n2>n2", "dns n3>n2"}},
		"CoreDNS without pod": {breaks: func(p Path) bool { return p.What == dnsService }, facts: facts{dnsPods: -1}, want: []string{"dns n1>", "dns n2>", "dns n3>"}},
		"node's way to pods of n2": {
			breaks: func(p Path) bool { return p.What == nodeToPod && p.From == "n1" && p.To == "n2" }, want: []string{"datapath n1>n2"},
		},
		"wrong MTU": {breaks: func(p Path) bool { return p.What == podLarge && p.From == "n1" && p.To == "n3" }, want: []string{"mtu n1>n3"}},
		"kube-proxy stopped on n2": {
			breaks: func(p Path) bool {
				return (p.What == service_ || p.What == dnsService) && p.From == "n2" || p.What == nodePort && p.To == "n2"
			},
			want: []string{"kube-proxy n1>n2", "kube-proxy n2>", "kube-proxy n2>n2", "kube-proxy n3>n2"},
		},
		"policy not enforced on n3": {reaches: func(p Path) bool { return p.What == podDenied && p.To == "n3" }, want: []string{"policy n1>n3", "policy n2>n3", "policy n3>n3"}},
		"n1 and n2 without network": {
			breaks: func(p Path) bool {
				pair := p.From == "n1" && p.To == "n2" || p.From == "n2" && p.To == "n1"
				return pair && p.What != podDenied || p.From == "n1" && p.What == dnsService
			},
			routing: "vxlan", want: []string{"network n1>n2", "network n2>n1"},
		},
	} {
		places, dns := cluster()
		var outcomes []Outcome
		for _, p := range paths(places, dns, nil) {
			o := Outcome{Path: p}
			if p.Denied && (c.reaches == nil || !c.reaches(p)) || c.breaks != nil && c.breaks(p) {
				o.Error = "i/o timeout"
			}
			outcomes = append(outcomes, o)
		}
		f := c.facts
		f.routing = map[string]string{"n1": c.routing, "n2": c.routing, "n3": c.routing}
		f.dnsPods = max(0, f.dnsPods+len(dns))
		var got []string
		for _, fault := range faultsOf(outcomes, f) {
			got = append(got, fmt.Sprintf("%s %s>%s", fault.Part, fault.From, fault.To))
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, c.want) {
			t.Errorf("%s: at fault are %q, want %q", name, got, c.want)
		}
	}
}
