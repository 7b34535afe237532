package endpointmanager

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
)

// Spec is what the caller of an ADD asked for. It never changes during an endpoint's life.
type Spec struct {
	Attachment Attachment
	Network    string // name of the CNI network configuration
	Pod        Pod
	NetNS      string    // path of the container's namespace, for people; nobody opens it
	Host       Interface // in the node's namespace
	Container  Interface // in the container; its Index is 0
	Pool       string    // of the addresses; "" leaves it to the agent's settings: see [Endpoint.Pool]
	Requested  Addresses // these and no others; a zero family gets any
	// Reservation is the token of the reservation whose addresses the endpoint takes over; "" is none.
	Reservation string
	// ExternalIPAM says that another IPAM gave Requested: Porin neither takes nor releases them.
	ExternalIPAM bool
	// Began is when the caller began, on CLOCK_BOOTTIME; zero when it did not say.
	Began time.Duration
}

// Validate reports every fault of what a caller asks for.
func (s Spec) Validate() error {
	err := errors.Join(
		s.Attachment.Validate(),
		validateText("network", s.Network, 253),
		validatePodPart("pod namespace", s.Pod.Namespace),
		validatePodPart("pod name", s.Pod.Name),
		validateText("pod UID", s.Pod.UID, 128),
		validateText("pod priority class", s.Pod.PriorityClass, 253),
		validateText("netns", s.NetNS, 4095),
		validatePool(s.Pool),
		validateText("reservation", s.Reservation, 128),
		s.Host.validate("host interface"),
		validateIfName(s.Container.Name),
		validateMAC("container interface", s.Container.MAC),
		validateAddress("ipv4", s.Requested.IPv4, s.Requested.IPv4.Is4()),
		validateAddress("ipv6", s.Requested.IPv6, s.Requested.IPv6.Is6() && !s.Requested.IPv6.Is4In6()),
	)
	if s.ExternalIPAM && s.Requested == (Addresses{}) {
		err = errors.Join(err, errors.New("externalIPAM: the addresses it gave are missing"))
	}
	if s.ExternalIPAM && s.Reservation != "" {
		err = errors.Join(err, errors.New("reservation: another IPAM gave the addresses"))
	}
	return fault.Wrap(fault.Invalid, err)
}

func validatePool(name string) error {
	if name == "" {
		return nil
	}
	return nameFault("pool", name, v1.CheckPoolName(name), v1.PoolNameRule)
}

// same tells whether two callers ask for the same thing; when they began does not matter.
func (s Spec) same(other Spec) bool {
	s.Began, other.Began = 0, 0
	return s == other
}

func (i Interface) validate(what string) error {
	err := errors.Join(validateIfName(i.Name), validateMAC(what, i.MAC))
	if i.Index <= 0 {
		err = errors.Join(err, fmt.Errorf("%s index %d: want the kernel's number of it", what, i.Index))
	}
	return err
}

func validateMAC(what string, mac MAC) error {
	if mac == (MAC{}) || mac[0]&1 != 0 {
		return fmt.Errorf("%s MAC %s: want a unicast address", what, mac)
	}
	return nil
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

func validateAddress(family string, addr netip.Addr, fits bool) error {
	switch {
	case !addr.IsValid():
		return nil
	case !fits, addr.Zone() != "", addr.IsUnspecified(), addr.IsLoopback(), addr.IsMulticast(), addr.IsLinkLocalUnicast(),
		addr == broadcast:
		return fmt.Errorf("requested %s address %s: not a unicast address of that family", family, addr)
	}
	return nil
}

// validatePodPart keeps "namespace/name" readable in one way only.
func validatePodPart(what, text string) error {
	if strings.Contains(text, "/") {
		return fmt.Errorf("%s %q: has a '/'", what, clip(text))
	}
	return validateText(what, text, 253)
}

func validateText(what, text string, most int) error {
	if len(text) > most {
		return fmt.Errorf("%s %q: longer than %d characters", what, clip(text), most)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }) {
		return fmt.Errorf("%s %q: has characters that cannot be printed", what, clip(text))
	}
	return nil
}
