// Package fleet asks the agents of a cluster with the user's kubeconfig. It runs commands in the agents' containers, as
// kubectl exec does, so nothing listens on nodes for it.
//
//	porin cluster --> [Cluster.Nodes] --> Nodes and pods at the API server
//	              --> [Ask] ----------> [Cluster.Run]: porin ... -o json, in 20 containers at once, 5 s each
//
// Nodes and their answers are hostile: an answer is bounded in size and time, and an agent that does not answer is an
// [Answer] with an error.
package fleet
