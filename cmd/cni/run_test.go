package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/deletionrecords"
	"porin.dev/porin/internal/heartbeat"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

// fakeAgent answers every call with a status and a body, and remembers what came.
type fakeAgent struct {
	t      *testing.T
	dir    string
	socket string

	mu     sync.Mutex // guards the fields below
	status int
	body   string
	calls  []v1.CNICall
	files  []string // the descriptors' files
}

func newFakeAgent(t *testing.T) *fakeAgent {
	t.Helper()
	dir, err := os.MkdirTemp("", "cni") // short enough for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &fakeAgent{t: t, dir: dir, socket: filepath.Join(dir, "agent.sock"), status: http.StatusOK}
}

// listen serves until the end of the test.
func (a *fakeAgent) listen() { a.serve(func(conn *net.UnixConn, _ int) { a.answer(conn) }) }

// serve has answer serve each connection, which it is given with its number.
func (a *fakeAgent) serve(answer func(conn *net.UnixConn, number int)) {
	a.t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: a.socket, Net: "unix"})
	if err != nil {
		a.t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for number := 0; ; number++ {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			answer(conn, number)
			_ = conn.Close()
		}
	})
	a.t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
}

func (a *fakeAgent) answer(conn *net.UnixConn) {
	defer conn.Close()
	buf, control := make([]byte, 1<<20), make([]byte, 64)
	n, controlLen, _, _, err := conn.ReadMsgUnix(buf, control)
	if err != nil {
		return
	}
	file := ""
	if messages, _ := unix.ParseSocketControlMessage(control[:controlLen]); len(messages) == 1 {
		fds, _ := unix.ParseUnixRights(&messages[0])
		for _, fd := range fds {
			file, _ = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
			_ = unix.Close(fd)
		}
	}
	head, body, _ := bytes.Cut(buf[:n], []byte("\r\n\r\n"))
	var call v1.CNICall
	if err := json.Unmarshal(body, &call); err != nil || !strings.HasPrefix(string(head), "POST /v1/cni HTTP/1.0\r\n") {
		a.t.Errorf("request %q: %v", buf[:n], err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls, a.files = append(a.calls, call), append(a.files, file)
	_, _ = fmt.Fprintf(conn, "HTTP/1.0 %d X\r\nContent-Length: %d\r\n\r\n%s", a.status, len(a.body), a.body)
}

// last is the last call, and what its descriptor is of.
func (a *fakeAgent) last() (v1.CNICall, string) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.calls) == 0 {
		a.t.Fatal("the plugin called nobody")
	}
	return a.calls[len(a.calls)-1], a.files[len(a.files)-1]
}

// answers is what it says from now on.
func (a *fakeAgent) answers(status int, body string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status, a.body = status, body
}

// execute runs the plugin for the container c1.
func (a *fakeAgent) execute(command, netns, config string) (code int, stdout string) {
	a.t.Helper()
	env := map[string]string{
		"CNI_COMMAND": command, "CNI_CONTAINERID": "c1", "CNI_IFNAME": "eth0", "CNI_NETNS": netns, "CNI_ARGS": "K8S_POD_NAME=web", "CNI_PATH": "/opt/cni/bin",
	}
	var out bytes.Buffer
	text := `{"cniVersion":"1.0.0","name":"porin","type":"porin-cni","socket":"` + a.socket + `"` + config + `}`
	code = run(process{getenv: func(key string) string { return env[key] }, stdin: strings.NewReader(text), stdout: &out, stderr: io.Discard})
	return code, strings.TrimSpace(out.String())
}

func problem(status int, code string) (int, string) {
	text, _ := json.Marshal(v1.Problem{Status: status, Code: code, Detail: "as the test says"})
	return status, string(text)
}

func (a *fakeAgent) wants(what string, code int, stdout string, wantCode int, words string) {
	a.t.Helper()
	if code != wantCode || !strings.Contains(stdout, words) || strings.Contains(stdout, "\n") {
		a.t.Errorf("%s: exit code %d, %s, want %d and %q", what, code, stdout, wantCode, words)
	}
}

// TestAdd holds the request against what the agent's tests have recorded.
func TestAdd(t *testing.T) {
	testutil.Root(t)
	a, container := newFakeAgent(t), testutil.NetNS(t)
	a.listen()
	const result = `{"cniVersion":"1.0.0","ips":[]}`
	a.answers(http.StatusOK, result)
	code, out := a.execute("ADD", container.Path(), `,"runtimeConfig":{"ips":["10.0.0.7"]}`)
	a.wants("ADD", code, out, 0, result)
	call, file := a.last()
	if call.Version != 1 || call.Began <= 0 || call.Environment["CNI_COMMAND"] != "ADD" || call.Environment["CNI_ARGS"] != "K8S_POD_NAME=web" ||
		!strings.Contains(string(call.Config), `"runtimeConfig":{"ips":["10.0.0.7"]}`) {
		t.Errorf("call %+v, configuration %s", call, call.Config)
	}
	if !strings.HasPrefix(file, "net:[") && file != container.Path() {
		t.Errorf("the descriptor is of %q", file)
	}
}

func TestAgentError(t *testing.T) {
	testutil.Root(t)
	a, container := newFakeAgent(t), testutil.NetNS(t)
	a.listen()
	const failure = `{"cniVersion":"1.0.0","code":101,"msg":"taken"}`
	a.answers(v1.CNIErrorStatus, failure)
	for _, command := range []string{"ADD", "DEL", "CHECK", "STATUS", "GC"} {
		code, out := a.execute(command, container.Path(), "")
		a.wants(command, code, out, 1, failure)
	}
}

func TestAddWaitsForAgent(t *testing.T) {
	testutil.Root(t)
	a, container := newFakeAgent(t), testutil.NetNS(t)
	began := time.Now()
	code, out := a.execute("ADD", container.Path(), `,"timeout":"100ms"`)
	a.wants("ADD without an agent", code, out, 1, `"code":11`)
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("it waited %s for an agent", took)
	}
	done := make(chan string)
	go func() {
		_, out := a.execute("ADD", container.Path(), "")
		done <- out
	}()
	a.answers(http.StatusOK, `{}`)
	a.listen()
	if out := <-done; out != `{}` {
		t.Errorf("ADD with an agent that comes: %s", out)
	}
}

// TestOtherCommandsWithoutAgent: runtimes hold locks meanwhile.
func TestOtherCommandsWithoutAgent(t *testing.T) {
	testutil.Root(t)
	a, container := newFakeAgent(t), testutil.NetNS(t)
	began := time.Now()
	for command, words := range map[string]string{"CHECK": `"code":11`, "GC": `"code":11`, "STATUS": `"code":50`} {
		code, out := a.execute(command, container.Path(), "")
		a.wants(command, code, out, 1, words)
	}
	code, out := a.execute("DEL", container.Path(), "")
	a.wants("DEL", code, out, 0, "")
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("they took %s", took)
	}
}

func TestStatusWithoutAgent(t *testing.T) {
	a := newFakeAgent(t)
	if err := heartbeat.Beat(a.dir); err != nil {
		t.Fatal(err)
	}
	code, out := a.execute("STATUS", "", "")
	a.wants("after a heartbeat", code, out, 0, "")
	if err := os.WriteFile(filepath.Join(a.dir, "heartbeat"), []byte("another-boot 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out = a.execute("STATUS", "", "")
	a.wants("after a heartbeat of another boot", code, out, 1, `"code":50`)
}

// TestAgentOfOtherVersion knows nothing of the call.
func TestAgentOfOtherVersion(t *testing.T) {
	testutil.Root(t)
	a, container := newFakeAgent(t), testutil.NetNS(t)
	a.listen()
	a.answers(problem(http.StatusNotFound, v1.CodeNotFound))
	code, out := a.execute("ADD", container.Path(), "")
	a.wants("ADD", code, out, 1, `"code":11`)
	a.wants("ADD", code, out, 1, "upgrade porin-agent")
	code, out = a.execute("DEL", container.Path(), "")
	a.wants("DEL", code, out, 0, "")
	if records, _, err := deletionrecords.Look(filepath.Join(a.dir, "deletions")); len(records) != 1 || err != nil {
		t.Errorf("records %v, %v", records, err)
	}
}

func TestDeleteRecordWithIPAMPlugin(t *testing.T) {
	testutil.Root(t)
	a := newFakeAgent(t)
	code, out := a.execute("DEL", "/run/netns/c1", `,"ipam":{"type":"host-local"}`)
	a.wants("DEL", code, out, 0, "")
	var records []deletionrecords.Record
	_, err := deletionrecords.Drain(filepath.Join(a.dir, "deletions"), func(found []deletionrecords.Record) []error {
		records = found
		return make([]error, len(found))
	})
	if err != nil || len(records) != 1 {
		t.Fatalf("records %v, %v", records, err)
	}
	r := records[0]
	if r.IPAM != "host-local" || r.NetNS != "/run/netns/c1" || r.Args != "K8S_POD_NAME=web" || !strings.Contains(r.Config, `"type":"host-local"`) {
		t.Errorf("record %+v", r)
	}
}

// Between the two looks of a DEL an agent may have come, made the attachment again, and gone again.
func TestDeleteWithoutAgentLaterADD(t *testing.T) {
	testutil.Root(t)
	a, node := newFakeAgent(t), testutil.NetNS(t)
	name := v1.HostInterfaceName("c1", "eth0")
	link, err := node.AddVeth(testutil.Veth{Name: name, MAC: testutil.MAC(2, 3), Peer: testutil.NetNS(t), PeerName: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	handle, index := node.Netlink(t), link.Attrs().Index
	if err := errors.Join(handle.LinkSetAlias(link, "c1:eth0 began=1"), handle.LinkSetUp(link)); err != nil {
		t.Fatal(err)
	}
	records := filepath.Join(a.dir, "deletions")
	writer, err := deletionrecords.Begin(records)
	if err == nil {
		err = errors.Join(writer.Put(deletionrecords.Record{ContainerID: "other"}), writer.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	var deleted chan struct{}
	_, err = deletionrecords.Drain(records, func(found []deletionrecords.Record) []error { // which keeps the plugin waiting
		deleted = make(chan struct{})
		go func() {
			defer close(deleted)
			_ = node.Do(func() error {
				code, out := a.execute("DEL", "", "")
				a.wants("DEL", code, out, 0, "")
				return nil
			})
		}()
		testutil.Eventually(t, func() error {
			if node.Link(t, name).Attrs().Flags&net.FlagUp != 0 {
				return errors.New("the link is up")
			}
			return nil
		})
		if err := handle.LinkSetAlias(link, "c1:eth0 began=9223372036854775807"); err != nil {
			t.Error(err)
		}
		return make([]error, len(found))
	})
	if err != nil {
		t.Fatal(err)
	}
	<-deleted
	if !node.HasLink(t, index) {
		t.Error("the link of the later ADD is gone")
	}
}

func TestBadCalls(t *testing.T) {
	a := newFakeAgent(t)
	for config, words := range map[string]string{
		`,"socket":"agent.sock"`: `"code":7,"msg":"network configuration: socket`,
		`,"socket":7`:            `"code":7,"msg":"network configuration: socket`,
		`,"socket":"/` + strings.Repeat("a", 200) + `"`: `"code":7,"msg":"network configuration: socket`,
		`,"stateDir":"state"`:                           `"code":7,"msg":"network configuration: stateDir`,
		`,"timeout":"soon"`:                             `"code":7,"msg":"network configuration: timeout`,
		`,`:                                             `"code":6`,
	} {
		code, out := a.execute("STATUS", "", config)
		a.wants(config, code, out, 1, words)
	}
	code, out := a.execute("ADD", "", "")
	a.wants("ADD without a namespace", code, out, 1, `"code":4`)
	code, out = a.execute("ADD", "/nowhere", "")
	a.wants("ADD of a namespace that is not there", code, out, 1, `"code":8`)
	code, out = a.execute("EAT", "", "")
	a.wants("an unknown command", code, out, 1, `"code":4`)
	code, out = a.execute("VERSION", "", "")
	a.wants("VERSION", code, out, 0, `"supportedVersions":["0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]`)
}

// A DEL fails for nothing that it does not use: it would fail for ever.
func TestDeleteUnusedConfig(t *testing.T) {
	testutil.Root(t)
	a := newFakeAgent(t)
	a.listen()
	deep := strings.Repeat(`{"a":[`, 20000) + "0" + strings.Repeat("]}", 20000)
	for name, config := range map[string]string{
		"timeout": `,"timeout":"soon"`, "timeout's type": `,"timeout":7`, "ipam's type": `,"ipam":[7]`, "a plugin's type": `,"ipam":{"type":7}`,
		"deep": `,"runtimeConfig":` + deep, "deep strings": `,"x":{"]}":["\"]}",` + deep + `]}`,
	} {
		code, out := a.execute("DEL", "", config)
		a.wants("DEL, "+name, code, out, 0, "")
		if call, _ := a.last(); call.Environment["CNI_COMMAND"] != "DEL" || !strings.Contains(string(call.Config), `"name":"porin"`) {
			t.Errorf("%s: the agent got %.200q", name, call.Config)
		}
		a.mu.Lock()
		a.calls, a.files = nil, nil
		a.mu.Unlock()
	}
	code, out := a.execute("DEL", "", `,"socket":7`)
	a.wants("DEL, socket", code, out, 1, `"code":7`)
	code, out = a.execute("DEL", "", `,"x":[`)
	a.wants("DEL, no JSON", code, out, 1, `"code":6`)
}

// A configuration that is too large is no reason to try again, also when the agent refuses it before it
// has read all of it.
func TestConfigTooLarge(t *testing.T) {
	testutil.Root(t)
	a, container := newFakeAgent(t), testutil.NetNS(t)
	code, out := a.execute("ADD", container.Path(), `,"x":"`+strings.Repeat("x", maxStdin)+`"`)
	a.wants("too large for the plugin", code, out, 1, `"code":7`)
	a.serve(func(conn *net.UnixConn, _ int) {
		status, body := problem(http.StatusRequestEntityTooLarge, v1.CodeTooLarge)
		_, _ = fmt.Fprintf(conn, "HTTP/1.0 %d X\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
	})
	code, out = a.execute("ADD", container.Path(), `,"x":"`+strings.Repeat("x", 4<<20)+`"`)
	a.wants("too large for the agent", code, out, 1, `"code":7`)
}

// TestAddCutOff: an agent that dies in the middle of an ADD is no reason to fail. The next agent is asked the same
// again.
func TestAddCutOff(t *testing.T) {
	testutil.Root(t)
	for name, cut := range map[string]string{"at once": "", "in its head": "HTTP/1.0 200 OK\r\nContent-", "in its body": "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{"} {
		a, container := newFakeAgent(t), testutil.NetNS(t)
		a.serve(func(conn *net.UnixConn, call int) {
			switch call {
			case 0: // nothing is read of it
			case 1:
				_, _ = conn.Read(make([]byte, 1<<20))
				_, _ = conn.Write([]byte(cut))
			default:
				a.answer(conn)
			}
		})
		a.answers(http.StatusOK, `{"ips":[]}`)
		code, out := a.execute("ADD", container.Path(), "")
		a.wants("cut off "+name, code, out, 0, `{"ips":[]}`)
	}
	a, container := newFakeAgent(t), testutil.NetNS(t)
	a.serve(func(*net.UnixConn, int) {})
	code, out := a.execute("ADD", container.Path(), `,"timeout":"100ms"`)
	a.wants("cut off each time", code, out, 1, `"code":11`)
}

func TestParseAnswer(t *testing.T) {
	for answer, words := range map[string]string{
		"":                    "ended in the middle",
		"HTTP/1.0 200 OK\r\n": "ended in the middle",
		"SSH-2.0-x\r\n\r\n":   "it begins with",
		"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\n{}": "ended in the middle",
		"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n{}": "it has 2 bytes",
		"HTTP/1.0 500 X\r\n\r\noops":                     "status 500",
	} {
		if _, err := parseAnswer([]byte(answer)); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v, want %q", answer, err, words)
		}
	}
}

func TestBeganAfter(t *testing.T) {
	for alias, want := range map[string]bool{
		"c1:eth0 began=123": true, "began=123": true, "c1:eth0 began=100": false, "": false, "c1:eth0": false, "c1:eth0 began=soon": false,
		"c1:began=999 began=5": false, "began=99999999999999999999": false,
	} {
		if got := beganAfter(alias, 100); got != want {
			t.Errorf("%q: %v", alias, got)
		}
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		if out, err := parseAnswer(answer); err == nil && !bytes.HasSuffix(answer, out) {
			t.Errorf("%q is not the end of %q", out, answer)
		}
	})
}
