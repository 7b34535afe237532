// Package capacity knows whether the next ADD would find what it needs.
//
//	every few seconds --> each [Source].Resources (endpointmanager, ipam, datapath) --> metrics, CNI STATUS
//	GET /v1/status    --> the same, now                                             --> porin status
//
// A resource is not available while its source says so, or while less of it is left than its reserve.
package capacity
