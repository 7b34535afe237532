package engine

import (
	"fmt"
	"maps"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

// Report is something about policies that their author should know.
type Report struct {
	Policies []model.PolicyID
	Text     string
}

// reports returns all reports, in the order of evaluation. The conflicts are from all tables.
func (x *policies) reports(conflicts map[*Rule]struct{}) []Report {
	var reports []Report
	policies := slices.SortedFunc(maps.Values(x.byID), before)
	for len(policies) > 0 {
		first := policies[0]
		n := slices.IndexFunc(policies, func(p *policy) bool { return p.Tier != first.Tier || p.Priority != first.Priority })
		if n < 0 {
			n = len(policies)
		}
		if n > 1 && first.Tier != model.TierNetworkPolicy {
			r := Report{Text: fmt.Sprintf("equal priority %d in tier %s: evaluated in the order of kind and name", first.Priority, first.Tier)}
			for _, p := range policies[:n] {
				r.Policies = append(r.Policies, p.ID)
			}
			reports = append(reports, r)
		}
		for _, p := range policies[:n] {
			reports = append(reports, x.domainReports(p)...)
			reports = append(reports, conflictReports(p, conflicts)...)
		}
		policies = policies[n:]
	}
	return reports
}

// domainReports returns a report for each rule with names of a policy whose pods' DNS answers no proxy reads.
func (x *policies) domainReports(p *policy) (reports []Report) {
	if !slices.ContainsFunc(p.rules[model.Egress], hasDomain) {
		return nil
	}
	why := x.unreadAnswers(p)
	if why == "" {
		return nil
	}
	for _, r := range p.rules[model.Egress] {
		if hasDomain(r) {
			reports = append(reports, Report{
				Policies: []model.PolicyID{p.ID},
				Text:     fmt.Sprintf("egress rule %d: names have the addresses that answers to DNS queries give them, and %s", r.rule.Index, why),
			})
		}
	}
	return reports
}

// unreadAnswers says which pods of this node that the policy selects, if any, ask for names without the proxy. It
// returns "" if there is no such pod, and a rule for DNS.
func (x *policies) unreadAnswers(p *policy) string {
	var pods []string
	for key, ep := range x.local {
		if slices.Contains(ep.policies, p) && !slices.ContainsFunc(ep.policies, (*policy).hasDNS) {
			pods = append(pods, key)
		}
	}
	slices.Sort(pods)
	switch {
	case len(pods) == 1:
		return "no rule for DNS selects " + pods[0]
	case len(pods) > 1:
		return fmt.Sprintf("no rule for DNS selects %s and %d more", pods[0], len(pods)-1)
	}
	for _, other := range x.byID {
		if other.hasDNS() {
			return ""
		}
	}
	return "there is no rule for DNS"
}

func hasDomain(r compiledRule) bool {
	return slices.ContainsFunc(r.selectors, func(sel *selector) bool { return isDomain(sel.peer) })
}

// hasDNS reports whether the answers that the policy's subjects get are read by the proxy.
func (p *policy) hasDNS() bool {
	return !p.Audit && slices.ContainsFunc(p.rules[model.Egress], func(r compiledRule) bool { return r.layer7 != nil && r.layer7.dns })
}

func conflictReports(p *policy, conflicts map[*Rule]struct{}) (reports []Report) {
	for d, rules := range p.rules {
		for i, r := range rules {
			if _, ok := conflicts[r.rule]; ok {
				reports = append(reports, Report{
					Policies: []model.PolicyID{p.ID},
					Text:     fmt.Sprintf("%s rule %d: rules for HTTP and for DNS accept the same connections, which are denied", model.Direction(d), i),
				})
			}
		}
	}
	return reports
}
