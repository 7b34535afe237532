// Package kubernetestest is an API server in memory, for tests: lists in pages, watches with bookmarks, versions,
// preconditions. It is as strict as the real one where a client could get used to something: a version that was
// compacted is 410, a write without the last version a conflict, a watch from a version of the future is accepted and
// says nothing. It refuses an object that does not fit the Go type of its kind, if the scheme has one.
//
// A [Server] is an http.Handler, so that processes in other network namespaces reach it, too. [Server.Fault] has it
// fail.
package kubernetestest
