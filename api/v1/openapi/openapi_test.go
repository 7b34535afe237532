package openapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"porin.dev/porin/api/v1/openapi"
	"porin.dev/porin/api/v1/openapi/openapitest"
)

// doc is the part of the document that the tests look at.
type doc struct {
	OpenAPI    string                    `json:"openapi"`
	Paths      map[string]map[string]any `json:"paths"`
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

func TestDocumentReferences(t *testing.T) {
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

// TestCheckRoutes serves each call of the document, then one more, then none. cmd/agent checks the agent's own routes.
func TestCheckRoutes(t *testing.T) {
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	r := chi.NewRouter()
	for path, methods := range read(t).Paths {
		for method := range methods {
			if method != "parameters" {
				r.Method(strings.ToUpper(method), path, nothing)
			}
		}
	}
	if err := openapitest.CheckRoutes(r); err != nil {
		t.Errorf("all routes: %v", err)
	}

	r.Method(http.MethodPost, "/v1/surprise", nothing)
	if err := openapitest.CheckRoutes(r); err == nil || err.Error() != "POST /v1/surprise is served, and not in openapi.json" {
		t.Errorf("a route too many: %v", err)
	}

	err := openapitest.CheckRoutes(chi.NewRouter())
	if err == nil || !strings.Contains(err.Error(), "PUT /v1/endpoint/{} is in openapi.json, and not served") {
		t.Errorf("no routes: %v", err)
	}
}
