// Package ipam calls the IPAM plugin that a network configuration names (CNI specification 1.1.0, section 4).
//
//	p, fault := ipam.Find("host-local", os.Getenv("CNI_PATH"))
//	p.Env, p.Stdin = os.Environ(), config
//	given, err := p.Add(deadline)
//	err = p.Call("DEL", deadline)
//
// It gets what its caller got: the same environment, but for the command, and the same configuration, byte by byte. An error
// that it prints is the caller's, with code, message and details as they are. Whatever else it does, that is not success, is
// an error that names it.
package ipam
