package spec

import (
	"fmt"
	"strings"

	v1 "porin.dev/porin/api/v1"
)

// Environment is what a runtime says in CNI_... variables.
type Environment struct {
	Command     string // ADD, DEL, CHECK, GC, STATUS or VERSION
	ContainerID string
	IfName      string
	NetNS       string // path; may be empty for DEL
	Path        string // folders of plugins; may be empty
	// NetNSOverride allows NetNS to be the plugin's own.
	NetNSOverride bool
	Args          Args
}

// readEnvironment checks what the command needs. An empty Command is for the caller to handle.
func readEnvironment(getenv func(string) string) (Environment, *Error) {
	env := Environment{
		Command: getenv("CNI_COMMAND"), ContainerID: getenv("CNI_CONTAINERID"), IfName: getenv("CNI_IFNAME"),
		NetNS: getenv("CNI_NETNS"), Path: getenv("CNI_PATH"),
	}
	switch strings.ToLower(getenv("CNI_NETNS_OVERRIDE")) {
	case "1", "true":
		env.NetNSOverride = true
	}
	switch env.Command {
	case "ADD", "CHECK", "DEL":
	case "GC", "STATUS", "VERSION", "":
		return Environment{Command: env.Command, Path: env.Path}, nil // they concern no container
	default:
		return env, badEnvironment("CNI_COMMAND", env.Command, "is unknown", "ADD, DEL, CHECK, GC, STATUS or VERSION")
	}
	if err := v1.CheckContainerID(env.ContainerID); err != nil {
		return env, badEnvironment("CNI_CONTAINERID", env.ContainerID, err.Error(), v1.ContainerIDRule)
	}
	if err := v1.CheckInterfaceName(env.IfName); err != nil {
		return env, badEnvironment("CNI_IFNAME", env.IfName, err.Error(), v1.InterfaceNameRule)
	}
	if env.NetNS == "" && env.Command != "DEL" {
		return env, badEnvironment("CNI_NETNS", "", "is missing", "the path of the container's network namespace")
	}
	if env.Command != "ADD" {
		return env, nil // CNI_ARGS are wishes
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

// clip keeps hostile input from filling an error.
func clip(text string) string {
	if len(text) > 64 {
		return text[:64] + "..."
	}
	return text
}
