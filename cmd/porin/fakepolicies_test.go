package main

import (
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// fakePolicies are the policies of a fake agent. A manifest is a line of kind, namespace ("-" for none) and name.
type fakePolicies struct {
	all     []v1.Policy
	failing bool // the datapath refuses changes
	audit   bool // the agent runs with --policy-audit
}

func (f *fakePolicies) mount(r chi.Router) {
	r.Method(http.MethodGet, "/v1/policy", httpx.Handler(func(w http.ResponseWriter, _ *http.Request) error {
		return httpx.JSON(w, http.StatusOK, append([]v1.Policy{}, f.all...))
	}))
	r.Method(http.MethodPut, "/v1/policy", httpx.Handler(f.put))
	r.Method(http.MethodGet, "/v1/policy/explain", httpx.Handler(f.explain))
	r.Method(http.MethodPost, "/v1/policy/diff", httpx.Handler(f.diff))
	for _, path := range []string{"/v1/policy/{kind}/{name}", "/v1/policy/{kind}/{namespace}/{name}"} {
		r.Method(http.MethodGet, path, httpx.Handler(f.get))
		r.Method(http.MethodDelete, path, httpx.Handler(f.delete))
	}
}

func (f *fakePolicies) status() v1.PolicyStatus {
	status := v1.PolicyStatus{Audit: f.audit, Policies: len(f.all), Identities: 7 + len(f.all), Revision: 12}
	for _, p := range f.all {
		for _, text := range p.Reports {
			status.Reports = append(status.Reports, v1.PolicyReport{Policies: []string{policyName(p.Kind, p.Namespace, p.Name)}, Text: text})
		}
	}
	if f.failing {
		status.Error, status.FailedSince = "policies: no space left on device", noon
	}
	return status
}

func (f *fakePolicies) put(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	answer := []v1.Policy{}
	for line := range strings.Lines(string(body)) {
		words := strings.Fields(line)
		if len(words) < 3 {
			return fault.New(fault.Invalid, "document 1, line 2: unknown field \"spec.podSelectors\"")
		}
		p := v1.Policy{Kind: words[0], Name: words[2], Tier: "networkpolicy", Egress: -1, Ingress: 2, Source: "file", Outcome: "created", Audit: len(words) > 3}
		if words[1] != "-" {
			p.Namespace = words[1]
		} else {
			p.Tier, p.Priority, p.Egress = "admin", 7, 1
			p.Reports = []string{"equal priority 7 in tier admin: evaluated in the order of kind and name"}
		}
		answer = append(answer, p)
		p.Outcome = ""
		if r.URL.Query().Get("dryRun") == "" {
			f.all = append(f.all, p)
		}
	}
	return httpx.JSON(w, http.StatusOK, answer)
}

func (f *fakePolicies) find(r *http.Request) (int, error) {
	i := slices.IndexFunc(f.all, func(p v1.Policy) bool {
		return p.Kind == chi.URLParam(r, "kind") && p.Namespace == chi.URLParam(r, "namespace") && p.Name == chi.URLParam(r, "name")
	})
	if i < 0 {
		return 0, fault.New(fault.NotFound, "no such policy")
	}
	return i, nil
}

func (f *fakePolicies) get(w http.ResponseWriter, r *http.Request) error {
	i, err := f.find(r)
	if err != nil {
		return err
	}
	p := f.all[i]
	p.Manifest = []byte(`{"kind":"` + p.Kind + `"}`)
	return httpx.JSON(w, http.StatusOK, p)
}

func (f *fakePolicies) delete(w http.ResponseWriter, r *http.Request) error {
	i, err := f.find(r)
	if err != nil {
		return err
	}
	f.all = slices.Delete(f.all, i, i+1)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// diff has two connections decided otherwise when a policy is proposed, and none when one is deleted.
func (f *fakePolicies) diff(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	answer := v1.PolicyDiff{Flows: 345, Since: noon.Add(-10 * time.Minute), Changes: []v1.PolicyFlowChange{}}
	if len(body) == 0 && r.URL.Query().Get("delete") != "NetworkPolicy/default/web" {
		return fault.New(fault.Invalid, "delete "+r.URL.Query().Get("delete"))
	}
	allowed, denied := v1.PolicyDecision{Allowed: true, Reason: "no policy selects the pod"}, v1.PolicyDecision{
		Reason: "default deny", Rule: &v1.PolicyRule{Kind: "NetworkPolicy", Namespace: "default", Policy: "web", Direction: "ingress", Index: -1},
	}
	limited := v1.PolicyDecision{Allowed: true, Reason: "rule", Layer7: []string{"GET /"}}
	web := v1.PolicyEnd{Address: netip.MustParseAddr("10.1.0.1"), Kind: "pod", Pod: v1.Pod{Namespace: "default", Name: "web-1"}, Endpoint: 1}
	outside := v1.PolicyEnd{Address: netip.MustParseAddr("192.0.2.1"), Kind: "world"}
	if strings.Contains(string(body), "from-stdin") {
		answer.Flows, answer.Since = 0, time.Time{}
	} else if len(body) > 0 {
		answer.Changed = 4
		answer.Changes = append(answer.Changes, v1.PolicyFlowChange{
			From: outside, To: web, Protocol: "TCP", Port: 80, Count: 12, LastSeen: noon,
			Now: v1.PolicyVerdict{Allowed: true, Egress: allowed, Ingress: allowed}, Then: v1.PolicyVerdict{Egress: allowed, Ingress: denied},
		}, v1.PolicyFlowChange{
			From: web, To: outside, Protocol: "ICMP", Count: 1, LastSeen: noon,
			Now: v1.PolicyVerdict{Egress: denied, Ingress: allowed}, Then: v1.PolicyVerdict{Allowed: true, Egress: allowed, Ingress: allowed},
		}, v1.PolicyFlowChange{
			From: outside, To: web, Protocol: "TCP", Port: 81, Count: 1, LastSeen: noon,
			Now: v1.PolicyVerdict{Allowed: true, Egress: limited, Ingress: allowed}, Then: v1.PolicyVerdict{Allowed: true, Egress: allowed, Ingress: allowed},
		})
	}
	return httpx.JSON(w, http.StatusOK, answer)
}

// explain denies what is for port 81.
func (f *fakePolicies) explain(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	port, _ := strconv.ParseUint(query.Get("port"), 10, 16)
	answer := v1.PolicyExplanation{
		From:     v1.PolicyEnd{Address: netip.MustParseAddr("10.1.0.1"), Kind: "pod", Pod: v1.Pod{Namespace: "default", Name: "web-1"}, Endpoint: 1},
		To:       v1.PolicyEnd{Address: netip.MustParseAddr("192.0.2.1"), Kind: "world"},
		Protocol: strings.ToUpper(query.Get("protocol")), Port: uint16(port), Allowed: port != 81,
		Egress: v1.PolicyDecision{
			Allowed: true, Reason: "rule", Rule: &v1.PolicyRule{Kind: "NetworkPolicy", Namespace: "default", Policy: "web", Direction: "egress", Index: 1},
			Passed: []v1.PolicyRule{{Kind: "ClusterNetworkPolicy", Policy: "all", Direction: "egress", Name: "pass-on"}},
		},
		Ingress:  v1.PolicyDecision{Allowed: true, Reason: "not a pod"},
		Datapath: v1.PolicyDatapath{Egress: new(port != 82), Differs: port == 82},
	}
	if port == 8080 {
		answer.Egress.Layer7 = []string{"GET /public/.*", "POST /orders"}
		answer.To.Names = []string{"www.example.com", "www.example.org"}
	}
	if port == 8081 {
		answer.From = v1.PolicyEnd{Address: netip.MustParseAddr("10.1.0.7"), Kind: "pod", Endpoint: 7, Held: true}
		answer.Egress.Layer7, answer.ProxyError = []string{"GET /"}, "porin-proxy is not connected\nEOF"
	}
	if port == 443 {
		answer.Datapath = v1.PolicyDatapath{Egress: new(true), Ingress: new(true)}
	}
	if port == 9090 {
		answer.Ingress.Reason = v1.ReasonOtherNode
	}
	if port == 22 {
		answer.AuditEgress = &v1.PolicyDecision{Reason: "default deny", Rule: &v1.PolicyRule{Kind: "NetworkPolicy", Namespace: "default", Policy: "web", Direction: "egress", Index: -1}}
	}
	if port == 53 {
		answer.Datapath = v1.PolicyDatapath{NotAsked: "neither end is a pod of this node"}
	}
	if port == 81 {
		answer.Datapath.Egress = new(false)
		answer.Egress = v1.PolicyDecision{Reason: "default deny", Rule: &v1.PolicyRule{Kind: "NetworkPolicy", Namespace: "default", Policy: "web", Direction: "egress", Index: -1}}
	}
	if query.Get("to") != "192.0.2.1" {
		return fault.New(fault.NotFound, "to: endpoint "+query.Get("to")+": no such endpoint")
	}
	if f.failing {
		answer.Error = "policies: no space left on device"
	}
	return httpx.JSON(w, http.StatusOK, answer)
}
