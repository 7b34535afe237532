package kubernetes

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

const (
	suiteProgram = "networkpolicyapi.test" // of the folder networkpolicyapi
	suiteImage   = "registry.k8s.io/e2e-test-images/agnhost:2.45"
	ownImage     = "porin.test/coredns:latest" // has agnhost
)

var (
	suiteName   = regexp.MustCompile(`(?m)^(CNP\w+)$`)
	suiteResult = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): TestConformance/(\w+)(?:/(.*))? \(`)
)

// networkpolicyapi.txt has all tests of network-policy-api's conformance suite, once, and as many as its headings say.
func TestNetworkPolicyAPIList(t *testing.T) {
	testutil.Root(t)
	if _, err := os.Stat(binary(suiteProgram)); err != nil {
		t.Skip("needs network-policy-api's tests: make e2e-kubernetes")
	}
	out, err := exec.Command(binary(suiteProgram), "-test.run=^TestNames$").Output()
	if err != nil {
		t.Fatal(err)
	}
	wantList(t, "networkpolicyapi.txt", suiteName.FindAllStringSubmatch(string(out), -1))
}

// All tests of networkpolicyapi.txt that this cluster allows pass.
func TestNetworkPolicyAPI(t *testing.T) {
	c := porin(t)
	tests := c.chosen(t, "networkpolicyapi.txt")
	if len(tests) == 0 {
		t.Skip("networkpolicyapi.txt has no tests for this cluster")
	}
	for _, node := range c.nodes {
		if _, err := c.on(node, binary("ctr"), "-n", "k8s.io", "images", "tag", "--force", ownImage, suiteImage); err != nil {
			t.Fatal(err)
		}
	}
	c.defineClusterNetworkPolicy(t)
	t.Cleanup(func() {
		c.kubectl(t, "wait", "--for=delete", "namespace", "-l", "conformance-house", "--timeout=2m")
		c.kubectl(t, "delete", "-f", binary("networkpolicyapi.yaml"))
	})

	results := c.networkPolicyAPI(t, tests)
	for _, test := range tests {
		if _, ran := results[test]; !ran {
			results[test] = "missing"
		}
	}
	for _, test := range slices.Sorted(maps.Keys(results)) {
		if result := results[test]; result != "PASS" {
			t.Errorf("%s: %s", result, test)
		}
	}
}

// networkPolicyAPI runs tests of the suite, and returns the results of them and of their cases, whose names are
// TEST/CASE.
func (c *cluster) networkPolicyAPI(t *testing.T, tests []string) map[string]string {
	t.Helper()
	cmd := exec.Command(binary(suiteProgram), "-test.v", "-test.timeout=25m", "-test.run=^TestConformance$/^("+strings.Join(tests, "|")+")$",
		"-programs="+filepath.Dir(binary(suiteProgram)))
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(os.Getenv(envDir), "run", "admin.conf"))
	began := time.Now()
	out, failed := cmd.CombinedOutput()
	results, passed := make(map[string]string), make(map[bool]int)
	for _, match := range suiteResult.FindAllStringSubmatch(string(out), -1) {
		name, isCase := match[2], match[3] != ""
		if isCase {
			name += "/" + match[3]
		}
		results[name] = match[1]
		if match[1] == "PASS" {
			passed[isCase]++
		}
	}
	t.Logf("%d of %d tests pass, with %d cases, in %.0f s", passed[false], len(tests), passed[true], time.Since(began).Seconds())
	if failed != nil {
		log := filepath.Join(os.Getenv(envDir), "networkpolicyapi.log")
		t.Errorf("%v: %s has the details", failed, log)
		if err := os.WriteFile(log, out, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return results
}

// defineClusterNetworkPolicy returns when policies of the kind can be made.
func (c *cluster) defineClusterNetworkPolicy(t *testing.T) {
	t.Helper()
	c.kubectl(t, "apply", "--server-side", "-f", binary("networkpolicyapi.yaml"))
	c.kubectl(t, "wait", "--for=condition=Established", "crd/clusternetworkpolicies.policy.networking.k8s.io")
}
