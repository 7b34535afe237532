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
	query := url.Values{}
	setStream(query, options.Since, options.Follow)
	return lines[v1.Event](ctx, c, "/v1/events?"+query.Encode(), "events")
}

func setStream(query url.Values, since uint64, follow bool) {
	if since > 0 {
		query.Set("since", strconv.FormatUint(since, 10))
	}
	if follow {
		query.Set("follow", "true")
	}
}

// lines reads a stream of lines. what names their kind.
func lines[T any](ctx context.Context, c *Client, path, what string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		ctx, cancel := context.WithCancel(ctx) // ends the request when the caller breaks off
		defer cancel()
		response, err := c.do(ctx, http.MethodGet, path, nil)
		if err != nil {
			yield(none, err)
			return
		}
		defer func() { _ = response.Body.Close() }()
		decoder := json.NewDecoder(response.Body)
		for {
			var line T
			switch err := decoder.Decode(&line); {
			case err == nil:
				if !yield(line, nil) {
					return
				}
			case errors.Is(err, io.EOF):
				return
			default:
				yield(none, fmt.Errorf("read %s: %w", what, c.explain(ctx, err)))
				return
			}
		}
	}
}
