// porin-cni is the CNI plugin of Porin. It carries a call of a container runtime to porin-agent and prints the answer.
//
//	runtime -> environment, stdin -> [run] -- POST /v1/cni, the namespace as a descriptor --> agent -> result -> stdout
//	                                   `-- no agent: ADD waits until its deadline; DEL cuts, records, removes; STATUS: the heartbeat
//
// porin-cni install is the init step of a DaemonSet: it copies the plugin to the node.
//
// It holds no state and no policy, and links little: a process starts for every pod, twice, and package initialisation
// is what that costs.
package main

import "os"

func main() {
	os.Exit(run(process{args: os.Args[1:], getenv: os.Getenv, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}))
}
