package datapath

import v1 "porin.dev/porin/api/v1"

// reporter adds what is loaded to the agent's status.
type reporter struct{ datapath *Datapath }

func newReporter(d *Datapath) *reporter { return &reporter{datapath: d} }

func (r *reporter) Report(status *v1.Status) { status.Datapath = r.datapath.Status() }
