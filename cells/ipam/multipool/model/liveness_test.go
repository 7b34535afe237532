package model

// lostForGood returns the number of visited states from which no state that is good can be reached, and the way to the
// nearest of them. It follows only the steps that it is told to follow.
func (x *explorer) lostForGood(good func(*state) bool, follow func(*step) bool) (int, []string) {
	from, start := x.reverse(follow)
	reached := make([]bool, x.visited.len())
	var queue []int32
	visit := func(i int32) {
		if !reached[i] {
			reached[i] = true
			queue = append(queue, i)
		}
	}
	for i := range reached {
		if s := x.visited.at(i); good(&s) {
			visit(int32(i))
		}
	}
	for len(queue) > 0 {
		i := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, before := range from[start[i]:start[i+1]] {
			visit(before)
		}
	}
	lost, trace := 0, []string(nil)
	for i := range reached {
		if reached[i] {
			continue
		}
		if lost++; lost == 1 {
			trace = x.trace(i)
		}
	}
	return lost, trace
}

// reverse returns the states before each state: those before i are from[start[i]:start[i+1]].
func (x *explorer) reverse(follow func(*step) bool) (from, start []int32) {
	var to []int32
	all := x.visited.len()
	out := make([]int32, all+1)
	start = make([]int32, all+1)
	for i := range all {
		s := x.visited.at(i)
		steps := x.steps(&s)
		for k := range steps {
			if follow(&steps[k]) {
				next := x.visited.index[steps[k].next]
				to = append(to, next)
				start[next+1]++
			}
		}
		out[i+1] = int32(len(to))
	}
	for i := range all {
		start[i+1] += start[i]
	}
	from = make([]int32, len(to))
	filled := append([]int32(nil), start...)
	for i := range all {
		for _, next := range to[out[i]:out[i+1]] {
			from[filled[next]] = int32(i)
			filled[next]++
		}
	}
	return from, start
}
