package openapi_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "porin.dev/porin/api/v1"
)

// schema is the part of a JSON schema that a Go type decides.
type schema struct {
	Ref                  string            `json:"$ref,omitempty"`
	Type                 string            `json:"type,omitempty"`
	Format               string            `json:"format,omitempty"`
	Properties           map[string]schema `json:"properties,omitempty"`
	Required             []string          `json:"required,omitempty"`
	Items                *schema           `json:"items,omitempty"`
	AdditionalProperties any               `json:"additionalProperties,omitempty"`
}

// types are all Go types that are whole bodies or parts of one.
var types = []any{
	v1.AcceptRequest{}, v1.Addresses{}, v1.Allocation{}, v1.Bandwidth{}, v1.CNICall{}, v1.ClusterHealth{}, v1.HealthEndpoint{}, v1.NodeHealth{}, v1.HealthFault{}, v1.HealthProbe{}, v1.Condition{}, v1.Controller{}, v1.Counter{}, v1.Datapath{}, v1.DeleteRequest{}, v1.DeleteResult{}, v1.Doctor{},
	v1.Endpoint{}, v1.EndpointRequest{}, v1.EndpointPatch{}, v1.NamedPort{}, v1.Event{}, v1.Flow{}, v1.FlowEnd{}, v1.HTTPRequest{}, v1.DNSQuery{}, v1.Finding{}, v1.Findings{}, v1.GCRequest{}, v1.GCResult{}, v1.Health{}, v1.Held{}, v1.HeldEndpoint{}, v1.IPAM{}, v1.Interface{},
	v1.Node{}, v1.NodeBlock{}, v1.NetworkStatus{}, v1.PortMapping{}, v1.MasqueradeStatus{}, v1.ProxyStatus{}, v1.TunnelStatus{}, v1.Peer{}, v1.PeerBlock{}, v1.NodeDeletion{}, v1.NodeReset{}, v1.Recovery{}, v1.UnwrittenNode{}, v1.RecoveryRequest{},
	v1.Policy{}, v1.PolicyStatus{}, v1.PolicyReport{}, v1.EndpointPolicy{}, v1.PolicyExplanation{}, v1.PolicyDatapath{}, v1.PolicyDiff{}, v1.PolicyFlowChange{}, v1.PolicyVerdict{}, v1.PolicyEnd{}, v1.PolicyDecision{}, v1.PolicyRule{},
	v1.Phase{}, v1.Pod{}, v1.Pool{}, v1.PoolBlock{}, v1.PoolSpec{}, v1.PoolUse{}, v1.Problem{}, v1.Program{}, v1.Range{}, v1.Reservation{}, v1.ReservationRequest{}, v1.Resource{}, v1.Restored{},
	v1.RestoredEndpoint{}, v1.Status{}, v1.KubernetesStatus{}, v1.KubernetesKind{}, v1.RecoveryStatus{}, v1.BlockConflict{}, v1.Trace{}, v1.Traffic{}, v1.Unmanaged{},
}

// requests are refused with fields that are not known.
var requests = []reflect.Type{
	reflect.TypeFor[v1.EndpointRequest](), reflect.TypeFor[v1.EndpointPatch](), reflect.TypeFor[v1.Bandwidth](), reflect.TypeFor[v1.NamedPort](), reflect.TypeFor[v1.PortMapping](), reflect.TypeFor[v1.DeleteRequest](), reflect.TypeFor[v1.GCRequest](),
	reflect.TypeFor[v1.AcceptRequest](),
	reflect.TypeFor[v1.ReservationRequest](), reflect.TypeFor[v1.PoolSpec](),
	reflect.TypeFor[v1.NodeDeletion](), reflect.TypeFor[v1.NodeReset](), reflect.TypeFor[v1.RecoveryRequest](),
}

func TestSchemas(t *testing.T) {
	schemas := read(t).Components.Schemas
	for _, value := range types {
		typ := reflect.TypeOf(value)
		want := structSchema(typ)
		if slices.Contains(requests, typ) {
			want.AdditionalProperties = false
		}
		got, ok := schemas[typ.Name()]
		if !ok {
			t.Errorf("openapi.json has no schema %s", typ.Name())
			continue
		}
		if diff := cmp.Diff(want, onlyTyped(got)); diff != "" {
			t.Errorf("schema %s (-Go +openapi.json):\n%s", typ.Name(), diff)
		}
		delete(schemas, typ.Name())
	}
	for name := range schemas {
		t.Errorf("openapi.json has a schema %s, and no Go type is of that name", name)
	}
}

func structSchema(typ reflect.Type) schema {
	s := schema{Type: "object", Properties: map[string]schema{}}
	for field := range fields(typ) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		s.Properties[name] = schemaOf(field.Type)
		if options == "" {
			s.Required = append(s.Required, name)
		}
	}
	slices.Sort(s.Required)
	return s
}

func fields(typ reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range typ.NumField() {
			if !yield(typ.Field(i)) {
				return
			}
		}
	}
}

func schemaOf(typ reflect.Type) schema {
	switch typ {
	case reflect.TypeFor[v1.MAC]():
		return schema{Type: "string"}
	case reflect.TypeFor[time.Time]():
		return schema{Type: "string", Format: "date-time"}
	case reflect.TypeFor[netip.Addr](), reflect.TypeFor[netip.Prefix]():
		return schema{Type: "string"}
	}
	if typ == reflect.TypeFor[json.RawMessage]() {
		return schema{Type: "object"}
	}
	switch typ.Kind() {
	case reflect.Pointer:
		return schemaOf(typ.Elem())
	case reflect.Struct:
		return schema{Ref: "#/components/schemas/" + typ.Name()}
	case reflect.Slice:
		items := schemaOf(typ.Elem())
		return schema{Type: "array", Items: &items}
	case reflect.Map:
		return schema{Type: "object", AdditionalProperties: map[string]any{"type": schemaOf(typ.Elem()).Type}}
	case reflect.String:
		return schema{Type: "string"}
	case reflect.Bool:
		return schema{Type: "boolean"}
	default:
		return schema{Type: "integer"}
	}
}

// onlyTyped drops what a Go type does not decide.
func onlyTyped(s schema) schema {
	slices.Sort(s.Required)
	for name, property := range s.Properties {
		s.Properties[name] = onlyTyped(property)
	}
	if s.Type == "integer" {
		s.Format = ""
	}
	return s
}
