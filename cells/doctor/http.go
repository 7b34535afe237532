package doctor

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// routes are the doctor's part of the API.
type routes struct{ doctor *Doctor }

// Mount is server.Routes.
func (rt *routes) Mount(r chi.Router) {
	r.Method(http.MethodGet, "/v1/doctor", httpx.Handler(rt.examine))
}

func (rt *routes) examine(w http.ResponseWriter, r *http.Request) error {
	only := r.URL.Query().Get("endpoint")
	if err := checkAttachment(only); err != nil {
		return err
	}
	answer, err := rt.doctor.Examine(r.Context(), only)
	if err != nil {
		return err
	}
	return httpx.JSON(w, http.StatusOK, answer)
}

// checkAttachment takes containerID:ifname, and "" for all.
func checkAttachment(text string) error {
	if text == "" {
		return nil
	}
	containerID, ifname, _ := strings.Cut(text, ":")
	if v1.CheckContainerID(containerID) != nil || v1.CheckInterfaceName(ifname) != nil {
		return fault.New(fault.Invalid, fmt.Sprintf("endpoint=%.64q: want an attachment, containerID:ifname", text))
	}
	return nil
}
