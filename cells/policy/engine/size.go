package engine

// What policies may take in memory and time. The maps of the datapath hold less, but what goes there is only known when
// all is compiled: rules whose blocks overlap take the product of blocks, rules and ports.
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
