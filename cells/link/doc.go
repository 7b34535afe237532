// Package link makes the veth pair of an endpoint, sets up the container's end, and takes the pair away.
//
//	endpointmanager -> [Step] Attach: veth pair -> container's end: addresses, neighbours, routes, rules -> (datapath)
//	                          Detach: down, delete, answer at the kernel's notification
//	cni (CHECK)     -> [Inspector]   what is in the container, compared with what Attach made
//	datapath (doctor) -> [Remover]   a host end that belongs to no endpoint
//
// The host end stays down until the datapath has attached its programs: no packet passes unchecked. The peer is created
// in the container's namespace, because moving a link there waits for the whole machine (15 ms).
//
// The container's namespace is entered by a descriptor and only during Attach and CHECK; CHECK changes nothing. After
// Attach the runtime may do there what it likes (gVisor moves the addresses away). Restore looks at the host end alone:
// a veth's peer exists as long as it does.
//
// The mark of a link of ours is its name, [v1.HostInterfaceName] of the attachment, and its kind. Its alias says whose
// it is and when its ADD began, for a DEL without an agent.
package link
