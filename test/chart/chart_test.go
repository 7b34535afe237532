// Package chart tests deploy/chart with Helm's own engine.
package chart

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"sigs.k8s.io/yaml"
)

const (
	chartDir = "../../deploy/chart"
	manifest = "../../deploy/porin.yaml"
	cleanup  = "../../deploy/cleanup.yaml"
)

var write = flag.Bool("write", false, "write deploy/porin.yaml and deploy/cleanup.yaml")

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render returns the objects of the chart in the order of an installation, hooks last, as YAML documents.
func render(t *testing.T, c *chart.Chart, namespace, values string) (string, error) {
	t.Helper()
	var given map[string]any
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	options := common.ReleaseOptions{Name: "porin", Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, given, options, common.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return "", err
	}
	for name := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			delete(files, name)
		}
	}
	hooks, objects, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		t.Fatal(err)
	}
	var documents []string
	for _, object := range objects {
		documents = append(documents, strings.TrimSpace(object.Content)+"\n")
	}
	for _, hook := range hooks {
		documents = append(documents, strings.TrimSpace(hook.Manifest)+"\n")
	}
	return strings.Join(documents, "---\n"), nil
}

// image is the one value without a default.
const image = "image: {repository: porin.dev/porin}\n"

// TestManifest: deploy/porin.yaml is the chart with its defaults, and deploy/cleanup.yaml the DaemonSet of the cleanup.
func TestManifest(t *testing.T) {
	all, err := render(t, load(t), "kube-system", image)
	if err != nil {
		t.Fatal(err)
	}
	const about = "# Made from deploy/chart by make manifest. Do not edit. image: porin.dev/porin is what make image writes.\n"
	compareManifest(t, manifest, about+all)
	ending, err := render(t, load(t), "kube-system", image+"\ncleanup: {enabled: true}")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(ending, "\n---\n") {
		if strings.Contains(document, "kind: DaemonSet\n") {
			compareManifest(t, cleanup, about+strings.TrimSpace(document)+"\n")
		}
	}
}

func compareManifest(t *testing.T, file, got string) {
	t.Helper()
	if *write {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what deploy/chart renders: run make manifest, and commit the file", file)
	}
}

func TestLint(t *testing.T) {
	linter := lint.RunAll(chartDir, map[string]any{"image": map[string]any{"repository": "porin.dev/porin"}}, "kube-system")
	for _, message := range linter.Messages {
		if !strings.Contains(message.Error(), "icon is recommended") {
			t.Error(message)
		}
	}
}

// TestValuesRefused: a wrong value is refused with its name.
func TestValuesRefused(t *testing.T) {
	c := load(t)
	for _, row := range []struct{ values, says string }{
		{"", "image.repository is not set"},
		{"", "make image"},
		{"image: {repository: 'docker.io/a b'}", "/image/repository"},
		{"image: {repo: a}", "'/image': additional properties 'repo' not allowed"},
		{"image: {tag: 1.0}", "/image/tag"},
		{"image: {digest: abc}", "/image/digest"},
		{"image: {pullPolicy: Sometimes}", "/image/pullPolicy"},
		{"imagePullSecrets: [registry]", "/imagePullSecrets/0"},
		{"crds: {install: 'yes'}", "/crds/install"},
		{"crds: false", "/crds"},
		{"ipam: {mode: delegated}", "/ipam/mode"},
		{"ipam: {podCIDR: 10.0.0.0/16}", "'podCIDR' not allowed"},
		{"ipam: {mode: multi-pool, defaultPool: [10.0.0.0]}", "/ipam/defaultPool/0"},
		{"ipam: {mode: multi-pool, defaultPool: [10.0.0.0/16, 10.0.0.0/16]}", "/ipam/defaultPool"},
		{"ipam: {defaultPool: [10.0.0.0/16]}", "ipam.defaultPool: pools are of ipam.mode multi-pool"},
		{"routing: geneve", "/routing"},
		{"masquerade: true", "/masquerade"},
		{"cniConfDir: etc/cni", "/cniConfDir"},
		{"cniBinDir: /opt/cni/bin/", "/cniBinDir"},
		{"apiServer: {urls: [192.0.2.1]}", "/apiServer/urls/0"},
		{"logLevel: trace", "/logLevel"},
		{"agent: {maxUnavailable: 0}", "/agent/maxUnavailable"},
		{"agent: {maxUnavailable: ten}", "/agent/maxUnavailable"},
		{"agent: {resources: {request: {}}}", "/agent/resources"},
		{"agent: {extraConfig: {--policy-audit: true}}", "--policy-audit"},
		{"agent: {extraConfig: {routing: native}}", "agent.extraConfig.routing"},
		{"agent: {extraConfig: {ipam-pod-cidr: 10.244.0.0/16}}", "agent.extraConfig.ipam-pod-cidr"},
		{"proxy: {mode: internal}", "'/proxy': additional properties 'mode' not allowed"},
		{"nodeGC: {wait: 1m}", "/nodeGC"},
		{"health: {port: 70000}", "/health/port"},
		{"metrics: {address: 9964}", "/metrics/address"},
		{"metrics: {address: 0.0.0.0}", "/metrics/address"},
		{"metrics: {address: '0.0.0.0:9965'}", "metrics.address: its port is health.port"},
		{"metrics: {podMonitor: {enabled: true}}", "metrics.podMonitor.enabled: metrics.address is not set"},
		{"metrics: {address: '127.0.0.1:9964', podMonitor: {enabled: true}}", "metrics.podMonitor.enabled: no other machine reaches metrics.address"},
		{"flowSchema: true", "/flowSchema"},
		{"cleanup: true", "/cleanup"},
		{"store: etcd", "additional properties 'store' not allowed"},
	} {
		values := row.values
		if values != "" && !strings.HasPrefix(values, "image:") {
			values = image + values
		}
		if _, err := render(t, c, "kube-system", values); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("values %q: %v, want an error that says %q", row.values, err, row.says)
		}
	}
}

// TestRender: each choice has its objects and settings, and each object that has a namespace has the release's.
func TestRender(t *testing.T) {
	c := load(t)
	for _, row := range []struct {
		values       string
		has, hasNone []string
	}{
		{"", []string{"DaemonSet porin-agent", "DaemonSet porin-proxy", "ServiceAccount porin-proxy", "CronJob porin-node-gc", "CustomResourceDefinition porinnodes.porin.dev",
			"Role porin-agent", "proxy-mode: external", "ipam-mode: pod-cidr", "image: porin.dev/porin:0.1.0", "system:serviceaccount:net:porin-agent",
			"FlowSchema porin-agent", "PriorityLevelConfiguration porin-lists"},
			[]string{"PorinPool default", "PodMonitor porin-agent"}},
		{"proxy: {enabled: false}", []string{"proxy-mode: internal"}, []string{"DaemonSet porin-proxy", "ServiceAccount porin-proxy"}},
		{"nodeGC: {enabled: false}", nil, []string{"CronJob porin-node-gc", "ClusterRole porin-node-gc"}},
		{"crds: {install: false}", nil, []string{"CustomResourceDefinition porinnodes.porin.dev"}},
		{"ipam: {mode: multi-pool}", []string{"ipam-mode: multi-pool"}, []string{"PorinPool default"}},
		{"ipam: {mode: multi-pool, defaultPool: [10.0.0.0/16, 'fd00::/64']}", []string{"PorinPool default", "- 10.0.0.0/16", "- fd00::/64"}, nil},
		{"metrics: {address: '0.0.0.0:9964', podMonitor: {enabled: true, labels: {release: a}}}", []string{"PodMonitor porin-agent", "containerPort: 9964", "release: a"}, nil},
		{"metrics: {alerts: {enabled: true, labels: {release: a}}, dashboard: {enabled: true}}", []string{"PrometheusRule porin", "release: a", "alert: PorinAgentDown",
			"ConfigMap porin-dashboard", `grafana_dashboard: "1"`}, nil},
		{"flowSchema: {enabled: false}", nil, []string{"FlowSchema porin-agent", "PriorityLevelConfiguration porin-lists"}},
		{"apiServer: {urls: ['https://192.0.2.1:6443']}", []string{`kubernetes-api-server: ["https://192.0.2.1:6443"]`}, nil},
		{"agent: {extraConfig: {monitor-flows: 1000000, policy-audit: true, masquerade-exclude: [10.0.0.0/8]}}", []string{"monitor-flows: 1000000\n", "policy-audit: true"}, nil},
		{"cniConfDir: /var/lib/cni", []string{"cni-conf-path: /var/lib/cni/05-porin.conflist", "path: /var/lib/cni", "mountPath: /var/lib/cni"}, []string{"/etc/cni"}},
		{"cleanup: {enabled: true}\ncniBinDir: /var/lib/bin\ncniConfDir: /var/lib/cni", []string{"DaemonSet porin-cleanup", "ServiceAccount porin-agent", "name: porin-agent",
			"args: [cleanup, --wait, --config=/etc/porin/agent.yaml, --cni-bin-dirs=/var/lib/bin]", "mountPath: /var/lib/bin", "mountPath: /var/lib/cni", "CustomResourceDefinition porinnodes.porin.dev"},
			[]string{"DaemonSet porin-agent", "DaemonSet porin-proxy", "CronJob porin-node-gc"}},
		{"imagePullSecrets: [{name: registry}]", []string{"- name: registry"}, nil},
	} {
		text, err := render(t, c, "net", image+row.values)
		if err != nil {
			t.Errorf("values %q: %v", row.values, err)
			continue
		}
		for _, object := range objectsOf(t, text) {
			text += "\n" + object.Kind + " " + object.Metadata.Name + "\n"
			if namespaced := object.Metadata.Namespace != ""; namespaced != slices.Contains(namespacedKinds, object.Kind) || namespaced && object.Metadata.Namespace != "net" {
				t.Errorf("values %q: %s %s has the namespace %q", row.values, object.Kind, object.Metadata.Name, object.Metadata.Namespace)
			}
		}
		for _, has := range row.has {
			if !strings.Contains(text, has) {
				t.Errorf("values %q: no %q in it", row.values, has)
			}
		}
		for _, hasNone := range row.hasNone {
			if strings.Contains(text, hasNone) {
				t.Errorf("values %q: %q is in it", row.values, hasNone)
			}
		}
	}
}

var namespacedKinds = []string{"ServiceAccount", "ConfigMap", "Role", "RoleBinding", "DaemonSet", "CronJob", "PodMonitor", "PrometheusRule"}

type object struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
}

func objectsOf(t *testing.T, text string) (objects []object) {
	t.Helper()
	for document := range strings.SplitSeq(text, "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if o.Kind != "" {
			objects = append(objects, o)
		}
	}
	return objects
}

// TestChecksum: another configuration starts the agents again, and not the proxies.
func TestChecksum(t *testing.T) {
	c := load(t)
	checksum := regexp.MustCompile(`checksum/config: (\w+)`)
	sums := map[string]bool{}
	for _, values := range []string{"", "logLevel: info", "routing: native"} {
		text, err := render(t, c, "kube-system", image+values)
		if err != nil {
			t.Fatal(err)
		}
		found := checksum.FindAllStringSubmatch(text, -1)
		if len(found) != 1 {
			t.Fatalf("%d checksums, want one", len(found))
		}
		sums[found[0][1]] = true
	}
	if len(sums) != 2 {
		t.Errorf("checksums %v, want one for the defaults and another one for routing native", sums)
	}
}

// TestFiles: Helm packs no file that is not the chart's.
func TestFiles(t *testing.T) {
	for _, file := range load(t).Raw {
		if dir := filepath.Dir(file.Name); dir != "." && dir != "templates" && dir != "files" {
			t.Errorf("the chart has %s", file.Name)
		}
	}
}
