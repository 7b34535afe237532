// Package bandwidth limits how much an endpoint gets and sends, by token buckets on the node's side of its link, where
// the container cannot reach them.
//
//	others, the node --> to_pod --> token bucket --> container                     ingress: the root qdisc of the host end
//	container --> from_pod --> filter --> token bucket --> the node's stack        egress: a device of the kind ifb
//
// [Step] comes after link, which makes the host end, and before datapath, which brings it up. The programs of the
// datapath know which endpoints are limited, and send all their packets through the node's stack: the shortcut and the
// path to other nodes bypass all queues. from_pod comes before the filter, so a queued packet has been checked, and
// bears the mark of its sender.
//
// Objects on the host end go with it. The ifb has a name that follows from the host end's, which is the mark of objects
// that are Porin's here. [Checker] is the doctor's, and repairs limits as soon as the kernel notifies of a change. An
// endpoint without limits has nothing, and costs no call.
package bandwidth
