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

// with returns the class of an address of class now when more rules select it.
func (c *classes) with(now engine.ClassID, rules []int) (engine.ClassID, bool) {
	class, ok := c.byNumber[now]
	if !ok {
		return 0, false
	}
	all := slices.Concat(class.Rules, rules)
	slices.Sort(all)
	then, ok := c.byKey[classKey(class.Blocks, slices.Compact(all))]
	return then, ok
}
