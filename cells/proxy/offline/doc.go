// Package offline writes the addresses of names into the datapath while no agent is there that could: a proxy outlives the agent.
//
//	policy.Queue --NameClasses--> [ClassFiles], for each revision of the datapath
//	                                  |
//	                                  |                 an agent is there: it has the lock of the maps, and learns names itself
//	                                  |                 none is there:     the writer has the lock while it writes
//	the DNS proxy --[Writer.Learn]----+--> [Journal] --[Journal.List]--> policy.Names.Import, by the next agent --> [Journal.Remove]
//	                                  |
//	                                  '--> the map prefixes: the address gets a class that the agent has reserved for the rules that match the name
//
// Learn returns an error at once, so that the pod gets SERVFAIL and not an answer that it cannot use, when
//
//   - the agent has reserved no class: for a combination of rules that hardly any name has, or that there were too many of
//   - there is no file for the revision of the datapath: the agent has died while it changed policies in place
//   - there is no room: for a name, an endpoint, in the journal, or in the map
//
// An address of the cluster (a pod, a node, a range of pods), or one that no other machine can have, is never written: no name overrides what it is. The answer's
// other addresses are learned, and Learn returns [ErrProtected]; the answer is passed on, as it is when an agent learns.
//
// The next agent writes everything anew, with what it takes from the journal. So what was written here and is not in the journal goes then, and an address that was
// learned here ends when it would with an agent.
package offline
