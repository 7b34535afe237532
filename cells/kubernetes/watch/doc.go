// Package watch follows the objects of one kind of the API server.
//
//	API server -- pages of a list -->  [Source] -- slim objects --> [Loop] --> [Handler]
//	           -- events, bookmarks -->
//
// A [Loop] lists the kind, page by page, and then watches it. When the watch ends, the loop goes on from the last
// version it has seen. Before that it reads the kind's present version, and lists again if that is lower. The reason is
// an API server whose etcd was restored from a backup: it accepts a watch from a version of the future with 200, and
// sends nothing until it is there (https://github.com/kubernetes/kubernetes/issues/107457). It may also have come past
// that version by now. So the loop reads the object that changed last, too. If that is not as it was, the watch begins
// before its last change, and lists again unless that is the first event.
//
// With [Loop.ResumeFrom] a loop goes on from the [Mark] of an earlier loop in the same way. The handler gets the
// objects of the earlier loop in place of a list.
//
// Guarantees for a [Handler]: its methods are called from one goroutine, in the server's order. [Handler.Replace] has
// the whole kind at one version; an object that was deleted while no watch ran is missing there. A loop that cannot
// reach the server calls nothing: the handler keeps its objects.
package watch
