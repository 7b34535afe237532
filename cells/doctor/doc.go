// Package doctor finds where ledger, endpoints, addresses and kernel disagree, and has it repaired.
//
//	every interval, GET /v1/doctor --> [Doctor] --> each [Checker].Examine  (endpointmanager, ipam, multipool, ...)
//	                                      |
//	                                      '-- the same finding twice in a row --> Finding.Repair, by its owner
//
// The doctor knows no kind of disagreement: each cell that owns something contributes a [Checker] for it. A single
// finding may be a passing state. So a checker that has found something is run again a moment later, and nothing is
// repaired before two examinations have found it, a second apart, and it was not gone in between. A repair that fails,
// or that does not help, is tried again after further examinations that find the same, at growing distances. POST
// /v1/doctor examines twice and repairs now.
//
// When a checker fails or panics, its earlier findings stay known, neither found again nor gone. A [Costly] one is
// run when a caller asks, and now and then. Only one examination runs at a time, and only one repair.
//
// A caller may restrict an examination to one subject, such as [Addresses]. Besides disagreements the answer has notes,
// which are worth knowing and need no repair.
package doctor
