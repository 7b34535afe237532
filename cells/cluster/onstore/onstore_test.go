package onstore

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/store/storetest"
	"porin.dev/porin/cells/store/storetest/etcdtest"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

func TestEmbedded(t *testing.T) {
	clustertest.Run(t, func(t *testing.T) cluster.Backend { return New(storetest.New(t)) })
}

func TestEtcd(t *testing.T) {
	server := etcdtest.Start(t, nil)
	clustertest.Run(t, func(t *testing.T) cluster.Backend { return New(storetest.Open(t, server.Config())) })
}

func TestStrict(t *testing.T) {
	clustertest.Run(t, func(t *testing.T) cluster.Backend {
		s := clustertest.NewStrict(1)
		t.Cleanup(s.Close)
		return s.Backend()
	})
}

// TestUnavailableError names the store and the reason once, from whichever layer they come.
func TestUnavailableError(t *testing.T) {
	t.Parallel()
	cfg := store.DefaultConfig()
	cfg.Backend, cfg.Etcd.Endpoints, cfg.Timeout = store.BackendEtcd, []string{"unix:///nowhere/etcd.sock"}, 200*time.Millisecond
	s, err := store.New(cfg, slog.New(slog.DiscardHandler))
	if err == nil {
		err = s.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	on := New(s)
	check := func(err error, want string) {
		t.Helper()
		if err == nil || err.Error() != want || !errors.Is(err, cluster.ErrUnavailable) || fault.KindOf(err) != fault.Unavailable {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	_, err = on.Nodes.Get(t.Context(), cluster.NodeID{Name: "one", Key: "aaaaaaaaaa"})
	check(err, `get "nodes/one.aaaaaaaaaa" in the store: etcd at unix:///nowhere/etcd.sock is unreachable: no answer in time`)
	_, _, err = on.Info.Get(t.Context())
	check(err, `position in the store: etcd at unix:///nowhere/etcd.sock is unreachable: no answer in time`)
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	_, _, err = on.Info.Get(t.Context())
	check(err, `position in the store: etcd at unix:///nowhere/etcd.sock is unreachable: it is starting or stopping`)
}

// TestRecordInvalid reads records with values that no agent writes.
func TestRecordInvalid(t *testing.T) {
	const id, none = `{"name":"one","key":"aaaaaaaaaa"}`, `{"name":"one","key":"x"}`
	for key, text := range map[string]string{
		"nodes/one.x":                `"id":` + none,
		"sessions/one.x/session":     `"node":` + none,
		"blocks/10-0-0-1-28":         `"cidr":"10.0.0.1/28","owner":` + id,
		"blocks/10-0-0-0-28":         `"cidr":"10.0.0.0/28","owner":` + none,
		"networks/one.aaaaaaaaaa":    `"node":` + id + `,"blocks":["0.0.0.0/0"]`,
		"networks/one.aaaaaaaaab":    `"node":{"name":"one","key":"aaaaaaaaab"},"addresses":["192.0.2.1","192.0.2.2"]`,
		"endpoints/one.aaaaaaaaaa.0": `"node":` + id + `,"endpoints":[{"addresses":["127.0.0.1"],"labelSet":0}],"labelSets":[{}]`,
		"endpoints/one.aaaaaaaaaa.1": `"node":` + id + `,"slot":1,"endpoints":[{"addresses":["10.0.0.1"],"labelSet":1}],"labelSets":[{}]`,
	} {
		s := storetest.New(t)
		if err := s.Create(t.Context(), key, []byte(`{"version":1,`+text+`}`)); err != nil {
			t.Fatal(err)
		}
		b := New(s)
		var errs []error
		for _, err := range b.Nodes.All(t.Context()) {
			errs = append(errs, err)
		}
		for _, err := range b.Sessions.All(t.Context()) {
			errs = append(errs, err)
		}
		for _, err := range b.Blocks.All(t.Context(), cluster.BlockFilter{}) {
			errs = append(errs, err)
		}
		for _, err := range b.Networks.All(t.Context()) {
			errs = append(errs, err)
		}
		for _, err := range b.Endpoints.All(t.Context()) {
			errs = append(errs, err)
		}
		if len(errs) != 1 || !errors.Is(errs[0], cluster.ErrUnreadable) {
			t.Errorf("%s: errors %v, want %v", key, errs, cluster.ErrUnreadable)
		}
	}
}
