package blocks

import (
	"fmt"
	"slices"
	"strings"

	"porin.dev/porin/cells/doctor"
)

func (a atlas) unreadableFindings() (findings []doctor.Finding) {
	for _, u := range a.unreadable {
		findings = append(findings, doctor.Finding{Kind: blockUnreadable, Subject: u.key, Detail: u.err.Error()})
	}
	return findings
}

// overlaps compares each part with the one before it that reaches furthest: prefixes are apart, or one has the other.
func (a atlas) overlaps() (findings []doctor.Finding) {
	var wide Part
	for i, p := range a.parts {
		if i == 0 || !wide.Prefix.Overlaps(p.Prefix) {
			wide = p
			continue
		}
		findings = append(findings, doctor.Finding{
			Kind: blockOverlap, Subject: wide.String() + ", and " + p.String(),
			Detail: "both have the addresses of " + p.Prefix.String(),
		})
	}
	return findings
}

// poolless finds each pool that is none once.
func (a atlas) poolless() (findings []doctor.Finding) {
	if !a.poolsKnown {
		return nil
	}
	parts := map[string][]string{}
	for _, p := range a.parts {
		if !slices.ContainsFunc(a.pools, func(pool Pool) bool { return pool.Name == p.Pool }) {
			parts[p.Pool] = append(parts[p.Pool], p.String())
		}
	}
	for pool, texts := range parts {
		findings = append(findings, doctor.Finding{Kind: blockPoolless, Subject: "pool " + pool, Detail: some(texts)})
	}
	return findings
}

// mostNamed is how many things a detail names.
const mostNamed = 5

func some(texts []string) string {
	text := strings.Join(texts[:min(len(texts), mostNamed)], "; ")
	if more := len(texts) - mostNamed; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}
