package datapath

import (
	"fmt"
	"regexp"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpointmanager"
)

// Link is a network interface of the node.
type Link struct {
	Index int
	Name  string
	Kind  string // "veth"
	MAC   endpointmanager.MAC
	Up    bool
}

// hostEnd matches what v1.HostInterfaceName gives.
var hostEnd = regexp.MustCompile(`^` + v1.HostInterfacePrefix + `[a-z2-7]{12}$`)

// Marked says whether the link bears Porin's mark: it is the host end of a veth pair, by its kind and its name.
func (l Link) Marked() bool { return l.Kind == "veth" && hostEnd.MatchString(l.Name) }

// String names the link and tells it from a later one of that name.
func (l Link) String() string { return fmt.Sprintf("link %s, index %d", l.Name, l.Index) }
