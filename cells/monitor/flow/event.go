package flow

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/conntrack"
)

// trackedTime is how long the kernel surely knows a connection that was opened: then an unanswered one may be forgotten.
const trackedTime = 10 * time.Second

// recordOf says what an event means; false when it is not to be told.
func (c *Collector) recordOf(e *abi.FlowEvent) (record, bool) {
	f := event{
		FlowEvent: e, at: time.Duration(e.Time),
		packet: conntrack.Tuple{Source: netip.AddrPortFrom(e.Source.IP(), abi.Port(e.SourcePort)), Destination: netip.AddrPortFrom(e.Destination.IP(), abi.Port(e.DestinationPort))},
		record: record{length: e.Length, reason: e.Reason, place: e.Place, protocol: e.Protocol},
	}
	f.from.AddrPort, f.to.AddrPort = f.packet.Source, f.packet.Destination
	if f.isRequest() {
		return f.record, c.request(&f)
	}
	c.decided(&f)
	return f.record, true
}

// event is an event on its way to be a record.
type event struct {
	*abi.FlowEvent
	record
	at     time.Duration // since boot
	packet conntrack.Tuple
}

// isRequest reports whether the packet goes up the node's stack, undecided.
func (f *event) isRequest() bool {
	return f.Place == abi.EventFromPod && f.dropReason() == abi.DropNone && f.Path == abi.PathStack
}

// byPolicy reports whether policies have decided: the datapath's other reasons come before.
func (f *event) byPolicy() bool {
	switch f.dropReason() {
	case abi.DropNone, abi.DropPolicyEgress, abi.DropPolicyIngress:
		return true
	}
	return false
}

// request fills in what becomes of a pod's request; false when the datapath sees it again, and tells.
func (c *Collector) request(f *event) bool {
	t, found, err := c.translate(f.Protocol, f.packet, false)
	if found && t.Original == f.packet {
		f.translateTo(t)
	}
	if !found && err == nil && c.directory.now()-f.at > trackedTime { // it was told while no agent ran
		c.lostInThisRound++
		return false
	}
	f.from.pod, f.to.pod = c.directory.byID(f.Id, f.at), c.directory.byAddress(f.to.Addr(), f.at)
	if f.to.pod != nil {
		return false
	}
	v := c.evaluate(f)
	f.rule(v)
	if v.Egress.Allowed {
		return true
	}
	// What the node's table of nftables drops, nobody else tells of, and conntrack does not know it. All others reach the program on the uplink.
	if (found || err != nil) && f.to.kind != model.Host {
		return false
	}
	f.reason, f.verdict = uint8(abi.DropPolicyEgress), denied
	f.ruled = f.ruled && (found || f.to.kind == model.Host)
	return true
}

// decided fills in what the datapath says of a packet that it has decided about.
func (c *Collector) decided(f *event) {
	if f.Place != abi.EventFromPod && f.byPolicy() {
		c.translated(f)
	}
	own := c.directory.byID(f.Id, f.at)
	fromOwn := (f.Place == abi.EventToPod) == f.reply // whose is the number
	f.from.pod, f.to.pod = c.podAt(f, f.from, own, fromOwn), c.podAt(f, f.to, own, !fromOwn && f.Place != abi.EventToUplink)
	switch {
	case !f.byPolicy():
		f.verdict = dropped
		c.evaluate(f)
		return
	case f.dropReason() != abi.DropNone:
		f.verdict = denied
	}
	if v := c.evaluate(f); f.agrees(v) {
		f.rule(v)
		return
	}
	if f.verdict != denied || f.reply {
		return
	}
	// An answer, of which the datapath does not say that it is one?
	f.swap()
	if v := c.evaluate(f); f.agrees(v) {
		f.rule(v)
		return
	}
	f.swap()
	c.evaluate(f)
}

func (c *Collector) podAt(f *event, e end, own *Pod, isOwn bool) *Pod {
	if isOwn && own != nil {
		return own
	}
	return c.directory.byAddress(e.Addr(), f.at)
}

func (f *event) swap() { f.from, f.to, f.reply = f.to, f.from, !f.reply }

// translated fills in the real ends of a packet that comes out of the node's stack.
func (c *Collector) translated(f *event) {
	t, found, _ := c.translate(f.Protocol, f.packet.Reverse(), true)
	switch {
	case !found:
	case t.Reply == f.packet.Reverse():
		f.translateTo(t)
	case t.Original == f.packet.Reverse():
		f.translateTo(t)
		f.reply = true
	}
}

// translateTo has the opener as it was before translation, and the other end as it is after it.
func (f *event) translateTo(t conntrack.Connection) {
	f.from.AddrPort, f.to.AddrPort = t.Original.Source, t.Reply.Source
	if t.Original.Destination != f.to.AddrPort {
		f.service = t.Original.Destination
	}
}

func (c *Collector) translate(protocol uint8, packet conntrack.Tuple, answers bool) (t conntrack.Connection, found bool, err error) {
	t, found, err = c.translations.Translate(protocol, packet, answers)
	if err != nil && !errors.Is(err, unix.EINVAL) && !c.untranslatable { // the kernel cannot be asked about GRE, which a pod may send
		c.untranslatable = true
		c.log.Warn("flows are shown without the node's translation of addresses", "error", err)
	}
	return t, found, err
}

// evaluate asks the policies, and fills in whose the ends are.
func (c *Collector) evaluate(f *event) (v engine.Verdict) {
	from, to := f.from.Addr(), f.to.Addr()
	if from.IsValid() && to.IsValid() && from.Is4() == to.Is4() {
		v = c.policies.Evaluate(from, to, model.Protocol(f.Protocol), f.to.Port())
	}
	f.from.fill(v.From)
	f.to.fill(v.To)
	return v
}

func (e *end) fill(known engine.End) {
	e.kind, e.class = known.Kind, known.Class
	if !e.matches(known) {
		e.kind, e.class = model.Pod, 0
	}
}

// matches reports whether the policies know the end as the endpoint that it was.
func (e *end) matches(known engine.End) bool {
	if e.pod == nil {
		return known.Kind != model.Pod
	}
	return known.Endpoint == e.pod.Attachment
}

// rule keeps the decisions, if the policies speak of these endpoints. Of what passes only as policies are in audit, it keeps what they would decide.
func (f *event) rule(v engine.Verdict) {
	if !f.from.matches(v.From) || !f.to.matches(v.To) {
		return
	}
	f.egress, f.ingress, f.ruled = v.Egress, v.Ingress, true
	if !v.Egress.Allowed || !v.Ingress.Allowed {
		return
	}
	if v.AuditEgress != nil && !v.AuditEgress.Allowed {
		f.egress, f.verdict = *v.AuditEgress, audit
	}
	if v.AuditIngress != nil && !v.AuditIngress.Allowed {
		f.ingress, f.verdict = *v.AuditIngress, audit
	}
}

// agrees reports whether the policies say now what the datapath has done.
func (f *event) agrees(v engine.Verdict) bool {
	switch f.dropReason() {
	case abi.DropPolicyEgress:
		return !v.Egress.Allowed
	case abi.DropPolicyIngress:
		return !v.Ingress.Allowed
	}
	return v.Egress.Allowed && v.Ingress.Allowed
}
