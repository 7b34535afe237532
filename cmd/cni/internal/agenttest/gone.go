package agenttest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/boottime"
)

// del insists on what the plugin must say of every deletion.
func (f *Fake) del(w http.ResponseWriter, r *http.Request, attachment string) {
	began, err := strconv.ParseInt(r.URL.Query().Get("began"), 10, 64)
	if err != nil || began <= 0 {
		problem(w, http.StatusInternalServerError, v1.CodeInternal, "a deletion that does not say when it began")
		return
	}
	timeout, _ := time.ParseDuration(r.Header.Get(v1.TimeoutHeader))
	f.mu.Lock()
	f.deletions = append(f.deletions, Deletion{attachment, began, timeout})
	f.mu.Unlock()
	answer(w, f.delete(attachment, began))
}

// delete takes down an endpoint that did not begin after the deletion did.
func (f *Fake) delete(attachment string, began int64) v1.DeleteResult {
	f.mu.Lock()
	f.deleted[attachment] = max(f.deleted[attachment], began)
	ep, ok := f.endpoints[attachment]
	spare := ok && f.began[attachment] > began
	if !spare {
		delete(f.endpoints, attachment)
	}
	f.mu.Unlock()
	switch {
	case !ok:
		return v1.DeleteResult{}
	case spare:
		return v1.DeleteResult{Spared: 1}
	}
	if f.Gone != nil {
		f.Gone(ep)
	}
	return v1.DeleteResult{Deleted: 1}
}

// cross is a PUT that a DEL overtakes.
func (f *Fake) cross(w http.ResponseWriter, r *http.Request) {
	var request v1.EndpointRequest
	_ = json.NewDecoder(r.Body).Decode(&request)
	f.mu.Lock()
	f.deleted[strings.TrimPrefix(r.URL.Path, "/v1/endpoint/")] = boottime.Now().Nanoseconds()
	f.mu.Unlock()
	if f.Gone != nil {
		f.Gone(v1.Endpoint{Host: request.Host})
	}
	problem(w, http.StatusNotFound, v1.CodeNotFound, "the interface is not there")
}

// gc takes down what is not valid.
func (f *Fake) gc(w http.ResponseWriter, r *http.Request) {
	var request v1.GCRequest
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&request); err != nil {
		problem(w, http.StatusBadRequest, v1.CodeInvalid, err.Error())
		return
	}
	result := v1.GCResult{Stale: f.stale(request)}
	f.mu.Lock()
	f.lastGC = request
	withheld, failing := f.behaviour.Withhold > 0, f.behaviour.Failing
	if withheld && !request.DryRun {
		f.behaviour.Withhold--
		result.Withheld = "all of them are not valid"
	}
	f.mu.Unlock()
	if !withheld && !request.DryRun {
		for _, attachment := range result.Stale {
			result.Deleted += f.delete(attachment, request.Began).Deleted
		}
	}
	if failing {
		result.Errors, result.Details = 1, []string{"datapath: device busy"}
	}
	answer(w, result)
}

func (f *Fake) stale(request v1.GCRequest) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := []string{}
	for attachment, ep := range f.endpoints {
		if ep.Network == request.Network && f.began[attachment] < request.Began && !slices.Contains(request.Valid, attachment) {
			list = append(list, attachment)
		}
	}
	slices.Sort(list)
	return list
}

func (f *Fake) doctor(w http.ResponseWriter, attachment string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer(w, v1.Doctor{Findings: append([]v1.Finding{}, f.behaviour.Findings[attachment]...), Examined: time.Now()})
}
