package model

import (
	"fmt"
	"net/netip"
)

// Named selects by an object whose content is not in the policy, such as a Service of the Kubernetes API. The policy
// cell resolves it to other peers (References), so the engine never gets one.
type Named struct {
	Reference
	Except []netip.Prefix // of CIDR groups
}

// Reference names an object of the Kubernetes API or, with Labels, the objects that have them.
type Reference struct {
	Kind      ReferenceKind
	Namespace string
	Name      string
	Labels    string // as the API's labelSelector
}

// ReferenceKind is what kind of object a reference names.
type ReferenceKind string

// The kinds.
const (
	KubeAPIServer ReferenceKind = "kube-apiserver" // the addresses of the Service default/kubernetes; it has no name
	Service       ReferenceKind = "Service"
	CIDRGroup     ReferenceKind = "CiliumCIDRGroup"
)

func (r Reference) String() string {
	name := r.Name
	if r.Labels != "" {
		name = fmt.Sprintf("(%s)", r.Labels)
	}
	switch {
	case r.Kind == KubeAPIServer:
		return string(r.Kind)
	case r.Namespace != "":
		return fmt.Sprintf("%s %s/%s", r.Kind, r.Namespace, name)
	}
	return fmt.Sprintf("%s %s", r.Kind, name)
}

// Resolution is what a reference selects. The zero value selects nothing.
type Resolution struct {
	Pods     []Pods         `json:"pods,omitempty"`
	Prefixes []netip.Prefix `json:"prefixes,omitempty"`
	// Host says that it selects this node, too.
	Host bool `json:"host,omitempty"`
	// Unknown says that it selects more than is known here.
	Unknown bool `json:"unknown,omitempty"`
	// Problem says why it selects nothing, or is not known.
	Problem string `json:"problem,omitempty"`
}

// Peers are the peers that stand for the reference. In a rule that denies, an unknown one stands for everything.
func (n Named) Peers(r Resolution, action Action) (peers []Peer) {
	if r.Unknown && action != Accept {
		return []Peer{{Any: true}}
	}
	for _, pods := range r.Pods {
		peers = append(peers, Peer{Pods: &pods})
	}
	for _, cidr := range r.Prefixes {
		block := Block{CIDR: cidr, OutsideOnly: n.Kind == CIDRGroup}
		whole := false
		for _, except := range n.Except {
			if except.Overlaps(cidr) {
				whole = whole || except.Bits() <= cidr.Bits()
				block.Except = append(block.Except, except)
			}
		}
		if !whole {
			peers = append(peers, Peer{Block: &block})
		}
	}
	if r.Host {
		peers = append(peers, Peer{Kinds: KindsOf(Host)})
	}
	return peers
}
