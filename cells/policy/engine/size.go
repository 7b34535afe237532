package engine

// What policies may take in memory and time. The maps of the datapath hold less, but what goes there is only known when all is compiled: rules whose blocks overlap take
// the product of blocks, rules and ports.
const (
	maxMembers = 1 << 22 // of all sets of selectors
	maxWork    = 1 << 28 // some seconds
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

// Exceeded reports whether an update was too large to be compiled. From then on rows are not to be used, and decisions may be wrong: another engine is needed.
func (e *Engine) Exceeded() bool { return e.size.exceeded }

// workFor is what it takes to find the rows for rules: each rule is asked about each range of ports.
func (t *table) workFor(rules []int32) int {
	const ofRange = 128 // memory counts, too
	ranges, layer7 := 1, 0
	for _, i := range rules {
		r := &t.rules[i]
		ranges += 2 * len(r.ports)
		if r.layer7 != nil {
			layer7 += 8 * len(r.layer7.entries) // they are sorted
		}
	}
	return ranges * (len(rules) + ofRange + layer7)
}
