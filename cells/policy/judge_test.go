package policy

import (
	"net/netip"
	"testing"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

func TestJudge(t *testing.T) {
	n := servingNode(t, "")
	n.put(t, toWebFrom("client"))
	web, client, other := pod(1, "web"), pod(2, "client"), pod(3, "other")
	n.attach(t, web)
	n.attach(t, client)
	n.attach(t, other)
	for _, row := range []struct {
		from netip.Addr
		side Side
		want engine.Reason
	}{
		{client.Addresses.IPv4, Side{Kind: model.Pod, Endpoint: "c2:eth0"}, engine.ReasonRule},
		{other.Addresses.IPv4, Side{Kind: model.Pod, Endpoint: "c3:eth0"}, engine.ReasonDefaultDeny},
		{netip.MustParseAddr("192.0.2.1"), Side{Kind: model.World}, engine.ReasonDefaultDeny},
	} {
		n.queue.view(func(e *engine.Engine) { row.side.Class, _ = e.Class(row.from) })
		j := n.queue.Judge(row.from, web.Addresses.IPv4, model.TCP, 80)
		if j.From != row.side || j.To.Endpoint != "c1:eth0" || j.To.Kind != model.Pod {
			t.Errorf("%s: from %+v to %+v, want from %+v to web", row.from, j.From, j.To, row.side)
		}
		if !j.Egress.Allowed || j.Ingress.Reason != row.want {
			t.Errorf("%s: egress %s, ingress %s, want ingress by %s", row.from, j.Egress, j.Ingress, row.want)
		}
	}
}
