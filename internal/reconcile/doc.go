// Package reconcile compares things outside the agent with what their owners should have, and repairs them: routes,
// neighbour entries, filters, map entries. An owner is an endpoint, or the thing itself.
//
//	a step:      Attach  ------------------------> [Part].Update
//	             Restore ------------------------> [Restore]
//	             Prune   ------------------------> [Prune]
//	the kernel:  something has changed --> [Follower] --> the owner's repair, in its turn
//	the doctor:  --------------------------------> [Examine], [Part].Orphans
//
// A cell describes a kind of thing as [Operations]; a [Table] makes a [Part] of it. The rules are here, and nowhere
// else:
//
//  1. A difference counts if its owner is the same before and after the kernel was read. An orphan belongs to no owner
//     of either time.
//  2. An event repairs what an owner lacks. Orphans wait for the doctor, or for Prune: an owner may just have made
//     them.
//  3. An event names an owner, and all parts of it are compared: a link that goes down takes its routes without notice.
//     Events of an owner within 10 ms are one comparison. Its repair runs in its turn, so it never meets a deletion.
//  4. An owner is repaired five times at once, then every 30 s: another program may remove the same again and again.
//  5. A Follower watches first, and compares all owners after that. It does both again when notifications were lost.
package reconcile
