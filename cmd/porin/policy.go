package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	v1 "porin.dev/porin/api/v1"
)

func policyList(ctx context.Context, s *session, _ []string) error {
	list, err := s.client.Policies(ctx)
	return s.show(list, err, func(w io.Writer) {
		row(w, "KIND", "NAMESPACE", "NAME", "SOURCE", "TIER", "PRIORITY", "EGRESS", "INGRESS", "AUDIT", "REPORTS")
		for _, p := range list {
			audit := map[bool]string{true: "yes"}[p.Audit]
			row(w, p.Kind, p.Namespace, p.Name, p.Source, p.Tier, priorityText(p), rulesText(p.Egress), rulesText(p.Ingress), audit, len(p.Reports))
		}
	})
}

func policyGet(ctx context.Context, s *session, args []string) error {
	ref, err := parsePolicyRef("get", args[0])
	if err != nil {
		return err
	}
	p, err := s.client.Policy(ctx, ref.kind, ref.namespace, ref.name)
	return s.show(p, withHint(err, policyHint), func(w io.Writer) {
		row(w, "Policy:", policyName(p.Kind, p.Namespace, p.Name))
		if p.Source == "kubernetes" {
			row(w, "Source:", "the Kubernetes API")
		}
		row(w, "Tier:", p.Tier)
		row(w, "Priority:", priorityText(p))
		row(w, "Egress:", rulesText(p.Egress))
		row(w, "Ingress:", rulesText(p.Ingress))
		if p.Audit {
			row(w, "Audit:", "it is not in force: what it would deny passes")
		}
		for _, report := range p.Reports {
			row(w, "Report:", report)
		}
	})
}

func policyApply(ctx context.Context, s *session, _ []string) error {
	if s.file == "" {
		return usageOf([]string{"policy", "apply"}, "want --file")
	}
	documents, err := s.read(s.file)
	if err != nil {
		return err
	}
	put, note := s.client.PutPolicies, ""
	if s.dryRun {
		put, note = s.client.CheckPolicies, " (dry run)"
	}
	list, err := put(ctx, documents)
	if err != nil {
		return err
	}
	if s.output.value != "json" {
		for _, p := range list {
			for _, report := range p.Reports {
				_, _ = fmt.Fprintf(s.err, "porin: warning: %s: %s\n", policyName(p.Kind, p.Namespace, p.Name), printable(report))
			}
		}
	}
	return s.print(list, func(w io.Writer) {
		for _, p := range list {
			_, _ = fmt.Fprintln(w, printable(policyName(p.Kind, p.Namespace, p.Name)+" "+p.Outcome+note))
		}
	})
}

func policyDiff(ctx context.Context, s *session, _ []string) error {
	if s.file == "" && len(s.deleted) == 0 {
		return usageOf([]string{"policy", "diff"}, "want --file or --delete")
	}
	var documents []byte
	if s.file != "" {
		var err error
		if documents, err = s.read(s.file); err != nil {
			return err
		}
	}
	var remove []string
	for _, text := range s.deleted {
		ref, err := parsePolicyRef("diff", text)
		if err != nil {
			return err
		}
		remove = append(remove, strings.Join(slices.DeleteFunc([]string{ref.kind, ref.namespace, ref.name}, func(part string) bool { return part == "" }), "/"))
	}
	diff, err := s.client.DiffPolicies(ctx, documents, remove)
	return s.show(diff, err, func(w io.Writer) { s.diffTable(w, diff) })
}

func (s *session) diffTable(w io.Writer, diff v1.PolicyDiff) {
	if diff.Flows == 0 {
		_, _ = fmt.Fprintln(w, "No connection was seen that policies could decide otherwise.")
		return
	}
	seen := plural(diff.Flows, "connection") + " seen in " + s.age(diff.Since)
	if diff.Changed == 0 {
		_, _ = fmt.Fprintf(w, "Nothing would be decided otherwise of %s.\n", seen)
		return
	}
	row(w, "FROM", "TO", "PORT", "NOW", "THEN", "BY")
	for _, c := range diff.Changes {
		from, to := cmp.Or(podName(c.From.Pod), c.From.Address.String()), cmp.Or(podName(c.To.Pod), c.To.Address.String())
		port := c.Protocol
		if c.Port != 0 {
			port = fmt.Sprintf("%s %d", c.Protocol, c.Port)
		}
		row(w, from, to, port, flowVerdict(c.Now), flowVerdict(c.Then), deciderText(c))
	}
	if more := diff.Changed - len(diff.Changes); more > 0 {
		_, _ = fmt.Fprintf(w, "and %d more.\n", more)
	}
	_, _ = fmt.Fprintf(w, "%d of %s would be decided otherwise.\n", diff.Changed, seen)
}

// flowVerdict is "limited" when not everything may be asked for.
func flowVerdict(v v1.PolicyVerdict) string {
	if v.Allowed && len(v.Egress.Layer7)+len(v.Ingress.Layer7) > 0 {
		return "limited"
	}
	return verdictText(v.Allowed)
}

// deciderText is what decides then, in the direction in which it is something else.
func deciderText(c v1.PolicyFlowChange) string {
	direction, decision := "egress", c.Then.Egress
	if c.Now.Egress.Allowed == c.Then.Egress.Allowed && slices.Equal(c.Now.Egress.Layer7, c.Then.Egress.Layer7) {
		direction, decision = "ingress", c.Then.Ingress
	}
	if decision.Rule != nil {
		return ruleText(*decision.Rule)
	}
	return direction + ": " + decision.Reason
}

// read reads a file, or what comes in when it is "-".
func (s *session) read(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(s.in)
	}
	return os.ReadFile(file)
}

// policyHint says how to name a policy that is not found.
const policyHint = "see porin policy list; a policy of another kind than NetworkPolicy needs its kind: KIND/NAMESPACE/NAME, or KIND/NAME of a policy of the cluster"

func policyDelete(ctx context.Context, s *session, args []string) error {
	ref, err := parsePolicyRef("delete", args[0])
	if err != nil {
		return err
	}
	err = s.client.DeletePolicy(ctx, ref.kind, ref.namespace, ref.name)
	return s.done(withHint(err, policyHint), "%s deleted", printable(policyName(ref.kind, ref.namespace, ref.name)))
}

func policyExplain(ctx context.Context, s *session, _ []string) error {
	if s.from == "" || s.to == "" {
		return usageOf([]string{"policy", "explain"}, "want --from and --to")
	}
	x, err := s.client.ExplainPolicy(ctx, s.from, s.to, s.protocol, s.port)
	err = withHint(err, "give a pod as NAMESPACE/NAME or by an address, a node by its address, and a Service by that of a pod behind it")
	return s.show(x, err, func(w io.Writer) { explanationTable(w, x) })
}

func explanationTable(w io.Writer, x v1.PolicyExplanation) {
	row(w, "From:", peerText(x.From))
	row(w, "To:", peerText(x.To))
	if x.Port == 0 {
		row(w, "Protocol:", x.Protocol)
	} else {
		row(w, "Protocol:", fmt.Sprintf("%s, port %d", x.Protocol, x.Port))
	}
	row(w, "Egress:", decisionText(x.Egress))
	row(w, "Ingress:", decisionText(x.Ingress))
	row(w, "Verdict:", explainedVerdict(x))
	if x.To.Kind == "world" && !x.Allowed {
		row(w, "Note:", "if this is a Service, ask about the pod behind it: policies do not see a Service's address")
	}
	for _, side := range []struct {
		name     string
		decision *v1.PolicyDecision
	}{{"egress", x.AuditEgress}, {"ingress", x.AuditIngress}} {
		if side.decision != nil {
			row(w, "Audit:", side.name+" would be "+decisionText(*side.decision))
		}
	}
	row(w, "Datapath:", datapathText(x.Datapath))
	if x.Error != "" {
		row(w, "Not in force:", x.Error)
	}
}

// explainedVerdict is the verdict of the policies of this node, and whether the proxy serves the allowed connections.
func explainedVerdict(x v1.PolicyExplanation) string {
	if x.Allowed && (x.Egress.Reason == v1.ReasonOtherNode || x.Ingress.Reason == v1.ReasonOtherNode) {
		return "allowed by this node; ask the pod's node, too"
	}
	if x.Allowed && x.ProxyError != "" {
		return "allowed, but the proxy does NOT serve it as it should: " + x.ProxyError
	}
	return verdictText(x.Allowed)
}

// policyRef is a policy as the command line names it.
type policyRef struct{ kind, namespace, name string }

const (
	networkPolicy       = "NetworkPolicy"
	ciliumNetworkPolicy = "CiliumNetworkPolicy"
)

func clusterKinds() []string {
	return []string{"ClusterNetworkPolicy", "AdminNetworkPolicy", "BaselineAdminNetworkPolicy", "CiliumClusterwideNetworkPolicy"}
}

// parsePolicyRef reads KIND/NAMESPACE/NAME, NAMESPACE/NAME of a NetworkPolicy, and KIND/NAME of a policy of the
// cluster.
func parsePolicyRef(verb, text string) (policyRef, error) {
	parts := strings.Split(text, "/")
	if slices.Contains(parts, "") {
		parts = nil
	}
	switch {
	case len(parts) == 3:
		return policyRef{kindOf(parts[0]), parts[1], parts[2]}, nil
	case len(parts) == 2 && slices.Contains(clusterKinds(), kindOf(parts[0])):
		return policyRef{kindOf(parts[0]), "", parts[1]}, nil
	case len(parts) == 2:
		return policyRef{networkPolicy, parts[0], parts[1]}, nil
	}
	return policyRef{}, usageOf([]string{"policy", verb}, fmt.Sprintf("%q: want NAMESPACE/NAME of a %s, %s/NAMESPACE/NAME, or KIND/NAME of a policy of the cluster", text, networkPolicy, ciliumNetworkPolicy))
}

// kindOf is the kind in the case that Kubernetes writes it.
func kindOf(text string) string {
	for _, kind := range append(clusterKinds(), networkPolicy, ciliumNetworkPolicy) {
		if strings.EqualFold(kind, text) {
			return kind
		}
	}
	return text
}

func policyName(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return kind + " " + name
}

// policyNames are for completion.
func policyNames(ctx context.Context, s *session) (all []cobra.Completion) {
	list, _ := s.client.Policies(ctx)
	for _, p := range list {
		ref := p.Namespace + "/" + p.Name
		switch {
		case p.Namespace == "":
			ref = p.Kind + "/" + p.Name
		case p.Kind != networkPolicy:
			ref = p.Kind + "/" + ref
		}
		all = append(all, cobra.CompletionWithDesc(ref, p.Kind))
	}
	return all
}

// podNames are for completion, too.
func podNames(ctx context.Context, s *session) (all []cobra.Completion) {
	list, _ := s.client.Endpoints(ctx, "")
	for _, ep := range list {
		if name := podName(ep.Pod); name != "" {
			all = append(all, cobra.CompletionWithDesc(printable(name), address(ep.Addresses.IPv4)))
		}
	}
	return all
}

func priorityText(p v1.Policy) string {
	if p.Tier == "networkpolicy" {
		return ""
	}
	return strconv.Itoa(p.Priority)
}

func rulesText(n int) string {
	if n < 0 {
		return ""
	}
	return plural(n, "rule")
}

func peerText(p v1.PolicyEnd) string {
	text := fmt.Sprintf("%s, %s", cmp.Or(podName(p.Pod), p.Kind), p.Address)
	if p.Held {
		text += ", held"
	}
	if podName(p.Pod) != "" || len(p.Names) == 0 {
		return text
	}
	names := p.Names[:min(len(p.Names), maxNames)]
	text += ", " + strings.Join(names, ", ")
	if more := len(p.Names) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// maxNames bounds the names of an address that are shown.
const maxNames = 10

func verdictText(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "denied"
}

// decisionText is "denied by NetworkPolicy default/web (ingress), default deny".
func decisionText(d v1.PolicyDecision) string {
	text := verdictText(d.Allowed)
	if d.Rule != nil {
		text += " by " + ruleText(*d.Rule)
	}
	if d.Reason != "rule" {
		text += ", " + d.Reason
	}
	for _, r := range d.Passed {
		text += "; passed on by " + ruleText(r)
	}
	if len(d.Layer7) > 0 {
		text += ", through the proxy: " + strings.Join(d.Layer7, "; ")
	}
	return text
}

// datapathText is "the same", or "egress denied, ingress allowed: NOT as the engine says".
func datapathText(d v1.PolicyDatapath) string {
	var asked, verdicts []string
	for _, side := range []struct {
		name   string
		allows *bool
	}{{"egress", d.Egress}, {"ingress", d.Ingress}} {
		if side.allows != nil {
			asked, verdicts = append(asked, side.name), append(verdicts, side.name+" "+verdictText(*side.allows))
		}
	}
	switch {
	case d.Differs:
		return strings.Join(verdicts, ", ") + ": NOT as the engine says"
	case d.NotAsked != "":
		return "not asked, " + d.NotAsked
	case len(asked) == 2:
		return "the same"
	}
	return "the same for " + strings.Join(asked, "")
}

func ruleText(r v1.PolicyRule) string {
	name := policyName(r.Kind, r.Namespace, r.Policy)
	switch {
	case r.Index < 0:
		return fmt.Sprintf("%s (%s)", name, r.Direction)
	case r.Name != "":
		return fmt.Sprintf("%s (%s rule %d, %s)", name, r.Direction, r.Index, r.Name)
	}
	return fmt.Sprintf("%s (%s rule %d)", name, r.Direction, r.Index)
}
