package client

import (
	"bytes"
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
	"time"

	v1 "porin.dev/porin/api/v1"
)

// ErrUnreachable is that no agent answered: it does not run, listens elsewhere, or went away during the call.
var ErrUnreachable = errors.New("agent not reachable")

// call makes one request and reads its answer, whose type is T. A nil body sends none.
func call[T any](ctx context.Context, c *Client, method, path string, body any) (answer T, err error) {
	response, err := c.do(ctx, method, path, body)
	if err != nil {
		return answer, err
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return answer, fmt.Errorf("read answer to %s %s: %w", method, path, err)
	}
	return answer, nil
}

// send makes one request whose answer has no body.
func (c *Client) send(ctx context.Context, method, path string, body any) error {
	response, err := c.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// manifests are a body that is sent as it is.
type manifests []byte

// do makes one request. The caller closes the body of an answer that is no failure.
func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var content io.Reader
	contentType := "application/json"
	if text, ok := body.(manifests); ok {
		content, contentType = bytes.NewReader(text), "application/yaml"
	} else if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode body of %s %s: %w", method, path, err)
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://porin"+path, content)
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", contentType)
	}
	if deadline, ok := ctx.Deadline(); ok {
		request.Header.Set(v1.TimeoutHeader, max(time.Until(deadline), 1).String())
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		defer func() { _ = response.Body.Close() }()
		return nil, problemOf(response)
	}
	return response, nil
}

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
