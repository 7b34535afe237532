package v1

import "encoding/json"

// CNICallVersion is the version of [CNICall] that this agent and this plugin speak. Members are added without a new
// version; an agent refuses a newer version with [CodeNotFound].
const CNICallVersion = 1

// CNICall is the body of POST /v1/cni: one execution of the CNI plugin. With ADD and CHECK the container's network
// namespace comes as a file descriptor (SCM_RIGHTS), on the first byte of a connection of its own. Members that the
// agent does not know are ignored, for plugin and agent are upgraded at different times.
type CNICall struct {
	Version int `json:"version"`
	// Environment has the CNI_ variables of the plugin.
	Environment map[string]string `json:"environment"`
	// Config is the network configuration as the plugin read it.
	Config json.RawMessage `json:"config,omitempty"`
	// Began is when the plugin began, in nanoseconds of CLOCK_BOOTTIME.
	Began int64 `json:"began"`
}

// The answer to a [CNICall] is what the plugin prints: with status 200 the result, which may be empty, and the plugin
// exits with 0; with CNIErrorStatus an error in the form of the CNI specification, and it exits with 1. Any other
// status is a [Problem]: the agent did not finish the call, though a DEL may still be under way.
const CNIErrorStatus = 422
