// Package deletionrecords keeps, on disk, deletions that the CNI plugin could not tell the agent, until the agent works
// them off.
//
//	plugin (agent does not answer)                     agent
//	w := Begin(dir)         shared lock                n, err := Drain(dir, delete)   exclusive lock
//	ask the agent again                                listen
//	w.Put(record)           durable when it returns    n, err := Drain(dir, delete)   what came in between
//	w.Close()
//
// Nothing is lost: whoever finds the agent silent while it holds the shared lock has written its record before the
// agent's second Drain, which begins after the agent listens, gets the exclusive one. There is no limit to their
// number.
//
// A folder has one file for each record, "<sha256 of its content>.delete", so that the same twice is one, and two
// writers never meet in a file. It imports little, for the plugin is a process that starts for every pod.
package deletionrecords
