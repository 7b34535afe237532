package apiserver

import (
	"fmt"
	"net/http"
	"os"
	"testing"
)

// Where agents run, and as what: deploy/porin.yaml.
const (
	AgentNamespace = "kube-system"
	AgentAccount   = "porin-agent"
)

// Agent is the identity of the agent on a node: a token that is bound to its pod, which is bound to the node.
type Agent struct {
	Token      string
	Kubeconfig string // file
	token      string // file
}

// Agent creates the Node and the pod of its agent, unless they are there. The role is for the test to apply. The
// kubeconfig names a server, or, if that is "", this one.
func (s *Server) Agent(t testing.TB, node, server string) Agent {
	t.Helper()
	admin := s.Admin()
	defer admin.Close()
	admin.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", AgentNamespace))
	admin.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: ServiceAccount, metadata: {name: %s, namespace: %s}}", AgentAccount, AgentNamespace))
	admin.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: %s}}", node))
	admin.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: agent-%s, namespace: %s}
spec: {nodeName: %[1]s, serviceAccountName: %[3]s, hostNetwork: true, containers: [{name: agent, image: none}]}
`, node, AgentNamespace, AgentAccount))
	a := Agent{Kubeconfig: s.file(node + ".kubeconfig"), token: s.file(node + ".token")}
	if server == "" {
		server = s.URL
	}
	a.Token = s.newToken(t, admin, AgentAccount, map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "agent-" + node})
	if err := os.WriteFile(a.token, []byte(a.Token), 0o600); err != nil {
		t.Fatal(err)
	}
	s.writeKubeconfig(t, a.Kubeconfig, server, fmt.Sprintf("tokenFile: %q", a.token))
	return a
}

// AdminKubeconfig is the file of a kubeconfig for the administrator.
func (s *Server) AdminKubeconfig(t testing.TB) string {
	t.Helper()
	path := s.file("admin.kubeconfig")
	s.writeKubeconfig(t, path, s.URL, "token: "+adminToken)
	return path
}

func (s *Server) writeKubeconfig(t testing.TB, path, server, user string) {
	t.Helper()
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: test, user: {%s}}]
`, server, s.CertFile(), user)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// AccountKubeconfig is the file of a kubeconfig for a service account of Porin's namespace, which the test has created.
func (s *Server) AccountKubeconfig(t testing.TB, account string) string {
	t.Helper()
	admin := s.Admin()
	defer admin.Close()
	path := s.file(account + ".kubeconfig")
	s.writeKubeconfig(t, path, s.URL, "token: "+s.newToken(t, admin, account, nil))
	return path
}

// newToken is a TokenRequest, as the kubelet makes it for a pod, or, without an object, kubectl create token.
func (s *Server) newToken(t testing.TB, admin *Client, account string, boundTo map[string]any) string {
	t.Helper()
	spec := map[string]any{}
	if boundTo != nil {
		spec["boundObjectRef"] = boundTo
	}
	var answer struct{ Status struct{ Token string } }
	err := admin.Do(t.Context(), http.MethodPost, "/api/v1/namespaces/"+AgentNamespace+"/serviceaccounts/"+account+"/token", map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec,
	}, &answer)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}
