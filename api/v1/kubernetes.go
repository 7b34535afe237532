package v1

import "time"

// KubernetesStatus says what the agent reads from the Kubernetes API, and whether the API server answers. While it does
// not, pods keep their network, labels and policies; a pod that is not known yet is not attached.
type KubernetesStatus struct {
	Server    string           `json:"server"`    // that requests go to now
	Reachable bool             `json:"reachable"` // every kind was read, and is being watched
	Kinds     []KubernetesKind `json:"kinds"`
	// UnattachedPods are pods that run on this node, each as namespace/name, and that another network plugin attached.
	// Porin leaves them alone.
	UnattachedPods []string `json:"unattachedPods"`
}

// KubernetesKind is one kind of objects that the agent watches.
type KubernetesKind struct {
	Kind    string `json:"kind"` // the resource's name: "pods"
	Objects int    `json:"objects"`
	Synced  bool   `json:"synced"` // all objects were read once
	// LastContact is when the API server last sent something of the kind.
	LastContact time.Time `json:"lastContact,omitzero"`
	// Error is why the kind is not being watched now.
	Error string `json:"error,omitempty"`
}
