package httpproxy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"porin.dev/porin/cells/policy/model"
)

// Rules decide about requests. They do not change, and may be used by many sessions at once. A nil Rules denies every
// request.
type Rules struct {
	rules     []rule
	pathMeant bool // a rule asks for a path
}

type rule struct {
	method, path, host pattern // nil: any
	headers            []model.HTTPHeader
}

// Compile prepares rules. The error tells of every fault.
func Compile(rules []model.HTTPRule) (*Rules, error) {
	out := &Rules{rules: make([]rule, 0, len(rules))}
	var faults []error
	for i, r := range rules {
		compiled, err := compileRule(r)
		if err != nil {
			faults = append(faults, fmt.Errorf("HTTP rule %d: %w", i, err))
		}
		out.rules = append(out.rules, compiled)
		out.pathMeant = out.pathMeant || compiled.path != nil
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return out, nil
}

func compileRule(r model.HTTPRule) (rule, error) {
	method, errMethod := compilePattern("method", r.Method)
	path, errPath := compilePattern("path", r.Path)
	host, errHost := compilePattern("host", r.Host)
	faults := []error{errMethod, errPath, errHost}
	for _, h := range r.Headers {
		if !httpguts.ValidHeaderFieldName(h.Name) {
			faults = append(faults, fmt.Errorf("header %q: not a valid name", h.Name))
		}
		if knownOf([]byte(h.Name)) == hHost {
			faults = append(faults, fmt.Errorf("header %q: the host has a condition of its own", h.Name))
		}
		if !httpguts.ValidHeaderFieldValue(h.Value) || strings.Trim(h.Value, " \t") != h.Value {
			faults = append(faults, fmt.Errorf("header %q: the value %q cannot be in a request", h.Name, h.Value))
		}
	}
	return rule{method: method, path: path, host: host, headers: r.Headers}, errors.Join(faults...)
}

// Decide returns no reason if a rule matches the request. A rule with a path must match all readings of an ambiguous
// path.
func (rs *Rules) Decide(r *Request) Reason {
	if rs == nil {
		return ReasonNoRule
	}
	var paths []string
	readable := true
	if rs.pathMeant {
		paths, readable = readings(r.Path)
	}
	reason := ReasonNoRule
	for i := range rs.rules {
		u := &rs.rules[i]
		switch {
		case !u.matches(r):
		case u.path != nil && (!readable || slices.ContainsFunc(paths, func(p string) bool { return !u.path(p) })):
			reason = ReasonAmbiguousPath
		default:
			return ""
		}
	}
	return reason
}

func (u *rule) matches(r *Request) bool {
	if !u.method.matches(r.Method) || !u.host.matches(r.Host) || !u.path.matches(r.Path) {
		return false
	}
	for i := range u.headers {
		if !r.has(&u.headers[i]) {
			return false
		}
	}
	return true
}

// has looks among the headers that are forwarded. A value counts if the header is there once: of several, servers take
// the first or the last one, or join them. It counts for nothing beside a header that servers may take for it.
func (r *Request) has(want *model.HTTPHeader) bool {
	found, equal := 0, false
	for i := range r.headers {
		switch name := r.headers[i].Name; {
		case sameName(name, want.Name):
			found++
			equal = r.headers[i].Value == want.Value
		case sameVariable(name, want.Name):
			return false
		}
	}
	for i := range r.fields {
		f := &r.fields[i]
		if f.drop && (f.known != hUpgrade || r.offer == nil) {
			continue // it is not forwarded
		}
		switch name := f.nameOf(r.head); {
		case sameName(name, want.Name):
			found++
			equal = string(f.valueOf(r.head)) == want.Value
		case sameVariable(name, want.Name):
			return false
		}
	}
	return found > 0 && (want.AnyValue || found == 1 && equal)
}

// sameVariable reports whether servers that keep headers in variables, as WSGI does, take two names for one: "-"
// becomes "_" there.
func sameVariable[A, B string | []byte](a A, b B) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if toLower(a[i]) != toLower(b[i]) && (a[i] != '_' || b[i] != '-') && (a[i] != '-' || b[i] != '_') {
			return false
		}
	}
	return true
}
