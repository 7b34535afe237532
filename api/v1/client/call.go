package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	v1 "porin.dev/porin/api/v1"
)

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

// do makes one request. The caller closes the body of an answer that is no failure.
func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	request, err := newRequest(ctx, method, path, body)
	if err != nil {
		return nil, err
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

func newRequest(ctx context.Context, method, path string, body any) (*http.Request, error) {
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
	return request, nil
}
