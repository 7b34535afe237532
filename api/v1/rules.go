package v1

import (
	"errors"
	"fmt"
	"strings"
)

// The form of an attachment's names, in words. The plugin and the agent hold them against the same rules.
const (
	ContainerIDRule   = "letters, digits, '_', '.' and '-', beginning with a letter or digit, 256 at the most"
	PoolNameRule      = "lower case letters, digits and '-', beginning and ending with a letter or digit, 63 at the most (RFC 1123)"
	TokenRule         = "letters and digits, 64 at the most"
	InterfaceNameRule = "an interface name of at most 15 printable characters without '/', ':', '%' and white space, other than lo"
)

// MaxContainerID is the longest container ID that is accepted. Runtimes use 64 characters.
const MaxContainerID = 256

// maxInterfaceName is IFNAMSIZ less the zero at its end.
const maxInterfaceName = 15

var (
	errMissing   = errors.New("is missing")
	errMalformed = errors.New("is malformed")
	errReserved  = errors.New("is not allowed")
)

// CheckPoolName is [CheckContainerID] for the name of a pool.
func CheckPoolName(name string) error {
	if name == "" {
		return errMissing
	}
	plain := func(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
	for i := range len(name) {
		if !plain(name[i]) && (name[i] != '-' || i == 0 || i == len(name)-1) {
			return errMalformed
		}
	}
	if len(name) > 63 {
		return errors.New("is longer than 63 characters")
	}
	return nil
}

// CheckToken is [CheckContainerID] for the token of a reservation.
func CheckToken(token string) error {
	const most = 64 // the agent's have 26
	switch {
	case token == "":
		return errMissing
	case len(token) > most:
		return fmt.Errorf("is longer than %d characters", most)
	case strings.ContainsFunc(token, func(c rune) bool { return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9') }):
		return errMalformed
	}
	return nil
}

// CheckContainerID returns what is wrong with a container ID by the CNI specification and [ContainerIDRule], as the
// rest of a sentence: "is missing".
func CheckContainerID(id string) error {
	switch {
	case id == "":
		return errMissing
	case len(id) > MaxContainerID:
		return fmt.Errorf("is longer than %d characters", MaxContainerID)
	case !IsName(id):
		return errMalformed
	}
	return nil
}

// IsName reports whether a text is an ID or the name of a network by the CNI specification.
func IsName(text string) bool {
	for i, c := range []byte(text) {
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && (i == 0 || c != '_' && c != '.' && c != '-') {
			return false
		}
	}
	return text != ""
}

// CheckInterfaceName returns what is wrong with the name of an interface by the CNI specification, the kernel
// (dev_valid_name; '%' is a pattern to it) and [InterfaceNameRule], as the rest of a sentence.
func CheckInterfaceName(name string) error {
	switch name {
	case "":
		return errMissing
	case ".", "..", "lo", "all", "default": // the last two are no interfaces below /proc/sys/net
		return errReserved
	}
	if len(name) > maxInterfaceName {
		return fmt.Errorf("is longer than %d characters", maxInterfaceName)
	}
	if strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' || c == '/' || c == ':' || c == '%' }) {
		return errMalformed
	}
	return nil
}
