package model

import (
	"fmt"
	"strconv"
	"strings"
)

// The kinds of policies that there are.
const (
	KindNetworkPolicy                  = "NetworkPolicy"
	KindClusterNetworkPolicy           = "ClusterNetworkPolicy"
	KindAdminNetworkPolicy             = "AdminNetworkPolicy"
	KindBaselineAdminNetworkPolicy     = "BaselineAdminNetworkPolicy"
	KindCiliumNetworkPolicy            = "CiliumNetworkPolicy"
	KindCiliumClusterwideNetworkPolicy = "CiliumClusterwideNetworkPolicy"
)

// Kinds returns them.
func Kinds() []string {
	return []string{
		KindNetworkPolicy, KindClusterNetworkPolicy, KindAdminNetworkPolicy, KindBaselineAdminNetworkPolicy,
		KindCiliumNetworkPolicy, KindCiliumClusterwideNetworkPolicy,
	}
}

// Namespaced reports whether policies of the kind have a namespace.
func Namespaced(kind string) bool {
	return kind == KindNetworkPolicy || kind == KindCiliumNetworkPolicy
}

// PolicyID names a policy. Only one of a kind that is [Namespaced] has a namespace.
type PolicyID struct {
	Kind, Namespace, Name string
	Part                  int // of an object with several specifications: 0 is the first
}

// String is "Kind namespace/name", or "Kind name".
func (id PolicyID) String() string {
	if id.Namespace == "" {
		return id.Kind + " " + id.Name
	}
	return id.Kind + " " + id.Namespace + "/" + id.Name
}

// Tier is the group of policies that are evaluated together.
type Tier uint8

// The tiers, in the order of their evaluation.
const (
	TierAdmin Tier = iota
	TierNetworkPolicy
	TierBaseline
)

func (t Tier) String() string {
	return name(t, "admin", "networkpolicy", "baseline")
}

// Direction is a connection's direction as seen by a policy's subject.
type Direction uint8

// The directions.
const (
	Egress Direction = iota
	Ingress
)

func (d Direction) String() string {
	return name(d, "egress", "ingress")
}

// Action is what a rule does with what it matches.
type Action uint8

// The actions. Pass ends the evaluation of the tier.
const (
	Accept Action = iota
	Deny
	Pass
)

func (a Action) String() string {
	return name(a, "accept", "deny", "pass")
}

func name[N ~uint8](n N, names ...string) string {
	if int(n) < len(names) {
		return names[n]
	}
	return strconv.Itoa(int(n))
}

// MaxPriority is the greatest priority that a policy may ask for. A lower one is evaluated first.
const MaxPriority = 1000

// BaselineAdminPriority is the priority of a BaselineAdminNetworkPolicy, which has none of its own: after all others.
const BaselineAdminPriority = MaxPriority + 1

// Policy is a policy of any kind.
type Policy struct {
	ID       PolicyID
	Tier     Tier
	Priority int // not in TierNetworkPolicy
	// Subject selects the pods that the policy is for.
	Subject Pods
	// Egress and Ingress are the parts of the policy; nil means that the policy does not affect the direction.
	Egress, Ingress *Rules
	// EgressOpen and IngressOpen have the policy deny nothing but by its rules, in [TierNetworkPolicy].
	EgressOpen, IngressOpen bool
	// Audit says that the policy is not in force: its decisions are only reported.
	Audit bool
	// More are the policies of the object's other specifications.
	More []Policy
}

// Parts returns the policies of all specifications.
func (p Policy) Parts() []Policy {
	all := append([]Policy{p}, p.More...)
	all[0].More = nil
	return all
}

// Rules is a policy's part for one direction. In [TierNetworkPolicy] a subject is denied what no rule accepts, so an
// empty one denies all, and what a rule denies is denied whatever others accept.
type Rules []Rule

// Part returns the policy's part for a direction, or nil.
func (p *Policy) Part(direction Direction) *Rules {
	if direction == Egress {
		return p.Egress
	}
	return p.Ingress
}

// DeniesByDefault reports whether a subject is denied what no rule of the tier accepts in a direction.
func (p *Policy) DeniesByDefault(direction Direction) bool {
	open := p.EgressOpen
	if direction == Ingress {
		open = p.IngressOpen
	}
	return p.Tier == TierNetworkPolicy && p.Part(direction) != nil && !open
}

// Rule matches a connection when one of its peers and one of its ports match.
type Rule struct {
	Name   string // may be empty
	Action Action
	Peers  []Peer
	Ports  []Port // empty: every protocol and every port
	// Layer7 sends the connections through the proxy, which applies it. Only rules that accept, in [TierNetworkPolicy],
	// have one.
	Layer7 *Layer7
}

// Protocol is a number of an IP protocol.
type Protocol uint8

// The protocols that have ports. Any other one, but ICMP and ICMPv6, is matched by rules without ports only.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// The protocols with types of messages: see [Port].
const (
	ICMP   Protocol = 1
	ICMPv6 Protocol = 58
)

// OtherTypes stands for all types of ICMP and ICMPv6 but echo requests.
const OtherTypes = 0

// IsICMP reports whether the protocol is ICMP or ICMPv6.
func (p Protocol) IsICMP() bool { return p == ICMP || p == ICMPv6 }

// EchoRequest is the type of an echo request of ICMP or ICMPv6.
func (p Protocol) EchoRequest() uint16 {
	if p == ICMP {
		return 8
	}
	return 128
}

// HasPorts reports whether rules with ports may match the protocol.
func (p Protocol) HasPorts() bool { return p == TCP || p == UDP || p == SCTP }

func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	case ICMP:
		return "ICMP"
	case ICMPv6:
		return "ICMPv6"
	}
	return strconv.Itoa(int(p))
}

// Port matches destination ports: those from First to Last, or the port that the destination pod has under Name. Of
// ICMP and ICMPv6, First and Last are the type of echo requests, or [OtherTypes].
type Port struct {
	Protocol    Protocol // 0, with a name only: the protocol that the pod's port has
	First, Last uint16
	Name        string // if not empty, First and Last mean nothing
}

// ParseProtocol reads what [Protocol.String] writes, in any case, and a number from 1 to 255.
func ParseProtocol(text string) (Protocol, error) {
	for _, p := range []Protocol{TCP, UDP, SCTP, ICMP, ICMPv6} {
		if strings.EqualFold(text, p.String()) {
			return p, nil
		}
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("protocol %.32q: want TCP, UDP, SCTP, ICMP, ICMPv6 or a number from 1 to 255", text)
	}
	return Protocol(n), nil
}
