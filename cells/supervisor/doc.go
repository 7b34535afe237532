// Package supervisor runs the tasks of all cells and says how the agent is.
//
//	cells --Tasks--> [Supervisor] --starts when everything is restored--> tasks     GET /v1/controller, POST /v1/controller/{name}/run
//	cells --Health->     |                                                          GET /v1/status: health
//	                     '--> --health-address: /livez, /readyz                     (kubelet)
//
// A task that ends by itself stops the agent. One that fails again and again degrades it. The agent is alive while no
// cell is failing, and ready while it serves its API besides: a store that is away, or attachments that it holds, are
// no reason to restart it.
package supervisor
