package masquerade

import (
	"context"
	"strings"

	"porin.dev/porin/cells/doctor"
)

const tableDiffers = "masquerade-table-differs"

// checker is the doctor.Checker of a [Table].
type checker struct{ table *Table }

// NewChecker returns the one of a table.
func NewChecker(t *Table) doctor.Checker { return checker{t} }

// Owner implements doctor.Checker.
func (checker) Owner() string { return "masquerade" }

// Kinds implements doctor.Checker.
func (checker) Kinds() []doctor.Kind {
	return []doctor.Kind{{
		Name:    tableDiffers,
		Meaning: "the table inet porin-masquerade of nftables is not as it should be: pods may not reach destinations outside of the cluster, or are seen there with their own addresses",
		Repair:  "the table is written again",
	}}
}

// Examine implements doctor.Checker. The table is of all pods, so there is nothing about one attachment alone.
func (c checker) Examine(_ context.Context, only string) ([]doctor.Finding, error) {
	if only != "" {
		return nil, nil
	}
	differences, err := c.table.Compare()
	if err != nil || len(differences) == 0 {
		return nil, err
	}
	return []doctor.Finding{{
		Kind: tableDiffers, Subject: "table inet " + TableName, Detail: strings.Join(differences, "; "), Repair: c.repair,
	}}, nil
}

func (c checker) repair(context.Context) error { return c.table.Repair() }
