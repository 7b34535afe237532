package model

import (
	"fmt"
	"slices"
	"strings"
)

const nobody = -1

// The steps that a search can leave out.
const (
	podEnds         = "its last pod ends"
	machineGoesDown = "its machine goes down"
)

// explorer visits every state that can be reached, nearest first, so the first counterexample is a shortest one.
type explorer struct {
	rules  rules
	bounds bounds

	visited visited
	out     []step // of the last call of steps
}

// step is one transition. Its sentence is composed only when it is printed.
type step struct {
	next state
	who  int
	what string
	c    claim
}

// result is what one search found.
type result struct {
	states   int
	trace    []string // nil: no counterexample
	complete bool     // all states were visited
}

func (x *explorer) blocks() int {
	if x.bounds.pools {
		return maxBlocks
	}
	return 1
}

func (x *explorer) add(t *state, who int, what string, c claim) {
	x.out = append(x.out, step{*t, who, what, c})
	x.out[len(x.out)-1].next.tidy()
}

// steps returns all transitions from a state. The result is valid until the next call.
func (x *explorer) steps(s *state) []step {
	x.out = x.out[:0]
	for i := range x.bounds.nodes {
		x.claimBlock(s, i)
		x.verifyClaim(s, i)
		x.useBlock(s, i)
		x.giveBack(s, i)
		x.writeCheckpoint(s, i)
		x.deleteOrphans(s, i)
		x.changeLife(s, i)
		x.compareWithStore(s, i)
	}
	for c := claim(1); c <= maxClaims; c++ {
		x.executeCreate(s, c)
		x.executeDelete(s, c)
	}
	x.deleteNode(s)
	x.changePool(s)
	x.backupAndRestore(s)
	x.endRecovery(s)
	return x.out
}

func (x *explorer) start() state {
	var s state
	for i := range x.bounds.nodes {
		if x.bounds.late > 0 && i == x.bounds.late {
			continue
		}
		s.nodes[i].life = up
		s.nodes[i].check = checkDue
		if x.bounds.known {
			s.nodes[i].check, s.nodes[i].seen = checked, seenBeforeRestore
			s.store.nodes |= 1 << i
		}
	}
	if x.bounds.known && x.bounds.restore {
		s.ever = s.store.nodes
	}
	return s
}

// explore stops at the first counterexample, when all states are visited, or at the limit.
func (x *explorer) explore(limit int) result {
	x.visited = newVisited()
	x.visited.add(x.start(), nobody)
	for at := 0; at < x.visited.len(); at++ {
		if x.visited.len() > limit {
			return result{states: x.visited.len()}
		}
		s := x.visited.at(at)
		for _, to := range x.steps(&s) {
			if x.visited.add(to.next, at) && to.next.twoUsers() {
				last := x.visited.len() - 1
				return result{states: x.visited.len(), trace: x.trace(last)}
			}
		}
	}
	return result{states: x.visited.len(), complete: true}
}

// trace returns the steps that lead to a state, as sentences.
func (x *explorer) trace(at int) []string {
	var sentences []string
	for before := x.visited.parentOf(at); before != nobody; before = x.visited.parentOf(at) {
		from, to := x.visited.at(before), x.visited.at(at)
		steps := x.steps(&from)
		i := slices.IndexFunc(steps, func(s step) bool { return s.next == to })
		sentences = append(sentences, x.sentence(&steps[i]))
		at = before
	}
	slices.Reverse(sentences)
	return sentences
}

func (x *explorer) sentence(to *step) string {
	var b strings.Builder
	if to.who != nobody {
		fmt.Fprintf(&b, "%s: ", x.nodeName(to.who))
	}
	b.WriteString(to.what)
	if to.c != noClaim {
		fmt.Fprintf(&b, " (claim %s%d", x.nodeName(to.c.node()), int(to.c-1)%claimsOfNode+1)
		if to.next.second&to.c.bit() != 0 {
			b.WriteString(" of the second block")
		}
		b.WriteString(")")
	}
	return b.String()
}

func (x *explorer) nodeName(i int) string {
	if i == nodeC && x.bounds.replaced {
		return "A'"
	}
	return string(rune('A' + i))
}
