package kubernetestest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Kubeconfig writes a kubeconfig for the server at a URL, with a token, and returns its path.
func Kubeconfig(t testing.TB, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: agent}}]
clusters: [{name: test, cluster: {server: %q}}]
users: [{name: agent, user: {token: secret}}]
`, url)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
