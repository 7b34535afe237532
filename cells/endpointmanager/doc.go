// Package endpointmanager gives every attachment of this node its life: it brings an endpoint up step by step, keeps
// it on record, and takes it down again without leaving anything behind.
//
//	PUT, DELETE /v1/endpoint -> routes -> [Manager] --+--> gate: may anything change?   admission: is it its turn?
//	                                                  +--> registry: is the call late? whose queue?
//	POST /v1/gc                                       +--> creator, deleter, restorer: each in a file of its own
//	                                                  +--> ledger (bbolt): intent, committed, deleting, tombstone
//	                                                  +--> [endpoint.Steps]: ipam, ..., datapath     (must succeed; has an undo)
//	                                                  +--> [Table] --> [Lookup]                      (everybody reads)
//	                                                  '--> [endpoint.Subscriber], [endpoint.Observer] (told after the fact)
//
// What it promises:
//
//   - One goroutine an endpoint runs what happens to it in order; different endpoints run side by side.
//   - An endpoint is on record before the first effect of its first step and until the last effect is undone. After a
//     crash [Service].Start restores what was whole and undoes what was not.
//   - A start that cannot explain most of what it finds takes nothing down: it holds it, for a person to decide. After a boot
//     nothing of the ledger is there any more, and no time in it counts.
//   - What was deleted while no agent ran goes at the start, before anything is brought back.
//   - Of two calls that contradict each other the one that began later is right, in whatever order they arrive: an ADD that
//     began before its attachment's DEL is refused, a DEL that began before the ADD spares it, and the ADD of a pod's newer
//     container takes the older one's place. That is remembered for twenty minutes, over restarts.
//   - Deletions come first, then critical pods, then the namespaces in turn. Nobody is refused before its own deadline, and
//     whatever its caller gave up on is gone.
//   - A deletion runs every step, whatever fails; what failed stays on record and is tried again.
//   - A state changes only as transitions, in table.go, allows.
//   - A number is free again only when nothing of its last owner can run any more.
//
// The manager knows no step by name, no kernel and no Kubernetes, and runs without fx ([New]) and without root.
package endpointmanager
