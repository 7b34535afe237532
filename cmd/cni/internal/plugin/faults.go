package plugin

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/agent"
	"porin.dev/porin/cmd/cni/internal/spec"
)

// agentFault says what a failed call of the agent means to a runtime.
func (t *task) agentFault(doing string, err error) *spec.Error {
	e := &spec.Error{Code: spec.Internal, Msg: doing + ": " + err.Error(), Hint: "look at the log of porin-agent"}
	if p, ok := errors.AsType[*v1.Problem](err); ok {
		e.Code, e.Hint = refusal(p.Code)
		return e
	}
	switch {
	case errors.Is(err, agent.ErrTimeout):
		e.Code, e.Hint = spec.TryAgain, `look at the log of porin-agent, or raise "timeout" in the network configuration`
	case errors.Is(err, agent.ErrUnreachable):
		e.Code, e.Hint = spec.TryAgain, `start porin-agent, or correct "socket" in the network configuration`
	}
	return e
}

// refusal is the CNI code for a problem code of the agent, and what to do about it.
func refusal(code string) (spec.Code, string) {
	switch code {
	case v1.CodeInvalid, v1.CodeTooLarge:
		return spec.BadConfig, "correct what the pod or the network configuration asks for"
	case v1.CodeNotFound:
		return spec.UnknownContainer, "attach the container first"
	case v1.CodeConflict:
		return spec.Conflict, "ask for another address, or release what holds it"
	case v1.CodeExhausted:
		return spec.TryAgain, "remove pods from this node, or give it more addresses"
	case v1.CodeUnavailable, v1.CodeDeadline:
		return spec.TryAgain, "it may work in a while; look at the log of porin-agent"
	case v1.CodeForbidden:
		return spec.Internal, "run the container runtime as root, or in the group of the agent's socket"
	}
	return spec.Internal, "look at the log of porin-agent"
}

// unanswered tells whether the agent is not there to do what it was asked, rather than unwilling or slow. Something that
// is not the agent, and answers at its socket, is no agent.
func unanswered(err error) bool {
	p, refused := errors.AsType[*v1.Problem](err)
	return errors.Is(err, agent.ErrUnreachable) || errors.Is(err, agent.ErrAnswer) || refused && p.Code == v1.CodeUnavailable
}

// refusedForGood tells whether the agent will never do what it was asked, as there is nothing that it could do it to: it
// has no endpoint of that name, and would not take one.
func refusedForGood(err error) bool {
	p, refused := errors.AsType[*v1.Problem](err)
	return refused && (p.Code == v1.CodeInvalid || p.Code == v1.CodeNotFound)
}

// kernelFault says what a refusal of the kernel means to a runtime.
func kernelFault(doing string, err error) *spec.Error {
	e := &spec.Error{Code: spec.Internal, Msg: fmt.Sprintf("%s: %v", doing, err)}
	switch {
	case errors.Is(err, unix.EPERM):
		e.Hint = "run the container runtime as root, with CAP_NET_ADMIN and CAP_SYS_ADMIN"
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.EBUSY), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		e.Code, e.Hint = spec.TryAgain, "the node is short of resources"
	}
	return e
}
