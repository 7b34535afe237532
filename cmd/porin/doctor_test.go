package main

import (
	"net/http"
	"slices"
	"strings"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/httpx"
)

func (a *fakeAgent) resources() []v1.Resource {
	pool := v1.Resource{Name: "addresses/default/ipv4", Used: 247, Quarantined: 3, Capacity: 253, Available: true}
	ledger := v1.Resource{Name: "ledger", Available: true}
	if a.sick {
		pool = v1.Resource{Name: pool.Name, Used: 253, Capacity: 253, Reason: "0 of 253 left"}
		ledger = v1.Resource{Name: "ledger", Reason: "write the ledger: no space left on device"}
	}
	return []v1.Resource{pool, ledger}
}

// disagreements are of a part about addresses, and of another part.
func (a *fakeAgent) disagreements(about string) (all []v1.Finding) {
	if a.sick {
		all = append(all, v1.Finding{
			Kind: "address-orphan", Owner: "ipam", Subject: "[10.1.0.9] of c9:eth0", Detail: "there is no such endpoint",
			Repair: "it is released", Since: noon.Add(-time.Minute), Times: 2, Outcome: "device busy",
		})
		if about == "" {
			all = append(all, v1.Finding{
				Kind: "record-unreadable", Owner: "endpointmanager", Subject: "1a2b", Endpoint: strings.Repeat("1", 64) + ":eth0",
				Detail: "it is not JSON\x1b[2J", Repair: "look at it, and remove it", Manual: true, Since: noon, Times: 1,
			})
		}
	}
	return all
}

func (a *fakeAgent) doctor(w http.ResponseWriter, r *http.Request) error {
	return httpx.JSON(w, http.StatusOK, a.runDoctor(r))
}

func (a *fakeAgent) runDoctor(r *http.Request) v1.Doctor {
	about := r.URL.Query().Get("about")
	answer := v1.Doctor{
		Findings: append([]v1.Finding{}, a.disagreements(about)...), Examined: noon, Duration: 3 * time.Millisecond,
	}
	if only := r.URL.Query().Get("endpoint"); only != "" {
		answer.Findings = slices.DeleteFunc(answer.Findings, func(f v1.Finding) bool { return f.Endpoint != only })
	}
	if about != "" && a.outside {
		answer.Notes = []v1.Finding{{Kind: "resource-runs-out", Owner: "capacity", Subject: "endpoint-numbers", Detail: "none left"}}
	}
	if a.blind {
		answer.Errors = []string{"ipam: the ledger is closed"}
	}
	return answer
}

// repair repairs what is not manual.
func (a *fakeAgent) repair(w http.ResponseWriter, r *http.Request) error {
	answer := a.runDoctor(r)
	for i, f := range answer.Findings {
		if !f.Manual {
			answer.Repaired = append(answer.Repaired, f)
			answer.Findings = slices.Delete(answer.Findings, i, i+1)
			break
		}
	}
	return httpx.JSON(w, http.StatusOK, answer)
}

// trace knows a failed ADD of a pod, and what its endpoints' creation took.
func (a *fakeAgent) trace(w http.ResponseWriter, r *http.Request) error {
	list := []v1.Trace{}
	for _, event := range a.events {
		t := v1.Trace{
			Operation: event.Operation, Endpoint: event.Endpoint.ContainerID + ":" + event.Endpoint.IfName,
			Pod: podName(event.Endpoint.Pod), Began: noon, Duration: 1534 * time.Microsecond, Phases: slices.Clone(event.Phases),
		}
		if t.Pod == "" {
			t.Phases[1].Error = "no free address"
			t.Error = "allocate: no free address"
		}
		ref := r.URL.Query().Get("ref")
		if ref == "" || ref == t.Pod || ref == event.Endpoint.ContainerID {
			list = append(list, t)
		}
	}
	return httpx.JSON(w, http.StatusOK, list)
}

// gc withholds when all endpoints of the network would go.
func (a *fakeAgent) gc(w http.ResponseWriter, r *http.Request) error {
	body, err := httpx.Decode[v1.GCRequest](w, r)
	if err != nil {
		return err
	}
	stale := func(ep v1.Endpoint) bool {
		return ep.Network == body.Network && !slices.Contains(body.Valid, ep.ContainerID+":"+ep.IfName)
	}
	result := v1.GCResult{Stale: []string{}}
	for _, ep := range a.endpoints {
		if stale(ep) {
			result.Stale = append(result.Stale, ep.ContainerID+":"+ep.IfName)
		}
	}
	switch {
	case body.DryRun:
	case len(result.Stale) > 1:
		result.Withheld = "2 of 2 live attachments are not valid; call again to delete them"
	default:
		done := a.deleted(len(result.Stale))
		result.Deleted, result.Errors, result.Details = done.Deleted, done.Errors, done.Details
		a.endpoints = slices.DeleteFunc(a.endpoints, stale)
	}
	return httpx.JSON(w, http.StatusOK, result)
}
