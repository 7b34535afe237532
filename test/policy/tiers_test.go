package policy

import (
	"fmt"
	"slices"
	"strings"
)

// rule is one of a policy of a tier.
type rule struct {
	action string   // of ClusterNetworkPolicy
	peer   string   // in YAML
	ports  []string // "tcp/80", or the name of one
}

func accept(peer string, ports ...string) rule { return rule{"Accept", peer, ports} }
func deny(peer string, ports ...string) rule   { return rule{"Deny", peer, ports} }
func pass(peer string, ports ...string) rule   { return rule{"Pass", peer, ports} }

// swapped is a copy in which two rules have changed places, then two others, and so on.
func swapped(rules []rule, pairs ...int) []rule {
	rules = slices.Clone(rules)
	for ; len(pairs) > 1; pairs = pairs[2:] {
		rules[pairs[0]], rules[pairs[1]] = rules[pairs[1]], rules[pairs[0]]
	}
	return rules
}

// The peers, and subjects, of the rules. A house is a namespace, and its pods and the namespace have a label with its
// name.

func named(house string) string {
	return fmt.Sprintf("{namespaces: {matchLabels: {kubernetes.io/metadata.name: %s}}}", house)
}

func labelled(house string) string {
	return fmt.Sprintf("{namespaces: {matchLabels: {conformance-house: %s}}}", house)
}

func podsOf(house string) string {
	const selector = "{matchLabels: {conformance-house: %s}}"
	return fmt.Sprintf("{pods: {namespaceSelector: "+selector+", podSelector: "+selector+"}}", house, house)
}

func networks(prefixes ...string) string {
	return fmt.Sprintf(`{networks: ["%s"]}`, strings.Join(prefixes, `", "`))
}

// tier is a policy of the tier admin or baseline, less its rules.
type tier struct {
	form     form
	baseline bool
	name     string
	priority int
	subject  string
}

// form is an API version of the policies of tiers.
type form int

const (
	clusterNetworkPolicy form = iota // v1alpha2
	adminNetworkPolicy               // v1alpha1, with BaselineAdminNetworkPolicy
)

func (t tier) title() string {
	if t.baseline {
		return "baseline"
	}
	return "admin"
}

func (t tier) egress(rules []rule) string { return t.both(rules, nil) }

// both is the manifest.
func (t tier) both(egress, ingress []rule) string {
	version, kind, rank := "v1alpha2", "ClusterNetworkPolicy", fmt.Sprintf("tier: Admin, priority: %d, ", t.priority)
	switch {
	case t.form == clusterNetworkPolicy && t.baseline:
		rank = fmt.Sprintf("tier: Baseline, priority: %d, ", t.priority)
	case t.form == adminNetworkPolicy && t.baseline:
		version, kind, rank, t.name = "v1alpha1", "BaselineAdminNetworkPolicy", "", "default"
	case t.form == adminNetworkPolicy:
		version, kind, rank = "v1alpha1", "AdminNetworkPolicy", fmt.Sprintf("priority: %d, ", t.priority)
	}
	return fmt.Sprintf("---\napiVersion: policy.networking.k8s.io/%s\nkind: %s\nmetadata: {name: %s}\nspec: {%ssubject: %s, egress: [%s], ingress: [%s]}\n",
		version, kind, t.name, rank, t.subject, t.rules("to", egress), t.rules("from", ingress))
}

func (t tier) rules(direction string, rules []rule) string {
	var all []string
	for _, r := range rules {
		var ports []string
		for _, port := range r.ports {
			ports = append(ports, t.port(port))
		}
		action, list := r.action, "protocols"
		if t.form == adminNetworkPolicy {
			list = "ports"
			if action == "Accept" {
				action = "Allow"
			}
		}
		text := fmt.Sprintf("{action: %s, %s: [%s]", action, direction, r.peer)
		if len(ports) > 0 {
			text += fmt.Sprintf(", %s: [%s]", list, strings.Join(ports, ", "))
		}
		all = append(all, "\n    "+text+"}")
	}
	return strings.Join(all, ",")
}

func (t tier) port(text string) string {
	protocol, number, isNumber := strings.Cut(text, "/")
	switch {
	case t.form == clusterNetworkPolicy && isNumber:
		return fmt.Sprintf("{%s: {destinationPort: {number: %s}}}", protocol, number)
	case t.form == clusterNetworkPolicy:
		return fmt.Sprintf("{destinationNamedPort: %s}", text)
	case isNumber:
		return fmt.Sprintf("{portNumber: {protocol: %s, port: %s}}", strings.ToUpper(protocol), number)
	}
	return fmt.Sprintf("{namedPort: %s}", text)
}
