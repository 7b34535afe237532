package supervisor

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// routes are GET /v1/controller and POST /v1/controller/{name}/run.
type routes struct{ *Supervisor }

// Mount implements server.Routes.
func (s routes) Mount(r chi.Router) {
	r.Method(http.MethodGet, "/v1/controller", httpx.Handler(s.list))
	r.Method(http.MethodPost, "/v1/controller/{name}/run", httpx.Handler(s.run))
}

func (s routes) list(w http.ResponseWriter, _ *http.Request) error {
	list := []v1.Controller{}
	for _, t := range s.Tasks() {
		c := v1.Controller{Name: t.Name, Runs: t.Runs, Failures: t.Failures, Duration: t.Duration, Error: fault.Text(t.Err)}
		if !t.LastRun.IsZero() {
			c.LastRun = &t.LastRun
		}
		if t.Next.After(time.Now()) {
			c.Next = &t.Next
		}
		list = append(list, c)
	}
	return httpx.JSON(w, http.StatusOK, list)
}

// ErrNoTask is returned for a name that no task has.
var ErrNoTask = fault.New(fault.NotFound, "no such controller: porin status --controllers lists them")

func (s routes) run(w http.ResponseWriter, r *http.Request) error {
	name, err := httpx.Param(r, "name")
	if err != nil {
		return err
	}
	for _, t := range s.tasks {
		if t.Status().Name != name {
			continue
		}
		if !t.HasRounds() {
			return fault.Wrap(fault.Invalid, errors.New("controller "+name+" runs all the time: it cannot be told to run now"))
		}
		t.Trigger()
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return fmt.Errorf("run %.64s: %w", name, ErrNoTask)
}
