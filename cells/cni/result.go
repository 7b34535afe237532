package cni

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
)

// resultOf is the result of an ADD, in the version of its configuration.
func (c *call) resultOf(ep endpoint.Endpoint) ([]byte, error) {
	newest, err := c.newestResult(ep)
	if err != nil {
		return nil, err
	}
	result, err := newest.GetAsVersion(c.config.CNIVersion)
	if err != nil {
		return nil, fmt.Errorf("convert the result to CNI %s: %w", c.config.CNIVersion, err)
	}
	return json.Marshal(result)
}

func (c *call) newestResult(ep endpoint.Endpoint) (*types100.Result, error) {
	ipam, err := ep.DecodeIPAMResult()
	if err != nil {
		return nil, err
	}
	result := &types100.Result{
		CNIVersion: types100.ImplementedSpecVersion,
		Interfaces: []*types100.Interface{
			{Name: ep.Host.Name, Mac: ep.Host.MAC.String(), Mtu: ep.MTU},
			{Name: ep.Container.Name, Mac: ep.Container.MAC.String(), Mtu: ep.MTU, Sandbox: c.netns},
		},
	}
	if result.DNS, err = c.dns(ipam); err != nil {
		return nil, err
	}
	for _, f := range []struct {
		addr, gateway, shown netip.Addr
		all                  netip.Prefix
	}{
		{ep.Addresses.IPv4, v1.GatewayIPv4, ipam.Gateways.IPv4, netip.PrefixFrom(netip.IPv4Unspecified(), 0)},
		{ep.Addresses.IPv6, v1.GatewayIPv6, ipam.Gateways.IPv6, netip.PrefixFrom(netip.IPv6Unspecified(), 0)},
	} {
		if !f.addr.IsValid() {
			continue
		}
		if !f.shown.IsValid() {
			f.shown = f.gateway
		}
		result.IPs = append(result.IPs, &types100.IPConfig{
			Interface: types100.Int(1), Address: ipNet(netip.PrefixFrom(f.addr, f.addr.BitLen())), Gateway: f.shown.AsSlice(),
		})
		for _, dst := range append([]netip.Prefix{f.all}, ipam.Routes...) {
			if dst.Addr().Is4() == f.addr.Is4() {
				result.Routes = append(result.Routes, &types.Route{Dst: ipNet(dst), GW: f.gateway.AsSlice()})
			}
		}
	}
	return result, nil
}

// resultConfig is what a result has of a network configuration.
type resultConfig struct {
	DNS types.DNS `json:"dns" doc:"DNS of the result; when it is absent, the IPAM plugin's"`
}

// dns is the configuration's, or else the IPAM plugin's, as in the reference plugins.
func (c *call) dns(ipam endpoint.IPAMResult) (dns types.DNS, err error) {
	var config resultConfig
	if err := json.Unmarshal(c.raw, &config); err != nil {
		return dns, badConfig("dns", err.Error())
	}
	if dns = config.DNS; len(dns.Nameservers) > 0 || dns.Domain != "" || len(dns.Search) > 0 || len(dns.Options) > 0 || ipam.DNS == nil {
		return dns, nil
	}
	return dns, json.Unmarshal(ipam.DNS, &dns)
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
