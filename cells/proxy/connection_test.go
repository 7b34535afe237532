package proxy

import (
	"errors"
	"net/netip"
	"testing"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/model"
)

// rowKernel has verdicts by direction and endpoint.
type rowKernel struct {
	fakeKernel
	opener            Opener
	openerErr         error
	endpoints         map[netip.Addr]uint16
	verdicts          map[model.Direction]map[uint16]uint32
	versions          map[uint16]version
	addressGeneration uint32
	questions         []policy.Question
}

func (k *rowKernel) Opener(model.Protocol, netip.AddrPort, netip.AddrPort) (Opener, error) {
	return k.opener, k.openerErr
}

func (k *rowKernel) EndpointAt(addr netip.Addr) (uint16, error) { return k.endpoints[addr], nil }

func (k *rowKernel) Verdict(q policy.Question) (uint32, error) {
	k.questions = append(k.questions, q)
	return k.verdicts[q.Direction][q.Local.ID], nil
}

func (k *rowKernel) Version(id uint16) (generation, revision uint32, err error) {
	v := k.versions[id]
	return v.generation, v.revision, nil
}

func (k *rowKernel) AddressGeneration() (uint32, error) { return k.addressGeneration, nil }

const clientID, serverID = 1, 2

var (
	clientAddr = netip.MustParseAddrPort("10.0.0.1:4000")
	serverAddr = netip.MustParseAddrPort("10.0.0.2:80")
)

// newRowKernel has a connection between two endpoints of the node, with rules 5 for the client and 6 for the server.
func newRowKernel() *rowKernel {
	return &rowKernel{
		opener:    Opener{Source: clientAddr.Addr(), Endpoint: clientID},
		endpoints: map[netip.Addr]uint16{clientAddr.Addr(): clientID, serverAddr.Addr(): serverID},
		verdicts:  map[model.Direction]map[uint16]uint32{model.Egress: {clientID: 5}, model.Ingress: {serverID: 6}},
		versions:  map[uint16]version{clientID: {1, 1}, serverID: {1, 1}},
	}
}

func newRules(t *testing.T, numbers ...uint32) *rulesByNumber {
	t.Helper()
	rules := &rulesByNumber{}
	for _, n := range numbers {
		set, err := compile(model.Layer7{HTTP: []model.HTTPRule{{Method: "GET"}}})
		if err != nil {
			t.Fatal(err)
		}
		rules.add(map[uint32]*ruleSet{n: set})
	}
	return rules
}

func newConnection(t *testing.T, k *rowKernel, rules *rulesByNumber) *connection {
	t.Helper()
	c, err := identify(k, rules, model.TCP, clientAddr, serverAddr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestDecidedQueries decides once about queries of the same ends, and again when another pod has the ID of one.
func TestDecidedQueries(t *testing.T) {
	k, rules, decided := newRowKernel(), newRules(t, 5, 6), decidedQueries{}
	query := func() *connection {
		c := decided.of(newConnection(t, k, rules))
		if _, err := c.decide(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := query()
	if query() != first || len(k.questions) != 2 {
		t.Errorf("the kernel was asked for %d verdicts, want those of both ends once", len(k.questions))
	}
	k.versions[clientID] = version{1, 2}
	if query() != first || len(k.questions) != 4 {
		t.Errorf("the kernel was asked for %d verdicts after a change of policies, want 4", len(k.questions))
	}
	k.versions[clientID] = version{2, 3}
	if query() == first {
		t.Error("the next pod with the ID has the decision about the one before")
	}
}

// TestDecideServerComesLater gives the server's address to an endpoint of the node while the connection is open.
func TestDecideServerComesLater(t *testing.T) {
	k, rules := newRowKernel(), newRules(t, 5, 6)
	delete(k.endpoints, serverAddr.Addr())
	c := newConnection(t, k, rules)
	for generation := range uint32(2) { // other endpoints get addresses
		k.addressGeneration = generation
		if d, err := c.decide(); err != nil || d.egress == nil || d.ingress != nil {
			t.Fatalf("before the endpoint is there: %+v, %v", d, err)
		}
	}
	k.endpoints[serverAddr.Addr()] = serverID
	k.addressGeneration = 2
	if d, err := c.decide(); !errors.Is(err, errDenied) {
		t.Errorf("the server is an endpoint with rules of its own: %+v, %v; want errDenied", d, err)
	}
}

func TestDecideBothEnds(t *testing.T) {
	k, rules := newRowKernel(), newRules(t, 5, 6)
	d, err := newConnection(t, k, rules).decide()
	if err != nil || d.egress != rules.get(5) || d.ingress != rules.get(6) {
		t.Fatalf("decided %+v, %v", d, err)
	}
	if len(k.questions) != 2 || k.questions[0].Peer != serverAddr.Addr() || k.questions[1].Peer != clientAddr.Addr() || k.questions[1].Port != 80 {
		t.Errorf("asked %+v", k.questions)
	}
}

func TestDecide(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(k *rowKernel)
		sets   int // of rules; -1: denied
	}{
		{"both ends have rules", func(*rowKernel) {}, 2},
		{"the client's policy denies", func(k *rowKernel) { k.verdicts[model.Egress][clientID] = abi.RowDeny }, -1},
		{"the server's policy denies", func(k *rowKernel) { k.verdicts[model.Ingress][serverID] = abi.RowDeny }, -1},
		{"rules that the proxy does not have", func(k *rowKernel) { k.verdicts[model.Ingress][serverID] = 7 }, -1},
		{"the server has no rules", func(k *rowKernel) { k.verdicts[model.Ingress][serverID] = abi.RowAllow }, 1},
		{"no end has rules any more", func(k *rowKernel) {
			k.verdicts[model.Ingress][serverID], k.verdicts[model.Egress][clientID] = abi.RowAllow, abi.RowAllow
		}, 0},
		{"the server is elsewhere", func(k *rowKernel) { delete(k.endpoints, serverAddr.Addr()) }, 1},
		{"the client is elsewhere", func(k *rowKernel) { k.opener.Endpoint = 0 }, 1},
		{"a pod that reaches itself by a Service", func(k *rowKernel) { k.endpoints[serverAddr.Addr()] = clientID }, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			k := newRowKernel()
			row.change(k)
			d, err := newConnection(t, k, newRules(t, 5, 6)).decide()
			if row.sets < 0 {
				if !errors.Is(err, errDenied) {
					t.Errorf("decided %+v, %v: want a denial", d, err)
				}
				return
			}
			if err != nil || len(d.sets()) != row.sets {
				t.Errorf("decided %+v, %v, want %d sets of rules", d, err, row.sets)
			}
		})
	}
}

func TestDecideAgain(t *testing.T) {
	k, rules := newRowKernel(), newRules(t, 5, 6, 7)
	c := newConnection(t, k, rules)
	decide := func() *decision {
		t.Helper()
		d, err := c.decide()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first := decide()
	if again := decide(); again != first || len(k.questions) != 2 {
		t.Errorf("decided anew although nothing has changed: %d questions", len(k.questions))
	}
	k.verdicts[model.Ingress][serverID] = 7
	if d := decide(); d.ingress != rules.get(6) {
		t.Errorf("the version is the same, and the rules are %v", d.ingress)
	}
	k.versions[serverID] = version{1, 2}
	if d := decide(); d.ingress != rules.get(7) || d.egress != rules.get(5) {
		t.Errorf("after the change: %+v", d)
	}
	k.verdicts[model.Egress][clientID] = abi.RowDeny
	k.versions[clientID] = version{1, 2}
	if _, err := c.decide(); !errors.Is(err, errDenied) {
		t.Errorf("after the right was revoked: %v", err)
	}
	k.verdicts[model.Egress][clientID] = 5
	k.versions[clientID] = version{2, 1}
	if _, err := c.decide(); !errors.Is(err, errDenied) {
		t.Errorf("the number is another endpoint's: %v", err)
	}
}

func TestIdentifyUnknown(t *testing.T) {
	k := newRowKernel()
	k.openerErr = ErrNoOpener
	if _, err := identify(k, newRules(t), model.TCP, clientAddr, serverAddr); !errors.Is(err, ErrNoOpener) {
		t.Errorf("error %v", err)
	}
}

// One end's rules are for HTTP and the other's for DNS: the protocol of the connection is undefined.
func TestProtocolConflict(t *testing.T) {
	k, rules := newRowKernel(), newRules(t, 5)
	names, err := compile(model.Layer7{DNS: []model.DNSRule{{Pattern: "*"}}})
	if err != nil {
		t.Fatal(err)
	}
	rules.add(map[uint32]*ruleSet{6: names})
	c := newConnection(t, k, rules)
	d, err := c.decide()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.isDNS(); !errors.Is(err, errDenied) {
		t.Errorf("error %v, want a denial", err)
	}
	if c.allowsName("example.com") {
		t.Error("a query passes")
	}
}
