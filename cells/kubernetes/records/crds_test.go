package records_test

import (
	"encoding"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/kubernetes/records/recordstest"
)

const crdsFile = "../../../deploy/chart/templates/crds.yaml"

// schema is the part of a schema that says which fields there are.
type schema struct {
	Type                 string
	Properties           map[string]schema
	Items                *schema
	AdditionalProperties *schema
}

// TestCRDs: the API server drops fields that a CRD does not have. Each field of a record is there with its type, and no
// other.
func TestCRDs(t *testing.T) {
	text, err := os.ReadFile(crdsFile)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 100_000 {
		t.Errorf("the CRDs have %d bytes, want at most 100,000", len(text))
	}
	schemas := map[string]schema{}
	for _, document := range strings.Split(string(text), "\n---\n") {
		var crd struct {
			Spec struct {
				Names    struct{ Kind, Plural string }
				Versions []struct {
					Schema struct{ OpenAPIV3Schema schema }
				}
			}
		}
		if err := yaml.Unmarshal([]byte(document), &crd); err != nil {
			t.Fatal(err)
		}
		schemas[crd.Spec.Names.Plural] = crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	}
	records := map[string]any{
		"porinnodes": cluster.Node{}, "porinsessions": cluster.Session{}, "porinpools": cluster.Pool{}, "porinblocks": cluster.Block{}, "porinclusters": cluster.ClusterInfo{},
		"porinnetworks": cluster.NodeNetwork{}, "porinendpointgroups": cluster.EndpointGroup{},
	}
	for plural, record := range records {
		compare(t, plural, reflect.TypeOf(record), schemas[plural])
	}
	for _, r := range recordstest.Resources() {
		if _, ok := schemas[r.Resource]; !ok || len(schemas) != len(records) {
			t.Errorf("CRDs of %v, want one of %s and of no more than the records", slices.Sorted(maps.Keys(schemas)), r.Resource)
		}
	}
}

func compare(t *testing.T, path string, of reflect.Type, s schema) {
	t.Helper()
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	want := ""
	switch {
	case of.Implements(reflect.TypeFor[encoding.TextMarshaler]()), of.Kind() == reflect.String:
		want = "string"
	case of.Kind() == reflect.Struct:
		want = "object"
		fields := map[string]reflect.Type{}
		for i := range of.NumField() {
			if name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ","); name != "-" {
				fields[name] = of.Field(i).Type
			}
		}
		for name := range s.Properties {
			if fields[name] == nil {
				t.Errorf("%s.%s is in the CRD, and in no record", path, name)
			}
		}
		for name, field := range fields {
			compare(t, path+"."+name, field, s.Properties[name])
		}
	case of.Kind() == reflect.Map:
		want = "object"
		compare(t, path+"[]", of.Elem(), *s.AdditionalProperties)
	case of.Kind() == reflect.Slice:
		want = "array"
		if s.Items != nil {
			compare(t, path+"[]", of.Elem(), *s.Items)
		}
	case of.Kind() == reflect.Bool:
		want = "boolean"
	default:
		want = "integer"
	}
	if s.Type != want {
		t.Errorf("%s: type %q in the CRD, want %q", path, s.Type, want)
	}
}
