package engine

import (
	"iter"
	"slices"
	"strconv"
	"strings"

	"porin.dev/porin/cells/policy/model"
)

// updateNames looks for label sets with ports whose name has come into use or gone out of use.
func (tx *transaction) updateNames() {
	turned := map[string]bool{}
	for name, before := range tx.names {
		if before != (tx.e.names[name] > 0) {
			turned[name] = true
		}
	}
	if len(turned) == 0 {
		return
	}
	for _, n := range tx.e.namespaces {
		for _, l := range n.labelSets {
			if slices.ContainsFunc(l.ports, func(p model.NamedPort) bool { return turned[p.Name] }) {
				l.askedPorts = portsKey(tx.e.asked(l.ports))
				for _, ep := range l.endpoints {
					tx.dirtyAddresses(ep)
				}
			}
		}
	}
}

func (tx *transaction) useNames(ports []model.Port, n int) {
	for _, port := range ports {
		if port.Name == "" {
			continue
		}
		if _, ok := tx.names[port.Name]; !ok {
			tx.names[port.Name] = tx.e.names[port.Name] > 0
		}
		if tx.e.names[port.Name] += n; tx.e.names[port.Name] == 0 {
			delete(tx.e.names, port.Name)
		}
	}
}

// asked returns the endpoint's ports that rules for egress name.
func (e *Engine) asked(ports []model.NamedPort) []model.NamedPort {
	var found []model.NamedPort
	for _, p := range ports {
		if e.names[p.Name] > 0 {
			found = append(found, p)
		}
	}
	return found
}

func (e *Engine) portsOf(owner *endpoint) []model.NamedPort {
	if owner == nil {
		return nil
	}
	return e.asked(owner.ports)
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

// resolvePort gives the ranges of ports of a protocol that a rule's port means.
func resolvePort(p model.Port, named []model.NamedPort, protocol model.Protocol) iter.Seq2[uint16, uint16] {
	return func(yield func(first, last uint16) bool) {
		if p.Name == "" {
			if p.Protocol == protocol {
				yield(p.First, p.Last)
			}
			return
		}
		if !protocol.HasPorts() {
			return
		}
		for _, n := range named {
			if n.Name == p.Name && n.Protocol == protocol && (p.Protocol == 0 || p.Protocol == protocol) && !yield(n.Number, n.Number) {
				return
			}
		}
	}
}
