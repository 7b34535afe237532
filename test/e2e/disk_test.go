package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

func TestFullDisk(t *testing.T) {
	testutil.Root(t)
	node := testutil.NewNode(t)
	disk := smallDisk(t, 256<<10)
	node.StateDir = filepath.Join(disk, "state")
	r := rigOn(t, node)
	p := r.pod()
	filler := filepath.Join(disk, "filler")
	fill(t, filler)
	// The ledger's file has pages to spare for a while; then nothing more goes in.
	var failed error
	var extra []*testutil.Container
	for range 64 {
		c := testutil.NewContainer(t)
		if _, failed = r.cni.Add(c); failed != nil {
			if names := c.LinkNames(t); len(names) != 1 {
				t.Errorf("links in the refused container: %v", names)
			}
			break
		}
		extra = append(extra, c)
	}
	failedWith(t, failed, "no space left on device")
	failedAs(t, failed, codeTryAgainLater)
	if n := len(r.endpoints()); n != 1+len(extra) {
		t.Errorf("%d endpoints, want %d", n, 1+len(extra))
	}
	if err := testutil.Ping(p.Namespace, node.IPv4, reach); err != nil {
		t.Errorf("a running container: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for _, c := range append(extra, p.Container) {
		r.cni.MustDel(t, c)
	}
	r.nothingLeft()
}

func TestDELWithoutAgentFullDisk(t *testing.T) {
	testutil.Root(t)
	node := testutil.NewNode(t)
	node.StateDir = filepath.Join(smallDisk(t, 256<<10), "state")
	r := rigOn(t, node)
	p := r.pod()
	r.agent.Kill(t)
	filler := filepath.Join(filepath.Dir(node.StateDir), "filler")
	fill(t, filler)
	err := r.cni.Del(p.Container)
	failedAs(t, err, codeTryAgainLater)
	failedWith(t, err, "no space left on device")
	if err := testutil.Ping(p.Namespace, node.IPv4, unreachable); err == nil {
		t.Error("the container still reaches the node")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	r.cni.MustDel(t, p.Container)
	r.agent.Start(t)
	r.nothingLeft()
}

// smallDisk mounts one of that size.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size="+strconv.Itoa(size)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	return disk
}

// fill writes until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for err == nil {
		_, err = file.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}
