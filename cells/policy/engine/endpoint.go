package engine

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"porin.dev/porin/cells/policy/model"
)

// endpoint is a [model.Endpoint] in little memory, as there may be half a million: it shares all but its name and
// addresses with others.
type endpoint struct {
	Key, Name string
	Addresses []netip.Addr
	*labelSet
}

// model is the endpoint as it was set, without labels that selectors for its kind do not look at.
func (ep *endpoint) model() model.Endpoint {
	l := ep.labelSet
	return model.Endpoint{
		Key: ep.Key, Name: ep.Name, Kind: l.Kind, Local: l.Local, Audit: l.Audit, Addresses: ep.Addresses, NamedPorts: l.ports,
		Namespace: l.namespace.name, NamespaceLabels: l.namespace.labels, Labels: l.labels,
	}
}

// subject reports whether policies apply to the endpoint.
func (ep *endpoint) subject() bool { return ep.Kind == model.Pod || ep.Kind == model.Init }

// labelSet is a set of labels in a namespace, and the selectors that match them. Endpoints that differ in nothing but
// their addresses share it.
type labelSet struct {
	Kind         model.EndpointKind
	Local, Audit bool
	ports        []model.NamedPort
	askedPorts   string // the key of those ports which rules for egress ask for
	namespace    *namespace
	key          string
	labels       map[string]string
	selectors    *selectorSet
	endpoints    []*endpoint // a slice, as most have few: a map takes 110 bytes more
}

// namespace is one with its labels, or stands for all nodes, or for all that has no labels.
type namespace struct {
	key        string
	kind       labelKind
	name       string
	labels     map[string]string // of the namespace
	candidates []*selector       // those which match the namespace, in the order of their numbers
	labelSets  map[string]*labelSet
}

// labelKind says which selectors an endpoint's labels are for.
type labelKind uint8

const (
	noLabels labelKind = iota
	podLabels
	nodeLabels
)

// admits reports whether the selector's part about the namespace matches.
func (n *namespace) admits(sel *selector) bool {
	switch {
	case sel.peer.Pods != nil:
		return n.kind == podLabels && podsAdmit(sel.peer.Pods, n.name, n.labels)
	case sel.peer.Nodes != nil:
		return n.kind == nodeLabels
	}
	return false
}

func podsAdmit(p *model.Pods, namespace string, labels map[string]string) bool {
	return (p.Namespace == "" || p.Namespace == namespace) && matches(p.Namespaces, labels)
}

// matches presumes that the namespace admits the selector.
func (l *labelSet) matches(sel *selector) bool {
	if sel.peer.Pods != nil {
		return matches(sel.peer.Pods.Labels, l.labels)
	}
	return matches(*sel.peer.Nodes, l.labels)
}

// endpoints are all endpoints, in their label sets.
type endpoints struct {
	byKey      map[string]*endpoint
	namespaces map[string]*namespace
	selectors  *selectors
	names      *portNames
	addresses  *addresses
}

// set adds or changes an endpoint. It reports whether the endpoint differs from before in more than its name.
func (x *endpoints) set(set model.Endpoint) (ep *endpoint, changed bool) {
	ep, l := x.byKey[set.Key], x.labelSetOf(set)
	var before []netip.Addr
	if ep == nil {
		ep = &endpoint{Key: set.Key}
		x.byKey[set.Key] = ep
	} else {
		ep.Name = set.Name
		owned := 0
		for range x.addresses.owned(ep, ep.Addresses) {
			owned++
		}
		if ep.labelSet == l && slices.Equal(ep.Addresses, set.Addresses) && owned == len(ep.Addresses) {
			return ep, false
		}
		before = ep.Addresses
	}
	ep.Key, ep.Name, ep.Addresses = set.Key, set.Name, set.Addresses
	if l != ep.labelSet {
		l.endpoints = append(l.endpoints, ep)
		if ep.labelSet != nil {
			x.leave(ep)
		}
		ep.labelSet = l
	}
	x.addresses.setOwner(ep, before)
	return ep, true
}

func (x *endpoints) remove(ep *endpoint) {
	delete(x.byKey, ep.Key)
	before := ep.Addresses
	ep.Addresses = nil
	x.addresses.setOwner(ep, before)
	x.leave(ep)
}

// labelSetOf returns the label set of an endpoint, and makes it if need be.
func (x *endpoints) labelSetOf(ep model.Endpoint) *labelSet {
	kind, name, namespaceLabels, labels := podLabels, ep.Namespace, ep.NamespaceLabels, ep.Labels
	switch ep.Kind {
	case model.Pod:
	case model.Host, model.RemoteNode:
		kind, name, namespaceLabels = nodeLabels, "", nil
	default:
		kind, name, namespaceLabels, labels = noLabels, "", nil, nil
	}
	key := strconv.Itoa(int(kind)) + strconv.Quote(name) + labelsKey(namespaceLabels)
	n := x.namespaces[key]
	if n == nil {
		n = &namespace{key: key, kind: kind, name: name, labels: namespaceLabels, labelSets: map[string]*labelSet{}}
		for _, sel := range x.selectors.byKey {
			if n.admits(sel) {
				n.candidates = append(n.candidates, sel)
			}
		}
		slices.SortFunc(n.candidates, byID)
		x.namespaces[key] = n
	}
	key = strconv.Itoa(int(ep.Kind)) + strconv.FormatBool(ep.Local) + strconv.FormatBool(ep.Audit) + portsKey(ep.NamedPorts) + "\x01" + labelsKey(labels)
	l := n.labelSets[key]
	if l == nil {
		l = &labelSet{
			Kind: ep.Kind, Local: ep.Local, Audit: ep.Audit, ports: ep.NamedPorts, askedPorts: portsKey(x.names.asked(ep.NamedPorts)),
			namespace: n, key: key, labels: labels,
		}
		var found []*selector
		for _, sel := range n.candidates {
			if l.matches(sel) {
				found = append(found, sel)
			}
		}
		l.selectors = x.selectors.intern(found)
		n.labelSets[key] = l
	}
	return l
}

// leave takes an endpoint out of its label set, which goes with its last endpoint.
func (x *endpoints) leave(ep *endpoint) {
	l := ep.labelSet
	ep.labelSet = nil
	l.endpoints = slices.DeleteFunc(l.endpoints, func(other *endpoint) bool { return other == ep })
	if len(l.endpoints) > 0 {
		return
	}
	x.selectors.releaseSet(l.selectors)
	delete(l.namespace.labelSets, l.key)
	if len(l.namespace.labelSets) == 0 {
		delete(x.namespaces, l.namespace.key)
	}
}

// updateSelectors adds new selectors to the label sets that they match, and removes unused ones from all.
func (x *endpoints) updateSelectors(added []*selector) {
	isUnused := func(sel *selector) bool { return sel.refs == 0 }
	for _, n := range x.namespaces {
		before := len(n.candidates)
		n.candidates = slices.DeleteFunc(n.candidates, isUnused)
		kept := len(n.candidates)
		for _, sel := range added {
			if n.admits(sel) {
				n.candidates = append(n.candidates, sel)
			}
		}
		if kept == before && kept == len(n.candidates) {
			continue
		}
		for _, l := range n.labelSets {
			var found []*selector
			for _, sel := range l.selectors.selectors {
				if sel.refs > 0 {
					found = append(found, sel)
				}
			}
			changed := len(found) < len(l.selectors.selectors)
			for _, sel := range n.candidates[kept:] {
				if l.matches(sel) {
					found = append(found, sel)
					changed = true
				}
			}
			if !changed {
				continue
			}
			old := l.selectors
			l.selectors = x.selectors.intern(found)
			x.selectors.releaseSet(old)
			x.addresses.markAll(l)
		}
	}
}

// updateNames finds the label sets that have ports whose name has come into use or gone out of use.
func (x *endpoints) updateNames() {
	turned := map[string]bool{}
	for name, before := range x.names.before {
		if before != (x.names.rules[name] > 0) {
			turned[name] = true
		}
	}
	clear(x.names.before)
	if len(turned) == 0 {
		return
	}
	for _, n := range x.namespaces {
		for _, l := range n.labelSets {
			if slices.ContainsFunc(l.ports, func(p model.NamedPort) bool { return turned[p.Name] }) {
				l.askedPorts = portsKey(x.names.asked(l.ports))
				x.addresses.markAll(l)
			}
		}
	}
}

func labelsKey(labels map[string]string) string {
	var key strings.Builder
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		// Neither keys nor values of labels have these characters: records of other nodes are checked for that.
		key.WriteString(k)
		key.WriteByte('\x00')
		key.WriteString(labels[k])
		key.WriteByte('\x01')
	}
	return key.String()
}

// portNames counts the rules for egress that ask for a named port.
type portNames struct {
	rules  map[string]int
	before map[string]bool // since the last update, for names whose count has changed: were they in use?
}

func (x *portNames) use(ports []model.Port, n int) {
	for _, port := range ports {
		if port.Name == "" {
			continue
		}
		if _, ok := x.before[port.Name]; !ok {
			x.before[port.Name] = x.rules[port.Name] > 0
		}
		if x.rules[port.Name] += n; x.rules[port.Name] == 0 {
			delete(x.rules, port.Name)
		}
	}
}

// asked returns the endpoint's ports that rules for egress name.
func (x *portNames) asked(ports []model.NamedPort) []model.NamedPort {
	var found []model.NamedPort
	for _, p := range ports {
		if x.rules[p.Name] > 0 {
			found = append(found, p)
		}
	}
	return found
}

// portsKey is equal for equal sets of ports.
func portsKey(ports []model.NamedPort) string {
	var parts []string
	for _, p := range ports {
		parts = append(parts, strconv.Quote(p.Name)+p.Protocol.String()+strconv.Itoa(int(p.Number)))
	}
	slices.Sort(parts)
	return strings.Join(slices.Compact(parts), "")
}
