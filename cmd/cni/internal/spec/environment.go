package spec

import (
	"fmt"
	"strings"
)

// Environment is what a runtime says in CNI_... variables.
type Environment struct {
	Command     string // ADD, DEL, CHECK, GC, STATUS or VERSION
	ContainerID string
	IfName      string
	NetNS       string // path; may be empty for DEL
	// NetNSOverride allows NetNS to be the plugin's own.
	NetNSOverride bool
	Args          Args
}

// maxContainerID is the longest container ID that the agent takes.
const maxContainerID = 256

// readEnvironment checks what the command needs. An empty Command is for the caller to handle.
func readEnvironment(getenv func(string) string) (Environment, *Error) {
	env := Environment{
		Command: getenv("CNI_COMMAND"), ContainerID: getenv("CNI_CONTAINERID"), IfName: getenv("CNI_IFNAME"),
		NetNS: getenv("CNI_NETNS"),
	}
	switch strings.ToLower(getenv("CNI_NETNS_OVERRIDE")) {
	case "1", "true":
		env.NetNSOverride = true
	}
	switch env.Command {
	case "ADD", "CHECK", "DEL":
	case "GC", "STATUS", "VERSION", "":
		return Environment{Command: env.Command}, nil // they concern no container
	default:
		return env, badEnvironment("CNI_COMMAND", env.Command, "is unknown", "ADD, DEL, CHECK, GC, STATUS or VERSION")
	}
	if err := checkContainerID(env.ContainerID); err != nil {
		return env, err
	}
	if err := checkIfName(env.IfName); err != nil {
		return env, err
	}
	if env.NetNS == "" && env.Command != "DEL" {
		return env, badEnvironment("CNI_NETNS", "", "is missing", "the path of the container's network namespace")
	}
	args, err := parseArgs(getenv("CNI_ARGS"))
	env.Args = args
	return env, err
}

func badEnvironment(name, value, fault, want string) *Error {
	msg := name + " " + fault
	if value != "" {
		msg = fmt.Sprintf("%s=%q %s", name, clip(value), fault)
	}
	return &Error{BadEnvironment, msg, "the container runtime must set it to " + want}
}

func checkContainerID(id string) *Error {
	const want = "letters, digits, '_', '.' and '-', beginning with a letter or digit, 256 at the most"
	switch {
	case id == "":
		return badEnvironment("CNI_CONTAINERID", "", "is missing", want)
	case len(id) > maxContainerID:
		return badEnvironment("CNI_CONTAINERID", id, "is too long", want)
	case !isName(id):
		return badEnvironment("CNI_CONTAINERID", id, "is malformed", want)
	}
	return nil
}

// isName tells whether the text is an ID or network name by the specification.
func isName(text string) bool {
	for i, c := range []byte(text) {
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && (i == 0 || c != '_' && c != '.' && c != '-') {
			return false
		}
	}
	return text != ""
}

// checkIfName follows the specification and the kernel (dev_valid_name; '%' is a pattern to it).
func checkIfName(name string) *Error {
	const want = "an interface name of at most 15 printable characters without '/', ':', '%' and white space, other than lo"
	switch name {
	case "":
		return badEnvironment("CNI_IFNAME", "", "is missing", want)
	case ".", "..", "lo", "all", "default": // the last two are no interfaces below /proc/sys/net
		return badEnvironment("CNI_IFNAME", name, "is not allowed", want)
	}
	bad := func(c rune) bool { return c <= ' ' || c > '~' || c == '/' || c == ':' || c == '%' }
	if len(name) > 15 || strings.ContainsFunc(name, bad) {
		return badEnvironment("CNI_IFNAME", name, "is malformed", want)
	}
	return nil
}

// clip keeps hostile input from filling an error.
func clip(text string) string {
	if len(text) > 64 {
		return text[:64] + "..."
	}
	return text
}
