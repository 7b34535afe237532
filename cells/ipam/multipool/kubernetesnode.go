package multipool

import (
	"context"
	"maps"
	"time"
)

// KubernetesNode is the Node that the agent runs on. It is nil without Kubernetes.
type KubernetesNode interface {
	// Node returns the UID, which is "" before the Node is known; false for a Node that was deleted; its labels; and a
	// channel that is closed when one of them changes.
	Node() (uid string, exists bool, labels map[string]string, changed <-chan struct{})
}

// kubernetesNode is the Node as the last round has read it.
type kubernetesNode struct {
	*common
	source KubernetesNode

	uid     string // "" before it is known
	deleted bool
	changed <-chan struct{} // nil without Kubernetes
}

// read reads the Node, and reports whether the node's record has another UID. The Node's labels are those for the
// selectors of pools.
func (k *kubernetesNode) read() (changed bool) {
	if k.source == nil {
		return false
	}
	uid, exists, labels, next := k.source.Node()
	if deleted := uid != "" && !exists; deleted != k.deleted {
		k.log.Warn("the Node was deleted, or created again", "exists", exists, "uid", uid)
		k.deleted = deleted
	}
	k.uid, k.changed = uid, next
	if k.created() {
		k.checkpoint.changed = k.checkpoint.changed || !maps.Equal(labels, k.checkpoint.NodeLabels)
		k.checkpoint.NodeLabels, k.pools.labels = labels, labels
	} else if k.checkpoint.NodeLabels != nil { // from before the agent's start
		k.pools.labels = k.checkpoint.NodeLabels
	}
	return k.created() && uid != k.checkpoint.NodeUID
}

// created reports whether the Node is known, and was not deleted.
func (k *kubernetesNode) created() bool { return k.uid != "" && !k.deleted }

// createdAgain reports whether the Node is another one than in the node's record.
func (k *kubernetesNode) createdAgain() bool {
	return k.created() && k.checkpoint.NodeUID != "" && k.checkpoint.NodeUID != k.uid
}

// gone reports whether the Node was deleted, or created again since the node last registered. Others may have deleted
// the node's records since then.
func (k *kubernetesNode) gone() bool { return k.deleted || k.createdAgain() }

// await reads the Node until it is known, at most until the timeout.
func (k *kubernetesNode) await(ctx context.Context, timeout <-chan time.Time) {
	for k.read(); k.source != nil && k.uid == ""; k.read() {
		select {
		case <-k.changed:
		case <-timeout:
			return
		case <-ctx.Done():
			return
		}
	}
}
