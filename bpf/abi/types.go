package abi

import (
	"net/netip"
	"strconv"
	"time"
)

// The types of bpf/lib/types.h under their Go names.
type (
	Addr       = cAddr
	MAC        = cMac
	Endpoint   = cEndpoint
	Link       = cLink
	Counter    = cCounter
	Passed     = cPassed
	Drops      = cDrops
	DropReason = cDropReason

	ConnectionKey = cConnectionKey
	Connection    = cConnection
	Slot          = cSlot
	Usage         = cUsage
	Limits        = cLimits
	Sweep         = cSweep

	FlowEvent   = cFlowEvent
	EventBudget = cEventBudget

	Policy     = cPolicy
	AddressKey = cAddressKey
	PrefixKey  = cPrefixKey
	TableKey   = cTableKey
	RowKey     = cRowKey
	Unmanaged  = cUnmanaged

	RedirectKey = cRedirectKey
	Redirect    = cRedirect

	RedirectTurn = cRedirectTurn

	CIDRKey     = cCidrKey
	Owner       = cOwner
	TunnelDrops = cTunnelDrops
)

// NoEndpoint is the ID under which drops are counted that belong to no endpoint.
const NoEndpoint uint32 = 0

// EndpointLimited makes a pod's packets always go through the stack.
const EndpointLimited = uint16(cEndpointFlagENDPOINT_LIMITED)

// The reasons to drop a packet. [DropNone] is no reason.
const (
	DropNone             = cDropReasonDROP_NONE
	DropNoEndpoint       = cDropReasonDROP_NO_ENDPOINT
	DropMalformed        = cDropReasonDROP_MALFORMED
	DropProtocol         = cDropReasonDROP_PROTOCOL
	DropARP              = cDropReasonDROP_ARP
	DropLinkLocal        = cDropReasonDROP_LINK_LOCAL
	DropSpoofedMAC       = cDropReasonDROP_SPOOFED_MAC
	DropSpoofedAddress   = cDropReasonDROP_SPOOFED_ADDRESS
	DropWrongDestination = cDropReasonDROP_WRONG_DESTINATION
	DropLoopback         = cDropReasonDROP_LOOPBACK
	DropMappedAddress    = cDropReasonDROP_MAPPED_ADDRESS
	DropSourceRoute      = cDropReasonDROP_SOURCE_ROUTE
	DropExtensions       = cDropReasonDROP_EXTENSIONS
	DropPathClash        = cDropReasonDROP_PATH_CLASH
	DropPolicyEgress     = cDropReasonDROP_POLICY_EGRESS
	DropPolicyIngress    = cDropReasonDROP_POLICY_INGRESS
	DropMulticast        = cDropReasonDROP_MULTICAST
	DropPolicyUnmanaged  = cDropReasonDROP_POLICY_UNMANAGED
	DropProxy            = cDropReasonDROP_PROXY
	DropDeniedOften      = cDropReasonDROP_DENIED_OFTEN
)

// The paths of a connection.
const (
	PathStack    = uint8(cConnectionPathPATH_STACK)
	PathShortcut = uint8(cConnectionPathPATH_SHORTCUT)
	PathDirect   = uint8(cConnectionPathPATH_DIRECT)
	PathProxy    = uint8(cConnectionPathPATH_PROXY)
)

// The packets seen of a connection: bits.
const (
	StateOpenedHere   = uint8(cConnectionStateSTATE_OPENED_HERE)
	StateReplied      = uint8(cConnectionStateSTATE_REPLIED)
	StateLocalClosed  = uint8(cConnectionStateSTATE_LOCAL_CLOSED)
	StateRemoteClosed = uint8(cConnectionStateSTATE_REMOTE_CLOSED)
	StateReset        = uint8(cConnectionStateSTATE_RESET)
	StateTranslated   = uint8(cConnectionStateSTATE_TRANSLATED)
)

// Where a packet was seen that the agent is told of.
const (
	EventFromPod  = uint8(cEventPlaceEVENT_FROM_POD)
	EventToPod    = uint8(cEventPlaceEVENT_TO_POD)
	EventToUplink = uint8(cEventPlaceEVENT_TO_UPLINK)
)

// PolicyCopies is the number of copies of the policy that the maps have room for.
const PolicyCopies = uint32(len(Policy{}.Egress))

// The class of addresses that the maps do not have, and the bits in a value of the maps addresses and prefixes: for an
// address of the node, and for an address of an unknown pod of another node.
const (
	ClassWorld     uint32 = 1
	ClassHost      uint32 = 1 << 31
	ClassUnmanaged uint32 = 1 << 30
	ClassBits             = ClassHost | ClassUnmanaged
)

// The sets of rows that have none: one verdict about everything.
const (
	RowsDeny  uint32 = 0
	RowsAllow uint32 = 1
)

// ProtocolFragment is the protocol of rows about later fragments. The first byte of the port is the protocol, or 0 if
// it is not known.
const ProtocolFragment uint8 = 255

// The values of the map rows that are no number of the proxy's rules.
const (
	RowDeny  uint32 = 0
	RowAllow uint32 = 1
)

// UDPListeners is how many sockets for datagrams a family has.
const UDPListeners = ListenerUDP6 - ListenerUDP4

// The sockets in the map listeners. For datagrams, it is the first one of the family.
const (
	ListenerTCP4 = uint32(cListenerLISTENER_TCP4)
	ListenerTCP6 = uint32(cListenerLISTENER_TCP6)
	ListenerUDP4 = uint32(cListenerLISTENER_UDP4)
	ListenerUDP6 = uint32(cListenerLISTENER_UDP6)
)

// RedirectShare is how many connections of an endpoint's the proxy is told of at a time: see bpf/lib/redirects.h.
const RedirectShare = 512

// The mark of the proxy's sockets, and the mark of packets that are diverted to them: see bpf/lib/types.h.
const (
	ProxyMark       = 0x0a7
	ProxyDivertMark = 0x0a8
	ProxyMarkMask   = 0xfff
	ProxyFirstPort  = 61000
)

// ConnectionTick is the unit of Connection.Expires.
const ConnectionTick = time.Duration(1 << 30)

// dropReasons are the reasons' names in the API and in metrics: never renamed.
var dropReasons = [...]string{
	DropNone:             "none",
	DropNoEndpoint:       "no-endpoint",
	DropMalformed:        "malformed",
	DropProtocol:         "protocol",
	DropARP:              "arp",
	DropLinkLocal:        "link-local",
	DropSpoofedMAC:       "spoofed-mac",
	DropSpoofedAddress:   "spoofed-address",
	DropWrongDestination: "wrong-destination",
	DropLoopback:         "loopback",
	DropMappedAddress:    "mapped-address",
	DropSourceRoute:      "source-route",
	DropExtensions:       "extension-headers",
	DropPathClash:        "path-clash",
	DropPolicyEgress:     "policy-egress",
	DropPolicyIngress:    "policy-ingress",
	DropMulticast:        "multicast",
	DropPolicyUnmanaged:  "policy-unmanaged",
	DropProxy:            "proxy",
	DropDeniedOften:      "denied-often",
}

// DropReasons are all reasons there are, less [DropNone].
func DropReasons() []DropReason {
	reasons := make([]DropReason, 0, len(dropReasons))
	for i := DropNone + 1; int(i) < len(dropReasons); i++ {
		reasons = append(reasons, i)
	}
	return reasons
}

// String is the reason's name, or its number when a later version of the programs counted it.
func (r DropReason) String() string {
	if int(r) < len(dropReasons) {
		return dropReasons[r]
	}
	return "reason-" + strconv.Itoa(int(r))
}

// AddrOf is the address as a map key; the zero netip.Addr gives the zero Addr, which no packet has.
func AddrOf(ip netip.Addr) Addr {
	if !ip.IsValid() {
		return Addr{}
	}
	return Addr{Byte: ip.As16()}
}

// IP is the reverse of [AddrOf].
func (a Addr) IP() netip.Addr {
	if a == (Addr{}) {
		return netip.Addr{}
	}
	return netip.AddrFrom16(a.Byte).Unmap()
}

// Port is a port in wire order, as the maps have it, as a number.
func Port(wire uint16) uint16 { return wire>>8 | wire<<8 }

// Connections are the entries that count in the endpoint's share.
func (u Usage) Connections() uint32 { return u.Inserted - u.Removed }

// Traffic is what passed of an endpoint, and what did not.
type Traffic struct {
	FromPod, ToPod Counter
	Drops          [dropReasonsRoom]uint64 // by [DropReason]
}

// dropReasonsRoom is the number of reasons that the maps have room for.
const dropReasonsRoom = len(Drops{}.ByReason)

// Add sums the counters.
func (t *Traffic) Add(other Traffic) {
	t.AddPassed(Passed{FromPod: other.FromPod, ToPod: other.ToPod})
	t.AddDrops(Drops{ByReason: other.Drops})
}

// AddPassed adds what one CPU has counted.
func (t *Traffic) AddPassed(p Passed) {
	t.FromPod.add(p.FromPod)
	t.ToPod.add(p.ToPod)
}

// AddDrops adds what one CPU has counted.
func (t *Traffic) AddDrops(d Drops) {
	for i, n := range d.ByReason {
		t.Drops[i] += n
	}
}

func (c *Counter) add(other Counter) {
	c.Packets += other.Packets
	c.Bytes += other.Bytes
}
