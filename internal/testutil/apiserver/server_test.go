package apiserver_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/internal/testutil/apiserver"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.HostUntouched(), testutil.NoLeaks()) }

func TestServer(t *testing.T) {
	testutil.Root(t)
	began := time.Now()
	server := apiserver.Start(t, testutil.NewFabric(t))
	t.Logf("it started in %v", time.Since(began))
	admin := server.Admin()
	t.Cleanup(admin.Close)
	exists := func(name string, want bool) {
		t.Helper()
		err := admin.Do(t.Context(), http.MethodGet, "/api/v1/namespaces/"+name, nil, nil)
		if (err == nil) != want || err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("namespace %s: %v, want it to be there: %t", name, err, want)
		}
	}
	namespace := func(name string) (version uint64) {
		t.Helper()
		created := admin.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}")
		version, err := strconv.ParseUint(created.GetResourceVersion(), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return version
	}

	before := namespace("before")
	snapshot := server.Save(t)
	after := namespace("after")
	began = time.Now()
	server.Stop()
	server.Start(t)
	t.Logf("and again in %v", time.Since(began))
	exists("before", true)
	exists("after", true)

	server.Restore(t, snapshot, 0)
	exists("before", true)
	exists("after", false)
	if again := namespace("after"); again > after+1000 || again <= before {
		t.Errorf("version after a restore: %d, want one shortly after %d", again, before)
	}
	server.Restore(t, snapshot, 1e9)
	exists("after", false)
	if bumped := namespace("after"); bumped < before+1e9 {
		t.Errorf("version after a restore that bumps revisions: %d, want at least 1e9 more than %d", bumped, before)
	}
}

func TestAgent(t *testing.T) {
	testutil.Root(t)
	server := apiserver.Start(t, testutil.NewFabric(t))
	agent := server.Client(server.Agent(t, "node1", "").Token)
	t.Cleanup(agent.Close)
	var review struct {
		Status struct {
			UserInfo struct {
				Username string
				Extra    map[string][]string
			}
		}
	}
	err := agent.Do(t.Context(), http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews",
		map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}, &review)
	if node := review.Status.UserInfo.Extra["authentication.kubernetes.io/node-name"]; err != nil || len(node) != 1 || node[0] != "node1" {
		t.Errorf("the token is of %+v (%v), want node1", review.Status.UserInfo, err)
	}
	if err := agent.Do(t.Context(), http.MethodGet, "/api/v1/pods", nil, nil); !apierrors.IsForbidden(err) {
		t.Errorf("without a role it lists pods: %v", err)
	}
	want := apiserver.Request{Verb: "list", Resource: "pods", Code: http.StatusForbidden}
	if requests := server.Requests(t); len(requests) == 0 || requests[len(requests)-1] != want {
		t.Errorf("recorded: %v, want %v at the end", requests, want)
	}
}
