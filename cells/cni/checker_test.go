package cni

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCheckerConfigurations(t *testing.T) {
	const list = `{"cniVersion":"1.0.0","name":"other","plugins":[{"type":"bridge"}]}`
	for name, c := range map[string]struct {
		files map[string]string // besides Porin's
		first string            // the finding's subject; "" for none
	}{
		"alone":                     {nil, ""},
		"another one after it":      {map[string]string{"10-other.conflist": list}, ""},
		"another one before it":     {map[string]string{"00-other.conflist": list}, "00-other.conflist"},
		"a broken one before it":    {map[string]string{"00-other.conflist": "{"}, "00-other.conflist"}, // containerd reads nothing after it
		"files of other kinds":      {map[string]string{"00-other.conf.bak": list, "01-notes": list}, ""},
		"a single plugin before it": {map[string]string{"04-other.conf": `{"cniVersion":"1.0.0","name":"other","type":"bridge"}`}, "04-other.conf"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "05-porin.conflist")
		check := newChecker(Config{ConfPath: path}, &calls{}, nil)
		if findings, err := check.Examine(t.Context(), ""); len(findings) > 0 || err != nil {
			t.Errorf("%s: before the file is written: %v, %v", name, findings, err)
		}
		write := func(name, text string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("05-porin.conflist", `{"cniVersion":"1.0.0","name":"porin","plugins":[{"type":"porin-cni"}]}`)
		for name, text := range c.files {
			write(name, text)
		}
		findings, err := check.Examine(t.Context(), "")
		if err != nil || (c.first == "") != (len(findings) == 0) || len(findings) > 0 && (findings[0].Kind != confShadowed || findings[0].Subject != filepath.Join(dir, c.first)) {
			t.Errorf("%s: findings %+v, %v, want one about %q", name, findings, err, c.first)
		}
	}
}

func TestCheckerNeverCalled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "05-porin.conflist")
	if err := os.WriteFile(path, []byte(`{"cniVersion":"1.0.0","name":"porin","plugins":[{"type":"porin-cni"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	called, pods := &calls{}, []string(nil)
	check := newChecker(Config{ConfPath: path}, called, func(time.Duration) []string { return pods })
	for _, step := range []struct {
		name string
		do   func()
		want int
	}{
		{"no pod waits", func() {}, 0},
		{"pods wait", func() { pods = []string{"shop/a", "shop/b"} }, 1},
		{"the runtime has called", func() { called.seen.Store(true) }, 0},
	} {
		step.do()
		findings, err := check.Examine(t.Context(), "")
		if err != nil || len(findings) != step.want || step.want > 0 && !strings.Contains(findings[0].Detail, "2 pods wait, such as shop/a, shop/b") {
			t.Errorf("%s: findings %+v, %v, want %d", step.name, findings, err, step.want)
		}
	}
}
