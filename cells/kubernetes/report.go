package kubernetes

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/kubernetes/watch"
)

// Report implements server.StatusReporter.
func (w *watches) Report(status *v1.Status) {
	report := &v1.KubernetesStatus{Server: w.client.Server(), Reachable: true}
	for _, s := range w.states() {
		kind := v1.KubernetesKind{Kind: s.Kind, Objects: s.Objects, Synced: s.Synced, LastContact: s.Since}
		if s.Err != nil {
			kind.Error = s.Err.Error()
		}
		if s.Err != nil || !s.Synced {
			report.Reachable = false
		}
		report.Kinds = append(report.Kinds, kind)
	}
	status.Kubernetes = report
}

// apiServerUnreachable is the kind of disagreement, by the name that programs know it by.
const apiServerUnreachable = "api-server-unreachable"

// checker says when the API server does not answer: its doctor.Checker.
type checker struct{ watches *watches }

var _ doctor.Checker = (*checker)(nil)

// Owner implements doctor.Checker.
func (*checker) Owner() string { return "kubernetes" }

// Kinds implements doctor.Checker.
func (*checker) Kinds() []doctor.Kind {
	return []doctor.Kind{{
		Name:    apiServerUnreachable,
		Meaning: "the API server does not answer, or refuses: changes of labels, namespaces and policies are not seen, and a pod that is not known yet is not attached",
		Repair:  "bring it back, or correct --kubeconfig and the agent's rights; pods keep their network and their policies",
	}}
}

// Examine implements doctor.Checker.
func (c *checker) Examine(_ context.Context, only string) (findings []doctor.Finding, err error) {
	if only != "" {
		return nil, nil
	}
	for _, s := range c.watches.states() {
		if s.Err != nil {
			findings = append(findings, doctor.Finding{Kind: apiServerUnreachable, Subject: s.Kind, Detail: remedy(s.Err)})
		}
	}
	return findings, nil
}

var (
	descObjects  = prometheus.NewDesc("porin_kubernetes_objects", "Objects that are known of a kind of the Kubernetes API.", []string{"kind"}, nil)
	descAge      = prometheus.NewDesc("porin_kubernetes_contact_age_seconds", "Time since the API server last sent something of a kind.", []string{"kind"}, nil)
	descRestarts = prometheus.NewDesc("porin_kubernetes_watch_restarts_total", "Times a watch of the Kubernetes API began again, by reason.", []string{"kind", "reason"}, nil)
)

// Describe implements prometheus.Collector.
func (w *watches) Describe(ch chan<- *prometheus.Desc) {
	ch <- descObjects
	ch <- descAge
	ch <- descRestarts
}

// Collect implements prometheus.Collector.
func (w *watches) Collect(ch chan<- prometheus.Metric) {
	for _, s := range w.states() {
		ch <- prometheus.MustNewConstMetric(descObjects, prometheus.GaugeValue, float64(s.Objects), s.Kind)
		if s.Synced {
			ch <- prometheus.MustNewConstMetric(descAge, prometheus.GaugeValue, time.Since(s.Since).Seconds(), s.Kind)
		}
		for _, reason := range watch.Reasons() {
			ch <- prometheus.MustNewConstMetric(descRestarts, prometheus.CounterValue, float64(s.Restarts[reason]), s.Kind, string(reason))
		}
	}
}
