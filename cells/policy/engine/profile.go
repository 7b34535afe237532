package engine

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"porin.dev/porin/cells/policy/model"
)

// space is what endpoints of one kind of labels and one namespace have in common.
type space struct {
	key        string
	kind       labelKind
	namespace  string
	labels     map[string]string // of the namespace
	candidates []*selector       // those which match the namespace, in the order of their numbers
	profiles   map[string]*profile
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

// profile is a set of labels in a space, and the selectors that match them.
type profile struct {
	space     *space
	key       string
	labels    map[string]string
	set       *set
	endpoints []*endpoint // a slice, as most have few: a map takes 110 bytes more
}

// admits reports whether the selector's part about the namespace matches.
func (s *space) admits(sel *selector) bool {
	switch {
	case sel.peer.Pods != nil:
		return s.kind == podLabels && podsAdmit(sel.peer.Pods, s.namespace, s.labels)
	case sel.peer.Nodes != nil:
		return s.kind == nodeLabels
	}
	return false
}

func podsAdmit(p *model.Pods, namespace string, labels map[string]string) bool {
	return (p.Namespace == "" || p.Namespace == namespace) && matches(p.Namespaces, labels)
}

// matches presumes that the space admits the selector.
func (p *profile) matches(sel *selector) bool {
	if sel.peer.Pods != nil {
		return matches(sel.peer.Pods.Labels, p.labels)
	}
	return matches(*sel.peer.Nodes, p.labels)
}

// profileOf returns the profile of an endpoint's labels, and makes it if need be.
func (e *Engine) profileOf(ep model.Endpoint) *profile {
	kind := labelKindOf(ep.Kind)
	namespace, namespaceLabels, labels := ep.Namespace, ep.NamespaceLabels, ep.Labels
	switch kind {
	case noLabels:
		namespace, namespaceLabels, labels = "", nil, nil
	case nodeLabels:
		namespace, namespaceLabels = "", nil
	}
	key := strconv.Itoa(int(kind)) + strconv.Quote(namespace) + labelsKey(namespaceLabels)
	s := e.spaces[key]
	if s == nil {
		s = &space{key: key, kind: kind, namespace: namespace, labels: namespaceLabels, profiles: map[string]*profile{}}
		for _, sel := range e.selectors {
			if s.admits(sel) {
				s.candidates = append(s.candidates, sel)
			}
		}
		slices.SortFunc(s.candidates, byID)
		e.spaces[key] = s
	}
	key = labelsKey(labels)
	p := s.profiles[key]
	if p == nil {
		p = &profile{space: s, key: key, labels: labels}
		var found []*selector
		for _, sel := range s.candidates {
			if p.matches(sel) {
				found = append(found, sel)
			}
		}
		p.set = e.intern(found)
		s.profiles[key] = p
	}
	return p
}

// leave takes an endpoint out of its profile, which goes with its last endpoint.
func (e *Engine) leave(ep *endpoint) {
	p := ep.profile
	ep.profile = nil
	p.endpoints = slices.DeleteFunc(p.endpoints, func(other *endpoint) bool { return other == ep })
	if len(p.endpoints) > 0 {
		return
	}
	e.release(p.set)
	delete(p.space.profiles, p.key)
	if len(p.space.profiles) == 0 {
		delete(e.spaces, p.space.key)
	}
}

func byID(a, b *selector) int { return int(int64(a.id) - int64(b.id)) }

func labelsKey(labels map[string]string) string {
	var key strings.Builder
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		// Neither keys nor values of labels may have these characters.
		key.WriteString(k)
		key.WriteByte('\x00')
		key.WriteString(labels[k])
		key.WriteByte('\x01')
	}
	return key.String()
}

// updateProfiles adds the new selectors to the profiles that they match, and takes the dead ones out of all.
func (a *apply) updateProfiles() {
	for _, s := range a.e.spaces {
		dead := slices.ContainsFunc(s.candidates, func(sel *selector) bool { return sel.refs == 0 })
		if dead {
			s.candidates = slices.DeleteFunc(s.candidates, func(sel *selector) bool { return sel.refs == 0 })
		}
		var added []*selector
		for _, sel := range a.newSelectors {
			if sel.refs > 0 && s.admits(sel) {
				added = append(added, sel)
			}
		}
		s.candidates = append(s.candidates, added...)
		if !dead && len(added) == 0 {
			continue
		}
		for _, p := range s.profiles {
			a.updateProfile(p, added)
		}
	}
}

func (a *apply) updateProfile(p *profile, added []*selector) {
	var found []*selector
	changed := false
	for _, sel := range p.set.selectors {
		if sel.refs > 0 {
			found = append(found, sel)
		} else {
			changed = true
		}
	}
	for _, sel := range added {
		if p.matches(sel) {
			found = append(found, sel)
			changed = true
		}
	}
	if !changed {
		return
	}
	old := p.set
	p.set = a.e.intern(found)
	a.e.release(old)
	for _, ep := range p.endpoints {
		a.dirtyAddresses(ep)
	}
}
