package policy

import (
	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/policy/engine"
)

// DecisionToV1 is the outcome as the API shows it.
func DecisionToV1(o engine.Outcome) v1.PolicyDecision { return decisionToV1(o) }
