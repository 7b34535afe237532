package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/store/storetest/etcdtest"
)

// startEtcd runs an etcd whose data and sockets are in a folder.
func startEtcd(dir string) (*embed.Etcd, error) {
	etcd, err := embed.StartEtcd(etcdtest.Config(dir))
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err := <-etcd.Err():
		return nil, fmt.Errorf("start etcd: %w", err)
	case <-time.After(10 * time.Second):
		etcd.Close()
		return nil, fmt.Errorf("start etcd: it does not begin to serve")
	}
}

// serveEtcd runs one until the input ends, which it does however its reader ends. It says when it serves.
func serveEtcd(dir string, input io.Reader) error {
	if _, err := startEtcd(dir); err != nil {
		return err
	}
	fmt.Println("serving")
	_, err := io.Copy(io.Discard, input)
	return err // it ends with the process: if it were closed it would wait for its clients
}

// inEtcd is a store in the etcd of a folder, with connections of its own.
type inEtcd struct {
	store.Service
	dir string
}

func openStore(ctx context.Context, dir string) (*inEtcd, error) {
	cfg := store.DefaultConfig()
	cfg.Backend, cfg.Etcd.Endpoints = store.BackendEtcd, []string{etcdtest.Endpoint(dir)}
	s, err := store.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return &inEtcd{s, dir}, s.Start(ctx)
}
