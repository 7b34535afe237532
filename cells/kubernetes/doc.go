// Package kubernetes reads the Kubernetes API server: the Node and the pods of this node, namespaces, policies and the
// objects that policies name.
//
//	API server <-- one connection -- [Client] <-- watch.Loop of pods and of namespaces --> [Pods], [Namespaces]
//	                                                                                            |
//	CNI ADD -> endpointmanager -> [Pods].Metadata: labels before the first packet <-------------'
//	                              [Pods] --> Manager.Update: labels that change while a pod lives
//
//	API server --> watch.Loop of this node's Node --> [OwnNode] --> ipam.NodeCIDRs, node, multipool
//	API server <-- [OwnNode].HasPodCIDR: another Node by name, when two nodes' records have one podCIDR
//	API server --> one watch.Loop for each kind of policies, while its CRD is there --> policy.Policies
//	API server --> one watch.Loop for each Service, EndpointSlice or CIDR group, while a policy names it --> policy.Policies
//	API server <-- Events about policies that are not in force as they are written, by one of the agents <------'
//	API server <-- Events about pods whose ADD failed, and about the Node, for findings of the doctor
//	API server <-- [Installation]: the Node's condition and taint, when pods can start; its DaemonSet, when the agent ends
//	API server <-- [NewAgentBackend]: the records of the cluster, with --store kubernetes (package records)
//
// The agent reads pods of its own node alone, and never all pods, Nodes, Services or EndpointSlices of a cluster.
//
// While the API server is away the agent keeps all objects it has read, DEL does not need the API, and ADD fails for an
// unknown pod.
package kubernetes
