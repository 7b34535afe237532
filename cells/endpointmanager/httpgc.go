package endpointmanager

import (
	"errors"
	"net/http"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

func (s routes) collect(w http.ResponseWriter, r *http.Request) error {
	body, err := httpx.Decode[v1.GCRequest](w, r)
	if err != nil {
		return err
	}
	gc, err := gcFromV1(body)
	if err != nil {
		return err
	}
	result := s.Manager.Collect(r.Context(), gc)
	for _, err := range result.Errors {
		if errors.Is(err, ErrStopped) || errors.Is(err, ErrPending) {
			return err
		}
	}
	return httpx.JSON(w, http.StatusOK, result.toV1())
}

// gcFromV1 refuses a call without a network: it would mean those that came without one.
func gcFromV1(body v1.GCRequest) (GC, error) {
	gc := GC{Network: body.Network, Valid: map[Attachment]bool{}, Began: time.Duration(body.Began), DryRun: body.DryRun}
	if body.Network == "" {
		return GC{}, fault.New(fault.Invalid, "network: want the name of a CNI network configuration")
	}
	if body.Began < 0 {
		return GC{}, errBegan
	}
	for _, text := range body.Valid {
		a, err := ParseAttachment(text)
		if err != nil {
			return GC{}, err
		}
		gc.Valid[a] = true
	}
	return gc, nil
}

func (r GCResult) toV1() v1.GCResult {
	deleted := resultToV1(r.DeleteResult)
	out := v1.GCResult{
		Stale: []string{}, Deleted: deleted.Deleted, Errors: deleted.Errors, Details: deleted.Details, Withheld: errorText(r.Withheld),
	}
	for _, a := range r.Stale {
		out.Stale = append(out.Stale, a.String())
	}
	return out
}
