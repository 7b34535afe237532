package nodecheck

import (
	"fmt"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"porin.dev/porin/internal/testutil"
)

// Pod is a container whose ADD succeeded, with the addresses that the answer named.
type Pod struct {
	*testutil.Container
	IPv4, IPv6 netip.Addr
}

// PodOf reads the answer of an ADD.
func PodOf(c *testutil.Container, result types.Result) (Pod, error) {
	p := Pod{Container: &testutil.Container{Namespace: c.Namespace, ID: c.ID, IfName: c.IfName, Caps: c.Caps}} // as it is now
	newest, err := types100.NewResultFromResult(result)
	if err != nil {
		return p, err
	}
	for _, ip := range newest.IPs {
		addr, _ := netip.AddrFromSlice(ip.Address.IP)
		if addr = addr.Unmap(); addr.Is4() {
			p.IPv4 = addr
		} else {
			p.IPv6 = addr
		}
	}
	return p, nil
}

// Attachment is its name in the agent.
func (p Pod) Attachment() string { return AttachmentOf(p.Container) }

// AttachmentOf is a container's name in the agent.
func AttachmentOf(c *testutil.Container) string { return c.ID + ":" + c.IfName }

// items are the endpoints that the agent must have.
func (w Want) items() (items []Item) {
	for _, p := range w.Live {
		items = append(items, endpointItem(p.Attachment(), "ready", p.IPv4, p.IPv6))
	}
	return items
}

func endpointItem(attachment, state string, v4, v6 netip.Addr) Item {
	return Item{"endpoint", fmt.Sprintf("%s %s %s %s", attachment, state, v4, v6)}
}
