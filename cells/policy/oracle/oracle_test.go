package oracle_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/oracle"
)

var (
	seed  = flag.Uint64("seed", 0, "seed of the random cases; 0: another one in each run")
	cases = flag.Int("cases", 20_000, "number of connections that are compared")
)

func TestEngineAgainstOracle(t *testing.T) {
	first := *seed
	if first == 0 {
		first = rand.Uint64()
	}
	t.Logf("-seed=%d", first)
	seen := newCounts()
	for done, n := 0, uint64(0); done < *cases && !t.Failed(); n++ {
		done += compare(t, first+n, seen)
	}
	for reason := engine.ReasonRule; reason <= engine.ReasonLayer7Conflict; reason++ {
		if seen.reasons[reason] < *cases/2000 {
			t.Errorf("-seed=%d: %d cases with reason %q: too few", first, seen.reasons[reason], reason)
		}
	}
	if seen.layer7 < *cases/200 || seen.united < *cases/1000 {
		t.Errorf("-seed=%d: %d decisions with layer 7 rules, %d of them of several rules: too few", first, seen.layer7, seen.united)
	}
	if seen.domains < *cases/1000 {
		t.Errorf("-seed=%d: %d decisions by names: too few", first, seen.domains)
	}
	if seen.audited < *cases/100 {
		t.Errorf("-seed=%d: %d decisions that would be denied without audit: too few", first, seen.audited)
	}
}

func FuzzEngineAgainstOracle(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { compare(t, seed, newCounts()) })
}

// counts says how much of what matters was among the random cases.
type counts struct {
	reasons map[engine.Reason]int
	audited int // decisions that would be denied without audit
	domains int // decisions by a rule that has only names as peers, and matches
	layer7  int // decisions with layer 7 rules
	united  int // of these, with other rules than any single rule of a policy has
}

func newCounts() *counts { return &counts{reasons: map[engine.Reason]int{}} }

func (c *counts) countLayer7(world oracle.World, d engine.Decision) {
	if d.Layer7 == nil {
		return
	}
	c.layer7++
	text := oracle.Layer7Text(d.Layer7.Rules)
	for _, p := range world.Policies {
		for _, part := range []*model.Rules{p.Egress, p.Ingress} {
			if part != nil && slices.ContainsFunc(*part, func(r model.Rule) bool { return r.Layer7 != nil && oracle.Layer7Text(*r.Layer7) == text }) {
				return
			}
		}
	}
	c.united++
}

func (c *counts) countDomains(world oracle.World, d engine.Decision) {
	if d.Rule == nil || d.Rule.Index < 0 || d.Rule.Direction == model.Ingress {
		return
	}
	for _, p := range world.Policies {
		if p.ID == d.Rule.Policy && !slices.ContainsFunc((*p.Egress)[d.Rule.Index].Peers, func(peer model.Peer) bool { return peer.Domain == (model.DNSRule{}) }) {
			c.domains++
		}
	}
}

// compare applies some updates and asks about connections after each. It returns how many, and counts the reasons.
func compare(t *testing.T, seed uint64, seen *counts) int {
	r := oracle.NewRandom(seed)
	world := oracle.World{Names: map[string][]netip.Addr{}, HostPolicy: r.IntN(4) == 0, Audit: r.IntN(8) == 0, AllowUnmanaged: r.IntN(2) == 0}
	e := engine.New(engine.Config{HostPolicy: world.HostPolicy, Audit: world.Audit, AllowUnmanaged: world.AllowUnmanaged})
	all := engine.New(engine.Config{HostPolicy: world.HostPolicy, AllowUnmanaged: world.AllowUnmanaged}) // in which nothing is in audit
	d := newDatapath(e)
	asked := 0
	var history []model.Endpoint
	told := map[model.DNSRule][]netip.Addr{}
	for range 1 + r.IntN(8) {
		u := update(r, &world, &history)
		u.Domains = tellDomains(world, told)
		if err := d.follow(e.Apply(u)); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		all.Apply(withoutAudit(u))
		for range 20 {
			asked++
			c := r.Connection(world)
			if fault := cmp.Or(disagreement(world, e, d, c, seen), auditDisagreement(world, e, all, c, seen)); fault != "" {
				t.Errorf("-seed=%d: %s\n%s", seed, fault, describe(world))
				return asked
			}
		}
	}
	return asked
}

func disagreement(world oracle.World, e *engine.Engine, d *datapath, c oracle.Connection, seen *counts) string {
	egress, ingress := world.Evaluate(c)
	decision := e.Evaluate(c.From, c.To, c.Protocol, c.Port)
	what := fmt.Sprintf("%s -> %s %s %d", c.From, c.To, c.Protocol, c.Port)
	if decision.Allowed != (egress.Allowed && ingress.Allowed) {
		return what + ": the verdict is not that of both directions"
	}
	for _, side := range []struct {
		direction     model.Direction
		subject, peer netip.Addr
		want          oracle.Answer
		got           engine.Decision
	}{{model.Egress, c.From, c.To, egress, decision.Egress}, {model.Ingress, c.To, c.From, ingress, decision.Ingress}} {
		seen.reasons[side.got.Reason]++
		seen.countLayer7(world, side.got)
		seen.countDomains(world, side.got)
		if !same(side.want, side.got) {
			return fmt.Sprintf("%s, %s: the oracle says %+v, the engine %s", what, side.direction, side.want, side.got)
		}
		if side.got.Layer7 != nil && d.isLocal(side.subject) && !slices.Contains(e.Layer7(), side.got.Layer7) {
			return fmt.Sprintf("%s, %s: the engine has no number for %s", what, side.direction, side.got)
		}
		if got, has := d.decide(side.subject, side.peer, side.direction, c); has && got != side.got {
			return fmt.Sprintf("%s, %s: the oracle says %+v, the rows say %s", what, side.direction, side.want, got)
		}
	}
	return ""
}

// auditDisagreement compares what the engine says that would be if nothing was in audit.
func auditDisagreement(world oracle.World, e, all *engine.Engine, c oracle.Connection, seen *counts) string {
	egress, ingress := world.WithoutAudit().Evaluate(c)
	got, other := e.Evaluate(c.From, c.To, c.Protocol, c.Port), all.Evaluate(c.From, c.To, c.Protocol, c.Port)
	for _, side := range []struct {
		direction model.Direction
		want      oracle.Answer
		inForce   engine.Decision
		audit     *engine.Decision
		other     engine.Decision
	}{{model.Egress, egress, got.Egress, got.AuditEgress, other.Egress}, {model.Ingress, ingress, got.Ingress, got.AuditIngress, other.Ingress}} {
		would := side.inForce
		if side.audit != nil {
			would = *side.audit
		}
		if !would.Allowed && side.inForce.Allowed {
			seen.audited++
		}
		if !same(side.want, would) || would.String() != side.other.String() || side.audit != nil && *side.audit == side.inForce {
			return fmt.Sprintf("%s -> %s %s %d, %s without audit: the oracle says %+v, the engine %s, an engine without audit %s", c.From, c.To, c.Protocol, c.Port,
				side.direction, side.want, would, side.other)
		}
	}
	return ""
}

func withoutAudit(u engine.Update) engine.Update {
	u.SetPolicies, u.SetEndpoints = slices.Clone(u.SetPolicies), slices.Clone(u.SetEndpoints)
	for i := range u.SetPolicies {
		u.SetPolicies[i].Audit = false
	}
	for i := range u.SetEndpoints {
		u.SetEndpoints[i].Audit = false
	}
	return u
}

func same(want oracle.Answer, got engine.Decision) bool {
	if got.Rule == nil {
		return got.Layer7 == nil && want.Allowed == got.Allowed && want.Policy == model.PolicyID{}
	}
	answer := oracle.Answer{Allowed: got.Allowed, Policy: got.Rule.Policy, Rule: got.Rule.Index}
	if got.Layer7 != nil {
		answer.Layer7 = oracle.Layer7Text(got.Layer7.Rules)
	}
	return want == answer
}

// update makes random changes to the world, and returns them. Endpoints that were there come back, some with one
// change.
func update(r oracle.Random, w *oracle.World, history *[]model.Endpoint) engine.Update {
	var u engine.Update
	for range r.IntN(3) {
		if len(w.Policies) > 0 {
			i := r.IntN(len(w.Policies))
			u.RemovePolicies = append(u.RemovePolicies, w.Policies[i].ID)
			w.Policies = slices.Delete(w.Policies, i, i+1)
		}
		if len(w.Endpoints) > 0 {
			i := r.IntN(len(w.Endpoints))
			u.RemoveEndpoints = append(u.RemoveEndpoints, w.Endpoints[i].Key)
			w.Endpoints = slices.Delete(w.Endpoints, i, i+1)
		}
	}
	for _, cidr := range r.Unmanaged() {
		if i := slices.Index(w.Unmanaged, cidr); i >= 0 {
			u.RemoveUnmanaged = append(u.RemoveUnmanaged, cidr)
			w.Unmanaged = slices.Delete(w.Unmanaged, i, i+1)
		} else {
			u.SetUnmanaged = append(u.SetUnmanaged, cidr)
			w.Unmanaged = append(w.Unmanaged, cidr)
		}
	}
	for range r.IntN(4) {
		r.Names(w.Names)
	}
	for range r.IntN(6) {
		p := r.Policy()
		u.SetPolicies = append(u.SetPolicies, p)
		w.Policies = slices.DeleteFunc(w.Policies, func(old model.Policy) bool { return old.ID == p.ID })
		w.Policies = append(w.Policies, p)
	}
	for range r.IntN(8) {
		ep := r.Endpoint()
		if len(*history) > 0 && r.IntN(3) == 0 {
			changed := ep
			ep = (*history)[r.IntN(len(*history))]
			switch r.IntN(5) {
			case 0:
				ep.NamedPorts = changed.NamedPorts
			case 1:
				ep.Labels = changed.Labels
			case 2:
				ep.Addresses = changed.Addresses
			case 3:
				ep.Audit = !ep.Audit
			}
		}
		*history = append(*history, ep)
		setEndpoint(w, &u, ep)
	}
	return u
}

// tellDomains returns how the addresses of the rules that policies have now differ from what was told, which it
// changes.
func tellDomains(w oracle.World, told map[model.DNSRule][]netip.Addr) (changes []engine.DomainChange) {
	for _, rule := range oracle.Domains() {
		if !usesDomain(w, rule) {
			delete(told, rule) // so does the engine
			continue
		}
		var now []netip.Addr
		for name, addresses := range w.Names {
			if oracle.NameMatches(rule, name) {
				now = append(now, addresses...)
			}
		}
		slices.SortFunc(now, netip.Addr.Compare)
		now = slices.Compact(now)
		changes = append(changes, engine.DomainChange{Rule: rule, Add: without(now, told[rule]), Remove: without(told[rule], now)})
		told[rule] = now
	}
	return changes
}

func usesDomain(w oracle.World, rule model.DNSRule) bool {
	return slices.ContainsFunc(w.Policies, func(p model.Policy) bool {
		return p.Egress != nil && slices.ContainsFunc(*p.Egress, func(r model.Rule) bool {
			return slices.ContainsFunc(r.Peers, func(peer model.Peer) bool { return peer.Domain == rule })
		})
	})
}

func without(list, others []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool { return slices.Contains(others, a) })
}

// setEndpoint takes the endpoint's addresses from all others, as the engine has one owner of an address.
func setEndpoint(w *oracle.World, u *engine.Update, ep model.Endpoint) {
	u.SetEndpoints = append(u.SetEndpoints, ep)
	w.Endpoints = slices.DeleteFunc(w.Endpoints, func(old model.Endpoint) bool { return old.Key == ep.Key })
	for i, old := range w.Endpoints {
		w.Endpoints[i].Addresses = slices.DeleteFunc(slices.Clone(old.Addresses), func(a netip.Addr) bool { return slices.Contains(ep.Addresses, a) })
	}
	w.Endpoints = append(w.Endpoints, ep)
}

func describe(w oracle.World) string {
	text := fmt.Sprintf("host policy: %v, audit: %v, unmanaged %v allowed: %v\n", w.HostPolicy, w.Audit, w.Unmanaged, w.AllowUnmanaged)
	text += fmt.Sprintf("names: %v\n", w.Names)
	for _, ep := range w.Endpoints {
		text += fmt.Sprintf("%+v\n", ep)
	}
	for _, p := range w.Policies {
		text += fmt.Sprintf("%s %s %d audit %v subject %+v\n", p.ID, p.Tier, p.Priority, p.Audit, p.Subject)
		for _, d := range []model.Direction{model.Egress, model.Ingress} {
			if p.Part(d) == nil {
				continue
			}
			text += fmt.Sprintf("  %s:\n", d)
			for _, r := range *p.Part(d) {
				text += fmt.Sprintf("    %s ports %+v layer 7 %+v\n", r.Action, r.Ports, r.Layer7)
				for _, peer := range r.Peers {
					text += fmt.Sprintf("      any %v pods %+v block %+v nodes %+v domain %+v\n", peer.Any, peer.Pods, peer.Block, peer.Nodes, peer.Domain)
				}
			}
		}
	}
	return text
}
