package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// failsWith runs an agent that must end with one line of these words, besides what it logs.
func failsWith(t *testing.T, node *testutil.Node, flags []string, words string) {
	t.Helper()
	said := ""
	for line := range strings.Lines(failingAgent(t, node, flags...)) {
		if !strings.HasPrefix(line, "time=") {
			said += line
		}
	}
	if strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "porin-agent: ") || !strings.Contains(said, words) {
		t.Errorf("porin-agent %v says\n%swant one line with %q", flags, said, words)
	}
}

func configFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestConfigPrecedence(t *testing.T) {
	testutil.Root(t)
	file := configFile(t, "node-name: of-the-file\nlog-format: json\nlog-level: debug\nipam-quarantine: 10m\n"+
		"ipam-pod-cidr:\n- 10.50.0.0/24\n- fd00:50::/64\n")
	t.Setenv("PORIN_NODE_NAME", "of-the-environment")
	t.Setenv("PORIN_LOG_FORMAT", "text")
	t.Setenv("PORIN_LOG_LEVEL", "error")
	r := newRig(t, "--config="+file, "--log-level=info") // and --node-name=node1
	if name := r.status().Node; name != r.node.Name {
		t.Errorf("node-name: %s, want that of the command line", name)
	}
	if log := r.agent.Log(); !strings.HasPrefix(log, "time=") || !strings.Contains(log, "level=INFO") || strings.Contains(log, "level=DEBUG") {
		t.Errorf("log-format is not that of the environment, or log-level not that of the command line:\n%s", log)
	}
	if p := r.pod(); p.ipv4.String() != "10.50.0.2" || p.ipv6.String() != "fd00:50::2" {
		t.Errorf("ipam-pod-cidr is not that of the file: %s, %s", p.ipv4, p.ipv6)
	}
}

func TestLogJSON(t *testing.T) {
	r := newRig(t, "--log-format=json", "--log-level=debug")
	r.cni.MustDel(t, r.pod().Container)
	for line := range strings.Lines(r.agent.Log()) {
		if !strings.HasPrefix(line, `{"time":`) || !strings.HasSuffix(line, "}\n") {
			t.Errorf("not a line of JSON: %s", line)
		}
	}
}

func TestConfigBad(t *testing.T) {
	testutil.Root(t)
	node := testutil.NewNode(t)
	for _, c := range []struct{ flag, words string }{
		{"--no-such-flag", "no-such-flag"},
		{"--max-endpoints=many", "max-endpoints"},
		{"--max-endpoints=0", "max-endpoints"},
		{"--ipam-quarantine=soon", "ipam-quarantine"},
		{"--log-level=loud", "want debug, info, warn or error"},
		{"--ipam-pod-cidr=10.1.2.3/24", "10.1.2.0/24"},
		{"--ipam-pod-cidr=10.0.0.0/25", "overlaps"},
		{"--ipam-mode=magic", "magic"},
		{"--metrics-address=9964", "want host:port"},
		{"--metrics-address=192.0.2.99:9964", "192.0.2.99:9964"},
		{"--cni-conf-path=relative", "want an absolute path"},
		{"--api-socket=/" + strings.Repeat("long", 40), "at most"},
		{"--config=/no/such/file", "/no/such/file"},
		{"--config=" + configFile(t, "state-dri: /x\n"), `unknown key "state-dri"`},
		{"--config=" + configFile(t, "log-level: [a: b]\n"), "log-level"},
		{"nonsense", `unknown command "nonsense"`},
	} {
		failsWith(t, node, []string{c.flag}, c.words)
	}
	t.Setenv("PORIN_IPAM_QUARANTINE", "soon")
	failsWith(t, node, nil, "PORIN_IPAM_QUARANTINE")
}

func TestConfigAllFaults(t *testing.T) {
	testutil.Root(t)
	file := configFile(t, "colour: red\nipam-quarantine: soon\nlog-level: loud\n")
	t.Setenv("PORIN_MAX_ENDPOINTS", "many")
	out := failingAgent(t, testutil.NewNode(t), "--config="+file, "--metrics-address=9964", "--cni-conf-path=relative")
	for _, fault := range []string{
		`unknown key "colour"`, "soon", `log-level "loud"`, "PORIN_MAX_ENDPOINTS", `metrics-address "9964"`, `cni-conf-path "relative"`,
	} {
		if !strings.Contains(out, fault) {
			t.Errorf("%s is not reported in\n%s", fault, out)
		}
	}
}

func TestAgentHelp(t *testing.T) {
	testutil.Root(t)
	node := testutil.NewNode(t)
	for args, words := range map[string][]string{
		"--help":  {"Usage:", "--config", "--api-socket", "--state-dir", "--bpf-root", "--ipam-pod-cidr", "--cni-conf-path", "--metrics-address"},
		"graph":   {"digraph {", "endpointmanager", "datapath", "ipam", "\n}"},
		"version": {"\n"},
	} {
		done := runIn(t, node, nil, "porin-agent", args)
		for _, word := range words {
			if done.code != 0 || done.err != "" || !strings.Contains(done.out, word) {
				t.Errorf("porin-agent %s: exit code %d, %s, want %q in\n%s", args, done.code, done.err, word, done.out)
			}
		}
	}
	if usage := runIn(t, node, nil, "porin-cni"); usage.code != 0 || !strings.Contains(usage.err, "0.3.0") || !strings.Contains(usage.err, "1.1.0") {
		t.Errorf("porin-cni without a command: exit code %d, %s", usage.code, usage.err)
	}
}
