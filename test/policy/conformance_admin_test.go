package policy

func adminEgressTCP(f form) []step {
	p := tier{form: f, name: "egress-tcp", priority: 6, subject: named("gryffindor")}
	rules := []rule{
		accept(named("ravenclaw")), deny(named("ravenclaw")), pass(named("ravenclaw")),
		deny(named("slytherin"), "tcp/80"), pass(named("slytherin"), "tcp/80"),
		accept(named("hufflepuff"), "tcp/8080"), deny(named("hufflepuff")),
	}
	return []step{
		{"admin, egress, TCP: in order: accepted, then denied, then passed on", p.egress(rules), []probe{
			{"harry-potter-0", "luna-lovegood-0", "tcp", 80, allowed},
			{"harry-potter-1", "luna-lovegood-0", "tcp", 8080, allowed},
		}},
		{"admin, egress, TCP: accepted at a port alone", p.egress(rules), []probe{
			{"harry-potter-0", "cedric-diggory-1", "tcp", 8080, allowed},
			{"harry-potter-1", "cedric-diggory-1", "tcp", 80, deniedEgress},
		}},
		{"admin, egress, TCP: denied before accepted", p.egress(swapped(rules, 0, 1)), []probe{
			{"harry-potter-0", "luna-lovegood-1", "tcp", 80, deniedEgress},
			{"harry-potter-1", "luna-lovegood-1", "tcp", 8080, deniedEgress},
		}},
		{"admin, egress, TCP: denied at a port alone", p.egress(swapped(rules, 0, 1)), []probe{
			{"harry-potter-0", "draco-malfoy-0", "tcp", 80, deniedEgress},
			{"harry-potter-1", "draco-malfoy-0", "tcp", 8080, allowed},
		}},
		{"admin, egress, TCP: passed on before accepted and denied", p.egress(swapped(rules, 0, 1, 0, 2)), []probe{
			{"harry-potter-0", "luna-lovegood-0", "tcp", 80, allowed},
			{"harry-potter-1", "luna-lovegood-0", "tcp", 8080, allowed},
		}},
		{"admin, egress, TCP: passed on at a port, before denied", p.egress(swapped(rules, 0, 1, 0, 2, 3, 4)), []probe{
			{"harry-potter-0", "draco-malfoy-0", "tcp", 80, allowed},
			{"harry-potter-1", "draco-malfoy-0", "tcp", 8080, allowed},
		}},
		{"admin, egress, TCP: a named port", p.egress(withPorts(rules, 5, "web")), []probe{
			{"harry-potter-0", "cedric-diggory-1", "tcp", 80, allowed},
			{"harry-potter-1", "cedric-diggory-1", "tcp", 8080, deniedEgress},
		}},
	}
}

func adminEgressUDP(f form) []step {
	p := tier{form: f, name: "egress-udp", priority: 7, subject: named("hufflepuff")}
	rules := []rule{
		accept(named("ravenclaw")), deny(named("ravenclaw")), pass(named("ravenclaw")),
		deny(named("slytherin"), "udp/5353"), pass(named("slytherin"), "udp/5353"),
		accept(named("gryffindor"), "udp/53"), deny(named("gryffindor")),
	}
	return []step{
		{"admin, egress, UDP: in order: accepted, then denied, then passed on", p.egress(rules), []probe{
			{"cedric-diggory-0", "luna-lovegood-0", "udp", 53, allowed},
			{"cedric-diggory-1", "luna-lovegood-0", "udp", 5353, allowed},
		}},
		{"admin, egress, UDP: accepted at a port alone", p.egress(rules), []probe{
			{"cedric-diggory-0", "harry-potter-1", "udp", 53, allowed},
			{"cedric-diggory-1", "harry-potter-1", "udp", 5353, deniedEgress},
		}},
		{"admin, egress, UDP: denied before accepted", p.egress(swapped(rules, 0, 1)), []probe{
			{"cedric-diggory-0", "luna-lovegood-1", "udp", 53, deniedEgress},
			{"cedric-diggory-1", "luna-lovegood-1", "udp", 5353, deniedEgress},
		}},
		{"admin, egress, UDP: denied at a port alone", p.egress(swapped(rules, 0, 1)), []probe{
			{"cedric-diggory-0", "draco-malfoy-0", "udp", 5353, deniedEgress},
			{"cedric-diggory-1", "draco-malfoy-0", "udp", 53, allowed},
		}},
		{"admin, egress, UDP: passed on before accepted and denied", p.egress(swapped(rules, 0, 1, 0, 2)), []probe{
			{"cedric-diggory-0", "luna-lovegood-1", "udp", 5353, allowed},
			{"cedric-diggory-1", "luna-lovegood-1", "udp", 53, allowed},
		}},
		{"admin, egress, UDP: passed on at a port, before denied", p.egress(swapped(rules, 0, 1, 0, 2, 3, 4)), []probe{
			{"cedric-diggory-0", "draco-malfoy-0", "udp", 5353, allowed},
			{"cedric-diggory-1", "draco-malfoy-0", "udp", 53, allowed},
		}},
	}
}

func adminEgressSCTP(f form) []step {
	p := tier{form: f, name: "egress-sctp", priority: 8, subject: named("ravenclaw")}
	rules := []rule{
		accept(named("gryffindor")), deny(named("gryffindor")), pass(named("gryffindor")),
		deny(named("slytherin"), "sctp/9003"), pass(named("slytherin"), "sctp/9003"),
		accept(named("hufflepuff"), "sctp/9003"), deny(named("hufflepuff")),
	}
	return []step{
		{"admin, egress, SCTP: in order: accepted, then denied, then passed on", p.egress(rules), []probe{
			{"luna-lovegood-0", "harry-potter-0", "sctp", 9003, allowed},
			{"luna-lovegood-1", "harry-potter-0", "sctp", 9005, allowed},
		}},
		{"admin, egress, SCTP: accepted at a port alone", p.egress(rules), []probe{
			{"luna-lovegood-0", "cedric-diggory-1", "sctp", 9003, allowed},
			{"luna-lovegood-1", "cedric-diggory-1", "sctp", 9005, deniedEgress},
		}},
		{"admin, egress, SCTP: denied before accepted", p.egress(swapped(rules, 0, 1)), []probe{
			{"luna-lovegood-0", "harry-potter-1", "sctp", 9003, deniedEgress},
			{"luna-lovegood-1", "harry-potter-1", "sctp", 9005, deniedEgress},
		}},
		{"admin, egress, SCTP: denied at a port alone", p.egress(swapped(rules, 0, 1)), []probe{
			{"luna-lovegood-0", "draco-malfoy-0", "sctp", 9003, deniedEgress},
			{"luna-lovegood-1", "draco-malfoy-0", "sctp", 9005, allowed},
		}},
		{"admin, egress, SCTP: passed on before accepted and denied", p.egress(swapped(rules, 0, 1, 0, 2)), []probe{
			{"luna-lovegood-0", "harry-potter-1", "sctp", 9003, allowed},
			{"luna-lovegood-1", "harry-potter-1", "sctp", 9005, allowed},
		}},
		{"admin, egress, SCTP: passed on at a port, before denied", p.egress(swapped(rules, 0, 1, 0, 2, 3, 4)), []probe{
			{"luna-lovegood-0", "draco-malfoy-0", "sctp", 9003, allowed},
			{"luna-lovegood-1", "draco-malfoy-0", "sctp", 9005, allowed},
		}},
	}
}

func adminIngressTCP(f form) []step {
	p := tier{form: f, name: "ingress-tcp", priority: 3, subject: named("gryffindor")}
	rules := []rule{
		accept(named("ravenclaw")), deny(named("ravenclaw")), pass(named("ravenclaw")),
		deny(named("slytherin"), "tcp/80"), pass(named("slytherin"), "tcp/80"),
		accept(named("hufflepuff"), "tcp/80"), deny(named("hufflepuff")),
	}
	return []step{
		{"admin, ingress, TCP: in order: accepted, then denied, then passed on", p.ingress(rules), []probe{
			{"luna-lovegood-0", "harry-potter-0", "tcp", 80, allowed},
			{"luna-lovegood-1", "harry-potter-0", "tcp", 8080, allowed},
		}},
		{"admin, ingress, TCP: accepted at a port alone", p.ingress(rules), []probe{
			{"cedric-diggory-0", "harry-potter-1", "tcp", 80, allowed},
			{"cedric-diggory-1", "harry-potter-1", "tcp", 8080, deniedIngress},
		}},
		{"admin, ingress, TCP: denied before accepted", p.ingress(swapped(rules, 0, 1)), []probe{
			{"luna-lovegood-0", "harry-potter-1", "tcp", 80, deniedIngress},
			{"luna-lovegood-1", "harry-potter-1", "tcp", 8080, deniedIngress},
		}},
		{"admin, ingress, TCP: denied at a port alone", p.ingress(swapped(rules, 0, 1)), []probe{
			{"draco-malfoy-0", "harry-potter-0", "tcp", 80, deniedIngress},
			{"draco-malfoy-1", "harry-potter-0", "tcp", 8080, allowed},
		}},
		{"admin, ingress, TCP: passed on before accepted and denied", p.ingress(swapped(rules, 0, 1, 0, 2)), []probe{
			{"luna-lovegood-0", "harry-potter-0", "tcp", 80, allowed},
			{"luna-lovegood-1", "harry-potter-0", "tcp", 8080, allowed},
		}},
		{"admin, ingress, TCP: passed on at a port, before denied", p.ingress(swapped(rules, 0, 1, 0, 2, 3, 4)), []probe{
			{"draco-malfoy-0", "harry-potter-0", "tcp", 80, allowed},
			{"draco-malfoy-1", "harry-potter-0", "tcp", 8080, allowed},
		}},
	}
}

func adminIngressUDP(f form) []step {
	p := tier{form: f, name: "ingress-udp", priority: 4, subject: named("hufflepuff")}
	rules := []rule{
		accept(named("ravenclaw")), deny(named("ravenclaw")), pass(named("ravenclaw")),
		deny(named("slytherin"), "udp/5353"), pass(named("slytherin"), "udp/5353"),
		accept(named("gryffindor"), "udp/53"), deny(named("gryffindor")),
	}
	return []step{
		{"admin, ingress, UDP: in order: accepted, then denied, then passed on", p.ingress(rules), []probe{
			{"luna-lovegood-0", "cedric-diggory-0", "udp", 53, allowed},
			{"luna-lovegood-1", "cedric-diggory-0", "udp", 5353, allowed},
		}},
		{"admin, ingress, UDP: accepted at a port alone", p.ingress(rules), []probe{
			{"harry-potter-0", "cedric-diggory-1", "udp", 53, allowed},
			{"harry-potter-1", "cedric-diggory-1", "udp", 5353, deniedIngress},
		}},
		{"admin, ingress, UDP: denied before accepted", p.ingress(swapped(rules, 0, 1)), []probe{
			{"luna-lovegood-0", "cedric-diggory-1", "udp", 53, deniedIngress},
			{"luna-lovegood-1", "cedric-diggory-1", "udp", 5353, deniedIngress},
		}},
		{"admin, ingress, UDP: denied at a port alone", p.ingress(swapped(rules, 0, 1)), []probe{
			{"draco-malfoy-0", "cedric-diggory-0", "udp", 5353, deniedIngress},
			{"draco-malfoy-1", "cedric-diggory-0", "udp", 53, allowed},
		}},
		{"admin, ingress, UDP: passed on before accepted and denied", p.ingress(swapped(rules, 0, 1, 0, 2)), []probe{
			{"luna-lovegood-0", "cedric-diggory-1", "udp", 5353, allowed},
			{"luna-lovegood-1", "cedric-diggory-1", "udp", 53, allowed},
		}},
		{"admin, ingress, UDP: passed on at a port, before denied", p.ingress(swapped(rules, 0, 1, 0, 2, 3, 4)), []probe{
			{"draco-malfoy-0", "cedric-diggory-0", "udp", 5353, allowed},
			{"draco-malfoy-1", "cedric-diggory-0", "udp", 53, allowed},
		}},
		{"admin, ingress, UDP: a named port", p.ingress(withPorts(rules, 5, "dns")), []probe{
			{"harry-potter-0", "cedric-diggory-1", "udp", 53, allowed},
			{"harry-potter-1", "cedric-diggory-1", "udp", 5353, deniedIngress},
		}},
	}
}

func adminIngressSCTP(f form) []step {
	p := tier{form: f, name: "ingress-sctp", priority: 5, subject: named("ravenclaw")}
	rules := []rule{
		accept(named("gryffindor")), deny(named("gryffindor")), pass(named("gryffindor")),
		deny(named("slytherin"), "sctp/9003"), pass(named("slytherin"), "sctp/9003"),
		accept(named("hufflepuff"), "sctp/9003"), deny(named("hufflepuff")),
	}
	return []step{
		{"admin, ingress, SCTP: in order: accepted, then denied, then passed on", p.ingress(rules), []probe{
			{"harry-potter-0", "luna-lovegood-0", "sctp", 9003, allowed},
			{"harry-potter-1", "luna-lovegood-0", "sctp", 9005, allowed},
		}},
		{"admin, ingress, SCTP: accepted at a port alone", p.ingress(rules), []probe{
			{"cedric-diggory-0", "luna-lovegood-1", "sctp", 9003, allowed},
			{"cedric-diggory-1", "luna-lovegood-1", "sctp", 9005, deniedIngress},
		}},
		{"admin, ingress, SCTP: denied before accepted", p.ingress(swapped(rules, 0, 1)), []probe{
			{"harry-potter-0", "luna-lovegood-1", "sctp", 9003, deniedIngress},
			{"harry-potter-1", "luna-lovegood-1", "sctp", 9005, deniedIngress},
		}},
		{"admin, ingress, SCTP: denied at a port alone", p.ingress(swapped(rules, 0, 1)), []probe{
			{"draco-malfoy-0", "luna-lovegood-0", "sctp", 9003, deniedIngress},
			{"draco-malfoy-1", "luna-lovegood-0", "sctp", 9005, allowed},
		}},
		{"admin, ingress, SCTP: passed on before accepted and denied", p.ingress(swapped(rules, 0, 1, 0, 2)), []probe{
			{"harry-potter-0", "luna-lovegood-1", "sctp", 9003, allowed},
			{"harry-potter-1", "luna-lovegood-1", "sctp", 9005, allowed},
		}},
		{"admin, ingress, SCTP: passed on at a port, before denied", p.ingress(swapped(rules, 0, 1, 0, 2, 3, 4)), []probe{
			{"draco-malfoy-0", "luna-lovegood-0", "sctp", 9003, allowed},
			{"draco-malfoy-1", "luna-lovegood-0", "sctp", 9005, allowed},
		}},
	}
}

func adminBoth(f form) []step {
	p := tier{form: f, name: "gress-rules", priority: 15, subject: named("gryffindor")}
	egress := []rule{
		accept(named("ravenclaw")), deny(named("ravenclaw")), pass(named("ravenclaw")),
		deny(named("slytherin"), "tcp/80", "udp/53", "sctp/9003"), pass(named("slytherin"), "tcp/80", "udp/53", "sctp/9003"),
		accept(named("hufflepuff"), "tcp/8080", "udp/5353", "sctp/9003"), deny(named("hufflepuff")),
	}
	ingress := []rule{
		accept(named("ravenclaw")), deny(named("ravenclaw")), pass(named("ravenclaw")),
		deny(named("slytherin"), "tcp/80", "udp/53", "sctp/9003"), pass(named("slytherin"), "tcp/80", "udp/53", "sctp/9003"),
		accept(named("hufflepuff"), "tcp/80", "udp/5353", "sctp/9003"), deny(named("hufflepuff")),
	}
	return []step{
		{"admin, both directions: everything accepted", p.both(egress, ingress), []probe{
			{"harry-potter-0", "luna-lovegood-0", "tcp", 80, allowed},
			{"harry-potter-1", "luna-lovegood-0", "udp", 53, allowed},
			{"harry-potter-0", "luna-lovegood-0", "sctp", 9003, allowed},
			{"luna-lovegood-0", "harry-potter-0", "tcp", 80, allowed},
			{"luna-lovegood-1", "harry-potter-0", "udp", 53, allowed},
			{"luna-lovegood-1", "harry-potter-0", "sctp", 9003, allowed},
		}},
		{"admin, both directions: accepted at some ports alone", p.both(egress, ingress), []probe{
			{"harry-potter-0", "cedric-diggory-1", "tcp", 8080, allowed},
			{"harry-potter-1", "cedric-diggory-1", "tcp", 80, deniedEgress},
			{"harry-potter-0", "cedric-diggory-1", "udp", 5353, allowed},
			{"harry-potter-1", "cedric-diggory-1", "udp", 53, deniedEgress},
			{"harry-potter-0", "cedric-diggory-1", "sctp", 9003, allowed},
			{"harry-potter-1", "cedric-diggory-1", "sctp", 9005, deniedEgress},
			{"cedric-diggory-0", "harry-potter-1", "tcp", 80, allowed},
			{"cedric-diggory-1", "harry-potter-1", "tcp", 8080, deniedIngress},
			{"cedric-diggory-0", "harry-potter-1", "udp", 5353, allowed},
			{"cedric-diggory-1", "harry-potter-1", "udp", 53, deniedIngress},
			{"cedric-diggory-0", "harry-potter-1", "sctp", 9003, allowed},
			{"cedric-diggory-1", "harry-potter-1", "sctp", 9005, deniedIngress},
		}},
		{"admin, both directions: denied before accepted", p.both(swapped(egress, 0, 1), swapped(ingress, 0, 1)), []probe{
			{"harry-potter-0", "luna-lovegood-1", "tcp", 80, deniedEgress},
			{"harry-potter-1", "luna-lovegood-1", "udp", 53, deniedEgress},
			{"harry-potter-0", "luna-lovegood-1", "sctp", 9003, deniedEgress},
			{"luna-lovegood-0", "harry-potter-1", "tcp", 80, deniedIngress},
			{"luna-lovegood-1", "harry-potter-1", "udp", 53, deniedIngress},
			{"luna-lovegood-1", "harry-potter-1", "sctp", 9003, deniedIngress},
		}},
		{"admin, both directions: denied at some ports alone", p.both(swapped(egress, 0, 1), swapped(ingress, 0, 1)), []probe{
			{"harry-potter-0", "draco-malfoy-0", "tcp", 80, deniedEgress},
			{"harry-potter-1", "draco-malfoy-0", "tcp", 8080, allowed},
			{"harry-potter-0", "draco-malfoy-0", "udp", 53, deniedEgress},
			{"harry-potter-1", "draco-malfoy-0", "udp", 5353, allowed},
			{"harry-potter-0", "draco-malfoy-0", "sctp", 9003, deniedEgress},
			{"harry-potter-1", "draco-malfoy-0", "sctp", 9005, allowed},
			{"draco-malfoy-0", "harry-potter-0", "tcp", 80, deniedIngress},
			{"draco-malfoy-1", "harry-potter-0", "tcp", 8080, allowed},
			{"draco-malfoy-0", "harry-potter-0", "udp", 53, deniedIngress},
			{"draco-malfoy-1", "harry-potter-0", "udp", 5353, allowed},
			{"draco-malfoy-0", "harry-potter-0", "sctp", 9003, deniedIngress},
			{"draco-malfoy-1", "harry-potter-0", "sctp", 9005, allowed},
		}},
		{"admin, both directions: passed on", p.both(swapped(egress, 0, 1, 0, 2), swapped(ingress, 0, 1, 0, 2)), []probe{
			{"harry-potter-0", "luna-lovegood-0", "tcp", 80, allowed},
			{"harry-potter-0", "luna-lovegood-0", "udp", 5353, allowed},
			{"harry-potter-0", "luna-lovegood-0", "sctp", 9003, allowed},
			{"luna-lovegood-0", "harry-potter-0", "tcp", 80, allowed},
			{"luna-lovegood-1", "harry-potter-0", "udp", 53, allowed},
			{"luna-lovegood-1", "harry-potter-0", "sctp", 9003, allowed},
		}},
		{"admin, both directions: passed on at some ports", p.both(swapped(egress, 0, 1, 0, 2, 3, 4), swapped(ingress, 0, 1, 0, 2, 3, 4)), []probe{
			{"harry-potter-0", "draco-malfoy-0", "tcp", 80, allowed},
			{"harry-potter-1", "draco-malfoy-0", "tcp", 8080, allowed},
			{"harry-potter-0", "draco-malfoy-0", "udp", 53, allowed},
			{"harry-potter-1", "draco-malfoy-0", "udp", 5353, allowed},
			{"harry-potter-0", "draco-malfoy-0", "sctp", 9003, allowed},
			{"harry-potter-1", "draco-malfoy-0", "sctp", 9005, allowed},
			{"draco-malfoy-0", "harry-potter-0", "tcp", 80, allowed},
			{"draco-malfoy-1", "harry-potter-0", "tcp", 8080, allowed},
			{"draco-malfoy-0", "harry-potter-0", "udp", 53, allowed},
			{"draco-malfoy-1", "harry-potter-0", "udp", 5353, allowed},
			{"draco-malfoy-0", "harry-potter-0", "sctp", 9003, allowed},
			{"draco-malfoy-1", "harry-potter-0", "sctp", 9005, allowed},
		}},
	}
}

func adminNetworks(w *world, f form) []step {
	p := tier{form: f, name: "networks", priority: 85, subject: podsOf("gryffindor")}
	rules := []rule{accept(podsOf("slytherin")), deny(networks("0.0.0.0/0", "::/0"))}
	return []step{
		{"admin, networks: everywhere denied", p.egress(rules), []probe{
			{"harry-potter-1", "luna-lovegood-0", "tcp", 80, deniedEgress},
			{"harry-potter-1", "luna-lovegood-0", "udp", 53, deniedEgress},
			{"harry-potter-1", "luna-lovegood-0", "sctp", 9003, deniedEgress},
			{"harry-potter-1", "cedric-diggory-0", "tcp", 80, deniedEgress},
			{"harry-potter-1", "cedric-diggory-0", "udp", 53, deniedEgress},
			{"harry-potter-1", "cedric-diggory-0", "sctp", 9003, deniedEgress},
			{"harry-potter-1", "draco-malfoy-0", "tcp", 80, allowed},
			{"harry-potter-1", "draco-malfoy-0", "udp", 53, allowed},
			{"harry-potter-1", "draco-malfoy-0", "sctp", 9003, allowed},
		}},
		{"admin, networks: two addresses accepted before", p.egress(append([]rule{accept(networks(w.prefixes("luna-lovegood-0", "cedric-diggory-0")...))}, rules...)), []probe{
			{"harry-potter-1", "luna-lovegood-0", "tcp", 80, allowed},
			{"harry-potter-1", "luna-lovegood-0", "udp", 53, allowed},
			{"harry-potter-1", "luna-lovegood-0", "sctp", 9003, allowed},
			{"harry-potter-1", "cedric-diggory-0", "tcp", 80, allowed},
			{"harry-potter-1", "cedric-diggory-0", "udp", 53, allowed},
			{"harry-potter-1", "cedric-diggory-0", "sctp", 9003, allowed},
			{"harry-potter-1", "luna-lovegood-1", "tcp", 80, deniedEgress},
			{"harry-potter-1", "luna-lovegood-1", "udp", 53, deniedEgress},
			{"harry-potter-1", "luna-lovegood-1", "sctp", 9003, deniedEgress},
			{"harry-potter-1", "cedric-diggory-1", "tcp", 80, deniedEgress},
			{"harry-potter-1", "cedric-diggory-1", "udp", 53, deniedEgress},
			{"harry-potter-1", "cedric-diggory-1", "sctp", 9003, deniedEgress},
		}},
	}
}
