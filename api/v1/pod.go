package v1

// Pod says whose endpoint it is. All parts are empty outside Kubernetes.
type Pod struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
	// PriorityClass is the name of its priority class, when the caller of the ADD knows it.
	PriorityClass string `json:"priorityClass,omitempty"`
}

// String is "namespace/name", or "" when there is no pod.
func (p Pod) String() string {
	if p == (Pod{}) {
		return ""
	}
	return p.Namespace + "/" + p.Name
}
