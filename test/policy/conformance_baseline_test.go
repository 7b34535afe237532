package policy

func baselineEgressTCP(f form) []step {
	p := tier{form: f, baseline: true, name: "default", priority: 10, subject: named("gryffindor")}
	rules := []rule{
		accept(named("ravenclaw")), deny(named("ravenclaw")),
		deny(named("slytherin"), "tcp/80"),
		accept(named("hufflepuff"), "tcp/8080"), deny(named("hufflepuff")),
	}
	return []step{
		{"baseline, egress, TCP: accepted before denied", p.egress(rules), []probe{
			{"harry-potter-0", "luna-lovegood-0", "tcp", 80, allowed},
			{"harry-potter-1", "luna-lovegood-0", "tcp", 8080, allowed},
		}},
		{"baseline, egress, TCP: accepted at a port alone", p.egress(rules), []probe{
			{"harry-potter-0", "cedric-diggory-1", "tcp", 8080, allowed},
			{"harry-potter-1", "cedric-diggory-1", "tcp", 80, deniedEgress},
		}},
		{"baseline, egress, TCP: denied before accepted", p.egress(swapped(rules, 0, 1)), []probe{
			{"harry-potter-0", "luna-lovegood-1", "tcp", 80, deniedEgress},
			{"harry-potter-1", "luna-lovegood-1", "tcp", 8080, deniedEgress},
		}},
		{"baseline, egress, TCP: denied at a port alone", p.egress(swapped(rules, 0, 1)), []probe{
			{"harry-potter-0", "draco-malfoy-0", "tcp", 80, deniedEgress},
			{"harry-potter-1", "draco-malfoy-0", "tcp", 8080, allowed},
		}},
	}
}

func baselineEgressUDP(f form) []step {
	p := tier{form: f, baseline: true, name: "default", priority: 10, subject: named("hufflepuff")}
	rules := []rule{
		accept(named("ravenclaw")), deny(named("ravenclaw")),
		deny(named("slytherin"), "udp/5353"),
		accept(named("gryffindor"), "udp/53"), deny(named("gryffindor")),
	}
	return []step{
		{"baseline, egress, UDP: accepted before denied", p.egress(rules), []probe{
			{"cedric-diggory-0", "luna-lovegood-0", "udp", 53, allowed},
			{"cedric-diggory-1", "luna-lovegood-0", "udp", 5353, allowed},
		}},
		{"baseline, egress, UDP: accepted at a port alone", p.egress(rules), []probe{
			{"cedric-diggory-0", "harry-potter-1", "udp", 53, allowed},
			{"cedric-diggory-1", "harry-potter-1", "udp", 5353, deniedEgress},
		}},
		{"baseline, egress, UDP: denied before accepted", p.egress(swapped(rules, 0, 1)), []probe{
			{"cedric-diggory-0", "luna-lovegood-1", "udp", 53, deniedEgress},
			{"cedric-diggory-1", "luna-lovegood-1", "udp", 5353, deniedEgress},
		}},
		{"baseline, egress, UDP: denied at a port alone", p.egress(swapped(rules, 0, 1)), []probe{
			{"cedric-diggory-0", "draco-malfoy-0", "udp", 5353, deniedEgress},
			{"cedric-diggory-1", "draco-malfoy-0", "udp", 53, allowed},
		}},
		{"baseline, egress, UDP: a named port", p.egress(withPorts(rules, 3, "dns")), []probe{
			{"cedric-diggory-0", "harry-potter-1", "udp", 53, allowed},
			{"cedric-diggory-1", "harry-potter-1", "udp", 5353, deniedEgress},
		}},
	}
}

func baselineEgressSCTP(f form) []step {
	p := tier{form: f, baseline: true, name: "default", priority: 10, subject: named("ravenclaw")}
	rules := []rule{
		accept(named("gryffindor")), deny(named("gryffindor")),
		deny(named("slytherin"), "sctp/9003"),
		accept(named("hufflepuff"), "sctp/9003"), deny(named("hufflepuff")),
	}
	return []step{
		{"baseline, egress, SCTP: accepted before denied", p.egress(rules), []probe{
			{"luna-lovegood-0", "harry-potter-0", "sctp", 9003, allowed},
			{"luna-lovegood-1", "harry-potter-0", "sctp", 9005, allowed},
		}},
		{"baseline, egress, SCTP: accepted at a port alone", p.egress(rules), []probe{
			{"luna-lovegood-0", "cedric-diggory-1", "sctp", 9003, allowed},
			{"luna-lovegood-1", "cedric-diggory-1", "sctp", 9005, deniedEgress},
		}},
		{"baseline, egress, SCTP: denied before accepted", p.egress(swapped(rules, 0, 1)), []probe{
			{"luna-lovegood-0", "harry-potter-1", "sctp", 9003, deniedEgress},
			{"luna-lovegood-1", "harry-potter-1", "sctp", 9005, deniedEgress},
		}},
		{"baseline, egress, SCTP: denied at a port alone", p.egress(swapped(rules, 0, 1)), []probe{
			{"luna-lovegood-0", "draco-malfoy-0", "sctp", 9003, deniedEgress},
			{"luna-lovegood-1", "draco-malfoy-0", "sctp", 9005, allowed},
		}},
	}
}

func baselineIngressTCP(f form) []step {
	p := tier{form: f, baseline: true, name: "default", priority: 10, subject: named("gryffindor")}
	rules := []rule{
		accept(named("ravenclaw")), deny(named("ravenclaw")),
		deny(named("slytherin"), "tcp/80"),
		accept(named("hufflepuff"), "tcp/80"), deny(named("hufflepuff")),
	}
	return []step{
		{"baseline, ingress, TCP: accepted before denied", p.ingress(rules), []probe{
			{"luna-lovegood-0", "harry-potter-0", "tcp", 80, allowed},
			{"luna-lovegood-1", "harry-potter-0", "tcp", 8080, allowed},
		}},
		{"baseline, ingress, TCP: accepted at a port alone", p.ingress(rules), []probe{
			{"cedric-diggory-0", "harry-potter-1", "tcp", 80, allowed},
			{"cedric-diggory-1", "harry-potter-1", "tcp", 8080, deniedIngress},
		}},
		{"baseline, ingress, TCP: denied before accepted", p.ingress(swapped(rules, 0, 1)), []probe{
			{"luna-lovegood-0", "harry-potter-1", "tcp", 80, deniedIngress},
			{"luna-lovegood-1", "harry-potter-1", "tcp", 8080, deniedIngress},
		}},
		{"baseline, ingress, TCP: denied at a port alone", p.ingress(swapped(rules, 0, 1)), []probe{
			{"draco-malfoy-0", "harry-potter-0", "tcp", 80, deniedIngress},
			{"draco-malfoy-1", "harry-potter-0", "tcp", 8080, allowed},
		}},
		{"baseline, ingress, TCP: a named port", p.ingress(withPorts(rules, 3, "web")), []probe{
			{"cedric-diggory-0", "harry-potter-1", "tcp", 80, allowed},
			{"cedric-diggory-1", "harry-potter-1", "tcp", 8080, deniedIngress},
		}},
	}
}

func baselineIngressUDP(f form) []step {
	p := tier{form: f, baseline: true, name: "default", priority: 10, subject: named("hufflepuff")}
	rules := []rule{
		accept(named("ravenclaw")), deny(named("ravenclaw")),
		deny(named("slytherin"), "udp/5353"),
		accept(named("gryffindor"), "udp/53"), deny(named("gryffindor")),
	}
	return []step{
		{"baseline, ingress, UDP: accepted before denied", p.ingress(rules), []probe{
			{"luna-lovegood-0", "cedric-diggory-0", "udp", 53, allowed},
			{"luna-lovegood-1", "cedric-diggory-0", "udp", 5353, allowed},
		}},
		{"baseline, ingress, UDP: accepted at a port alone", p.ingress(rules), []probe{
			{"harry-potter-0", "cedric-diggory-1", "udp", 53, allowed},
			{"harry-potter-1", "cedric-diggory-1", "udp", 5353, deniedIngress},
		}},
		{"baseline, ingress, UDP: denied before accepted", p.ingress(swapped(rules, 0, 1)), []probe{
			{"luna-lovegood-0", "cedric-diggory-1", "udp", 53, deniedIngress},
			{"luna-lovegood-1", "cedric-diggory-1", "udp", 5353, deniedIngress},
		}},
		{"baseline, ingress, UDP: denied at a port alone", p.ingress(swapped(rules, 0, 1)), []probe{
			{"draco-malfoy-0", "cedric-diggory-0", "udp", 5353, deniedIngress},
			{"draco-malfoy-1", "cedric-diggory-0", "udp", 53, allowed},
		}},
	}
}

func baselineIngressSCTP(f form) []step {
	p := tier{form: f, baseline: true, name: "default", priority: 10, subject: named("ravenclaw")}
	rules := []rule{
		accept(named("gryffindor")), deny(named("gryffindor")),
		deny(named("slytherin"), "sctp/9003"),
		accept(named("hufflepuff"), "sctp/9003"), deny(named("hufflepuff")),
	}
	return []step{
		{"baseline, ingress, SCTP: accepted before denied", p.ingress(rules), []probe{
			{"harry-potter-0", "luna-lovegood-0", "sctp", 9003, allowed},
			{"harry-potter-1", "luna-lovegood-0", "sctp", 9005, allowed},
		}},
		{"baseline, ingress, SCTP: accepted at a port alone", p.ingress(rules), []probe{
			{"cedric-diggory-0", "luna-lovegood-1", "sctp", 9003, allowed},
			{"cedric-diggory-1", "luna-lovegood-1", "sctp", 9005, deniedIngress},
		}},
		{"baseline, ingress, SCTP: denied before accepted", p.ingress(swapped(rules, 0, 1)), []probe{
			{"harry-potter-0", "luna-lovegood-1", "sctp", 9003, deniedIngress},
			{"harry-potter-1", "luna-lovegood-1", "sctp", 9005, deniedIngress},
		}},
		{"baseline, ingress, SCTP: denied at a port alone", p.ingress(swapped(rules, 0, 1)), []probe{
			{"draco-malfoy-0", "luna-lovegood-0", "sctp", 9003, deniedIngress},
			{"draco-malfoy-1", "luna-lovegood-0", "sctp", 9005, allowed},
		}},
	}
}

func baselineBoth(f form) []step {
	p := tier{form: f, baseline: true, name: "default", priority: 10, subject: named("gryffindor")}
	egress := []rule{
		accept(named("ravenclaw")), deny(named("ravenclaw")),
		deny(named("slytherin"), "tcp/80", "udp/53", "sctp/9003"),
		accept(named("hufflepuff"), "tcp/8080", "udp/5353", "sctp/9003"), deny(named("hufflepuff")),
	}
	ingress := []rule{
		accept(named("ravenclaw")), deny(named("ravenclaw")),
		deny(named("slytherin"), "tcp/80", "udp/53", "sctp/9003"),
		accept(named("hufflepuff"), "tcp/80", "udp/5353", "sctp/9003"), deny(named("hufflepuff")),
	}
	return []step{
		{"baseline, both directions: everything accepted", p.both(egress, ingress), []probe{
			{"harry-potter-0", "luna-lovegood-0", "tcp", 80, allowed},
			{"harry-potter-1", "luna-lovegood-0", "udp", 53, allowed},
			{"harry-potter-0", "luna-lovegood-0", "sctp", 9003, allowed},
			{"luna-lovegood-0", "harry-potter-0", "tcp", 80, allowed},
			{"luna-lovegood-1", "harry-potter-0", "udp", 53, allowed},
			{"luna-lovegood-1", "harry-potter-0", "sctp", 9003, allowed},
		}},
		{"baseline, both directions: accepted at some ports alone", p.both(egress, ingress), []probe{
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
		{"baseline, both directions: denied before accepted", p.both(swapped(egress, 0, 1), swapped(ingress, 0, 1)), []probe{
			{"harry-potter-0", "luna-lovegood-1", "tcp", 80, deniedEgress},
			{"harry-potter-1", "luna-lovegood-1", "udp", 53, deniedEgress},
			{"harry-potter-0", "luna-lovegood-1", "sctp", 9003, deniedEgress},
			{"luna-lovegood-0", "harry-potter-1", "tcp", 80, deniedIngress},
			{"luna-lovegood-1", "harry-potter-1", "udp", 53, deniedIngress},
			{"luna-lovegood-1", "harry-potter-1", "sctp", 9003, deniedIngress},
		}},
		{"baseline, both directions: denied at some ports alone", p.both(swapped(egress, 0, 1), swapped(ingress, 0, 1)), []probe{
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
	}
}

func baselineNetworks(w *world, f form) []step {
	p := tier{form: f, baseline: true, name: "default", priority: 10, subject: named("gryffindor")}
	rules := []rule{accept(podsOf("slytherin")), deny(networks("0.0.0.0/0", "::/0"))}
	return []step{
		{"baseline, networks: everywhere denied", p.egress(rules), []probe{
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
		{"baseline, networks: two addresses accepted before", p.egress(append([]rule{accept(networks(w.prefixes("luna-lovegood-0", "cedric-diggory-0")...))}, rules...)), []probe{
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
