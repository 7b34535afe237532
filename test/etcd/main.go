// Command etcd is the etcd under the API server of tests. It keeps its data in a folder and serves on the Unix socket
// DIR/client.
//
//	etcd serve DIR              until its input ends, which it does however its parent ends; prints "serving"
//	etcd save DIR FILE          writes a snapshot
//	etcd restore DIR FILE BUMP  makes the data from a snapshot; a BUMP above 0 is added to revisions, and earlier ones count as compacted
//	etcd compact DIR            forgets the past
//	etcd advance DIR N          makes N revisions
//
// It does not sync its files: they end with the test.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1])
	case len(args) == 3 && args[0] == "save":
		return with(args[1], func(ctx context.Context, c *clientv3.Client) error { return save(ctx, c, args[2]) })
	case len(args) == 4 && args[0] == "restore":
		bump, err := strconv.ParseUint(args[3], 10, 64)
		if err != nil {
			return err
		}
		return restore(args[1], args[2], bump)
	case len(args) == 2 && args[0] == "compact":
		return with(args[1], compact)
	case len(args) == 3 && args[0] == "advance":
		n, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return with(args[1], func(ctx context.Context, c *clientv3.Client) error { return advance(ctx, c, n) })
	}
	return errors.New("usage: etcd serve DIR | save DIR FILE | restore DIR FILE BUMP | compact DIR | advance DIR N")
}

func config(dir string) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(dir, "data")
	cfg.ListenClientUrls, cfg.ListenPeerUrls = socket(dir, "client"), socket(dir, "peer")
	cfg.AdvertiseClientUrls, cfg.AdvertisePeerUrls = cfg.ListenClientUrls, cfg.ListenPeerUrls
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.UnsafeNoFsync = true
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	return cfg
}

func socket(dir, name string) []url.URL {
	return []url.URL{{Scheme: "unix", Path: filepath.Join(dir, name)}}
}

func serve(dir string) error {
	etcd, err := embed.StartEtcd(config(dir))
	if err != nil {
		return err
	}
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		return err
	}
	fmt.Println("serving")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err // it ends with the process: a Close would wait for clients
}

// with calls with a client.
func with(dir string, do func(context.Context, *clientv3.Client) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(dir, "client")}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, client), client.Close())
}

func save(ctx context.Context, client *clientv3.Client, path string) error {
	from, err := client.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer from.Close()
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Close())
}

// restore is etcdutl snapshot restore, with --bump-revision and --mark-compacted if bump is above 0.
func restore(dir, path string, bump uint64) error {
	cfg := config(dir)
	if err := os.RemoveAll(cfg.Dir); err != nil {
		return err
	}
	return snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: path, Name: cfg.Name, OutputDataDir: cfg.Dir, PeerURLs: []string{cfg.AdvertisePeerUrls[0].String()},
		InitialCluster: cfg.InitialCluster, InitialClusterToken: cfg.InitialClusterToken, RevisionBump: bump, MarkCompacted: bump > 0,
	})
}

func compact(ctx context.Context, client *clientv3.Client) error {
	now, err := client.Get(ctx, "any")
	if err == nil {
		_, err = client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	}
	if errors.Is(err, rpctypes.ErrCompacted) { // nothing was written since the last time
		return nil
	}
	return err
}

func advance(ctx context.Context, client *clientv3.Client, revisions int) error {
	for range revisions {
		if _, err := client.Put(ctx, "test", ""); err != nil {
			return err
		}
	}
	return nil
}
