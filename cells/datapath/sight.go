package datapath

import (
	"errors"

	"porin.dev/porin/internal/rtnl"
)

// sight is what the kernel has of one endpoint, map entries apart. What is not there is zero.
type sight struct {
	link    rtnl.Link
	filters [2]rtnl.Filter // in the order of nodeLinks.filters
	routes  [2]rtnl.Route  // in the order of Addresses.List
	neighs  [2]rtnl.Neigh
}

// look sees what there is of the entries. It asks for each thing by its name, 40 in a system call: a list of all could
// lack something when it changes while it is read, and for one endpoint it would be long.
func (n *nodeLinks) look(conn *rtnl.Conn, entries ...Entry) ([]sight, error) {
	sights := make([]sight, len(entries))
	questions := make([]rtnl.Request, 0, 7*len(entries))
	for i, e := range entries {
		questions = n.ask(questions, e, &sights[i])
	}
	return sights, answered(conn.Do(questions...))
}

func (n *nodeLinks) ask(questions []rtnl.Request, e Entry, s *sight) []rtnl.Request {
	questions = append(questions, rtnl.LinkByIndex(e.Link, &s.link))
	for i, f := range n.filtersOf(e.Link) {
		questions = append(questions, rtnl.GetFilter(f, &s.filters[i]))
	}
	for i, addr := range e.Addresses.List() {
		questions = append(questions, rtnl.GetRoute(addr, &s.routes[i]), rtnl.GetNeigh(e.Link, addr, &s.neighs[i]))
	}
	return questions
}

// answered takes the kernel's refusal of a question for an answer: it is not there.
func answered(err error) error {
	if _, refused := errors.AsType[*rtnl.Error](err); refused {
		return nil
	}
	return err
}
