package e2e

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/internal/testutil"
)

// texts are the IPv4 addresses.
func texts(pods []pod) (list []string) {
	for _, p := range pods {
		list = append(list, p.ipv4.String())
	}
	return list
}

func TestReservedAddresses(t *testing.T) {
	r := newRig(t, "--ipam-pod-cidr=10.9.0.0/29")
	var all []pod
	for range 5 {
		all = append(all, r.pod())
	}
	want := []string{"10.9.0.2", "10.9.0.3", "10.9.0.4", "10.9.0.5", "10.9.0.6"}
	if diff := cmp.Diff(want, slices.Sorted(slices.Values(texts(all)))); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	refused(t, r, testutil.NewContainer(t), "10.9.0.0/29 has 5, of which 5 in use")
	for _, address := range []string{"10.9.0.0", "10.9.0.1", "10.9.0.7"} {
		c := testutil.NewContainer(t)
		c.Args = [][2]string{{"IgnoreUnknown", "1"}, {"IP", address}}
		refused(t, r, c, address)
	}
}

func TestAllocateLongestFree(t *testing.T) {
	r := newRig(t, "--ipam-pod-cidr=10.9.0.0/29", "--ipam-quarantine=0s")
	var all []pod
	for range 5 {
		all = append(all, r.pod())
	}
	var want []string
	for _, i := range []int{3, 0, 4} {
		r.cni.MustDel(t, all[i].Container)
		want = append(want, all[i].ipv4.String())
	}
	r.agent.Restart(t) // which must not forget in which order they went
	if got := texts([]pod{r.pod(), r.pod(), r.pod()}); !slices.Equal(got, want) {
		t.Errorf("addresses %v, want %v", got, want)
	}
}

func TestBothFamiliesOrNone(t *testing.T) {
	r := newRig(t, "--ipam-pod-cidr=10.9.0.0/24,fd00:9::/126")
	var last *testutil.Container
	for {
		last = testutil.NewContainer(t)
		if _, err := r.cni.Add(last); err != nil {
			failedWith(t, err, "fd00:9::/126")
			break
		}
	}
	for _, pool := range r.usage().Pools {
		for _, used := range pool.Ranges {
			if n := int64(len(r.endpoints())); used.Used != n || used.Quarantined != 0 {
				t.Errorf("%s: %+v, with %d endpoints", used.Prefix, used, n)
			}
		}
	}
	refused(t, r, last, "fd00:9::/126")
}

func TestRequestedAddressCapability(t *testing.T) {
	r := newRig(t)
	c := testutil.NewContainer(t)
	want4, want6 := netip.MustParseAddr("10.100.1.77"), netip.MustParseAddr("fd00:10:1::77")
	c.Caps = map[string]any{"ips": []string{want4.String() + "/24", want6.String()}}
	p := r.add(c)
	if p.ipv4 != want4 || p.ipv6 != want6 {
		t.Errorf("got %s and %s", p.ipv4, p.ipv6)
	}
	other := testutil.NewContainer(t)
	other.Caps = map[string]any{"ips": []string{"10.100.1.78", want6.String()}}
	refused(t, r, other, "in use") // and its IPv4 address with it
	other.Caps = map[string]any{"ips": []string{"10.100.1.78"}}
	if p := r.add(other); p.ipv4.String() != "10.100.1.78" || !p.ipv6.IsValid() {
		t.Errorf("got %s and %s", p.ipv4, p.ipv6)
	}
}

func TestRequestedAddressRestart(t *testing.T) {
	r := newRig(t)
	c := testutil.NewContainer(t)
	c.Args = [][2]string{{"IgnoreUnknown", "1"}, {"IP", "10.100.1.77"}}
	r.add(c)
	r.agent.Restart(t)
	other := testutil.NewContainer(t)
	other.Args = c.Args
	refused(t, r, other, "in use")
	r.cni.MustDel(t, c)
	refused(t, r, other, "10.100.1.77") // in quarantine
}
