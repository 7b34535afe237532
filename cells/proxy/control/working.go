package control

// Working implements policy.Proxy.
func (r *Remote) Working() error { return r.Status().Err }
