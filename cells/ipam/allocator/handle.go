package allocator

import (
	"strings"

	"porin.dev/porin/cells/endpoint"
)

// Handle says who owns an address: an attachment ([NewHandle]), a pod as others name it ([PodHandle]), or whoever
// reserved it.
type Handle string

// noNetwork stands for the network of an attachment that has none. It is no name of a network.
const noNetwork = "-"

// NewHandle returns the handle of an attachment: network.containerID.ifname. A '.' in a part is written %2E, a '%' is
// %25, so that no two attachments have the same one.
func NewHandle(network string, a endpoint.Attachment) Handle {
	return Handle(networkPart(network) + "." + escape.Replace(a.ContainerID) + "." + escape.Replace(a.IfName))
}

func networkPart(network string) string {
	switch network {
	case "":
		return noNetwork
	case noNetwork:
		return "%2D"
	}
	return escape.Replace(network)
}

// PodHandle returns the handle of a pod: namespace.pod; "" when either is not known. A '.' in the pod's name is written
// %2E: it has always one '.', and the handle of an attachment has two.
func PodHandle(namespace, name string) Handle {
	if namespace == "" || name == "" {
		return ""
	}
	return Handle(escape.Replace(namespace) + "." + escape.Replace(name))
}

var (
	escape   = strings.NewReplacer(".", "%2E", "%", "%25")
	unescape = strings.NewReplacer("%2E", ".", "%25", "%")
)

// Attachment is the reverse of [NewHandle], without the network. It is false for the handle of something else.
func (h Handle) Attachment() (a endpoint.Attachment, ok bool) {
	a = h.parse()
	return a, a.Validate() == nil
}

// Unnamed reports whether it is of a host end that does not say whose it is: [endpoint.Unnamed].
func (h Handle) Unnamed() bool {
	a := h.parse()
	return a == endpoint.Unnamed(a.ContainerID)
}

func (h Handle) parse() (a endpoint.Attachment) {
	if parts := strings.Split(string(h), "."); len(parts) == 3 && parts[0] != "" {
		a = endpoint.Attachment{ContainerID: unescape.Replace(parts[1]), IfName: unescape.Replace(parts[2])}
	}
	return a
}

// Pod is the reverse of [PodHandle]. It is false for the handle of something else.
func (h Handle) Pod() (namespace, name string, ok bool) {
	namespace, name, ok = strings.Cut(string(h), ".")
	if !ok || namespace == "" || name == "" || strings.Contains(name, ".") {
		return "", "", false
	}
	return unescape.Replace(namespace), unescape.Replace(name), true
}

// String is the attachment if it is one's, as people and the API know it: containerID:ifname.
func (h Handle) String() string {
	if a, ok := h.Attachment(); ok || h.Unnamed() {
		return a.String()
	}
	return string(h)
}
