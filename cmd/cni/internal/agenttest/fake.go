// Package agenttest is an agent for tests of the plugin: the calls that the plugin makes, on a Unix socket, with
// addresses from a counter and nothing in the kernel but the end of a link.
package agenttest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/boottime"
)

// Fake is an agent.
type Fake struct {
	Socket string
	// Gone is called for each endpoint that is deleted: it has the agent's part in removing the link.
	Gone func(v1.Endpoint)

	mu        sync.Mutex // guards the fields below
	behaviour Behaviour
	stop      func()
	endpoints map[string]v1.Endpoint // by attachment
	began     map[string]int64       // of these, by attachment
	deleted   map[string]int64       // when the last deletion of an attachment began
	created   int
	requests  []string // "PUT /v1/endpoint/...", in order
	deletions []Deletion
	lastPut   v1.EndpointRequest
	lastGC    v1.GCRequest
}

// Behaviour is what may be changed between two calls of the plugin.
type Behaviour struct {
	// Fault, if set, is asked before every call what to do instead of answering it.
	Fault func(r *http.Request) Fault
	// Status is the answer of GET /v1/status.
	Status v1.Status
	// Families that endpoints get addresses of; both when nil.
	Families []int
	// Findings are what GET /v1/doctor finds about an attachment.
	Findings map[string][]v1.Finding
	// Withhold is how many calls of POST /v1/gc delete nothing, and say why.
	Withhold int
	// Failing has POST /v1/gc delete, and tell of a part that it could not take down.
	Failing bool
}

// Deletion is a call that deletes.
type Deletion struct {
	Attachment string
	Began      int64         // as the caller says
	Timeout    time.Duration // as the caller says
}

// Behave changes the behaviour.
func (f *Fake) Behave(change func(*Behaviour)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.behaviour)
}

// Fault is what a call meets instead of its answer.
type Fault int

// The faults there are.
const (
	None     Fault = iota
	Refuse         // 503, code exhausted
	Stopping       // 503, code unavailable
	Break          // 500, code internal
	Drop           // the connection is closed without an answer
	Late           // done, and the connection is closed without an answer
	Hang           // no answer until the caller leaves
	Noise          // an answer that is not JSON
	Reject         // 400, code invalid
	Cross          // 404, as a DEL that began meanwhile has removed the link
)

// New prepares an agent that does not listen yet.
func New(socket string) *Fake {
	return &Fake{
		Socket: socket, endpoints: map[string]v1.Endpoint{}, began: map[string]int64{}, deleted: map[string]int64{},
		behaviour: Behaviour{
			Status: v1.Status{
				Ready: true, Datapath: v1.Datapath{Programs: []v1.Program{{Name: "from_pod"}}}, Resources: []v1.Resource{},
			},
		},
	}
}

// Start listens until the end of the test or Stop.
func (f *Fake) Start(t testing.TB) {
	t.Helper()
	listener, err := net.Listen("unix", f.Socket)
	if err != nil {
		t.Fatal(err)
	}
	server, done := &http.Server{Handler: f}, make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	stop := sync.OnceFunc(func() {
		_ = listener.Close() // which Serve may not know of yet
		_ = server.Close()
		<-done
	})
	f.mu.Lock()
	f.stop = stop
	f.mu.Unlock()
	t.Cleanup(stop)
}

// Stop ends the agent. Its endpoints stay.
func (f *Fake) Stop() {
	f.mu.Lock()
	stop := f.stop
	f.mu.Unlock()
	stop()
}

// TakeRequests are the calls since the last time, as "METHOD path".
func (f *Fake) TakeRequests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	requests := f.requests
	f.requests = nil
	return requests
}

// LastPut is the body of the last creation.
func (f *Fake) LastPut() v1.EndpointRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lastPut
}

// LastGC is the body of the last call of POST /v1/gc.
func (f *Fake) LastGC() v1.GCRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lastGC
}

// Deletions are the calls that reached the agent and delete, in order.
func (f *Fake) Deletions() []Deletion {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.deletions)
}

// Endpoints are the attachments that there are, sorted.
func (f *Fake) Endpoints() (attachments []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for a := range f.endpoints {
		attachments = append(attachments, a)
	}
	slices.Sort(attachments)
	return attachments
}

// Forget drops an endpoint and leaves its link.
func (f *Fake) Forget(attachment string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.endpoints, attachment)
}

// BornLater makes an endpoint one of a later life: its ADD began in an hour.
func (f *Fake) BornLater(attachment string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.began[attachment] = (boottime.Now() + time.Hour).Nanoseconds()
}

// Change changes an endpoint, as a mistaken agent may.
func (f *Fake) Change(attachment string, change func(*v1.Endpoint)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ep := f.endpoints[attachment]
	change(&ep)
	f.endpoints[attachment] = ep
}

// ServeHTTP implements http.Handler.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, r.Method+" "+r.URL.Path)
	fault := None
	if f.behaviour.Fault != nil {
		fault = f.behaviour.Fault(r)
	}
	f.mu.Unlock()
	switch fault {
	case None:
		f.serve(w, r)
	case Refuse:
		problem(w, http.StatusServiceUnavailable, v1.CodeExhausted, "no free address in 10.0.0.0/29")
	case Stopping:
		problem(w, http.StatusServiceUnavailable, v1.CodeUnavailable, "the agent is stopping")
	case Break:
		problem(w, http.StatusInternalServerError, v1.CodeInternal, "the ledger is full")
	case Late:
		f.serve(discard{}, r)
		panic(http.ErrAbortHandler)
	case Drop:
		panic(http.ErrAbortHandler)
	case Hang:
		_, _ = io.Copy(io.Discard, r.Body) // or the server does not notice that the caller left
		<-r.Context().Done()
	case Noise:
		fmt.Fprint(w, "<html>")
	case Reject:
		problem(w, http.StatusBadRequest, v1.CodeInvalid, "no container has such an ID")
	case Cross:
		f.cross(w, r)
	}
}

// discard is an answer that nobody gets.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

func (f *Fake) serve(w http.ResponseWriter, r *http.Request) {
	attachment := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/v1/endpoint/"), "cni-attachment-id:")
	switch {
	case r.URL.Path == "/v1/status":
		f.status(w)
	case r.URL.Path == "/v1/doctor":
		f.doctor(w, r.URL.Query().Get("endpoint"))
	case r.URL.Path == "/v1/gc":
		f.gc(w, r)
	case r.Method == http.MethodPut:
		f.put(w, r, attachment)
	case r.Method == http.MethodDelete:
		f.del(w, r, attachment)
	default:
		f.get(w, attachment)
	}
}

func (f *Fake) status(w http.ResponseWriter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer(w, f.behaviour.Status)
}

func (f *Fake) get(w http.ResponseWriter, attachment string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ep, ok := f.endpoints[attachment]; ok {
		answer(w, ep)
		return
	}
	problem(w, http.StatusNotFound, v1.CodeNotFound, "no such endpoint")
}

func (f *Fake) put(w http.ResponseWriter, r *http.Request, attachment string) {
	var request v1.EndpointRequest
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&request); err != nil {
		problem(w, http.StatusBadRequest, v1.CodeInvalid, err.Error())
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastPut = request
	if request.Began < f.deleted[attachment] {
		problem(w, http.StatusServiceUnavailable, v1.CodeUnavailable, "it was deleted meanwhile")
		return
	}
	f.created++
	f.began[attachment] = request.Began
	containerID, ifname, _ := strings.Cut(attachment, ":")
	ep := v1.Endpoint{
		ID: uint16(f.created), ContainerID: containerID, IfName: ifname, State: "ready", Network: request.Network,
		Pod: request.Pod, NetNS: request.NetNS, Host: request.Host, Container: request.Container, Created: time.Now(),
		Addresses: request.Addresses,
	}
	if request.ExternalIPAM {
		ep.ExternalIPAM = true
		gateways(&ep)
	} else {
		f.number(&ep)
	}
	f.endpoints[attachment] = ep
	answer(w, ep)
}

// number gives the endpoint an address of each family, unless it asked for one.
func (f *Fake) number(ep *v1.Endpoint) {
	if f.behaviour.Families == nil || slices.Contains(f.behaviour.Families, 4) {
		if !ep.Addresses.IPv4.IsValid() {
			ep.Addresses.IPv4 = netip.AddrFrom4([4]byte{10, 0, 0, byte(f.created)})
		}
		ep.Gateways.IPv4 = v1.GatewayIPv4
	}
	if f.behaviour.Families == nil || slices.Contains(f.behaviour.Families, 6) {
		if !ep.Addresses.IPv6.IsValid() {
			ep.Addresses.IPv6 = netip.AddrFrom16([16]byte{0xfd, 15: byte(f.created)})
		}
		ep.Gateways.IPv6 = v1.GatewayIPv6
	}
}

// gateways are those of the families that the endpoint has an address of.
func gateways(ep *v1.Endpoint) {
	if ep.Addresses.IPv4.IsValid() {
		ep.Gateways.IPv4 = v1.GatewayIPv4
	}
	if ep.Addresses.IPv6.IsValid() {
		ep.Gateways.IPv6 = v1.GatewayIPv6
	}
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

func problem(w http.ResponseWriter, status int, code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v1.Problem{Title: http.StatusText(status), Status: status, Code: code, Detail: detail})
}
