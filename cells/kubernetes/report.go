package kubernetes

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/kubernetes/records"
	"porin.dev/porin/cells/kubernetes/watch"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/internal/fault"
)

// reporter tells what is known of the API: its server.StatusReporter.
type reporter struct {
	*watches
	lookup endpointmanager.Lookup
}

func newReporter(w *watches, lookup endpointmanager.Lookup) *reporter { return &reporter{w, lookup} }

// unattached are the pods that run on this node with a network that Porin did not give them, sorted.
func (r *reporter) unattached() []string {
	attached := map[watch.Key]bool{}
	for _, ep := range r.lookup.List() {
		attached[watch.Key{Namespace: ep.Spec.Pod.Namespace, Name: ep.Spec.Pod.Name}] = true
	}
	found := []string{}
	for _, key := range r.store.running() {
		if !attached[key] {
			found = append(found, key.String())
		}
	}
	slices.Sort(found)
	return found
}

// Report implements server.StatusReporter.
func (r *reporter) Report(status *v1.Status) {
	report := &v1.KubernetesStatus{Server: r.client.Server(), Reachable: true, UnattachedPods: r.unattached()}
	for _, s := range r.states() {
		kind := v1.KubernetesKind{Kind: s.Kind, Objects: s.Objects, Synced: s.Synced, LastContact: s.Since}
		kind.Error = fault.Text(s.Err)
		if s.Err != nil || !s.Synced {
			report.Reachable = false
		}
		report.Kinds = append(report.Kinds, kind)
	}
	status.Kubernetes = report
}

// The kinds of findings.
const (
	apiServerUnreachable = "api-server-unreachable"
	podCIDRsMissing      = "node-pod-cidrs-missing"
	definitionsMissing   = "custom-resource-definitions-missing"
)

// checker says when the API server does not answer, or lacks what the agent needs: its doctor.Checker.
type checker struct {
	watches                   *watches
	needPodCIDRs, needRecords bool
}

var _ doctor.Checker = (*checker)(nil)

// Owner implements doctor.Checker.
func (*checker) Owner() string { return "kubernetes" }

// Kinds implements doctor.Checker.
func (*checker) Kinds() []doctor.Kind {
	return []doctor.Kind{{
		Name:    apiServerUnreachable,
		Meaning: "the API server does not answer, or refuses: changes of labels, namespaces and policies are not seen, and a pod that is not known yet is not attached",
		Repair:  "bring it back, or correct --kubeconfig and the agent's rights; pods keep their network and their policies",
	}, {
		Name: podCIDRsMissing, Event: true, Meaning: "the Node has no spec.podCIDRs, or bad ones: no pod of it gets an address",
		Repair: podCIDRsRemedy,
	}, {
		Name: definitionsMissing, Event: true, Meaning: "the API server lacks CustomResourceDefinitions of Porin: the agent waits for them",
		Repair: "apply them: they are in deploy/porin.yaml, and in the chart with crds.install=true",
	}}
}

// Examine implements doctor.Checker.
func (c *checker) Examine(_ context.Context, only string) (findings []doctor.Finding, err error) {
	if only != "" {
		return nil, nil
	}
	findings = findingsOf(c.watches.client.Server(), c.watches.states())
	if node, _ := c.watches.node.value.Get(); c.needPodCIDRs && node.UID != "" && !node.Deleted {
		if cidrs, _ := c.watches.node.PodCIDRs(); cidrs.Err != nil && len(cidrs.Now) == 0 {
			findings = append(findings, doctor.Finding{Kind: podCIDRsMissing, Subject: "Node " + node.Name, Detail: cidrs.Err.Error()})
		}
	}
	if missing := c.watches.policies.missing(records.Definitions()); c.needRecords && len(missing) > 0 {
		findings = append(findings, doctor.Finding{Kind: definitionsMissing, Subject: strings.Join(missing, ", "), Detail: "the agent goes on when they are there"})
	}
	return findings, nil
}

// findingsOf has one finding for each error: an API server that is away is one.
func findingsOf(server string, states []watch.State) (findings []doctor.Finding) {
	for _, s := range states {
		if s.Err == nil {
			continue
		}
		detail := remedy(cause(s.Err))
		if i := slices.IndexFunc(findings, func(f doctor.Finding) bool { return f.Detail == detail }); i >= 0 {
			findings[i].Subject = server
			continue
		}
		findings = append(findings, doctor.Finding{Kind: apiServerUnreachable, Subject: s.Kind, Detail: detail})
	}
	return findings
}

func newCollector(r *reporter) *metrics.Values {
	v := metrics.NewValues("porin_kubernetes_", r.client.requests)
	objects := v.Gauge("objects", "Objects that are known of a kind of the Kubernetes API.", "kind")
	contact := v.Gauge("contact_age_seconds", "Time since the API server last sent something of a kind.", "kind")
	restarts := v.Counter("watch_restarts_total", "Times a watch of the Kubernetes API began again, by reason.", "kind", "reason")
	unattached := v.Gauge("unattached_pods", "Pods that run on this node, and that another network plugin attached.")
	v.Read = func(ch chan<- prometheus.Metric) {
		unattached.Send(ch, float64(len(r.unattached())))
		for _, s := range r.states() {
			objects.Send(ch, float64(s.Objects), s.Kind)
			if s.Synced {
				contact.Send(ch, time.Since(s.Since).Seconds(), s.Kind)
			}
			for _, reason := range watch.Reasons() {
				restarts.Send(ch, float64(s.Restarts[reason]), s.Kind, string(reason))
			}
		}
	}
	return v
}
