package flow

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
)

// filter is which flows a client wants; the zero filter wants all.
type filter struct {
	criteria
	not  []criteria // a flow must meet none of them
	from time.Time  // of the oldest flow; zero: any
	last int        // only so many of the kept flows; 0: all
}

// criteria are met by a flow that meets each of them.
type criteria struct {
	namespaces   []string
	podNamespace string
	podName      string          // "": any
	labels       labels.Selector // of one end; nil: any
	name         string          // of DNS; "*.example.com" is any below; "": any
	direction    string          // of the pod that the packet was seen at; "": any
	policy       string          // NAMESPACE/NAME or NAME of the policy whose rule decided; "": any
	verdicts     []string
	reasons      []string
	protocol     model.Protocol // 0: any
	requests     string         // requestsHTTP or requestsDNS; "": any flow
	port         uint16         // 0: any
}

func parseFilter(query url.Values, now time.Time) (f filter, err error) {
	if f.criteria, err = parseCriteria(query); err != nil {
		return f, err
	}
	for _, text := range query["not"] {
		name, value, ok := strings.Cut(text, "=")
		if !ok || value == "" || !slices.Contains(criterionNames, name) {
			return f, invalid("not", text, "NAME=VALUE of "+strings.Join(criterionNames, ", "))
		}
		c, err := parseCriteria(url.Values{name: {value}})
		if err != nil {
			return f, err
		}
		f.not = append(f.not, c)
	}
	if text := query.Get("age"); text != "" {
		age, err := time.ParseDuration(text)
		if err != nil || age <= 0 {
			return f, invalid("age", text, "a time above zero, such as 5m")
		}
		f.from = now.Add(-age)
	}
	if text := query.Get("last"); text != "" {
		if f.last, err = strconv.Atoi(text); err != nil || f.last < 1 {
			return f, invalid("last", text, "a number from 1 on")
		}
	}
	return f, nil
}

// criterionNames are the parameters that not takes.
var criterionNames = []string{"namespace", "pod", "label", "name", "direction", "policy", "verdict", "reason", "protocol", "port"}

func parseCriteria(query url.Values) (c criteria, err error) {
	if text := query.Get("namespace"); text != "" {
		c.namespaces = strings.Split(text, ",")
	}
	if text := query.Get("pod"); text != "" {
		var ok bool
		if c.podNamespace, c.podName, ok = strings.Cut(text, "/"); !ok || c.podNamespace == "" || c.podName == "" {
			return c, invalid("pod", text, "NAMESPACE/NAME")
		}
	}
	if text := query.Get("label"); text != "" {
		if c.labels, err = labels.Parse(text); err != nil {
			return c, invalid("label", text, "a selector, such as app=web,tier!=db")
		}
	}
	c.name, c.policy = strings.ToLower(query.Get("name")), query.Get("policy")
	if c.direction = query.Get("direction"); c.direction != "" && !slices.Contains(v1.FlowDirections(), c.direction) {
		return c, invalid("direction", c.direction, strings.Join(v1.FlowDirections(), ", "))
	}
	if c.verdicts, err = wordsIn(query, "verdict", v1.FlowVerdicts()); err != nil {
		return c, err
	}
	if c.reasons, err = wordsIn(query, "reason", reasonNames()); err != nil {
		return c, err
	}
	switch text := query.Get("protocol"); strings.ToLower(text) {
	case "":
	case requestsHTTP, requestsDNS:
		c.requests = strings.ToLower(text)
	default:
		if c.protocol, err = model.ParseProtocol(text); err != nil {
			return c, fault.Wrap(fault.Invalid, err)
		}
	}
	if text := query.Get("port"); text != "" {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return c, invalid("port", text, "a number from 1 to 65535")
		}
		c.port = uint16(port)
	}
	return c, nil
}

// wordsIn reads words that are separated by commas.
func wordsIn(query url.Values, name string, known []string) (words []string, err error) {
	text := query.Get(name)
	if text == "" {
		return nil, nil
	}
	words = strings.Split(text, ",")
	for _, word := range words {
		if !slices.Contains(known, word) {
			return nil, invalid(name, word, strings.Join(known, ", "))
		}
	}
	return words, nil
}

// The protocols of requests, which the parameter protocol takes besides TCP and its like.
const (
	requestsHTTP = "http"
	requestsDNS  = "dns"
)

func reasonNames() (names []string) {
	for _, reason := range abi.DropReasons() {
		names = append(names, reason.String())
	}
	return names
}

func invalid(name, value, want string) error {
	return fault.New(fault.Invalid, fmt.Sprintf("%s=%.64q: want %s", name, value, want))
}

// wants is true for a line that says how much was lost, too.
func (f *filter) wants(r *record) bool {
	if r.lost > 0 {
		return true
	}
	if !f.from.IsZero() && r.time < f.from.UnixNano() || !f.meets(r) {
		return false
	}
	return !slices.ContainsFunc(f.not, func(c criteria) bool { return c.meets(r) })
}

func (c *criteria) meets(r *record) bool {
	return (c.namespaces == nil || c.isInNamespace(r.from.pod) || c.isInNamespace(r.to.pod)) &&
		(c.podName == "" || c.isPod(r.from.pod) || c.isPod(r.to.pod)) &&
		(c.labels == nil || c.hasLabels(r.from.pod) || c.hasLabels(r.to.pod)) &&
		(c.name == "" || slices.ContainsFunc(r.names, c.isName) || c.isName(r.requestedName())) &&
		(c.direction == "" || r.direction() == c.direction) &&
		(c.policy == "" || c.isPolicy(r.egress) || c.isPolicy(r.ingress)) &&
		(c.verdicts == nil || slices.Contains(c.verdicts, r.verdict.String())) &&
		(c.reasons == nil || slices.Contains(c.reasons, r.dropReason().String())) &&
		(c.protocol == 0 || model.Protocol(r.protocol) == c.protocol) &&
		(c.requests == "" || r.isRequest(c.requests)) &&
		(c.port == 0 || c.isPort(r))
}

func (c *criteria) isInNamespace(p *Pod) bool {
	return p != nil && slices.Contains(c.namespaces, p.Namespace)
}

func (c *criteria) isPod(p *Pod) bool {
	return p != nil && p.Name == c.podName && p.Namespace == c.podNamespace
}

func (c *criteria) hasLabels(p *Pod) bool { return p != nil && c.labels.Matches(labels.Set(p.Labels)) }

func (c *criteria) isName(name string) bool {
	if name == "" {
		return false
	}
	if suffix, ok := strings.CutPrefix(c.name, "*"); ok {
		return strings.HasSuffix(strings.ToLower(name), suffix)
	}
	return strings.EqualFold(name, c.name)
}

func (c *criteria) isPolicy(d engine.Decision) bool {
	if d.Rule == nil {
		return false
	}
	id := d.Rule.Policy
	return c.policy == id.Name || c.policy == id.Namespace+"/"+id.Name
}

// isPort holds the port against the destination's, and the Service's.
func (c *criteria) isPort(r *record) bool {
	return model.Protocol(r.protocol).HasPorts() && (r.to.Port() == c.port || r.service.Port() == c.port)
}
