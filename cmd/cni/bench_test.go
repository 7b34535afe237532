package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/agenttest"
	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

// BenchmarkExec is a process of the plugin from exec to exit: VERSION, which is the cost of being a process, and ADD
// and DEL with an agent that does nothing but remove the link.
func BenchmarkExec(b *testing.B) {
	testutil.Root(b)
	dir, err := os.MkdirTemp("", "cni")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	binary := filepath.Join(dir, "porin-cni")
	if out, err := exec.Command("go", "build", "-trimpath", "-o", binary, ".").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	node := testutil.NetNS(b)
	agent := agenttest.New(filepath.Join(dir, "agent.sock"))
	agent.Gone = func(ep v1.Endpoint) { removeLink(b, node, ep.Host.Index) }
	agent.Start(b)
	config := `{"cniVersion":"1.1.0","name":"porin","type":"porin-cni","socket":"` + agent.Socket + `"}`
	run := func(b *testing.B, command, id, netns string) time.Duration {
		cmd := exec.Command(binary)
		cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+id, "CNI_IFNAME=eth0", "CNI_NETNS="+netns)
		cmd.Stdin = strings.NewReader(config)
		var out strings.Builder
		cmd.Stdout = &out
		began := time.Now()
		if err := node.Do(cmd.Start); err != nil {
			b.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			b.Fatalf("%s: %v: %s", command, err, out.String())
		}
		return time.Since(began)
	}
	b.Run("VERSION", func(b *testing.B) {
		for b.Loop() {
			run(b, "VERSION", "", "")
		}
	})
	b.Run("ADD+DEL", func(b *testing.B) {
		ns := testutil.NetNS(b)
		took := map[string][]time.Duration{}
		for i := 0; b.Loop(); i++ {
			for _, command := range []string{"ADD", "DEL"} {
				took[command] = append(took[command], run(b, command, fmt.Sprintf("c%d", i), ns.Path()))
			}
		}
		for command, all := range took {
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Microseconds()), command+"-p50-µs")
			b.ReportMetric(float64(all[len(all)*9/10].Microseconds()), command+"-p90-µs")
		}
	})
}

// removeLink returns when the link is gone, long before the call that deletes it does.
func removeLink(b *testing.B, node *testutil.Namespace, index int) {
	var watch *rtnl.LinkWatch
	err := node.Do(func() (err error) {
		watch, err = rtnl.WatchLinks()
		return err
	})
	if err != nil {
		b.Error(err)
		return
	}
	defer watch.Close()
	conn, err := rtnl.DialAt(node.FD())
	if err != nil {
		b.Error(err)
		return
	}
	go func() {
		defer conn.Close()
		_ = conn.Do(rtnl.DelLink(index))
	}()
	for {
		if link, err := watch.Next(); err != nil || link.Index == index {
			return
		}
	}
}
