package spec

import (
	"fmt"
	"net/netip"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/jsontext"
)

// Given is what an IPAM plugin answers an ADD, as far as it matters: the length of a prefix does not, for a container has its
// address alone, nor the next hops of routes, for there is one, which all destinations take.
type Given struct {
	Addresses v1.Addresses
	Gateways  v1.Addresses   // of its subnets: nothing is sent to them, but the result has them; zero for none
	Routes    []netip.Prefix // destinations but the default, each once
	DNS       []byte         // JSON; nil for none

	excess netip.Addr // beyond one of a family
}

// ParseGiven reads the answer in the form of any version since 0.3.0.
func ParseGiven(text []byte) (g Given, err error) {
	err = jsontext.Fields(text, func(key string, value []byte) (err error) {
		switch {
		case jsontext.IsNull(value):
		case key == "ips":
			err = jsontext.Items(value, g.item)
		case key == "routes":
			err = g.routes(value)
		case key == "dns":
			g.DNS, err = readDNS(value)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", key, err)
		}
		return err
	})
	g.Routes = distinct(g.Routes)
	return g, err
}

func (g *Given) item(value []byte) error {
	var gateway netip.Addr
	var addresses []netip.Addr
	err := jsontext.Fields(value, func(key string, value []byte) (err error) {
		switch {
		case key == "address":
			var prefix netip.Prefix
			prefix, err = readText(value, netip.ParsePrefix)
			addresses = append(addresses, prefix.Addr().Unmap())
		case key == "gateway" && !jsontext.IsNull(value):
			gateway, err = readText(value, optionalAddr)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, addr := range addresses {
		g.take(addr, gateway.Unmap().WithZone(""))
	}
	return nil
}

// optionalAddr takes an empty text for none, as the reference library does.
func optionalAddr(text string) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, nil
	}
	return netip.ParseAddr(text)
}

// take keeps the first address of a family, with its gateway if that is of the same.
func (g *Given) take(addr, gateway netip.Addr) {
	slot, beside := &g.Addresses.IPv6, &g.Gateways.IPv6
	if addr.Is4() {
		slot, beside = &g.Addresses.IPv4, &g.Gateways.IPv4
	}
	if slot.IsValid() {
		g.excess = addr
		return
	}
	*slot = addr
	if gateway.Is4() == addr.Is4() {
		*beside = gateway
	}
}

// Excess is an error when more was given than a container can have.
func (g Given) Excess(plugin string) error {
	if n := len(g.Routes); n > maxRoutes {
		return &Error{
			BadConfig, fmt.Sprintf("the IPAM plugin %s gave %d routes, and %d is the most", plugin, n, maxRoutes),
			`have it give fewer: all that leaves the container takes one way anyway ("ipam" in the network configuration)`,
		}
	}
	if !g.excess.IsValid() {
		return nil
	}
	first := g.Addresses.IPv6
	if g.excess.Is4() {
		first = g.Addresses.IPv4
	}
	return &Error{
		BadConfig, fmt.Sprintf("the IPAM plugin %s gave the addresses %s and %s, two of one family", plugin, first, g.excess),
		`have it give one IPv4 and one IPv6 address at the most ("ipam" in the network configuration)`,
	}
}
