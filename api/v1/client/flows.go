package client

import (
	"context"
	"iter"
	"net/url"
	"strconv"
	"strings"

	v1 "porin.dev/porin/api/v1"
)

// FlowOptions says which flows to read. An unset field leaves none out.
type FlowOptions struct {
	// Since is the Seq of the last flow that the caller has; 0 begins with the oldest that the agent keeps.
	Since uint64
	// Follow goes on with what happens, until ctx ends or the agent stops.
	Follow bool
	// Last begins with so many of the kept flows.
	Last int
	// Pod is NAMESPACE/NAME of one end.
	Pod               string
	Verdicts, Reasons []string
	Protocol          string
	// Port is the destination's, or the Service's.
	Port uint16
}

// Flows reads which connections were opened and which packets were dropped, oldest first. The sequence ends after the
// last flow, or with an error; when ctx ends the error is its own. A line with Lost is no flow.
func (c *Client) Flows(ctx context.Context, options FlowOptions) iter.Seq2[v1.Flow, error] {
	query := url.Values{}
	setStream(query, options.Since, options.Follow)
	for name, value := range map[string]string{
		"pod": options.Pod, "verdict": strings.Join(options.Verdicts, ","), "reason": strings.Join(options.Reasons, ","), "protocol": options.Protocol,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for name, value := range map[string]int{"last": options.Last, "port": int(options.Port)} {
		if value != 0 {
			query.Set(name, strconv.Itoa(value))
		}
	}
	return lines[v1.Flow](ctx, c, "/v1/flows?"+query.Encode(), "flows")
}
