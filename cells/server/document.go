package server

import (
	"net/http"

	"porin.dev/porin/api/v1/openapi"
)

// document answers GET /v1/openapi.json.
func document(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openapi.Document())
}
