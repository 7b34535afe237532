package datapath

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/firewall"
	"porin.dev/porin/internal/nl"
)

// firewallFindings names the chains that drop forwarded packets, if no connection of an endpoint through the node's
// stack is answered. An answered connection proves that a rule of such a chain accepts endpoints.
func (d *Datapath) firewallFindings() ([]doctor.Finding, error) {
	unanswered, err := d.unanswered()
	if err != nil || unanswered == 0 {
		return nil, err
	}
	chains, err := firewall.Dropping(d.links.namespace)
	if len(chains) == 0 {
		return nil, err
	}
	var names []string
	for _, c := range chains {
		names = append(names, c.String())
	}
	return []doctor.Finding{{
		Kind: forwardingDropped, Subject: "forwarding by the node",
		Detail: fmt.Sprintf("none of %d connections of endpoints through the node's stack is answered, and %s", unanswered, strings.Join(names, "; ")),
	}}, err
}

// unanswered counts the connections that endpoints have opened through the node's stack to other addresses than the
// node's own, where their egress policy allows these. It is 0 if one of them is answered. Pings do not count: ufw
// accepts them and drops all else.
func (d *Datapath) unanswered() (count int, err error) {
	addrs, err := nl.Dump(func() ([]netlink.Addr, error) { return d.links.handle.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return 0, nl.IgnoreInterrupted(err)
	}
	own := map[abi.Addr]bool{}
	for _, a := range addrs {
		own[abi.AddrOf(nl.Addr(a.IP))] = true
	}
	answered := false
	err = d.maps.use(func(m *bpfMaps) error {
		return eachEntry(m.Connections, func(key abi.ConnectionKey, values []abi.Connection) {
			c := values[0]
			switch {
			case c.Path != abi.PathStack || c.State&abi.StateOpenedHere == 0 || own[key.Remote] || model.Protocol(key.Protocol).IsICMP():
			case c.State&abi.StateReplied != 0:
				answered = true
			default:
				verdict, err := policyMaps((*loader.Maps)(m)).Egress(c.Id, key.Remote.IP(), model.Protocol(key.Protocol), bits.ReverseBytes16(key.RemotePort))
				if err == nil && verdict != engine.ValueDeny {
					count++
				}
			}
		})
	})
	if answered || errors.Is(err, ErrNotStarted) {
		return 0, err
	}
	return count, err
}
