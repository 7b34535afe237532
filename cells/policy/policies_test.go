package policy

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
)

// twoPolicies has one of equal priority with another, and a domain name.
const twoPolicies = `
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: first}
spec:
  tier: Admin
  priority: 7
  subject: {namespaces: {}}
  ingress: [{name: no-dns, action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 53}}}]}]
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: second}
spec:
  tier: Admin
  priority: 7
  subject: {namespaces: {}}
  egress: [{action: Pass, to: [{namespaces: {}}]}]
`

func (n *node) names() (names []string) {
	for _, m := range n.policies.List() {
		names = append(names, m.Policy.ID.String())
	}
	return names
}

var allNames = []string{"ClusterNetworkPolicy first", "ClusterNetworkPolicy second", "NetworkPolicy default/web"}

func TestPutOutcomes(t *testing.T) {
	n := servingNode(t, t.TempDir())
	for _, row := range []struct {
		manifests string
		want      []Outcome
	}{
		{toWebFrom("client"), []Outcome{Created}},
		{toWebFrom("client"), []Outcome{Unchanged}},
		{toWebFrom("other") + "---" + twoPolicies, []Outcome{Changed, Created, Created}},
	} {
		before := n.queue.view.Applied().Revision
		if _, outcomes, err := n.policies.Put(t.Context(), []byte(row.manifests)); err != nil || !slices.Equal(outcomes, row.want) {
			t.Errorf("outcomes %q, %v, want %q", outcomes, err, row.want)
		}
		if row.want[0] == Unchanged && n.queue.view.Applied().Revision != before {
			t.Error("the same policy again was written to the datapath")
		}
	}
	if got := n.names(); !slices.Equal(got, allNames) {
		t.Errorf("policies %q, want %q", got, allNames)
	}
}

// TestPutAllOrNone has a document that is wrong, maps without room and a disk that refuses.
func TestPutAllOrNone(t *testing.T) {
	dir := t.TempDir()
	n := servingNode(t, filepath.Join(dir, "state"))
	web, client, other := pod(1, "web"), pod(2, "client"), pod(3, "other")
	for _, ep := range []endpoint.Endpoint{web, client, other} {
		n.attach(t, ep)
	}
	n.put(t, toWebFrom("client"))
	unchanged := func(when string) {
		t.Helper()
		n.wants(t, client, web, true, when)
		n.wants(t, other, web, false, when)
		if got := n.names(); len(got) != 1 {
			t.Errorf("%s: policies %q", when, got)
		}
	}
	misspelt := strings.Replace(twoPolicies, "subject: {namespaces: {}}\n  egress", "subjects: {}\n  egress", 1)
	for name, manifests := range map[string]string{"nothing": "", "a misspelt field": toWebFrom("other") + "---" + misspelt, "no YAML": "{"} {
		if _, _, err := n.policies.Put(t.Context(), []byte(manifests)); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: error %v, want one of kind invalid", name, err)
		}
		unchanged(name)
	}
	n.kernel.fits = func(*engine.Engine) error { return ErrNoRoom }
	if _, _, err := n.policies.Put(t.Context(), []byte(toWebFrom("other"))); !errors.Is(err, ErrNoRoom) || fault.KindOf(err) != fault.Exhausted {
		t.Errorf("error %v, want %v of kind exhausted", err, ErrNoRoom)
	}
	n.kernel.fits = nil
	unchanged("maps without room")
	if err := n.policies.store.db.Close(); err != nil { // every write fails from now on
		t.Fatal(err)
	}
	if _, _, err := n.policies.Put(t.Context(), []byte(toWebFrom("other"))); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("error %v, want one of kind unavailable", err)
	}
	unchanged("a disk that refuses")
	id := model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "default", Name: "web"}
	if err := n.policies.Delete(t.Context(), id); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("delete: error %v, want one of kind unavailable", err)
	}
	unchanged("a disk that refuses a deletion")
}

// TestPutWhileKernelRefuses: the policies are on the disk, the previous ones are in force, and they follow.
func TestPutWhileKernelRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := servingNode(t, t.TempDir())
		web, other := pod(1, "web"), pod(3, "other")
		n.attach(t, web)
		n.attach(t, other)
		n.put(t, toWebFrom("client"))
		n.kernel.refuseWith(errKernel)
		if _, _, err := n.policies.Put(t.Context(), []byte(toWebFrom("other"))); !errors.Is(err, errKernel) || fault.KindOf(err) != fault.Unavailable {
			t.Errorf("error %v, want %v as unavailable", err, errKernel)
		}
		n.wants(t, other, web, false, "while the kernel refuses")
		n.kernel.refuseWith(nil)
		time.Sleep(lastRetry)
		n.wants(t, other, web, true, "afterwards")
	})
}

func TestDelete(t *testing.T) {
	n := servingNode(t, t.TempDir())
	web, other := pod(1, "web"), pod(3, "other")
	n.attach(t, web)
	n.attach(t, other)
	n.put(t, toWebFrom("client"))
	id := model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "default", Name: "web"}
	if err := n.policies.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	n.wants(t, other, web, true, "after Delete")
	if err := n.policies.Delete(t.Context(), id); !errors.Is(err, ErrNotFound) {
		t.Errorf("again: error %v, want %v", err, ErrNotFound)
	}
}

// TestRestartKeepsPolicies on the disk, and in force from the first change that the new agent writes.
func TestRestartKeepsPolicies(t *testing.T) {
	dir := t.TempDir()
	n := servingNode(t, dir)
	n.put(t, toWebFrom("client"))
	n.put(t, twoPolicies)
	n.stop(t)
	n = startNode(t, dir, newFakeKernel())
	web, client, other := pod(1, "web"), pod(2, "client"), pod(3, "")
	for _, ep := range []endpoint.Endpoint{web, client, other} {
		if _, err := n.step.Restore(t.Context(), ep); err != nil {
			t.Fatal(err)
		}
	}
	n.prune(t, web, client, other)
	if times := n.kernel.times(); times != 1 {
		t.Errorf("%d changes were written, want 1", times)
	}
	if got := n.names(); !slices.Equal(got, allNames) {
		t.Errorf("policies %q, want %q", got, allNames)
	}
	n.wants(t, client, web, true, "after a restart")
	n.wants(t, other, web, false, "after a restart")
}

func TestStartWithDamagedFile(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"empty":      func(path string) error { return os.Truncate(path, 0) },
		"cut":        func(path string) error { return os.Truncate(path, int64(os.Getpagesize())*2) },
		"other text": func(path string) error { return os.WriteFile(path, []byte("precious"), 0o600) },
		"wrong content": func(path string) error {
			text, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path, []byte(strings.ReplaceAll(string(text), `"podSelector"`, `"podSelectos"`)), 0o600))
		},
	} {
		dir := t.TempDir()
		n := servingNode(t, dir)
		n.put(t, toWebFrom("client"))
		n.stop(t)
		path := filepath.Join(dir, "policies.db")
		if err := spoil(path); err != nil {
			t.Fatal(err)
		}
		err := New(Config{Dir: dir}, n.queue, quiet).Start()
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "restore the file; or move it away") {
			t.Errorf("%s: error %v, want one that names the file and says what to do", name, err)
		}
	}
}

// TestStartWithFileInUse starts a second agent on the same folder.
func TestStartWithFileInUse(t *testing.T) {
	dir := t.TempDir()
	n := servingNode(t, dir)
	n.put(t, toWebFrom("client"))
	err := New(Config{Dir: dir}, n.queue, quiet).Start()
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "policies.db")) || !strings.Contains(err.Error(), "each agent needs a folder of its own") {
		t.Errorf("error %v, want one that names the file and says what to do", err)
	}
}

func TestStartWithoutFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	n := servingNode(t, dir)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a node without policies: %v, want no file", err)
	}
	n.put(t, toWebFrom("client"))
	if _, err := os.Stat(filepath.Join(dir, "policies.db")); err != nil {
		t.Error(err)
	}
}
