package bpf

import "github.com/cilium/ebpf"

// The names of programs, maps and variables in the endpoint object.
const (
	FromPod    = endpointProgFromPod    // at the host end's ingress: packets from the pod
	ToPod      = endpointProgToPod      // at the host end's egress: packets to the pod
	ToUplink   = endpointProgToUplink   // at the egress of all other devices: packets that leave the node
	FromUplink = endpointProgFromUplink // at their ingress

	Sweep = endpointProgSweep // removes connections that are over; abi.Sweep says how many

	Endpoints = endpointMapEndpoints // address -> abi.Endpoint
	Links     = endpointMapLinks     // index of the host end -> abi.Link
	Passed    = endpointMapPassed    // endpoint ID -> abi.Passed of each CPU
	Drops     = endpointMapDrops     // endpoint ID -> abi.Drops of each CPU

	Connections = endpointMapConnections // abi.ConnectionKey -> abi.Connection
	Slots       = endpointMapSlots       // endpoint ID -> abi.Slot, its generation
	Usage       = endpointMapUsage       // endpoint ID -> abi.Usage
	Limits      = endpointMapLimits      // 0 -> abi.Limits
	KeyQueue    = endpointMapKeyQueue    // number -> abi.ConnectionKey
	Expirer     = endpointMapExpirer     // 0 -> the timer that removes connections while no agent runs Sweep; BPF programs alone can write it
	Recount     = endpointMapRecount     // endpoint ID -> what Sweep has found; it is Sweep's own

	KeyQueueMask = endpointVarKeyQueueMask // the size of KeyQueue, a power of two, less one

	Policies   = endpointMapPolicies   // endpoint ID -> abi.Policy
	ActiveCopy = endpointMapActiveCopy // 0 -> which copy of the policy is active (bit 0), uint32
	Addresses  = endpointMapAddresses  // abi.AddressKey -> class, uint32
	Prefixes   = endpointMapPrefixes   // abi.PrefixKey -> class, uint32
	Tables     = endpointMapTables     // abi.TableKey -> set of rows, uint32
	Rows       = endpointMapRows       // abi.RowKey -> 1 to allow, uint32
	Unmanaged  = endpointMapUnmanaged  // 0 -> abi.Unmanaged of each CPU

	RemoteBlocks = endpointMapRemoteBlocks // abi.CIDRKey -> 1: the blocks of other nodes

	ProxyLink = endpointMapProxyLink  // 0 -> index of the device that leads to the proxy, uint32; 0: there is none
	Redirects = endpointMapRedirected // abi.RedirectKey -> abi.Redirect

	RedirectTurns  = endpointMapRedirectTurns  // abi.RedirectTurn -> abi.RedirectKey: the order of an endpoint's entries in Redirects
	RedirectCounts = endpointMapRedirectCounts // endpoint ID -> how many there were, uint32

	FlowEvents   = endpointMapFlowEvents   // ring buffer of abi.FlowEvent
	EventBudgets = endpointMapEventBudgets // 0 -> abi.EventBudget of each CPU
	EventShares  = endpointMapEventShares  // low bits of the endpoint ID -> what it has used of its CPU's budget
	DeniedCounts = endpointMapDeniedCounts // endpoint ID -> what policy has denied it in this second

	GatewayIPv4 = endpointVarGatewayIpv4 // the next hop of every pod's default route
	// 1 when the programs can call ConntrackLookup, which is a function of the kernel or its module ConntrackModule.
	ConntrackPresent = endpointVarConntrackPresent

	Digest = endpointVarDigest // of the object and its configuration, 8 bytes
)

// The function that the programs ask the node's conntrack with.
const (
	ConntrackLookup = "bpf_skb_ct_lookup"
	ConntrackModule = "nf_conntrack"
)

// MapNames are the names of the maps that outlive programs.
func MapNames() []string {
	return []string{
		Endpoints, Links, Passed, Drops, Connections, Slots, Usage, Limits, KeyQueue, Expirer,
		Policies, ActiveCopy, Addresses, Prefixes, Tables, Rows, Unmanaged, RemoteBlocks, ProxyLink, Redirects, RedirectTurns, RedirectCounts, FlowEvents, EventBudgets, EventShares, DeniedCounts,
	}
}

// Endpoint returns a new copy of the endpoint object's specification. The sizes of its maps are not set.
func Endpoint() (*ebpf.CollectionSpec, error) { return loadEndpoint() }

// EndpointObject returns the compiled object, which callers must not change.
func EndpointObject() []byte { return _EndpointBytes }

// The names of the program and the map in the listener object.
const (
	SelectListener = listenerProgSelectListener // finds the socket of the proxy for a packet (SK_LOOKUP, Linux 5.9)

	Listeners = listenerMapListeners // abi.Listener... -> socket

	SelectListenerLink = listenerVarDevice // index of the device that it is for, beside pods' devices
)

// ListenerMaps are the names of maps of the endpoint object that the listener object reads and writes.
func ListenerMaps() []string {
	return []string{Links, Slots, Policies, ActiveCopy, Addresses, Prefixes, Tables, Rows, Unmanaged, Redirects, RedirectTurns, RedirectCounts}
}

// Listener returns a new copy of the listener object's specification. It is to be loaded with the maps of
// [ListenerMaps].
func Listener() (*ebpf.CollectionSpec, error) { return loadListener() }

// The names of programs, maps and variables in the tunnel object.
const (
	ToTunnel   = tunnelProgToTunnel   // at the VXLAN device's egress
	FromTunnel = tunnelProgFromTunnel // at its ingress

	Owners      = tunnelMapOwners      // abi.CIDRKey -> abi.Owner
	TunnelDrops = tunnelMapTunnelDrops // 0 -> abi.TunnelDrops of each CPU
)

// Tunnel returns a new copy of the tunnel object's specification.
func Tunnel() (*ebpf.CollectionSpec, error) { return loadTunnel() }

// TunnelObject returns the compiled object, which callers must not change.
func TunnelObject() []byte { return _TunnelBytes }
