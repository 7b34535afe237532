// Package nodecheck compares, from the outside, the actual state of a node with the expected one.
//
//	what the runtime holds (Want) --> the agent's endpoints --> its addresses
//	                                            `-----------> links, filters, routes, neighbours, map entries
//	                                  pins, and files of the state folder
//	the other nodes that there are (Want) --> classes of their addresses, routes, blocks, and entries of the tunnel
//
// Everything that bears Porin's mark is an [Item] with a name that says all of it. The expected state is a set of
// items, the actual state is another, and the differences are [Finding]s: leaked things, and lost things.
// It asks the kernel and the file system itself, so it does not have to believe the agent or its doctor.
package nodecheck
