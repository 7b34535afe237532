// Package etcdtest runs a real etcd inside a test.
package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"porin.dev/porin/cells/store"
)

// Server is an etcd of one member on a Unix socket, so that it needs no port. It forgets nothing when it is stopped and
// started, and ends with the test.
type Server struct {
	dir     string
	change  func(*embed.Config)
	running *embed.Etcd
	clients *grpc.Server
	spaces  atomic.Int64
}

// Start starts one. change, which may be nil, has the last word on its configuration.
func Start(t testing.TB, change func(*embed.Config)) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd") // t.TempDir may be longer than a socket's name can be
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{dir: dir, change: change}
	t.Cleanup(func() {
		s.Stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s.Start(t)
	return s
}

// Start starts it again, and returns when it serves.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	clients := make(chan *grpc.Server, 1) // etcd makes it in a goroutine of its own
	running, err := embed.StartEtcd(s.config(clients))
	if err != nil {
		t.Fatalf("start etcd: %v", err)
	}
	s.running = running
	select {
	case s.clients = <-clients:
	case err := <-running.Err():
		t.Fatalf("etcd: %v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("etcd does not begin to listen")
	}
	select {
	case <-running.Server.ReadyNotify():
	case <-time.After(10 * time.Second):
		t.Fatal("etcd does not begin to serve")
	}
}

// Stop stops it, if it runs. Its clients are cut off in the middle; otherwise etcd would wait for them for seconds.
func (s *Server) Stop() {
	if s.running != nil {
		if s.clients != nil {
			s.clients.Stop()
		}
		s.running.Close()
		s.running, s.clients = nil, nil
	}
}

func (s *Server) config(clients chan<- *grpc.Server) *embed.Config {
	cfg := Config(s.dir)
	cfg.ServiceRegister = func(server *grpc.Server) { clients <- server }
	if s.change != nil {
		s.change(cfg)
	}
	return cfg
}

// Config is the configuration of an etcd that has all it needs in a folder, and is in a hurry.
func Config(dir string) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(dir, "data")
	cfg.ListenClientUrls, cfg.ListenPeerUrls = socket(dir, "client"), socket(dir, "peer")
	cfg.AdvertiseClientUrls, cfg.AdvertisePeerUrls = cfg.ListenClientUrls, cfg.ListenPeerUrls
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.UnsafeNoFsync = true
	cfg.BcryptCost = 4 // the least: a password is checked at every stream, and takes long with the race detector
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	return cfg
}

// Endpoint is where an etcd of that configuration serves.
func Endpoint(dir string) string { return "unix://" + filepath.Join(dir, "client") }

func socket(dir, name string) []url.URL {
	return []url.URL{{Scheme: "unix", Path: filepath.Join(dir, name)}}
}

// Config returns the configuration of a store in this etcd that is empty, and apart from others.
func (s *Server) Config() store.Config {
	cfg := store.DefaultConfig()
	cfg.Backend = store.BackendEtcd
	cfg.Etcd.Endpoints = []string{Endpoint(s.dir)}
	cfg.Etcd.Prefix = fmt.Sprintf("/test-%d/", s.spaces.Add(1))
	return cfg
}

// Client returns a client of etcd's own, until the test ends.
func (s *Server) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: s.Config().Etcd.Endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Compact makes it forget the past.
func (s *Server) Compact(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	client := s.Client(t)
	now, err := client.Get(ctx, "any")
	if err == nil {
		_, err = client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) { // nothing was written since the last time
		t.Fatalf("compact: %v", err)
	}
}
