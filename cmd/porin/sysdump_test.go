package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// TestClusterSysdump has a cluster with a reservation on a node, and one agent that does not answer.
func TestClusterSysdump(t *testing.T) {
	cluster := newFakeCluster(t.TempDir())
	defer cluster.close()
	for _, node := range []string{"n1", "n2"} {
		if err := cluster.add(node); err != nil {
			t.Fatal(err)
		}
	}
	cluster.broken["porin-agent-n2"] = "refuse"
	var out, errs bytes.Buffer
	porin := func(command ...string) string {
		out.Reset()
		code := run(t.Context(), command, environment{
			out: &out, err: &errs, now: func() time.Time { return noon }, inspect: inspect, dial: cluster.dial,
			getenv: func(name string) string {
				return map[string]string{socketVariable: cluster.socket("porin-agent-n1")}[name]
			},
		})
		if code != 0 {
			t.Fatalf("%q: exit code %d: %s", command, code, errs.String())
		}
		return out.String()
	}
	token := strings.TrimSpace(porin("ipam", "reserve", "--owner", "secret-owner", "-o", "json"))
	if !strings.Contains(token, "token") {
		t.Fatal("no reservation: ", token)
	}
	files := untar(t, []byte(porin("cluster", "sysdump", "-")))
	if files[0].name != "README.txt" {
		t.Errorf("the first file is %s", files[0].name)
	}
	for _, want := range []string{
		"cluster/porinpools.json: list porinpools: forbidden", "nodes/n2: dial tcp", "nodes/n1/status.json", "nodes/n1/porin-agent-n1.log", "nodes/n1/routes.txt",
		"cluster/daemonsets.json",
	} {
		if !strings.Contains(files[0].text, want) {
			t.Errorf("the page at the front does not have %q:\n%s", want, files[0].text)
		}
	}
	for _, f := range files {
		for _, secret := range []string{"secret-of-env", "secret-owner", "T0K3N"} {
			if strings.Contains(f.text, secret) {
				t.Errorf("%s has %q", f.name, secret)
			}
		}
	}
}

type archived struct{ name, text string }

func untar(t *testing.T, archive []byte) (files []archived) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, archived{header.Name, string(text)})
	}
}
