package policy

import (
	"bytes"
	"net/netip"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/manifest"
	"porin.dev/porin/cells/policy/model"
)

// TestLayer7NumbersAfterRestart: rules have the same number in the next agent, and on another node another one.
func TestLayer7NumbersAfterRestart(t *testing.T) {
	number := func(dir string) uint32 {
		t.Helper()
		q := NewQueue(engine.Config{}, nil, nil, nil, quiet)
		p := New(Config{Dir: dir}, q, quiet)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := p.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		list, err := manifest.ReadAll([]byte("apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: web, namespace: demo}\n" +
			"spec: {endpointSelector: {}, ingress: [{toPorts: [{ports: [{port: '80', protocol: TCP}], rules: {http: [{path: /a}]}}]}]}\n"))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.store.change(policiesBucket, list, nil); err != nil {
			t.Fatal(err)
		}
		q.view.engine.Apply(engine.Update{
			SetEndpoints: []model.Endpoint{{Key: "demo/web", Kind: model.Pod, Local: true, Namespace: "demo", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}},
			SetPolicies:  []model.Policy{list[0].Policy},
		})
		return q.view.engine.Layer7()[0].Number
	}
	dir := t.TempDir()
	if first, again := number(dir), number(dir); first != again {
		t.Errorf("number %d, and %d after a restart", first, again)
	}
	if here, elsewhere := number(dir), number(t.TempDir()); here == elsewhere {
		t.Errorf("number %d on two nodes", here)
	}
}

// TestStoreKeyOfPreviousVersion has a file without a key, as a previous agent has made it: it gets one, which stays.
func TestStoreKeyOfPreviousVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policies.db")
	db, err := storeKind.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.View(func(tx *bbolt.Tx) error { _, _, _, err := readPolicies(tx); return err }); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	var keys [2][]byte
	for i := range keys {
		s := store{path: path}
		if _, _, _, err := s.open(); err != nil {
			t.Fatal(err)
		}
		keys[i] = s.key
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(keys[0], keys[1]) || bytes.Equal(keys[0], make([]byte, len(keys[0]))) {
		t.Errorf("keys %x", keys)
	}
}
