package engine

import (
	"iter"
	"slices"
	"strconv"
	"strings"

	"porin.dev/porin/cells/policy/model"
)

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
