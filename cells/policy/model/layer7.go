package model

// Layer7 restricts what may be asked for on the connections that a rule accepts. Only one protocol has rules; requests that none of them
// matches are denied.
type Layer7 struct {
	HTTP []HTTPRule
	DNS  []DNSRule
}

// HTTPRule matches a request that meets all of its conditions. One without conditions matches every request. The expressions have the syntax
// of RE2, and match only the whole text.
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

// DNSRule matches queries for one name, or for the names of a pattern. Exactly one field is set, in lower case and without a dot at the end.
type DNSRule struct {
	Name string
	// Pattern has "*" for any number of characters that are valid in a label, and "**." at its beginning for one label or more.
	// "*" alone matches all names.
	Pattern string
}
