package endpoints

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/policy/model"
)

// sharedSet is what endpoints of one deployment, say, have in common: in the whole cluster it is there once.
type sharedSet struct {
	key    string
	labels cluster.LabelSet
	ports  []model.NamedPort
	users  int
}

// sharedSets are the sets in use, by key.
type sharedSets map[string]*sharedSet

// acquire returns the set with these labels (with their key) and ports.
func (s sharedSets) acquire(labelsKey string, labels cluster.LabelSet, ports []cluster.PublishedPort) *sharedSet {
	key := labelsKey
	for _, p := range ports {
		key += fmt.Sprintf("%q%q%d", p.Name, p.Protocol, p.Port)
	}
	set := s[key]
	if set == nil {
		set = &sharedSet{key: key, labels: labels}
		for _, p := range ports {
			if protocol, err := model.ParseProtocol(p.Protocol); err == nil {
				set.ports = append(set.ports, model.NamedPort{Name: p.Name, Protocol: protocol, Number: p.Port})
			}
		}
		s[key] = set
	}
	set.users++
	return set
}

func (s sharedSets) release(set *sharedSet) {
	if set.users--; set.users == 0 {
		delete(s, set.key)
	}
}

// keyOf is the same for the same labels alone.
func keyOf(l cluster.LabelSet) string {
	var key strings.Builder
	fmt.Fprintf(&key, "%q", l.Namespace)
	for _, labels := range []map[string]string{l.NamespaceLabels, l.Labels} {
		key.WriteByte('{')
		for _, name := range slices.Sorted(maps.Keys(labels)) {
			fmt.Fprintf(&key, "%q%q", name, labels[name])
		}
		key.WriteByte('}')
	}
	return key.String()
}
