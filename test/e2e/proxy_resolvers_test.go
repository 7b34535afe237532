package e2e

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// resolveC prints nothing and returns 0 when its argument has an IPv4 address.
const resolveC = `
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
int main(int argc, char **argv)
{
	struct addrinfo hints, *found;
	memset(&hints, 0, sizeof hints);
	hints.ai_family = AF_INET;
	hints.ai_socktype = SOCK_STREAM;
	int code = getaddrinfo(argv[1], "80", &hints, &found);
	if (code)
		puts(gai_strerror(code));
	return code != 0;
}
`

// envResolve has [TestGoResolver] resolve a name.
const envResolve = "PORIN_TEST_RESOLVE"

// TestGoResolver is what TestResolvers runs in a pod.
func TestGoResolver(t *testing.T) {
	if name := os.Getenv(envResolve); name != "" {
		if _, err := (&net.Resolver{PreferGo: true}).LookupNetIP(t.Context(), "ip4", name); err != nil {
			t.Fatal(err)
		}
	}
}

// TestResolvers has the resolvers of musl, glibc and Go find an allowed name at once, although the search list of
// Kubernetes has them ask for denied ones first, and hear at once that a denied name is none.
func TestResolvers(t *testing.T) {
	testutil.NeedPrograms(t, "gcc", "musl-gcc")
	n := newServiceNodes(t, nil)
	n.label()
	serveNamesAt(t, n.b, 53)
	n.ciliumPolicy(`{endpointSelector: {matchLabels: {app: a}}, egress: [{toPorts: [{ports: [{port: "53", protocol: ANY}], rules: {dns: [{matchName: www.example.com}]}}]}]}`)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	source := file("resolve.c", resolveC)
	conf := file("resolv.conf", fmt.Sprintf("nameserver %s\nsearch demo.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n", n.b.ipv4))
	self := fmt.Sprintf("/proc/%d/exe", os.Getpid()) // os.Executable is wrong in a chroot that has a mount namespace of its own
	commands := map[string][]string{"go": {self, "-test.run=^TestGoResolver$"}}
	for name, compiler := range map[string][]string{"musl": {"musl-gcc", "-static"}, "glibc": {"gcc"}} {
		program := filepath.Join(dir, name)
		if out, err := exec.Command(compiler[0], append(compiler[1:], "-o", program, source)...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", compiler, err, out)
		}
		commands[name] = []string{program}
	}
	for name, command := range commands {
		for asked, want := range map[string]bool{"www.example.com": true, "www.example.org": false} {
			args := append([]string{"-m", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, conf}, append(command, asked)...)
			if name == "go" {
				args = args[:len(args)-1]
			}
			cmd := exec.Command("unshare", args...)
			var out bytes.Buffer
			cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), envResolve+"="+asked), &out, &out
			began := time.Now()
			if err := n.a.Do(cmd.Start); err != nil {
				t.Fatal(err)
			}
			err := cmd.Wait()
			if took := time.Since(began); (err == nil) != want || took > 3*time.Second {
				t.Errorf("%s, %s: resolved %v after %v, want %v within 3 s: %s", name, asked, err == nil, took, want, &out)
			}
		}
	}
}
