package engine_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// TestGaining has the endpoints found whose open connections may get layer 7 rules: not more than need be, as all their sockets are listed.
func TestGaining(t *testing.T) {
	reads := &model.Layer7{HTTP: []model.HTTPRule{{Method: "GET"}}}
	writes := &model.Layer7{HTTP: []model.HTTPRule{{Method: "POST"}}}
	plain := func(peer string, port uint16) model.Rule {
		return model.Rule{Peers: []model.Peer{app(peer)}, Ports: tcp(port)}
	}
	proxied := func(peer string, layer7 *model.Layer7) model.Rule {
		return model.Rule{Peers: []model.Peer{app(peer)}, Ports: tcp(80), Layer7: layer7}
	}
	forDB := func(rules ...model.Rule) engine.Update {
		return engine.Update{SetPolicies: []model.Policy{networkPolicy("db", "db", rules...)}}
	}
	relabelled := pod("other", 3)
	relabelled.Labels = map[string]string{"app": "web"}
	remote := model.Endpoint{Key: "remote/web", Kind: model.Pod, Namespace: "shop", Labels: map[string]string{"app": "web"}, Addresses: []netip.Addr{addr(70)}}
	byName := domainPeer(exampleName, tcp(80))
	byName.Layer7 = reads
	webToName := toDomain("names", "web", byName)
	nameThenDB := toDomain("names", "web", domainPeer(exampleName, tcp(80)), proxied("web", reads))
	everywhere := toDomain("everywhere", "web", model.Rule{Peers: []model.Peer{{Any: true}}, Ports: tcp(443)})
	for _, row := range []struct {
		name   string
		before []engine.Update
		update engine.Update
		want   []string
	}{
		{"the first rules", nil, forDB(proxied("web", reads)), []string{"shop/db"}},
		{"rules for other ports", []engine.Update{forDB(plain("web", 81))}, forDB(plain("web", 81), proxied("web", reads)), nil},
		{"rules that another peer has", []engine.Update{forDB(proxied("web", reads), plain("other", 80))}, forDB(proxied("web", reads), proxied("other", reads)), []string{"shop/db"}},
		{"other rules", []engine.Update{forDB(proxied("web", reads))}, forDB(proxied("web", writes)), nil},
		{"no rules any more", []engine.Update{forDB(proxied("web", reads))}, forDB(plain("web", 80)), nil},
		{"another policy", []engine.Update{forDB(proxied("web", reads))}, engine.Update{SetPolicies: []model.Policy{networkPolicy("more", "db", plain("other", 22))}}, nil},
		{"a peer gets labels that rules are for", []engine.Update{forDB(proxied("web", reads), plain("other", 80))}, engine.Update{SetEndpoints: []model.Endpoint{relabelled}}, []string{"shop/db"}},
		{"such a peer was denied before", []engine.Update{forDB(proxied("web", reads))}, engine.Update{SetEndpoints: []model.Endpoint{relabelled}}, nil},
		{"a new peer", []engine.Update{forDB(proxied("web", reads))}, engine.Update{SetEndpoints: []model.Endpoint{remote}}, nil},
		{"a peer that nothing was known of", []engine.Update{forDB(proxied("web", reads)), {SetUnmanaged: []netip.Prefix{netip.PrefixFrom(addr(64), 28)}}}, engine.Update{SetEndpoints: []model.Endpoint{remote}}, []string{"shop/db"}},
		{"its range goes meanwhile", []engine.Update{forDB(proxied("web", reads)), {SetUnmanaged: []netip.Prefix{netip.PrefixFrom(addr(64), 28)}}}, engine.Update{RemoveUnmanaged: []netip.Prefix{netip.PrefixFrom(addr(64), 28)}, SetEndpoints: []model.Endpoint{remote}}, []string{"shop/db"}},
		{"its range gets larger meanwhile", []engine.Update{forDB(proxied("web", reads)), {SetUnmanaged: []netip.Prefix{netip.PrefixFrom(addr(64), 28)}}}, engine.Update{RemoveUnmanaged: []netip.Prefix{netip.PrefixFrom(addr(64), 28)}, SetUnmanaged: []netip.Prefix{netip.PrefixFrom(addr(64), 27)}, SetEndpoints: []model.Endpoint{remote}}, []string{"shop/db"}},
		{"a name's address becomes a peer's", []engine.Update{{SetPolicies: []model.Policy{nameThenDB}}, domainAdd(exampleName, addr(70))}, engine.Update{Domains: []engine.DomainChange{{Rule: exampleName, Remove: []netip.Addr{addr(70)}}}, SetEndpoints: []model.Endpoint{remote}}, []string{"shop/web"}},
		{"a new endpoint", []engine.Update{forDB(proxied("web", reads)), {RemoveEndpoints: []string{"shop/db"}}}, engine.Update{SetEndpoints: []model.Endpoint{pod("db", 2)}}, nil},
		{"an address of a name", []engine.Update{{SetPolicies: []model.Policy{webToName, everywhere}}}, domainAdd(exampleName, outside), nil},
		{"names for a pod that may reach everything", nil, engine.Update{SetPolicies: []model.Policy{webToName}}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			e := engine.New(engine.Config{AllowUnmanaged: true})
			e.Apply(engine.Update{SetEndpoints: []model.Endpoint{pod("web", 1), pod("db", 2), pod("other", 3)}})
			for _, u := range row.before {
				e.Apply(u)
			}
			if diff := cmp.Diff(row.want, e.Apply(row.update).Gaining, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
