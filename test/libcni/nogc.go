//go:build !libcni12

package main

// libcni before 1.2 has neither call.
func (*runtime) status() call { return call{} }
func (*runtime) gc() call     { return call{} }
