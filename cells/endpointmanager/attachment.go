package endpointmanager

import (
	"fmt"
	"regexp"
	"strings"

	"porin.dev/porin/internal/fault"
)

// Attachment names one interface of one container, as the CNI specification does (1.1.0, section 2).
type Attachment struct {
	ContainerID string
	IfName      string
}

// MaxContainerID is the longest container ID that is accepted. Runtimes use 64 characters.
const MaxContainerID = 256

var containerIDPattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`)

// ParseAttachment reads "containerID:ifname".
func ParseAttachment(text string) (Attachment, error) {
	containerID, ifname, ok := strings.Cut(text, ":")
	if !ok {
		return Attachment{}, fault.New(fault.Invalid, fmt.Sprintf("attachment %q: want containerID:ifname", clip(text)))
	}
	a := Attachment{ContainerID: containerID, IfName: ifname}
	return a, a.Validate()
}

// String is "containerID:ifname", the key of the attachment everywhere.
func (a Attachment) String() string { return a.ContainerID + ":" + a.IfName }

// Validate checks both parts against the CNI specification and the kernel's rules for interface names.
func (a Attachment) Validate() error {
	if err := ValidateContainerID(a.ContainerID); err != nil {
		return err
	}
	return validateIfName(a.IfName)
}

// ValidateContainerID checks a container ID against the CNI specification.
func ValidateContainerID(id string) error {
	switch {
	case id == "":
		return fault.New(fault.Invalid, "container ID is empty")
	case len(id) > MaxContainerID:
		return fault.New(fault.Invalid, fmt.Sprintf("container ID %q: longer than %d characters", clip(id), MaxContainerID))
	case !containerIDPattern.MatchString(id):
		return fault.New(fault.Invalid, fmt.Sprintf("container ID %q: want letters, digits, '_', '.', '-', beginning with a letter or digit", clip(id)))
	}
	return nil
}

// validateIfName follows dev_valid_name of the kernel (net/core/dev.c), less what is not printable ASCII.
func validateIfName(name string) error {
	switch {
	case name == "":
		return fault.New(fault.Invalid, "interface name is empty")
	case len(name) > 15:
		return fault.New(fault.Invalid, fmt.Sprintf("interface name %q: longer than 15 characters", clip(name)))
	case name == "." || name == "..":
		return fault.New(fault.Invalid, fmt.Sprintf("interface name %q: not allowed", name))
	}
	for _, c := range []byte(name) {
		if c <= ' ' || c > '~' || c == '/' || c == ':' {
			return fault.New(fault.Invalid, fmt.Sprintf("interface name %q: character %q is not allowed", name, c))
		}
	}
	return nil
}

// clip keeps hostile input from filling an error or a log line.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}
