package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// noon is now, for the fake agent and for the program.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// fakeAgent has the API of an agent, and endpoints that are made and deleted as a script says.
type fakeAgent struct {
	server *httptest.Server
	node   string

	mu        sync.Mutex // guards the fields below, while a request or a verb of the script runs
	ready     bool
	stuck     bool // answers nothing
	failing   bool // a deletion leaves a part
	sick      bool // something disagrees, and something lacks
	blind     bool // something cannot be examined
	outside   bool // an endpoint has an address of no pool
	recovery  *v1.RecoveryStatus
	conflicts []v1.BlockConflict
	endpoints []v1.Endpoint
	events    []v1.Event
	reserved  []v1.Reservation
	pools     fakePools // nil where there are none
	policies  *fakePolicies
	held      []v1.HeldEndpoint
	proxy     v1.ProxyStatus
	delegated bool // addresses come from another IPAM plugin
}

// startFakeAgent listens on socket until close.
func startFakeAgent(socket string) (*fakeAgent, error) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	a := &fakeAgent{ready: true, pools: fakePools{}, policies: new(fakePolicies), proxy: v1.ProxyStatus{InUse: true, RuleSets: 2, Connections: 5}}
	a.server = httptest.NewUnstartedServer(a.routes())
	_ = a.server.Listener.Close()
	a.server.Listener = listener
	a.server.Start()
	return a, nil
}

func (a *fakeAgent) close() {
	a.server.CloseClientConnections()
	a.server.Close()
}

func (a *fakeAgent) routes() http.Handler {
	r := chi.NewRouter()
	r.Use(a.oneAtATime)
	r.Method(http.MethodGet, "/v1/status", httpx.Handler(a.status))
	r.Method(http.MethodGet, "/v1/endpoint", httpx.Handler(a.list))
	r.Method(http.MethodDelete, "/v1/endpoint", httpx.Handler(a.deleteContainer))
	r.Method(http.MethodGet, "/v1/endpoint/{id}", httpx.Handler(a.get))
	r.Method(http.MethodPatch, "/v1/endpoint/{id}", httpx.Handler(a.patch))
	r.Method(http.MethodDelete, "/v1/endpoint/{id}", httpx.Handler(a.delete))
	r.Method(http.MethodGet, "/v1/ipam", httpx.Handler(a.ipam))
	r.Method(http.MethodPost, "/v1/ipam", httpx.Handler(a.reserve))
	r.Method(http.MethodDelete, "/v1/ipam/{ip}", httpx.Handler(a.release))
	r.Method(http.MethodGet, "/v1/health", httpx.Handler(a.clusterHealth))
	r.Method(http.MethodGet, "/v1/doctor", httpx.Handler(a.doctor))
	r.Method(http.MethodPost, "/v1/doctor", httpx.Handler(a.repair))
	r.Method(http.MethodPost, "/v1/restore/accept", httpx.Handler(a.accept))
	r.Method(http.MethodGet, "/v1/controller", httpx.Handler(a.controllers))
	r.Method(http.MethodPost, "/v1/controller/{name}/run", httpx.Handler(a.runController))
	r.Method(http.MethodGet, "/v1/trace", httpx.Handler(a.trace))
	r.Method(http.MethodPost, "/v1/gc", httpx.Handler(a.gc))
	r.Method(http.MethodGet, "/v1/events", httpx.Handler(a.stream))
	r.Method(http.MethodGet, "/v1/flows", httpx.Handler(a.flows))
	r.Group(a.mountPools)
	a.policies.mount(r)
	return r
}

func (a *fakeAgent) oneAtATime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.stuck {
			<-r.Context().Done()
			return
		}
		next.ServeHTTP(w, r)
	})
}

// add makes the nth endpoint; odd ones belong to a pod.
func (a *fakeAgent) add() {
	n := len(a.endpoints) + 1
	ep := v1.Endpoint{
		ID: uint16(n), ContainerID: strings.Repeat(strconv.Itoa(n), 64), IfName: "eth0", State: "ready", Network: "porin",
		NetNS:     fmt.Sprintf("/run/netns/c%d", n),
		Host:      v1.Interface{Name: fmt.Sprintf("por%012d", n), Index: 10 + n, MAC: v1.MAC{2, 0, 0, 0, 1, byte(n)}},
		Container: v1.Interface{Name: "eth0", MAC: v1.MAC{2, 0, 0, 0, 2, byte(n)}},
		Addresses: v1.Addresses{IPv4: netip.AddrFrom4([4]byte{10, 1, 0, byte(n)})},
		Pool:      "default",
		Bandwidth: v1.Bandwidth{IngressRate: 1e7, EgressRate: 1.5e9},
		Created:   noon.Add(-time.Duration(n) * time.Hour),
		Traffic:   &v1.Traffic{FromPod: v1.Counter{Packets: 12, Bytes: 1008}, ToPod: v1.Counter{Packets: 10, Bytes: 840}},
	}
	if n%2 == 1 {
		ep.Pod = v1.Pod{Namespace: "default", Name: fmt.Sprintf("web-%d", n)}
		ep.Addresses.IPv6 = netip.MustParseAddr(fmt.Sprintf("fd00::%d", n))
		ep.Traffic.Drops = map[string]uint64{"source-address": 3, "not-ip": 1}
		ep.Labels, ep.NamespaceLabels = map[string]string{"tier": "front", "app": "web"}, map[string]string{"team": "shop"}
		ep.NamedPorts = []v1.NamedPort{{Name: "http", Protocol: v1.ProtocolTCP, Port: 80}}
		ep.Policy = &v1.EndpointPolicy{Ingress: true}
	}
	a.endpoints = append(a.endpoints, ep)
	a.tell(v1.Event{Type: v1.EventEndpointCreated, Endpoint: &ep, Operation: "add", Phases: []v1.Phase{
		{Name: "plugin", Duration: 812 * time.Microsecond}, {Name: "ipam", Duration: 3456}, {Name: "datapath", Duration: 210 * time.Microsecond},
	}})
}

func (a *fakeAgent) tell(event v1.Event) {
	event.Seq, event.Time = uint64(len(a.events)+1), noon
	a.events = append(a.events, event)
}

func (a *fakeAgent) status(w http.ResponseWriter, _ *http.Request) error {
	found := a.disagreements("")
	return httpx.JSON(w, http.StatusOK, v1.Status{
		Version: "v0.1.0", Node: cmp.Or(a.node, "node-1"), PID: 4711, Started: noon.Add(-50 * time.Hour), Ready: a.ready,
		Endpoints: map[string]int{"ready": len(a.endpoints)},
		Restored: v1.Restored{
			Adopted: 2, Replaced: 1, Undone: 1, Duration: 1534 * time.Microsecond,
			Reasons: []v1.RestoredEndpoint{
				{Endpoint: strings.Repeat("7", 64) + ":eth0", Outcome: "replaced", Reasons: []string{"filters made anew", "route made anew"}},
				{Endpoint: strings.Repeat("8", 64) + ":eth0", Outcome: "undone", Reasons: []string{"its interface is gone"}},
			},
			Removed: []string{"interface por000000000009"},
		},
		Policy:    a.policies.status(),
		Proxy:     a.proxy,
		Network:   v1.NetworkStatus{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Blocks: 2, Routing: "native", Peers: 12, MissingPeers: 1, Errors: 1, Masquerade: v1.MasqueradeStatus{Families: []string{"ipv4", "ipv6"}, Connections: 12}},
		Health:    a.health(),
		Held:      v1.Held{Count: len(a.held), Endpoints: a.held},
		Findings:  v1.Findings{Count: len(found), First: found},
		Recovery:  a.recovery,
		Conflicts: a.conflicts,
		Resources: a.resources(),
		Datapath: v1.Datapath{BPFRoot: "/sys/fs/bpf/empty",
			Digest: "5e8f", Adopted: true, Missing: []string{"tcx (Linux 6.6): clsact is used"}, Unmanaged: &v1.Unmanaged{Passed: 3, Denied: 7},
			Programs: []v1.Program{{Name: "from_pod", ID: 41}, {Name: "to_pod", ID: 42}, {Name: "to_uplink", ID: 43}},
		},
	})
}

// clash has six blocks in conflict, and a recovery.
func (a *fakeAgent) clash() {
	a.recovery = &v1.RecoveryStatus{UnderWay: true, Began: noon.Add(-time.Hour), Unwritten: true}
	for i := range 6 {
		a.conflicts = append(a.conflicts, v1.BlockConflict{CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 65, 0, byte(8 * i)}), 29), Pool: "default", Owner: "n1/aaaaaaaaaa"})
	}
	a.conflicts[1].Owner = ""
}

// accept removes what is held.
func (a *fakeAgent) accept(w http.ResponseWriter, r *http.Request) error {
	body, err := httpx.Decode[v1.AcceptRequest](w, r)
	if err != nil {
		return err
	}
	before := len(a.held)
	a.held = slices.DeleteFunc(a.held, func(e v1.HeldEndpoint) bool { return body.Endpoint == "" || body.Endpoint == e.Endpoint })
	if body.Endpoint != "" && before == len(a.held) {
		return fault.New(fault.NotFound, "the agent holds no such attachment")
	}
	return httpx.JSON(w, http.StatusOK, v1.DeleteResult{Deleted: before - len(a.held)})
}

func (a *fakeAgent) list(w http.ResponseWriter, r *http.Request) error {
	list := []v1.Endpoint{}
	for _, ep := range a.endpoints {
		if network := r.URL.Query().Get("network"); network == "" || network == ep.Network {
			list = append(list, ep)
		}
	}
	return httpx.JSON(w, http.StatusOK, list)
}

func (a *fakeAgent) endpointByRef(r *http.Request) (int, error) {
	ref, err := httpx.Param(r, "id")
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(a.endpoints, func(ep v1.Endpoint) bool {
		return slices.Contains([]string{
			strconv.Itoa(int(ep.ID)), "ipv4:" + ep.Addresses.IPv4.String(), "pod-name:" + podName(ep.Pod), "cni-attachment-id:" + ep.ContainerID + ":" + ep.IfName,
		}, ref)
	})
	if _, err := strconv.Atoi(ref); err != nil && !strings.Contains(ref, ":") {
		return 0, fault.New(fault.Invalid, fmt.Sprintf("endpoint reference %q: want a number", ref))
	}
	if i < 0 {
		return 0, fault.New(fault.NotFound, fmt.Sprintf("find %s: no such endpoint", ref))
	}
	return i, nil
}

func (a *fakeAgent) get(w http.ResponseWriter, r *http.Request) error {
	i, err := a.endpointByRef(r)
	if err != nil {
		return err
	}
	return httpx.JSON(w, http.StatusOK, a.endpoints[i])
}

func (a *fakeAgent) patch(w http.ResponseWriter, r *http.Request) error {
	i, err := a.endpointByRef(r)
	if err != nil {
		return err
	}
	var patch v1.EndpointPatch
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		return err
	}
	if patch.Labels != nil {
		a.endpoints[i].Labels = patch.Labels
	}
	if patch.NamespaceLabels != nil {
		a.endpoints[i].NamespaceLabels = patch.NamespaceLabels
	}
	return httpx.JSON(w, http.StatusOK, a.endpoints[i])
}

func (a *fakeAgent) delete(w http.ResponseWriter, r *http.Request) error {
	i, err := a.endpointByRef(r)
	if err != nil {
		return err
	}
	a.endpoints = slices.Delete(a.endpoints, i, i+1)
	return httpx.JSON(w, http.StatusOK, a.deleted(1))
}

func (a *fakeAgent) deleteContainer(w http.ResponseWriter, r *http.Request) error {
	body, err := httpx.Decode[v1.DeleteRequest](w, r)
	if err != nil {
		return err
	}
	before := len(a.endpoints)
	a.endpoints = slices.DeleteFunc(a.endpoints, func(ep v1.Endpoint) bool { return ep.ContainerID == body.ContainerID })
	return httpx.JSON(w, http.StatusOK, a.deleted(before-len(a.endpoints)))
}

func (a *fakeAgent) deleted(n int) v1.DeleteResult {
	if a.failing {
		return v1.DeleteResult{Errors: 1, Details: []string{"datapath: delete route 10.1.0.1/32: device busy"}}
	}
	return v1.DeleteResult{Deleted: n}
}

func (a *fakeAgent) ipam(w http.ResponseWriter, _ *http.Request) error {
	used := int64(len(a.endpoints))
	answer := v1.IPAM{Mode: "pod-cidr", Allocations: []v1.Allocation{}, Pools: []v1.Pool{{Name: "default", Ranges: []v1.Range{
		{Prefix: netip.MustParsePrefix("10.1.0.0/24"), Capacity: 253, Used: used, Quarantined: 1, Free: 252 - used},
	}}}}
	for _, ep := range a.endpoints {
		answer.Allocations = append(answer.Allocations, v1.Allocation{
			Address: ep.Addresses.IPv4, Pool: "default", Owner: shortID(ep.ContainerID) + ":" + ep.IfName, Since: ep.Created,
			ContainerID: ep.ContainerID, IfName: ep.IfName, Pod: ep.Pod,
		})
	}
	if a.delegated {
		answer.Mode, answer.Pools, answer.Allocations[0].Pool = "delegated", []v1.Pool{}, "external"
	}
	answer.Allocations = append(answer.Allocations, a.reservations()...)
	return httpx.JSON(w, http.StatusOK, answer)
}

// stream ends after the events there are, as of an agent that stops, also for who wants to follow.
func (a *fakeAgent) stream(w http.ResponseWriter, r *http.Request) error {
	since, _ := strconv.ParseUint(r.URL.Query().Get("since"), 10, 64)
	w.WriteHeader(http.StatusOK)
	for _, event := range a.events {
		if event.Seq > since {
			_ = json.NewEncoder(w).Encode(event)
		}
	}
	return nil
}
