package endpoint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/labels"
)

// NamedPort is the value that the API shows as it is.
type NamedPort = v1.NamedPort

// NamespaceNameLabel is the label of a namespace that has its name. Nobody need give it.
const NamespaceNameLabel = "kubernetes.io/metadata.name"

// Metadata is what policies know of a pod. A nil field was not given: a change leaves what is there, and at first there
// is nothing.
type Metadata struct {
	Labels          map[string]string `json:"labels,omitzero"`
	NamespaceLabels map[string]string `json:"namespaceLabels,omitzero"`
	NamedPorts      []NamedPort       `json:"namedPorts,omitzero"`
	Audit           *bool             `json:"audit,omitempty"`
	// Unknown says that the pod has other labels by now, which are refused: everything is denied to it until labels are
	// given.
	Unknown bool `json:"unknown,omitempty"`
}

// Encode is the form that an [Endpoint] and a [Spec] carry: the same text for the same metadata, "" when nothing is
// given.
func (m Metadata) Encode() (string, error) {
	if m.NamedPorts != nil {
		ports := make([]NamedPort, len(m.NamedPorts)) // not nil, also when there is none
		for i, p := range m.NamedPorts {
			p.Protocol = cmp.Or(p.Protocol, v1.ProtocolTCP)
			ports[i] = p
		}
		slices.SortFunc(ports, func(a, b NamedPort) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
		})
		m.NamedPorts = slices.Compact(ports)
	}
	if m.Labels == nil && m.NamespaceLabels == nil && m.NamedPorts == nil && m.Audit == nil && !m.Unknown {
		return "", nil
	}
	text, err := json.Marshal(m) // which sorts keys
	if err != nil {
		return "", fmt.Errorf("encode labels: %w", err)
	}
	return string(text), nil
}

// DecodeMetadata reads what [Metadata.Encode] wrote.
func DecodeMetadata(text string) (m Metadata, err error) {
	if text == "" {
		return m, nil
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return m, fmt.Errorf("read labels: %w", err)
	}
	return m, nil
}

// ChangeMetadata returns the encoded metadata of an endpoint after a change, which is encoded, too.
func ChangeMetadata(text, change string) (string, error) {
	m, err := DecodeMetadata(text)
	if err != nil {
		return "", err
	}
	given, err := DecodeMetadata(change)
	if err != nil {
		return "", err
	}
	if given.Labels != nil {
		m.Labels, m.Unknown = given.Labels, false
	}
	m.Unknown = m.Unknown || given.Unknown
	if given.NamespaceLabels != nil {
		m.NamespaceLabels = given.NamespaceLabels
	}
	if given.NamedPorts != nil {
		m.NamedPorts = given.NamedPorts
	}
	if given.Audit != nil {
		m.Audit = given.Audit
	}
	return m.Encode()
}

// ForNamespace is the metadata with the label that every namespace has.
func (m Metadata) ForNamespace(name string) Metadata {
	if name == "" {
		return m
	}
	all := map[string]string{NamespaceNameLabel: name}
	maps.Copy(all, m.NamespaceLabels)
	m.NamespaceLabels = all
	return m
}

// maxNamedPorts is what a pod can have. The API server bounds objects by their size only, and no pod comes near it.
const maxNamedPorts = 256

// validateMetadata reports what is not as Kubernetes has it, and more of it than a record of the ledger should hold.
func validateMetadata(text, namespace string) error {
	m, err := DecodeMetadata(text)
	if err != nil {
		return err
	}
	errs := []error{labels.Check("labels", m.Labels), labels.Check("namespaceLabels", m.NamespaceLabels)}
	if name, ok := m.NamespaceLabels[NamespaceNameLabel]; ok && name != namespace {
		errs = append(errs, fmt.Errorf("namespaceLabels: %s is %q, and the pod's namespace is %q", NamespaceNameLabel, clip(name), clip(namespace)))
	}
	if n := len(m.NamedPorts); n > maxNamedPorts {
		return errors.Join(append(errs, fmt.Errorf("namedPorts: %d, more than %d", n, maxNamedPorts))...)
	}
	for _, p := range m.NamedPorts {
		errs = append(errs, validateNamedPort(p))
	}
	return errors.Join(errs...)
}

func validateNamedPort(p NamedPort) error {
	switch {
	case !isPortName(p.Name):
		return fmt.Errorf("namedPorts: %q: want a name of lower case letters, digits and single '-' between them, with a letter, 15 characters at the most (RFC 6335)", clip(p.Name))
	case p.Port == 0:
		return fmt.Errorf("namedPorts: %s: want a port from 1 to 65535", p.Name)
	case p.Protocol != v1.ProtocolTCP && p.Protocol != v1.ProtocolUDP && p.Protocol != v1.ProtocolSCTP:
		return fmt.Errorf("namedPorts: %s: protocol %q: want %s, %s or %s", p.Name, clip(p.Protocol), v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)
	}
	return nil
}

func isPortName(name string) bool {
	if len(name) == 0 || len(name) > 15 || strings.Contains(name, "--") || name[0] == '-' || name[len(name)-1] == '-' {
		return false
	}
	letter := false
	for i := range len(name) {
		c := name[i]
		letter = letter || 'a' <= c && c <= 'z'
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-') {
			return false
		}
	}
	return letter
}
