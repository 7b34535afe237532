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

// Reports returns all reports, in the order of evaluation.
func (e *Engine) Reports() []Report {
	var reports []Report
	conflicts := map[*Rule]struct{}{}
	for _, t := range e.tables {
		maps.Copy(conflicts, t.conflicts)
	}
	policies := slices.SortedFunc(maps.Values(e.policies), before)
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
			reports = append(reports, domainReports(p)...)
			reports = append(reports, conflictReports(p, conflicts)...)
		}
		policies = policies[n:]
	}
	return reports
}

func domainReports(p *policy) []Report {
	var reports []Report
	for _, d := range []model.Direction{model.Egress, model.Ingress} {
		if p.Part(d) == nil {
			continue
		}
		for i, r := range *p.Part(d) {
			for _, peer := range r.Peers {
				if peer.Domain != "" {
					reports = append(reports, Report{
						Policies: []model.PolicyID{p.ID},
						Text:     fmt.Sprintf("%s rule %d: domain name %s matches nothing so far", d, i, peer.Domain),
					})
				}
			}
		}
	}
	return reports
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
