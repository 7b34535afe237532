package connectivity

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"porin.dev/porin/cmd/porin/fleet"
	"porin.dev/porin/internal/task"
)

// API is the API server, and the containers of the cluster.
type API interface {
	// Request sends body as JSON, and reads the answer into the object; both can be nil.
	Request(ctx context.Context, method, path string, body, into any) error
	fleet.Runner
}

// Test is one test of a cluster.
type Test struct {
	API     API
	Agents  []fleet.Pod // of the nodes to test, one of each
	Routing map[string]string
	Outside []string // addresses with ports, outside of the cluster
	// Denied is why policies deny a way between pods of two nodes; "" when they do not.
	Denied func(ctx context.Context, from, to fleet.Pod, fromPod, toPod string, port int) string
	Log    func(format string, args ...any) // progress, for people
}

// Report is what a test has found.
type Report struct {
	Outcomes []Outcome `json:"outcomes"`
	Faults   []Fault   `json:"-"`
}

const (
	startTimeout   = 60 * time.Second
	probesTimeout  = 90 * time.Second
	cleanupTimeout = 60 * time.Second
	forceAfter     = 20 * time.Second // a kubelet needs a second or two
	poll           = time.Second
	maxResults     = 1 << 20 // bytes, of the probes of one node
)

// ErrRunning is returned when there is another test, or an earlier one has left its objects.
var ErrRunning = errors.New("there is a namespace " + Namespace + ": another test runs, or one has left it: porin cluster connectivity --cleanup removes it")

// Run makes the objects, tries all paths and removes the objects, also when ctx ends.
func (t *Test) Run(ctx context.Context) (report *Report, err error) {
	test := strings.ToLower(rand.Text())
	err = t.API.Request(ctx, "POST", "/api/v1/namespaces", namespace(test), nil)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil, ErrRunning
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		return nil, fmt.Errorf("make the namespace %s: %w", Namespace, err)
	}
	defer func() { // a request without an answer may have made it
		t.Log("removing the namespace %s", Namespace)
		err = errors.Join(err, cleanup(ctx, t.API, test))
	}()
	if err != nil {
		return nil, fmt.Errorf("make the namespace %s: %w", Namespace, err)
	}
	if err := t.create(ctx); err != nil {
		return nil, err
	}
	t.Log("waiting for %d pods", 2*len(t.Agents))
	places, faults, err := t.places(ctx)
	if err != nil {
		return nil, err
	}
	dns, err := t.dnsPods(ctx)
	if err != nil {
		return nil, err
	}
	list := paths(places, dns, t.Outside)
	t.Log("trying %d paths", len(list))
	outcomes, silent := t.try(ctx, list)
	facts := facts{routing: t.Routing, dnsPods: len(dns), denied: t.denied(ctx, failingPairs(outcomes))}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return &Report{Outcomes: outcomes, Faults: slices.Concat(faults, silent, faultsOf(outcomes, facts))}, nil
}

// Cleanup removes what a test has left. It goes on when ctx has ended, for a minute.
func Cleanup(ctx context.Context, api API) error { return cleanup(ctx, api, "") }

// cleanup removes the namespace of the named test, or of any. It goes on after a failed request.
func cleanup(ctx context.Context, api API, test string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	path := "/api/v1/namespaces/" + Namespace
	why, began := errors.New("it is being removed"), time.Now()
	atOnce := &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, GracePeriodSeconds: new(int64)}
	for {
		var ns corev1.Namespace
		err := api.Request(ctx, "GET", path, nil, &ns)
		switch name := ns.Labels[roleLabel]; {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil && test == "" && name == "":
			return fmt.Errorf("the namespace %s has no label %s: it is not of a test, and stays", Namespace, roleLabel)
		case err == nil && test != "" && name != test:
			return nil // it was removed, and is another one's
		case err == nil && ns.DeletionTimestamp == nil:
			err = api.Request(ctx, "DELETE", path, nil, nil)
		case err == nil && time.Since(began) > forceAfter: // no one else ends pods of a node whose kubelet is dead
			err = api.Request(ctx, "DELETE", path+"/pods", atOnce, nil)
		}
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return fmt.Errorf("remove the namespace %s: %w", Namespace, err)
		}
		if err != nil && ctx.Err() == nil {
			why = err
		}
		if task.Sleep(ctx, poll) != nil {
			return fmt.Errorf("the namespace %s may still be there after %s: %w", Namespace, cleanupTimeout, why)
		}
	}
}

func (t *Test) create(ctx context.Context) error {
	in := "/api/v1/namespaces/" + Namespace
	if err := t.API.Request(ctx, "POST", "/apis/networking.k8s.io/v1/namespaces/"+Namespace+"/networkpolicies", policy(), nil); err != nil {
		return fmt.Errorf("make a policy: %w", err)
	}
	for i, agent := range t.Agents {
		server, client := pod(serverName(i), "server", i, agent), pod(clientName(i), "client", i, agent)
		for _, object := range []struct {
			path  string
			value any
		}{{"/services", service(i)}, {"/pods", server}, {"/pods", client}} {
			if err := t.API.Request(ctx, "POST", in+object.path, object.value, nil); err != nil {
				return fmt.Errorf("make %s of node %s: %w", strings.Trim(object.path, "/"), agent.Node, err)
			}
		}
	}
	return nil
}

// places waits for the pods. A node whose pods do not run in time is a fault.
func (t *Test) places(ctx context.Context) (places []place, faults []Fault, err error) {
	places = make([]place, len(t.Agents))
	for i, agent := range t.Agents {
		places[i] = place{name: agent.Node, number: i}
		var node corev1.Node
		if err := t.API.Request(ctx, "GET", "/api/v1/nodes/"+agent.Node, nil, &node); err != nil {
			return nil, nil, err
		}
		places[i].kubelet = int(cmp.Or(node.Status.DaemonEndpoints.KubeletEndpoint.Port, 10250))
		for _, a := range node.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
				places[i].addresses = append(places[i].addresses, addr)
			}
		}
		var service corev1.Service
		if err := t.API.Request(ctx, "GET", "/api/v1/namespaces/"+Namespace+"/services/"+serverName(i), nil, &service); err != nil {
			return nil, nil, err
		}
		places[i].clusterIPs = parse(service.Spec.ClusterIPs)
		places[i].nodePort = int(service.Spec.Ports[0].NodePort)
	}
	deadline := time.Now().Add(startTimeout)
	for {
		waiting, err := t.readPods(ctx, places)
		if err != nil {
			return nil, nil, err
		}
		if len(waiting) == 0 {
			return places, nil, nil
		}
		if time.Now().After(deadline) {
			for node, why := range waiting {
				faults = append(faults, Fault{From: node, Part: PartNode, Detail: "its pods do not start: " + why})
			}
			slices.SortFunc(faults, func(a, b Fault) int { return strings.Compare(a.From, b.From) })
			return places, faults, nil
		}
		if err := task.Sleep(ctx, poll); err != nil {
			return nil, nil, err
		}
	}
}

// readPods fills in what runs, and returns why pods of the other nodes do not.
func (t *Test) readPods(ctx context.Context, places []place) (waiting map[string]string, err error) {
	var list corev1.PodList
	if err := t.API.Request(ctx, "GET", "/api/v1/namespaces/"+Namespace+"/pods", nil, &list); err != nil {
		return nil, err
	}
	waiting = map[string]string{}
	running := map[string]corev1.Pod{}
	for _, p := range list.Items {
		if p.Status.Phase == corev1.PodRunning {
			running[p.Name] = p
		} else {
			waiting[p.Spec.NodeName] = t.whyPending(ctx, p)
		}
	}
	for i := range places {
		server, ok := running[serverName(i)]
		_, client := running[clientName(i)]
		if !(ok && client) && waiting[places[i].name] == "" {
			waiting[places[i].name] = "they were deleted"
		}
		if places[i].ready = ok && client; places[i].ready {
			var ips []string
			for _, ip := range server.Status.PodIPs {
				ips = append(ips, ip.IP)
			}
			places[i].pod = parse(ips)
		}
	}
	return waiting, nil
}

// whyPending is the container's state, and the pod's last event.
func (t *Test) whyPending(ctx context.Context, p corev1.Pod) string {
	why := string(p.Status.Phase)
	for _, s := range p.Status.ContainerStatuses {
		if s.State.Waiting != nil {
			why = s.State.Waiting.Reason
		}
		if s.State.Terminated != nil {
			why = joinNonEmpty(s.State.Terminated.Reason, s.State.Terminated.Message)
		}
	}
	var events corev1.EventList
	path := "/api/v1/namespaces/" + Namespace + "/events?fieldSelector=type%3DWarning,involvedObject.name%3D" + p.Name
	if err := t.API.Request(ctx, "GET", path, nil, &events); err == nil && len(events.Items) > 0 {
		last := slices.MaxFunc(events.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Time.Compare(b.LastTimestamp.Time) })
		why += ": " + last.Message
	}
	return why
}

func parse(texts []string) (addrs []netip.Addr) {
	for _, text := range texts {
		if addr, err := netip.ParseAddr(text); err == nil {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// dnsServer is a pod of CoreDNS.
type dnsServer struct {
	node string
	addr netip.Addr
}

func (t *Test) dnsPods(ctx context.Context) (servers []dnsServer, err error) {
	var list corev1.PodList
	if err := t.API.Request(ctx, "GET", "/api/v1/namespaces/kube-system/pods?labelSelector=k8s-app%3Dkube-dns", nil, &list); err != nil {
		return nil, err
	}
	for _, p := range list.Items {
		ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if addr, err := netip.ParseAddr(p.Status.PodIP); err == nil && ready {
			servers = append(servers, dnsServer{p.Spec.NodeName, addr})
		}
	}
	return servers, nil
}

// source is what tries paths: the client of a node, or its agent.
type source struct {
	node string
	host bool
}

// try runs the probes of each client, and of each agent, at the same time. Paths of a silent source are a fault, and
// not among the outcomes.
func (t *Test) try(ctx context.Context, list []Path) (outcomes []Outcome, silent []Fault) {
	bySource := map[source][]Path{}
	for _, p := range list {
		s := source{p.From, p.host}
		bySource[s] = append(bySource[s], p)
	}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(fleet.AtOnce)
	for s, paths := range bySource {
		group.Go(func() error {
			results, err := t.probe(ctx, s, paths)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent = append(silent, Fault{From: s.node, Part: PartProbe, Detail: err.Error()})
				return nil
			}
			for i, p := range paths {
				outcomes = append(outcomes, Outcome{p, results[i]})
			}
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
	slices.SortStableFunc(outcomes, func(a, b Outcome) int { return cmp.Or(strings.Compare(a.From, b.From), strings.Compare(a.To, b.To)) })
	slices.SortFunc(silent, func(a, b Fault) int { return strings.Compare(a.From+a.Detail, b.From+b.Detail) })
	return outcomes, silent
}

func (t *Test) number(node string) int {
	return slices.IndexFunc(t.Agents, func(p fleet.Pod) bool { return p.Node == node })
}

// probe runs the probes of paths with one source.
func (t *Test) probe(ctx context.Context, s source, paths []Path) (results []Result, err error) {
	number := t.number(s.node)
	from := t.Agents[number]
	if !s.host {
		from = fleet.Pod{Namespace: Namespace, Name: clientName(number), Node: s.node, Container: "porin", Running: true}
	}
	var probes []Probe
	for _, p := range paths {
		probes = append(probes, p.Probe)
	}
	text, err := json.Marshal(probes)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, probesTimeout)
	defer cancel()
	answer, err := fleet.Output(ctx, t.API, from, text, maxResults, "/porin", "connectivity", "probe")
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", from.Namespace, from.Name, err)
	}
	if err := json.Unmarshal(answer, &results); err != nil || len(results) != len(probes) {
		return nil, fmt.Errorf("pod %s/%s: its answer cannot be read", from.Namespace, from.Name)
	}
	return results, nil
}

// denied asks the agents of both nodes why policies deny the ways between their pods.
func (t *Test) denied(ctx context.Context, pairs []pair) map[pair]string {
	why := map[pair]string{}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(fleet.AtOnce)
	for _, p := range pairs {
		from, to := t.number(p.from), t.number(p.to)
		group.Go(func() error {
			text := t.Denied(ctx, t.Agents[from], t.Agents[to], Namespace+"/"+clientName(from), Namespace+"/"+serverName(to), openPort)
			mu.Lock()
			defer mu.Unlock()
			why[p] = text
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
	return why
}
