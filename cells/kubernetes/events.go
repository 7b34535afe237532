package kubernetes

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/policy"
)

const (
	eventInterval = 10 * time.Second // between two looks at policies and findings
	eventTimeout  = 30 * time.Second // of all Events of one look
	firstRewrite  = time.Minute      // after an Event that could not be written
	lastRewrite   = 10 * time.Minute
	// eventLifetime is after how long an Event is written again: the API server deletes Events after an hour by default.
	eventLifetime   = 65 * time.Minute
	eventsPerMinute = 10
	maxMessage      = 1024 // of an Event, in bytes
	maxFailedPods   = 32   // that wait for their Events
)

// Reasons of Events.
const (
	reasonNotInForce = "NotInForceAsWritten"
	reasonAttach     = "AttachFailed"
)

// Nodes returns the names of the other nodes that the agent knows.
type Nodes func() []string

// event becomes an Event about an object. Two events with the same object, reason and key become one Event.
type event struct {
	about           corev1.ObjectReference
	reason, message string
	key             string
}

// eventSources are where events come from.
type eventSources struct {
	others   Nodes
	policies func() []policy.Fault
	findings func() []doctor.Finding // about the Node
	nodeUID  func() string           // "" while it is not known
	pods     func() []event          // whose ADD failed since the last call
}

// eventWriter writes Events about policies of the API that are not in force as written, about the Node for findings of
// the doctor, and about pods whose ADD failed. Of all nodes' agents one writes the Event about a policy. An Event's
// name follows from its key, so that two agents that know different nodes write one Event.
type eventWriter struct {
	eventSources
	core    rest.Interface
	node    string
	budget  *rate.Limiter
	written map[string]time.Time // by the Event's name; the task alone uses it
}

func newEventWriter(client *Client, node string, sources eventSources) (*eventWriter, error) {
	core, err := client.Core()
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	return &eventWriter{
		eventSources: sources, core: core, node: node,
		// Half of the Events at once, and half over the minute.
		budget: rate.NewLimiter(rate.Every(2*time.Minute/eventsPerMinute), eventsPerMinute/2), written: map[string]time.Time{},
	}, nil
}

// failedPods are pods whose ADD failed, until their Events are written.
type failedPods struct {
	mu   sync.Mutex // guards the field below
	pods []event
}

// Observe implements [endpoint.Observer].
func (f *failedPods) Observe(trace endpoint.Trace) {
	pod := trace.Endpoint.Spec.Pod
	if trace.Operation != endpoint.OperationAdd || trace.Err == nil || pod.UID == "" || errors.Is(trace.Err, context.Canceled) {
		return
	}
	phase := ""
	for _, p := range trace.Phases {
		if p.Err != nil && p.Name != "undo" {
			phase = p.Name
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pods) < maxFailedPods {
		f.pods = append(f.pods, event{
			about:  corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID)},
			reason: reasonAttach, message: fmt.Sprintf("phase %s: %v", phase, trace.Err), key: phase,
		})
	}
}

func (f *failedPods) take() (pods []event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pods, f.pods = f.pods, nil
	return pods
}

// round writes the Events that are missing. Pods whose Events do not fit into the budget get one when the runtime tries
// again.
func (e *eventWriter) round(ctx context.Context) (failed error) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	for name, at := range e.written {
		if time.Since(at) > eventLifetime {
			delete(e.written, name)
		}
	}
	for _, next := range e.missing() {
		object := e.object(next)
		if _, ok := e.written[object.Name]; ok {
			continue
		}
		if !e.budget.Allow() {
			break
		}
		err := e.core.Post().Namespace(object.Namespace).Resource("events").Body(object).MaxRetries(0).Do(ctx).Error()
		if err != nil && !apierrors.IsAlreadyExists(err) {
			failed = fmt.Errorf("write an Event about %s %s/%s: %s", next.about.Kind, next.about.Namespace, next.about.Name, remedy(err))
			continue
		}
		e.written[object.Name] = time.Now()
	}
	return failed
}

// missing has the Node's events first: they say why the ADDs of many pods fail.
func (e *eventWriter) missing() (all []event) {
	if uid := e.nodeUID(); uid != "" {
		about := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: e.node, UID: types.UID(uid)}
		for _, f := range e.findings() {
			all = append(all, event{about: about, reason: reasonOfKind(f.Kind), message: f.Subject + ": " + f.Detail, key: f.Kind})
		}
	}
	all = append(all, e.pods()...)
	others := e.others()
	for _, f := range e.policies() {
		if f.UID != "" && e.writes(f, others) {
			all = append(all, policyEvent(f))
		}
	}
	return all
}

// writes reports whether this node's agent is the one for the policy: of all node names, its own gives the highest hash
// with the UID.
func (e *eventWriter) writes(f policy.Fault, others []string) bool {
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

func policyEvent(f policy.Fault) event {
	version := ""
	for _, k := range policyKinds() {
		if k.kind == f.Policy.Kind {
			version = k.GroupVersion().String()
		}
	}
	text := strings.Join(f.Texts, "; ")
	return event{
		about: corev1.ObjectReference{
			APIVersion: version, Kind: f.Policy.Kind, Namespace: f.Policy.Namespace, Name: f.Policy.Name, UID: types.UID(f.UID),
		},
		reason: reasonNotInForce, message: text, key: text,
	}
}

func (e *eventWriter) object(of event) *corev1.Event {
	sum := sha256.Sum256([]byte(string(of.about.UID) + "\n" + of.reason + "\n" + of.key))
	text := of.message
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage-3], "") + "..."
	}
	object := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("porin-%x", sum[:16]), Namespace: of.about.Namespace},
		InvolvedObject: of.about,
		Type:           corev1.EventTypeWarning, Reason: of.reason, Message: text, Count: 1, FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
		Source: corev1.EventSource{Component: "porin", Host: e.node}, ReportingController: "porin.dev/agent", ReportingInstance: e.node,
	}
	if object.Namespace == "" {
		object.Namespace = metav1.NamespaceDefault // as Kubernetes does for objects of the cluster
	}
	return object
}

// reasonOfKind is the reason of a kind of findings: "endpoint-held" is EndpointHeld.
func reasonOfKind(kind string) (reason string) {
	for word := range strings.SplitSeq(kind, "-") {
		reason += strings.ToUpper(word[:1]) + word[1:]
	}
	return reason
}
