// Package delegate calls the IPAM plugin that a network configuration names (CNI specification 1.1.0, section 4).
//
//	ipam.Step  -> Add, Del                  in the order of the endpoint's steps, so after the ledger's intent
//	cells/cni  -> Check, Status, GC         after Porin's own part has succeeded
//
// Programs come from the agent's --cni-bin-dirs, never from the caller's CNI_PATH. They run in the host's root
// (--cni-host-root, for an agent in a container), with an environment of their own, in a process group that is killed
// at the deadline, a bounded number at once, and one at a time for an attachment: also a program that an agent which
// was killed has left running is waited for. An error that a plugin prints is a *types.Error in the error's chain, as
// it is.
package delegate
