package endpoint

import (
	"fmt"
	"strings"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
)

// Attachment names one interface of one container, as the CNI specification does (1.1.0, section 2).
type Attachment struct {
	ContainerID string
	IfName      string
}

// ParseAttachment reads "containerID:ifname".
func ParseAttachment(text string) (Attachment, error) {
	containerID, ifname, ok := strings.Cut(text, ":")
	if !ok {
		return Attachment{}, fault.New(fault.Invalid, fmt.Sprintf("attachment %q: want containerID:ifname", clip(text)))
	}
	a := Attachment{ContainerID: containerID, IfName: ifname}
	return a, a.Validate()
}

// String is "containerID:ifname", the key of the attachment everywhere; for an [Unnamed] one it is the name of the host
// end.
func (a Attachment) String() string {
	if a.IsUnnamed() {
		return a.ContainerID
	}
	return a.ContainerID + ":" + a.IfName
}

// unknownIfName is the name of no interface.
const unknownIfName = "/unknown"

// Unnamed stands for the attachment of a host end that does not say whose it is. No call can name it.
func Unnamed(hostEnd string) Attachment {
	return Attachment{ContainerID: hostEnd, IfName: unknownIfName}
}

// IsUnnamed reports whether the attachment is one of [Unnamed].
func (a Attachment) IsUnnamed() bool { return a.IfName == unknownIfName }

// HostEnd is the name of the attachment's host end.
func (a Attachment) HostEnd() string {
	if a.IsUnnamed() {
		return a.ContainerID
	}
	return v1.HostInterfaceName(a.ContainerID, a.IfName)
}

// Validate checks both parts against the CNI specification and the kernel's rules for interface names.
func (a Attachment) Validate() error {
	if err := ValidateContainerID(a.ContainerID); err != nil {
		return err
	}
	return nameFault("interface name", a.IfName, v1.CheckInterfaceName(a.IfName), v1.InterfaceNameRule)
}

// ValidateContainerID checks a container ID against the CNI specification.
func ValidateContainerID(id string) error {
	return nameFault("container ID", id, v1.CheckContainerID(id), v1.ContainerIDRule)
}

func nameFault(what, name string, err error, rule string) error {
	if err == nil {
		return nil
	}
	if name != "" {
		what = fmt.Sprintf("%s %q", what, clip(name))
	}
	return fault.New(fault.Invalid, fmt.Sprintf("%s %s: want %s", what, err, rule))
}

// clip keeps hostile input from filling an error or a log line.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}
