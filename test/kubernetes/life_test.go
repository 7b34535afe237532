package kubernetes

import (
	"errors"
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

// traffic starts servers on the client's and on another node, and a sender through rules of layers 4 and 7. The
// function that it returns ends it.
func (c *cluster) traffic(t *testing.T, namespace string) (end func() traffic) {
	t.Helper()
	c.apply(t, policyCRD)
	c.kubectl(t, "wait", "--for=condition=Established", "crd/ciliumnetworkpolicies.cilium.io")
	c.apply(t, fmt.Sprintf(policy, namespace))
	client, near := c.pod(t, namespace, "client", c.nodes[0]), c.pod(t, namespace, "near", c.nodes[0])
	far := c.pod(t, namespace, "far", c.nodes[len(c.nodes)-1])
	near.serve(t)
	far.serve(t)
	c.knows(t, "servers")
	return client.send(t, near, far)
}

// knows waits until all agents know a policy.
func (c *cluster) knows(t *testing.T, policy string) {
	t.Helper()
	for _, node := range c.nodes {
		testutil.Eventually(t, func() error {
			list, err := c.agent(node, "policy", "list")
			if err == nil && !strings.Contains(list, policy) {
				err = fmt.Errorf("the agent of %s does not know the policy %s:\n%s", node, policy, list)
			}
			return err
		})
	}
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

// namePolicy lets a pod ask the server for names, and reach their addresses.
const namePolicy = `
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: asking, namespace: %s}
spec:
  endpointSelector: {matchLabels: {app: asking}}
  egress:
  - toEndpoints: [{matchLabels: {app: names}}]
    toPorts: [{ports: [{port: "53", protocol: UDP}], rules: {dns: [{matchPattern: "*"}]}}]
  - toFQDNs: [{matchPattern: "*.example.test"}]
`

// TestUpgrade begins with the earlier version of Porin that test/e2e/testdata/versions names, applies the manifest of
// this one, and goes back, while pods send and others come: no byte is lost, no ADD that this version's plugin has
// begun fails, and queries for known names are answered. The earlier plugin gives up after 10 s.
func TestUpgrade(t *testing.T) {
	earlier := os.Getenv("PORIN_EARLIER")
	if earlier == "" {
		t.Skip("needs the earlier version: make e2e-kubernetes")
	}
	running = nil
	c := newCluster(t, "none")
	script(t, "images.sh", os.Getenv(envImage), filepath.Join(earlier, "porin-image.tar"))
	versions := []string{filepath.Join(earlier, "porin.yaml"), manifest}
	c.kubectl(t, "apply", "-f", versions[0])
	c.installed = true
	c.ready(t)
	namespace := c.namespace(t)
	c.apply(t, fmt.Sprintf(deployment, namespace))
	end := c.traffic(t, namespace)
	c.apply(t, fmt.Sprintf(namePolicy, namespace))
	asking, server := c.pod(t, namespace, "asking", c.nodes[0]), c.pod(t, namespace, "names", c.nodes[0])
	server.serve(t)
	before := c.inventory(t)
	c.knows(t, "asking")
	names := asking.start(t, commandQuery, fmt.Sprintf("%s:%d", server.address, namePort))
	for i := range 2 {
		watch := host(c.nodes[0]).start(t, commandWatch, "http://127.0.0.1:9965/readyz")
		began := time.Now()
		c.kubectl(t, "apply", "-f", versions[(i+1)%2])
		c.scale(t, namespace, 20)
		c.ready(t)
		took := time.Since(began)
		var without []time.Duration
		watch.end(t, &without)
		t.Logf("%s: %d nodes in %.1f s; without a ready agent: %s", versions[(i+1)%2], len(c.nodes), took.Seconds(), without)
		if failed := c.kubectl(t, "-n", namespace, "get", "events", "--field-selector", "reason=FailedCreatePodSandBox"); failed != "" {
			t.Logf("ADDs failed: %s", failed)
			gaveUp := strings.Count(failed, "no agent is there") == strings.Count(failed, "FailedCreatePodSandBox")
			if versions[i%2] == manifest || !gaveUp {
				t.Fail()
			}
		}
		c.kubectl(t, "-n", namespace, "delete", "events", "--all")
		c.scale(t, namespace, 0)
	}
	c.kubectl(t, "apply", "-f", manifest)
	c.ready(t)
	var asked queries
	names.end(t, &asked)
	t.Logf("queries for a known name: %d of %d failed; for new names: %d of %d, the longest answer took %s", asked.Known.Failed,
		asked.Known.Failed+asked.Known.Queries, asked.New.Failed, asked.New.Failed+asked.New.Queries, asked.New.Longest)
	if asked.Known.Failed > 0 || asked.Known.Queries == 0 || asked.New.Queries == 0 {
		t.Errorf("queries failed: %q, %q", asked.Known.Errors, asked.New.Errors)
	}
	end().lossless(t)
	c.nothingLeft(t, before)
}

// TestEvicted rolls the agents to pods that need more room than a full node has: pods of applications make room,
// without an agent on their node.
func TestEvicted(t *testing.T) {
	c := porin(t)
	namespace := c.namespace(t)
	before := c.inventory(t)
	c.apply(t, fmt.Sprintf(deployment, namespace))
	c.kubectl(t, "-n", namespace, "set", "resources", "deployment/many", "--requests=cpu=100m")
	c.kubectl(t, "-n", namespace, "scale", "deployment/many", fmt.Sprint("--replicas=", 25*len(c.nodes))) // 2.5 processors a node
	testutil.Eventually(t, func() error {
		waiting, err := c.try("-n", namespace, "get", "pod", "-o", "jsonpath={.items[*].status.conditions[?(@.reason==\"Unschedulable\")].type}")
		if err == nil && waiting == "" {
			err = errors.New("all pods have room")
		}
		return err
	})
	c.kubectl(t, "-n", system, "set", "resources", "daemonset/porin-agent", "--containers=agent", "--requests=cpu=500m")
	c.ready(t)
	if c.kubectl(t, "-n", namespace, "get", "events", "--field-selector", "reason=Preempted", "-o", "name") == "" {
		t.Error("no pod was evicted")
	}
	c.kubectl(t, "apply", "-f", manifest)
	c.ready(t)
	c.kubectl(t, "-n", namespace, "delete", "deployment/many")
	c.kubectl(t, "-n", namespace, "wait", "--for=delete", "pod", "-l", "app=many", "--timeout=2m")
	c.nothingLeft(t, before)
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
	twoNodes(t)
	c := porin(t)
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

// TestSetBack stops API server and etcd, kills agents meanwhile, and starts etcd with data of before: traffic passes,
// and pods come up afterwards.
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
	// Components of Kubernetes go on with versions of the future, and see nothing until they are started again
	// (kubernetes#107457). Agents list all objects again.
	daemons := []string{"kube-controller-manager", "kube-scheduler"}
	for _, node := range c.nodes {
		daemons = append(daemons, "kube-proxy-"+node, "kubelet-"+node)
	}
	c.restart(t, daemons...)
	c.ready(t)
	c.scale(t, namespace, 20)
	c.scale(t, namespace, 0)
	end().lossless(t)
	c.agrees(t)
}

const bridge = `{"cniVersion": "1.0.0", "name": "next", "plugins": [{"type": "bridge", "bridge": "next0", "isGateway": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/24"}]]}}]}`

// TestUninstall deletes Porin's DaemonSets while pods send, uses another plugin, and installs Porin again: the pods
// have kept their network, but for what layer 7 rules let pass.
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

// TestRestarts starts the container runtime and the kubelet of a node again, and then the node, at once and after its
// pods were deleted.
func TestRestarts(t *testing.T) {
	c := porin(t)
	namespace := c.namespace(t)
	c.apply(t, fmt.Sprintf(deployment, namespace))
	end := c.traffic(t, namespace)
	node := c.nodes[len(c.nodes)-1]
	for _, daemon := range []string{"kubelet-" + node, "containerd-" + node} {
		c.restart(t, daemon)
		c.ready(t)
		c.scale(t, namespace, 20)
		c.scale(t, namespace, 0)
	}
	end().lossless(t)
	c.kubectl(t, "-n", namespace, "delete", "pod", "--all", "--timeout=1m")
	things := func() (n int) { // pods of the cluster come back on other nodes, with other names
		for _, names := range c.inventory(t) {
			n += len(names)
		}
		return n
	}
	before := things()

	c.scale(t, namespace, 20)
	script(t, "daemon.sh", "power_off", node)
	c.powerOn(t, node)
	c.ready(t)
	c.kubectl(t, "-n", namespace, "rollout", "status", "deployment/many")
	c.pod(t, namespace, "first", c.nodes[0]).reaches(t, c.pod(t, namespace, "second", node))
	c.kubectl(t, "-n", namespace, "delete", "pod", "first", "second", "--timeout=1m")

	script(t, "daemon.sh", "power_off", node)
	c.kubectl(t, "wait", "--for=condition=Ready=Unknown", "node/"+node, "--timeout=2m")
	c.kubectl(t, "delete", "pod", "--all-namespaces", "--field-selector", "spec.nodeName="+node, "--force", "--grace-period=0")
	c.kubectl(t, "-n", system, "create", "job", "gc", "--from=cronjob/porin-node-gc")
	t.Cleanup(func() { c.kubectl(t, "-n", system, "delete", "job", "gc", "--ignore-not-found") })
	if len(c.nodes) > 1 {
		c.kubectl(t, "-n", system, "wait", "--for=condition=Complete", "job/gc", "--timeout=1m")
		c.kubectl(t, "-n", namespace, "rollout", "status", "deployment/many")
	}
	c.powerOn(t, node)
	c.ready(t)
	c.kubectl(t, "-n", namespace, "rollout", "status", "deployment/many")
	c.pod(t, namespace, "first", c.nodes[0]).reaches(t, c.pod(t, namespace, "second", node))
	c.kubectl(t, "-n", namespace, "delete", "pod", "first", "second", "--timeout=1m")
	c.scale(t, namespace, 0)
	testutil.Eventually(t, func() error {
		if now := things(); now != before {
			return fmt.Errorf("%d files and addresses, want the %d of before: %v", now, before, c.inventory(t))
		}
		return nil
	})
	c.agrees(t)
}

// restart stops and starts daemons of the cluster, one after the other.
func (*cluster) restart(t *testing.T, daemons ...string) {
	t.Helper()
	for _, daemon := range daemons {
		script(t, "daemon.sh", "stop", daemon)
		script(t, "daemon.sh", "start", daemon)
	}
}

// powerOn starts a node that was powered off, with its daemons.
func (c *cluster) powerOn(t *testing.T, node string) {
	t.Helper()
	script(t, "daemon.sh", "power_on", node)
	script(t, "daemon.sh", "start", "containerd-"+node)
	testutil.Eventually(t, func() error { // the kubelet ends without it
		_, err := c.on(node, "ctr", "version")
		return err
	})
	script(t, "daemon.sh", "start", "kubelet-"+node)
	script(t, "daemon.sh", "start", "kube-proxy-"+node)
}
