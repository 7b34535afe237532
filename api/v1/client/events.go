package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	v1 "porin.dev/porin/api/v1"
)

// EventOptions says which events to read.
type EventOptions struct {
	// Since is the Seq of the last event that the caller has; 0 begins with the oldest that the agent keeps.
	Since uint64
	// Follow goes on with what happens, until ctx ends or the agent stops.
	Follow bool
}

// Events reads the agent's events, oldest first. The sequence ends after the last event, or with an error; when ctx
// ends the error is its own. A gap in Seq means that the agent had no longer kept what was in between.
func (c *Client) Events(ctx context.Context, options EventOptions) iter.Seq2[v1.Event, error] {
	return func(yield func(v1.Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx) // ends the request when the caller breaks off
		defer cancel()
		response, err := c.do(ctx, http.MethodGet, options.path(), nil)
		if err != nil {
			yield(v1.Event{}, err)
			return
		}
		defer func() { _ = response.Body.Close() }()
		c.readEvents(ctx, response.Body, yield)
	}
}

func (c *Client) readEvents(ctx context.Context, body io.Reader, yield func(v1.Event, error) bool) {
	decoder := json.NewDecoder(body)
	for {
		var event v1.Event
		switch err := decoder.Decode(&event); {
		case err == nil:
			if !yield(event, nil) {
				return
			}
		case errors.Is(err, io.EOF):
			return
		default:
			yield(v1.Event{}, fmt.Errorf("read events: %w", c.explain(ctx, err)))
			return
		}
	}
}

func (o EventOptions) path() string {
	query := url.Values{}
	if o.Since > 0 {
		query.Set("since", strconv.FormatUint(o.Since, 10))
	}
	if o.Follow {
		query.Set("follow", "true")
	}
	return "/v1/events?" + query.Encode()
}
