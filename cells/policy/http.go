package policy

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"
	"go.uber.org/fx"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/manifest"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// routes are the calls on /v1/policy.
type routes struct {
	fx.In

	Policies  *Policies
	Endpoints endpointmanager.Lookup
	Flows     Flows // nil for none
}

func newRoutes(r routes) routes { return r }

// Mount implements server.Routes.
func (s routes) Mount(r chi.Router) {
	r.Method(http.MethodGet, "/v1/policy", httpx.Handler(s.list))
	r.Method(http.MethodPut, "/v1/policy", httpx.Handler(s.put))
	r.Method(http.MethodGet, "/v1/policy/explain", httpx.Handler(s.explain))
	r.Method(http.MethodPost, "/v1/policy/diff", httpx.Handler(s.diff))
	for _, path := range []string{"/v1/policy/{kind}/{name}", "/v1/policy/{kind}/{namespace}/{name}"} {
		r.Method(http.MethodGet, path, httpx.Handler(s.get))
		r.Method(http.MethodDelete, path, httpx.Handler(s.delete))
	}
}

func (s routes) list(w http.ResponseWriter, _ *http.Request) error {
	reports := s.Policies.Reports()
	list := []v1.Policy{} // an empty list is [] and not null
	for _, m := range s.Policies.List() {
		one := s.toV1(m, reports)
		one.Manifest = nil
		list = append(list, one)
	}
	return httpx.JSON(w, http.StatusOK, list)
}

func (s routes) get(w http.ResponseWriter, r *http.Request) error {
	id, err := policyIn(r)
	if err != nil {
		return err
	}
	m, ok := s.Policies.Get(id)
	if !ok {
		return fmt.Errorf("%s: %w", id, ErrNotFound)
	}
	return httpx.JSON(w, http.StatusOK, s.toV1(m, s.Policies.Reports()))
}

func (s routes) put(w http.ResponseWriter, r *http.Request) error {
	data, err := manifestsIn(w, r)
	if err != nil {
		return err
	}
	put := s.Policies.Put
	dryRun := r.URL.Query().Get("dryRun")
	switch dryRun {
	case "", "false":
	case "true":
		put = s.Policies.Check
	default:
		return fault.New(fault.Invalid, fmt.Sprintf("dryRun=%q: want true or false", dryRun))
	}
	given, outcomes, err := put(r.Context(), data)
	if err != nil {
		return err
	}
	reports := s.Policies.Reports()
	list := []v1.Policy{}
	for i, m := range given {
		one := policyToV1(m, nil)
		one.Source = SourceFile
		if dryRun != "true" {
			one = s.toV1(m, reports)
			selects := false
			if s.Policies.view.read(func(e *engine.Engine) {
				selects = slices.ContainsFunc(m.Policy.Parts(), func(p model.Policy) bool { return e.Selects(p.ID) })
			}); !selects {
				one.Reports = append(one.Reports, "selects no pod of this node")
			}
		}
		one.Manifest, one.Outcome = nil, string(outcomes[i])
		list = append(list, one)
	}
	return httpx.JSON(w, http.StatusOK, list)
}

func manifestsIn(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, httpx.MaxBody))
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, fault.New(fault.TooLarge, fmt.Sprintf("read body: larger than %d bytes: put the policies in several calls", tooLarge.Limit))
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, fmt.Errorf("read body: %w", err))
	}
	return data, nil
}

// maxChanges bounds the list in the answer of POST /v1/policy/diff.
const maxChanges = 1000

func (s routes) diff(w http.ResponseWriter, r *http.Request) error {
	data, err := manifestsIn(w, r)
	if err != nil {
		return err
	}
	var remove []model.PolicyID
	for _, text := range r.URL.Query()["delete"] {
		parts := strings.Split(text, "/")
		if len(parts) == 2 {
			parts = slices.Insert(parts, 1, "") // no namespace
		}
		if len(parts) != 3 {
			return fault.New(fault.Invalid, fmt.Sprintf("delete %.64q: want KIND/NAMESPACE/NAME, or KIND/NAME", text))
		}
		id, err := policyID(parts[0], parts[1], parts[2])
		if err != nil {
			return err
		}
		remove = append(remove, id)
	}
	d, err := s.Policies.Diff(r.Context(), s.Endpoints, s.Flows, data, remove)
	if err != nil {
		return err
	}
	answer := v1.PolicyDiff{Flows: d.Flows, Since: d.Since, Changed: len(d.Changes), Changes: []v1.PolicyFlowChange{}}
	for _, c := range d.Changes[:min(len(d.Changes), maxChanges)] {
		answer.Changes = append(answer.Changes, v1.PolicyFlowChange{
			From: endToV1(c.Now.From, c.FromEndpoint), To: endToV1(c.Now.To, c.ToEndpoint), Protocol: c.Protocol.String(), Port: c.Port, Count: c.Count, LastSeen: c.LastSeen,
			Now: verdictToV1(c.Now), Then: verdictToV1(c.Then),
		})
	}
	return httpx.JSON(w, http.StatusOK, answer)
}

func verdictToV1(v engine.Verdict) v1.PolicyVerdict {
	return v1.PolicyVerdict{Allowed: v.Allowed, Egress: DecisionToV1(v.Egress), Ingress: DecisionToV1(v.Ingress)}
}

func (s routes) delete(w http.ResponseWriter, r *http.Request) error {
	id, err := policyIn(r)
	if err != nil {
		return err
	}
	if err := s.Policies.Delete(r.Context(), id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// policyIn reads the policy that the path names.
func policyIn(r *http.Request) (model.PolicyID, error) {
	kind, kindErr := httpx.Param(r, "kind")
	namespace, namespaceErr := httpx.Param(r, "namespace")
	name, nameErr := httpx.Param(r, "name")
	if err := cmp.Or(kindErr, namespaceErr, nameErr); err != nil {
		return model.PolicyID{}, err
	}
	return policyID(kind, namespace, name)
}

// policyID is a policy by the names that a caller gives. The case of the kind does not matter.
func policyID(kind, namespace, name string) (model.PolicyID, error) {
	id := model.PolicyID{Namespace: namespace, Name: name}
	for _, known := range model.Kinds() {
		if strings.EqualFold(kind, known) {
			id.Kind = known
		}
	}
	if id.Kind == "" {
		return id, fault.New(fault.Invalid, fmt.Sprintf("kind %.64q: want %s", kind, strings.Join(model.Kinds(), ", ")))
	}
	switch namespaced := model.Namespaced(id.Kind); {
	case namespaced && id.Namespace == "":
		return id, fault.New(fault.Invalid, fmt.Sprintf("policy %.64s %.64s: a %s has a namespace", id.Kind, id.Name, id.Kind))
	case !namespaced && id.Namespace != "":
		return id, fault.New(fault.Invalid, fmt.Sprintf("policy %.64s %.64s: a %s has no namespace", id.Kind, id.Name, id.Kind))
	}
	return id, nil
}

func (s routes) explain(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	protocol, port, err := portIn(query.Get("protocol"), query.Get("port"))
	if err != nil {
		return err
	}
	x, err := s.Policies.Explain(r.Context(), s.Endpoints, query.Get("from"), query.Get("to"), protocol, port)
	if err != nil {
		return err
	}
	from, to := endToV1(x.From, x.FromEndpoint), endToV1(x.To, x.ToEndpoint)
	from.Names, to.Names = x.FromNames, x.ToNames
	answer := v1.PolicyExplanation{
		From: from, To: to, Protocol: protocol.String(), Port: port,
		Allowed: x.Allowed, Egress: DecisionToV1(x.Egress), Ingress: DecisionToV1(x.Ingress),
		Datapath: datapathToV1(x),
	}
	if x.Proxy != nil {
		answer.ProxyError = x.Proxy.Error()
	}
	if x.AuditEgress != nil {
		answer.AuditEgress = new(DecisionToV1(*x.AuditEgress))
	}
	if x.AuditIngress != nil {
		answer.AuditIngress = new(DecisionToV1(*x.AuditIngress))
	}
	if applied := s.Policies.view.Applied(); applied.Err != nil {
		answer.Error = applied.Err.Error()
	} else if applied.Withheld != nil {
		answer.Error = withheldText(applied.Withheld)
	}
	return httpx.JSON(w, http.StatusOK, answer)
}

// portIn reads protocol and port: TCP when there is none, and a port for the protocols that have some.
func portIn(protocolText, portText string) (protocol model.Protocol, port uint16, err error) {
	protocol = model.TCP
	if protocolText != "" {
		if protocol, err = model.ParseProtocol(protocolText); err != nil {
			return 0, 0, fault.Wrap(fault.Invalid, err)
		}
	}
	if !protocol.HasPorts() {
		if portText != "" {
			return 0, 0, fault.New(fault.Invalid, fmt.Sprintf("port %.32q: %s has no ports", portText, protocol))
		}
		return protocol, 0, nil
	}
	if portText == "" {
		return 0, 0, fault.New(fault.Invalid, fmt.Sprintf("port is missing: %s takes one", protocol))
	}
	number, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || number == 0 {
		return 0, 0, fault.New(fault.Invalid, fmt.Sprintf("port %.32q: want a number from 1 to 65535", portText))
	}
	return protocol, uint16(number), nil
}

// toV1 is the policy as the API shows it.
func (s routes) toV1(m manifest.Manifest, reports []engine.Report) v1.Policy {
	one := policyToV1(m, reports)
	_, byHand := s.Policies.file(m.Policy.ID)
	one.Source = SourceFile
	if o, ok := s.Policies.object(m.Policy.ID); ok {
		if !byHand {
			one.Source = SourceKubernetes
		}
		one.Reports = append(one.Reports, o.texts(byHand)...)
	}
	one.Reports = append(one.Reports, s.Policies.references.problems(m.Policy)...)
	one.Reports = append(one.Reports, s.Policies.gaveUpTexts(m.Policy)...)
	return one
}

func policyToV1(m manifest.Manifest, reports []engine.Report) v1.Policy {
	p := m.Policy
	out := v1.Policy{
		Kind: p.ID.Kind, Namespace: p.ID.Namespace, Name: p.ID.Name, Tier: p.Tier.String(), Priority: p.Priority,
		Egress: ruleCount(p, model.Egress), Ingress: ruleCount(p, model.Ingress), Audit: p.Audit, Manifest: m.JSON,
	}
	for _, r := range reports {
		for _, id := range r.Policies {
			if id.Part = 0; id == p.ID {
				out.Reports = append(out.Reports, r.Text)
			}
		}
	}
	return out
}

// ruleCount is -1 if no specification affects the direction.
func ruleCount(p model.Policy, d model.Direction) int {
	count := -1
	for _, part := range p.Parts() {
		if rules := part.Part(d); rules != nil {
			count = max(count, 0) + len(*rules)
		}
	}
	return count
}

func endToV1(end engine.End, ep endpoint.Endpoint) v1.PolicyEnd {
	out := v1.PolicyEnd{Address: end.Address, Kind: end.Kind.String(), Pod: v1.Pod{Namespace: ep.Spec.Pod.Namespace, Name: ep.Spec.Pod.Name}, Endpoint: ep.ID}
	if ep.ID == 0 && end.Name != "" {
		out.Pod = v1.Pod{Namespace: end.Namespace, Name: end.Name}
	}
	out.Held = ep.State == endpoint.Held
	return out
}

// maxLayer7 bounds the list in each decision.
const maxLayer7 = 20

// DecisionToV1 is the decision as the API shows it.
func DecisionToV1(d engine.Decision) v1.PolicyDecision {
	out := v1.PolicyDecision{Allowed: d.Allowed, Reason: d.Reason.String()}
	if d.Layer7 != nil {
		out.Layer7 = d.Layer7.Rules.Texts(maxLayer7)
	}
	if d.Rule != nil {
		out.Rule = new(ruleToV1(*d.Rule))
	}
	for _, r := range d.Passed {
		if r != nil {
			out.Passed = append(out.Passed, ruleToV1(*r))
		}
	}
	return out
}

func datapathToV1(x Explanation) v1.PolicyDatapath {
	d := v1.PolicyDatapath{
		Egress: allows(x.Datapath.Egress), Ingress: allows(x.Datapath.Ingress),
		Differs: differs(x.Datapath.Egress, x.Egress) || differs(x.Datapath.Ingress, x.Ingress),
	}
	if x.Datapath.NotAsked != nil {
		d.NotAsked = x.Datapath.NotAsked.Error()
	}
	return d
}

func allows(kernel *uint32) *bool {
	if kernel == nil {
		return nil
	}
	return new(*kernel != engine.ValueDeny)
}

// differs is also of an end that is denied because the proxy does not have its layer 7 rules.
func differs(kernel *uint32, d engine.Decision) bool {
	want := engine.ValueDeny
	switch {
	case d.Allowed && d.Layer7 != nil:
		want = d.Layer7.Number
	case d.Allowed:
		want = engine.ValueAllow
	}
	return kernel != nil && *kernel != want
}

func ruleToV1(r engine.Rule) v1.PolicyRule {
	return v1.PolicyRule{
		Kind: r.Policy.Kind, Namespace: r.Policy.Namespace, Policy: r.Policy.Name, Direction: r.Direction.String(), Index: r.Index, Name: r.Name,
	}
}
