// Package model is an exhaustive model of how blocks of addresses are owned: it visits every state that can be reached
// within stated bounds and looks for one in which addresses of the same range are in use on two machines. All of it is
// test code, so nothing can import it.
//
//	state_test.go       what a state is          rules_test.go    the rules, each with a switch, and the bounds
//	claim_test.go       create, verify           release_test.go  use, give back, delete
//	restart_test.go     agent and machine        restore_test.go  backup, restore, recovery
//	nodedelete_test.go  porin node delete        pool_test.go     the pool is created again
//	explore_test.go     the search               liveness_test.go is anything lost for good?
//	model_test.go       the situations, the table of rules, the limits
//
// Modelled: one block, and a second one that overlaps it, cut by a later pool of another block size. Two or three
// nodes. A request is executed at any later time, or never; its sender stops waiting at any time; with copies, a delete
// is executed again. The number of claims is not bounded, only how many of one node exist at a time (two or three: A1,
// A2). Agents stop while pods run on, and start from the checkpoint; machines go down and boot; a new machine with the
// name of an old one appears. The reads after a create are steps of their own. Each search bounds restarts, reboots and
// node deletions by number (one each, over all nodes), and has at most one backup and one restore. The administrator
// sets the mark before the restore, waits until every node that runs knows of it, and keeps the others away from the
// restored store until one has set it again; or, with unmarked, the first node that notices sets it. A node that has
// seen the store before the restore notices, unless its position tells nothing (bumped): then only a node whose own
// claim is gone, or that knows of a mark which is gone, does. A new one never does.
//
// Simpler than the real thing: one comparison with the store (own record, cluster record, blocks) is one step; so is
// the write of a checkpoint; a block has one address, which is used or not; a give-back needs no time, and a released
// address no rest; a record carries an incarnation, so a node that lost its disk is a new one. A node is only deleted
// when its machine is off.
//
// Not modelled: cloned disks and sessions (one incarnation on two machines), machines that go back to a snapshot of
// their memory, a store that was rolled back to a position that looks like a later one, a second restore, quarantine,
// reservations, dual-stack claims, several administrators at a time, and clocks, of which the design has none.
//
// `go test` runs only the smaller searches; `make model` runs them all in a minute and one gigabyte. -v prints the
// number of states of each search, and the counterexamples.
package model
