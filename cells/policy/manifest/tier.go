package manifest

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"porin.dev/porin/cells/policy/model"
)

// tierSpec is what the kinds of the admin and baseline tiers have in common.
type tierSpec struct {
	meta            metav1.ObjectMeta
	kind            string
	tier            model.Tier
	priority        int32
	subject         tierPeer
	ingress, egress []tierRule
	limit           int // of rules, peers and ports
}

type tierRule struct {
	name   string
	action model.Action
	peers  []tierPeer
	ports  []model.Port
	named  bool // one of the ports is a name
}

type tierPeer struct {
	namespaces  *metav1.LabelSelector
	pods        *v1alpha2.NamespacedPod
	nodes       *metav1.LabelSelector
	networks    []string
	domainNames []string
}

func (f *faults) tierPolicy(s tierSpec) model.Policy {
	spec := field.NewPath("spec")
	policy := model.Policy{ID: f.checkName(s.meta, s.kind), Tier: s.tier, Priority: int(s.priority)}
	subject := f.tierPods(spec.Child("subject"), s.subject, map[string]bool{})
	if subject != nil {
		policy.Subject = *subject
	}
	policy.Ingress = f.tierRules(spec.Child("ingress"), "from", s.ingress, s.limit)
	policy.Egress = f.tierRules(spec.Child("egress"), "to", s.egress, s.limit)
	return policy
}

func (f *faults) checkPriority(priority int32) {
	path := field.NewPath("spec", "priority")
	if !f.has("spec", "priority") {
		f.add(field.Required(path, "0 to 1000"))
	} else if priority < 0 || priority > model.MaxPriority {
		f.add(field.Invalid(path, priority, "0 to 1000"))
	}
}

// tierRules returns nil without rules: the policy does not affect the direction.
func (f *faults) tierRules(path *field.Path, peersName string, from []tierRule, limit int) *model.Rules {
	if len(from) == 0 {
		return nil
	}
	f.atMost(path, len(from), limit)
	var rules model.Rules
	for i, r := range from {
		at := path.Index(i)
		if len(r.name) > 100 {
			f.add(field.TooLong(at.Child("name"), r.name, 100))
		}
		if len(r.peers) == 0 {
			f.add(field.Required(at.Child(peersName), "at least one peer"))
		}
		f.atMost(at.Child(peersName), len(r.peers), limit)
		rule := model.Rule{Name: r.name, Action: r.action, Ports: r.ports}
		for j, p := range r.peers {
			peer := at.Child(peersName).Index(j)
			rule.Peers = append(rule.Peers, f.tierPeers(peer, peersName == "to", r, p, limit)...)
		}
		rules = append(rules, rule)
	}
	return &rules
}

func (f *faults) tierPeers(path *field.Path, egress bool, rule tierRule, p tierPeer, limit int) []model.Peer {
	others := map[string]bool{}
	if egress {
		others = map[string]bool{"nodes": p.nodes != nil, "networks": p.networks != nil, "domainNames": p.domainNames != nil}
	}
	pods := f.tierPods(path, p, others)
	if rule.named && (p.nodes != nil || p.networks != nil || p.domainNames != nil) {
		f.add(field.Forbidden(path, "a named port in a rule for nodes, networks or domainNames: they have no named ports"))
	}
	var peers []model.Peer
	if pods != nil {
		peers = append(peers, model.Peer{Pods: pods})
	}
	if p.nodes != nil {
		selector := f.selector(path.Child("nodes"), *p.nodes)
		peers = append(peers, model.Peer{Nodes: &selector})
	}
	f.listed(path.Child("networks"), p.networks)
	for i, text := range p.networks {
		peers = append(peers, model.Peer{Block: &model.Block{CIDR: f.prefix(path.Child("networks").Index(i), text)}})
	}
	f.listed(path.Child("domainNames"), p.domainNames)
	if p.domainNames != nil && rule.action != model.Accept {
		f.add(field.Forbidden(path.Child("domainNames"), "only rules that accept may have domain names"))
	}
	for i, text := range p.domainNames {
		peers = append(peers, model.Peer{Domain: f.domainRule(path.Child("domainNames").Index(i), text)})
	}
	return peers
}

// domainRule is the rule for a name, or with "*." before it for all names below it.
func (f *faults) domainRule(path *field.Path, text string) model.DNSRule {
	if !domainName.MatchString(text) {
		f.add(field.Invalid(path, text, "not a domain name, or one after '*.'"))
		return model.DNSRule{}
	}
	if below, ok := strings.CutPrefix(text, "*."); ok {
		return model.DNSRule{Pattern: "**." + f.domain(path, below, "")}
	}
	return model.DNSRule{Name: f.domain(path, text, "")}
}

var domainName = regexp.MustCompile(`^(\*\.)?([A-Za-z0-9]([-A-Za-z0-9_]*[A-Za-z0-9])?\.)+[A-Za-z0-9]([-A-Za-z0-9_]*[A-Za-z0-9])?\.?$`)

// listed checks the length of a list of networks or names that is there.
func (f *faults) listed(path *field.Path, list []string) {
	if list != nil && len(list) == 0 {
		f.add(field.Required(path, "at least one"))
	}
	f.atMost(path, len(list), 25)
}

// tierPods converts "namespaces" or "pods" of a subject or peer. Others are the fields that may be set in their place.
func (f *faults) tierPods(path *field.Path, p tierPeer, others map[string]bool) *model.Pods {
	others["namespaces"], others["pods"] = p.namespaces != nil, p.pods != nil
	f.oneOf(path, others)
	switch {
	case p.namespaces != nil:
		return &model.Pods{Namespaces: f.selector(path.Child("namespaces"), *p.namespaces)}
	case p.pods != nil:
		at := path.Child("pods")
		return &model.Pods{
			Namespaces: f.selector(at.Child("namespaceSelector"), p.pods.NamespaceSelector),
			Labels:     f.selector(at.Child("podSelector"), p.pods.PodSelector),
		}
	}
	return nil
}

// requirePodSelectors reports objects "pods" without the selectors that the API requires: a missing one would select
// everything.
func (f *faults) requirePodSelectors(names ...string) {
	f.requireIn(field.NewPath("spec"), f.raw["spec"], names)
}

func (f *faults) requireIn(path *field.Path, value any, names []string) {
	switch value := value.(type) {
	case []any:
		for i, item := range value {
			f.requireIn(path.Index(i), item, names)
		}
	case map[string]any:
		for _, key := range []string{"subject", "ingress", "egress", "from", "to"} {
			f.requireIn(path.Child(key), value[key], names)
		}
		if pods, ok := value["pods"].(map[string]any); ok {
			for _, name := range names {
				if pods[name] == nil {
					f.add(field.Required(path.Child("pods", name), "an empty one selects everything"))
				}
			}
		}
	}
}

func (f *faults) action(path *field.Path, text string, allowed map[string]model.Action) model.Action {
	action, ok := allowed[text]
	if !ok {
		f.add(field.NotSupported(path.Child("action"), text, slices.Sorted(maps.Keys(allowed))))
	}
	return action
}

func (f *faults) portRange(path *field.Path, start, end int32) (first, last uint16) {
	first, last = f.portNumber(path.Child("start"), start), f.portNumber(path.Child("end"), end)
	if start >= end {
		f.add(field.Invalid(path, [2]int32{start, end}, "start has to be less than end"))
	}
	return first, last
}

func texts[S ~string](list []S) []string {
	if list == nil {
		return nil
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}
