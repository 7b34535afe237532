// Package nodecheck compares, from the outside, what is on a node with what should be.
//
//	what the runtime holds (Want) --> the agent's endpoints --> its addresses
//	                                            `-----------> links, filters, routes, neighbours, map entries
//	                                  pins, and files of the state folder
//	the other nodes that there are (Want) --> classes of their addresses, routes, blocks, and entries of the tunnel
//
// Everything that bears Porin's mark is an [Item] with a name that says all of it. What should be there is a set of
// items, what is there is another, and the differences are [Finding]s: things that leaked, and things that were lost.
// It asks the kernel and the file system itself, so it does not have to believe the agent or its doctor.
package nodecheck
