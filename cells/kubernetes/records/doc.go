// Package records keeps the records of a cluster as custom resources at the Kubernetes API server: the backend of
// package cluster for --store kubernetes.
//
//	cluster.Backend --> [New] --> a kind of custom resource for each interface, group porin.dev (deploy/chart/templates/crds.yaml)
//
// The record is the object's spec, its version the resourceVersion. There is no status, no finalizer and no owner
// reference: garbage collection of a Node would delete claims of addresses that pods use.
package records
