// Package openapitest holds the routes of an agent against the document of its API.
package openapitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"porin.dev/porin/api/v1/openapi"
)

// CheckRoutes returns an error for every route that the document lacks, and for every call in the document that
// routes do not take. The names of path parameters do not matter.
func CheckRoutes(routes chi.Routes) error {
	served, err := servedCalls(routes)
	if err != nil {
		return err
	}
	documented, err := documentedCalls()
	if err != nil {
		return err
	}
	var faults []error
	for _, call := range served {
		if !slices.Contains(documented, call) {
			faults = append(faults, fmt.Errorf("%s is served, and not in openapi.json", call))
		}
	}
	for _, call := range documented {
		if !slices.Contains(served, call) {
			faults = append(faults, fmt.Errorf("%s is in openapi.json, and not served", call))
		}
	}
	return errors.Join(faults...)
}

func servedCalls(routes chi.Routes) (calls []string, err error) {
	err = chi.Walk(routes, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		calls = append(calls, call(method, route))
		return nil
	})
	return calls, err
}

func documentedCalls() (calls []string, err error) {
	var doc struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal(openapi.Document(), &doc); err != nil {
		return nil, fmt.Errorf("read openapi.json: %w", err)
	}
	for path, item := range doc.Paths {
		for key := range item {
			if key != "parameters" { // the one key of a path that is no method
				calls = append(calls, call(key, path))
			}
		}
	}
	slices.Sort(calls)
	return calls, nil
}

var parameter = regexp.MustCompile(`\{[^}]*\}`)

// call is "GET /v1/endpoint/{}": without the parameter's name, and without the slash at the end that chi's
// sub-routers add.
func call(method, path string) string {
	path = strings.TrimSuffix(path, "/")
	return strings.ToUpper(method) + " " + parameter.ReplaceAllString(path, "{}")
}
