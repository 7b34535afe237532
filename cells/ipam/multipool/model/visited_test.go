package model

const chunk = 1 << 16

// visited keeps the states in the order in which they were found. It grows in chunks, so that growing copies nothing.
type visited struct {
	chunks [][]state
	parent [][]int32
	index  map[state]int32
}

func newVisited() visited { return visited{index: map[state]int32{}} }

func (v *visited) len() int { return len(v.index) }

func (v *visited) at(i int) state { return v.chunks[i/chunk][i%chunk] }

func (v *visited) parentOf(i int) int { return int(v.parent[i/chunk][i%chunk]) }

// add reports whether the state is new.
func (v *visited) add(s state, parent int) bool {
	if _, known := v.index[s]; known {
		return false
	}
	i := len(v.index)
	v.index[s] = int32(i)
	if i%chunk == 0 {
		v.chunks = append(v.chunks, make([]state, 0, chunk))
		v.parent = append(v.parent, make([]int32, 0, chunk))
	}
	last := len(v.chunks) - 1
	v.chunks[last] = append(v.chunks[last], s)
	v.parent[last] = append(v.parent[last], int32(parent))
	return true
}
