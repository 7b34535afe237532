package embedded_test

import (
	"encoding/binary"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/cluster/embedded"
	"porin.dev/porin/cells/cluster/embedded/embeddedtest"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

func TestConformance(t *testing.T) {
	clustertest.Run(t, func(t *testing.T) cluster.Backend { return embeddedtest.New(t) })
}

// TestEarlierFile opens a file that an agent with cells/store has written, with a record of each kind.
func TestEarlierFile(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile("testdata/records")
	if err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(filepath.Join(dir, "store.db"), 0o600, nil)
	if err == nil {
		err = db.Update(func(tx *bbolt.Tx) error {
			entries, err := tx.CreateBucket([]byte("entries-v2"))
			for line := range strings.Lines(string(text)) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
				err = errors.Join(err, entries.Put([]byte(key), []byte(value)))
			}
			meta, err2 := tx.CreateBucket([]byte("meta-v1"))
			return errors.Join(err, err2, meta.Put([]byte("revision"), binary.BigEndian.AppendUint64(nil, 9)))
		})
	}
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	ctx, b := t.Context(), embeddedtest.Open(t, dir).Backend()
	info, before, err := b.Info.Get(ctx)
	if err != nil || before.Revision != 9 || !info.DefaultPoolRemoved {
		t.Errorf("the cluster is %+v at %+v, error %v", info, before, err)
	}
	_, err = b.Info.Put(ctx, info)
	same(t, "cluster", err)
	node := one(t, b.Nodes.All(ctx))
	_, err = b.Nodes.Update(ctx, node)
	same(t, "node", err)
	_, err = b.Sessions.Put(ctx, one(t, b.Sessions.All(ctx)))
	same(t, "session", err)
	_, err = b.Pools.Update(ctx, one(t, b.Pools.All(ctx)))
	same(t, "pool", err)
	_, err = b.Networks.Put(ctx, one(t, b.Networks.All(ctx)))
	same(t, "network", err)
	_, err = b.Endpoints.Put(ctx, one(t, b.Endpoints.All(ctx)))
	same(t, "endpoint group", err)
	if _, after, err := b.Info.Get(ctx); after != before || err != nil {
		t.Errorf("position %+v after writes of what was read, %+v before: the form has changed; error %v", after, before, err)
	}
	n := 0
	for block, err := range b.Blocks.All(ctx, cluster.BlockFilter{Pool: "default", Owner: node.ID}) {
		if n++; err != nil || b.Blocks.Delete(ctx, block.CIDR, block.Claim) != nil {
			t.Errorf("block %+v, error %v", block, err)
		}
	}
	if n != 2 {
		t.Errorf("%d blocks, want 2", n)
	}
}

func same(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("write the %s as it is: %v", what, err)
	}
}

func one[T any](t *testing.T, all iter.Seq2[T, error]) (item T) {
	t.Helper()
	n := 0
	for next, err := range all {
		if n++; err != nil || n > 1 {
			t.Fatalf("%d records, error %v", n, err)
		}
		item = next
	}
	return item
}

// TestRecordInvalid reads records with invalid values.
func TestRecordInvalid(t *testing.T) {
	const id, none = `{"name":"one","key":"aaaaaaaaaa"}`, `{"name":"one","key":"x"}`
	for key, text := range map[string]string{
		"nodes/one.x":                `"version":1,"id":` + none,
		"nodes/one.aaaaaaaaaa":       `"version":2,"id":` + id,
		"nodes/one.aaaaaaaaab":       `"version":1,"id":` + id,
		"nodes/one.aaaaaaaaac":       `"id":` + id,
		"sessions/one.x/session":     `"version":1,"node":` + none,
		"blocks/10-0-0-1-28":         `"version":1,"cidr":"10.0.0.1/28","owner":` + id,
		"blocks/10-0-0-0-28":         `"version":1,"cidr":"10.0.0.0/28","owner":` + none,
		"networks/one.aaaaaaaaaa":    `"version":1,"node":` + id + `,"blocks":["0.0.0.0/0"]`,
		"networks/one.aaaaaaaaab":    `"version":1,"node":{"name":"one","key":"aaaaaaaaab"},"addresses":["192.0.2.1","192.0.2.2"]`,
		"endpoints/one.aaaaaaaaaa.0": `"version":1,"node":` + id + `,"endpoints":[{"addresses":["127.0.0.1"],"labelSet":0}],"labelSets":[{}]`,
		"endpoints/one.aaaaaaaaaa.1": `"version":1,"node":` + id + `,"slot":1,"endpoints":[{"addresses":["10.0.0.1"],"labelSet":1}],"labelSets":[{}]`,
	} {
		s := embeddedtest.Open(t, t.TempDir())
		embeddedtest.Write(t, s, key, "{"+text+"}")
		ctx, b := t.Context(), s.Backend()
		var errs []error
		for _, err := range b.Nodes.All(ctx) {
			errs = append(errs, err)
		}
		for _, err := range b.Sessions.All(ctx) {
			errs = append(errs, err)
		}
		for _, err := range b.Blocks.All(ctx, cluster.BlockFilter{}) {
			errs = append(errs, err)
		}
		for _, err := range b.Networks.All(ctx) {
			errs = append(errs, err)
		}
		for _, err := range b.Endpoints.All(ctx) {
			errs = append(errs, err)
		}
		if len(errs) != 1 || !errors.Is(errs[0], cluster.ErrUnreadable) || !strings.Contains(errs[0].Error(), key) {
			t.Errorf("%s: errors %v, want %v", key, errs, cluster.ErrUnreadable)
		}
	}
}

// TestSessionWatch: a name may begin as another one does.
func TestSessionWatch(t *testing.T) {
	b := embeddedtest.New(t)
	id := cluster.NodeID{Name: "one", Key: "aaaaaaaaaa"}
	changes, err := b.Sessions.Watch(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []cluster.NodeID{{Name: "one.aaaaaaaaaa", Key: "bbbbbbbbbb"}, id} {
		if _, err := b.Sessions.Put(t.Context(), cluster.Session{Node: id, ID: "s"}); err != nil {
			t.Fatal(err)
		}
	}
	if first, next := <-changes, <-changes; len(first.All) != 0 || next.Item.Node != id {
		t.Errorf("told %+v and %+v, want no session and then that of %s", first, next, id)
	}
}

// TestSlowWatch changes a record often before it reads the watch, which skips states.
func TestSlowWatch(t *testing.T) {
	b := embeddedtest.New(t)
	changes, err := b.Nodes.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	node, err := b.Nodes.Create(t.Context(), clustertest.NodeNamed("one"))
	for i := range 100 {
		node.MachineID = strings.Repeat("x", i)
		if err == nil {
			node, err = b.Nodes.Update(t.Context(), node)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for change := range changes {
		if told++; change.Item.Version == node.Version {
			break
		}
	}
	if told > 10 {
		t.Errorf("%d changes were told, want few of 100", told)
	}
}

func TestStop(t *testing.T) {
	dir := t.TempDir()
	s := embeddedtest.Open(t, dir)
	b := s.Backend()
	node, err := b.Nodes.Create(t.Context(), clustertest.NodeNamed("one"))
	if err != nil {
		t.Fatal(err)
	}
	changes, err := b.Nodes.Watch(t.Context())
	if err = errors.Join(err, s.Stop(t.Context())); err != nil {
		t.Fatal(err)
	}
	for range changes { // until it ends
	}
	for name, b := range map[string]cluster.Backend{"stopped": b, "not started": embedded.New(dir, nil).Backend()} {
		_, err := b.Nodes.Get(t.Context(), node.ID)
		_, err2 := b.Nodes.Update(t.Context(), node)
		_, err3 := b.Nodes.Watch(t.Context())
		for _, err := range []error{err, err2, err3} {
			if !errors.Is(err, cluster.ErrUnavailable) || !strings.Contains(err.Error(), filepath.Join(dir, "store.db")) {
				t.Errorf("%s: error %v", name, err)
			}
		}
	}
	if got, err := embeddedtest.Open(t, dir).Backend().Nodes.Get(t.Context(), node.ID); err != nil || got != node {
		t.Errorf("opened again: %+v, error %v", got, err)
	}
}
