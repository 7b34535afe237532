package policy

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// NameClasses tells a proxy which class to write for an address outside of the cluster that a name gets while no agent runs: the one with the blocks of the
// address's class, and with that class's rules and those that match the name. When there is none, only an agent can make it.
type NameClasses struct {
	// Revision is the datapath's: with another one the numbers of classes may mean something else.
	Revision uint32      `json:"revision"`
	Rules    []NameRule  `json:"rules,omitempty"`   // all rules for names that policies have
	Classes  []NameClass `json:"classes,omitempty"` // those that have to do with names
}

// NameRule is a [model.DNSRule].
type NameRule struct {
	Name    string `json:"name,omitempty"`
	Pattern string `json:"pattern,omitempty"`
}

// NameClass is a class of addresses outside of the cluster.
type NameClass struct {
	Class  engine.ClassID `json:"class"`            // in the datapath
	Blocks int            `json:"blocks,omitempty"` // equal for classes of addresses that are in the same blocks of policies
	Rules  []int          `json:"rules,omitempty"`  // by which names select the addresses: indexes of rules, sorted
}

// NameExchange connects the agent with a proxy that learns names while no agent is there.
type NameExchange interface {
	// ImportNames gives what a proxy has learned until then to [Names.Import]. It is called after [Enforcer.AcquireLock], and before the first write of
	// policies. It returns soon after ctx ends.
	ImportNames(ctx context.Context)
	// PublishClasses tells a proxy the classes of a revision, before the datapath has that. The classes of the revision inForce are still needed, those of
	// others are not. It is called from one goroutine at a time, and policies wait for it.
	PublishClasses(c NameClasses, inForce uint32)
}

// noExchange is for a proxy that ends with the agent.
type noExchange struct{}

func (noExchange) ImportNames(context.Context) {}

func (noExchange) PublishClasses(NameClasses, uint32) {}

// ExchangeNamesWith has a proxy be told what is reserved for names, and asked what it has learned. It is for a start, before [Queue.Start].
func (q *Queue) ExchangeNamesWith(x NameExchange) {
	q.exchange = x
	q.enforcer.OnRevision(func(inForce, next uint32) {
		n := NameClasses{Revision: next}
		rules, classes := q.view.engine.NameClasses()
		for _, rule := range rules {
			n.Rules = append(n.Rules, NameRule(rule))
		}
		for _, c := range classes {
			n.Classes = append(n.Classes, NameClass(c))
		}
		x.PublishClasses(n, inForce)
	})
}

// What [nameSets] looks at: more rules have no classes reserved anyway.
const (
	maxNameSetRules    = 256
	maxNameSetPatterns = 32 // patterns that are compared in pairs
)

// nameSets returns the sets of rules that match one name together, for names that rules stand for: see [engine.Config].
func nameSets(rules []model.DNSRule) (sets [][]int) {
	rules = rules[:min(len(rules), maxNameSetRules)]
	var compiled []*dnsname.Rules
	var names, patterns []string
	for _, rule := range rules {
		one, err := dnsname.Compile([]model.DNSRule{rule})
		if err != nil {
			one = nil // matches nothing
		}
		compiled = append(compiled, one)
		text := strings.ToLower(strings.TrimSuffix(rule.Name+rule.Pattern, "."))
		names = append(names, examples(text)...)
		if rule.Pattern != "" {
			patterns = append(patterns, text)
		}
	}
	patterns = patterns[:min(len(patterns), maxNameSetPatterns)]
	for i, x := range patterns {
		for _, y := range patterns[i+1:] {
			names = append(names, common(x, y)...)
		}
	}
	seen := map[string]bool{}
	for _, name := range names {
		var set []int
		var key []byte
		for i, one := range compiled {
			if one.Match(name) {
				set, key = append(set, i), binary.AppendUvarint(key, uint64(i))
			}
		}
		if len(set) > 0 && !seen[string(key)] {
			seen[string(key)] = true
			sets = append(sets, set)
		}
	}
	return sets
}

// anyLabel stands for what a "*" may be: hardly another rule has it.
const anyLabel = "q-0"

// examples are names that a rule may match.
func examples(text string) (names []string) {
	rest, below := strings.CutPrefix(text, "**.")
	for _, with := range []string{anyLabel, ""} {
		name := strings.ReplaceAll(rest, "*", with)
		if below {
			names = append(names, anyLabel+"."+name, anyLabel+"."+anyLabel+"."+name)
		} else {
			names = append(names, name)
		}
	}
	return names
}

// common are names that two patterns may match, label by label. They are no more than likely: not all are names.
func common(x, y string) (names []string) {
	xs, ys := strings.Split(strings.TrimPrefix(x, "**."), "."), strings.Split(strings.TrimPrefix(y, "**."), ".")
	if len(xs) != len(ys) {
		return nil // a name that one of them stands for is what the other one may match
	}
	for _, with := range []string{anyLabel, ""} {
		labels := slices.Clone(xs)
		for i := range labels {
			labels[i] = commonLabel(xs[i], ys[i], with)
		}
		name := strings.Join(labels, ".")
		names = append(names, name, fmt.Sprint(anyLabel, ".", name))
	}
	return names
}

func commonLabel(x, y, with string) string {
	switch {
	case !strings.Contains(x, "*"):
		return x
	case !strings.Contains(y, "*"):
		return y
	}
	begin, end := longer(x[:strings.Index(x, "*")], y[:strings.Index(y, "*")]), longer(x[strings.LastIndex(x, "*")+1:], y[strings.LastIndex(y, "*")+1:])
	middle := func(label string) string {
		return strings.ReplaceAll(label[strings.Index(label, "*"):strings.LastIndex(label, "*")+1], "*", with)
	}
	return begin + middle(x) + middle(y) + end
}

func longer(x, y string) string {
	if len(x) > len(y) {
		return x
	}
	return y
}
