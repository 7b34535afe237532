package kubernetes

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"porin.dev/porin/cmd/porin/fleet"
	"porin.dev/porin/internal/testutil"
)

const (
	simulatedNodes = 200
	simulatedLabel = "porin.dev/simulated"
	serverAddress  = "172.30.0.1"   // of the API server's machine
	unusedAddress  = "172.30.0.250" // no machine has it
)

// TestManyAgents asks 3 real agents and 200 simulated ones: 10 hang, 10 refuse and 10 are gone.
func TestManyAgents(t *testing.T) {
	twoNodes(t)
	c := porin(t)
	s := newSimulation(t, c)
	s.start(t)
	answers := simulatedNodes - 30 + len(c.nodes)
	for _, command := range []struct {
		name string
		want []string
	}{
		{"status", []string{
			fmt.Sprintf("Nodes:    %d\n", simulatedNodes+len(c.nodes)), fmt.Sprintf("Agents:   %d ready, ", answers), "Agents:   30 no answer, ",
			"simulated-0 simulated-1 simulated-2 simulated-3 and 6 more: agent: no answer in time",
			"simulated-10 simulated-11 simulated-12 simulated-13 and 6 more: agent: Internal error occurred: error sending request: dial tcp 172.30.0.1:1: connect: connection refused",
			"simulated-20 simulated-21 simulated-22 simulated-23 and 6 more: agent: ",
		}},
		{"health", []string{fmt.Sprintf("%d of %d have answered", answers, simulatedNodes+len(c.nodes))}},
		{"doctor", []string{fmt.Sprintf("%d of %d have answered", answers, simulatedNodes+len(c.nodes))}},
	} {
		began := time.Now()
		out, err := clusterCommand(t, command.name)
		took := time.Since(began)
		t.Logf("%s took %s", command.name, took.Round(100*time.Millisecond))
		if err == nil {
			t.Errorf("%s succeeds though 30 agents do not answer:\n%s", command.name, out)
			continue
		}
		for _, want := range command.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s does not print %q:\n%s", command.name, want, err)
			}
		}
		if took > 15*time.Second {
			t.Errorf("%s took %s, want at most 15 s", command.name, took)
		}
	}
}

// simulation is Nodes without machines. One kubelet, in the test's process, stands for all.
type simulation struct {
	*cluster
	api     *fleet.APIServer
	answers map[string][]byte // of a real agent, by command
	port    int32             // of the kubelet

	mu    sync.Mutex     // guards the field below
	nodes map[string]int // number of a pod's node, by the pod's name
}

func newSimulation(t *testing.T, c *cluster) *simulation {
	t.Helper()
	s := &simulation{cluster: c, answers: map[string][]byte{}, nodes: map[string]int{}}
	for _, command := range []string{"status", "health", "doctor"} {
		out, err := c.agent(c.nodes[0], "-o", "json", command)
		if err != nil {
			t.Fatal(err)
		}
		s.answers[command] = []byte(out)
	}
	config, err := fleet.Config(filepath.Join(os.Getenv(envDir), "run", "admin.conf"), "")
	if err != nil {
		t.Fatal(err)
	}
	if s.api, err = fleet.Connect(config, system); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", serverAddress+":0")
	if err != nil {
		t.Fatal(err)
	}
	s.port = int32(listener.Addr().(*net.TCPAddr).Port)
	kubelet := httptest.NewUnstartedServer(s)
	_ = kubelet.Listener.Close()
	kubelet.Listener, kubelet.TLS = listener, &tls.Config{NextProtos: []string{"http/1.1"}}
	kubelet.StartTLS()
	t.Cleanup(kubelet.Close)
	return s
}

// start makes the Nodes, and says that the pods that the DaemonSets make there run.
func (s *simulation) start(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { s.stop(t) })
	s.each(t, simulatedNodes, func(number int) error {
		node := s.node(number)
		if err := s.api.Request(t.Context(), http.MethodPost, "/api/v1/nodes", node, nil); err != nil {
			return err
		}
		return setStatus(t, s, "/api/v1/nodes/"+node.Name, func(n *corev1.Node) { n.Status = node.Status })
	})
	var pods []corev1.Pod
	testutil.Eventually(t, func() error {
		pods = s.pods(t)
		if len(pods) != 2*simulatedNodes {
			return fmt.Errorf("%d pods of agents and proxies on simulated nodes, want %d", len(pods), 2*simulatedNodes)
		}
		return nil
	})
	s.each(t, len(pods), func(i int) error {
		pod := pods[i]
		number, err := strconv.Atoi(strings.TrimPrefix(pod.Spec.NodeName, "simulated-"))
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.nodes[pod.Name] = number
		s.mu.Unlock()
		return setStatus(t, s, "/api/v1/namespaces/"+system+"/pods/"+pod.Name, func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodRunning
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
			for _, container := range p.Spec.Containers {
				p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
					Name: container.Name, Image: container.Image, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
				})
			}
		})
	})
}

// setStatus writes a status, again when a controller was faster.
func setStatus[T any](t *testing.T, s *simulation, path string, set func(*T)) error {
	for {
		var object T
		if err := s.api.Request(t.Context(), http.MethodGet, path, nil, &object); err != nil {
			return err
		}
		set(&object)
		if err := s.api.Request(t.Context(), http.MethodPut, path+"/status", object, nil); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// node is a Node. The first ten hang, the next ten refuse, and ten are gone.
func (s *simulation) node(number int) corev1.Node {
	address, port := serverAddress, s.port
	switch number / 10 {
	case 1:
		port = 1 // without a listener
	case 2:
		address = unusedAddress
	}
	room := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("8Gi")}
	return corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("simulated-", number), Labels: map[string]string{corev1.LabelOSStable: "linux", simulatedLabel: ""}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: simulatedLabel, Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}, DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
		},
	}
}

// pods are those on simulated nodes.
func (s *simulation) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	if err := s.api.Request(t.Context(), http.MethodGet, "/api/v1/namespaces/"+system+"/pods", nil, &list); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !strings.HasPrefix(p.Spec.NodeName, "simulated-") })
}

// stop removes the Nodes and their pods.
func (s *simulation) stop(t *testing.T) {
	t.Helper()
	if _, err := s.try("delete", "node", "-l", simulatedLabel, "--wait=false"); err != nil {
		t.Error(err)
	}
	// The API server's grace for pods of a node that is gone is half a minute.
	if _, err := s.try("-n", system, "delete", "pod", "-l", "app.kubernetes.io/name in (porin-agent,porin-proxy)", "--field-selector=spec.nodeName!="+strings.Join(s.cluster.nodes, ",spec.nodeName!="), "--force", "--grace-period=0", "--wait=false"); err != nil {
		t.Error(err)
	}
}

func (s *simulation) each(t *testing.T, n int, do func(int) error) {
	t.Helper()
	var all errgroup.Group
	all.SetLimit(8)
	for i := range n {
		all.Go(func() error { return do(i) })
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
}

// ServeHTTP is the kubelet's API: POST /exec/NAMESPACE/POD/CONTAINER?command=...
func (s *simulation) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts, command := strings.Split(r.URL.Path, "/"), r.URL.Query()["command"]
	if len(parts) != 5 || parts[1] != "exec" || len(command) == 0 {
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	number, known := s.nodes[parts[3]]
	s.mu.Unlock()
	var answer []byte
	for _, word := range command {
		answer = append(answer, s.answers[word]...)
	}
	if !known || answer == nil {
		http.NotFound(w, r)
		return
	}
	streams := make(chan httpstream.Stream, 4)
	if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
		return
	}
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
		streams <- stream
		return nil
	})
	if connection == nil {
		return
	}
	defer connection.Close()
	if number < 10 {
		<-connection.CloseChan()
		return
	}
	byType := map[string]httpstream.Stream{}
	for len(byType) < 3 { // the error, stdout and stderr
		select {
		case stream := <-streams:
			byType[stream.Headers().Get("streamType")] = stream
		case <-connection.CloseChan():
			return
		}
	}
	_, _ = byType["stdout"].Write(answer)
	success, _ := json.Marshal(metav1.Status{Status: metav1.StatusSuccess})
	_, _ = byType["error"].Write(success)
	for _, stream := range byType {
		_ = stream.Close()
	}
	_, _ = io.Copy(io.Discard, byType["error"]) // until the API server has read
}
