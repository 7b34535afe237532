package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"syscall"

	v1 "porin.dev/porin/api/v1"
)

// ErrUnreachable is that no agent answered: it does not run, listens elsewhere, or went away during the call.
var ErrUnreachable = errors.New("agent not reachable")

// explain says what an error of the transport means.
func (c *Client) explain(ctx context.Context, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // the URL is made up
	}
	switch {
	case ctx.Err() != nil && c.socket == "":
		return fmt.Errorf("wait for the API server: %w", context.Cause(ctx))
	case ctx.Err() != nil:
		return fmt.Errorf("wait for the agent on %s: %w", c.socket, context.Cause(ctx))
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: there is no socket %s: the agent does not run, or listens elsewhere", ErrUnreachable, c.socket)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: nobody listens on %s: the agent does not run", ErrUnreachable, c.socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("socket %s: only root and its group may use the agent: %w", c.socket, err)
	default:
		return fmt.Errorf("%w: call on %s: %w", ErrUnreachable, c.socket, err)
	}
}

// maxProblem is more than any problem has.
const maxProblem = 64 << 10

// problemOf reads a failure. What listens there may be no agent.
func problemOf(response *http.Response) error {
	var problem v1.Problem
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	err := json.NewDecoder(io.LimitReader(response.Body, maxProblem)).Decode(&problem)
	if mediaType != "application/problem+json" || err != nil {
		return fmt.Errorf("answer is %s without a problem: is it Porin's agent that listens there?", response.Status)
	}
	return &problem
}
