package kubernetes

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// clusterCommand runs porin cluster with the administrator's kubeconfig, as kubectl does it with a plugin.
func clusterCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	plugins := t.TempDir()
	program, err := filepath.Abs(os.Getenv("PORIN_COMMAND"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(plugins, "kubectl-porin")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary("kubectl"), append([]string{"porin"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(os.Getenv(envDir), "run", "admin.conf"), "PATH="+plugins+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl porin %s: %w:\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// TestClusterCommands asks all agents of a healthy cluster.
func TestClusterCommands(t *testing.T) {
	c := porin(t)
	namespace := c.namespace(t)
	c.pod(t, namespace, "client", c.nodes[0])
	c.pod(t, namespace, "near", c.nodes[len(c.nodes)-1])
	out, err := clusterCommand(t, "status", "--wait", "1m")
	if err != nil {
		t.Error(err)
	}
	for _, want := range []string{fmt.Sprintf("Nodes:    %d\n", len(c.nodes)), fmt.Sprintf("Agents:   %d ready", len(c.nodes)), fmt.Sprintf("Proxies:  %d ready", len(c.nodes))} {
		if !strings.Contains(out, want) {
			t.Errorf("status does not have %q:\n%s", want, out)
		}
	}
	for command, want := range map[string]string{
		"doctor":           fmt.Sprintf("%d have answered", len(c.nodes)),
		"health":           "0 failing paths",
		"monitor --last 1": "",
		"status -o json":   `"faults": []`,
		"policy explain --from " + namespace + "/client --to " + namespace + "/near --port 80": "Verdict:",
	} {
		testutil.Eventually(t, func() error {
			out, err := clusterCommand(t, strings.Fields(command)...)
			if err == nil && !strings.Contains(out, want) {
				err = fmt.Errorf("%s does not print %q:\n%s", command, want, out)
			}
			return err
		})
	}
}

// TestClusterSysdump writes an archive with something of each node.
func TestClusterSysdump(t *testing.T) {
	c := porin(t)
	file := filepath.Join(t.TempDir(), "dump.tar.gz")
	if _, err := clusterCommand(t, "sysdump", file); err != nil {
		t.Fatal(err)
	}
	page, err := run("", "tar", "-xzOf", file, "README.txt")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(page, "Missing") {
		t.Errorf("of a healthy cluster there is missing\n%s", page)
	}
	for _, node := range c.nodes {
		if !strings.Contains(page, "nodes/"+node+"/status.json") {
			t.Errorf("nothing of node %s:\n%s", node, page)
		}
	}
}

// TestConnectivity tests a healthy cluster, and then one with each of several faults.
func TestConnectivity(t *testing.T) {
	c := porin(t)
	began := time.Now()
	if out, err := clusterCommand(t, "connectivity"); err != nil {
		t.Fatal(err)
	} else {
		t.Log(out)
	}
	if took := time.Since(began); took > 3*time.Minute {
		t.Errorf("it took %s", took)
	}
	if out, err := c.try("get", "namespace", "porin-connectivity"); err == nil {
		t.Errorf("the namespace is left: %s", out)
	}
	for _, fault := range c.faults(t) {
		if len(c.nodes) < fault.nodes {
			continue
		}
		fault.breaks()
		out, err := clusterCommand(t, "connectivity")
		fault.mends()
		if err == nil || !strings.Contains(out, fault.want) {
			t.Errorf("%s: error %v, want %q named in\n%s", fault.name, err, fault.want, out)
		}
		_, table, _ := strings.Cut(out, "AT FAULT")
		for line := range strings.Lines(table) {
			if strings.HasPrefix(line, "n") && !strings.Contains(line, fault.want) { // a node's name
				t.Errorf("%s: %q is named too", fault.name, line)
			}
		}
	}
}

// preparedFault is something broken in a cluster, and what porin cluster connectivity is to name.
type preparedFault struct {
	name          string
	nodes         int // that it needs
	breaks, mends func()
	want          string
}

// denyAll denies what pods of the test send to each other.
const denyAll = `apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: connectivity-denied}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: porin-connectivity}}}
  ingress: [{action: Deny, from: [{namespaces: {matchLabels: {kubernetes.io/metadata.name: porin-connectivity}}}]}]
`

func (c *cluster) faults(t *testing.T) []preparedFault {
	last := c.nodes[len(c.nodes)-1]
	on := func(command ...string) func() {
		return func() {
			if _, err := c.on(last, command...); err != nil {
				t.Fatal(err)
			}
		}
	}
	kubectl := func(args ...string) func() { return func() { c.kubectl(t, args...) } }
	drop := func(match string) func() {
		return on("nft", "add table inet broken; add chain inet broken in { type filter hook prerouting priority -310; }; add rule inet broken in udp dport 8472 "+match+" drop")
	}
	mend := on("nft", "delete table inet broken")
	onSwitch := func(rules string) {
		if _, err := run("", "ip", "netns", "exec", "k8s-switch", "nft", rules); err != nil {
			t.Fatal(err)
		}
	}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(denyAll), 0o600); err != nil {
		t.Fatal(err)
	}
	return []preparedFault{
		{"dropped tunnel port", 2, drop(""), mend, " tunnel "},
		{"wrong MTU", 2, drop("meta length > 1000"), mend, " mtu "},
		{"missing route", 2, func() { // the switch between the nodes lets no packet through to the pods of the last one
			c.setRouting(t, "vxlan", "native")
			onSwitch("add table bridge broken; add chain bridge broken forward { type filter hook forward priority 0; }; " +
				"add rule bridge broken forward oifname " + last + " ip daddr 10.244.0.0/16 drop")
		}, func() {
			onSwitch("delete table bridge broken")
			c.setRouting(t, "native", "vxlan")
		}, " route "},
		{"dead CoreDNS", 1, kubectl("-n", system, "scale", "deployment/coredns", "--replicas=0"), func() {
			c.kubectl(t, "-n", system, "scale", "deployment/coredns", "--replicas=1")
			c.kubectl(t, "-n", system, "rollout", "status", "deployment/coredns", "--timeout=2m")
		}, " dns "},
		{"kube-proxy stopped", 1, func() { script(t, "daemon.sh", "stop", "kube-proxy-"+last) }, func() { script(t, "daemon.sh", "start", "kube-proxy-"+last) }, " kube-proxy "},
		{"denied path", 1, func() {
			c.defineClusterNetworkPolicy(t)
			c.kubectl(t, "apply", "-f", policy)
			c.knows(t, "connectivity-denied")
		}, kubectl("delete", "-f", policy), " policy "},
		{"node without agent", 2, func() {
			c.kubectl(t, "-n", system, "patch", "daemonset/porin-agent", "--type=merge", "-p",
				`{"spec": {"template": {"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
				{"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["`+last+`"]}]}]}}}}}}}`)
			c.kubectl(t, "-n", system, "rollout", "status", "daemonset/porin-agent", "--timeout=2m")
		}, func() {
			c.kubectl(t, "-n", system, "patch", "daemonset/porin-agent", "--type=json", "-p", `[{"op": "remove", "path": "/spec/template/spec/affinity"}]`)
			c.ready(t)
		}, last + ": no agent"},
	}
}

// setRouting changes the routing mode of all agents, and returns when they are ready.
func (c *cluster) setRouting(t *testing.T, from, to string) {
	t.Helper()
	config := c.kubectl(t, "-n", system, "get", "configmap/porin-agent", "-o", `jsonpath={.data.agent\.yaml}`)
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"agent.yaml": strings.Replace(config, "routing: "+from, "routing: "+to, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "-n", system, "patch", "configmap/porin-agent", "--type=merge", "-p", string(patch))
	c.kubectl(t, "-n", system, "rollout", "restart", "daemonset/porin-agent")
	c.ready(t)
}
