package openapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"porin.dev/porin/api/v1/openapi"
)

// doc is the part of the document that the tests look at.
type doc struct {
	OpenAPI    string `json:"openapi"`
	Components struct {
		Schemas map[string]schema `json:"schemas"`
	} `json:"components"`
}

func read(t *testing.T) doc {
	t.Helper()
	var d doc
	if err := json.Unmarshal(openapi.Document(), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDocumentIsOpenAPI31AndItsReferencesLeadSomewhere(t *testing.T) {
	if got := read(t).OpenAPI; got != "3.1.0" {
		t.Errorf("openapi %q", got)
	}
	var tree any
	if err := json.Unmarshal(openapi.Document(), &tree); err != nil {
		t.Fatal(err)
	}
	walkRefs(tree, func(ref string) {
		node := tree
		for _, part := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
			object, _ := node.(map[string]any)
			node = object[part]
		}
		if node == nil {
			t.Errorf("%s leads nowhere", ref)
		}
	})
}

func walkRefs(node any, visit func(ref string)) {
	switch node := node.(type) {
	case map[string]any:
		if ref, ok := node["$ref"].(string); ok {
			visit(ref)
		}
		for _, child := range node {
			walkRefs(child, visit)
		}
	case []any:
		for _, child := range node {
			walkRefs(child, visit)
		}
	}
}

func TestCheckRoutesNamesWhatIsMissingOnEitherSide(t *testing.T) {
	nothing := func(http.ResponseWriter, *http.Request) {}
	r := chi.NewRouter()
	r.Route("/v1/endpoint", func(r chi.Router) {
		r.Get("/", nothing)
		r.Delete("/", nothing)
		r.Get("/{ref}", nothing)
		r.Put("/{attachment}", nothing)
		r.Delete("/{ref}", nothing)
	})
	for _, path := range []string{"/v1/ipam", "/v1/status", "/v1/doctor", "/v1/trace", "/v1/events", "/v1/openapi.json"} {
		r.Get(path, nothing)
	}
	r.Post("/v1/doctor", nothing)
	r.Post("/v1/cni", nothing)
	r.Post("/v1/gc", nothing)
	r.Post("/v1/restore/accept", nothing)
	r.Post("/v1/ipam", nothing)
	r.Delete("/v1/ipam/{ip}", nothing)
	r.Get("/v1/pool", nothing)
	r.Get("/v1/node", nothing)
	r.Post("/v1/node/{name}/delete", nothing)
	r.Post("/v1/node/{name}/reset", nothing)
	r.Get("/v1/recovery", nothing)
	r.Post("/v1/recovery", nothing)
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
		r.Method(method, "/v1/pool/{name}", http.HandlerFunc(nothing))
	}
	if err := openapi.CheckRoutes(r); err != nil {
		t.Errorf("all routes: %v", err)
	}

	r.Post("/v1/surprise", nothing)
	if err := openapi.CheckRoutes(r); err == nil || err.Error() != "POST /v1/surprise is served, and not in openapi.json" {
		t.Errorf("a route too many: %v", err)
	}

	err := openapi.CheckRoutes(chi.NewRouter())
	if err == nil || !strings.Contains(err.Error(), "PUT /v1/endpoint/{} is in openapi.json, and not served") {
		t.Errorf("no routes: %v", err)
	}
}
