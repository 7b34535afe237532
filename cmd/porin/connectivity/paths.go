package connectivity

import (
	"net"
	"net/netip"
	"strconv"
	"time"
)

// Path is one thing that is tried from a node, or from a pod of a node.
type Path struct {
	From   string `json:"from"` // a node
	To     string `json:"to"`   // a node; "" for what is no node's
	What   string `json:"what"`
	Family string `json:"family,omitempty"` // "ipv4" or "ipv6"; "" for a name
	Probe  Probe  `json:"probe"`
	Denied bool   `json:"denied,omitempty"` // it must fail
	host   bool   // from the node itself
}

// The kinds of paths.
const (
	podToPod   = "pod" // by TCP
	podByUDP   = "pod-udp"
	podLarge   = "pod-large"  // packets of full size
	podDenied  = "pod-denied" // a port that a policy does not allow
	podToNode  = "node"       // the node's kubelet
	nodeToNode = "node-node"  // that from the node itself
	nodeToPod  = "node-pod"
	service_   = "service"
	nodePort   = "node-port"
	hostPort_  = "host-port"
	dnsService = "dns"     // by the pod's /etc/resolv.conf
	dnsPod     = "dns-pod" // CoreDNS without its Service
	outside    = "outside"
)

// place is a node with the addresses of its server.
type place struct {
	name       string
	number     int
	addresses  []netip.Addr // of the node
	kubelet    int          // its port
	pod        []netip.Addr // of its server
	clusterIPs []netip.Addr // of the server's Service
	nodePort   int
	ready      bool // its pods run
}

// again is how long a path is tried, and serviceKnown how long until kube-proxy has a new Service.
const (
	again        = 4 * time.Second
	serviceKnown = 15 * time.Second
)

// paths are all that can be tried between the nodes whose pods run.
func paths(places []place, dns []dnsServer, outsides []string) (list []Path) {
	add := func(from, to, what string, addr netip.Addr, port int, probe Probe) *Path {
		probe.For = again
		probe.Address = net.JoinHostPort(addr.String(), strconv.Itoa(port))
		list = append(list, Path{From: from, To: to, What: what, Family: familyOf(addr), Probe: probe})
		return &list[len(list)-1]
	}
	for _, from := range places {
		if !from.ready {
			continue
		}
		for _, to := range places {
			for _, addr := range to.addresses {
				add(from.name, to.name, nodeToNode, addr, to.kubelet, Probe{Kind: Connect}).host = true
				add(from.name, to.name, podToNode, addr, to.kubelet, Probe{Kind: Connect})
			}
			if !to.ready {
				continue
			}
			name := serverName(to.number)
			for _, addr := range to.pod {
				add(from.name, to.name, podToPod, addr, openPort, Probe{Kind: HTTP, Name: name})
				add(from.name, to.name, podByUDP, addr, openPort, Probe{Kind: UDP})
				add(from.name, to.name, podLarge, addr, openPort, Probe{Kind: Large})
				denied := add(from.name, to.name, podDenied, addr, deniedPort, Probe{Kind: Connect})
				denied.Denied, denied.Probe.For = true, 0
				add(from.name, to.name, nodeToPod, addr, openPort, Probe{Kind: HTTP, Name: name}).host = true
			}
			for _, addr := range to.addresses {
				add(from.name, to.name, hostPort_, addr, hostPort, Probe{Kind: HTTP, Name: name})
				if has(to.clusterIPs, familyOf(addr)) {
					add(from.name, to.name, nodePort, addr, to.nodePort, Probe{Kind: HTTP, Name: name}).Probe.For = serviceKnown
				}
			}
		}
		for _, addr := range from.clusterIPs {
			add(from.name, "", service_, addr, openPort, Probe{Kind: HTTP, Name: serverName(from.number)}).Probe.For = serviceKnown
		}
		list = append(list, Path{From: from.name, What: dnsService, Probe: Probe{Kind: DNS, Name: "kubernetes.default"}})
		for _, server := range dns {
			add(from.name, server.node, dnsPod, server.addr, 53, Probe{Kind: DNS, Name: "kubernetes.default"})
		}
		for _, address := range outsides {
			list = append(list, Path{From: from.name, What: outside, Probe: Probe{Kind: Connect, Address: address}})
		}
	}
	return list
}

func has(addrs []netip.Addr, family string) bool {
	for _, addr := range addrs {
		if familyOf(addr) == family {
			return true
		}
	}
	return false
}
