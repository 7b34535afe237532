package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/porin/fleet"
)

// clusterExplain is "porin cluster policy explain": From's node decides about egress, and To's about ingress.
func clusterExplain(ctx context.Context, s *session, _ []string) error {
	if s.from == "" || s.to == "" {
		return usageOf([]string{"cluster", "policy", "explain"}, "want --from and --to")
	}
	from, err := agentOf(ctx, s, s.from)
	if err != nil {
		return err
	}
	to, err := agentOf(ctx, s, s.to)
	if err != nil {
		return err
	}
	if from == nil && to == nil {
		return absentError{fmt.Sprintf("neither %s nor %s is a pod of the cluster: no policy decides", s.from, s.to)}
	}
	args := []string{"policy", "explain", "--from", s.from, "--to", s.to, "--protocol", s.protocol, "--port", strconv.Itoa(int(s.port))}
	explain := func(pod *fleet.Pod) (*v1.PolicyExplanation, error) {
		if pod == nil {
			return nil, nil
		}
		answer := fleet.Ask[v1.PolicyExplanation](ctx, s.cluster, []fleet.Pod{*pod}, nil, args...)[0]
		if answer.Err != nil {
			return nil, fmt.Errorf("the agent of node %s: %w", pod.Node, answer.Err)
		}
		return &answer.Value, nil
	}
	egress, egressErr := explain(from)
	ingress, ingressErr := explain(to)
	err = errors.Join(egressErr, ingressErr)
	if egress == nil && ingress == nil {
		return err
	}
	x := bothEnds(egress, ingress)
	return errors.Join(err, s.print(x, func(w io.Writer) { explanationTable(w, x) }))
}

// agentOf returns the pod of the agent that attached a pod; nil for an address that is no pod's.
func agentOf(ctx context.Context, s *session, pod string) (*fleet.Pod, error) {
	node, err := s.cluster.NodeOf(ctx, pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, absentError{fmt.Sprintf("the cluster has no pod %s", pod)}
	case err == nil && node == "" && strings.Contains(pod, "/"):
		return nil, fmt.Errorf("pod %s has no node yet", pod)
	case err != nil || node == "":
		return nil, err
	}
	nodes, err := s.listNodes(ctx)
	if err != nil {
		return nil, err
	}
	for _, agent := range agentsOf(nodes, new(faultList)) {
		if agent.Node == node {
			return &agent, nil
		}
	}
	return nil, fmt.Errorf("node %s of pod %s has no agent", node, pod)
}

// bothEnds joins the answers of both nodes; one can be nil.
func bothEnds(egress, ingress *v1.PolicyExplanation) v1.PolicyExplanation {
	if egress == nil || ingress == nil {
		return *cmp.Or(egress, ingress)
	}
	x := *egress
	x.To = ingress.To
	x.Ingress, x.AuditIngress, x.Datapath.Ingress = ingress.Ingress, ingress.AuditIngress, ingress.Datapath.Ingress
	x.Allowed = x.Egress.Allowed && x.Ingress.Allowed
	x.Datapath.Differs = egress.Datapath.Differs || ingress.Datapath.Differs
	x.Datapath.NotAsked = cmp.Or(egress.Datapath.NotAsked, ingress.Datapath.NotAsked)
	x.Error, x.ProxyError = cmp.Or(egress.Error, ingress.Error), cmp.Or(egress.ProxyError, ingress.ProxyError)
	return x
}

// clusterDiff is what proposed policies change on all nodes.
type clusterDiff struct {
	v1.PolicyDiff
	Errors []clusterFault `json:"errors"` // nodes without an answer, whose connections are not in it
}

// clusterDiffCommand is "porin cluster policy diff". Each node answers for the connections that it has seen.
func clusterDiffCommand(ctx context.Context, s *session, _ []string) error {
	documents, args, err := proposedPolicies(s, []string{"cluster", "policy", "diff"})
	if err != nil {
		return err
	}
	nodes, err := s.listNodes(ctx)
	if err != nil {
		return err
	}
	var faults faultList
	var answers []v1.PolicyDiff
	for _, a := range fleet.Ask[v1.PolicyDiff](ctx, s.cluster, agentsOf(nodes, &faults), documents, append([]string{"policy", "diff"}, args...)...) {
		if a.Err != nil {
			faults.add(a.Pod.Node, "agent: "+a.Err.Error())
			continue
		}
		answers = append(answers, a.Value)
	}
	diff := clusterDiff{joinDiffs(answers), faults.grouped()}
	err = s.print(diff, func(w io.Writer) {
		if len(answers) > 0 {
			s.diffTable(w, diff.PolicyDiff)
		}
		faultRows(w, "Fault:", diff.Errors)
	})
	switch {
	case err == nil && len(answers) == 0:
		err = errors.New("no node has compared its connections")
	case err == nil && len(diff.Errors) > 0:
		err = errors.New("not every node has compared its connections")
	}
	return err
}

// proposedPolicies returns the manifests to send, and the arguments for the agent's porin policy diff.
func proposedPolicies(s *session, command []string) (documents []byte, args []string, err error) {
	if s.file == "" && len(s.deleted) == 0 {
		return nil, nil, usageOf(command, "want --file or --delete")
	}
	if s.file != "" {
		if documents, err = s.read(s.file); err != nil {
			return nil, nil, err
		}
		args = append(args, "--file", "-")
	}
	if len(s.deleted) > 0 {
		args = append(args, "--delete", strings.Join(s.deleted, ","))
	}
	return documents, args, nil
}

// joinDiffs adds what nodes have seen. Both nodes of a connection tell of it, each with its own direction's decision.
func joinDiffs(answers []v1.PolicyDiff) (all v1.PolicyDiff) {
	type key struct {
		from, to, protocol string
		port               uint16
	}
	changes, order := map[key]*v1.PolicyFlowChange{}, []key{}
	for _, a := range answers {
		all.Flows += a.Flows
		if all.Since.IsZero() || !a.Since.IsZero() && a.Since.Before(all.Since) {
			all.Since = a.Since
		}
		all.Changed += a.Changed
		for _, c := range a.Changes {
			k := key{c.From.Address.String(), c.To.Address.String(), c.Protocol, c.Port}
			other := changes[k]
			if other == nil {
				changes[k], order = &c, append(order, k)
				continue
			}
			all.Changed--
			other.Now, other.Then = joinVerdicts(other.Now, c.Now), joinVerdicts(other.Then, c.Then)
			other.Count = max(other.Count, c.Count)
		}
	}
	all.Changes = make([]v1.PolicyFlowChange, 0, len(order))
	for _, k := range order {
		all.Changes = append(all.Changes, *changes[k])
	}
	slices.SortStableFunc(all.Changes, func(a, b v1.PolicyFlowChange) int { return cmp.Compare(b.Count, a.Count) })
	return all
}

// joinVerdicts takes each direction from the node that decides it.
func joinVerdicts(a, b v1.PolicyVerdict) v1.PolicyVerdict {
	if a.Egress.Reason == v1.ReasonOtherNode {
		a.Egress = b.Egress
	}
	if a.Ingress.Reason == v1.ReasonOtherNode {
		a.Ingress = b.Ingress
	}
	a.Allowed = a.Egress.Allowed && a.Ingress.Allowed
	return a
}
