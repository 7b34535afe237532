package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/kubernetes/records"
	"porin.dev/porin/cells/kubernetes/records/recordstest"
	"porin.dev/porin/internal/testutil"
)

// TestKubernetesMissing: without podCIDRs and CRDs the agent writes no CNI configuration, and its log, its doctor and
// Events of the Node say why. It goes on when they come.
func TestKubernetesMissing(t *testing.T) {
	t.Parallel()
	node := testutil.NewNode(t)
	api := newAPIServer(t, node)
	api.namespace("shop", nil)
	api.object("u1")
	for _, name := range records.Definitions() {
		api.Delete("customresourcedefinitions", "", name)
	}
	api.Fault(func(r kubernetestest.Request) *kubernetestest.Fault {
		if strings.HasPrefix(r.Resource, "porin") {
			return &kubernetestest.Fault{Code: http.StatusNotFound}
		}
		return nil
	})
	conf := filepath.Join(node.Dir, "05-porin.conflist")
	r := rigOn(t, node, append([]string{"--store=kubernetes", "--ipam-pod-cidr=", "--doctor-interval=1s", "--cni-conf-path=" + conf}, api.flags...)...)
	testutil.Eventually(t, func() error {
		doctor := r.cli("doctor").out
		for _, want := range []string{"node-pod-cidrs-missing", "--allocate-node-cidrs", "custom-resource-definitions-missing", "porinnodes.porin.dev"} {
			if !strings.Contains(doctor, want) {
				return fmt.Errorf("the doctor does not say %s: %s", want, doctor)
			}
		}
		log := r.agent.Log()
		if n := strings.Count(log, "the agent waits for the Kubernetes API"); n != 1 {
			return fmt.Errorf("%d lines that the CNI configuration is not written", n)
		}
		if !strings.Contains(log, "has no spec.podCIDRs") {
			return errors.New("the log does not name podCIDRs")
		}
		return nil
	})
	if _, err := os.Stat(conf); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the CNI configuration is there: %v", err)
	}
	events := 0
	testutil.Eventually(t, func() error {
		for _, request := range api.Requests() {
			if request == (kubernetestest.Request{Verb: "create", Resource: "events"}) {
				events++
			}
		}
		if events < 2 {
			return fmt.Errorf("%d Events, want one of each finding", events)
		}
		return nil
	})

	api.Fault(nil)
	for _, name := range records.Definitions() {
		api.Put(recordstest.Definition(name))
	}
	api.object("u1", "10.72.1.0/24", "fd00:72:1::/64")
	testutil.Eventually(t, func() error {
		if _, err := os.Stat(conf); err != nil {
			return err
		}
		if doctor := r.cli("doctor").out; strings.Contains(doctor, "-missing") {
			return fmt.Errorf("the doctor says %s", doctor)
		}
		return nil
	})
}
