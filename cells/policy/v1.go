package policy

import (
	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/policy/engine"
)

// DecisionToV1 is the decision as the API shows it.
func DecisionToV1(d engine.Decision) v1.PolicyDecision { return decisionToV1(d) }
