package engine

// What policies may take in memory and time. The maps of the datapath hold less, but what goes there is only known when all is compiled: rules whose blocks overlap take
// the product of blocks, rules and ports.
const (
	maxMembers = 1 << 22 // of all sets of selectors
	maxWork    = 1 << 26 // some tenths of a second
)

// size is what an engine holds.
type size struct {
	members, work int
	exceeded      bool
}

func (s *size) addMembers(n int) {
	s.members += n
	s.exceeded = s.exceeded || s.members > maxMembers
}

func (s *size) addWork(n int) {
	s.work += n
	s.exceeded = s.exceeded || s.work > maxWork
}

// rowWork is what a row takes: memory counts, too.
const rowWork = 64

// workFor is what it takes to find the rows for rules: each is asked once, and once more for each end of its ports. Layer 7 rules are joined and sorted there.
func (t *table) workFor(rules []int32) int {
	const ofSet = 128
	ends, layer7 := 1, 0
	for _, i := range rules {
		r := &t.rules[i]
		ends += 2 * len(r.ports)
		if r.layer7 != nil {
			layer7 += 8 * len(r.layer7.entries)
		}
	}
	return ofSet + len(rules) + ends*(8+layer7)
}
