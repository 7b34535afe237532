package policymap

// Waits reports whether there is something left to remove.
func (w *Writer) Waits() bool { return len(w.pending) > 0 }
