package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"porin.dev/porin/internal/settings"
)

// parse reads a configuration as run does.
func parse(t *testing.T, yaml string, env map[string]string, args ...string) (Config, error) {
	t.Helper()
	file := ""
	if yaml != "" {
		file = filepath.Join(t.TempDir(), "porin.yaml")
		if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := DefaultConfig()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	fs.String("config", "", "")
	cfg.Flags(fs)
	if err := fs.Parse(args); err != nil {
		return cfg, err
	}
	err := settings.Load(fs, file, func(name string) (string, bool) { value, ok := env[name]; return value, ok })
	return cfg, err
}

func TestLoadPrecedence(t *testing.T) {
	yaml := "state-dir: /file\nbpf-root: /file\nlog-level: warn\nipam-pod-cidr: [10.0.0.0/24, 'fd00::/64']\n"
	env := map[string]string{"PORIN_STATE_DIR": "/env", "PORIN_BPF_ROOT": "/env", "PORIN_SERVICE_HOST": "10.96.0.7"}
	cfg, err := parse(t, yaml, env, "--state-dir=/flag")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.EndpointManager.StateDir != "/flag" || cfg.Datapath.BPFRoot != "/env" || cfg.Logging.Level != "warn" {
		t.Errorf("state-dir %s, bpf-root %s, log-level %s", cfg.EndpointManager.StateDir, cfg.Datapath.BPFRoot, cfg.Logging.Level)
	}
	if want := []string{"10.0.0.0/24", "fd00::/64"}; !slices.Equal(cfg.IPAM.PodCIDRs, want) {
		t.Errorf("ipam-pod-cidr %v, want %v", cfg.IPAM.PodCIDRs, want)
	}
}

func TestLoadFileFaults(t *testing.T) {
	_, err := parse(t, "state-dri: /x\nconfig: /y\nipam-quarantine: soon\nbpf-root: [/a, /b]\n", map[string]string{"PORIN_MONITOR_EVENTS": "many"})
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{`unknown key "state-dri"`, `unknown key "config"`, "ipam-quarantine", "PORIN_MONITOR_EVENTS", "line 4: bpf-root: want one value"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not speak of %q", err, part)
		}
	}
}

func TestLoadFileNotMap(t *testing.T) {
	for _, yaml := range []string{
		"- a\n", "state-dir: {a: b}\n", "ipam-pod-cidr: [[a]]\n", "state-dir: [unclosed\n",
		"state-dir: [/a, /b]\n",        // no list
		"state-dir: ~\n",               // no value, and no folder of the name ~
		"state-dir:\n",                 //
		"ipam-pod-cidr:\n",             //
		"ipam-pod-cidr: [a, ~]\n",      //
		"state-dir: /a\nstate-dir: /b", // which one?
		"node-labels: {a: b, a: c}\n",  //
		"node-labels: {a: ~}\n",        //
		"node-labels: {a: [b]}\n",      //
		"node-labels: [a=b]\n",         // no map
		"node-labels: a\n",             //
		"node-labels:\n",               //
		"state-dir: /a\n---\nstate-dir: /b\n",
	} {
		if _, err := parse(t, yaml, nil); err == nil {
			t.Errorf("%q was taken", yaml)
		}
	}
}

func TestLoadValueFaults(t *testing.T) {
	cfg := DefaultConfig()
	cfg.NodeName, cfg.Logging.Level, cfg.CNIConfPath = "", "loud", "relative"
	cfg.EndpointManager.StateDir, cfg.Server.Socket = "relative", "relative"
	cfg.IPAM.Mode, cfg.IPAM.PodCIDRs, cfg.IPAM.Quarantine = "magic", []string{"10.0.0.1/24"}, time.Hour
	cfg.Store = StoreConfig{Backend: "etcd", Dir: "store"}
	err := cfg.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{"store-dir", `store "etcd": want embedded or kubernetes`, "node-name", "log-level", "cni-conf-path", "state-dir", "api-socket", "ipam-mode", "ipam-pod-cidr", "ipam-quarantine"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not speak of %s", err, part)
		}
	}
}

func TestLoadListPrecedence(t *testing.T) {
	const yaml = "ipam-pod-cidr: [10.1.0.0/24, 10.2.0.0/24]\ncni-conf-path: /file\n"
	env := map[string]string{"PORIN_IPAM_POD_CIDR": "10.3.0.0/24, 10.4.0.0/24", "PORIN_CNI_CONF_PATH": ""}
	for _, test := range []struct {
		env  map[string]string
		args []string
		want string
	}{
		{nil, nil, "[10.1.0.0/24 10.2.0.0/24]"},
		{env, nil, "[10.3.0.0/24  10.4.0.0/24]"},
		{env, []string{"--ipam-pod-cidr=10.5.0.0/24,10.6.0.0/24", "--ipam-pod-cidr=10.7.0.0/24"}, "[10.5.0.0/24 10.6.0.0/24 10.7.0.0/24]"},
	} {
		cfg, err := parse(t, yaml, test.env, test.args...)
		if got := fmt.Sprint(cfg.IPAM.PodCIDRs); err != nil || got != test.want {
			t.Errorf("ipam-pod-cidr %s, %v, want %s", got, err, test.want)
		}
		if err := cfg.IPAM.Validate(); err != nil {
			t.Error(err)
		}
		if empty := cfg.CNIConfPath == ""; empty != (test.env != nil) {
			t.Errorf("cni-conf-path %q with %v", cfg.CNIConfPath, test.env)
		}
	}
}

func TestLoadMapPrecedence(t *testing.T) {
	const yaml = "node-labels: {zone: a, gpu: '', n: 7}\nipam-namespace-pool: shop=red,bank=blue\n"
	for _, test := range []struct {
		env  map[string]string
		args []string
		want map[string]string
	}{
		{nil, nil, map[string]string{"zone": "a", "gpu": "", "n": "7"}},
		{map[string]string{"PORIN_NODE_LABELS": "zone=b,rack=1"}, nil, map[string]string{"zone": "b", "rack": "1"}},
		{map[string]string{"PORIN_NODE_LABELS": ""}, nil, nil},
		{map[string]string{"PORIN_NODE_LABELS": "zone=b"}, []string{"--node-labels=x=1", "--node-labels=y=2"}, map[string]string{"x": "1", "y": "2"}},
	} {
		cfg, err := parse(t, yaml, test.env, test.args...)
		if err != nil || !maps.Equal(cfg.NodeLabels, test.want) {
			t.Errorf("node-labels %v, %v, want %v", cfg.NodeLabels, err, test.want)
		}
		if want := map[string]string{"shop": "red", "bank": "blue"}; !maps.Equal(cfg.IPAM.NamespacePools, want) {
			t.Errorf("ipam-namespace-pool %v, want %v", cfg.IPAM.NamespacePools, want)
		}
	}
	if cfg, err := parse(t, "node-labels: ''\n", nil); err != nil || len(cfg.NodeLabels) > 0 {
		t.Errorf("an empty value: %v, %v", cfg.NodeLabels, err)
	}
}

func TestLoadAllFaults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "porin.yaml")
	if err := os.WriteFile(file, []byte("state-dri: /x\nlog-level: loud\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := run(t.Context(), []string{"--config", file, "--api-socket=relative"}, io.Discard)
	for _, part := range []string{"state-dri", "log-level", "api-socket", "ipam-pod-cidr"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v does not speak of %s", err, part)
		}
	}
}

func FuzzConfigurationFile(f *testing.F) {
	f.Add("state-dir: /x\nipam-pod-cidr: [a, b]\n")
	f.Add("- x")
	f.Fuzz(func(t *testing.T, yaml string) {
		_, _ = parse(t, yaml+"\n", nil) // no panic is all that is asked
	})
}

// TestCleanupFlags: flags of the command cleanup may stand before or after it, and are no flags of the agent.
func TestCleanupFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--api-socket=relative cleanup --force", "configuration: "},
		{"cleanup --api-socket=relative --force", "configuration: "},
		{"--api-socket=relative --force", "unknown flag: --force"},
	} {
		if err := run(t.Context(), strings.Fields(c.args), io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}

func TestHelpFlags(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config", "node-name", "api-socket", "state-dir", "bpf-root", "ipam-mode", "ipam-pod-cidr", "ipam-node-pool", "ipam-namespace-pool", "node-labels", "store-dir", "cni-conf-path", "metrics-address", "log-level", "log-format"} {
		if !strings.Contains(out.String(), "--"+name) {
			t.Errorf("--help does not name --%s", name)
		}
	}
}
