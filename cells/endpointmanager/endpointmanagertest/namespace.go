package endpointmanagertest

import (
	"os"
	"testing"

	"porin.dev/porin/cells/endpoint"
)

// OpenNamespace opens the network namespace at the path, as a call for a container does, until the end of the test.
func OpenNamespace(t testing.TB, path string) *endpoint.Namespace {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	namespace, err := endpoint.OpenNamespace(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { namespace.Close() }) // twice is fine
	return namespace
}
