package apiserver

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"porin.dev/porin/internal/testutil/apiserver"
)

// TestManifest: the API server takes each object of deploy/porin.yaml, and refuses a field that it does not know.
func TestManifest(t *testing.T) {
	c := newCluster(t, apiserver.StartLocal(t))
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	wrong := strings.Replace(string(text), "      hostNetwork: true\n", "      hostNetworks: true\n", 1)
	if _, err := c.admin.TryApply(t.Context(), wrong); err == nil || !strings.Contains(err.Error(), "hostNetworks") {
		t.Errorf("a manifest with a wrong field: %v, want an error that names hostNetworks", err)
	}
}

// TestChart: Helm installs the chart, upgrades it, uninstalls it, and installs it again. CRDs, records and pools stay.
func TestChart(t *testing.T) {
	helm := os.Getenv("PORIN_HELM")
	if _, err := os.Stat(helm); err != nil {
		t.Skip("needs Helm: make helm")
	}
	server := apiserver.StartLocal(t)
	admin := server.Admin()
	t.Cleanup(admin.Close)
	kubeconfig := "--kubeconfig=" + server.AdminKubeconfig(t)
	try := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), helm, append(args, "--namespace=kube-system", kubeconfig)...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	run := func(args ...string) {
		t.Helper()
		if text, err := try(args...); err != nil {
			t.Fatalf("helm %s: %v: %s", strings.Join(args, " "), err, text)
		}
	}
	podCIDR := []string{"porin", filepath.Join("..", "..", "deploy", "chart"), "--set=image.repository=porin.dev/porin"}
	multiPool := append(podCIDR[:3:3], "--set=ipam.mode=multi-pool", "--set=ipam.defaultPool={10.64.0.0/16,fd00:64::/64}")
	here := func(f func() error) error { return f() }
	pools := func(says string, args ...string) {
		t.Helper()
		if text, err := porin(t, here, append(append([]string{"cluster", "pool"}, args...), kubeconfig)...); err != nil || !strings.Contains(text, says) {
			t.Errorf("porin pool %s: %v: %s, want %q", args[0], err, text, says)
		}
	}
	exists := func(path string, want bool) {
		t.Helper()
		err := admin.Do(t.Context(), http.MethodGet, path, nil, nil)
		if err != nil && !apierrors.IsNotFound(err) || (err == nil) != want {
			t.Errorf("%s: %v, want it to be there: %t", path, err, want)
		}
	}
	const agents, proxies = "/apis/apps/v1/namespaces/kube-system/daemonsets/porin-agent", "/apis/apps/v1/namespaces/kube-system/daemonsets/porin-proxy"

	run(append([]string{"install"}, multiPool...)...)
	exists(agents, true)
	exists(proxies, true)
	pools("10.64.0.0/16", "list")
	pools("10.65.0.0/16", "set", "default", "--prefix=10.64.0.0/16,10.65.0.0/16")
	run(append([]string{"upgrade", "--set=proxy.enabled=false"}, multiPool...)...)
	exists(proxies, false)
	pools("10.65.0.0/16", "list") // an upgrade leaves what porin pool has changed
	run("uninstall", "porin")
	exists(agents, false)
	pools("10.65.0.0/16", "list")
	run(append([]string{"install"}, multiPool...)...)
	pools("10.65.0.0/16", "list")
	run("uninstall", "porin")
	admin.Delete(t, group+"porinpools/default")
	run(append([]string{"install"}, podCIDR...)...)
	exists(group+"porinpools/default", false)
	if text, err := try(append([]string{"upgrade"}, multiPool...)...); err == nil || !strings.Contains(text, "ipam.mode: the installation has pod-cidr") {
		t.Errorf("a change of ipam.mode: %v: %s", err, text)
	}
	admin.Delete(t, "/api/v1/namespaces/kube-system/configmaps/porin-agent")
	run(append([]string{"upgrade"}, multiPool...)...)
	pools("10.64.0.0/16", "list")
}
