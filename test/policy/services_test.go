package policy

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"porin.dev/porin/internal/testutil"
)

// service is a Service with one backend.
type service struct {
	backend  *end
	protocol string
	port     uint16 // of the backend
}

// serviceShift is between the ports of a backend and its Service: a policy that matched the Service's would be seen.
const serviceShift = 1000

// at is the cluster IP and port of the Service with the number.
func (s service) at(number int, six bool) netip.AddrPort {
	addr := netip.AddrFrom4([4]byte{10, 96, byte(number >> 8), byte(number)})
	if six {
		addr = netip.AddrFrom16([16]byte{0xfd, 0, 0, 0x96, 14: byte(number >> 8), 15: byte(number)})
	}
	return netip.AddrPortFrom(addr, s.port+serviceShift)
}

// serviceAt is where the Service with this backend is.
func (w *world) serviceAt(backend *end, protocol string, port uint16, six bool) netip.AddrPort {
	s := service{backend, protocol, port}
	return s.at(slices.Index(w.services, s), six)
}

// routesToServices says whether its connections pass the node's rules: connections of hosts outside do not.
func (w *world) routesToServices(from *end) bool { return from.endpoint != "" || from.name == "node" }

// addServices makes a Service for each port that is probed by TCP or UDP, with the rules of nftables that kube-proxy
// has for it.
func (w *world) addServices(steps []step) {
	w.Helper()
	testutil.NeedPrograms(w, "nft")
	for _, s := range steps {
		for _, p := range s.probes {
			if of := (service{w.end(p.to), p.protocol, p.port}); p.protocol != "sctp" && !slices.Contains(w.services, of) {
				w.services = append(w.services, of)
			}
		}
	}
	for _, six := range []bool{false, true} {
		rules := serviceRules(w.services, six, w.node)
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(rules)
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		err := w.node.Do(cmd.Start)
		if err == nil {
			err = cmd.Wait()
		}
		if err != nil {
			w.Fatalf("nft: %v: %s\n%s", err, &out, rules)
		}
	}
}

func serviceRules(services []service, six bool, node *testutil.Node) string {
	ip, kind, pods := "ip", "ipv4_addr", node.PodIPv4
	if six {
		ip, kind, pods = "ip6", "ipv6_addr", node.PodIPv6
	}
	var elements []string
	var chains strings.Builder
	for i, s := range services {
		at := s.at(i, six)
		elements = append(elements, fmt.Sprintf("%s . %s . %d : goto service-%d", at.Addr(), s.protocol, at.Port(), i))
		fmt.Fprintf(&chains, `	chain service-%d {
		%s saddr != %s jump mark-for-masquerade
		numgen random mod 1 vmap { 0 : goto endpoint-%[1]d }
	}
	chain endpoint-%[1]d {
		%[2]s saddr %[4]s jump mark-for-masquerade
		meta l4proto %[5]s dnat to %[6]s
	}
`, i, ip, pods, s.backend.addr(six), s.protocol, netip.AddrPortFrom(s.backend.addr(six), s.port))
	}
	return fmt.Sprintf(`table %s kube-proxy {
	map service-ips { type %s . inet_proto . inet_service : verdict; elements = { %s }; }
	chain mark-for-masquerade { meta mark set meta mark or 0x4000; }
%s	chain services { %[1]s daddr . meta l4proto . th dport vmap @service-ips; }
	chain nat-prerouting { type nat hook prerouting priority -100; jump services; }
	chain nat-output { type nat hook output priority -100; jump services; }
	chain nat-postrouting {
		type nat hook postrouting priority 100;
		meta mark and 0x4000 == 0 return
		meta mark set meta mark xor 0x4000
		masquerade fully-random
	}
	chain filter-forward { type filter hook forward priority -110; ct state invalid drop; }
}
`, ip, kind, strings.Join(elements, ", "), &chains)
}
