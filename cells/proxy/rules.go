package proxy

import (
	"maps"
	"sync"

	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/httpproxy"
)

// ruleSet is a compiled [model.Layer7], which has rules of one protocol: the other field is nil.
type ruleSet struct {
	http *httpproxy.Rules
	dns  *dnsname.Rules
}

func compile(rules model.Layer7) (set *ruleSet, err error) {
	set = &ruleSet{}
	if len(rules.DNS) > 0 {
		set.dns, err = dnsname.Compile(rules.DNS)
	} else {
		set.http, err = httpproxy.Compile(rules.HTTP)
	}
	return set, err
}

// rulesByNumber are the rules that rows may name.
type rulesByNumber struct {
	mu       sync.RWMutex // guards the field below
	byNumber map[uint32]*ruleSet
}

// add adds sets of rules, or replaces those with the same number.
func (r *rulesByNumber) add(sets map[uint32]*ruleSet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byNumber == nil {
		r.byNumber = map[uint32]*ruleSet{}
	}
	maps.Copy(r.byNumber, sets)
}

// remove removes sets of rules.
func (r *rulesByNumber) remove(numbers []uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range numbers {
		delete(r.byNumber, n)
	}
}

// get returns nil for a number that no rules have.
func (r *rulesByNumber) get(number uint32) *ruleSet {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byNumber[number]
}
