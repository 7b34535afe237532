package engine_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

const (
	benchNamespaces = 100
	benchApps       = 10 // in each namespace
	benchReplicas   = 10 // of each app, on other nodes
	benchLocal      = 250
	benchPolicies   = 1000
)

// benchPod has, if distinct is set, a label that no other pod has, as pods of a StatefulSet do.
func benchPod(namespace, app, replica int, local, distinct bool) model.Endpoint {
	ep := model.Endpoint{
		Key: fmt.Sprintf("ns%d/app%d-%d", namespace, app, replica), Kind: model.Pod, Local: local,
		Namespace: fmt.Sprint("ns", namespace), NamespaceLabels: map[string]string{"name": fmt.Sprint("ns", namespace), "team": fmt.Sprint("t", namespace%10)},
		Labels:     map[string]string{"app": fmt.Sprint("app", app), "version": fmt.Sprint("v", app%3)},
		Addresses:  []netip.Addr{netip.AddrFrom4([4]byte{10, byte(namespace), byte(app), byte(replica)})},
		NamedPorts: []model.NamedPort{{Name: "http", Protocol: model.TCP, Number: 8080}},
	}
	if local {
		ep.Key += "-local"
	}
	if distinct {
		ep.Labels["pod"] = ep.Key
	}
	return ep
}

// benchPolicy is for one app of one namespace, by turns with the rules that policies often have.
func benchPolicy(n int) model.Policy {
	namespace := fmt.Sprint("ns", n%benchNamespaces)
	in := func(app int) model.Peer {
		return model.Peer{Pods: &model.Pods{Namespace: namespace, Labels: model.Selector{label("app", fmt.Sprint("app", app))}}}
	}
	app := n / benchNamespaces % benchApps
	ingress := model.Rules{
		{Peers: []model.Peer{in((app + 1) % benchApps), in((app + 2) % benchApps)}, Ports: []model.Port{{Name: "http"}, {Protocol: model.TCP, First: 9000, Last: 9100}}},
		{Peers: []model.Peer{{Pods: &model.Pods{Namespaces: model.Selector{label("team", fmt.Sprint("t", n%7))}}}}, Ports: tcp(443)},
	}
	egress := model.Rules{
		{Peers: []model.Peer{in((app + 3) % benchApps)}},
		{Peers: []model.Peer{{Pods: &model.Pods{Namespaces: model.Selector{label("name", "ns0")}}}}, Ports: []model.Port{{Protocol: model.UDP, First: 53, Last: 53}}},
		{Peers: []model.Peer{{Block: &model.Block{CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, byte(n % 50), 0}), 24)}}}},
	}
	return model.Policy{
		ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: namespace, Name: fmt.Sprint("p", n)}, Tier: model.TierNetworkPolicy,
		Subject: model.Pods{Namespace: namespace, Labels: model.Selector{label("app", fmt.Sprint("app", app))}},
		Ingress: &ingress, Egress: &egress,
	}
}

// benchAdmin is for all pods of the cluster and knows no class.
func benchAdmin() model.Policy {
	return model.Policy{
		ID: model.PolicyID{Kind: model.KindClusterNetworkPolicy, Name: "guard"}, Priority: 10,
		Egress: &model.Rules{{Action: model.Deny, Peers: []model.Peer{{Block: &model.Block{CIDR: netip.MustParsePrefix("169.254.169.254/32")}}}}},
	}
}

func benchUpdate(distinct bool) engine.Update {
	var u engine.Update
	for n := range benchPolicies {
		u.SetPolicies = append(u.SetPolicies, benchPolicy(n))
	}
	for ns := range benchNamespaces {
		for app := range benchApps {
			for replica := range benchReplicas {
				u.SetEndpoints = append(u.SetEndpoints, benchPod(ns, app, replica, false, distinct))
			}
		}
	}
	for n := range benchLocal {
		u.SetEndpoints = append(u.SetEndpoints, benchPod(n%benchNamespaces, n/benchNamespaces, 100+n/100, true, distinct))
	}
	return u
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkMemory counts all that stays of a remote endpoint, its labels and addresses too.
func BenchmarkMemory(b *testing.B) {
	for _, distinct := range []bool{false, true} {
		b.Run(map[bool]string{false: "equal-labels", true: "distinct-labels"}[distinct], func(b *testing.B) {
			e := engine.New(engine.Config{})
			e.Apply(engine.Update{SetPolicies: benchUpdate(distinct).SetPolicies})
			before := heap()
			for b.Loop() {
				e.Apply(engine.Update{SetEndpoints: benchUpdate(distinct).SetEndpoints[:benchNamespaces*benchApps*benchReplicas]})
			}
			b.ReportMetric(float64(heap()-before)/(benchNamespaces*benchApps*benchReplicas), "bytes/endpoint")
			runtime.KeepAlive(e)
		})
	}
}

// BenchmarkApply has 10,000 remote endpoints, 1,000 policies, 250 local endpoints.
func BenchmarkApply(b *testing.B) {
	for _, distinct := range []bool{false, true} {
		name := map[bool]string{false: "equal-labels", true: "distinct-labels"}[distinct]
		b.Run(name+"/first", func(b *testing.B) {
			u := benchUpdate(distinct)
			var e *engine.Engine
			for b.Loop() {
				e = engine.New(engine.Config{})
				e.Apply(u)
			}
			classes, rows := count(e, u)
			b.ReportMetric(float64(classes), "class-tables")
			b.ReportMetric(float64(rows), "rows")
		})
		u := benchUpdate(distinct)
		e := engine.New(engine.Config{})
		e.Apply(u)
		alternate := func(name string, there, back engine.Update) {
			b.Run(name, func(b *testing.B) {
				for n := 0; b.Loop(); n++ {
					if n%2 == 0 {
						e.Apply(there)
					} else {
						e.Apply(back)
					}
				}
				e.Apply(back)
			})
		}
		one := benchPolicy(5)
		one.ID.Name = "one-more"
		(*one.Ingress)[0].Peers = []model.Peer{{Pods: &model.Pods{Namespaces: model.Selector{label("team", "t5")}, Labels: model.Selector{label("app", "app1")}}}}
		alternate(name+"/policy", engine.Update{SetPolicies: []model.Policy{one}}, engine.Update{RemovePolicies: []model.PolicyID{one.ID}})
		admin := benchAdmin()
		alternate(name+"/admin-policy-for-all", engine.Update{SetPolicies: []model.Policy{admin}}, engine.Update{RemovePolicies: []model.PolicyID{admin.ID}})
		all := benchPolicy(5)
		all.ID.Name = "all"
		(*all.Ingress)[0].Peers = []model.Peer{{Pods: &model.Pods{}}}
		alternate(name+"/policy-from-all-pods", engine.Update{SetPolicies: []model.Policy{all}}, engine.Update{RemovePolicies: []model.PolicyID{all.ID}})
		remote := benchPod(5, 5, 5, false, distinct)
		moved := benchPod(5, 6, 5, false, distinct)
		moved.Key, moved.Addresses = remote.Key, remote.Addresses
		alternate(name+"/label-of-remote", engine.Update{SetEndpoints: []model.Endpoint{moved}}, engine.Update{SetEndpoints: []model.Endpoint{remote}})
		local := benchPod(5, 0, 100, true, distinct)
		moved = benchPod(5, 6, 100, true, distinct)
		moved.Key, moved.Addresses = local.Key, local.Addresses
		alternate(name+"/label-of-local", engine.Update{SetEndpoints: []model.Endpoint{moved}}, engine.Update{SetEndpoints: []model.Endpoint{local}})
		added := benchPod(5, 5, 200, false, distinct)
		alternate(name+"/endpoint", engine.Update{SetEndpoints: []model.Endpoint{added}}, engine.Update{RemoveEndpoints: []string{added.Key}})
	}
}

func count(e *engine.Engine, u engine.Update) (classes, rows int) {
	seen := map[engine.TableID]bool{}
	for _, ep := range u.SetEndpoints {
		for _, d := range []model.Direction{model.Egress, model.Ingress} {
			table, ok := e.Table(ep.Key, d)
			if !ok || seen[table.ID()] {
				continue
			}
			seen[table.ID()] = true
			rows += len(table.Any())
			for _, set := range table.Rows() {
				classes++
				rows += len(set)
			}
		}
	}
	return classes, rows
}

// BenchmarkExceptions adds and removes a block beside one with many exceptions. The time grows with their number, and
// not with its square.
func BenchmarkExceptions(b *testing.B) {
	for _, n := range []int{2000, 32_000} {
		e := shop(exceptions("all", n))
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				e.Apply(engine.Update{SetPolicies: []model.Policy{exceptions("more", 0)}})
				e.Apply(engine.Update{RemovePolicies: []model.PolicyID{exceptions("more", 0).ID}})
			}
		})
	}
}

func BenchmarkEvaluate(b *testing.B) {
	e := engine.New(engine.Config{})
	e.Apply(benchUpdate(false))
	from, to := netip.AddrFrom4([4]byte{10, 5, 1, 1}), netip.AddrFrom4([4]byte{10, 5, 0, 100})
	for b.Loop() {
		e.Evaluate(from, to, model.TCP, 8080)
	}
}
