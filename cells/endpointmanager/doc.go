// Package endpointmanager gives each attachment of this node its life: it brings an endpoint up step by step, keeps it
// on record, and takes it down again without leftovers.
//
//	PUT, DELETE /v1/endpoint -> routes -> [Manager] --> registry: is the call late? which endpoint? (one lock)
//	POST /v1/gc                              |
//	                                         v message               +--> admission: is it its turn?
//	                              managed: run -> serve -> reconcile +--> ledger (bbolt): intent, committed, deleting, tombstone
//	                                         ^ message               +--> [endpoint.Steps]: ipam, ..., datapath (each has an undo)
//	                                         |                       +--> [Table] --> [Lookup] (all cells read)
//	a start -> ledger -> plan -> restorer ---'                       '--> [endpoint.Subscriber], [endpoint.Observer]
//
// A managed is one life of one attachment. Its goal is *whole* until the first removal changes it to *gone*.
// Callers post messages to it. Its goroutine serves them in their order: serve decides whether a message still applies,
// and reconcile does the work.
//
// The manager promises:
//
//   - The calls for one endpoint are served in order; different endpoints are served side by side.
//   - An endpoint is on record before the first effect of its first step and until the last effect is undone. After a
//     crash [Service].Start restores whole endpoints and undoes half made ones.
//   - A start that cannot explain most of what it finds takes nothing down. It holds the attachments, for an
//     administrator to decide. After a boot, no endpoint of the ledger exists any more and no time in it counts.
//   - A start does the deletions that came while no agent ran before it restores anything.
//   - Of two calls that contradict each other the later call is right, in whatever order they arrive. An ADD that began
//     before its attachment's DEL is refused. A DEL that began before the ADD spares it. The ADD of a pod's newer
//     container takes the older container's place. This is remembered for twenty minutes, over restarts.
//   - Deletions come first, then critical pods, then the namespaces in turn. No call is refused before its own
//     deadline. An endpoint whose caller has left is taken down.
//   - A deletion runs every step, even when one fails. Failed steps stay on record and are tried again.
//   - A state changes only as transitions, in table.go, allows.
//   - A number is free again only when the goroutine of its last endpoint has ended.
//
// The manager knows no step by name, no kernel and no Kubernetes, and runs without fx ([New]) and without root.
package endpointmanager
