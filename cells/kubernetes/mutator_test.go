package kubernetes_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// bytesSource is a rand.Source that takes its numbers from bytes, so that a fuzzer chooses the mutations. After the
// bytes all numbers are equal.
type bytesSource struct{ data []byte }

// Uint64 has two of the bytes. The other bits are set, because rand.Rand rejects some numbers and would ask for ever.
func (s *bytesSource) Uint64() uint64 {
	number := uint64(0)
	for range min(2, len(s.data)) {
		number = number<<8 | uint64(s.data[0])
		s.data = s.data[1:]
	}
	return number<<48 | 1<<48 - 1
}

// mutator changes the tree of a decoded object.
type mutator struct{ *rand.Rand }

// mutant returns the object of a JSON text after a number of mutations.
func (m mutator) mutant(text string, mutations int) map[string]any {
	var root any = decoded(text)
	for range mutations {
		slots := slotsIn(nil, "", root, func(any) {}, func() {})
		if len(slots) > 500 { // some mutations multiply them
			break
		}
		m.mutate(pick(m, slots), pick(m, slots).value)
	}
	return root.(map[string]any)
}

func decoded(text string) (fields map[string]any) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&fields); err != nil {
		panic(err)
	}
	return fields
}

// slot is the place of a value in the tree.
type slot struct {
	value  any
	set    func(any)
	remove func()
}

// slotsIn returns all places in the tree, always in the same order. It leaves out the name of the object and of its
// kind.
func slotsIn(found []slot, at string, value any, set func(any), remove func()) []slot {
	switch at {
	case ".apiVersion", ".kind", ".metadata.name", ".metadata.namespace", ".metadata.uid":
		return found
	case "", ".metadata": // they stay objects, which may get fields
		set, remove = func(any) {}, func() {}
	}
	found = append(found, slot{value, set, remove})
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			found = slotsIn(found, at+"."+key, value[key], func(v any) { value[key] = v }, func() { delete(value, key) })
		}
	case []any:
		for i := range value {
			shorter := func() { set(slices.Delete(slices.Clone(value), i, i+1)) }
			found = slotsIn(found, at+"[]", value[i], func(v any) { value[i] = v }, shorter)
		}
	}
	return found
}

// mutate changes one place. other is a value from somewhere else in the object.
func (m mutator) mutate(s slot, other any) {
	switch value := s.value.(type) {
	case map[string]any:
		if m.IntN(2) == 0 {
			value[pick(m, fieldNames)] = m.value(other)
			return
		}
	case []any:
		switch m.IntN(4) {
		case 0:
			s.set(append(slices.Clone(value), m.value(other)))
			return
		case 1:
			s.set(slices.Repeat(value, 1+m.IntN(40)))
			return
		}
	}
	if m.IntN(5) == 0 {
		s.remove()
	} else {
		s.set(m.value(other))
	}
}

func (m mutator) value(other any) any {
	switch m.IntN(12) {
	case 0:
		return copied(other)
	case 1:
		return strings.Repeat(pick(m, texts), 1+m.IntN(300))
	case 2:
		return nested(1 + m.IntN(200))
	case 3:
		return map[string]any{pick(m, fieldNames): pick(m, texts)}
	case 4, 5:
		return copied(pick(m, numbers))
	}
	return pick(m, texts)
}

func pick[T any](m mutator, from []T) T { return from[m.IntN(len(from))] }

func copied(value any) any {
	text, err := json.Marshal(map[string]any{"": value})
	if err != nil {
		panic(err)
	}
	return decoded(string(text))[""]
}

func nested(depth int) (value any) {
	for i := range depth {
		if value = any([]any{value}); i%2 == 0 {
			value = map[string]any{"spec": value}
		}
	}
	return value
}

// numbers are numbers, and values of other types.
var numbers = []any{
	nil, true, false, 0, 1, -1, 80, 65536, 1 << 31, 1 << 40, -1 << 63, 0.5, json.Number("1e400"),
	json.Number("-9223372036854775809"), []any{}, map[string]any{}, []any{nil},
	[]any{""}, map[string]any{"": nil},
}

var texts = []string{
	"", "a", "A.b/c", "-", "/", "a/../b", "\x00\u202e\n", "é\u00a0", "0", "65536", "-1", "10.0.0.0/8",
	"0.0.0.0/0", "10.0.0.1/33", "10.0.0.300", "::/0", "fd00::/8", "fe80::1%eth0",
	"::ffff:10.0.0.1", "::ffff:10.0.0.0/104", "10.0.0.2-10.0.0.9", "TCP", "ICMP", "In", "DoesNotExist", "Deny",
	"Accept", "Allow", "Ingress", "*", "**.", "(", "true", "2026-01-01T00:00:00Z",
	"app", "a0", "kube-apiserver", "world", "all", "n1", "active", "k8s:app", "io.cilium.k8s.policy.cluster",
	"io.kubernetes.pod.namespace", "porin.dev/audit",
}

// fieldNames are of fields that kinds have, and that they do not have.
var fieldNames = strings.Fields(`newField spec specs status labels annotations deletionTimestamp porin.dev/audit
	porin.dev/pool matchLabels matchExpressions key operator values podSelector namespaceSelector ipBlock cidr except ports port endPort protocol from to
	ingress egress policyTypes action tier priority subject
	namespaces pods nodes networks fromEndpoints toEndpoints fromCIDR toCIDR toCIDRSet cidrGroupRef
	cidrGroupSelector fromEntities toFQDNs toServices toPorts rules
	ingressDeny egressDeny enableDefaultDeny icmps podCIDRs addresses hostNetwork containers phase prefixes
	pending exclude blocks endpoints labelSet removed recovery id`)
