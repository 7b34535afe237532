package cni

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
)

// Codes of Porin's own, which the CNI specification leaves to plugins (100 and above).
const (
	codeDiffers  = 100 // CHECK: the attachment differs from its ADD
	codeConflict = 101 // it is there, and has another owner
)

// failure is what a runtime gets of an error.
type failure struct {
	Code uint
	Text string // what failed, and why; one line
	Hint string // what to do about it
}

func (f *failure) Error() string { return f.Text }

func fail(code uint, text, hint string) error { return &failure{code, text, hint} }

// toCNIError returns the error in the form of the CNI specification (1.1.0, section 5). An error that an IPAM plugin
// printed is passed on as it is.
func toCNIError(err error) *types.Error {
	if printed, ok := errors.AsType[*types.Error](err); ok {
		return printed
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return &types.Error{Code: f.Code, Msg: oneLine(f.Text), Details: f.Hint}
	}
	code, hint := codeOf(fault.KindOf(err))
	if own, ok := fault.HintOf(err); ok {
		hint = own
	}
	return &types.Error{Code: code, Msg: oneLine(err.Error()), Details: hint}
}

// codeOf returns the CNI code for a kind of fault, and what can be done about any of that kind. An error may have a
// hint of its own that says more.
func codeOf(kind fault.Kind) (code uint, hint string) {
	switch kind {
	case fault.Invalid, fault.TooLarge:
		return types.ErrInvalidNetworkConfig, "correct what the pod or the network configuration asks for"
	case fault.NotFound:
		return types.ErrUnknownContainer, "attach the container first"
	case fault.Conflict:
		return codeConflict, "release what holds it"
	case fault.Exhausted:
		return types.ErrTryAgainLater, "remove pods from this node"
	case fault.Unavailable:
		return types.ErrTryAgainLater, "it may work in a while; look at the log of porin-agent"
	case fault.Deadline:
		return types.ErrTryAgainLater, `look at the log of porin-agent, or raise "timeout" in the network configuration`
	}
	return types.ErrInternal, "look at the log of porin-agent"
}

func oneLine(text string) string { return strings.NewReplacer("\n", " ", "\r", " ").Replace(text) }

// writeError answers with an error for the plugin to print.
func writeError(w http.ResponseWriter, cniVersion string, err error) error {
	body, encodeErr := json.Marshal(struct {
		CNIVersion string `json:"cniVersion,omitempty"`
		*types.Error
	}{cniVersion, toCNIError(err)})
	if encodeErr != nil {
		return encodeErr
	}
	return write(w, v1.CNIErrorStatus, body)
}
