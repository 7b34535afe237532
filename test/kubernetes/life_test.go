package kubernetes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/internal/testutil"
)

// policyCRD is the kind of policies with layer 7 rules, without its schema. Porin does not bring it.
const policyCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ciliumnetworkpolicies.cilium.io}
spec:
  group: cilium.io
  scope: Namespaced
  names: {kind: CiliumNetworkPolicy, plural: ciliumnetworkpolicies, singular: ciliumnetworkpolicy}
  versions: [{name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// policy lets the client's lines pass by a rule of layer 4, and its requests by one of layer 7.
const policy = `
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: servers, namespace: %s}
spec:
  endpointSelector: {matchExpressions: [{key: app, operator: In, values: [near, far]}]}
  ingress:
  - fromEndpoints: [{matchLabels: {app: client}}]
    toPorts: [{ports: [{port: "7000", protocol: TCP}]}]
  - fromEndpoints: [{matchLabels: {app: client}}]
    toPorts: [{ports: [{port: "8080", protocol: TCP}], rules: {http: [{method: GET, path: /ok}]}}]
`

// traffic starts servers on the client's and on another node, and a sender through rules of layers 4 and 7. The function that it returns ends it.
func (c *cluster) traffic(t *testing.T, namespace string) (end func() traffic) {
	t.Helper()
	c.apply(t, policyCRD)
	c.kubectl(t, "wait", "--for=condition=Established", "crd/ciliumnetworkpolicies.cilium.io")
	c.apply(t, fmt.Sprintf(policy, namespace))
	client, near := c.pod(t, namespace, "client", c.nodes[0]), c.pod(t, namespace, "near", c.nodes[0])
	far := c.pod(t, namespace, "far", c.nodes[len(c.nodes)-1])
	near.serve(t)
	far.serve(t)
	for _, node := range c.nodes {
		testutil.Eventually(t, func() error {
			list, err := c.agent(node, "policy", "list")
			if err == nil && !strings.Contains(list, "servers") {
				err = fmt.Errorf("the agent of %s does not know the policy:\n%s", node, list)
			}
			return err
		})
	}
	return client.send(t, near, far)
}

// nothingLeft waits until nodes and API server have what they had before, and the doctors find nothing.
func (c *cluster) nothingLeft(t *testing.T, before map[string][]string) {
	t.Helper()
	testutil.Eventually(t, func() error {
		if diff := cmp.Diff(before, c.inventory(t)); diff != "" {
			return fmt.Errorf("(-before +after):\n%s", diff)
		}
		return nil
	})
	c.agrees(t)
}

// agrees waits until the doctors find nothing.
func (c *cluster) agrees(t *testing.T) {
	t.Helper()
	for _, node := range c.nodes {
		testutil.Eventually(t, func() error {
			_, err := c.agent(node, "doctor") // exits with 1 when something disagrees
			return err
		})
	}
}

// scale changes the number of the pods of the deployment, and waits for them.
func (c *cluster) scale(t *testing.T, namespace string, replicas int) {
	t.Helper()
	c.kubectl(t, "-n", namespace, "scale", "deployment/many", fmt.Sprint("--replicas=", replicas))
	if replicas > 0 {
		c.kubectl(t, "-n", namespace, "rollout", "status", "deployment/many", "--timeout=2m")
	} else {
		c.kubectl(t, "-n", namespace, "wait", "--for=delete", "pod", "-l", "app=many", "--timeout=2m")
	}
}

// TestRoll gives agents and proxies another image while pods send, and while others come: no byte is lost, and no ADD fails.
func TestRoll(t *testing.T) {
	c := porin(t)
	namespace := c.namespace(t)
	c.apply(t, fmt.Sprintf(deployment, namespace))
	end := c.traffic(t, namespace)
	image := c.kubectl(t, "-n", system, "get", "daemonset", "porin-agent", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	for i, tag := range []string{image + "-next", image} { // and back
		for _, node := range c.nodes {
			if _, err := c.on(node, binary("ctr"), "-n", "k8s.io", "images", "tag", "--force", image, tag); err != nil && tag != image {
				t.Fatal(err)
			}
		}
		began := time.Now()
		c.kubectl(t, "-n", system, "set", "image", "daemonset/porin-agent", "install-cni="+tag, "agent="+tag)
		c.kubectl(t, "-n", system, "set", "image", "daemonset/porin-proxy", "*="+tag)
		c.scale(t, namespace, 20)
		c.ready(t)
		t.Logf("roll %d of %d nodes: %.1f s", i+1, len(c.nodes), time.Since(began).Seconds())
		c.scale(t, namespace, 0)
	}
	end().lossless(t)
	if failed := c.kubectl(t, "-n", namespace, "get", "events", "--field-selector", "reason=FailedCreatePodSandBox", "-o", "name"); failed != "" {
		t.Errorf("ADDs failed: %s", c.kubectl(t, "-n", namespace, "get", "events", "--field-selector", "reason=FailedCreatePodSandBox"))
	}
}

// TestKilledAgents kills agents while pods come and go: traffic passes, and nothing is left.
func TestKilledAgents(t *testing.T) {
	c := porin(t)
	namespace := c.namespace(t)
	c.apply(t, fmt.Sprintf(deployment, namespace))
	end := c.traffic(t, namespace)
	before := c.inventory(t)
	for i := range 4 {
		c.kubectl(t, "-n", namespace, "scale", "deployment/many", fmt.Sprint("--replicas=", 20*(1-i%2)))
		node := c.nodes[i%len(c.nodes)]
		if _, err := c.on(node, "sh", "-c", "kill -KILL $(pidof porin-agent)"); err != nil {
			t.Error(err)
		}
		c.scale(t, namespace, 20*(1-i%2))
	}
	c.ready(t)
	c.nothingLeft(t, before)
	end().lossless(t)
}

// TestDrain drains a node and takes it back.
func TestDrain(t *testing.T) {
	c := porin(t)
	if len(c.nodes) < 2 {
		t.Skip("needs two nodes")
	}
	namespace := c.namespace(t)
	c.apply(t, fmt.Sprintf(deployment, namespace))
	c.scale(t, namespace, 20)
	node := c.nodes[len(c.nodes)-1]
	c.kubectl(t, "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=2m")
	c.scale(t, namespace, 20)
	if list, err := c.agent(node, "endpoint", "list"); err != nil || strings.Contains(list, namespace) {
		t.Errorf("the drained node has endpoints: %v\n%s", err, list)
	}
	c.kubectl(t, "uncordon", node)
	c.scale(t, namespace, 40)
	c.scale(t, namespace, 0)
	c.ready(t)
	for _, node := range c.nodes {
		if list, err := c.agent(node, "endpoint", "list"); err != nil || strings.Contains(list, namespace) {
			t.Errorf("%s has endpoints: %v\n%s", node, err, list)
		}
	}
	c.agrees(t)
}

// TestSetBack stops API server and etcd, kills agents meanwhile, and starts etcd with data of before: traffic passes, and pods come up afterwards.
func TestSetBack(t *testing.T) {
	c := porin(t)
	namespace := c.namespace(t)
	c.apply(t, fmt.Sprintf(deployment, namespace))
	end := c.traffic(t, namespace)
	c.scale(t, namespace, 10)
	data := filepath.Join(os.Getenv(envDir), "run", "etcd")
	stop := func() {
		script(t, "daemon.sh", "stop", "kube-apiserver")
		script(t, "daemon.sh", "stop", "etcd")
	}
	start := func() {
		script(t, "daemon.sh", "start", "etcd")
		script(t, "daemon.sh", "start", "kube-apiserver")
		testutil.Eventually(t, func() error {
			_, err := c.try("get", "--raw", "/readyz")
			return err
		})
	}
	stop()
	if err := os.CopyFS(data+".backup", os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(data + ".backup") })
	start()
	c.ready(t)
	c.scale(t, namespace, 30) // which the backup does not know
	stop()
	for _, node := range c.nodes {
		if _, err := c.on(node, "sh", "-c", "kill -KILL $(pidof porin-agent)"); err != nil {
			t.Error(err)
		}
	}
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(data, os.DirFS(data+".backup")); err != nil {
		t.Fatal(err)
	}
	start()
	// Components of Kubernetes go on with versions of the future, and see nothing until they are started again (kubernetes#107457). Agents list all objects again.
	daemons := []string{"kube-controller-manager", "kube-scheduler"}
	for _, node := range c.nodes {
		daemons = append(daemons, "kube-proxy-"+node, "kubelet-"+node)
	}
	for _, daemon := range daemons {
		script(t, "daemon.sh", "stop", daemon)
		script(t, "daemon.sh", "start", daemon)
	}
	c.ready(t)
	c.scale(t, namespace, 20)
	c.scale(t, namespace, 0)
	end().lossless(t)
	c.agrees(t)
}

const bridge = `{"cniVersion": "1.0.0", "name": "next", "plugins": [{"type": "bridge", "bridge": "next0", "isGateway": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/24"}]]}}]}`

// TestUninstall deletes Porin's DaemonSets while pods send, uses another plugin, and installs Porin again: the pods have kept their
// network, but for what layer 7 rules let pass.
func TestUninstall(t *testing.T) {
	c := porin(t)
	namespace := c.namespace(t)
	end := c.traffic(t, namespace)
	node := c.nodes[0]
	c.kubectl(t, "-n", system, "delete", "daemonset", "porin-agent", "porin-proxy", "--timeout=2m")
	for _, node := range c.nodes {
		testutil.Eventually(t, func() error {
			files, err := c.on(node, "ls", "/etc/cni/net.d")
			if err == nil && files != "" {
				err = fmt.Errorf("%s has CNI configurations: %s", node, files)
			}
			return err
		})
	}
	c.kubectl(t, "wait", "--for=condition=Ready=False", "node/"+node, "--timeout=2m")
	if _, err := c.on(node, "sh", "-c", "printf '%s' \"$1\" >/etc/cni/net.d/10-next.conflist", "sh", bridge); err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "wait", "--for=condition=Ready", "node/"+node, "--timeout=2m")
	c.apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: next, namespace: %s}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  containers: [{name: pause, image: registry.k8s.io/pause:3.10.2, imagePullPolicy: Never}]
`, namespace, node))
	c.kubectl(t, "-n", namespace, "wait", "--for=condition=Ready", "pod/next", "--timeout=1m")
	if address := c.kubectl(t, "-n", namespace, "get", "pod", "next", "-o", "jsonpath={.status.podIP}"); !strings.HasPrefix(address, "10.99.0.") {
		t.Errorf("the pod of the next plugin has the address %s", address)
	}
	c.kubectl(t, "-n", namespace, "delete", "pod", "next", "--timeout=1m")
	if _, err := c.on(node, "sh", "-c", "rm /etc/cni/net.d/10-next.conflist; ip link delete next0"); err != nil {
		t.Error(err)
	}
	c.kubectl(t, "apply", "-f", manifest)
	c.ready(t)
	result := end()
	result.Errors = slices.DeleteFunc(result.Errors, func(text string) bool { return strings.Contains(text, "GET ") }) // layer 7 needs the proxy
	result.lossless(t)
	c.agrees(t)
}
