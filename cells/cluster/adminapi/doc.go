// Package adminapi has the calls of the API on /v1/pool, /v1/node and /v1/recovery.
//
//	porin pool, node, ipam recover --> [Routes] --> cells/cluster/admin --> the cluster's store
//	                                      '--> [Agent]: ipam/multipool on this node
package adminapi
