package openapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
	"porin.dev/porin/internal/testutil/reference"
)

// operation is what the page of the API shows of a call.
type operation struct {
	Method, Path         string
	Summary, Description string
	Parameters           []parameterOf
	RequestBody          struct{ Content content }
	Responses            map[string]struct {
		Description string
		Content     content
	}
}

type parameterOf struct {
	Name, In, Description string
	Ref                   string `json:"$ref"`
}

type content map[string]struct {
	Schema struct {
		Ref   string `json:"$ref"`
		Items struct {
			Ref string `json:"$ref"`
		}
	}
}

// schema is the name of the schema of a body, "" without one.
func (c content) schema() string {
	for _, body := range c {
		if item := body.Schema.Items.Ref; item != "" {
			return "list of " + path.Base(item)
		}
		if body.Schema.Ref != "" {
			return path.Base(body.Schema.Ref)
		}
	}
	return ""
}

func operations(t *testing.T) (all []operation, shared map[string]parameterOf) {
	t.Helper()
	var doc struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct{ Parameters map[string]parameterOf }
	}
	if err := json.Unmarshal(Document(), &doc); err != nil {
		t.Fatal(err)
	}
	for path, item := range doc.Paths {
		var ofPath []parameterOf
		if raw, ok := item["parameters"]; ok {
			if err := json.Unmarshal(raw, &ofPath); err != nil {
				t.Fatal(err)
			}
			delete(item, "parameters")
		}
		for method, raw := range item {
			op := operation{Method: strings.ToUpper(method), Path: path}
			if err := json.Unmarshal(raw, &op); err != nil {
				t.Fatal(err)
			}
			op.Parameters = append(ofPath, op.Parameters...)
			all = append(all, op)
		}
	}
	slices.SortFunc(all, func(a, b operation) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Method, b.Method))
	})
	return all, doc.Components.Parameters
}

func TestAPIReference(t *testing.T) {
	all, shared := operations(t)
	var calls strings.Builder
	var everywhere [][]string
	for name, p := range shared {
		everywhere = append(everywhere, []string{reference.Code(p.Name), p.In, p.Description, name})
	}
	slices.SortFunc(everywhere, slices.Compare)
	for _, op := range all {
		fmt.Fprintf(&calls, "\n## %s %s\n\n%s.\n", op.Method, op.Path, op.Summary)
		if op.Description != "" {
			fmt.Fprintf(&calls, "%s\n", op.Description)
		}
		var rows [][]string
		for _, p := range op.Parameters {
			if p.Ref != "" {
				p = shared[path.Base(p.Ref)]
			}
			if p.In != "header" { // which all calls take
				rows = append(rows, []string{reference.Code(p.Name), p.In, p.Description})
			}
		}
		if body := op.RequestBody.Content.schema(); body != "" {
			rows = append(rows, []string{"", "body", body})
		}
		for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
			if status != "default" {
				answer := op.Responses[status]
				meaning := answer.Description
				if schema := answer.Content.schema(); schema != "" {
					meaning = schema + ": " + meaning
				}
				rows = append(rows, []string{"", "answer " + status, meaning})
			}
		}
		calls.WriteString("\n" + reference.Table([]string{"name", "where", "meaning"}, rows))
	}
	var problems [][]string
	for _, kind := range fault.Kinds() {
		problems = append(problems, []string{reference.Code(string(kind)), fmt.Sprint(httpx.Status(kind))})
	}
	reference.Check(t, "api.md", `# API

JSON over the agent's Unix socket. The agent itself serves the whole description, with the schemas that this page names:
`+"`GET /v1/openapi.json`, which is [openapi.json](../../api/v1/openapi/openapi.json). `api/v1/client`"+` is a Go client.

Parameters that calls share:

`+reference.Table([]string{"name", "where", "meaning", "in openapi.json"}, everywhere)+`
Every failure is a Problem with one of these codes:

`+reference.Table([]string{"code", "HTTP status"}, problems)+calls.String())
}
