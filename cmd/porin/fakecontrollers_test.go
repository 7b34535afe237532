package main

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// controllers has one working loop, and one that fails when the agent is sick.
func (a *fakeAgent) controllers(w http.ResponseWriter, _ *http.Request) error {
	last, next := noon.Add(-10*time.Second), noon.Add(20*time.Second)
	list := []v1.Controller{
		{Name: "doctor-examine", Runs: 12, Duration: 37 * time.Millisecond, LastRun: &last, Next: &next},
		{Name: "multipool-reconcile"},
	}
	if a.sick {
		list[0].Failures, list[0].Error = 3, "no answer in time"
	}
	return httpx.JSON(w, http.StatusOK, list)
}

func (a *fakeAgent) runController(w http.ResponseWriter, r *http.Request) error {
	if chi.URLParam(r, "name") != "doctor-examine" {
		return fault.New(fault.NotFound, "no such controller: porin status --controllers lists them")
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// health is degraded when the agent is sick.
func (a *fakeAgent) health() v1.Health {
	health := v1.Health{State: "ok", Cells: []v1.Condition{{Cell: "endpointmanager", State: "ok"}, {Cell: "tasks", State: "ok"}}}
	if a.sick {
		health.State, health.Cells[1] = "degraded", v1.Condition{
			Cell: "tasks", State: "degraded", Reason: "doctor-examine has failed 3 times in a row: no answer in time",
		}
	}
	return health
}
