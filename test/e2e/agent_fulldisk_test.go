package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
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

// TestDELWithoutAgentFullDisk: DEL removes the link and succeeds where it can leave no record, and the next agent takes
// the endpoint for deleted.
func TestDELWithoutAgentFullDisk(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, disk string) (mend func()){
		"full": func(t *testing.T, disk string) func() {
			filler := filepath.Join(disk, "filler")
			fill(t, filler)
			return func() { _ = os.Remove(filler) }
		},
		"read-only": func(t *testing.T, disk string) func() {
			remount := func(flags uintptr) {
				if err := unix.Mount("", disk, "", unix.MS_REMOUNT|flags, ""); err != nil {
					t.Fatal(err)
				}
			}
			remount(unix.MS_RDONLY)
			return func() { remount(0) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			testutil.Root(t)
			node := testutil.NewNode(t)
			node.StateDir = filepath.Join(smallDisk(t, 256<<10), "state")
			r := rigOn(t, node)
			p, other := r.pod(), r.pod()
			r.agent.Kill(t)
			mend := spoil(t, filepath.Dir(node.StateDir))
			r.cni.MustDel(t, p.Container)
			if _, err := node.Netlink(t).LinkByName(v1.HostInterfaceName(p.ID, p.IfName)); err == nil {
				t.Error("the host end is still there")
			}
			mend()
			r.agent.Start(t)
			if all := r.endpoints(); len(all) != 1 || all[0].ContainerID != other.ID {
				t.Errorf("the agent has the endpoints %+v, want that of %s", all, other.ID)
			}
			r.cni.MustDel(t, other.Container)
			r.nothingLeft()
		})
	}
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
