package cni

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
)

// check names the first difference between the result of ADD, the agent, the container and the node. It repairs
// nothing.
func (h handler) check(ctx context.Context, c call) error {
	previous, err := c.previousResult()
	if err != nil {
		return err
	}
	ep, err := h.Lookup.Get(endpoint.ByAttachment(c.attachment))
	if err != nil {
		return fmt.Errorf("check the endpoint of %s: %w", c.subject(), err)
	}
	if difference := compareResult(previous, ep); difference != "" {
		return differs(difference)
	}
	namespace, err := receiveNamespace(ctx, c)
	if err != nil {
		return err
	}
	defer namespace.Close()
	difference, err := h.Inspector.Inspect(ctx, ep, namespace)
	if err != nil {
		return err
	}
	if difference != "" {
		return differs(difference)
	}
	examined, err := h.Examiner.Examine(ctx, doctor.Scope{Endpoint: c.attachment.String()})
	if err != nil {
		return fmt.Errorf("examine the endpoint of %s: %w", c.subject(), err)
	}
	if len(examined.Findings) > 0 {
		f := examined.Findings[0]
		return fail(codeDiffers, fmt.Sprintf("%s: %s: %s", f.Kind, f.Subject, f.Detail),
			"the agent repairs what it can: look at porin doctor; if it stays, remove the container and create it again")
	}
	if c.delegated() {
		return h.Plugins.Check(ctx, c.delegateCall())
	}
	return nil
}

func differs(difference string) error {
	return fail(codeDiffers, difference, "remove the container and create it again")
}

// checkConfig is what CHECK reads of a network configuration besides.
type checkConfig struct {
	PrevResult json.RawMessage `json:"prevResult" doc:"CHECK: the result of the ADD, from the runtime"`
}

// previousResult is the result of the ADD, with what later plugins of a chain may have added.
func (c *call) previousResult() (*types100.Result, error) {
	var config checkConfig
	if err := json.Unmarshal(c.raw, &config); err != nil || !isSet(config.PrevResult) {
		return nil, fail(types.ErrInvalidNetworkConfig, "CHECK without prevResult", "the container runtime must pass the result of ADD")
	}
	result, err := version.NewResult(c.config.CNIVersion, config.PrevResult)
	if err == nil {
		var newest *types100.Result
		if newest, err = types100.NewResultFromResult(result); err == nil {
			return newest, nil
		}
	}
	return nil, badConfig("prevResult", err.Error())
}

// compareResult wants the agent's interface and addresses in the result, and no other addresses on that interface.
func compareResult(previous *types100.Result, ep endpoint.Endpoint) string {
	index := slices.IndexFunc(previous.Interfaces, func(i *types100.Interface) bool { return i.Name == ep.Container.Name && i.Sandbox != "" })
	if index < 0 {
		return "the result of ADD has no interface " + ep.Container.Name
	}
	if mac := previous.Interfaces[index].Mac; mac != "" && mac != ep.Container.MAC.String() {
		return fmt.Sprintf("interface %s has the MAC %s, but the result of ADD says %s", ep.Container.Name, ep.Container.MAC, mac)
	}
	want := ep.Addresses.List()
	for _, ip := range previous.IPs {
		addr, _ := netip.AddrFromSlice(ip.Address.IP)
		addr = addr.Unmap()
		if i := slices.Index(want, addr); i >= 0 {
			want = slices.Delete(want, i, i+1)
		} else if ip.Interface != nil && *ip.Interface == index {
			return fmt.Sprintf("address %s is in the result of ADD, but not the agent's", addr)
		}
	}
	if len(want) > 0 {
		return fmt.Sprintf("address %s is the agent's, but not in the result of ADD", want[0])
	}
	return ""
}
