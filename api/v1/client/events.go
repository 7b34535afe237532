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
	"strings"
	"time"

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

// FlowOptions says which flows to read. An unset field leaves none out.
type FlowOptions struct {
	// Since is the Seq of the last flow that the caller has; 0 begins with the oldest that the agent keeps.
	Since uint64
	// Follow goes on with what happens, until ctx ends or the agent stops.
	Follow bool
	// Last begins with so many of the kept flows.
	Last uint
	// Age leaves out older flows; 0 is any age.
	Age time.Duration
	// Not leaves out flows that meet one of these, each NAME=VALUE of a parameter of GET /v1/flows.
	Not []string
	// Namespaces, Pod (NAMESPACE/NAME) and Label (a selector) are of one end.
	Namespaces []string
	Pod, Label string
	// Name is of DNS; "*.example.com" is any name below.
	Name string
	// Direction is [v1.FlowEgress] or [v1.FlowIngress].
	Direction string
	// Policy is the NAMESPACE/NAME or NAME of the policy whose rule decided.
	Policy            string
	Verdicts, Reasons []string
	Protocol          string
	// Port is the destination's, or the Service's.
	Port uint16
}

// Flows reads which connections were opened and which packets were dropped, oldest first. The sequence ends after the
// last flow, or with an error; when ctx ends the error is its own. A line with Lost is no flow.
func (c *Client) Flows(ctx context.Context, options FlowOptions) iter.Seq2[v1.Flow, error] {
	return lines[v1.Flow](ctx, c, "/v1/flows?"+options.Query().Encode(), "flows")
}

// Query returns the parameters of GET /v1/flows.
func (options FlowOptions) Query() url.Values {
	query := url.Values{}
	setStream(query, options.Since, options.Follow)
	for name, value := range map[string]string{
		"namespace": strings.Join(options.Namespaces, ","), "pod": options.Pod, "label": options.Label, "name": options.Name,
		"direction": options.Direction, "policy": options.Policy, "verdict": strings.Join(options.Verdicts, ","), "reason": strings.Join(options.Reasons, ","), "protocol": options.Protocol,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if options.Age > 0 {
		query.Set("age", options.Age.String())
	}
	if len(options.Not) > 0 {
		query["not"] = options.Not
	}
	for name, value := range map[string]uint{"last": options.Last, "port": uint(options.Port)} {
		if value != 0 {
			query.Set(name, strconv.FormatUint(uint64(value), 10))
		}
	}
	return query
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
