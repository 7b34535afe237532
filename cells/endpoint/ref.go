package endpoint

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"porin.dev/porin/internal/fault"
)

// Ref names an endpoint in one of the ways people and programs know it by. The zero Ref names none.
type Ref struct{ kind, value string }

// The kinds of reference, which are the prefixes of their text forms.
const (
	refNumber      = ""
	refContainerID = "container-id"
	refAttachment  = "cni-attachment-id"
	refPodName     = "pod-name"
	refIPv4        = "ipv4"
	refIPv6        = "ipv6"
)

// ByID names an endpoint by its number.
func ByID(id uint16) Ref { return Ref{refNumber, strconv.Itoa(int(id))} }

// ByAttachment names an endpoint by its attachment.
func ByAttachment(a Attachment) Ref { return Ref{refAttachment, a.String()} }

// ByContainerID names the endpoints of a container.
func ByContainerID(id string) Ref { return Ref{refContainerID, id} }

// ByPodName names the endpoints of a pod.
func ByPodName(namespace, name string) Ref { return Ref{refPodName, namespace + "/" + name} }

// PodName returns the pod that the reference names by its name.
func (r Ref) PodName() (namespace, name string, ok bool) {
	namespace, name, ok = strings.Cut(r.value, "/")
	return namespace, name, ok && r.kind == refPodName
}

// ByAddress names the endpoint that has the address.
func ByAddress(addr netip.Addr) Ref {
	if addr = addr.Unmap(); addr.Is4() {
		return Ref{refIPv4, addr.String()}
	}
	return Ref{refIPv6, addr.String()}
}

// ParseRef reads the text form: a number, or "container-id:C", "cni-attachment-id:C:IFNAME", "pod-name:NS/NAME",
// "ipv4:A" or "ipv6:A"; "NS/NAME" and an address alone are short for the latter.
func ParseRef(text string) (Ref, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		return ByAddress(addr), nil
	}
	kind, value, ok := strings.Cut(text, ":")
	if !ok {
		if namespace, name, isPod := strings.Cut(text, "/"); isPod && namespace != "" && name != "" {
			return ByPodName(namespace, name), nil
		}
		id, err := strconv.ParseUint(text, 10, 16)
		if err != nil || id == 0 {
			return Ref{}, badRef(text, "want a number from 1 to 65535, NAMESPACE/NAME of a pod, an address, or container-id: and a container's whole ID")
		}
		return ByID(uint16(id)), nil
	}
	switch kind {
	case refContainerID:
		return ByContainerID(value), ValidateContainerID(value)
	case refAttachment:
		a, err := ParseAttachment(value)
		return ByAttachment(a), err
	case refPodName:
		namespace, name, ok := strings.Cut(value, "/")
		if !ok || namespace == "" || name == "" {
			return Ref{}, badRef(text, "want pod-name:NAMESPACE/NAME")
		}
		return ByPodName(namespace, name), nil
	case refIPv4, refIPv6:
		addr, err := netip.ParseAddr(value)
		if err != nil || addr.Zone() != "" || addr.Is4() != (kind == refIPv4) {
			return Ref{}, badRef(text, "that is no address of this family")
		}
		return ByAddress(addr), nil
	}
	return Ref{}, badRef(text, "want a number, or container-id:, cni-attachment-id:, pod-name:, ipv4: or ipv6: and a value")
}

func badRef(text, why string) error {
	return fault.New(fault.Invalid, fmt.Sprintf("endpoint reference %q: %s", clip(text), why))
}

// String is the text form, which [ParseRef] reads.
func (r Ref) String() string {
	if r.kind == refNumber {
		return r.value
	}
	return r.kind + ":" + r.value
}

// Matches reports whether the reference names the endpoint.
func (r Ref) Matches(ep Endpoint) bool {
	return r == ByID(ep.ID) || slices.Contains(ep.Refs(), r)
}

// Attachment returns the attachment that the reference names, when it is of that kind.
func (r Ref) Attachment() (Attachment, bool) {
	if r.kind != refAttachment {
		return Attachment{}, false
	}
	a, err := ParseAttachment(r.value)
	return a, err == nil
}

// ID returns the number that the reference is, when it is of that kind.
func (r Ref) ID() (uint16, bool) {
	if r.kind != refNumber {
		return 0, false
	}
	id, err := strconv.ParseUint(r.value, 10, 16)
	return uint16(id), err == nil
}

// Refs returns every reference to the endpoint but its number.
func (ep Endpoint) Refs() []Ref {
	refs := []Ref{ByAttachment(ep.Spec.Attachment), ByContainerID(ep.Spec.Attachment.ContainerID)}
	if pod := ep.Spec.Pod; pod.Namespace != "" && pod.Name != "" {
		refs = append(refs, ByPodName(pod.Namespace, pod.Name))
	}
	for _, addr := range ep.Addresses.List() {
		refs = append(refs, ByAddress(addr))
	}
	return refs
}
