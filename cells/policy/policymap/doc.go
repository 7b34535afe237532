// Package policymap writes what package engine has compiled into the BPF maps from which the programs decide
// (bpf/lib/policy.h).
//
//	[engine.Change] --> [Writer.Apply] --> what it needs first:   rows of new sets, tables of classes
//	                                  |--> what points to it:     addresses, prefixes, then the tables of endpoints, with a new revision
//	                                  `--> later, by [Writer.Clean]: unreferenced entries are removed
//	[Writer.Compare] --> where the maps are not as the engine says       [Maps.Egress], [Maps.Ingress]: the programs' verdicts
//
// The maps have room for two copies of the policy. The first Apply of an agent, and the first one after an error,
// writes the whole policy into the copy that is not active, makes it the active one, and raises the revision of every
// endpoint: until then the programs decide by the last copy that was complete. All others change the active copy entry
// by entry, in an order in which each packet gets the old decision or the new one.
//
// A set of rows is never changed, and sets with equal rows are one. So a class gets all its new decisions in one update
// of the map tables.
package policymap
