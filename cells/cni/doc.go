// Package cni answers the calls that the CNI plugin carries from container runtimes: its answer is what the plugin
// prints.
//
//	porin-cni -- POST /v1/cni: environment, configuration, start time; the namespace as a descriptor --> [handler]
//	  ADD     -> endpointmanager.Create, whose steps do everything     CHECK  -> link.Inspector, doctor, IPAM plugin
//	  DEL     -> endpointmanager.Delete                                STATUS -> capacity, IPAM plugin
//	  GC      -> endpointmanager.Collect, IPAM plugin                  VERSION is answered by the plugin itself
//
// It speaks CNI 0.3.0 to 1.1.0. Only callers with uid 0 are served, whatever the socket's group may do: the call names
// programs to run (ipam) and containers of others. An answer with status 200 or 422 is what the plugin prints; any
// other one is a problem, and means that the agent did not finish the call, though a DEL may still be under way: the
// plugin then answers ADD with 11 (try again later) and does DEL alone.
//
// The doctor learns from checker.go why a container runtime does not call: another configuration comes first, or it
// reads another folder.
//
// While the agent serves, a heartbeat file shows plugins that find no agent whether one was there lately: STATUS
// succeeds while the agent is restarted.
package cni
