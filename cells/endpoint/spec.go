package endpoint

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
	Kind       Kind   `json:",omitempty"`
	Network    string // name of the CNI network configuration
	Pod        Pod
	NetNS      string // path of the container's namespace, for people; the agent never opens it
	// NetNSCookie identifies the container's namespace (SO_NETNS_COOKIE); 0 when the caller passed no descriptor of it.
	NetNSCookie uint64
	MTU         int       // of the container's interface, in bytes; 0 is the agent's choice
	Bandwidth   Bandwidth `json:",omitzero"`
	Pool        string    // of the addresses; "" leaves it to the pod's namespace, its network and the agent's settings: see [Endpoint.Pool]
	NetworkPool string    `json:",omitempty"` // that the network names for pods whose namespace names none
	Requested   Addresses // these and no others; a zero family gets any
	// Reservation is the token of the reservation whose addresses the endpoint takes over; "" is none.
	Reservation string
	// ExternalIPAM says that the addresses belong to another IPAM, and Porin never releases them: IPAM names the plugin
	// that gives them, or else the caller has them already, in Requested.
	ExternalIPAM bool
	IPAM         IPAMPlugin
	// PortMappings are ports of the node that lead to the container, as [EncodePortMappings] writes them; "" for none.
	PortMappings string `json:",omitempty"`
	// NoMasquerade says that the container keeps its address towards what is outside of the cluster.
	NoMasquerade bool `json:",omitempty"`
	// Metadata is an encoded [Metadata]; "" when the caller gave none. An endpoint's Spec has none: see
	// [Endpoint.Metadata].
	Metadata string `json:",omitempty"`
	// Began is when the caller began, on CLOCK_BOOTTIME; zero when it did not say.
	Began time.Duration
}

// Kind says what an endpoint is for. No caller of the API chooses it: an endpoint that is not of a pod is made by the
// agent itself.
type Kind string

// The kinds.
const (
	KindPod    Kind = ""
	KindHealth Kind = "health" // the node's health endpoint: no policy selects it, and no runtime knows it
)

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
		validatePool(s.NetworkPool),
		validateText("reservation", s.Reservation, 128),
		validateMTU(s.MTU),
		ValidateBandwidth(s.Bandwidth),
		validateMetadata(s.Metadata, s.Pod.Namespace),
		s.validatePortMappings(),
		s.IPAM.validate(),
		ValidateAddresses(s.Requested),
	)
	if s.ExternalIPAM && s.IPAM == (IPAMPlugin{}) && s.Requested == (Addresses{}) {
		err = errors.Join(err, errors.New("externalIPAM: the addresses it gave are missing"))
	}
	if s.IPAM != (IPAMPlugin{}) && !s.ExternalIPAM {
		err = errors.Join(err, errors.New("IPAM plugin: its addresses are external"))
	}
	if s.ExternalIPAM && s.Reservation != "" {
		err = errors.Join(err, errors.New("reservation: another IPAM gave the addresses"))
	}
	return fault.Wrap(fault.Invalid, err)
}

// ValidateMetadata is the part of [Spec.Validate] that is about the metadata.
func (s Spec) ValidateMetadata() error {
	return fault.Wrap(fault.Invalid, validateMetadata(s.Metadata, s.Pod.Namespace))
}

func validatePool(name string) error {
	if name == "" {
		return nil
	}
	return nameFault("pool", name, v1.CheckPoolName(name), v1.PoolNameRule)
}

// SameRequest reports whether two callers ask for the same thing. When they began does not matter, and neither do
// labels, which change during an endpoint's life.
func (s Spec) SameRequest(other Spec) bool {
	s.Began, other.Began = 0, 0
	s.Metadata, other.Metadata = "", ""
	return s == other
}

// IPAMPlugin names another IPAM plugin that gives and takes back the addresses of an attachment, and what it is called
// with: as its ADD came, so that its DEL can be called when the container is gone.
type IPAMPlugin struct {
	Type   string // file name of the plugin
	Config string // the network configuration, JSON
	Args   string // CNI_ARGS
}

// maxIPAMConfig bounds what one record of the ledger holds, in bytes.
const maxIPAMConfig = 256 << 10

func (p IPAMPlugin) validate() error {
	if strings.Contains(p.Type, "/") || p.Type == "" && p != (IPAMPlugin{}) {
		return fmt.Errorf("IPAM plugin %q: a type is a file's name, without a path", clip(p.Type))
	}
	if len(p.Config) > maxIPAMConfig || len(p.Args) > maxIPAMConfig {
		return fmt.Errorf("configuration for the IPAM plugin %s: longer than %d bytes", clip(p.Type), maxIPAMConfig)
	}
	return nil
}

// Limits of an interface's MTU: IPv6 needs 1280 (RFC 8200, section 5).
const minMTU, maxMTU = 1280, 65535

func validateMTU(mtu int) error {
	if mtu != 0 && (mtu < minMTU || mtu > maxMTU) {
		return fmt.Errorf("mtu %d: want %d to %d, or 0 for what fits on the way to other nodes", mtu, minMTU, maxMTU)
	}
	return nil
}

// ValidateAddresses reports every address that a container cannot have.
func ValidateAddresses(a Addresses) error {
	return errors.Join(
		validateAddress("ipv4", a.IPv4, a.IPv4.Is4()),
		validateAddress("ipv6", a.IPv6, a.IPv6.Is6() && !a.IPv6.Is4In6()),
	)
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
