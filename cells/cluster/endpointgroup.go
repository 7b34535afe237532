package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode"

	"porin.dev/porin/internal/labels"
)

// EndpointGroup is some endpoints of a node, for the other nodes: a record grows with nodes and their use,
// and a change of one pod writes and sends no more than that.
type EndpointGroup struct {
	Node      NodeID              `json:"node"`
	Slot      int                 `json:"slot"`                // with the node the name of the record
	LabelSets []LabelSet          `json:"labelSets,omitempty"` // that the endpoints share
	Endpoints []PublishedEndpoint `json:"endpoints,omitempty"`

	Deleting bool    `json:"-"`
	Version  Version `json:"-"`
}

// GroupSize is how many endpoints a node puts into a group: a larger group costs API servers much more
// (docs/adr/0034-cost-of-publishing-endpoints.md).
const GroupSize = 8

// The limits of a node's records. Other nodes have map entries for them, so a record with more is [ErrUnreadable].
const (
	maxEndpoints  = 16   // of a group
	maxSlots      = 4096 // of a node: 32,768 endpoints
	maxNamedPorts = 256
)

// LabelSet is what endpoints of a namespace have in common.
type LabelSet struct {
	Namespace       string            `json:"namespace,omitempty"`
	NamespaceLabels map[string]string `json:"namespaceLabels,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
}

// PublishedEndpoint is an endpoint as other nodes know it.
type PublishedEndpoint struct {
	Addresses  []netip.Addr    `json:"addresses"` // at most one of each family
	Pod        string          `json:"pod,omitempty"`
	LabelSet   int             `json:"labelSet"` // index in the group
	NamedPorts []PublishedPort `json:"namedPorts,omitempty"`
}

// PublishedPort is a port of a pod's containers that has a name.
type PublishedPort struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	Port     uint16 `json:"port"`
}

// RecordName is the name of the group's record: its node's, and the slot.
func (g EndpointGroup) RecordName() string {
	return g.Node.recordName(maxName-len(".4095")) + "." + strconv.Itoa(g.Slot)
}

// ParseGroupName is the reverse of [EndpointGroup.RecordName], with the limits of [ParseRecordName].
func ParseGroupName(name string) EndpointGroup {
	dot := strings.LastIndex(name, ".")
	if dot < 0 {
		return EndpointGroup{}
	}
	slot, err := strconv.Atoi(name[dot+1:])
	if err != nil {
		return EndpointGroup{}
	}
	return EndpointGroup{Node: ParseRecordName(name[:dot]), Slot: slot}
}

// Validate reports values that other nodes do not accept.
func (g EndpointGroup) Validate() error {
	errs := []error{g.Node.Validate()}
	if g.Slot < 0 || g.Slot >= maxSlots || len(g.Endpoints) > maxEndpoints {
		return fmt.Errorf("slot %d with %d endpoints: want slots below %d, and %d endpoints at the most", g.Slot, len(g.Endpoints), maxSlots, maxEndpoints)
	}
	if len(g.LabelSets) > maxEndpoints {
		return fmt.Errorf("%d label sets, more than %d", len(g.LabelSets), maxEndpoints)
	}
	for _, set := range g.LabelSets {
		errs = append(errs, checkName("namespace", set.Namespace), labels.Check("namespaceLabels", set.NamespaceLabels), labels.Check("labels", set.Labels))
	}
	for _, ep := range g.Endpoints {
		errs = append(errs, checkName("pod", ep.Pod), checkFamilies("addresses", ep.Addresses))
		for _, port := range ep.NamedPorts {
			errs = append(errs, checkName("named port", port.Name), checkName("protocol", port.Protocol))
		}
		if ep.LabelSet < 0 || ep.LabelSet >= len(g.LabelSets) || len(ep.NamedPorts) > maxNamedPorts {
			errs = append(errs, fmt.Errorf("endpoint %.64q: label set %d of %d, %d named ports", ep.Pod, ep.LabelSet, len(g.LabelSets), len(ep.NamedPorts)))
		}
	}
	return errors.Join(errs...)
}

// checkName accepts what the API takes from runtimes: nothing that a terminal would take for more than text.
func checkName(what, name string) error {
	if len(name) > 253 || strings.ContainsFunc(name, func(r rune) bool { return r == unicode.ReplacementChar || r == '/' || !unicode.IsPrint(r) }) {
		return fmt.Errorf("%s %.64q: want at most 253 characters that can be printed, and no slash", what, name)
	}
	return nil
}
