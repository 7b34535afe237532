package manifest

import (
	"encoding/json"
	"net/textproto"
	"regexp"
	"regexp/syntax"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"porin.dev/porin/cells/policy/model"
)

// What one list of rules may have. A policy's expressions are compiled by all nodes that it selects pods of.
const (
	maxLayer7Rules    = 256
	maxHeaders        = 64
	maxText           = 1024   // of an expression, or of a header's value
	maxExpression     = 5_000  // instructions of one expression
	maxAllExpressions = 50_000 // of all expressions of a policy
)

// ciliumLayer7 are rules about what may be asked for on connections to the ports.
type ciliumLayer7 struct {
	HTTP    []ciliumHTTP    `json:"http"`
	DNS     []ciliumDNS     `json:"dns"`
	Kafka   json.RawMessage `json:"kafka"`
	L7Proto json.RawMessage `json:"l7proto"`
	L7      json.RawMessage `json:"l7"`
}

type ciliumHTTP struct {
	Method        string         `json:"method"`
	Path          string         `json:"path"`
	Host          string         `json:"host"`
	Headers       []string       `json:"headers"`
	HeaderMatches []ciliumHeader `json:"headerMatches"`
}

type ciliumHeader struct {
	Name     string          `json:"name"`
	Value    string          `json:"value"`
	Mismatch json.RawMessage `json:"mismatch"`
	Secret   json.RawMessage `json:"secret"`
}

type ciliumDNS struct {
	MatchName    string `json:"matchName"`
	MatchPattern string `json:"matchPattern"`
}

// ciliumLayer7 returns nil when everything may be asked for.
func (f *faults) ciliumLayer7(path *field.Path, d model.Direction, group ciliumPorts) *model.Layer7 {
	if group.Rules == nil {
		return nil
	}
	at := path.Child("rules")
	f.refuseAll(at, "not supported: only http and dns", refused{"kafka", group.Rules.Kafka}, refused{"l7proto", group.Rules.L7Proto}, refused{"l7", group.Rules.L7})
	rules := &model.Layer7{}
	for i, r := range group.Rules.HTTP {
		rules.HTTP = append(rules.HTTP, f.ciliumHTTP(at.Child("http").Index(i), r))
	}
	for i, r := range group.Rules.DNS {
		rules.DNS = append(rules.DNS, f.ciliumDNS(at.Child("dns").Index(i), r))
	}
	f.atMost(at.Child("http"), len(rules.HTTP), maxLayer7Rules)
	f.atMost(at.Child("dns"), len(rules.DNS), maxLayer7Rules)
	switch {
	case len(rules.HTTP)+len(rules.DNS) == 0:
		return nil
	case len(rules.HTTP) > 0 && len(rules.DNS) > 0:
		f.add(field.Forbidden(at, "http and dns together: write one entry of toPorts for each"))
	case len(rules.DNS) > 0 && d == model.Ingress:
		f.add(field.Forbidden(at.Child("dns"), "not in rules for ingress"))
	}
	for i, p := range group.Ports {
		f.checkLayer7Port(path.Child("ports").Index(i), p, len(rules.DNS) > 0)
	}
	return rules
}

// checkLayer7Port is for a port with rules.
func (f *faults) checkLayer7Port(path *field.Path, p ciliumPort, dns bool) {
	protocol := strings.ToUpper(p.Protocol)
	switch {
	case dns && protocol == "SCTP":
		f.add(field.Invalid(path.Child("protocol"), p.Protocol, "rules.dns wants TCP, UDP or ANY"))
	case !dns && protocol != "TCP":
		f.add(field.Invalid(path.Child("protocol"), p.Protocol, "rules.http wants TCP"))
	}
	if dns && p.EndPort != 0 {
		f.add(field.Forbidden(path.Child("endPort"), "not together with rules for dns"))
	}
	if strings.Trim(p.Port, "0") == "" && p.Port != "" {
		f.add(field.Forbidden(path.Child("port"), "0 is every port: not together with rules"))
	}
}

func (f *faults) ciliumHTTP(path *field.Path, r ciliumHTTP) model.HTTPRule {
	rule := model.HTTPRule{Method: r.Method, Path: r.Path, Host: r.Host}
	f.expression(path.Child("method"), r.Method)
	f.expression(path.Child("path"), r.Path)
	f.expression(path.Child("host"), r.Host)
	f.atMost(path.Child("headers"), len(r.Headers)+len(r.HeaderMatches), maxHeaders)
	for i, text := range r.Headers {
		at := path.Child("headers").Index(i)
		name, value, given := strings.Cut(text, ":")
		value = strings.Trim(value, " \t")
		if given && value == "" {
			f.add(field.Invalid(at, text, `want "Name: value", or "Name" for any value`))
		}
		rule.Headers = append(rule.Headers, f.header(at, name, value))
	}
	for i, h := range r.HeaderMatches {
		at := path.Child("headerMatches").Index(i)
		f.refuseAll(at, "not supported", refused{"mismatch", h.Mismatch}, refused{"secret", h.Secret})
		rule.Headers = append(rule.Headers, f.header(at, h.Name, h.Value))
	}
	return rule
}

// header is one with any value if the value is empty.
func (f *faults) header(path *field.Path, name, value string) model.HTTPHeader {
	const marks = "!#$%&'*+-.^_`|~"
	isToken := name != "" && len(name) <= maxText
	for _, c := range []byte(name) {
		isToken = isToken && (c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte(marks, c) >= 0)
	}
	if !isToken {
		f.add(field.Invalid(path, name, "not a name of a header"))
	}
	if strings.EqualFold(name, "Host") {
		f.add(field.Forbidden(path, "use host"))
	}
	if len(value) > maxText || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
		f.add(field.Invalid(path, value, "not a value of a header"))
	}
	return model.HTTPHeader{Name: textproto.CanonicalMIMEHeaderKey(name), Value: value, AnyValue: value == ""}
}

// expression reports an expression that cannot be compiled, or takes too much.
func (f *faults) expression(path *field.Path, text string) {
	switch {
	case text == "":
		return
	case len(text) > maxText:
		f.add(field.TooLong(path, "", maxText))
		return
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		f.add(field.Invalid(path, text, err.Error()))
		return
	}
	size := sizeOf(parsed)
	if size > maxExpression {
		f.add(field.Invalid(path, text, "too large when it is compiled"))
		return
	}
	before := f.expressions
	if f.expressions += size; f.expressions > maxAllExpressions {
		if before <= maxAllExpressions { // this is said once
			f.add(field.Forbidden(path, "the expressions of the policy are too large together"))
		}
		return
	}
	if _, err := regexp.Compile(`\A(?:` + text + `)\z`); err != nil {
		f.add(field.Invalid(path, text, err.Error()))
	}
}

// sizeOf is about how many instructions an expression has. Repetitions are written out.
func sizeOf(e *syntax.Regexp) int {
	size := 1 + len(e.Rune)
	for _, sub := range e.Sub {
		size += sizeOf(sub)
	}
	if e.Op == syntax.OpRepeat {
		size *= max(e.Min, e.Max, 1)
	}
	return min(size, maxExpression+1)
}

func (f *faults) ciliumDNS(path *field.Path, r ciliumDNS) model.DNSRule {
	f.oneOf(path, map[string]bool{"matchName": r.MatchName != "", "matchPattern": r.MatchPattern != ""})
	rule := model.DNSRule{Name: f.domain(path.Child("matchName"), r.MatchName, ""), Pattern: f.domain(path.Child("matchPattern"), r.MatchPattern, "*")}
	if strings.Contains(strings.TrimPrefix(rule.Pattern, "**."), "**") {
		f.add(field.Invalid(path.Child("matchPattern"), r.MatchPattern, `"**." only at the beginning`))
	}
	return rule
}

// domain is a name in lower case and without a dot at the end. It may be empty.
func (f *faults) domain(path *field.Path, text, more string) string {
	if text == "" {
		return ""
	}
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	valid := name != "" && len(name) <= 253
	for _, label := range strings.Split(name, ".") {
		valid = valid && label != "" && len(label) <= 63 && strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_"+more) == ""
	}
	if !valid {
		f.add(field.Invalid(path, text, "not a name of a domain"))
	}
	return name
}
