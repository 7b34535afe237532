package kubernetestest

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
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

// ServeIn answers requests on a port of 127.0.0.1 in the namespace that in enters, until the test ends. It returns a kubeconfig for it.
func (s *Server) ServeIn(t testing.TB, in func(func() error) error) (kubeconfig string) {
	t.Helper()
	var listener net.Listener
	if err := in(func() (err error) { listener, err = net.Listen("tcp", "127.0.0.1:0"); return err }); err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = web.Serve(listener) }()
	t.Cleanup(func() { _ = web.Close() })
	return Kubeconfig(t, "http://"+listener.Addr().String())
}
