package crash

import v1 "porin.dev/porin/api/v1"

// limited is the operation with containers whose bandwidth is limited in both directions.
func limited(of func(*scene) operation) func(*scene) operation {
	return func(s *scene) operation {
		s.guestCaps = map[string]any{"bandwidth": v1.Bandwidth{IngressRate: 1e8, EgressRate: 1e8}}
		return of(s)
	}
}
