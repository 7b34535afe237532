package cluster_test

import (
	"net/netip"
	"strings"
	"testing"

	"porin.dev/porin/cells/cluster"
)

// TestHostileRecords has records of a node that means ill. A good one differs in one value.
func TestHostileRecords(t *testing.T) {
	t.Parallel()
	node := cluster.NodeID{Name: "n1", Key: "aaaaaaaaaa"}
	network := func(blocks ...string) error {
		n := cluster.NodeNetwork{Node: node, Agent: "a", Routing: cluster.RoutingNative}
		for _, b := range blocks {
			n.Blocks = append(n.Blocks, netip.MustParsePrefix(b))
		}
		return n.Validate()
	}
	group := func(change func(*cluster.LabelSet, *cluster.PublishedEndpoint)) error {
		set := cluster.LabelSet{Namespace: "shop", Labels: map[string]string{"app": "web"}}
		ep := cluster.PublishedEndpoint{
			Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.5")}, Pod: "web-1", NamedPorts: []cluster.PublishedPort{{Name: "http", Protocol: "TCP", Port: 80}},
		}
		change(&set, &ep)
		return cluster.EndpointGroup{Node: node, LabelSets: []cluster.LabelSet{set}, Endpoints: []cluster.PublishedEndpoint{ep}}.Validate()
	}
	many := map[string]string{}
	for range 257 {
		many["k"+strings.Repeat("k", len(many)%60)+string(rune('a'+len(many)%26))+strings.Repeat("x", len(many)/60)] = ""
	}
	for what, row := range map[string]struct {
		err  error
		want string // of the error; "" for none
	}{
		"blocks":                      {network("10.0.0.0/12", "fd00::/48"), ""},
		"a quarter of the Internet":   {network("64.0.0.0/2"), "at least 12 bits"},
		"all global unicast of IPv6":  {network("2000::/8"), "at least 12 bits by IPv4 and 48"},
		"a group":                     {group(func(*cluster.LabelSet, *cluster.PublishedEndpoint) {}), ""},
		"a pod's unusual name":        {group(func(_ *cluster.LabelSet, ep *cluster.PublishedEndpoint) { ep.Pod = "Wéb_1" }), ""},
		"a name that paints":          {group(func(_ *cluster.LabelSet, ep *cluster.PublishedEndpoint) { ep.Pod = "web\x1b[2J" }), "printed"},
		"a namespace with a slash":    {group(func(s *cluster.LabelSet, _ *cluster.PublishedEndpoint) { s.Namespace = "shop/web" }), "no slash"},
		"a label that looks like two": {group(func(s *cluster.LabelSet, _ *cluster.PublishedEndpoint) { s.Labels["app"] = "web\x01role\x00admin" }), "want key=value"},
		"a label of the namespace": {group(func(s *cluster.LabelSet, _ *cluster.PublishedEndpoint) {
			s.NamespaceLabels = map[string]string{"a b": ""}
		}), "want key=value"},
		"too many labels":   {group(func(s *cluster.LabelSet, _ *cluster.PublishedEndpoint) { s.Labels = many }), "more than 256"},
		"a port's name":     {group(func(_ *cluster.LabelSet, ep *cluster.PublishedEndpoint) { ep.NamedPorts[0].Name = "ht\ntp" }), "printed"},
		"no such label set": {group(func(_ *cluster.LabelSet, ep *cluster.PublishedEndpoint) { ep.LabelSet = 1 }), "label set 1 of 1"},
	} {
		if row.want == "" && row.err != nil || row.want != "" && (row.err == nil || !strings.Contains(row.err.Error(), row.want)) {
			t.Errorf("%s: %v, want an error with %q", what, row.err, row.want)
		}
	}
}
