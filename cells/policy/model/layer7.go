package model

import (
	"fmt"
	"strings"
)

// Layer7 restricts what may be asked for on the connections that a rule accepts. Only one protocol has rules; requests
// that none of them matches are denied.
type Layer7 struct {
	HTTP []HTTPRule
	DNS  []DNSRule
}

// HTTPRule matches a request that meets all of its conditions. One without conditions matches every request. The
// expressions have the syntax of RE2, and match only the whole text.
type HTTPRule struct {
	Method  string // an expression; empty: any
	Path    string // an expression for the path with the query, exactly as it is forwarded; empty: any
	Host    string // an expression for the host in lower case, without port; empty: any
	Headers []HTTPHeader
}

// HTTPHeader asks for a header, in any of its lines.
type HTTPHeader struct {
	Name  string
	Value string // exactly; not if AnyValue
	// AnyValue is met by every value.
	AnyValue bool
}

// DNSRule matches one name, or the names of a pattern. Exactly one field is set, in lower case and without a dot at the
// end.
type DNSRule struct {
	Name string
	// Pattern has "*" for any number of characters that are valid in a label, and "**." at its beginning for one label or
	// more. "*" alone matches all names.
	Pattern string
}

// Texts are the rules for people, at most so many of them, and then how many more there are.
func (l Layer7) Texts(most int) (texts []string) {
	for _, r := range l.HTTP[:min(len(l.HTTP), most)] {
		texts = append(texts, r.String())
	}
	for _, r := range l.DNS[:min(len(l.DNS), most-len(texts))] {
		texts = append(texts, r.String())
	}
	if more := len(l.HTTP) + len(l.DNS) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return texts
}

// String has the first rules, such as "GET /public/.*; POST /orders".
func (l Layer7) String() string { return strings.Join(l.Texts(10), "; ") }

// String is "GET /public/.*", or "any method, host a\.example, header X-Token".
func (r HTTPRule) String() string {
	text := "any method"
	if r.Method != "" {
		text = r.Method
	}
	if r.Path != "" {
		text += " " + r.Path
	}
	if r.Host != "" {
		text += ", host " + r.Host
	}
	for _, h := range r.Headers {
		text += ", header " + h.Name
		if !h.AnyValue {
			text += ": " + h.Value
		}
	}
	return text
}

// String is "DNS www.example.org", or "DNS *.example.org".
func (r DNSRule) String() string { return "DNS " + r.Name + r.Pattern }
