package kubernetes

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// The test binary is also the program that runs in pods' network namespaces: with one of these commands it serves, or
// sends, until its input ends.
const (
	commandServe = "traffic-serve"
	commandSend  = "traffic-send"
	commandQuery = "traffic-query"
	commandWatch = "traffic-watch"
)

const (
	streamPort  = 7000
	httpPort    = 8080
	namePort    = 53
	sendPause   = 20 * time.Millisecond
	dialPause   = 200 * time.Millisecond
	queryPause  = 200 * time.Millisecond
	sendTimeout = 10 * time.Second // of one line, request, new connection or query
)

// traffic is the result of a sender.
type traffic struct {
	Lines, Requests, Dials, Queries int // that were answered

	Failed  int
	Errors  []string      // the first of them; a lost connection is one
	Slow    []string      // the first answers that took more than a second
	Longest time.Duration // until an answer
}

// runTraffic is the program in a pod. It reports whether the arguments are for it.
func runTraffic() bool {
	if len(os.Args) < 2 {
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	switch os.Args[1] {
	case commandServe:
		serveTraffic(ctx)
	case commandSend:
		_ = json.NewEncoder(os.Stdout).Encode(sendTraffic(ctx, os.Args[2:]))
	case commandQuery:
		_ = json.NewEncoder(os.Stdout).Encode(queryTraffic(ctx, os.Args[2]))
	case commandWatch:
		_ = json.NewEncoder(os.Stdout).Encode(watchURL(ctx, os.Args[2]))
	default:
		return false
	}
	return true
}

func serveTraffic(ctx context.Context) {
	lines, err := net.Listen("tcp", fmt.Sprint(":", streamPort))
	if err != nil {
		panic(err)
	}
	web, err := net.Listen("tcp", fmt.Sprint(":", httpPort))
	if err != nil {
		panic(err)
	}
	go func() {
		_ = http.Serve(web, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) }))
	}()
	go func() {
		for {
			conn, err := lines.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}()
	names, err := net.ListenPacket("udp", fmt.Sprint(":", namePort))
	if err != nil {
		panic(err)
	}
	go func() { _ = dns.ActivateAndServe(nil, names, dns.HandlerFunc(answerName)) }()
	fmt.Println("serving")
	<-ctx.Done()
}

// nameFormat is of the names that servers know, and addressFormat of their addresses.
const (
	nameFormat    = "a%d-%d.example.test."
	addressFormat = "198.18.%d.%d"
)

func answerName(w dns.ResponseWriter, query *dns.Msg) {
	answer := new(dns.Msg).SetReply(query)
	var third, fourth int
	if _, err := fmt.Sscanf(query.Question[0].Name, nameFormat, &third, &fourth); err != nil {
		answer.Rcode = dns.RcodeNameError
	} else {
		answer.Answer = []dns.RR{&dns.A{
			Hdr: dns.RR_Header{Name: query.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60},
			A:   net.ParseIP(fmt.Sprintf(addressFormat, third, fourth)),
		}}
	}
	_ = w.WriteMsg(answer)
}

// sender sends to several servers and counts.
type sender struct {
	mu     sync.Mutex // guards the field below
	result traffic
}

func sendTraffic(ctx context.Context, servers []string) traffic {
	s := &sender{}
	var all sync.WaitGroup
	for _, server := range servers {
		stream, web := fmt.Sprintf("%s:%d", server, streamPort), fmt.Sprintf("http://%s:%d/ok", server, httpPort)
		all.Go(func() { s.lines(ctx, stream) })
		all.Go(func() { s.requests(ctx, web) })
		all.Go(func() {
			s.repeat(ctx, dialPause, "connection to "+stream, &s.result.Dials, func() error {
				conn, err := net.DialTimeout("tcp", stream, sendTimeout)
				if err != nil {
					return err
				}
				defer conn.Close()
				return echo(conn, bufio.NewReader(conn), "dial")
			})
		})
	}
	all.Wait()
	return s.result
}

// repeat calls do until ctx ends, once at least, and counts its successes.
func (s *sender) repeat(ctx context.Context, pause time.Duration, what string, count *int, do func() error) {
	for {
		began := time.Now()
		err := do()
		took := time.Since(began)
		s.mu.Lock()
		s.result.Longest = max(s.result.Longest, took)
		if took > time.Second && len(s.result.Slow) < 10 {
			s.result.Slow = append(s.result.Slow, fmt.Sprintf("%s: %s: %s", began.Format(time.StampMilli), what, took))
		}
		if err == nil {
			*count++
		} else if s.result.Failed++; len(s.result.Errors) < 10 {
			s.result.Errors = append(s.result.Errors, fmt.Sprintf("%s: %s: %v", began.Format(time.StampMilli), what, err))
		}
		s.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// lines sends numbered lines on one connection. A new one is made after an error only.
func (s *sender) lines(ctx context.Context, server string) {
	var conn net.Conn
	var answers *bufio.Reader
	n := 0
	s.repeat(ctx, sendPause, "stream to "+server, &s.result.Lines, func() (err error) {
		if conn == nil {
			if conn, err = net.DialTimeout("tcp", server, sendTimeout); err != nil {
				return err
			}
			answers = bufio.NewReader(conn)
		}
		n++
		if err = echo(conn, answers, fmt.Sprint("line ", n)); err != nil {
			_ = conn.Close()
			conn = nil
		}
		return err
	})
}

func echo(conn net.Conn, answers *bufio.Reader, line string) error {
	_ = conn.SetDeadline(time.Now().Add(sendTimeout))
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return err
	}
	answer, err := answers.ReadString('\n')
	if err == nil && answer != line+"\n" {
		err = fmt.Errorf("answer %q to %q", answer, line)
	}
	return err
}

func (s *sender) requests(ctx context.Context, url string) {
	client := &http.Client{Timeout: sendTimeout}
	s.repeat(ctx, sendPause, "GET "+url, &s.result.Requests, func() error {
		response, err := client.Get(url)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
			return fmt.Errorf("status %s, %w", response.Status, err)
		}
		return nil
	})
}

// queries are the results for one name, and for names whose addresses are new.
type queries struct{ Known, New traffic }

// queryTraffic asks a name server for names below example.test.
func queryTraffic(ctx context.Context, server string) queries {
	known, fresh := &sender{}, &sender{}
	client := dns.Client{Timeout: sendTimeout} // which sends each query once
	query := func(third, fourth int) error {
		question := new(dns.Msg).SetQuestion(fmt.Sprintf(nameFormat, third, fourth), dns.TypeA)
		answer, _, err := client.Exchange(question, server)
		if err == nil && len(answer.Answer) != 1 {
			err = fmt.Errorf("answer: %s", answer)
		}
		return err
	}
	n := 0
	var all sync.WaitGroup
	all.Go(func() {
		known.repeat(ctx, queryPause, "query for a known name", &known.result.Queries, func() error { return query(0, 1) })
	})
	all.Go(func() {
		fresh.repeat(ctx, queryPause, "query for a new name", &fresh.result.Queries, func() error {
			n++
			return query(1+n/250, n%250)
		})
	})
	all.Wait()
	return queries{known.result, fresh.result}
}

// watchURL asks for a page until the context ends, and returns the times without one, of 100 ms and more.
func watchURL(ctx context.Context, url string) (gaps []time.Duration) {
	client := &http.Client{Timeout: time.Second}
	for last := time.Now(); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		response, err := client.Get(url)
		if err != nil {
			continue
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			continue
		}
		if gap := time.Since(last); gap >= 100*time.Millisecond {
			gaps = append(gaps, gap.Round(10*time.Millisecond))
		}
		last = time.Now()
	}
	return gaps
}

// pod is a pause container; programs of the test run in its network namespace.
type pod struct {
	name, node string
	address    string // the first one
	netns      string // on the node
}

// pod creates a pod on a node and waits until it runs.
func (c *cluster) pod(t *testing.T, namespace, name, node string) pod {
	t.Helper()
	c.apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, labels: {app: %[1]s}}
spec:
  nodeName: %[3]s
  terminationGracePeriodSeconds: 1
  containers: [{name: pause, image: registry.k8s.io/pause:3.10.2, imagePullPolicy: Never}]
`, name, namespace, node))
	c.kubectl(t, "-n", namespace, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=1m")
	p := pod{name: name, node: node, address: c.kubectl(t, "-n", namespace, "get", "pod", name, "-o", "jsonpath={.status.podIP}")}
	netns, err := c.on(node, "sh", "-c", `for n in /run/netns/*; do nsenter --net=$n ip -o address show to "$1" | grep -q . && echo $n; done; true`, "sh", p.address)
	if p.netns = strings.TrimSpace(netns); err != nil || p.netns == "" {
		t.Fatalf("%s has no network namespace with the address of pod %s, %s: %v", node, name, p.address, err)
	}
	return p
}

// host is a node as a place for programs.
func host(node string) pod { return pod{name: node, node: node, netns: "/proc/1/ns/net"} }

// program is a program of this test that runs in a pod.
type program struct {
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Reader
}

// start runs the test binary in the pod's network namespace until end, or the end of the test.
func (p pod) start(t *testing.T, args ...string) *program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("./node.sh", append([]string{p.node, "nsenter", "--net=" + p.netns, self}, args...)...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	return &program{cmd, stdin, bufio.NewReader(stdout)}
}

// end ends a program that prints its result, and reads this.
func (p *program) end(t *testing.T, result any) {
	t.Helper()
	_ = p.stdin.Close()
	if err := json.NewDecoder(p.out).Decode(result); err != nil {
		t.Fatalf("%s: %v", p.cmd, err)
	}
}

// serve starts a server in the pod and waits until it serves.
func (p pod) serve(t *testing.T) {
	t.Helper()
	server := p.start(t, commandServe)
	if line, err := server.out.ReadString('\n'); err != nil {
		t.Fatalf("server in pod %s: %q, %v", p.name, line, err)
	}
}

// send starts a sender in the pod to others. The function that it returns ends it.
func (p pod) send(t *testing.T, to ...pod) (end func() traffic) {
	t.Helper()
	args := []string{commandSend}
	for _, server := range to {
		args = append(args, server.address)
	}
	program := p.start(t, args...)
	return func() (result traffic) {
		t.Helper()
		program.end(t, &result)
		t.Logf("%d lines, %d requests, %d connections; the longest answer took %s\n%s", result.Lines, result.Requests, result.Dials, result.Longest, strings.Join(result.Slow, "\n"))
		return result
	}
}

// reaches fails the test unless lines, requests and connections to the other pod are answered.
func (p pod) reaches(t *testing.T, other pod) {
	t.Helper()
	other.serve(t)
	p.send(t, other)().lossless(t)
}

// lossless fails the test if anything was lost, or nothing was sent.
func (r traffic) lossless(t *testing.T) {
	t.Helper()
	if len(r.Errors) > 0 || r.Lines == 0 || r.Requests == 0 || r.Dials == 0 {
		t.Errorf("traffic was lost, or none passed:\n%s", strings.Join(r.Errors, "\n"))
	}
}
