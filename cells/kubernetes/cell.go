package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"go.uber.org/fx"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/kubernetes/watch"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/task"
)

// Module is the kubernetes cell of the node of that name. It needs [Nodes], and provides [*Client], [*Installation],
// [*Namespaces], [*OwnNode] and [*Pods]. But for the namespaces, the Node and the records of the cluster it asks for
// nothing before everything is restored.
func Module(cfg Config, node string) fx.Option {
	return cell.Module("kubernetes",
		fx.Provide(func(lc fx.Lifecycle) (*Client, error) {
			client, err := NewClient(cfg)
			if err == nil {
				lc.Append(fx.StopHook(client.Close))
			}
			return client, err
		}),
		fx.Provide(fx.Private, func(client *Client, policies *policy.Policies, log *slog.Logger) (*policyWatch, error) {
			return newPolicyWatch(client, policies, log)
		}),
		fx.Provide(func(lc fx.Lifecycle, client *Client, log *slog.Logger) (*Namespaces, error) {
			n, err := newNamespaces(client, log)
			if err == nil {
				lc.Append(fx.StartStopHook(n.start, n.task.Stop))
			}
			return n, err
		}),
		fx.Provide(func(lc fx.Lifecycle, client *Client, log *slog.Logger) (*OwnNode, error) {
			n, err := newOwnNode(client, node, cfg.NodePath, log)
			if err == nil {
				lc.Append(fx.StartStopHook(n.start, n.task.Stop))
			}
			return n, err
		}),
		fx.Provide(fx.Private, func(client *Client, policies *policy.Policies, watches *policyWatch, log *slog.Logger) *referenceWatch {
			return newReferenceWatch(cfg, client, policies, watches, log)
		}),
		fx.Provide(fx.Private, func(client *Client, own *OwnNode, namespaces *Namespaces, policies *policyWatch, references *referenceWatch, log *slog.Logger) (*watches, error) {
			return newWatches(client, own, namespaces, policies, references, node, log)
		}),
		fx.Provide(func(w *watches) *Pods { return w.store }),
		fx.Provide(func(client *Client, w *watches, own *OwnNode, log *slog.Logger) (*Installation, error) {
			return newInstallation(cfg, client, w, own, log)
		}),
		supervisor.Tasks(func(i *Installation) *task.Task { return i.task }),
		supervisor.Tasks(func(w *watches, log *slog.Logger) *task.Task { return task.Forever(log, "kubernetes-pods", w.pods.Run) }),
		supervisor.Tasks(func(n *Namespaces) *task.Task { return n.task }),
		supervisor.Tasks(func(n *OwnNode) *task.Task { return n.task }),
		supervisor.Tasks(func(p *policyWatch, log *slog.Logger) *task.Task {
			return task.Forever(log, "kubernetes-policies", p.run)
		}),
		supervisor.Tasks(func(r *referenceWatch, log *slog.Logger) *task.Task {
			return task.Forever(log, "kubernetes-references", r.run)
		}),
		fx.Provide(fx.Private, func() *failedPods { return &failedPods{} }),
		endpointmanager.Observe(func(f *failedPods) *failedPods { return f }),
		supervisor.Tasks(func(client *Client, own *OwnNode, others Nodes, failed *failedPods, policies *policy.Policies, d *doctor.Doctor, log *slog.Logger) (*task.Task, error) {
			events, err := newEventWriter(client, node, eventSources{others, policies.Faults, d.Events, own.uid, failed.take})
			if err != nil {
				return nil, err
			}
			return task.Every(log, task.Round{
				Name: "kubernetes-events", Run: events.round, Interval: eventInterval, Retry: firstRewrite, MaxRetry: lastRewrite,
			}), nil
		}),
		supervisor.Tasks(func(pods *Pods, lookup endpointmanager.Lookup, manager endpointmanager.Manager, log *slog.Logger) *task.Task {
			return task.Forever(log, "kubernetes-labels", (&follower{pods, lookup, manager, log}).run)
		}),
		endpointmanager.Pods(func(pods *Pods) *Pods { return pods }),
		ipam.NamespacePools(func(pods *Pods) namespacePools { return namespacePools{pods} }),
		endpointmanager.Subscribe(func(pods *Pods) listener { return listener{pods} }),
		fx.Provide(fx.Private, newReporter),
		server.Report(func(r *reporter) *reporter { return r }),
		doctor.Check(func(w *watches) *checker { return &checker{w, cfg.NeedPodCIDRs, cfg.NeedRecords} }),
		metrics.Collect(newCollector),
	)
}

// watches are the loops of the cell, and what they fill.
type watches struct {
	client     *Client
	store      *Pods
	pods       *watch.Loop[Pod]
	node       *OwnNode
	namespaces *Namespaces
	policies   *policyWatch
	references *referenceWatch
}

func newWatches(client *Client, own *OwnNode, namespaces *Namespaces, policies *policyWatch, references *referenceWatch, node string, log *slog.Logger) (*watches, error) {
	core, err := client.Core()
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	store := newPods(namespaces, policies.ready, func(ctx context.Context, key watch.Key) (*corev1.Pod, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		pod := &corev1.Pod{}
		return pod, core.Get().Namespace(key.Namespace).Resource("pods").Name(key.Name).MaxRetries(0).Do(ctx).Into(pod)
	})
	pods := watch.Objects(core, "pods", fields.OneTermEqualSelector("spec.nodeName", node).String(), &corev1.PodList{}, slimPod)
	w := &watches{
		client: client, store: store, node: own, policies: policies, references: references,
		pods:       watch.New("pods", pods, podHandler{store}, log),
		namespaces: namespaces,
	}
	store.syncError = policies.syncError
	store.endPauses = func() {
		w.pods.EndPause()
		w.node.loop.EndPause()
		w.namespaces.loop.EndPause()
		policies.endPauses()
		references.endPauses()
	}
	return w, nil
}

// syncError is ": " and the error of a kind that was not read yet, or "".
func (w *watches) syncError() string {
	for _, s := range w.states() {
		if !s.Synced && s.Err != nil {
			return ": " + remedy(cause(s.Err))
		}
	}
	return ""
}

func (w *watches) states() []watch.State {
	return slices.Concat([]watch.State{w.pods.State(), w.node.loop.State(), w.namespaces.loop.State()}, w.policies.states(), w.references.states())
}
