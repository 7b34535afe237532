package endpoint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	v1 "porin.dev/porin/api/v1"
)

// PortMapping is the value that the API shows as it is.
type PortMapping = v1.PortMapping

// EncodePortMappings is the form that a [Spec] carries: the same text for the same mappings in any order, "" for none.
func EncodePortMappings(list []PortMapping) (string, error) {
	if len(list) == 0 {
		return "", nil
	}
	list = slices.Clone(list)
	for i := range list {
		list[i].Protocol = cmp.Or(list[i].Protocol, v1.ProtocolTCP)
	}
	slices.SortFunc(list, func(a, b PortMapping) int {
		return cmp.Or(cmp.Compare(a.HostPort, b.HostPort), cmp.Compare(a.Protocol, b.Protocol), a.HostIP.Compare(b.HostIP),
			cmp.Compare(a.ContainerPort, b.ContainerPort))
	})
	text, err := json.Marshal(slices.Compact(list))
	if err != nil {
		return "", fmt.Errorf("encode port mappings: %w", err)
	}
	return string(text), nil
}

// DecodePortMappings reads what [EncodePortMappings] wrote.
func (s Spec) DecodePortMappings() (list []PortMapping, err error) {
	if s.PortMappings == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(s.PortMappings), &list); err != nil {
		return nil, fmt.Errorf("port mappings of %s: %w", s.Attachment, err)
	}
	return list, nil
}

// maxPortMappings bounds what one record of the ledger holds.
const maxPortMappings = 1024

func (s Spec) validatePortMappings() error {
	list, err := s.DecodePortMappings()
	if err != nil {
		return err
	}
	if n := len(list); n > maxPortMappings {
		return fmt.Errorf("portMappings: %d, more than %d", n, maxPortMappings)
	}
	var errs []error
	for i, p := range list {
		if err := validatePortMapping(p); err != nil {
			errs = append(errs, err)
		}
		for _, other := range list[:i] {
			if p.HostPort == other.HostPort && p.Protocol == other.Protocol && overlap(p.HostIP, other.HostIP) {
				errs = append(errs, fmt.Errorf("portMappings: %s and %s clash", other, p))
			}
		}
	}
	return errors.Join(errs...)
}

func validatePortMapping(p PortMapping) error {
	switch {
	case p.HostPort == 0 || p.ContainerPort == 0:
		return fmt.Errorf("portMappings: %s: want ports from 1 to 65535", p)
	case p.Protocol != v1.ProtocolTCP && p.Protocol != v1.ProtocolUDP && p.Protocol != v1.ProtocolSCTP:
		return fmt.Errorf("portMappings: host port %d: protocol %q: want %s, %s or %s", p.HostPort, clip(p.Protocol), v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)
	case !p.HostIP.IsValid():
		return nil
	case p.HostIP == netip.IPv6Loopback():
		return fmt.Errorf("portMappings: %s: the kernel lets no packet from ::1 leave the node's own stack: use 127.0.0.1", p)
	case p.HostIP.Zone() != "", p.HostIP.Is4In6(), p.HostIP.IsMulticast(), p.HostIP.IsLinkLocalUnicast(), p.HostIP == broadcast:
		return fmt.Errorf("portMappings: %s: want an address of the node that is no link-local one", p)
	}
	return nil
}

// overlap reports whether a packet may be for both: the invalid address stands for all, and an unspecified one for all
// of its family.
func overlap(a, b netip.Addr) bool {
	switch {
	case !a.IsValid() || !b.IsValid():
		return true
	case a.Is4() != b.Is4():
		return false
	}
	return a == b || a.IsUnspecified() || b.IsUnspecified()
}
