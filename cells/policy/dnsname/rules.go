package dnsname

import (
	"errors"
	"fmt"
	"strings"

	"porin.dev/porin/cells/policy/model"
)

// Rules matches names. It never changes. A nil Rules matches none.
type Rules struct {
	all      bool
	exact    map[string]struct{}
	patterns node
}

// node is a state of the automaton for patterns, which reads a name label by label from its end.
type node struct {
	literals map[string]*node // by the next label
	globs    []*glob
	end      bool // a pattern ends here
	more     bool // a pattern accepts one label or more here
}

// glob is a label with "*".
type glob struct {
	label string
	next  node
}

// Compile returns the rules. It reports every rule that has a fault.
func Compile(rules []model.DNSRule) (*Rules, error) {
	compiled := &Rules{exact: map[string]struct{}{}}
	var faults []error
	for i, rule := range rules {
		if err := compiled.add(rule); err != nil {
			faults = append(faults, fmt.Errorf("DNS rule %d: %w", i, err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return compiled, nil
}

func (r *Rules) add(rule model.DNSRule) error {
	name, pattern := clean(rule.Name), clean(rule.Pattern)
	switch {
	case (name == "") == (pattern == ""):
		return errors.New("needs either a name or a pattern")
	case name != "":
		if err := validate(name, false); err != nil {
			return fmt.Errorf("name %q: %w", rule.Name, err)
		}
		r.exact[name] = struct{}{}
	case pattern == "*":
		r.all = true
	default:
		labels := strings.TrimPrefix(pattern, "**.")
		if err := validate(labels, true); err != nil {
			return fmt.Errorf("pattern %q: %w", rule.Pattern, err)
		}
		last := r.patterns.add(labels)
		if labels == pattern {
			last.end = true
		} else {
			last.more = true
		}
	}
	return nil
}

func clean(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

func validate(name string, pattern bool) error {
	if len(name) > maxWire-2 {
		return errors.New("is too long")
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabel {
			return errors.New("has a label that is empty or too long")
		}
		for _, c := range []byte(label) {
			if !valid(c) && (c != '*' || !pattern) {
				return fmt.Errorf("has the character %q", rune(c))
			}
		}
	}
	return nil
}

// valid reports whether "*" stands for the character, too.
func valid(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// add adds the states for labels, and returns the last one.
func (n *node) add(labels string) *node {
	for labels != "" {
		var label string
		labels, label = cutLast(labels)
		n = n.child(label)
	}
	return n
}

func (n *node) child(label string) *node {
	if !strings.Contains(label, "*") {
		if n.literals == nil {
			n.literals = map[string]*node{}
		}
		if n.literals[label] == nil {
			n.literals[label] = &node{}
		}
		return n.literals[label]
	}
	for _, g := range n.globs {
		if g.label == label {
			return &g.next
		}
	}
	g := &glob{label: label}
	n.globs = append(n.globs, g)
	return &g.next
}

// cutLast cuts the last label off.
func cutLast(name string) (rest, label string) {
	dot := strings.LastIndexByte(name, '.')
	return name[:max(dot, 0)], name[dot+1:]
}

// Match reports whether a rule matches the name, a text as of [AppendText].
func (r *Rules) Match(name string) bool {
	if r == nil {
		return false
	}
	if r.all {
		return true
	}
	if _, ok := r.exact[name]; ok {
		return true
	}
	return name != "." && r.patterns.match(name)
}

// match asks each state at most once, as there is one way from the first state to it.
func (n *node) match(name string) bool {
	if name == "" {
		return n.end
	}
	if n.more && allValid(name) {
		return true
	}
	rest, label := cutLast(name)
	if next, ok := n.literals[label]; ok && next.match(rest) {
		return true
	}
	for _, g := range n.globs {
		if matchLabel(g.label, label) && g.next.match(rest) {
			return true
		}
	}
	return false
}

func allValid(name string) bool {
	for _, c := range []byte(name) {
		if c != '.' && !valid(c) {
			return false
		}
	}
	return true
}

// matchLabel takes each "*" for as few characters as possible. Only the last "*" that was read is ever extended: the
// pattern before it has matched already, and an earlier one with more characters leaves no more for the rest.
func matchLabel(pattern, label string) bool {
	star, from := -1, 0 // the last "*", and where the text behind it began
	p, l := 0, 0
	for l < len(label) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, l
			p++
		case p < len(pattern) && pattern[p] == label[l]:
			p++
			l++
		case star >= 0 && valid(label[from]):
			from++
			p, l = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
