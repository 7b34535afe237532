package main

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/cilium/ebpf"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy"
)

// public is the number of the rules.
const public = 7

// kernel is a [proxy.Kernel] that redirects by a filter of tc.
type kernel struct {
	device string // clients' device
	link   int
}

// SetProxyLink sends packets from the device to port 80 on to the proxy's. That alone gives the proxy a packet of a
// connection that has not begun yet.
func (k *kernel) SetProxyLink(index int) error {
	k.link = index
	if index == 0 {
		return tc("qdisc del dev " + k.device + " clsact")
	}
	return tc("qdisc replace dev "+k.device+" clsact", "filter replace dev "+k.device+" ingress pref 1 handle 800::1 protocol ip u32 "+
		"match ip protocol 6 0xff match ip dport 80 0xffff action mirred ingress redirect dev porin-l7")
}

func (k *kernel) ProxyLink() (int, error) { return k.link, nil }

// UseMaps has no maps of other programs.
func (k *kernel) UseMaps(f func(map[string]*ebpf.Map) error) error { return f(nil) }

// Opener says that each client is endpoint 1, and comes with its own address.
func (k *kernel) Opener(_ model.Protocol, client, _ netip.AddrPort) (proxy.Opener, error) {
	return proxy.Opener{Source: client.Addr(), Endpoint: 1}, nil
}

// EndpointAt says that servers are no endpoints: they have no rules.
func (k *kernel) EndpointAt(netip.Addr) (uint16, error) { return 0, nil }

// Verdict has the one set of rules for all connections.
func (k *kernel) Verdict(policy.Question) (uint32, error) { return public, nil }

// Version never changes, as the verdict does not.
func (k *kernel) Version(uint16) (generation, revision uint32, err error) { return 1, 1, nil }

// AddressGeneration never changes, as no endpoint has an address.
func (k *kernel) AddressGeneration() (uint32, error) { return 1, nil }

func tc(commands ...string) error {
	for _, command := range commands {
		if out, err := exec.Command("tc", strings.Fields(command)...).CombinedOutput(); err != nil {
			return fmt.Errorf("tc %s: %w: %s", command, err, out)
		}
	}
	return nil
}
