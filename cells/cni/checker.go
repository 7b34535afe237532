package cni

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containernetworking/cni/libcni"

	"porin.dev/porin/cells/doctor"
)

// The kinds of findings.
const (
	confShadowed = "cni-configuration-shadowed"
	neverCalled  = "cni-never-called"
)

// waitingTime is how long pods may wait without a call before that is a finding.
const waitingTime = 2 * time.Minute

// WaitingPods returns pods of this node without an endpoint that have waited for longer than d for their containers, as
// namespace/name.
type WaitingPods func(d time.Duration) []string

// calls knows whether the container runtime has called since the agent's start.
type calls struct{ seen atomic.Bool }

// checker finds reasons why the container runtime does not use Porin: its doctor.Checker.
type checker struct {
	path    string // of the agent's CNI configuration; "" for none
	calls   *calls
	waiting WaitingPods // nil without the Kubernetes API
}

func newChecker(cfg Config, calls *calls, waiting WaitingPods) *checker {
	return &checker{cfg.ConfPath, calls, waiting}
}

// Owner implements doctor.Checker.
func (*checker) Owner() string { return "cni" }

// Kinds implements doctor.Checker.
func (*checker) Kinds() []doctor.Kind {
	return []doctor.Kind{
		{
			Name: confShadowed, Event: true, Meaning: "the folder of CNI configurations has another file that sorts before Porin's: the container runtime uses the first",
			Repair: "remove the file if its plugin is no longer used, or set --cni-conf-path to a name that sorts first",
		},
		{
			Name: neverCalled, Event: true, Meaning: "pods of this node wait, and the container runtime has not called porin-cni since the agent's start",
			Repair: "set --cni-conf-path to the folder that the runtime reads; see its log",
		},
	}
}

// Examine implements doctor.Checker. There is nothing about one attachment.
func (c *checker) Examine(_ context.Context, only string) (findings []doctor.Finding, err error) {
	if only != "" || c.path == "" {
		return nil, nil
	}
	if _, err := os.Stat(c.path); err != nil {
		return nil, nil // the agent is about to write it
	}
	files, err := libcni.ConfFiles(filepath.Dir(c.path), []string{".conf", ".conflist", ".json"}) // by name, as containerd and CRI-O read them
	if err != nil {
		return nil, err
	}
	if len(files) > 0 && filepath.Base(files[0]) != filepath.Base(c.path) {
		findings = append(findings, doctor.Finding{Kind: confShadowed, Subject: files[0], Detail: "it sorts before " + c.path})
	}
	if c.waiting == nil || c.calls.seen.Load() {
		return findings, nil
	}
	if pods := c.waiting(waitingTime); len(pods) > 0 {
		findings = append(findings, doctor.Finding{
			Kind: neverCalled, Subject: filepath.Dir(c.path), Detail: fmt.Sprintf("%d pods wait, such as %s", len(pods), strings.Join(pods[:min(len(pods), 3)], ", ")),
		})
	}
	return findings, nil
}
