// Package doctor finds where ledger, endpoints, addresses and kernel disagree, and has it repaired.
//
//	every interval, GET /v1/doctor --> [Doctor] --> each [Checker].Examine  (endpointmanager, ipam, blocks, datapath, ...)
//	                                      |
//	                                      '-- the same finding twice in a row --> Finding.Repair, by its owner
//
// The doctor knows no kind of disagreement: each cell that owns something contributes a [Checker] for it. A single
// finding may be a passing state. So each examination looks again a moment later at what it has found, and nothing is
// repaired before two examinations have found it, a second apart, and it was not gone in between. A repair that fails, or
// that does not help, is tried again after further examinations that find the same, at growing distances. POST /v1/doctor
// looks twice and repairs now.
//
// A checker that fails or panics has not looked: what it found before is still known, neither found again nor gone. One that
// is [Costly] looks when somebody asks, and now and then. Only one examination runs at a time, and only one repair.
//
// Who asks about one subject, such as [Addresses], is told what is about that. Besides disagreements the answer has notes:
// what is as it may be, and worth knowing.
package doctor
