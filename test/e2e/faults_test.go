package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

// CNI error codes (specification 1.1.0, section 5).
const (
	codeInvalidConfig = 7
	codeTryAgainLater = 11
	codeNotAvailable  = 50
)

func ids(all []v1.Endpoint) (ids []uint16) {
	for _, ep := range all {
		ids = append(ids, ep.ID)
	}
	return ids
}

// failedWith checks the words of an error, and that they are one line.
func failedWith(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want one line with %q", err, words)
	}
}

func failedAs(t *testing.T, err error, code uint) {
	t.Helper()
	if failure, ok := errors.AsType[*types.Error](err); !ok || failure.Code != code {
		t.Errorf("error %#v, want CNI code %d", err, code)
	}
}

// TestBadRequestsToTheAPI sends what a broken or hostile client would.
func TestBadRequestsToTheAPI(t *testing.T) {
	r := newRig(t)
	const mac = `"mac":"02:00:00:00:00:01"`
	good := `{"host":{"name":"por0","index":1,` + mac + `},"container":{"name":"eth0",` + mac + `}}`
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		code, words        string
	}{
		"malformed JSON":         {"PUT", "/v1/endpoint/c1:eth0", `{"host":`, 400, v1.CodeInvalid, "read body"},
		"an empty body":          {"PUT", "/v1/endpoint/c1:eth0", ``, 400, v1.CodeInvalid, "empty"},
		"an unknown field":       {"PUT", "/v1/endpoint/c1:eth0", `{"hots":{}}`, 400, v1.CodeInvalid, "unknown field"},
		"two values":             {"PUT", "/v1/endpoint/c1:eth0", good + good, 400, v1.CodeInvalid, "more than one"},
		"an oversized body":      {"PUT", "/v1/endpoint/c1:eth0", `{"netns":"` + strings.Repeat("a", 2<<20) + `"}`, 413, v1.CodeTooLarge, "larger than"},
		"no interface name":      {"PUT", "/v1/endpoint/c1:", good, 400, v1.CodeInvalid, "interface name is empty"},
		"an empty container ID":  {"PUT", "/v1/endpoint/:eth0", good, 400, v1.CodeInvalid, "container ID is empty"},
		"a long container ID":    {"PUT", "/v1/endpoint/" + strings.Repeat("c", 300) + ":eth0", good, 400, v1.CodeInvalid, "longer than"},
		"a path in an ID":        {"PUT", "/v1/endpoint/..%2f..%2fetc:eth0", good, 400, v1.CodeInvalid, "container ID"},
		"a path in a name":       {"PUT", "/v1/endpoint/c1:..%2feth0", good, 400, v1.CodeInvalid, "interface name"},
		"another's link":         {"PUT", "/v1/endpoint/c1:eth0", strings.Replace(good, "por0", "lo", 1), 400, v1.CodeInvalid, "not the host interface of this attachment"},
		"a link that is not":     {"PUT", "/v1/endpoint/c1:eth0", strings.Replace(good, `"index":1`, `"index":4242`, 1), 404, v1.CodeNotFound, "4242"},
		"a bad MAC":              {"PUT", "/v1/endpoint/c1:eth0", strings.Replace(good, "02:00", "zz", 1), 400, v1.CodeInvalid, "MAC"},
		"no such endpoint":       {"GET", "/v1/endpoint/4242", ``, 404, v1.CodeNotFound, "no such endpoint"},
		"a bad reference":        {"GET", "/v1/endpoint/ipv4:nonsense", ``, 400, v1.CodeInvalid, "no address"},
		"a DELETE of everything": {"DELETE", "/v1/endpoint", `{"containerID":""}`, 400, v1.CodeInvalid, "container ID is empty"},
		"no such call":           {"GET", "/v1/nothing", ``, 404, v1.CodeNotFound, "/v1/nothing"},
		"no such method":         {"PATCH", "/v1/endpoint", ``, 405, "", "PATCH"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := rawRequest(t, r.node.Socket, c.method, c.path, c.body)
			if status != c.status || !strings.Contains(body, c.words) || !strings.Contains(body, `"code":"`+c.code) {
				t.Errorf("%d %s\nwant %d, code %s, with %q", status, body, c.status, c.code, c.words)
			}
		})
	}
	r.nothingLeft()
}

func rawRequest(t *testing.T, socket, method, path, body string) (status int, answer string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	request, err := http.NewRequest(method, "http://porin"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func TestBadCallsOfThePlugin(t *testing.T) {
	r := newRig(t)
	c := testutil.NewContainer(t)
	exec := func(command, config string, change func(*testutil.Container)) error {
		copied := *c
		change(&copied)
		_, err := r.cni.Exec(command, &copied, []byte(config))
		return err
	}
	same := func(*testutil.Container) {}
	config := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"porin","type":"porin-cni","socket":%q}`, r.node.Socket)
	failedAs(t, exec("ADD", `{"cniVersion":"1.1.0","name":"porin","type":"porin-cni","socket":7}`, same), codeInvalidConfig)
	failedAs(t, exec("ADD", `{"cniVersion":"1.1.0","name":"porin","type":"porin-cni","mtu":-5}`, same), codeInvalidConfig)
	for name, change := range map[string]func(*testutil.Container){
		"path in the ID":        func(c *testutil.Container) { c.ID = "../../etc/passwd" },
		"empty ID":              func(c *testutil.Container) { c.ID = "" },
		"over-long ID":          func(c *testutil.Container) { c.ID = strings.Repeat("a", 5000) },
		"path in the interface": func(c *testutil.Container) { c.IfName = "../eth0" },
		"long interface":        func(c *testutil.Container) { c.IfName = "a-very-long-interface" },
	} {
		if err := exec("ADD", config, change); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	r.nothingLeft()
}

func TestANamespaceThatIsNone(t *testing.T) {
	r := newRig(t)
	c := testutil.NewContainer(t)
	c.Close() // an ordinary file is left at its path
	_, err := r.cni.Add(c)
	failedWith(t, err, c.Path())
	r.nothingLeft()
	r.cni.MustDel(t, c)
}

func TestANameInUse(t *testing.T) {
	r := newRig(t)
	p := r.pod()
	// The same container again, as after a lost answer: the interface that is there is replaced.
	again := r.add(p.Container)
	if err := testutil.Ping(again.Namespace, r.node.IPv4, reach); err != nil {
		t.Error(err)
	}
	if n := len(r.endpoints()); n != 1 {
		t.Errorf("%d endpoints", n)
	}
	// An interface of another plugin in the container.
	c := testutil.NewContainer(t)
	elsewhere := testutil.NetNS(t)
	err := c.Conn(t).Do(rtnl.NewVeth(rtnl.Veth{Name: "eth0", MAC: rtnl.MAC{2, 9}, Peer: rtnl.VethPeer{Name: "other", MAC: rtnl.MAC{2, 8}, NetNS: elsewhere.FD()}}))
	if err != nil {
		t.Fatal(err)
	}
	replaced := r.add(c)
	if err := testutil.Ping(replaced.Namespace, r.node.IPv4, reach); err != nil {
		t.Error(err)
	}
	r.cni.MustDel(t, p.Container)
	r.cni.MustDel(t, c)
	r.nothingLeft()
}

func TestAnExhaustedPool(t *testing.T) {
	r := newRig(t, "--ipam-pod-cidr=10.9.0.0/30", "--ipam-quarantine=1h")
	p := r.pod()
	c := testutil.NewContainer(t)
	refused(t, r, c, "pool default: no free address: 10.9.0.0/30 has 1, of which 1 in use")
	r.cni.MustDel(t, p.Container)
	refused(t, r, c, "1 in quarantine (the next is free in")
	r.nothingLeft()
}

func TestIPv6DisabledInTheContainer(t *testing.T) {
	r := newRig(t)
	c := testutil.NewContainer(t)
	c.Sysctl(t, "net/ipv6/conf/all/disable_ipv6", "1")
	c.Sysctl(t, "net/ipv6/conf/default/disable_ipv6", "1")
	p := r.add(c)
	if err := testutil.Ping(p.Namespace, r.node.IPv6, reach); err != nil {
		t.Error(err)
	}
}

func TestASpoofingContainerIsStoppedAndCounted(t *testing.T) {
	r := newRig(t)
	a, b := r.pod(), r.pod()
	// a takes b's address in place of its own: nothing of it must arrive anywhere.
	var eth0 rtnl.Link
	conn := a.Conn(t)
	if err := conn.Do(rtnl.LinkByName("eth0", &eth0)); err != nil {
		t.Fatal(err)
	}
	// In this order: the routes go with an interface's last address.
	if err := conn.Do(rtnl.AddAddr(eth0.Index, prefixOf(b.ipv4)), rtnl.DelAddr(eth0.Index, prefixOf(a.ipv4))); err != nil {
		t.Fatal(err)
	}
	if err := testutil.Ping(a.Namespace, r.node.IPv4, unreachable); err == nil {
		t.Error("a packet with another's address was answered")
	}
	out, err := r.porin("endpoint", "get", "container-id:"+a.ID, "-o", "json")
	if err != nil || !strings.Contains(out, "spoof") {
		t.Errorf("the drop is not shown: %v\n%s", err, out)
	}
}

func TestNoBPFFileSystem(t *testing.T) {
	testutil.Root(t)
	node := testutil.NewNode(t)
	out := failingAgent(t, node, "--bpf-root="+filepath.Join(node.Dir, "bpf"))
	if !strings.Contains(out, "mount -t bpf") {
		t.Errorf("the agent does not say what to do:\n%s", out)
	}
}

// failingAgent runs an agent that must end by itself and not well, and returns what it says.
func failingAgent(t *testing.T, node *testutil.Node, flags ...string) string {
	t.Helper()
	args := append([]string{
		"--node-name=x", "--api-socket=" + node.Socket, "--state-dir=" + node.StateDir, "--bpf-root=" + node.BPFRoot,
		"--ipam-pod-cidr=10.0.0.0/24",
	}, flags...)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // an agent that starts ends here, as a failure
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(testutil.Build(t), "porin-agent"), args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := node.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || ctx.Err() != nil {
		t.Errorf("the agent did not fail: %v\n%s", err, out.String())
	}
	return out.String()
}

func TestASecondAgentIsRefused(t *testing.T) {
	r := newRig(t)
	out := failingAgent(t, r.node)
	if !strings.Contains(out, r.node.Socket) || !strings.Contains(out, fmt.Sprint(r.agent.PID())) || strings.Count(out, "\n") != 1 {
		t.Errorf("same socket:\n%s", out)
	}
	out = failingAgent(t, r.node, "--api-socket="+filepath.Join(r.node.Dir, "other.sock"))
	if !strings.Contains(out, "another process has it open") {
		t.Errorf("same state-dir:\n%s", out)
	}
	if err := r.cni.Status(); err != nil {
		t.Errorf("the first agent: %v", err)
	}
}

func TestATruncatedLedger(t *testing.T) {
	r := newRig(t)
	a, b := r.pod(), r.pod()
	r.agent.Kill(t)
	ledger := filepath.Join(r.node.StateDir, "ledger.db")
	whole, err := os.ReadFile(ledger)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(ledger, int64(3*os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	if out := failingAgent(t, r.node); !strings.Contains(out, "is damaged") {
		t.Errorf("the agent said:\n%s", out)
	}
	if err := testutil.Ping(a.Namespace, b.ipv4, reach); err != nil {
		t.Errorf("running containers: %v", err)
	}
	if err := os.WriteFile(ledger, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	r.agent.Restart(t)
	if n := len(r.endpoints()); n != 2 {
		t.Errorf("%d endpoints after the file was restored", n)
	}
}

func TestAFullDiskUnderTheStateDir(t *testing.T) {
	testutil.Root(t)
	node := testutil.NewNode(t)
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	node.StateDir = filepath.Join(disk, "state")
	r := rigOn(t, node)
	p := r.pod()
	filler := filepath.Join(disk, "filler")
	fill(t, filler)
	// The ledger's file has pages to spare for a while; then nothing more goes in.
	var failed error
	var extra []*testutil.Container
	for range 64 {
		c := testutil.NewContainer(t)
		if _, failed = r.cni.Add(c); failed != nil {
			links, err := c.Conn(t).Links()
			if err != nil || len(links) != 1 {
				t.Errorf("links in the refused container: %v, %v", links, err)
			}
			break
		}
		extra = append(extra, c)
	}
	failedWith(t, failed, "no space left on device")
	failedAs(t, failed, codeTryAgainLater)
	if n := len(r.endpoints()); n != 1+len(extra) {
		t.Errorf("%d endpoints, want %d", n, 1+len(extra))
	}
	if err := testutil.Ping(p.Namespace, node.IPv4, reach); err != nil {
		t.Errorf("a running container: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for _, c := range append(extra, p.Container) {
		r.cni.MustDel(t, c)
	}
	r.nothingLeft()
}

// fill writes until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for err == nil {
		_, err = file.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}
