package offline

import (
	"encoding/binary"
	"fmt"
	"slices"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// classes are a [policy.NameClasses] that can be asked.
type classes struct {
	revision uint32
	rules    []*dnsname.Rules // one each
	byNumber map[engine.ClassID]policy.NameClass
	byKey    map[string]engine.ClassID
}

func compile(snapshot policy.NameClasses) (*classes, error) {
	c := &classes{revision: snapshot.Revision, byNumber: map[engine.ClassID]policy.NameClass{}, byKey: map[string]engine.ClassID{}}
	for _, rule := range snapshot.Rules {
		one, err := dnsname.Compile([]model.DNSRule{model.DNSRule(rule)})
		if err != nil {
			return nil, err
		}
		c.rules = append(c.rules, one)
	}
	for _, class := range snapshot.Classes {
		for _, i := range class.Rules {
			if i < 0 || i >= len(c.rules) {
				return nil, fmt.Errorf("class %d has rule %d of %d", class.Class, i, len(c.rules))
			}
		}
		c.byNumber[class.Class] = class
		c.byKey[classKey(class.Blocks, class.Rules)] = class.Class
	}
	return c, nil
}

func classKey(blocks int, rules []int) string {
	key := binary.AppendUvarint(nil, uint64(blocks))
	for _, i := range rules {
		key = binary.AppendUvarint(key, uint64(i))
	}
	return string(key)
}

// matching returns the rules that match a name.
func (c *classes) matching(name string) (rules []int) {
	for i, one := range c.rules {
		if one.Match(name) {
			rules = append(rules, i)
		}
	}
	return rules
}

// withRules returns the class of an address that has a class when more rules select it, and false when none is reserved.
func (c *classes) withRules(class engine.ClassID, rules []int) (engine.ClassID, bool) {
	known, ok := c.byNumber[class]
	if !ok {
		return 0, false
	}
	all := slices.Concat(known.Rules, rules)
	slices.Sort(all)
	then, ok := c.byKey[classKey(known.Blocks, slices.Compact(all))]
	return then, ok
}
