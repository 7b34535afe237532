package endpoint_test

import (
	"fmt"
	"strings"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
)

func TestMetadataEncode(t *testing.T) {
	a := endpoint.Metadata{NamedPorts: []endpoint.NamedPort{{Name: "web", Port: 80}, {Name: "dns", Protocol: "UDP", Port: 53}, {Name: "web", Protocol: "TCP", Port: 80}}}
	b := endpoint.Metadata{NamedPorts: []endpoint.NamedPort{{Name: "dns", Protocol: "UDP", Port: 53}, {Name: "web", Port: 80}}}
	first, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if second, err := b.Encode(); err != nil || first != second {
		t.Errorf("the same ports in another order: %s and %s, %v", first, second, err)
	}
	for text, m := range map[string]endpoint.Metadata{
		"": {}, `{"labels":{}}`: {Labels: map[string]string{}}, `{"namedPorts":[]}`: {NamedPorts: []endpoint.NamedPort{}},
		`{"audit":true}`: {Audit: new(true)}, `{"audit":false}`: {Audit: new(false)},
		`{"labels":{"a":"1","b":"2"}}`: {Labels: map[string]string{"b": "2", "a": "1"}},
	} {
		if got, err := m.Encode(); got != text || err != nil {
			t.Errorf("%+v: %s, %v, want %s", m, got, err, text)
		}
	}
}

func TestChangeAudit(t *testing.T) {
	for _, row := range [][3]string{
		{"", `{"audit":true}`, `{"audit":true}`}, {`{"audit":true}`, `{"audit":false}`, `{"audit":false}`}, {`{"audit":true}`, `{"labels":{}}`, `{"labels":{},"audit":true}`},
	} {
		if got, err := endpoint.ChangeMetadata(row[0], row[1]); got != row[2] || err != nil {
			t.Errorf("%s changed by %s: %s, %v; want %s", row[0], row[1], got, err, row[2])
		}
	}
}

func TestMetadataForNamespace(t *testing.T) {
	m := endpoint.Metadata{NamespaceLabels: map[string]string{"team": "a"}}
	if got := m.ForNamespace("shop").NamespaceLabels; len(got) != 2 || got[endpoint.NamespaceNameLabel] != "shop" || len(m.NamespaceLabels) != 1 {
		t.Errorf("labels %v of the namespace shop, from %v", got, m.NamespaceLabels)
	}
	if got := (endpoint.Metadata{}).ForNamespace("").NamespaceLabels; len(got) != 0 {
		t.Errorf("labels %v without a namespace", got)
	}
}

func TestMetadataLimits(t *testing.T) {
	most, tooMany, ports := map[string]string{}, map[string]string{}, []endpoint.NamedPort{}
	for i := range 257 {
		if tooMany[fmt.Sprint("l", i)] = ""; i < 256 {
			most[fmt.Sprint("l", i)] = strings.Repeat("a", 63)
		}
		ports = append(ports, endpoint.NamedPort{Name: "p", Port: uint16(i + 1)})
	}
	for name, row := range map[string]struct {
		m    endpoint.Metadata
		good bool
	}{
		"most labels":                 {endpoint.Metadata{Labels: most, NamespaceLabels: most}, true},
		"too many labels":             {endpoint.Metadata{Labels: tooMany}, false},
		"too many namespace labels":   {endpoint.Metadata{NamespaceLabels: tooMany}, false},
		"too many ports":              {endpoint.Metadata{NamedPorts: ports}, false},
		"most ports":                  {endpoint.Metadata{NamedPorts: ports[1:]}, true},
		"long value":                  {endpoint.Metadata{Labels: map[string]string{"a": strings.Repeat("a", 64)}}, false},
		"port name without a letter":  {endpoint.Metadata{NamedPorts: []endpoint.NamedPort{{Name: "80", Port: 80}}}, false},
		"port name that is too long":  {endpoint.Metadata{NamedPorts: []endpoint.NamedPort{{Name: strings.Repeat("a", 16), Port: 80}}}, false},
		"port name with two hyphens":  {endpoint.Metadata{NamedPorts: []endpoint.NamedPort{{Name: "a--b", Port: 80}}}, false},
		"port name with an end":       {endpoint.Metadata{NamedPorts: []endpoint.NamedPort{{Name: "a-", Port: 80}}}, false},
		"name of no namespace at all": {endpoint.Metadata{NamespaceLabels: map[string]string{endpoint.NamespaceNameLabel: "x"}}, false},
	} {
		text, err := row.m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		spec := endpoint.Spec{Attachment: endpoint.Attachment{ContainerID: "c1", IfName: "eth0"}, Metadata: text}
		if err := spec.Validate(); (err == nil) != row.good || err != nil && fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: error %v, want one of kind invalid: %t", name, err, !row.good)
		}
	}
	if err := (endpoint.Spec{Metadata: "{"}).ValidateMetadata(); fault.KindOf(err) != fault.Invalid {
		t.Errorf("text that is none: error %v", err)
	}
}

// FuzzMetadata holds that what is accepted has one text, whoever reads and writes it.
func FuzzMetadata(f *testing.F) {
	f.Add(`{"labels":{"app":"web"},"namespaceLabels":{},"namedPorts":[{"name":"http","port":80}]}`)
	f.Add(`{"labels":{"a/b":""}}`)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := endpoint.DecodeMetadata(text)
		if err != nil {
			return
		}
		first, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if (endpoint.Spec{Metadata: first}).ValidateMetadata() != nil {
			return
		}
		if again, err := endpoint.ChangeMetadata(first, first); err != nil || again != first {
			t.Errorf("%s became %s, %v", first, again, err)
		}
	})
}
