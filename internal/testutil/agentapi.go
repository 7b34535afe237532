package testutil

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"

	v1 "porin.dev/porin/api/v1"
)

// Get reads an answer of the agent's API.
func (a *Agent) Get(path string, answer any) error {
	return a.Do(http.MethodGet, path, nil, answer)
}

// Do makes one call of the agent's API. A failure of the agent is a *[v1.Problem].
func (a *Agent) Do(method, path string, request, answer any) error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", a.Node.Socket)
		},
	}
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if request == nil {
		body = nil
	}
	call, err := http.NewRequestWithContext(ctx, method, "http://porin"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	reply, err := transport.RoundTrip(call)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return err
	}
	if reply.StatusCode >= 300 {
		problem := &v1.Problem{}
		if err := json.Unmarshal(text, problem); err != nil {
			return fmt.Errorf("%s: %s", reply.Status, text)
		}
		return problem
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}
