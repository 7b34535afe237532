package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/store/storetest"
	"porin.dev/porin/cells/store/storetest/etcdtest"
)

// TestEtcdWithCertificates has an etcd that wants a certificate of everybody.
func TestEtcdWithCertificates(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue(t, "client") // the name of the socket is the name of the server
	a.issue(t, "node")
	server := etcdtest.Start(t, func(cfg *embed.Config) {
		cfg.ListenClientUrls[0].Scheme = "unixs"
		cfg.AdvertiseClientUrls = cfg.ListenClientUrls
		cfg.ClientTLSInfo.CertFile, cfg.ClientTLSInfo.KeyFile = a.path("client.pem"), a.path("client-key.pem")
		cfg.ClientTLSInfo.TrustedCAFile, cfg.ClientTLSInfo.ClientCertAuth = a.path("ca.pem"), true
	})
	cfg := server.Config()
	cfg.Etcd.Endpoints[0] = strings.Replace(cfg.Etcd.Endpoints[0], "unix:", "unixs:", 1)
	cfg.Etcd.CA, cfg.Etcd.Cert, cfg.Etcd.Key = a.path("ca.pem"), a.path("node.pem"), a.path("node-key.pem")
	create(t, storetest.Open(t, cfg), "a")

	stranger := newAuthority(t)
	stranger.issue(t, "node")
	without, signedBySomebody, trustsSomebody := cfg, cfg, cfg
	without.Etcd.Cert, without.Etcd.Key = "", ""
	signedBySomebody.Etcd.Cert, signedBySomebody.Etcd.Key = stranger.path("node.pem"), stranger.path("node-key.pem")
	trustsSomebody.Etcd.CA = stranger.path("ca.pem")
	for name, cfg := range map[string]store.Config{
		"no certificate": without, "another authority's certificate": signedBySomebody, "another authority": trustsSomebody,
	} {
		t.Run(name, func(t *testing.T) { refused(t, storetest.Open(t, cfg)) })
	}

	t.Run("a certificate that is replaced", func(t *testing.T) {
		s := storetest.Open(t, signedBySomebody)
		refused(t, s)
		for _, name := range []string{"node.pem", "node-key.pem"} {
			content, err := os.ReadFile(a.path(name))
			if err != nil {
				t.Fatal(err)
			}
			write(t, stranger.path(name), string(content))
		}
		if _, err := s.Get(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	})
}

func create(t testing.TB, s store.Store, key string) {
	t.Helper()
	if err := s.Create(t.Context(), key, []byte("{}")); err != nil {
		t.Fatal(err)
	}
}

func refused(t testing.TB, s store.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.Get(ctx, "a"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
}

// givesUp cancels a call that has no deadline of its own, while etcd is away.
func givesUp(t testing.TB, s store.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	began := time.Now()
	_, err := s.Get(ctx, "a")
	if took := time.Since(began); !errors.Is(err, context.Canceled) || took > 2*time.Second {
		t.Errorf("error %v after %v", err, took)
	}
}

// TestEtcdWithUser has an etcd that wants a password, and lets the user have its own prefix.
func TestEtcdWithUser(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, nil)
	cfg := server.Config()
	cfg.Etcd.Username, cfg.Etcd.PasswordFile = "porin", filepath.Join(t.TempDir(), "password")
	write(t, cfg.Etcd.PasswordFile, "secret\n")
	wantPassword(t, server.Client(t), cfg.Etcd.Prefix)
	s := storetest.Open(t, cfg)
	events, err := s.Watch(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	create(t, s, "node/1")

	t.Run("another prefix", func(t *testing.T) {
		other := cfg
		other.Etcd.Prefix = "/another/"
		_, err := storetest.Open(t, other).Get(t.Context(), "a")
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("a wrong password, until it is right", func(t *testing.T) {
		other := cfg
		other.Etcd.PasswordFile = filepath.Join(t.TempDir(), "password")
		write(t, other.Etcd.PasswordFile, "guess")
		s := storetest.Open(t, other)
		_, err := s.Get(t.Context(), "node/1")
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "invalid user ID or password") {
			t.Errorf("error %v", err)
		}
		write(t, other.Etcd.PasswordFile, "secret")
		if _, err := s.Get(t.Context(), "node/1"); err != nil {
			t.Error(err)
		}
	})
	t.Run("an etcd that comes later, and knows no token any more", func(t *testing.T) {
		server.Stop()
		late := storetest.Open(t, cfg)
		givesUp(t, late)
		refused(t, late)
		server.Start(t)
		create(t, late, "late")
		create(t, s, "again")
	})
	told := map[string]bool{}
	for !told["again"] || !told["node/1"] {
		select {
		case event := <-events:
			for _, entry := range append(event.Entries, event.Entry) { // the watch may have begun after the first entry
				told[entry.Key] = true
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("told %v", told)
		}
	}
}

func wantPassword(t testing.TB, c *clientv3.Client, prefix string) {
	t.Helper()
	ctx := t.Context()
	for _, do := range []func() error{
		func() error { _, err := c.UserAdd(ctx, "root", "root"); return err },
		func() error { _, err := c.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := c.UserAdd(ctx, "porin", "secret"); return err },
		func() error { _, err := c.RoleAdd(ctx, "nodes"); return err },
		func() error {
			_, err := c.RoleGrantPermission(ctx, "nodes", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := c.UserGrantRole(ctx, "porin", "nodes"); return err },
		func() error { _, err := c.AuthEnable(ctx); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
}
