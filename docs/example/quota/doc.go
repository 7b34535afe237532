// Package quota limits how many endpoints the pods of a Kubernetes namespace may have on this node. It is the example
// of CONTRIBUTING.md: small, and with everything that a cell can have.
//
//	CNI ADD -> endpointmanager -> [Step] -> counts by namespace <- GET /v1/quota, porin_quota_endpoints, quota-differs
//
// What is counted is in memory alone: a start of the agent counts again, by Restore.
package quota
