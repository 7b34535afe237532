package flow

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/accesslog"
	"porin.dev/porin/internal/conntrack"
)

// How an event becomes a record. Each function takes values and returns new ones:
//
//	FlowEvent -> packet -> connection: from and to, before and after the node's translation
//	                           |-----> with their pods (directory)
//	                           '-----> with kinds and classes, and the verdict (Policies) -> decisions -> record

// trackedTime is how long the kernel surely knows a connection that was opened: then an unanswered one may be
// forgotten.
const trackedTime = 10 * time.Second

// recordOf says what an event means; false when it is not to be told.
func (c *Collector) recordOf(e *abi.FlowEvent) (record, bool) {
	p := packet{
		FlowEvent: e, at: time.Duration(e.Time),
		tuple: conntrack.Tuple{Source: netip.AddrPortFrom(e.Source.IP(), abi.Port(e.SourcePort)), Destination: netip.AddrPortFrom(e.Destination.IP(), abi.Port(e.DestinationPort))},
	}
	if p.isUndecided() {
		return c.recordOfUndecided(p)
	}
	r := c.recordOfDecided(p)
	r.onlyRecent = p.Path == abi.PathProxy && r.verdict == allowed && c.isToldAsQuery(p)
	return r, true
}

// packet is what an event is about.
type packet struct {
	*abi.FlowEvent
	at    time.Duration // since boot
	tuple conntrack.Tuple
}

func (p packet) dropReason() abi.DropReason { return abi.DropReason(p.Reason) }

// isUndecided reports whether the packet goes up the node's stack, undecided.
func (p packet) isUndecided() bool {
	return p.Place == abi.EventFromPod && p.dropReason() == abi.DropNone && p.Path == abi.PathStack
}

// byPolicy reports whether policies have decided: the datapath's other reasons come before.
func (p packet) byPolicy() bool {
	switch p.dropReason() {
	case abi.DropNone, abi.DropPolicyEgress, abi.DropPolicyIngress, abi.DropPolicyUnmanaged:
		return true
	}
	return false
}

// agrees reports whether the policies say now what the datapath has done.
func (p packet) agrees(v engine.Verdict) bool {
	switch p.dropReason() {
	case abi.DropPolicyEgress:
		return !v.Egress.Allowed
	case abi.DropPolicyIngress:
		return !v.Ingress.Allowed
	case abi.DropPolicyUnmanaged:
		return !v.Allowed
	}
	return v.Allowed
}

// connection is the packet's connection, as if its sender had opened it and nothing was translated.
func (p packet) connection() connection {
	return connection{from: end{AddrPort: p.tuple.Source}, to: end{AddrPort: p.tuple.Destination}}
}

func (p packet) record(conn connection, d decisions, v verdict) record {
	return record{connection: conn, decisions: d, length: p.Length, reason: p.Reason, place: p.Place, protocol: p.Protocol, verdict: v}
}

// isToldAsQuery reports whether the proxy, which gets the packet, tells of it: datagrams are queries.
func (c *Collector) isToldAsQuery(p packet) bool {
	return p.Protocol == uint8(model.UDP) && c.proxy.Healthy() == nil
}

// recordOfUndecided says what becomes of an undecided packet; false when the datapath sees it again, and tells.
func (c *Collector) recordOfUndecided(p packet) (record, bool) {
	conn := p.connection()
	tracked, found, err := c.translate(p.Protocol, p.tuple, false)
	if found && tracked.Original == p.tuple {
		conn = translated(tracked)
	}
	if !found && err == nil && c.directory.now()-p.at > trackedTime { // it was told while no agent ran
		c.lostInThisRound++
		return record{}, false
	}
	conn.from.pod, conn.to.pod = c.directory.byID(p.Id, p.at), c.podAt(conn.to.Addr(), p.at)
	if conn.to.pod != nil && !conn.to.pod.isRemote() {
		return record{}, false
	}
	conn, v := c.evaluate(conn, p.Protocol)
	d, became := decisionsOf(conn, v)
	if v.Egress.Layer7 != nil && conn.to.kind != model.Host {
		return record{}, false // the program on the uplink tells when it hands the packet to the proxy
	}
	if v.Egress.Allowed {
		r := p.record(conn, d, became)
		r.onlyRecent = v.Egress.Layer7 != nil && c.isToldAsQuery(p)
		return r, true
	}
	// Packets that the node's table of nftables drops are reported nowhere else, and conntrack does not know them. All
	// others reach the program on the uplink.
	toHost := conn.to.kind == model.Host
	if (found || err != nil) && !toHost {
		return record{}, false
	}
	if !found && !toHost {
		d = decisions{}
	}
	r := p.record(conn, d, denied)
	r.reason = uint8(abi.DropPolicyEgress)
	return r, true
}

// recordOfDecided says what the datapath has decided about a packet.
func (c *Collector) recordOfDecided(p packet) record {
	conn := p.connection()
	if p.Place != abi.EventFromPod && p.byPolicy() {
		conn = c.beforeTranslation(p)
	}
	conn = c.withPods(conn, p)
	evaluated, v := c.evaluate(conn, p.Protocol)
	if !p.byPolicy() {
		return p.record(evaluated, decisions{}, dropped)
	}
	if p.agrees(v) {
		return p.recordDecisions(evaluated, v)
	}
	if p.dropReason() == abi.DropNone {
		return p.record(evaluated, decisions{}, allowed)
	}
	if !conn.reply { // an answer that the datapath does not report as one?
		if reversed, v := c.evaluate(conn.reversed(), p.Protocol); p.agrees(v) {
			return p.recordDecisions(reversed, v)
		}
	}
	return p.record(evaluated, decisions{}, denied)
}

// readRequests returns the records of what the proxy tells.
func (c *Collector) readRequests() (batch []record, lost uint64) {
	requests, lost := c.requests.Read()
	for i := range requests {
		batch = append(batch, c.recordOfProxied(&requests[i]))
	}
	return batch, lost
}

var verdictOf = map[accesslog.Verdict]verdict{accesslog.Allowed: allowed, accesslog.Denied: denied, accesslog.Refused: dropped}

// recordOfProxied says what a request means. Its decisions are those about its connection, without the rules for
// requests.
func (c *Collector) recordOfProxied(q *accesslog.Request) record {
	at := c.directory.now() - time.Since(q.Time)
	conn := connection{from: end{AddrPort: q.Client}, to: end{AddrPort: q.Server}}
	conn.from.pod, conn.to.pod = c.podAt(q.Client.Addr(), at), c.podAt(q.Server.Addr(), at)
	conn, v := c.evaluate(conn, uint8(q.Protocol))
	d, _ := decisionsOf(conn, v)
	if !v.Allowed {
		d = decisions{} // it has changed since
	}
	became, ok := verdictOf[q.Verdict]
	if !ok {
		became = dropped // a word of a later porin-proxy
	}
	return record{time: q.Time.UnixNano(), connection: conn, decisions: d, place: placeProxy, protocol: uint8(q.Protocol), verdict: became, request: q}
}

// recordDecisions expects that the policies agree with the datapath.
func (p packet) recordDecisions(conn connection, v engine.Verdict) record {
	d, became := decisionsOf(conn, v)
	if p.dropReason() != abi.DropNone {
		became = denied
	}
	return p.record(conn, d, became)
}

// withPods returns the connection with the pods that its ends were when the packet passed.
func (c *Collector) withPods(conn connection, p packet) connection {
	own := c.directory.byID(p.Id, p.at)
	podAt := func(e end, isOwn bool) *Pod {
		if isOwn && own != nil {
			return own
		}
		return c.podAt(e.Addr(), p.at)
	}
	fromOwn := (p.Place == abi.EventToPod) == conn.reply // whose is the ID
	conn.from.pod, conn.to.pod = podAt(conn.from, fromOwn), podAt(conn.to, !fromOwn && p.Place != abi.EventToUplink)
	return conn
}

// podAt returns the pod that had the address at that time, or nil. For pods of other nodes, older times are not known.
func (c *Collector) podAt(addr netip.Addr, at time.Duration) *Pod {
	pod := c.directory.byAddress(addr, at)
	if pod != nil || c.directory.now()-at > departedTime {
		return pod
	}
	if ep, ok := c.policies.RemotePod(addr); ok {
		return &Pod{Attachment: ep.Key, Namespace: ep.Namespace, Name: ep.Name, Labels: ep.Labels}
	}
	return nil
}

// ownerOf returns the attachment that has the address now, or "".
func (c *Collector) ownerOf(addr netip.Addr) string {
	return c.podAt(addr, c.directory.now()).attachment()
}

// beforeTranslation returns the connection of a packet that comes out of the node's stack.
func (c *Collector) beforeTranslation(p packet) connection {
	reverse := p.tuple.Reverse()
	tracked, found, _ := c.translate(p.Protocol, reverse, true)
	switch {
	case found && tracked.Reply == reverse:
		return translated(tracked)
	case found && tracked.Original == reverse:
		conn := translated(tracked)
		conn.reply = true
		return conn
	}
	return p.connection()
}

// translated returns a connection with the opener as it was before translation, and the other end as it is after it.
func translated(tracked conntrack.Connection) connection {
	conn := connection{from: end{AddrPort: tracked.Original.Source}, to: end{AddrPort: tracked.Reply.Source}}
	if tracked.Original.Destination != conn.to.AddrPort {
		conn.service = tracked.Original.Destination
	}
	return conn
}

func (c *Collector) translate(protocol uint8, packet conntrack.Tuple, answers bool) (t conntrack.Connection, found bool, err error) {
	t, found, err = c.translations.Translate(protocol, packet, answers)
	if err != nil && !errors.Is(err, unix.EINVAL) && !c.untranslatable { // the kernel cannot be asked about GRE, which a pod may send
		c.untranslatable = true
		c.log.Warn("flows are shown without the node's translation of addresses", "error", err)
	}
	return t, found, err
}

// evaluate asks the policies. It returns the connection with the kinds and classes of its ends, and the names of a
// server outside of the cluster.
func (c *Collector) evaluate(conn connection, protocol uint8) (connection, engine.Verdict) {
	var v engine.Verdict
	from, to := conn.from.Addr(), conn.to.Addr()
	if from.IsValid() && to.IsValid() && from.Is4() == to.Is4() {
		v = c.policies.Evaluate(from, to, model.Protocol(protocol), conn.to.Port())
	}
	// Another node decides about its pods, which may be in audit there. A denied packet has passed it.
	if conn.from.pod.isRemote() && !v.Egress.Allowed {
		v.Egress, v.AuditEgress = engine.Decision{Allowed: true, Reason: engine.ReasonOtherNode}, nil
	}
	if conn.to.pod.isRemote() && !v.Ingress.Allowed {
		v.Ingress, v.AuditIngress = engine.Decision{Allowed: true, Reason: engine.ReasonOtherNode}, nil
	}
	v.Allowed = v.Egress.Allowed && v.Ingress.Allowed
	conn.from.kind, conn.from.class = conn.from.known(v.From)
	conn.to.kind, conn.to.class = conn.to.known(v.To)
	conn.names = nil
	if conn.from.pod != nil && conn.from.isStill(v.From) && conn.to.kind == model.World && to.IsValid() {
		conn.names = c.names.NamesOf(conn.from.pod.ID, to)
	}
	return conn, v
}

// known returns what the policies say of an end, if they know it as the endpoint that it was.
func (e end) known(now engine.End) (model.EndpointKind, engine.ClassID) {
	if !e.isStill(now) {
		return model.Pod, 0
	}
	return now.Kind, now.Class
}

// isStill reports whether the policies know the end as the endpoint that it was.
func (e end) isStill(now engine.End) bool {
	if e.pod == nil {
		return now.Kind != model.Pod
	}
	return now.Endpoint == e.pod.Attachment
}

// decisionsOf returns what the policies decide, if they speak of these endpoints, and what becomes of the packet unless
// it is denied. Of what passes only as policies are in audit, it returns what they would decide.
func decisionsOf(conn connection, v engine.Verdict) (d decisions, became verdict) {
	if !conn.from.isStill(v.From) || !conn.to.isStill(v.To) {
		return decisions{}, allowed
	}
	d = decisions{egress: v.Egress, ingress: v.Ingress, ruled: true}
	if !v.Allowed {
		return d, allowed
	}
	if v.AuditEgress != nil && !v.AuditEgress.Allowed {
		d.egress, became = *v.AuditEgress, audit
	}
	if v.AuditIngress != nil && !v.AuditIngress.Allowed {
		d.ingress, became = *v.AuditIngress, audit
	}
	return d, became
}
