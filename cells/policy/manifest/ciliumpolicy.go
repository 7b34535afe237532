package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"porin.dev/porin/cells/policy/model"
)

// ciliumVersion is the apiVersion of Cilium's kinds.
const ciliumVersion = "cilium.io/v2"

// ciliumPolicy is a CiliumNetworkPolicy or CiliumClusterwideNetworkPolicy. These types are our own: Cilium's module
// brings all of Cilium. A field that is refused has the type json.RawMessage, so that its name and the reason are told.
type ciliumPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              *ciliumSpec     `json:"spec"`
	Specs             []ciliumSpec    `json:"specs"`
	Status            json.RawMessage `json:"status"` // says nothing of what is wanted
}

type ciliumSpec struct {
	EndpointSelector  *metav1.LabelSelector `json:"endpointSelector"`
	NodeSelector      json.RawMessage       `json:"nodeSelector"`
	Ingress           []ciliumRule          `json:"ingress"`
	IngressDeny       []ciliumRule          `json:"ingressDeny"`
	Egress            []ciliumRule          `json:"egress"`
	EgressDeny        []ciliumRule          `json:"egressDeny"`
	EnableDefaultDeny struct {
		Ingress *bool `json:"ingress"`
		Egress  *bool `json:"egress"`
	} `json:"enableDefaultDeny"`
	Labels      json.RawMessage `json:"labels"` // name the rule for Cilium's own API
	Description string          `json:"description"`
	Log         json.RawMessage `json:"log"`
}

// ciliumRule is a rule of any list. Which fields a list has, refuseInRule says.
type ciliumRule struct {
	ciliumPeers
	ToPorts        []ciliumPorts   `json:"toPorts"`
	ICMPs          []ciliumICMP    `json:"icmps"`
	FromRequires   json.RawMessage `json:"fromRequires"`
	FromGroups     json.RawMessage `json:"fromGroups"`
	FromNodes      json.RawMessage `json:"fromNodes"`
	ToRequires     json.RawMessage `json:"toRequires"`
	ToGroups       json.RawMessage `json:"toGroups"`
	ToNodes        json.RawMessage `json:"toNodes"`
	Authentication json.RawMessage `json:"authentication"`
}

// maxDomains is how many names and patterns a rule may have. Each name that a pod asks for is compared with the names
// of all policies.
const maxDomains = 256

// ciliumPeers are the peers of ingress and of egress; a rule has one kind of them. An empty list has no peers, and
// matches nothing.
type ciliumPeers struct {
	FromEndpoints []metav1.LabelSelector `json:"fromEndpoints"`
	FromCIDR      []string               `json:"fromCIDR"`
	FromCIDRSet   []ciliumCIDR           `json:"fromCIDRSet"`
	FromEntities  []string               `json:"fromEntities"`
	ToEndpoints   []metav1.LabelSelector `json:"toEndpoints"`
	ToCIDR        []string               `json:"toCIDR"`
	ToCIDRSet     []ciliumCIDR           `json:"toCIDRSet"`
	ToEntities    []string               `json:"toEntities"`
	ToFQDNs       []ciliumDNS            `json:"toFQDNs"`
	ToServices    []ciliumService        `json:"toServices"`
}

type ciliumCIDR struct {
	CIDR              string                `json:"cidr"`
	Except            []string              `json:"except"`
	CIDRGroupRef      string                `json:"cidrGroupRef"`
	CIDRGroupSelector *metav1.LabelSelector `json:"cidrGroupSelector"`
}

type ciliumPorts struct {
	Ports          []ciliumPort    `json:"ports"`
	Rules          *ciliumLayer7   `json:"rules"`
	TerminatingTLS json.RawMessage `json:"terminatingTLS"`
	OriginatingTLS json.RawMessage `json:"originatingTLS"`
	ServerNames    json.RawMessage `json:"serverNames"`
	Listener       json.RawMessage `json:"listener"`
}

type ciliumPort struct {
	Port     string `json:"port"`
	EndPort  int32  `json:"endPort"`
	Protocol string `json:"protocol"`
}

func ciliumNetworkPolicy(p *ciliumPolicy, f *faults) model.Policy {
	return f.ciliumPolicy(p, model.KindCiliumNetworkPolicy)
}

func ciliumClusterwideNetworkPolicy(p *ciliumPolicy, f *faults) model.Policy {
	return f.ciliumPolicy(p, model.KindCiliumClusterwideNetworkPolicy)
}

func (f *faults) ciliumPolicy(p *ciliumPolicy, kindName string) model.Policy {
	id := f.checkName(p.ObjectMeta, kindName)
	switch {
	case p.Spec != nil && len(p.Specs) > 0:
		f.add(field.Forbidden(field.NewPath("specs"), "together with spec"))
	case p.Spec != nil:
		return f.ciliumSpec(field.NewPath("spec"), id, *p.Spec)
	case len(p.Specs) == 0:
		f.add(field.Required(field.NewPath("spec"), ""))
	default:
		policy := f.ciliumSpec(field.NewPath("specs").Index(0), id, p.Specs[0])
		for i, spec := range p.Specs[1:] {
			id.Part = i + 1
			policy.More = append(policy.More, f.ciliumSpec(field.NewPath("specs").Index(id.Part), id, spec))
		}
		return policy
	}
	return model.Policy{ID: id, Tier: model.TierNetworkPolicy}
}

func (f *faults) ciliumSpec(path *field.Path, id model.PolicyID, spec ciliumSpec) model.Policy {
	policy := model.Policy{ID: id, Tier: model.TierNetworkPolicy}
	f.refuse(path.Child("nodeSelector"), spec.NodeSelector, "policies are for pods, not for nodes")
	f.refuse(path.Child("log"), spec.Log, "not supported")
	switch {
	case spec.EndpointSelector == nil && present(spec.NodeSelector): // reported
	case spec.EndpointSelector == nil:
		f.add(field.Required(path.Child("endpointSelector"), "an empty one selects all pods"))
	default:
		policy.Subject = f.ciliumSubject(path.Child("endpointSelector"), *spec.EndpointSelector, policy.ID.Namespace)
	}
	policy.Ingress, policy.IngressOpen = f.ciliumPart(path, policy.ID.Namespace, model.Ingress, spec.Ingress, spec.IngressDeny, spec.EnableDefaultDeny.Ingress)
	policy.Egress, policy.EgressOpen = f.ciliumPart(path, policy.ID.Namespace, model.Egress, spec.Egress, spec.EgressDeny, spec.EnableDefaultDeny.Egress)
	return policy
}

func present(value json.RawMessage) bool { return value != nil && string(value) != "null" }

// refuse reports a field that is there.
func (f *faults) refuse(path *field.Path, value json.RawMessage, reason string) {
	if present(value) {
		f.add(field.Forbidden(path, reason))
	}
}

// ciliumPart returns nil when the policy does not affect the direction. With rules it denies what they do not accept,
// unless enableDefaultDeny says otherwise.
func (f *faults) ciliumPart(path *field.Path, namespace string, d model.Direction, accept, deny []ciliumRule, defaultDeny *bool) (_ *model.Rules, open bool) {
	denies := len(accept)+len(deny) > 0
	if defaultDeny != nil {
		denies = *defaultDeny
	}
	if len(accept)+len(deny) == 0 && !denies {
		return nil, false
	}
	rules := model.Rules{}
	for i, r := range deny {
		rules = append(rules, f.ciliumRule(path.Child(d.String()+"Deny").Index(i), namespace, d, model.Deny, r)...)
	}
	for i, r := range accept {
		rules = append(rules, f.ciliumRule(path.Child(d.String()).Index(i), namespace, d, model.Accept, r)...)
	}
	return &rules, !denies
}

// ciliumRule returns a rule for all entries of toPorts without rules of layer 7, and one for each of the others.
func (f *faults) ciliumRule(path *field.Path, namespace string, d model.Direction, action model.Action, r ciliumRule) (rules []model.Rule) {
	f.refuseInRule(path, d, action, r)
	rule := model.Rule{Name: strings.TrimPrefix(path.String(), "spec."), Action: action}
	given := false
	rule.Peers, given = f.ciliumPeers(path, namespace, d, action, r.ciliumPeers)
	if !given && len(r.ToPorts)+len(r.ICMPs) > 0 {
		rule.Peers = []model.Peer{{Any: true}}
	}
	if len(r.ICMPs) > 0 {
		if len(r.ToPorts) > 0 {
			f.add(field.Forbidden(path.Child("icmps"), "together with toPorts: write one rule for each"))
		}
		if rule.Ports = f.ciliumICMPs(path.Child("icmps"), action, r.ICMPs); len(rule.Ports) == 0 {
			rule.Peers = nil // it matches nothing
		}
		return []model.Rule{rule}
	}
	if len(r.ToPorts) == 0 {
		return []model.Rule{rule} // without peers it matches nothing
	}
	every, plain := false, false
	for i, group := range r.ToPorts {
		at := path.Child("toPorts").Index(i)
		ports, all := f.ciliumPorts(at.Child("ports"), group.Ports)
		if layer7 := f.ciliumLayer7(at, d, group); layer7 != nil && action == model.Accept {
			limited := model.Rule{Name: strings.TrimPrefix(at.String(), "spec."), Action: action, Peers: rule.Peers, Ports: ports, Layer7: layer7}
			if len(layer7.DNS) > 0 {
				limited.Ports = slices.DeleteFunc(limited.Ports, func(p model.Port) bool { return p.Protocol == model.SCTP })
			}
			rules = append(rules, limited)
			continue
		}
		rule.Ports = append(rule.Ports, ports...)
		every, plain = every || all, true
	}
	if every {
		rule.Ports = nil
	}
	if plain {
		rules = append([]model.Rule{rule}, rules...)
	}
	return rules
}

// refused is a field that may not be there.
type refused struct {
	name  string
	value json.RawMessage
}

func (f *faults) refuseAll(path *field.Path, reason string, fields ...refused) {
	for _, r := range fields {
		f.refuse(path.Child(r.name), r.value, reason)
	}
}

func (f *faults) refuseInRule(path *field.Path, d model.Direction, action model.Action, r ciliumRule) {
	const notSupported = "not supported"
	f.refuseAll(path, notSupported, refused{"fromRequires", r.FromRequires}, refused{"fromGroups", r.FromGroups}, refused{"fromNodes", r.FromNodes},
		refused{"toRequires", r.ToRequires}, refused{"toGroups", r.ToGroups}, refused{"toNodes", r.ToNodes},
		refused{"authentication", r.Authentication})
	for i, p := range r.ToPorts {
		at := path.Child("toPorts").Index(i)
		if action == model.Deny && p.Rules != nil {
			f.add(field.Forbidden(at.Child("rules"), "not in rules that deny"))
		}
		if f.refuse(at.Child("terminatingTLS"), p.TerminatingTLS, notSupported); !present(p.TerminatingTLS) { // inspection has both
			f.refuse(at.Child("originatingTLS"), p.OriginatingTLS, notSupported)
		}
		f.refuseAll(at, notSupported, refused{"serverNames", p.ServerNames}, refused{"listener", p.Listener})
	}
	wrong := []string{"fromEndpoints", "fromCIDR", "fromCIDRSet", "fromEntities"}
	if d == model.Ingress {
		wrong = []string{"toEndpoints", "toCIDR", "toCIDRSet", "toEntities", "toFQDNs", "toServices"}
	}
	if d == model.Egress && action == model.Deny && r.has("toFQDNs") {
		f.add(field.Forbidden(path.Child("toFQDNs"), "not in rules that deny"))
	}
	for _, name := range wrong {
		if r.has(name) {
			f.add(field.Forbidden(path.Child(name), "not in rules for "+d.String()))
		}
	}
}

// has reports whether a list of peers is there, empty or not.
func (p *ciliumPeers) has(name string) bool {
	return map[string]bool{
		"fromEndpoints": p.FromEndpoints != nil, "fromCIDR": p.FromCIDR != nil, "fromCIDRSet": p.FromCIDRSet != nil, "fromEntities": p.FromEntities != nil,
		"toEndpoints": p.ToEndpoints != nil, "toCIDR": p.ToCIDR != nil, "toCIDRSet": p.ToCIDRSet != nil, "toEntities": p.ToEntities != nil,
		"toFQDNs": p.ToFQDNs != nil, "toServices": p.ToServices != nil,
	}[name]
}

// ciliumPeers also says whether there are any, which may match nothing.
func (f *faults) ciliumPeers(path *field.Path, namespace string, d model.Direction, action model.Action, p ciliumPeers) (peers []model.Peer, given bool) {
	prefix, endpoints, cidrs, sets, entities := "from", p.FromEndpoints, p.FromCIDR, p.FromCIDRSet, p.FromEntities
	if d == model.Egress {
		prefix, endpoints, cidrs, sets, entities = "to", p.ToEndpoints, p.ToCIDR, p.ToCIDRSet, p.ToEntities
	}
	domains, services := p.ToFQDNs, p.ToServices
	if d == model.Ingress {
		domains, services = nil, nil
	}
	kinds := map[string]bool{
		"Endpoints": len(endpoints) > 0, "CIDR": len(cidrs) > 0, "CIDRSet": len(sets) > 0, "Entities": len(entities) > 0, "FQDNs": len(domains) > 0,
		"Services": len(services) > 0,
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		if kinds[name] {
			names = append(names, prefix+name)
		}
	}
	if len(names) > 1 {
		f.add(field.Forbidden(path, strings.Join(names, " and ")+" together: write one rule for each"))
	}
	for i, s := range endpoints {
		at := path.Child(prefix + "Endpoints").Index(i)
		pods, here := f.ciliumPods(at, s, namespace)
		switch {
		case here:
			peers = append(peers, model.Peer{Pods: &pods})
		case action != model.Accept:
			f.refuseOtherClusters(at)
		}
	}
	for i, text := range cidrs {
		peers = append(peers, model.Peer{Block: &model.Block{CIDR: f.ciliumPrefix(path.Child(prefix+"CIDR").Index(i), text), OutsideOnly: true}})
	}
	for i, s := range sets {
		peers = append(peers, f.ciliumCIDRSet(path.Child(prefix+"CIDRSet").Index(i), s)...)
	}
	for i, s := range services {
		peers = append(peers, f.ciliumService(path.Child("toServices").Index(i), namespace, s)...)
	}
	for i, name := range entities {
		peers = append(peers, f.ciliumEntity(path.Child(prefix+"Entities").Index(i), name)...)
	}
	f.atMost(path.Child("toFQDNs"), len(domains), maxDomains)
	for i, r := range domains {
		if rule := f.ciliumDNS(path.Child("toFQDNs").Index(i), r); rule != (model.DNSRule{}) {
			peers = append(peers, model.Peer{Domain: rule})
		}
	}
	return peers, endpoints != nil || cidrs != nil || sets != nil || entities != nil || domains != nil || services != nil
}

// ciliumPrefix accepts an address, too.
func (f *faults) ciliumPrefix(path *field.Path, text string) netip.Prefix {
	if addr, err := netip.ParseAddr(text); err == nil && !addr.Is4In6() && addr.Zone() == "" {
		return netip.PrefixFrom(addr, addr.BitLen())
	}
	return f.prefix(path, text)
}

func (f *faults) ciliumEntity(path *field.Path, name string) []model.Peer {
	outside := func(cidr string) []model.Peer {
		return []model.Peer{{Block: &model.Block{CIDR: netip.MustParsePrefix(cidr), OutsideOnly: true}}}
	}
	kinds := func(kinds ...model.EndpointKind) []model.Peer { return []model.Peer{{Kinds: model.KindsOf(kinds...)}} }
	switch name {
	case "all":
		return []model.Peer{{Any: true}}
	case "world":
		return kinds(model.World)
	case "world-ipv4":
		return outside("0.0.0.0/0")
	case "world-ipv6":
		return outside("::/0")
	case "cluster":
		return kinds(model.Host, model.RemoteNode, model.Health, model.Unmanaged, model.Init, model.Pod)
	case "host":
		return kinds(model.Host)
	case "remote-node":
		return kinds(model.RemoteNode)
	case "health":
		return kinds(model.Health)
	case "unmanaged":
		return kinds(model.Unmanaged)
	case "init":
		return kinds(model.Init)
	case "kube-apiserver":
		return []model.Peer{named(model.Reference{Kind: model.KubeAPIServer})}
	case "none", "ingress": // there is no ingress of Porin's
		return nil
	}
	f.add(field.NotSupported(path, name, []string{
		"all", "cluster", "health", "host", "ingress", "init", "kube-apiserver", "none", "remote-node", "unmanaged", "world", "world-ipv4", "world-ipv6",
	}))
	return nil
}

// ciliumPorts also says whether all ports of all protocols match, for which the model has no ports.
func (f *faults) ciliumPorts(path *field.Path, list []ciliumPort) (ports []model.Port, all bool) {
	if len(list) == 0 {
		f.add(field.Required(path, "at least one"))
	}
	f.atMost(path, len(list), 40)
	for i, p := range list {
		some, every := f.ciliumPort(path.Index(i), p)
		ports, all = append(ports, some...), all || every
	}
	return ports, all
}

func (f *faults) ciliumPort(path *field.Path, p ciliumPort) (ports []model.Port, all bool) {
	protocols, ok := map[string][]model.Protocol{
		"": {model.TCP, model.UDP, model.SCTP}, "ANY": {model.TCP, model.UDP, model.SCTP}, "TCP": {model.TCP}, "UDP": {model.UDP}, "SCTP": {model.SCTP},
	}[strings.ToUpper(p.Protocol)]
	if !ok {
		f.add(field.NotSupported(path.Child("protocol"), p.Protocol, []string{"ANY", "SCTP", "TCP", "UDP"}))
	}
	number, err := strconv.ParseUint(p.Port, 10, 16)
	switch {
	case p.Port == "":
		f.add(field.Required(path.Child("port"), "0 is every port"))
		return nil, false
	case err != nil:
		name := f.portName(path.Child("port"), strings.ToLower(p.Port))
		if p.EndPort != 0 {
			f.add(field.Forbidden(path.Child("endPort"), "the port is a name"))
		}
		if len(protocols) == 1 {
			return []model.Port{{Protocol: protocols[0], Name: name}}, false
		}
		return []model.Port{{Name: name}}, false
	}
	port := model.Port{First: uint16(number), Last: uint16(number)}
	switch {
	case number == 0 && p.EndPort == 0:
		port.Last = 65535
		all = len(protocols) > 1
	case p.EndPort != 0:
		port.Last = f.portNumber(path.Child("endPort"), p.EndPort)
		if p.EndPort < int32(number) {
			f.add(field.Invalid(path.Child("endPort"), p.EndPort, "less than port"))
		}
	}
	for _, protocol := range protocols {
		port.Protocol = protocol
		ports = append(ports, port)
	}
	return ports, all
}

// ciliumSubject is what a policy is for: pods of its namespace, if it has one.
func (f *faults) ciliumSubject(path *field.Path, s metav1.LabelSelector, namespace string) model.Pods {
	pods, here := f.ciliumPods(path, s, namespace)
	if !here {
		f.refuseOtherClusters(path)
	}
	if namespace != "" {
		own := model.Selector{{Key: metav1NamespaceName, Operator: model.In, Values: []string{namespace}}}
		if len(pods.Namespaces) > 0 && fmt.Sprint(pods.Namespaces) != fmt.Sprint(own) {
			f.add(field.Forbidden(path, "a "+model.KindCiliumNetworkPolicy+" is for pods of its own namespace"))
		}
		pods.Namespace, pods.Namespaces = namespace, nil
	}
	return pods
}

// Keys of Cilium's selectors that are not labels of the pod, and the label that every namespace has.
const (
	ciliumNamespace      = "io.kubernetes.pod.namespace"
	ciliumNamespaceLabel = "io.cilium.k8s.namespace.labels."
	ciliumOwn            = "io.cilium.k8s.policy."
	ciliumCluster        = ciliumOwn + "cluster"
	thisCluster          = "default" // as Cilium names a cluster without a name
	metav1NamespaceName  = "kubernetes.io/metadata.name"
)

// refuseOtherClusters is for selectors that may not select pods of other clusters.
func (f *faults) refuseOtherClusters(path *field.Path) {
	f.add(field.Forbidden(path, ciliumCluster+": pods of other clusters are not known; this one is "+thisCluster))
}

// ciliumPods selects in the policy's own namespace, if it has one and the selector says nothing of namespaces. It is
// not here if it selects pods of other clusters, which are not known.
func (f *faults) ciliumPods(path *field.Path, s metav1.LabelSelector, own string) (selected model.Pods, here bool) {
	var parts [3]metav1.LabelSelector // by the subject of their keys
	for key, value := range s.MatchLabels {
		name, about, ok := f.ciliumKey(path.Child("matchLabels").Key(key), key)
		if !ok {
			continue
		}
		to := &parts[about]
		if _, twice := to.MatchLabels[name]; twice {
			f.add(field.Duplicate(path.Child("matchLabels").Key(key), name))
		}
		if to.MatchLabels == nil {
			to.MatchLabels = map[string]string{}
		}
		to.MatchLabels[name] = value
	}
	for i, e := range s.MatchExpressions {
		name, about, ok := f.ciliumKey(path.Child("matchExpressions").Index(i).Child("key"), e.Key)
		if e.Key = name; ok {
			parts[about].MatchExpressions = append(parts[about].MatchExpressions, e)
		}
	}
	cluster := parts[aboutCluster]
	selector, err := metav1.LabelSelectorAsSelector(&cluster)
	if err != nil {
		f.add(field.Invalid(path, cluster.String(), ciliumCluster+": "+err.Error()))
	}
	here = err != nil || selector.Matches(labels.Set{ciliumCluster: thisCluster})
	selected = model.Pods{Labels: f.selector(path, parts[aboutPod]), Namespaces: f.selector(path, parts[aboutNamespace])}
	if len(selected.Namespaces) == 0 {
		selected.Namespace = own
	}
	return selected, here
}

// The subjects of a selector's keys.
const (
	aboutPod = iota
	aboutNamespace
	aboutCluster
)

// ciliumKey returns the label's key without its source, and its subject. ok is false if the key is refused.
func (f *faults) ciliumKey(path *field.Path, key string) (_ string, about int, ok bool) {
	if source, rest, found := strings.Cut(key, ":"); found {
		if source != "k8s" && source != "any" {
			f.add(field.Forbidden(path, key+": only labels of Kubernetes (k8s:, any:); reserved ones are entities"))
			return "", 0, false
		}
		key = rest
	}
	switch {
	case key == ciliumNamespace:
		return metav1NamespaceName, aboutNamespace, true
	case strings.HasPrefix(key, ciliumNamespaceLabel):
		return strings.TrimPrefix(key, ciliumNamespaceLabel), aboutNamespace, true
	case key == ciliumCluster:
		return key, aboutCluster, true
	case key == model.ServiceAccountLabel:
		return key, aboutPod, true
	case strings.HasPrefix(key, ciliumOwn):
		f.add(field.Forbidden(path, key+" is not supported"))
		return "", 0, false
	}
	return key, aboutPod, true
}
