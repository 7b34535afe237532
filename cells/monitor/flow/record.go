package flow

import (
	"math"
	"net/netip"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/accesslog"
)

// verdict is what became of a packet.
type verdict uint8

const (
	allowed verdict = iota
	audit
	denied
	dropped
	verdicts // how many there are
)

func (v verdict) String() string { return v1.FlowVerdicts()[v] }

// record is a flow as the ring keeps it. What records share, they point to.
type record struct {
	time int64 // Unix, ns
	lost uint64
	connection
	decisions
	length   uint32
	reason   uint8
	place    uint8
	protocol uint8
	verdict  verdict
	// onlyRecent is not shown: the proxy tells of the request that the packet carries.
	onlyRecent bool
	request    *accesslog.Request // through the proxy; nil for a packet
}

// placeProxy is where requests are seen; the datapath has the other places.
const placeProxy = math.MaxUint8

// connection is one as it is told: from has opened it.
type connection struct {
	from, to end
	names    []string       // of to, which is outside of the cluster, as from has got them by DNS
	service  netip.AddrPort // what from has addressed, if the node has translated that
	reply    bool           // the packet goes from to to from
}

func (conn connection) reversed() connection {
	conn.from, conn.to, conn.reply = conn.to, conn.from, !conn.reply
	return conn
}

// decisions are the policies' decisions.
type decisions struct {
	egress, ingress engine.Decision
	ruled           bool // there are some
}

// end is one end of a connection.
type end struct {
	netip.AddrPort
	kind  model.EndpointKind
	class engine.ClassID
	pod   *Pod // nil if the end is not a known pod
}

// Pod is an endpoint as flows show it. It does not change.
type Pod struct {
	ID              uint16 // 0 on another node
	Attachment      string // the key that policies know it by
	Namespace, Name string
	Labels          map[string]string
}

// attachment is "" for no pod.
func (p *Pod) attachment() string {
	if p == nil {
		return ""
	}
	return p.Attachment
}

func (p *Pod) isRemote() bool { return p != nil && p.ID == 0 }

func (p *Pod) isLocal() bool { return p != nil && p.ID != 0 }

func (r *record) dropReason() abi.DropReason { return abi.DropReason(r.reason) }

// toV1 is the line of a record.
func (r *record) toV1(seq uint64) v1.Flow {
	f := v1.Flow{Seq: seq, Time: time.Unix(0, r.time).UTC(), Lost: r.lost}
	if r.lost > 0 {
		return f
	}
	f.Verdict, f.Place, f.Direction = r.verdict.String(), placeName(r.place), r.direction()
	if r.protocol != 0 { // a malformed packet has protocol 0
		f.Protocol = model.Protocol(r.protocol).String()
	}
	if r.dropReason() != abi.DropNone {
		f.Reason = r.dropReason().String()
	}
	if r.request != nil {
		requestToV1(&f, r.request)
	}
	f.From, f.To, f.Reply, f.Length = r.from.toV1(), r.to.toV1(), r.reply, r.length
	f.To.Names = r.names
	if r.service.IsValid() {
		f.Service = v1.FlowEnd{Address: r.service.Addr(), Port: r.service.Port()}
	}
	if r.ruled {
		f.Egress, f.Ingress = new(policy.DecisionToV1(r.egress)), new(policy.DecisionToV1(r.ingress))
	}
	return f
}

func (e end) toV1() v1.FlowEnd {
	out := v1.FlowEnd{Address: e.Addr(), Port: e.Port(), Identity: uint32(e.class)}
	if e.Addr().IsValid() || e.pod != nil {
		out.Kind = e.kind.String()
	}
	if e.pod != nil {
		out.Pod, out.Endpoint, out.Labels = v1.Pod{Namespace: e.pod.Namespace, Name: e.pod.Name}, e.pod.ID, e.pod.Labels
	}
	return out
}

// direction is egress when the packet was seen at the end that has opened the connection, or the request is a pod's of
// this node.
func (r *record) direction() string {
	ingress := (r.place == abi.EventToPod) != r.reply
	if r.place == placeProxy {
		ingress = !r.from.pod.isLocal()
	}
	if ingress {
		return v1.FlowIngress
	}
	return v1.FlowEgress
}

func placeName(place uint8) string {
	switch place {
	case abi.EventFromPod:
		return "from-pod"
	case abi.EventToPod:
		return "to-pod"
	case abi.EventToUplink:
		return "to-uplink"
	case placeProxy:
		return "proxy"
	}
	return ""
}
