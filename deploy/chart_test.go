// Package deploy tests the values of the chart. test/chart has the tests that render it.
package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"porin.dev/porin/internal/testutil/reference"
)

// schema is the part of values.schema.json that the table shows. A value is a schema without properties.
type schema struct {
	Ref                  string            `json:"$ref"`
	Defs                 map[string]schema `json:"$defs"`
	Type                 any
	Enum                 []string
	Description          string
	Properties           map[string]schema
	AdditionalProperties any
}

// values calls each with the path, the schema and the default of each value, by the alphabet.
func (s schema) values(defs map[string]schema, path string, value any, each func(path string, s schema, value any)) {
	if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
		s = defs[name]
	}
	if s.Properties == nil {
		each(strings.TrimPrefix(path, "."), s, value)
		return
	}
	group, _ := value.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		s.Properties[name].values(defs, path+"."+name, group[name], each)
	}
	for name := range group {
		if _, ok := s.Properties[name]; !ok {
			each(strings.TrimPrefix(path+"."+name, "."), schema{}, group[name])
		}
	}
}

func read(t *testing.T) (s schema, defaults any) {
	t.Helper()
	text, err := os.ReadFile("chart/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	if text, err = os.ReadFile("chart/values.yaml"); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &defaults); err != nil {
		t.Fatal(err)
	}
	return s, defaults
}

// TestChartValues: a value is in the schema, with a description, and in values.yaml.
func TestChartValues(t *testing.T) {
	s, defaults := read(t)
	count := 0
	s.values(s.Defs, "", defaults, func(path string, s schema, value any) {
		count++
		if s.Description == "" || value == nil {
			t.Errorf("%s: description %q, default %v: want both", path, s.Description, value)
		}
	})
	if count > 40 {
		t.Errorf("%d values, want at most 40", count)
	}
	t.Logf("%d values", count)
}

func TestChartReference(t *testing.T) {
	s, defaults := read(t)
	var rows [][]string
	s.values(s.Defs, "", defaults, func(path string, s schema, value any) {
		kind := strings.ReplaceAll(strings.Trim(fmt.Sprint(s.Type), "[]"), " ", " or ")
		if s.Enum != nil {
			kind = strings.Join(s.Enum, ", ")
		}
		shown, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, []string{reference.Code(path), kind, reference.Code(strings.Trim(string(shown), `"`)), s.Description})
	})
	reference.Check(t, "chart.md", "# Values of the chart\n\n"+
		"Of `deploy/chart` ([installation.md](../installation.md#on-kubernetes-by-the-chart-or-the-manifest)). A value that is unknown or wrong is refused with its name.\n\n"+
		reference.Table([]string{"value", "type", "default", "meaning"}, rows))
}
