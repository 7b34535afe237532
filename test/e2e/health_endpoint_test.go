package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/health"
	"porin.dev/porin/cells/health/probe"
	"porin.dev/porin/cells/health/probe/network"
	"porin.dev/porin/internal/testutil"
)

const withHealth = "--health-endpoint=true"

// healthEndpoint waits until the node's health endpoint has passed a check.
func (r *rig) healthEndpoint() (ep v1.Endpoint) {
	r.Helper()
	testutil.Eventually(r, func() error {
		answer, err := r.api.Health(r.Context())
		if err != nil {
			return err
		}
		if answer.Endpoint.Status != v1.HealthOK {
			return fmt.Errorf("the endpoint is %+v", answer.Endpoint)
		}
		ep, err = r.api.Endpoint(r.Context(), "cni-attachment-id:"+health.Attachment().String())
		return err
	})
	return ep
}

// hello asks the health endpoint by HTTP, and by ICMP.
func hello(from *testutil.Namespace, addr netip.Addr) error {
	if err := testutil.Ping(from, addr, reach); err != nil {
		return err
	}
	conn, err := from.Dial(netip.AddrPortFrom(addr, probe.Port), reach)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(reach))
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.0\r\n\r\n", probe.HelloPath); err != nil {
		return err
	}
	buffer := make([]byte, 1024)
	n := 0
	for n < len(buffer) {
		more, err := conn.Read(buffer[n:])
		if n += more; err != nil {
			break
		}
	}
	if !strings.Contains(string(buffer[:n]), `{"node":"node1"}`) {
		return fmt.Errorf("answer %q", buffer[:n])
	}
	return nil
}

func TestHealthEndpoint(t *testing.T) {
	r := newRig(t, withHealth)
	ep := r.healthEndpoint()
	if ep.Kind != "health" || ep.State != "ready" || !ep.Addresses.IPv4.IsValid() || !ep.Addresses.IPv6.IsValid() {
		t.Fatalf("health endpoint: %+v", ep)
	}
	pod := r.pod()
	for _, addr := range ep.Addresses.List() {
		for name, from := range map[string]*testutil.Namespace{"node": r.node.Namespace, "pod": pod.Namespace} {
			if err := hello(from, addr); err != nil {
				t.Errorf("from the %s: %v", name, err)
			}
		}
	}
	if out := r.cli("endpoint", "list"); !strings.Contains(out.out, "(health)") {
		t.Errorf("porin endpoint list:\n%s", out.out)
	}
	r.agrees()
}

func TestHealthEndpointOverRestart(t *testing.T) {
	r := newRig(t, withHealth)
	ep := r.healthEndpoint()
	kernel := kernelState(t, r.node)
	for name, end := range map[string]func(){"killed": func() { r.agent.Kill(t) }, "stopped": func() { r.agent.Stop(t) }} {
		end()
		for _, addr := range ep.Addresses.List() {
			if err := testutil.Ping(r.node.Namespace, addr, reach); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		r.agent.Start(t)
		after := r.healthEndpoint()
		if after.ID != ep.ID || after.Host != ep.Host || after.Addresses != ep.Addresses || !after.Created.Equal(ep.Created) {
			t.Errorf("%s: the endpoint was %+v and is %+v", name, ep, after)
		}
		if err := hello(r.node.Namespace, ep.Addresses.IPv6); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if restored := r.status().Restored; restored.Adopted != 1 || restored.Undone != 0 {
			t.Errorf("%s: restored %+v", name, restored)
		}
	}
	if now := kernelState(t, r.node); now != kernel {
		t.Errorf("the kernel was\n%s\nand is\n%s", kernel, now)
	}
}

// No runtime knows the health endpoint.
func TestHealthEndpointNotCollected(t *testing.T) {
	r := newRig(t, withHealth)
	ep, keep, _ := r.healthEndpoint(), r.pod().Container, r.pod()
	if err := r.forgetful(nil).GC(keep); err != nil {
		t.Error(err)
	}
	r.attached("after GC", keep, &testutil.Container{ID: ep.ContainerID})
	if after := r.healthEndpoint(); after.ID != ep.ID || after.Host != ep.Host {
		t.Errorf("the endpoint was %+v and is %+v", ep, after)
	}
}

func TestHealthEndpointOff(t *testing.T) {
	r := newRig(t, withHealth)
	r.healthEndpoint()
	r.agent.Restart(t, "--health-endpoint=false")
	testutil.Eventually(t, func() error {
		if all := r.endpoints(); len(all) > 0 {
			return fmt.Errorf("endpoints: %+v", all)
		}
		if _, err := os.Stat(filepath.Join(r.node.StateDir, "health.netns")); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("the file of its namespace is there: %v", err)
		}
		return nil
	})
	r.nothingLeft()
}

func TestHealthEndpointRecreated(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(*rig, v1.Endpoint){
		"link gone": func(r *rig, ep v1.Endpoint) {
			if err := r.node.Netlink(r).LinkDel(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: ep.Host.Index}}); err != nil {
				r.Fatal(err)
			}
		},
		"deleted": func(r *rig, ep v1.Endpoint) {
			if done := r.cli("endpoint", "delete", fmt.Sprint(ep.ID)); done.code != 0 {
				r.Fatal(done)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, withHealth, "--ipam-pod-cidr=10.100.1.0/24,fd00:0:0:10::/64", "--ipam-quarantine=1s")
			ep := r.healthEndpoint()
			damage(r, ep)
			testutil.Eventually(t, func() error {
				_ = r.cli("controller", "run", "health-endpoint")
				after, err := r.api.Endpoint(t.Context(), "cni-attachment-id:"+health.Attachment().String())
				if err != nil {
					return err
				}
				if after.Host.Index == ep.Host.Index || after.State != "ready" {
					return fmt.Errorf("it is %s", after.State)
				}
				return nil
			})
			after := r.healthEndpoint()
			if name != "deleted" && after.Addresses != ep.Addresses { // a deletion releases them
				t.Errorf("addresses were %v and are %v", ep.Addresses, after.Addresses)
			}
			for _, addr := range after.Addresses.List() {
				if err := hello(r.node.Namespace, addr); err != nil {
					t.Error(err)
				}
			}
			r.agrees()
		})
	}
}

// What may be lost of the endpoint while no agent runs. The first pod comes at once, and must not have its addresses.
func TestHealthEndpointLost(t *testing.T) {
	t.Parallel()
	ledger := func(r *rig, _ v1.Endpoint) error { return os.Remove(filepath.Join(r.node.StateDir, "ledger.db")) }
	link := func(r *rig, ep v1.Endpoint) error {
		return r.node.Netlink(r).LinkDel(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: ep.Host.Index}})
	}
	for name, lose := range map[string]func(*rig, v1.Endpoint) error{
		"link":            link,
		"ledger":          ledger,
		"link and ledger": func(r *rig, ep v1.Endpoint) error { return errors.Join(link(r, ep), ledger(r, ep)) }, // as a boot does
		"namespace": func(r *rig, _ v1.Endpoint) error { // as when the agent's container and its mounts end
			return unix.Unmount(filepath.Join(r.node.StateDir, "health.netns"), unix.MNT_DETACH)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, withHealth)
			ep := r.healthEndpoint()
			r.agent.Kill(t)
			if err := lose(r, ep); err != nil {
				t.Fatal(err)
			}
			r.agent.Start(t)
			pod := r.pod()
			after := r.healthEndpoint()
			if after.Addresses != ep.Addresses || pod.ipv4 == ep.Addresses.IPv4 || pod.ipv6 == ep.Addresses.IPv6 {
				t.Errorf("addresses were %v and are %v; the pod has %v and %v", ep.Addresses, after.Addresses, pod.ipv4, pod.ipv6)
			}
			for _, addr := range ep.Addresses.List() {
				if err := hello(pod.Namespace, addr); err != nil {
					t.Error(err)
				}
			}
			r.agrees()
			if held := r.status().Held; held.Count != 0 {
				t.Errorf("held: %+v", held)
			}
		})
	}
}

// A policy that denies all pods everything is none for the health endpoint, and holds for a pod that calls it.
func TestHealthEndpointAndPolicy(t *testing.T) {
	r := newRig(t, withHealth)
	ep, pod := r.healthEndpoint(), r.pod()
	if err := hello(pod.Namespace, ep.Addresses.IPv4); err != nil {
		t.Fatal(err)
	}
	_, err := r.api.PutPolicies(t.Context(), []byte(`apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: deny}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {}}
  ingress: [{action: Deny, from: [{namespaces: {}}]}]
  egress: [{action: Deny, to: [{networks: [0.0.0.0/0, "::/0"]}]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range ep.Addresses.List() {
		if err := hello(r.node.Namespace, addr); err != nil {
			t.Errorf("from the node: %v", err)
		}
		if err := testutil.Ping(pod.Namespace, addr, unreachable); err == nil {
			t.Errorf("a pod that may send nothing reaches %s", addr)
		}
	}
	if status := r.healthEndpoint(); status.ID != ep.ID {
		t.Errorf("it was made anew: %+v", status)
	}
}

// In multi-pool its addresses are of a block of the node, and a new ledger and a new start change nothing.
func TestHealthEndpointMultiPool(t *testing.T) {
	r := newRig(t, withHealth, "--ipam-mode=multi-pool", "--ipam-pod-cidr=", "--ipam-default-pool=10.70.0.0/24,fd00:70::/64")
	ep := r.healthEndpoint()
	if ep.Pool != "default" {
		t.Errorf("%+v", ep)
	}
	r.agent.Restart(t)
	if after := r.healthEndpoint(); after.Addresses != ep.Addresses || after.ID != ep.ID {
		t.Errorf("it was %+v and is %+v", ep, after)
	}
	r.agrees()
}

// Not a single ping is lost while the agent is killed and starts again, nor while it is stopped in order.
func TestHealthEndpointAnswersAllTheTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, withHealth)
	ep := r.healthEndpoint()
	network := network.New()
	sent, stop, lost := 0, make(chan struct{}), make(chan int)
	go func() {
		failed := 0
		for {
			select {
			case <-stop:
				lost <- failed
				return
			default:
			}
			sent++
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			if r.node.Do(func() error { _, err := network.Ping(ctx, ep.Addresses.IPv4); return err }) != nil {
				failed++
			}
			cancel()
		}
	}()
	for range 3 {
		r.agent.Kill(t)
		r.agent.Start(t)
		r.agent.Stop(t)
		r.agent.Start(t)
	}
	close(stop)
	if failed := <-lost; failed > 0 || sent < 100 {
		t.Errorf("%d of %d pings were lost", failed, sent)
	}
}
