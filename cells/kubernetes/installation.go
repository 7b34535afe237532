package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/internal/task"
)

// NotReadyTaint may be set by an administrator on new Nodes, so that no pod is scheduled to them before the agent is
// ready. The agent removes it.
const NotReadyTaint = "porin.dev/agent-not-ready"

// uninstallTimeout bounds the request at the agent's end.
const uninstallTimeout = 2 * time.Second

// warnAfter is how long [Installation.WaitKnown] waits before it logs what is missing.
const warnAfter = 5 * time.Second

// Installation is the agent as a part of the cluster. It tells when the agent knows enough of the API for an ADD, marks
// the Node as ready, and finds an uninstall.
type Installation struct {
	watches      *watches
	node         *OwnNode
	needPodCIDRs bool
	apps         rest.Interface
	namespace    string // of the DaemonSet
	name         string // "" without a DaemonSet
	log          *slog.Logger

	task  *task.Task
	ready atomic.Bool // pods can start on the node
	seen  atomic.Bool // the DaemonSet was read by this agent
}

func newInstallation(cfg Config, client *Client, watches *watches, node *OwnNode, log *slog.Logger) (*Installation, error) {
	apps, err := client.Metadata(schema.GroupVersion{Group: "apps", Version: "v1"})
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	i := &Installation{watches: watches, node: node, needPodCIDRs: cfg.NeedPodCIDRs, apps: apps, log: log}
	i.namespace, i.name, _ = strings.Cut(cfg.DaemonSet, "/")
	i.task = task.Every(log, task.Round{Name: "kubernetes-installation", Run: i.round, Retry: time.Second, MaxRetry: time.Minute})
	node.notReady = i.task.Trigger
	return i, nil
}

// WaitKnown returns when an ADD finds all that it needs of the API: the node's pods, namespaces, policies, and in mode
// pod-cidr its podCIDRs. It logs once what is missing after [warnAfter].
func (i *Installation) WaitKnown(ctx context.Context) error {
	late := time.NewTimer(warnAfter)
	defer late.Stop()
	for {
		missing, changed := i.missing()
		if missing == "" {
			return nil
		}
		select {
		case <-changed:
		case <-late.C:
			i.log.Warn("the agent waits for the Kubernetes API, and writes no new CNI configuration before", "missing", missing)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// missing is what an ADD needs of the API and does not have yet, and a channel that is closed when that may have
// changed.
func (i *Installation) missing() (what string, changed <-chan struct{}) {
	for _, known := range []struct {
		what string
		when <-chan struct{}
	}{{"policies", i.watches.store.policies}, {"pods of this node", i.watches.store.listed}} {
		select {
		case <-known.when:
		default:
			return known.what + i.watches.syncError(), known.when
		}
	}
	namespaces, changed := i.watches.namespaces.all.Get()
	if namespaces == nil {
		return "namespaces" + i.watches.syncError(), changed
	}
	if i.needPodCIDRs {
		var cidrs ipam.PodCIDRs
		if cidrs, changed = i.node.PodCIDRs(); cidrs.Err != nil {
			return cidrs.Err.Error(), changed
		}
	}
	return "", nil
}

// SetReady says that pods can start on the node. It does not wait for the API server.
func (i *Installation) SetReady() {
	i.ready.Store(true)
	i.task.Trigger()
}

func (i *Installation) round(ctx context.Context) error {
	if !i.ready.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var errs []error
	if node, _ := i.node.value.Get(); node.NotReady && !node.Deleted {
		errs = append(errs, i.node.makeReady(ctx))
	}
	if i.name != "" && !i.seen.Load() {
		if _, err := i.daemonSet(ctx); err != nil {
			errs = append(errs, fmt.Errorf("read DaemonSet %s/%s: %s", i.namespace, i.name, remedy(err)))
		} else {
			i.seen.Store(true)
		}
	}
	return errors.Join(errs...)
}

func (i *Installation) daemonSet(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
	set := &metav1.PartialObjectMetadata{}
	return set, i.apps.Get().Namespace(i.namespace).Resource("daemonsets").Name(i.name).MaxRetries(0).
		SetHeader("Accept", metadataAlone).Do(ctx).Into(set)
}

// Uninstalled reports whether the agent's DaemonSet is gone or being deleted, or its account lost the right to read it,
// which it had before. It makes one request. Without an answer Porin stays installed.
func (i *Installation) Uninstalled(ctx context.Context) bool {
	if !i.seen.Load() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, uninstallTimeout)
	defer cancel()
	set, err := i.daemonSet(ctx)
	if err == nil {
		return set.DeletionTimestamp != nil
	}
	return apierrors.IsNotFound(err) || apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err)
}

func hasTaint(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == NotReadyTaint })
}

// hasNetwork reports whether the condition NetworkUnavailable is False. Some cloud providers set it to True on new
// Nodes.
func hasNetwork(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionFalse
	})
}

// makeReady removes the taint and sets the condition NetworkUnavailable to False, if the Node needs it.
func (n *OwnNode) makeReady(ctx context.Context) error {
	var node corev1.Node
	if err := n.core.Get().Resource("nodes").Name(n.name).MaxRetries(0).Do(ctx).Into(&node); err != nil {
		return fmt.Errorf("read Node %s: %s", n.name, remedy(err))
	}
	if hasTaint(&node) {
		taints := slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == NotReadyTaint })
		err := n.patch(ctx, map[string]any{"metadata": map[string]any{"resourceVersion": node.ResourceVersion}, "spec": map[string]any{"taints": taints}})
		if err != nil {
			return err
		}
	}
	if hasNetwork(&node) {
		return nil
	}
	now := metav1.Now()
	return n.patch(ctx, map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{{
		Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, LastHeartbeatTime: now, LastTransitionTime: now,
		Reason: "PorinIsReady", Message: "Porin attaches pods on this node",
	}}}}, "status")
}

func (n *OwnNode) patch(ctx context.Context, patch any, subresource ...string) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	err = n.core.Patch(types.StrategicMergePatchType).Resource("nodes").Name(n.name).SubResource(subresource...).Body(body).MaxRetries(0).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("change Node %s: %s", n.name, remedy(err))
	}
	return nil
}
