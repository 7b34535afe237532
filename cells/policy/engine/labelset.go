package engine

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"porin.dev/porin/cells/policy/model"
)

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

func labelKindOf(kind model.EndpointKind) labelKind {
	switch kind {
	case model.Pod:
		return podLabels
	case model.Host, model.RemoteNode:
		return nodeLabels
	}
	return noLabels
}

// labelSet is a set of labels in a namespace, and the selectors that match them. Endpoints that differ in nothing but their addresses share it.
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

// labelSetOf returns the label set of an endpoint, and makes it if need be.
func (e *Engine) labelSetOf(ep model.Endpoint) *labelSet {
	kind := labelKindOf(ep.Kind)
	name, namespaceLabels, labels := ep.Namespace, ep.NamespaceLabels, ep.Labels
	switch kind {
	case noLabels:
		name, namespaceLabels, labels = "", nil, nil
	case nodeLabels:
		name, namespaceLabels = "", nil
	}
	key := strconv.Itoa(int(kind)) + strconv.Quote(name) + labelsKey(namespaceLabels)
	n := e.namespaces[key]
	if n == nil {
		n = &namespace{key: key, kind: kind, name: name, labels: namespaceLabels, labelSets: map[string]*labelSet{}}
		for _, sel := range e.selectors {
			if n.admits(sel) {
				n.candidates = append(n.candidates, sel)
			}
		}
		slices.SortFunc(n.candidates, byID)
		e.namespaces[key] = n
	}
	key = strconv.Itoa(int(ep.Kind)) + strconv.FormatBool(ep.Local) + strconv.FormatBool(ep.Audit) + portsKey(ep.NamedPorts) + "\x01" + labelsKey(labels)
	l := n.labelSets[key]
	if l == nil {
		l = &labelSet{
			Kind: ep.Kind, Local: ep.Local, Audit: ep.Audit, ports: ep.NamedPorts, askedPorts: portsKey(e.asked(ep.NamedPorts)),
			namespace: n, key: key, labels: labels,
		}
		var found []*selector
		for _, sel := range n.candidates {
			if l.matches(sel) {
				found = append(found, sel)
			}
		}
		l.selectors = e.intern(found)
		n.labelSets[key] = l
	}
	return l
}

// leave takes an endpoint out of its label set, which goes with its last endpoint.
func (e *Engine) leave(ep *endpoint) {
	l := ep.labelSet
	ep.labelSet = nil
	l.endpoints = slices.DeleteFunc(l.endpoints, func(other *endpoint) bool { return other == ep })
	if len(l.endpoints) > 0 {
		return
	}
	e.release(l.selectors)
	delete(l.namespace.labelSets, l.key)
	if len(l.namespace.labelSets) == 0 {
		delete(e.namespaces, l.namespace.key)
	}
}

func byID(a, b *selector) int { return int(int64(a.id) - int64(b.id)) }

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

// updateLabelSets adds the new selectors to the label sets that they match, and takes the dead ones out of all.
func (tx *transaction) updateLabelSets() {
	for _, n := range tx.e.namespaces {
		dead := slices.ContainsFunc(n.candidates, func(sel *selector) bool { return sel.refs == 0 })
		if dead {
			n.candidates = slices.DeleteFunc(n.candidates, func(sel *selector) bool { return sel.refs == 0 })
		}
		var added []*selector
		for _, sel := range tx.newSelectors {
			if sel.refs > 0 && n.admits(sel) {
				added = append(added, sel)
			}
		}
		n.candidates = append(n.candidates, added...)
		if !dead && len(added) == 0 {
			continue
		}
		for _, l := range n.labelSets {
			tx.updateLabelSet(l, added)
		}
	}
}

func (tx *transaction) updateLabelSet(l *labelSet, added []*selector) {
	var found []*selector
	changed := false
	for _, sel := range l.selectors.selectors {
		if sel.refs > 0 {
			found = append(found, sel)
		} else {
			changed = true
		}
	}
	for _, sel := range added {
		if l.matches(sel) {
			found = append(found, sel)
			changed = true
		}
	}
	if !changed {
		return
	}
	old := l.selectors
	l.selectors = tx.e.intern(found)
	tx.e.release(old)
	for _, ep := range l.endpoints {
		tx.dirtyAddresses(ep)
	}
}
