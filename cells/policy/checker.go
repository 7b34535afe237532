package policy

import (
	"context"
	"fmt"

	"porin.dev/porin/cells/doctor"
)

// The kinds of findings.
const (
	entryMissing = "policy-entry-missing"
	entryDiffers = "policy-entry-differs"
	entryOrphan  = "policy-entry-orphan"
)

// maxListed bounds the findings about one map: an emptied one may lack thousands of entries.
const maxListed = 10

// checker compares what the kernel has with what the policies say: the policy's doctor.Checker.
type checker struct{ queue *Queue }

func newChecker(q *Queue) *checker { return &checker{q} }

// Owner implements doctor.Checker.
func (*checker) Owner() string { return "policy" }

// Kinds implements doctor.Checker.
func (*checker) Kinds() []doctor.Kind {
	const anew = "all policies are written again"
	return []doctor.Kind{
		{Name: entryMissing, Meaning: "an entry that the programs decide with is missing: their verdicts differ from the policies", Repair: anew},
		{Name: entryDiffers, Meaning: "an entry that the programs decide with has another value: their verdicts differ from the policies", Repair: anew},
		{Name: entryOrphan, Meaning: "the maps of policies have an entry for no endpoint, address or policy", Repair: anew},
	}
}

// Examine implements doctor.Checker. These maps belong to all endpoints, so there are no findings about one attachment
// alone.
func (c *checker) Examine(ctx context.Context, only string) (findings []doctor.Finding, err error) {
	if only != "" {
		return nil, nil
	}
	differences, err := c.queue.view.compare(ctx)
	if err != nil {
		return nil, err
	}
	listed, more := map[[2]string]int{}, map[[2]string]int{}
	for _, d := range differences {
		of := [2]string{d.Kind, d.Map}
		if listed[of]++; listed[of] > maxListed {
			more[of]++
			continue
		}
		subject := fmt.Sprintf("map entry %s %s", d.Map, d.Key)
		findings = append(findings, c.finding(d.Kind, subject, subject+": "+d.Detail))
	}
	for of, n := range more {
		subject := "further entries of map " + of[1]
		findings = append(findings, c.finding(of[0], subject, fmt.Sprintf("%s: %d more", subject, n)))
	}
	return findings, nil
}

func (c *checker) finding(kind, subject, detail string) doctor.Finding {
	return doctor.Finding{Kind: "policy-entry-" + kind, Subject: subject, Detail: detail, Repair: c.repair}
}

// repair writes everything again, unless another finding has caused it already.
func (c *checker) repair(ctx context.Context) error {
	differences, err := c.queue.view.compare(ctx)
	if err != nil || len(differences) == 0 {
		return err
	}
	return c.queue.rewrite(ctx)
}
