package model

import "net/netip"

// Peer is the other end of what a rule matches. Exactly one field is set; a peer without any matches nothing.
type Peer struct {
	Any   bool      // everything
	Kinds KindSet   // addresses of one of the kinds
	Pods  *Pods     // pods, by labels
	Block *Block    // addresses, also pods' and nodes'
	Nodes *Selector // the addresses of nodes, by the nodes' labels
	// Domain selects addresses outside of the cluster by their names, as far as answers to DNS queries are known.
	Domain DNSRule
	Named  *Named // by an object of the Kubernetes API
}

// Pods selects pods by their namespace and labels. Pods in the node's network are never selected: they have the node's
// addresses.
type Pods struct {
	Namespace  string   // only this one, if not empty
	Namespaces Selector // by labels of the namespace
	Labels     Selector // by labels of the pod
}

// Block is an address range with exceptions, which lie inside it.
type Block struct {
	CIDR   netip.Prefix
	Except []netip.Prefix
	// OutsideOnly leaves out the addresses of pods and nodes.
	OutsideOnly bool
}

// Selector selects by labels: all requirements have to be met. One without requirements selects everything.
type Selector []Requirement

// Requirement is one condition on a label.
type Requirement struct {
	Key      string
	Operator Operator
	Values   []string // of In and NotIn
}

// Operator is a requirement's relation between a label and values.
type Operator uint8

// The operators, with Kubernetes' meaning: NotIn is also met by a missing label.
const (
	In Operator = iota
	NotIn
	Exists
	DoesNotExist
)

func (o Operator) String() string {
	return name(o, "In", "NotIn", "Exists", "DoesNotExist")
}
