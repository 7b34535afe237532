package flow

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
)

// filter is which flows a client wants; the zero filter wants all.
type filter struct {
	namespace, pod string
	verdicts       []string
	reasons        []string
	protocol       model.Protocol // 0: any
	port           uint16         // 0: any
	last           int            // only so many of the kept flows; 0: all
}

func parseFilter(query url.Values) (f filter, err error) {
	if text := query.Get("pod"); text != "" {
		var ok bool
		if f.namespace, f.pod, ok = strings.Cut(text, "/"); !ok || f.namespace == "" || f.pod == "" {
			return f, invalid("pod", text, "NAMESPACE/NAME")
		}
	}
	if f.verdicts, err = wordsIn(query, "verdict", v1.FlowVerdicts()); err != nil {
		return f, err
	}
	if f.reasons, err = wordsIn(query, "reason", reasonNames()); err != nil {
		return f, err
	}
	if text := query.Get("protocol"); text != "" {
		if f.protocol, err = model.ParseProtocol(text); err != nil {
			return f, fault.Wrap(fault.Invalid, err)
		}
	}
	if text := query.Get("port"); text != "" {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return f, invalid("port", text, "a number from 1 to 65535")
		}
		f.port = uint16(port)
	}
	if text := query.Get("last"); text != "" {
		if f.last, err = strconv.Atoi(text); err != nil || f.last < 1 {
			return f, invalid("last", text, "a number from 1 on")
		}
	}
	return f, nil
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

func reasonNames() (names []string) {
	for _, reason := range abi.DropReasons() {
		names = append(names, reason.String())
	}
	return names
}

func invalid(name, value, want string) error {
	return fault.New(fault.Invalid, fmt.Sprintf("%s=%.64q: want %s", name, value, want))
}

// wants is true for what says how much was lost, too.
func (f *filter) wants(r *record) bool {
	return r.lost > 0 ||
		(f.pod == "" || f.isPod(r.from.pod) || f.isPod(r.to.pod)) &&
			(f.verdicts == nil || slices.Contains(f.verdicts, r.verdict.String())) &&
			(f.reasons == nil || slices.Contains(f.reasons, r.dropReason().String())) &&
			(f.protocol == 0 || model.Protocol(r.protocol) == f.protocol) &&
			(f.port == 0 || f.isPort(r))
}

func (f *filter) isPod(p *Pod) bool { return p != nil && p.Name == f.pod && p.Namespace == f.namespace }

// isPort holds the port against the destination's, and the Service's.
func (f *filter) isPort(r *record) bool {
	return model.Protocol(r.protocol).HasPorts() && (r.to.Port() == f.port || r.service.Port() == f.port)
}
