package policy

import (
	"net/netip"
	"testing"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

func TestEvaluate(t *testing.T) {
	n := servingNode(t, "")
	n.put(t, toWebFrom("client"))
	web, client, other := pod(1, "web"), pod(2, "client"), pod(3, "other")
	n.attach(t, web)
	n.attach(t, client)
	n.attach(t, other)
	for _, row := range []struct {
		from netip.Addr
		end  engine.End
		want engine.Reason
	}{
		{client.Addresses.IPv4, engine.End{Kind: model.Pod, Endpoint: "c2:eth0", Namespace: "default", Name: "pod-c2"}, engine.ReasonRule},
		{other.Addresses.IPv4, engine.End{Kind: model.Pod, Endpoint: "c3:eth0", Namespace: "default", Name: "pod-c3"}, engine.ReasonDefaultDeny},
		{netip.MustParseAddr("192.0.2.1"), engine.End{Kind: model.World}, engine.ReasonDefaultDeny},
	} {
		n.queue.view.read(func(e *engine.Engine) { row.end.Address, row.end.Class = row.from, e.End(row.from).Class })
		v := n.queue.view.Evaluate(row.from, web.Addresses.IPv4, model.TCP, 80)
		if v.From != row.end || v.To.Endpoint != "c1:eth0" || v.To.Kind != model.Pod {
			t.Errorf("%s: from %+v to %+v, want from %+v to web", row.from, v.From, v.To, row.end)
		}
		if !v.Egress.Allowed || v.Ingress.Reason != row.want {
			t.Errorf("%s: egress %s, ingress %s, want ingress by %s", row.from, v.Egress, v.Ingress, row.want)
		}
	}
}
