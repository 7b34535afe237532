package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/kubernetes/watch"
	"porin.dev/porin/internal/diskfile"
	"porin.dev/porin/internal/task"
	"porin.dev/porin/internal/watchable"
)

// Node is the part that the agent needs of the Node object that it runs on.
type Node struct {
	Name        string            `json:"name"`
	UID         string            `json:"uid"` // "" before the first read
	Deleted     bool              `json:"deleted,omitempty"`
	PodCIDRs    []netip.Prefix    `json:"podCIDRs,omitempty"`
	Former      []netip.Prefix    `json:"former,omitempty"` // earlier podCIDRs, the newest at the end
	InternalIPs []netip.Addr      `json:"internalIPs,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Invalid     []string          `json:"invalid,omitempty"` // podCIDRs that are no prefixes
	NotReady    bool              `json:"-"`                 // it has the taint [NotReadyTaint], or no condition NetworkUnavailable that is False

	// saved says that the state is of an earlier agent, and that the API server may answer soon.
	saved bool
}

// savedTime is how long an agent waits after its start for the API server before a saved state counts. Meanwhile the
// Node may have lost its podCIDRs to another Node.
const savedTime = 2 * time.Second

// podCIDRsRemedy is what to do about a Node without podCIDRs.
const podCIDRsRemedy = "start kube-controller-manager with --allocate-node-cidrs=true and --cluster-cidr, or use ipam.mode multi-pool (--ipam-mode)"

// maxFormer limits the earlier podCIDRs that are kept.
const maxFormer = 8

// slimNode clones the strings that it keeps.
func slimNode(n *corev1.Node) Node {
	slim := Node{Name: strings.Clone(n.Name), UID: strings.Clone(string(n.UID)), Labels: cloneMap(n.Labels)}
	for _, text := range n.Spec.PodCIDRs {
		if cidr, err := netip.ParsePrefix(text); err == nil {
			slim.PodCIDRs = append(slim.PodCIDRs, cidr)
		} else {
			slim.Invalid = append(slim.Invalid, strings.Clone(text))
		}
	}
	for _, address := range n.Status.Addresses {
		if addr, err := netip.ParseAddr(address.Address); err == nil && address.Type == corev1.NodeInternalIP {
			slim.InternalIPs = append(slim.InternalIPs, addr)
		}
	}
	slim.NotReady = hasTaint(n) || !hasNetwork(n)
	return slim
}

// OwnNode follows the Node object that the agent runs on. It keeps its last state on the disk, for a start without the
// API server. Its methods may be called concurrently.
type OwnNode struct {
	name, path string // path of the file; "" keeps nothing
	core       rest.Interface
	mu         sync.Mutex // orders changes of the value
	value      watchable.Value[Node]
	loop       *watch.Loop[Node]
	task       *task.Task
	log        *slog.Logger
	notReady   func() // told of a Node that is not ready; it does not block
}

func newOwnNode(client *Client, name, path string, log *slog.Logger) (*OwnNode, error) {
	core, err := client.Core()
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	n := &OwnNode{name: name, path: path, core: core, log: log, notReady: func() {}}
	source := watch.Objects(core, "nodes", fields.OneTermEqualSelector("metadata.name", name).String(), &corev1.NodeList{}, slimNode)
	n.loop = watch.New("nodes", source, n, log)
	n.task = task.Forever(log, "kubernetes-node", n.loop.Run)
	n.load()
	return n, nil
}

// load reads the file. The API server has all that a damaged file lacks.
func (n *OwnNode) load() {
	if n.path == "" {
		return
	}
	var saved Node
	text, err := os.ReadFile(n.path)
	if err == nil {
		err = json.Unmarshal(text, &saved)
	}
	switch {
	case err == nil && saved.Name == n.name:
		saved.saved = true
		n.value.Set(saved)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		n.log.Warn("cannot read the saved Node; the API server has it", "path", n.path, "error", err)
	}
}

// start begins the watch before endpoints are restored: the addresses of the node may be new.
func (n *OwnNode) start(context.Context) error {
	n.task.Start(nil)
	time.AfterFunc(savedTime, n.useSaved)
	return nil
}

// useSaved makes a saved state count.
func (n *OwnNode) useSaved() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if node, _ := n.value.Get(); node.saved {
		node.saved = false
		n.value.Set(node)
	}
}

// PodCIDRs implements [ipam.NodeObject].
func (n *OwnNode) PodCIDRs() (cidrs ipam.PodCIDRs, changed <-chan struct{}) {
	node, changed := n.value.Get()
	cidrs.Former = node.Former
	switch {
	case node.UID == "":
		cidrs.Err = fmt.Errorf("Node %s is not known yet", n.name)
		if err := n.loop.State().Err; err != nil {
			cidrs.Err = fmt.Errorf("%w: %s", cidrs.Err, remedy(err))
		}
	case node.Deleted:
		cidrs.Former = append(slices.Clone(node.Former), node.PodCIDRs...)
		cidrs.Err = fmt.Errorf("Node %s was deleted", n.name)
	case len(node.Invalid) > 0:
		cidrs.Err = fmt.Errorf("Node %s has a bad spec.podCIDRs: %q", n.name, node.Invalid)
	case len(node.PodCIDRs) == 0:
		cidrs.Err = fmt.Errorf("Node %s has no spec.podCIDRs (yet): %s", n.name, podCIDRsRemedy)
	default:
		if cidrs.Now = node.PodCIDRs; node.saved {
			cidrs.Err = fmt.Errorf("Node %s has not been read since the agent's start", n.name)
		}
	}
	return cidrs, changed
}

// Node implements multipool.KubernetesNode.
func (n *OwnNode) Node() (uid string, exists bool, labels map[string]string, changed <-chan struct{}) {
	node, changed := n.value.Get()
	return node.UID, node.UID != "" && !node.Deleted, node.Labels, changed
}

func (n *OwnNode) uid() string {
	node, _ := n.value.Get()
	return node.UID
}

// Identity implements node.Kubernetes.
func (n *OwnNode) Identity() (uid string, internalIPs []netip.Addr, changed <-chan struct{}) {
	node, changed := n.value.Get()
	return node.UID, node.InternalIPs, changed
}

// HasPodCIDR implements node.Kubernetes with one request.
func (n *OwnNode) HasPodCIDR(ctx context.Context, name string, cidr netip.Prefix) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var node corev1.Node
	err := n.core.Get().Resource("nodes").Name(name).MaxRetries(0).Do(ctx).Into(&node)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Node %s: %w", name, err)
	}
	return slices.Contains(slimNode(&node).PodCIDRs, cidr), nil
}

// Replace implements [watch.Handler].
func (n *OwnNode) Replace(objects map[watch.Key]watch.Object[Node]) {
	if object, ok := objects[watch.Key{Name: n.name}]; ok {
		n.set(object.Value)
	} else {
		n.delete()
	}
}

// Update implements [watch.Handler].
func (n *OwnNode) Update(object watch.Object[Node]) { n.set(object.Value) }

// Delete implements [watch.Handler].
func (n *OwnNode) Delete(watch.Object[Node]) { n.delete() }

// delete records that there is no Node. Its previous content stays known.
func (n *OwnNode) delete() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if node, _ := n.value.Get(); node.UID != "" && (!node.Deleted || node.saved) {
		node.Deleted, node.saved = true, false
		n.save(node)
	}
}

func (n *OwnNode) set(next Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	last, _ := n.value.Get()
	for _, cidr := range append(slices.Clone(last.Former), last.PodCIDRs...) {
		if !slices.Contains(next.PodCIDRs, cidr) && !slices.Contains(next.Former, cidr) {
			next.Former = append(next.Former, cidr)
		}
	}
	next.Former = next.Former[max(0, len(next.Former)-maxFormer):]
	if !reflect.DeepEqual(last, next) {
		n.save(next)
	}
	if next.NotReady {
		n.notReady()
	}
}

// save writes the file before anybody can rely on the state.
func (n *OwnNode) save(node Node) {
	if n.path != "" {
		text, err := json.MarshalIndent(node, "", " ")
		err = errors.Join(err, os.MkdirAll(filepath.Dir(n.path), 0o700))
		if err == nil {
			err = diskfile.Replace(n.path, text)
		}
		if err != nil {
			n.log.Warn("cannot save the Node; a start without the API server has an earlier state", "error", err)
		}
	}
	n.value.Set(node)
}
