package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/rtnl"
)

// Kernel tells which addresses the node's network names that are none of Porin's endpoints' doing: the datapath looks after
// those.
type Kernel interface {
	// Uses are host routes and permanent neighbours that lead elsewhere than to an endpoint, and the node's own addresses.
	Uses() ([]Use, error)
}

// Use is one such thing.
type Use struct {
	Addr  netip.Addr
	Own   bool   // an interface of the node has it
	What  string // one of the sorts below
	Which string // "route to 10.1.0.7/32 by link 2"
}

// The sorts of what is used, in the plural.
const (
	routeSort = "host routes of others"
	neighSort = "neighbours of others"
	addrSort  = "addresses of the node"
)

// routeKernel asks the kernel of the network namespace that the caller's thread is in.
type routeKernel struct{}

// NewKernel returns the one there is.
func NewKernel() Kernel { return routeKernel{} }

// Uses implements [Kernel].
func (routeKernel) Uses() ([]Use, error) {
	conn, err := rtnl.Dial()
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	links, linksErr := conn.Links()
	routes, routesErr := conn.Routes(0)
	neighs, neighsErr := conn.Neighs(0)
	addrs, addrsErr := conn.Addrs(0)
	// A list that changed while it was read may lack something: the next look sees that.
	for _, err := range []error{linksErr, routesErr, neighsErr, addrsErr} {
		if err != nil && !errors.Is(err, rtnl.ErrInterrupted) {
			return nil, fmt.Errorf("list what the node's network names: %w", err)
		}
	}
	ours := hostEnds(links)
	return append(append(routeUses(routes, ours), neighUses(neighs, ours)...), addrUses(addrs)...), nil
}

// hostEndName is the length of the name of every host end.
var hostEndName = len(v1.HostInterfaceName("", ""))

// hostEnds are the links that lead to endpoints.
func hostEnds(links []rtnl.Link) map[int]bool {
	ours := map[int]bool{}
	for _, l := range links {
		if l.Kind == "veth" && strings.HasPrefix(l.Name, v1.HostInterfacePrefix) && len(l.Name) == hostEndName {
			ours[l.Index] = true
		}
	}
	return ours
}

// routeUses leaves out the routes of networks: an address in one may be free.
func routeUses(routes []rtnl.Route, ours map[int]bool) (uses []Use) {
	for _, r := range routes {
		if !r.Dst.IsSingleIP() || r.Protocol == rtnl.Protocol && ours[r.Link] {
			continue
		}
		uses = append(uses, Use{r.Dst.Addr().Unmap(), false, routeSort, fmt.Sprintf("route to %s by link %d", r.Dst, r.Link)})
	}
	return uses
}

func neighUses(neighs []rtnl.Neigh, ours map[int]bool) (uses []Use) {
	for _, n := range neighs {
		if n.State&unix.NUD_PERMANENT != 0 && !ours[n.Link] {
			uses = append(uses, Use{n.Addr.Unmap(), false, neighSort, fmt.Sprintf("neighbour %s on link %d", n.Addr, n.Link)})
		}
	}
	return uses
}

func addrUses(addrs []rtnl.Addr) (uses []Use) {
	for _, a := range addrs {
		uses = append(uses, Use{a.Prefix.Addr().Unmap(), true, addrSort, fmt.Sprintf("address %s of link %d", a.Prefix, a.Link)})
	}
	return uses
}
