package engine

import (
	"fmt"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

// Report is something about policies that their author should know.
type Report struct {
	Policies []model.PolicyID
	Text     string
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
