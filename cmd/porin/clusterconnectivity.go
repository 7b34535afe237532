package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/porin/connectivity"
	"porin.dev/porin/cmd/porin/fleet"
)

// maxTested is how many nodes are tested unless --nodes names them: the paths grow with the square.
const maxTested = 10

// clusterConnectivity is "porin cluster connectivity".
func clusterConnectivity(ctx context.Context, s *session, _ []string) error {
	if s.cleanup {
		return s.done(connectivity.Cleanup(ctx, s.cluster), "the namespace %s is removed", connectivity.Namespace)
	}
	for _, address := range s.outside {
		if _, err := netip.ParseAddrPort(address); err != nil {
			return usageOf([]string{clusterGroup, "connectivity"}, fmt.Sprintf("--outside %q: want an address with a port, such as 192.0.2.1:443", address))
		}
	}
	nodes, err := s.listNodes(ctx)
	if err != nil {
		return err
	}
	for _, name := range s.nodes {
		if !slices.ContainsFunc(nodes, func(n fleet.Node) bool { return n.Name == name }) {
			return absentError{fmt.Sprintf("--nodes: the cluster has no node %q", name)}
		}
	}
	if len(s.nodes) > 0 {
		nodes = slices.DeleteFunc(nodes, func(n fleet.Node) bool { return !slices.Contains(s.nodes, n.Name) })
	}
	var faults faultList
	agents := agentsOf(nodes, &faults)
	if more := len(agents) - maxTested; more > 0 && len(s.nodes) == 0 {
		agents = agents[:maxTested]
		_, _ = fmt.Fprintf(s.err, "porin: %s are not tested: --nodes names others\n", plural(more, "node"))
	}
	if len(agents) == 0 {
		return absentError{"none of the nodes has an agent"}
	}
	routing := map[string]string{}
	for _, a := range fleet.Ask[v1.Status](ctx, s.cluster, agents, nil, "status") {
		if a.Err != nil {
			faults.add(a.Pod.Node, "agent: "+a.Err.Error())
		}
		routing[a.Pod.Node] = a.Value.Network.Routing
	}
	test := connectivity.Test{
		API: s.cluster, Agents: agents, Routing: routing, Outside: s.outside, Denied: deniedBy(s.cluster),
		Log: func(format string, args ...any) {
			_, _ = fmt.Fprintf(s.err, "porin: "+format+"\n", args...)
		},
	}
	report, err := test.Run(ctx)
	if report == nil {
		return err
	}
	result := connectivityResult{Outcomes: report.Outcomes, Faults: faults.grouped()}
	details := map[path]string{}
	for _, f := range report.Faults {
		key := path{f.From, f.To, f.Part}
		details[key] = cmp.Or(details[key], f.Detail)
	}
	result.Failing = groupPaths(details)
	return errors.Join(err, s.print(result, func(w io.Writer) { connectivityTable(w, result) }), result.err())
}

// connectivityResult is the answer of "porin cluster connectivity".
type connectivityResult struct {
	Failing  []failingPaths         `json:"failing"`
	Faults   []clusterFault         `json:"faults"` // nodes without an agent, or whose agent does not answer
	Outcomes []connectivity.Outcome `json:"outcomes"`
}

func (r connectivityResult) err() error {
	if n := len(r.Failing) + len(r.Faults); n > 0 {
		return errors.New(plural(n, "fault"))
	}
	return nil
}

// connectivityTable has a line for each two nodes, with how many of the paths of a kind work, and the parts at fault.
func connectivityTable(w io.Writer, r connectivityResult) {
	type line struct{ from, to string }
	type count struct{ ok, all int }
	counts, kinds := map[line]map[string]*count{}, []string{}
	var order []line
	for _, o := range r.Outcomes {
		l := line{o.From, o.To}
		if counts[l] == nil {
			counts[l], order = map[string]*count{}, append(order, l)
		}
		if counts[l][o.What] == nil {
			counts[l][o.What] = new(count)
		}
		if !slices.Contains(kinds, o.What) {
			kinds = append(kinds, o.What)
		}
		counts[l][o.What].all++
		if o.OK() {
			counts[l][o.What].ok++
		}
	}
	header := []any{"FROM", "TO"}
	for _, kind := range kinds {
		header = append(header, kind)
	}
	row(w, header...)
	for _, l := range order {
		cells := []any{l.from, l.to}
		for _, kind := range kinds {
			switch c := counts[l][kind]; {
			case c == nil:
				cells = append(cells, "")
			case c.ok == c.all:
				cells = append(cells, "ok")
			default:
				cells = append(cells, "FAILS "+strconv.Itoa(c.all-c.ok)+"/"+strconv.Itoa(c.all))
			}
		}
		row(w, cells...)
	}
	_, _ = fmt.Fprintln(w)
	faultRows(w, "Fault:", r.Faults)
	if len(r.Failing) > 0 {
		failingRows(w, r.Failing)
	}
}

// deniedBy asks both agents about a connection. It returns the decision that denies it, or "".
func deniedBy(c fleet.Cluster) func(ctx context.Context, from, to fleet.Pod, fromPod, toPod string, port int) string {
	return func(ctx context.Context, from, to fleet.Pod, fromPod, toPod string, port int) string {
		args := []string{"policy", "explain", "--from", fromPod, "--to", toPod, "--port", strconv.Itoa(port)}
		egress := fleet.Ask[v1.PolicyExplanation](ctx, c, []fleet.Pod{from}, nil, args...)[0]
		ingress := fleet.Ask[v1.PolicyExplanation](ctx, c, []fleet.Pod{to}, nil, args...)[0]
		switch {
		case egress.Err == nil && !egress.Value.Egress.Allowed:
			return "egress " + decisionText(egress.Value.Egress)
		case ingress.Err == nil && !ingress.Value.Ingress.Allowed:
			return "ingress " + decisionText(ingress.Value.Ingress)
		}
		return ""
	}
}

// connectivityServe is what the pods of a test run.
func connectivityServe(ctx context.Context, s *session, _ []string) error {
	return connectivity.Serve(ctx, s.owner)
}

// connectivityProbe tries what stdin says.
func connectivityProbe(ctx context.Context, s *session, _ []string) error {
	var probes []connectivity.Probe
	if err := json.NewDecoder(s.in).Decode(&probes); err != nil {
		return usageOf([]string{"connectivity", "probe"}, "stdin: "+err.Error())
	}
	return json.NewEncoder(s.out).Encode(connectivity.RunProbes(ctx, probes))
}
