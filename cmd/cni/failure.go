package main

import (
	"errors"
	"strings"
)

// Codes of the CNI specification (1.1.0, section 5) that the plugin itself uses.
const (
	codeBadEnvironment = 4
	codeIOFailure      = 5
	codeNotJSON        = 6
	codeBadConfig      = 7
	codeBadNetNS       = 8
	codeTryAgain       = 11
	codeNotAvailable   = 50
	codeInternal       = 999
)

// failure is an error in the form of the specification.
type failure struct {
	CNIVersion string `json:"cniVersion,omitempty"`
	Code       int    `json:"code"`
	Msg        string `json:"msg"`               // what failed, and why; one line
	Details    string `json:"details,omitempty"` // what to do about it
}

func (f *failure) Error() string { return f.Msg }

// asFailure is what to print of an error.
func asFailure(err error, version string) *failure {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = &failure{Code: codeInternal, Msg: err.Error(), Details: "this looks like a fault of Porin: please report it"}
	}
	f.CNIVersion, f.Msg = version, strings.NewReplacer("\n", " ", "\r", " ").Replace(f.Msg)
	return f
}

func badConfig(key, text string) error {
	return &failure{Code: codeBadConfig, Msg: "network configuration: " + key + ": " + text, Details: `correct "` + key + `" in the network configuration`}
}

func badEnvironment(name, text string) error {
	return &failure{Code: codeBadEnvironment, Msg: name + " " + text, Details: "the container runtime must set it"}
}
