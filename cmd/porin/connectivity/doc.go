// Package connectivity tests the paths of a cluster with pods of its own, and names the part at fault.
//
//	porin cluster connectivity --> [Test.Run] --> namespace, pods, Services and a policy, made and removed
//	                                   |--------> exec: porin connectivity probe, in each client pod and each agent
//	                                   '--------> [Report]: the paths, and the parts at fault
//
// The pods run Porin's image, which each node has, so nothing is pulled: a server and a client on each node.
package connectivity
