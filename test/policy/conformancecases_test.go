package policy

import (
	"fmt"
	"slices"
)

// gress is one direction of a conformance case: the rules of a policy for pods of subject, and the ports of each
// protocol that they name. Pods of accepted are accepted before they are denied (and passed on). Pods of slytherin are
// denied at one port. Pods of limited are accepted at one port, and denied at others.
type gress struct {
	egress                     bool
	subject, accepted, limited string // houses
	ports                      []gressPorts
}

type gressPorts struct {
	protocol                 string
	slytherinPort, limitPort uint16
}

// Each protocol has two ports that pods listen on, and the name of one of them.
var (
	otherPort = map[uint16]uint16{80: 8080, 8080: 80, 53: 5353, 5353: 53, 9003: 9005, 9005: 9003}
	portNames = map[string]struct {
		name string
		port uint16
	}{"tcp": {"web", 80}, "udp": {"dns", 53}}
)

// conformanceCases have one direction, or both.
var conformanceCases = [][]gress{
	{{true, "gryffindor", "ravenclaw", "hufflepuff", []gressPorts{{"tcp", 80, 8080}}}},
	{{true, "hufflepuff", "ravenclaw", "gryffindor", []gressPorts{{"udp", 5353, 53}}}},
	{{true, "ravenclaw", "gryffindor", "hufflepuff", []gressPorts{{"sctp", 9003, 9003}}}},
	{{false, "gryffindor", "ravenclaw", "hufflepuff", []gressPorts{{"tcp", 80, 80}}}},
	{{false, "hufflepuff", "ravenclaw", "gryffindor", []gressPorts{{"udp", 5353, 53}}}},
	{{false, "ravenclaw", "gryffindor", "hufflepuff", []gressPorts{{"sctp", 9003, 9003}}}},
	{
		{true, "gryffindor", "ravenclaw", "hufflepuff", []gressPorts{{"tcp", 80, 8080}, {"udp", 53, 5353}, {"sctp", 9003, 9003}}},
		{false, "gryffindor", "ravenclaw", "hufflepuff", []gressPorts{{"tcp", 80, 80}, {"udp", 53, 5353}, {"sctp", 9003, 9003}}},
	},
}

func caseName(directions []gress) (name string) {
	for _, g := range directions {
		name += map[bool]string{true: "egress ", false: "ingress "}[g.egress]
	}
	for _, p := range directions[0].ports {
		name += p.protocol + " "
	}
	return name
}

// steps returns the steps of a case in a tier.
func (t tier) steps(directions []gress) (steps []step) {
	t.name, t.subject = "case", named(directions[0].subject)
	add := func(name string, namedPorts bool, swaps []int, probes func(g gress, p gressPorts) []probe) {
		s := step{name: fmt.Sprintf("%s: %s%s", t.title(), caseName(directions), name)}
		var egress, ingress []rule
		for _, g := range directions {
			rules := swapped(g.rules(t.baseline, namedPorts), swaps...)
			if g.egress {
				egress = rules
			} else {
				ingress = rules
			}
			for _, p := range g.ports {
				s.probes = append(s.probes, probes(g, p)...)
			}
		}
		s.policies = t.both(egress, ingress)
		steps = append(steps, s)
	}
	add("accepted before denied", false, nil, func(g gress, p gressPorts) []probe {
		return g.probes(g.accepted, 0, p.protocol, p.limitPort, allowed, allowed)
	})
	add("accepted at one port", false, nil, func(g gress, p gressPorts) []probe {
		return g.probes(g.limited, 1, p.protocol, p.limitPort, allowed, g.denied())
	})
	add("accepted at a named port", true, nil, func(g gress, p gressPorts) []probe {
		port, ok := portNames[p.protocol]
		if !ok {
			return nil
		}
		return g.probes(g.limited, 1, p.protocol, port.port, allowed, g.denied())
	})
	add("denied before accepted", false, []int{0, 1}, func(g gress, p gressPorts) []probe {
		return g.probes(g.accepted, 1, p.protocol, p.limitPort, g.denied(), g.denied())
	})
	add("denied at one port", false, []int{0, 1}, func(g gress, p gressPorts) []probe {
		return g.probes("slytherin", 0, p.protocol, p.slytherinPort, g.denied(), allowed)
	})
	if t.baseline {
		return steps
	}
	add("passed on before denied", false, []int{0, 2}, func(g gress, p gressPorts) []probe {
		return g.probes(g.accepted, 0, p.protocol, p.limitPort, allowed, allowed)
	})
	add("passed on at one port, before denied", false, []int{0, 2, 3, 4}, func(g gress, p gressPorts) []probe {
		return g.probes("slytherin", 0, p.protocol, p.slytherinPort, allowed, allowed)
	})
	return steps
}

// rules returns seven rules, or five for the tier baseline, which cannot pass on.
func (g gress) rules(baseline, namedPorts bool) []rule {
	var denied, accepted []string
	for _, p := range g.ports {
		denied = append(denied, fmt.Sprintf("%s/%d", p.protocol, p.slytherinPort))
		port := fmt.Sprintf("%s/%d", p.protocol, p.limitPort)
		if name, ok := portNames[p.protocol]; ok && namedPorts {
			port = name.name
		}
		accepted = append(accepted, port)
	}
	all := []rule{
		accept(named(g.accepted)), deny(named(g.accepted)), pass(named(g.accepted)),
		deny(named("slytherin"), denied...), pass(named("slytherin"), denied...),
		accept(named(g.limited), accepted...), deny(named(g.limited)),
	}
	if baseline {
		all = slices.DeleteFunc(all, func(r rule) bool { return r.action == "Pass" })
	}
	return all
}

func (g gress) denied() verdict {
	if g.egress {
		return deniedEgress
	}
	return deniedIngress
}

// probes are one at the port, and one at the protocol's other port, between the subject and the peer's house. The
// server is the pod with that number.
func (g gress) probes(peer string, server int, protocol string, port uint16, want, wantOther verdict) []probe {
	client, house := houseOf[g.subject], houseOf[peer]
	if !g.egress {
		client, house = house, client
	}
	to := fmt.Sprintf("%s-%d", house, server)
	return []probe{
		{client + "-0", to, protocol, port, want},
		{client + "-1", to, protocol, otherPort[port], wantOther},
	}
}

// networkSteps deny all addresses, and accept two of them.
func (w *world) networkSteps(t tier) []step {
	t.name, t.subject = "networks", podsOf("gryffindor")
	rules := []rule{accept(podsOf("slytherin")), deny(networks("0.0.0.0/0", "::/0"))}
	some := append([]rule{accept(networks(w.prefixes("luna-lovegood-0", "cedric-diggory-0")...))}, rules...)
	all := step{name: t.title() + ": networks, all denied", policies: t.egress(rules)}
	accepted := step{name: t.title() + ": networks, two addresses accepted before", policies: t.egress(some)}
	for protocol, port := range map[string]uint16{"tcp": 80, "udp": 53, "sctp": 9003} {
		for _, house := range []string{"luna-lovegood", "cedric-diggory"} {
			all.probes = append(all.probes, probe{"harry-potter-1", house + "-0", protocol, port, deniedEgress})
			accepted.probes = append(accepted.probes, probe{"harry-potter-1", house + "-0", protocol, port, allowed},
				probe{"harry-potter-1", house + "-1", protocol, port, deniedEgress})
		}
		all.probes = append(all.probes, probe{"harry-potter-1", "draco-malfoy-0", protocol, port, allowed})
	}
	return []step{all, accepted}
}
