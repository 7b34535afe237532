package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// Cluster is a Kubernetes cluster with Porin.
type Cluster interface {
	// Nodes returns the cluster's Nodes by name, and the pods of Porin's DaemonSets by node and name. It returns an error
	// that is [ErrNoPorin] when there are none.
	Nodes(context.Context) ([]Node, error)
	// NodeOf returns the name of the node on which a pod runs: NAMESPACE/NAME, or an address of a pod. It is "" for an
	// address that is no pod's.
	NodeOf(ctx context.Context, pod string) (node string, err error)
	// Objects are the names of lists that [Cluster.Object] reads: Porin's records, and what runs Porin.
	Objects() []string
	// Object returns a list as JSON.
	Object(ctx context.Context, name string) ([]byte, error)
	// Logs returns the last lines of a container, or of the one before it, up to 1 MiB.
	Logs(ctx context.Context, pod Pod, previous bool) ([]byte, error)
	// Request sends body as JSON to a path of the API server, and reads the answer into a value; both can be nil. Its
	// errors are of package api/errors.
	Request(ctx context.Context, method, path string, body, into any) error
	// Run runs a command in a container. It returns when the command has ended, with [ExitError] when it failed.
	Run(ctx context.Context, pod Pod, command []string, stdin io.Reader, stdout, stderr io.Writer) error
}

// Node is a Node of the cluster, and what runs of Porin there.
type Node struct {
	Name    string
	Linux   bool
	Agents  []Pod // usually one; none where it was not started
	Proxies []Pod // usually one, two while they are replaced
}

// Pod is a pod of one of Porin's DaemonSets.
type Pod struct {
	Namespace string
	Name      string
	Node      string
	Container string
	Image     string // without its repository: "0.3.0"
	FullImage string
	Running   bool // a command can run in its container
	Ready     bool
	Reason    string // why it is not ready, as the kubelet says: "CrashLoopBackOff: back-off 10s restarting"
	Restarts  int
	Created   time.Time
}

// ErrNoPorin is the error of a cluster without pods of Porin.
var ErrNoPorin = errors.New("the cluster has no agents of Porin")

// The labels of the chart's DaemonSets.
const (
	nameLabel = "app.kubernetes.io/name"
	agentName = "porin-agent"
	proxyName = "porin-proxy"
)

// DefaultNamespace is where the chart and the manifest install Porin.
const DefaultNamespace = "kube-system"

// APIServer is the [Cluster] of a kubeconfig.
type APIServer struct {
	namespace  string // of the agents: pods with their labels elsewhere can be anyone's
	config     *rest.Config
	core       rest.Interface
	parameters runtime.ParameterCodec
}

var _ Cluster = (*APIServer)(nil)

// Connect makes no connection yet. Agents are pods of the namespace.
func Connect(config *rest.Config, namespace string) (*APIServer, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	config = rest.CopyConfig(config)
	config.APIPath, config.QPS = "/api", -1
	config.ContentConfig = rest.ContentConfig{
		GroupVersion: &corev1.SchemeGroupVersion, NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(),
		ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf,
	}
	core, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return &APIServer{namespace: namespace, config: config, core: core, parameters: runtime.NewParameterCodec(scheme)}, nil
}

// pageSize bounds one answer of the API server.
const pageSize = 500

// Nodes implements Cluster.
func (a *APIServer) Nodes(ctx context.Context) ([]Node, error) {
	byName := map[string]*Node{}
	err := list(ctx, "list nodes", func() *rest.Request { return a.core.Get().Resource("nodes") }, func(l *corev1.NodeList) string {
		for _, n := range l.Items {
			byName[n.Name] = &Node{Name: n.Name, Linux: n.Status.NodeInfo.OperatingSystem != "windows"}
		}
		return l.Continue
	})
	if err != nil {
		return nil, err
	}
	found := false
	pods := func() *rest.Request {
		return a.core.Get().Resource("pods").Namespace(a.namespace).Param("labelSelector", nameLabel+" in ("+agentName+","+proxyName+")")
	}
	err = list(ctx, "list pods in namespace "+a.namespace, pods, func(l *corev1.PodList) string {
		for _, p := range l.Items {
			node := byName[p.Spec.NodeName]
			if node == nil || len(p.Spec.Containers) == 0 {
				continue // it waits for a node, or its node is gone
			}
			if found = true; p.Labels[nameLabel] == proxyName {
				node.Proxies = append(node.Proxies, podOf(p))
			} else {
				node.Agents = append(node.Agents, podOf(p))
			}
		}
		return l.Continue
	})
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("%w: no pod in namespace %s has the label %s=%s: see --kubeconfig, --context and --agent-namespace",
			ErrNoPorin, a.namespace, nameLabel, agentName)
	}
	nodes := make([]Node, 0, len(byName))
	for _, n := range byName {
		nodes = append(nodes, *n)
	}
	slices.SortFunc(nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes, nil
}

// NodeOf implements Cluster.
func (a *APIServer) NodeOf(ctx context.Context, pod string) (node string, err error) {
	if namespace, name, named := strings.Cut(pod, "/"); named {
		var p corev1.Pod
		if err := a.core.Get().Resource("pods").Namespace(namespace).Name(name).MaxRetries(0).Do(ctx).Into(&p); err != nil {
			return "", explained(err, "get pod "+pod)
		}
		return p.Spec.NodeName, nil
	}
	address, err := netip.ParseAddr(pod)
	if err != nil {
		return "", fmt.Errorf("%q is no pod (NAMESPACE/NAME) and no address", pod)
	}
	pod = address.Unmap().String() // as the API server has it
	find := func(l *corev1.PodList) string {
		for _, p := range l.Items {
			ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
			if !p.Spec.HostNetwork && !ended && slices.ContainsFunc(p.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == pod }) {
				node = p.Spec.NodeName
			}
		}
		return l.Continue
	}
	pods := func() *rest.Request { return a.core.Get().Resource("pods") }
	first := func() *rest.Request { return pods().Param("fieldSelector", "status.podIP="+pod) }
	if err := list(ctx, "list pods", first, find); err != nil || node != "" {
		return node, err
	}
	// An address of a pod's second family: the API server selects by the first alone.
	err = list(ctx, "list pods", pods, find)
	return node, err
}

// object is a pointer to a list of objects.
type object[L any] interface {
	*L
	runtime.Object
}

// list reads all pages of a list. page returns the next page's token.
func list[L any, P object[L]](ctx context.Context, verb string, request func() *rest.Request, page func(P) (next string)) error {
	token := ""
	for {
		answer := P(new(L))
		err := request().Param("limit", strconv.Itoa(pageSize)).Param("continue", token).MaxRetries(0).Do(ctx).Into(answer)
		if err != nil {
			return explained(err, verb)
		}
		if token = page(answer); token == "" {
			return nil
		}
	}
}

// explained is the API server's refusal with what to do about it.
func explained(err error, verb string) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: the kubeconfig's user needs the right to %s", err, verb)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: %w: the API server does not take the kubeconfig's credentials: renew them", verb, err)
	}
	return fmt.Errorf("%s: %w", verb, err)
}

func podOf(p corev1.Pod) Pod {
	container := p.Spec.Containers[0]
	pod := Pod{
		Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName, Container: container.Name, Image: tagOf(container.Image), FullImage: container.Image, Created: p.CreationTimestamp.Time,
		Reason: joinNonEmpty(p.Status.Reason, p.Status.Message),
	}
	for _, s := range append(slices.Clone(p.Status.InitContainerStatuses), p.Status.ContainerStatuses...) {
		if s.Name == container.Name {
			pod.Running, pod.Ready, pod.Restarts = s.State.Running != nil, s.Ready, int(s.RestartCount)
		}
		switch {
		case s.State.Waiting != nil:
			pod.Reason = joinNonEmpty(pod.Reason, s.State.Waiting.Reason, s.State.Waiting.Message)
		case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
			pod.Reason = joinNonEmpty(pod.Reason, s.State.Terminated.Reason, s.State.Terminated.Message)
		}
	}
	if p.DeletionTimestamp != nil {
		pod.Reason = joinNonEmpty("it is being deleted", pod.Reason)
	}
	if pod.Ready {
		pod.Reason = ""
	}
	return pod
}

func joinNonEmpty(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ": ")
}

// tagOf is the tag of an image's name, or its digest.
func tagOf(image string) string {
	name, digest, _ := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], "@")
	if _, tag, found := strings.Cut(name, ":"); found {
		return tag
	}
	return digest
}
