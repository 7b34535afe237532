// Package testutil lets tests touch the kernel without touching the machine.
//
//	func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }
//
//	the machine's namespaces
//	`- go test: outer process          compares the machine before and after (HostUntouched), builds the binaries
//	   `- inner process: own network, mount and process namespaces, a tmpfs on /run; the tests run here
//	      `- Fabric: a namespace that plays the network between nodes, and the world outside
//	         `- Node: a namespace with an uplink, IPv4 and IPv6; agents and CNI plugins are started in it
//	            `- Container: a namespace of its own
//
// As root, [Main] runs the tests in an inner process, with which every namespace, link, mount and process that a test
// made vanishes, even when it is killed. Without root the tests run as they are and those that call [Root] are skipped.
// Nothing here needs a program that a fresh machine lacks: no ip, no ping.
package testutil
