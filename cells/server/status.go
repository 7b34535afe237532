package server

import (
	"net/http"
	"os"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/httpx"
)

// status answers GET /v1/status with what the server knows and what every [Reporter] adds.
func (s *Server) status() httpx.Handler {
	return func(w http.ResponseWriter, _ *http.Request) error {
		status := v1.Status{
			Version:   s.info.Version,
			Node:      s.info.Node,
			PID:       os.Getpid(),
			Started:   s.started,
			Ready:     s.serving.Load(),
			Endpoints: map[string]int{}, // {} and [] in JSON, also when nobody reports
			Datapath:  v1.Datapath{Programs: []v1.Program{}},
			Resources: []v1.Resource{},
		}
		for _, reporter := range s.parts.Reporters {
			reporter.Report(&status)
		}
		return httpx.JSON(w, http.StatusOK, status)
	}
}
