// Package names knows which addresses the names have that endpoints have asked for, so that a policy can name peers by
// their names.
//
//	the DNS proxy --[Names.Learn]--> endpoint -> name -> addresses, each until its TTL and its connections have ended
//	      |                               ^   |
//	      |                 file --Load---'   '--Save--> file
//	      |                                   |
//	      |                                   '--> [Selection]: the addresses of all names that rules match
//	      |                                              |
//	      '------[Names.Wait] <--[Names.Confirm]-- the policy --[Names.Take]: added and removed addresses
//
// An address belongs to the name that was asked for, not to the names that its CNAME records lead to: a rule for the
// first name covers it. It is kept for its TTL, for MinTTL at least and MaxTTL at most, and then as long as a
// connection of the endpoint uses it. Rules select the names of all endpoints of the node: the answer that one pod has
// got is as true for the others.
//
// An address that is protected (of a pod, a node, or the metadata service) is not learned, whatever a name says: its
// meaning does not depend on the names that point to it. The same holds for addresses that no other machine has:
// unspecified, loopback, link-local and multicast.
//
// An endpoint has room for a limited number of addresses, of a name and in all. When there are more, the oldest go,
// first the ones that no connection is known to use; addresses of the answer at hand never replace each other, the rest
// of it is left out. All of them are counted.
//
// [Names.Learn] returns a revision, and [Names.Wait] returns when the policy has everything up to it in force. An
// address that was in force before has an earlier revision, so a known name does not wait.
package names
