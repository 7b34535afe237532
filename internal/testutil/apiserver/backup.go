package apiserver

import (
	"fmt"
	"io"
	"os"
	"testing"

	restorer "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// Save returns the file of a snapshot of etcd.
func (s *Server) Save(t testing.TB) string {
	t.Helper()
	s.saved++
	path := s.file(fmt.Sprintf("snapshot-%d", s.saved))
	snapshot, err := s.etcd.Client(t).Snapshot(t.Context())
	if err != nil {
		t.Fatalf("save etcd: %v", err)
	}
	defer snapshot.Close()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := io.Copy(file, snapshot); err != nil {
		t.Fatalf("save etcd: %v", err)
	}
	return path
}

// Restore stops the API server, restores etcd from a snapshot, and starts both.
func (s *Server) Restore(t testing.TB, snapshot string, bump uint64) {
	t.Helper()
	s.Stop()
	s.RestoreEtcd(t, snapshot, bump)
	s.Start(t)
}

// RestoreEtcd restores etcd from a snapshot under the API server. A bump above 0 is added to the revision, and earlier revisions count as
// compacted: etcdutl snapshot restore --bump-revision --mark-compacted.
func (s *Server) RestoreEtcd(t testing.TB, snapshot string, bump uint64) {
	t.Helper()
	s.etcd.Stop()
	if err := os.RemoveAll(s.config.Dir); err != nil {
		t.Fatal(err)
	}
	err := restorer.NewV3(zap.NewNop()).Restore(restorer.RestoreConfig{
		SnapshotPath: snapshot, Name: s.config.Name, OutputDataDir: s.config.Dir, PeerURLs: []string{s.config.AdvertisePeerUrls[0].String()},
		InitialCluster: s.config.InitialCluster, InitialClusterToken: s.config.InitialClusterToken, RevisionBump: bump, MarkCompacted: bump > 0,
	})
	if err != nil {
		t.Fatalf("restore etcd: %v", err)
	}
	s.etcd.Start(t)
}

// Compact has etcd forget the past.
func (s *Server) Compact(t testing.TB) {
	t.Helper()
	s.etcd.Compact(t)
}

// Advance has etcd go on by some revisions, without the API server.
func (s *Server) Advance(t testing.TB, revisions int) {
	t.Helper()
	client := s.etcd.Client(t)
	for range revisions {
		if _, err := client.Put(t.Context(), "test", ""); err != nil {
			t.Fatalf("write to etcd: %v", err)
		}
	}
}
