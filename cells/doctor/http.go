package doctor

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
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
	r.Method(http.MethodPost, "/v1/doctor", httpx.Handler(rt.repair))
}

func (rt *routes) examine(w http.ResponseWriter, r *http.Request) error {
	s := Scope{Endpoint: r.URL.Query().Get("endpoint"), About: r.URL.Query().Get("about")}
	if err := errors.Join(checkAttachment(s.Endpoint), rt.checkAbout(s.About)); err != nil {
		return err
	}
	answer, err := rt.doctor.Examine(r.Context(), s)
	if err != nil {
		return err
	}
	return httpx.JSON(w, http.StatusOK, answer)
}

func (rt *routes) repair(w http.ResponseWriter, r *http.Request) error {
	about := r.URL.Query().Get("about")
	if err := rt.checkAbout(about); err != nil {
		return err
	}
	answer, err := rt.doctor.Repair(r.Context(), about)
	if err != nil {
		return err
	}
	return httpx.JSON(w, http.StatusOK, answer)
}

// checkAbout accepts the values of [Scope].About.
func (rt *routes) checkAbout(text string) error {
	known := rt.doctor.scopes()
	if text == "" || slices.Contains(known, text) {
		return nil
	}
	return fault.New(fault.Invalid, fmt.Sprintf("about=%.64q: want one of %s", text, strings.Join(known, ", ")))
}

// checkAttachment accepts containerID:ifname, and "" for all.
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
