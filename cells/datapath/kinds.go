package datapath

import "porin.dev/porin/cells/doctor"

// The kinds of disagreement, by the names that programs know them by.
const (
	linkMissing     = "link-missing"
	linkDown        = "link-down"
	linkDiffers     = "link-differs"
	linkMACDiffers  = "link-mac-differs"
	linkOrphan      = "link-orphan"
	programMissing  = "program-missing"
	programDiffers  = "program-differs"
	programOrphan   = "program-orphan"
	routeMissing    = "route-missing"
	routeDiffers    = "route-differs"
	routeOrphan     = "route-orphan"
	neighMissing    = "neighbour-missing"
	neighOrphan     = "neighbour-orphan"
	mapEntryMissing = "map-entry-missing"
	mapEntryDiffers = "map-entry-differs"
	mapEntryOrphan  = "map-entry-orphan"
	forwardingOff   = "forwarding-off"

	forwardingDropped = "forwarding-dropped"

	uplinkProgramMissing = "uplink-program-missing"
	fromUplinkMissing    = "from-uplink-missing"
)

// Kinds implements doctor.Checker.
func (*Checker) Kinds() []doctor.Kind {
	const (
		anew    = "it is restored"
		removed = "it is removed, if it still has no owner"
	)
	return []doctor.Kind{
		{Name: linkMissing, Meaning: "an endpoint's host interface is gone, so its container is without a network for good", Repair: "the endpoint is deleted, and its address comes free"},
		{Name: linkDown, Meaning: "an endpoint's host interface is down", Repair: "it is brought up, and its lost parts are restored"},
		{Name: linkDiffers, Meaning: "an endpoint's host interface has another name or kind than it was made with", Repair: "undo what changed it, or delete the container"},
		{Name: linkMACDiffers, Meaning: "an endpoint's host interface has another MAC than it was made with: its container does not reach the node", Repair: "it gets its MAC again"},
		{Name: linkOrphan, Meaning: "a host interface bears Porin's mark and belongs to no endpoint", Repair: removed},
		{Name: programMissing, Meaning: "a program is not attached to an endpoint's host interface: its packets are not checked", Repair: anew},
		{Name: programDiffers, Meaning: "another program is attached to an endpoint's host interface, in the place of ours", Repair: "it is replaced"},
		{Name: programOrphan, Meaning: "a program of Porin's is on a device of the node, and neither a policy nor another node needs it there", Repair: "it is detached"},
		{Name: routeMissing, Meaning: "the node has no route to an endpoint", Repair: anew, About: doctor.Addresses},
		{Name: routeDiffers, Meaning: "the node's route to an endpoint leads elsewhere", Repair: anew, About: doctor.Addresses},
		{Name: routeOrphan, Meaning: "a route of Porin's leads to an endpoint that does not have this address", Repair: removed, About: doctor.Addresses},
		{Name: neighMissing, Meaning: "the neighbour entry of an endpoint's address is not there or not as it was made", Repair: anew, About: doctor.Addresses},
		{Name: neighOrphan, Meaning: "an endpoint's host interface has a permanent neighbour entry for an address that the endpoint does not have", Repair: removed, About: doctor.Addresses},
		{Name: mapEntryMissing, Meaning: "the programs do not know an endpoint, and drop its packets or do not count them", Repair: anew, About: doctor.Addresses},
		{Name: mapEntryDiffers, Meaning: "the programs have wrong data of an endpoint", Repair: anew, About: doctor.Addresses},
		{Name: mapEntryOrphan, Meaning: "the programs know an endpoint that does not exist", Repair: removed, About: doctor.Addresses},
		{Name: uplinkProgramMissing, Meaning: "an endpoint has an egress policy, or other nodes are known, and an uplink device lacks the program to_uplink: packets that endpoints with an egress policy send there are dropped", Repair: "it is attached; if the device refuses it, remove the filter of priority 1 or the qdisc ingress that another program has there"},
		{Name: fromUplinkMissing, Meaning: "other nodes are known, and a device lacks the program from_uplink: packets from pods of other nodes can only go through the node's stack there", Repair: "it is attached; if the device refuses it, remove the filter of priority 3 or the qdisc ingress that another program has there"},
		{Name: forwardingOff, Meaning: "the node does not forward packets: containers reach nothing but each other", Repair: "it is enabled"},
		{Name: forwardingDropped, Meaning: "no connection of a container through the node's stack is answered, and a firewall of the node drops what it does not accept", Repair: "have the chain that is named accept what the interfaces `por*` send and get, by the program that owns it"},
	}
}
