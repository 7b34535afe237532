package httpproxy

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// pattern is an expression that matches only the whole text. The usual shapes need no regular expression.
type pattern func(string) bool

// matches is true of a pattern that is nil.
func (p pattern) matches(text string) bool { return p == nil || p(text) }

// compilePattern returns nil for an empty expression.
func compilePattern(what, expression string) (pattern, error) {
	if expression == "" {
		return nil, nil
	}
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", what, expression, err)
	}
	if p := simplePattern(parsed.Simplify()); p != nil {
		return p, nil
	}
	// The text of what was parsed is closed in itself: it cannot end the group, nor quote its end.
	whole, err := regexp.Compile(`\A(?:` + parsed.String() + `)\z`)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", what, expression, err)
	}
	return whole.MatchString, nil
}

// simplePattern knows "literal", "literal.*" and "one|other".
func simplePattern(e *syntax.Regexp) pattern {
	if text, ok := literal(e); ok {
		return func(s string) bool { return s == text }
	}
	switch e.Op {
	case syntax.OpConcat:
		if len(e.Sub) != 2 || e.Sub[1].Op != syntax.OpStar || e.Sub[1].Sub[0].Op != syntax.OpAnyCharNotNL {
			return nil
		}
		if prefix, ok := literal(e.Sub[0]); ok {
			return func(s string) bool { return strings.HasPrefix(s, prefix) && !strings.Contains(s[len(prefix):], "\n") }
		}
	case syntax.OpAlternate:
		texts := make([]string, len(e.Sub))
		for i, sub := range e.Sub {
			var ok bool
			if texts[i], ok = literal(sub); !ok {
				return nil
			}
		}
		return func(s string) bool { return slices.Contains(texts, s) }
	}
	return nil
}

func literal(e *syntax.Regexp) (string, bool) {
	if e.Op != syntax.OpLiteral || e.Flags&syntax.FoldCase != 0 {
		return "", false
	}
	return string(e.Rune), true
}
