package policy

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
)

// fakeFlows are seen since noon.
type fakeFlows []Flow

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func (f fakeFlows) Recent() ([]Flow, time.Time) { return f, noon }

// flowsTo makes three pods and a client outside call web on ports 80 and 81.
func flowsTo(web endpoint.Endpoint, from ...netip.Addr) (flows fakeFlows) {
	for i, addr := range from {
		for _, port := range []uint16{80, 81} {
			flows = append(flows, Flow{addr, web.Addresses.IPv4, model.TCP, port, uint64(i + 1), noon.Add(time.Hour)})
		}
	}
	return flows
}

func TestDiff(t *testing.T) {
	n := servingNode(t, "")
	web, client, other := pod(1, "web"), pod(2, "client"), pod(3, "other")
	table := endpointtest.NewEndpoints()
	for _, ep := range []endpoint.Endpoint{web, client, other} {
		n.attach(t, ep)
		table.Put(ep)
	}
	outside := netip.MustParseAddr("192.0.2.9")
	n.put(t, toWebFrom("client"))
	revision := n.queue.view.Applied().Revision
	flows := flowsTo(web, client.Addresses.IPv4, other.Addresses.IPv4, outside)
	webID := model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "default", Name: "web"}
	for _, row := range []struct {
		name, proposed string
		remove         []model.PolicyID
		want           string
	}{
		{"the same", toWebFrom("client"), nil, ""},
		{"another client", toWebFrom("other"), nil, "10.0.0.3:80 denied allowed, 10.0.0.2:80 allowed denied"},
		{"no policy", "", []model.PolicyID{webID}, "192.0.2.9:80 denied allowed, 192.0.2.9:81 denied allowed, 10.0.0.3:80 denied allowed, 10.0.0.3:81 denied allowed, 10.0.0.2:81 denied allowed"},
		{"in audit", strings.Replace(toWebFrom("nobody"), "{name: web}", `{name: more, annotations: {porin.dev/audit: "true"}}`, 1), nil, ""},
		{"one more, and one less", strings.Replace(toWebFrom("client"), "name: web}", "name: more}", 1), []model.PolicyID{webID}, ""},
	} {
		d, err := n.policies.Diff(t.Context(), table, flows, []byte(row.proposed), row.remove)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range d.Changes {
			if c.ToEndpoint != web || c.Now.To.Kind != model.Pod || c.Now.From.Address != c.From {
				t.Errorf("%s: ends %+v and %+v, endpoint %+v", row.name, c.Now.From, c.Now.To, c.ToEndpoint)
			}
			verdict := map[bool]string{true: "allowed", false: "denied"}
			got = append(got, fmt.Sprintf("%s:%d %s %s", c.From, c.Port, verdict[c.Now.Allowed], verdict[c.Then.Allowed]))
		}
		if strings.Join(got, ", ") != row.want || d.Flows != len(flows) || d.Since != noon {
			t.Errorf("%s: %q of %d flows since %s, want %q", row.name, got, d.Flows, d.Since, row.want)
		}
	}
	if got := n.queue.view.Applied().Revision; got != revision || len(n.policies.List()) != 1 {
		t.Errorf("revision %d after %d, %d policies: want nothing changed", got, revision, len(n.policies.List()))
	}
}

// TestDiffOfNodeInAudit has verdicts as if the node and the pod were not in audit.
func TestDiffOfNodeInAudit(t *testing.T) {
	n := servingNodeWith(t, engine.Config{Audit: true})
	web, other := pod(1, "web"), pod(3, "other")
	web.Metadata = `{"labels":{"app":"web"},"audit":true}`
	n.attach(t, web)
	n.attach(t, other)
	d, err := n.policies.Diff(t.Context(), endpointtest.NewEndpoints(), flowsTo(web, other.Addresses.IPv4), []byte(toWebFrom("client")), nil)
	if err != nil || len(d.Changes) != 2 || !d.Changes[0].Now.Allowed || d.Changes[0].Then.Ingress.Reason != engine.ReasonDefaultDeny {
		t.Errorf("%+v, %v; want both ports denied", d.Changes, err)
	}
}

func TestDiffFaults(t *testing.T) {
	n := servingNode(t, "")
	for name, row := range map[string]struct {
		flows    Flows
		proposed string
		remove   []model.PolicyID
		want     fault.Kind
	}{
		"no flows":         {nil, toWebFrom("client"), nil, fault.NotFound},
		"no policy":        {fakeFlows{}, "", nil, fault.Invalid},
		"a misspelt field": {fakeFlows{}, strings.Replace(toWebFrom("client"), "spec", "specs", 1), nil, fault.Invalid},
		"no such policy":   {fakeFlows{}, "", []model.PolicyID{{Kind: model.KindNetworkPolicy, Namespace: "default", Name: "web"}}, fault.NotFound},
	} {
		if _, err := n.policies.Diff(t.Context(), endpointtest.NewEndpoints(), row.flows, []byte(row.proposed), row.remove); fault.KindOf(err) != row.want {
			t.Errorf("%s: error %v, want one of kind %s", name, err, row.want)
		}
	}
}

// TestDiffOneAtATime has callers wait for another's comparison, for as long as they like.
func TestDiffOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := servingNode(t, "")
		asked, answer := make(chan struct{}), make(chan struct{})
		first := make(chan error)
		go func() {
			_, err := n.policies.Diff(t.Context(), endpointtest.NewEndpoints(), waitingFlows{asked, answer}, []byte(toWebFrom("client")), nil)
			first <- err
		}()
		<-asked
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := n.policies.Diff(ctx, endpointtest.NewEndpoints(), fakeFlows{}, []byte(toWebFrom("client")), nil); fault.KindOf(err) != fault.Deadline {
			t.Errorf("beside another one: error %v, want that the time is over", err)
		}
		close(answer)
		if err := <-first; err != nil {
			t.Error(err)
		}
		if _, err := n.policies.Diff(t.Context(), endpointtest.NewEndpoints(), fakeFlows{}, []byte(toWebFrom("client")), nil); err != nil {
			t.Errorf("after it: %v", err)
		}
	})
}

// waitingFlows tells when it is asked, and waits with the answer.
type waitingFlows struct{ asked, answer chan struct{} }

func (f waitingFlows) Recent() ([]Flow, time.Time) {
	close(f.asked)
	<-f.answer
	return nil, noon
}

func TestDiffOverHTTP(t *testing.T) {
	n := servingNode(t, "")
	web, other := pod(1, "web"), pod(3, "other")
	n.attach(t, web)
	n.attach(t, other)
	n.flows = flowsTo(web, other.Addresses.IPv4)
	ask := call(n, web, other)
	n.put(t, toWebFrom("client"))
	for _, row := range []struct {
		query, body string
		status      int
		answer      string
	}{
		{"", toWebFrom("other"), 200, `{"flows":2,"since":"2026-11-22T12:00:00Z","changed":1,"changes":[{"from":{"address":"10.0.0.3","kind":"pod"`},
		{"", toWebFrom("other"), 200, `"protocol":"TCP","port":80,"count":1,"lastSeen":"2026-11-22T13:00:00Z","now":{"allowed":false,"egress":{`},
		{"", toWebFrom("other"), 200, `"then":{"allowed":true,`},
		{"", toWebFrom("client"), 200, `{"flows":2,"since":"2026-11-22T12:00:00Z","changed":0,"changes":[]}`},
		{"?delete=networkpolicy/default/web", "", 200, `"changed":2`},
		{"?delete=NetworkPolicy/web", "", 400, `a NetworkPolicy has a namespace`},
		{"?delete=web", "", 400, `want KIND/NAMESPACE/NAME, or KIND/NAME`},
		{"?delete=Pod/default/web", "", 400, `want NetworkPolicy, ClusterNetworkPolicy`},
		{"", strings.Repeat("# \n", 1<<19), 413, `in several calls`},
	} {
		if status, answer := ask("POST", "/v1/policy/diff"+row.query, row.body); status != row.status || !strings.Contains(answer, row.answer) {
			t.Errorf("%s: %d %s, want %d and %s", row.query, status, answer, row.status, row.answer)
		}
	}
}

// TestDiffLayer7 has what passes with other layer 7 rules than before.
func TestDiffLayer7(t *testing.T) {
	n := l7node(t, newFakeProxy(), "")
	web, client := pod(1, "web"), pod(2, "client")
	n.attach(t, web)
	n.attach(t, client)
	plain, _, _ := strings.Cut(webRules("client", "/a"), ", rules:")
	plain += "}]\n"
	for name, row := range map[string]struct {
		inForce, proposed string
		changes           int
	}{
		"a plain rule accepts, too": {toWebFrom("client"), webRules("client", "/a"), 0},
		"rules instead of none":     {plain, webRules("client", "/a"), 1},
		"other rules":               {webRules("client", "/a"), webRules("client", "/b"), 1},
		"the same rules":            {webRules("client", "/a"), webRules("client", "/a"), 0},
	} {
		n.put(t, row.inForce)
		d, err := n.policies.Diff(t.Context(), endpointtest.NewEndpoints(), flowsTo(web, client.Addresses.IPv4), []byte(row.proposed), nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Changes) != row.changes {
			t.Errorf("%s: %+v, want %d changes", name, d.Changes, row.changes)
		}
		for _, m := range n.policies.List() {
			if err := n.policies.Delete(t.Context(), m.Policy.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}
