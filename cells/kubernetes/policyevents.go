package kubernetes

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/internal/task"
)

const (
	eventInterval = 10 * time.Second // between two looks at the policies
	eventTimeout  = 30 * time.Second // of all Events of one look
	firstRewrite  = time.Minute      // after an Event that could not be written
	lastRewrite   = 10 * time.Minute
	// eventLifetime is after how long an Event is written again: the API server deletes Events after an hour by default.
	eventLifetime = 65 * time.Minute
	maxMessage    = 1024 // of an Event, in bytes
	eventReason   = "NotInForceAsWritten"
)

// Nodes returns the names of the other nodes that the agent knows.
type Nodes func() []string

// policyEvents writes an Event about each policy of the API that is not in force as it is written. For each policy one agent does so.
// Its name follows from the fault: two agents that know different nodes write one Event.
type policyEvents struct {
	core    rest.Interface
	node    string
	others  Nodes
	faults  func() []policy.Fault
	written map[string]time.Time // by the Event's name; it is used by the task alone
}

func newPolicyEvents(client *Client, node string, others Nodes, faults func() []policy.Fault) (*policyEvents, error) {
	core, err := client.Core()
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	return &policyEvents{core: core, node: node, others: others, faults: faults}, nil
}

func (e *policyEvents) newTask(log *slog.Logger) *task.Task {
	return task.Every(log, task.Round{Name: "kubernetes-policy-events", Run: e.round, Interval: eventInterval, Retry: firstRewrite, MaxRetry: lastRewrite})
}

// round writes the Events that are missing.
func (e *policyEvents) round(ctx context.Context) (failed error) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	written, others := map[string]time.Time{}, e.others()
	for _, f := range e.faults() {
		if f.UID == "" || !e.writes(f, others) {
			continue
		}
		event := e.event(f)
		at, ok := e.written[event.Name]
		if !ok || time.Since(at) > eventLifetime {
			err := e.core.Post().Namespace(event.Namespace).Resource("events").Body(event).MaxRetries(0).Do(ctx).Error()
			if err != nil && !apierrors.IsAlreadyExists(err) {
				failed = fmt.Errorf("write an Event about %s: %s", f.Policy, remedy(err))
				continue
			}
			at = time.Now()
		}
		written[event.Name] = at
	}
	e.written = written
	return failed
}

// writes reports whether this node's agent is the one for the policy: of all node names, its own gives the highest hash with the UID.
func (e *policyEvents) writes(f policy.Fault, others []string) bool {
	hash := func(node string) string {
		sum := sha256.Sum256([]byte(f.UID + "/" + node))
		return string(sum[:])
	}
	own := hash(e.node)
	for _, other := range others {
		if other != e.node && hash(other) > own {
			return false
		}
	}
	return true
}

func (e *policyEvents) event(f policy.Fault) *corev1.Event {
	text := strings.Join(f.Texts, "; ")
	sum := sha256.Sum256([]byte(f.UID + "\n" + text))
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage-3], "") + "..."
	}
	version := ""
	for _, k := range policyKinds() {
		if k.kind == f.Policy.Kind {
			version = k.GroupVersion().String()
		}
	}
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("porin-%x", sum[:16]), Namespace: f.Policy.Namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: version, Kind: f.Policy.Kind, Namespace: f.Policy.Namespace, Name: f.Policy.Name, UID: types.UID(f.UID),
		},
		Type: corev1.EventTypeWarning, Reason: eventReason, Message: text, Count: 1, FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
		Source: corev1.EventSource{Component: "porin", Host: e.node}, ReportingController: "porin.dev/agent", ReportingInstance: e.node,
	}
	if event.Namespace == "" {
		event.Namespace = metav1.NamespaceDefault // as Kubernetes does for objects of the cluster
	}
	return event
}
