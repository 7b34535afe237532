package spec

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "porin.dev/porin/api/v1"
)

var comparable = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}

func env(pairs ...string) func(string) string {
	vars := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		vars[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return vars[name] }
}

// addEnv is the environment of an ordinary ADD.
func addEnv(more ...string) func(string) string {
	return env(append([]string{
		"CNI_COMMAND", "ADD", "CNI_CONTAINERID", "c1", "CNI_IFNAME", "eth0", "CNI_NETNS", "/run/netns/x",
	}, more...)...)
}

func TestACallIsReadWhole(t *testing.T) {
	config := `{
		"cniVersion": "1.0.0", "name": "pods", "type": "porin-cni", "socket": "/run/p/a.sock", "mtu": 9000, "timeout": "1m30s",
		"dns": {"nameservers": ["10.0.0.10"]}, "prevResult": null, "ipam": {"type": "host-local"},
		"runtimeConfig": {"ips": ["10.0.0.9/24", "fd00::9/64"], "io.kubernetes.cri.pod-annotations": {"a": "b", "porin.dev/pool": "blue"}}
	}`
	got, fault := Read(addEnv("CNI_ARGS", "K8S_POD_NAME=p;IP=10.0.0.9;PORIN_POOL=red;PORIN_RESERVATION=T0K3N;", "CNI_NETNS_OVERRIDE", "TRUE", "CNI_PATH", "/a:/b"), strings.NewReader(config))
	if fault != nil {
		t.Fatal(fault)
	}
	ips := []netip.Addr{netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00::9")}
	want := Call{
		Environment: Environment{
			Command: "ADD", ContainerID: "c1", IfName: "eth0", NetNS: "/run/netns/x", NetNSOverride: true, Path: "/a:/b",
			Args: Args{PodName: "p", IPs: ips[:1], Pool: "red", Reservation: "T0K3N"},
		},
		Config: Config{
			CNIVersion: "1.0.0", Name: "pods", Socket: "/run/p/a.sock", StateDir: "/run/p", MTU: 9000, Timeout: 90 * time.Second,
			IPs: ips, PodPool: "blue", DNS: []byte(`{"nameservers": ["10.0.0.10"]}`), IPAM: "host-local",
		},
		Stdin: []byte(config),
	}
	want.Addresses.IPv4, want.Addresses.IPv6 = ips[0], ips[1]
	if diff := cmp.Diff(want, got, comparable); diff != "" {
		t.Errorf("call (-want +got):\n%s", diff)
	}
}

func TestWhatIsNoJSONIsADecodingFailure(t *testing.T) {
	for _, text := range []string{"", "{", "null", "[]", `{"name":}`, `{"name":"a"} {}`} {
		_, fault := Read(addEnv(), strings.NewReader(text))
		if fault == nil || fault.Code != NotJSON {
			t.Errorf("%q: %v, want code %d", text, fault, NotJSON)
		}
	}
	_, fault := Read(addEnv(), iotest.ErrReader(errors.New("broken pipe")))
	if fault == nil || fault.Code != IOFailure {
		t.Errorf("unreadable stdin: %v, want code %d", fault, IOFailure)
	}
}

// TestResultsAreThoseOfTheReference holds every version's form of a result against the reference library.
func TestResultsAreThoseOfTheReference(t *testing.T) {
	result := Result{
		Interfaces: []Interface{{Name: "por0", MAC: "02:00:00:00:00:01", MTU: 1500}, {Name: "eth0", MAC: "02:00:00:00:00:02", MTU: 1500, Sandbox: "/run/netns/x"}},
		IPs: []IP{
			{1, netip.MustParsePrefix("10.0.0.1/32"), netip.MustParseAddr("169.254.1.1")},
			{1, netip.MustParsePrefix("fd00::1/128"), netip.MustParseAddr("fe80::1")},
		},
		Routes: []Route{{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("169.254.1.1")}},
		DNS:    []byte(`{"domain":"cluster.local"}`),
	}
	for _, version := range Versions() {
		text := result.JSON(version)
		reference, err := create.Create(version, text)
		if err != nil {
			t.Errorf("%s: %v", version, err)
			continue
		}
		again, err := json.Marshal(reference)
		if err != nil {
			t.Fatal(err)
		}
		var ours, theirs any
		if err := errors.Join(json.Unmarshal(text, &ours), json.Unmarshal(again, &theirs)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(theirs, ours); diff != "" {
			t.Errorf("%s (-reference +ours):\n%s", version, diff)
		}
		back, fault := ParseResult(text)
		if fault != nil || len(back.IPs) != 2 || back.IPs[1] != result.IPs[1] || back.Routes[0] != result.Routes[0] {
			t.Errorf("%s: read back %+v, %v", version, back, fault)
		}
	}
}

func TestErrorsAreThoseOfTheReference(t *testing.T) {
	e := AsError(&Error{TryAgain, "no\nagent", "start \"it\""})
	var reference types.Error
	if err := json.Unmarshal(e.JSON("1.1.0"), &reference); err != nil {
		t.Fatal(err)
	}
	want := types.Error{Code: types.ErrTryAgainLater, Msg: "no agent", Details: `start "it"`}
	if diff := cmp.Diff(want, reference); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	if other := AsError(errors.New("x")); other.Code != Internal || other.Msg != "x" {
		t.Errorf("another error is %+v", other)
	}
}

// FuzzRead reads foreign bytes as configuration and arguments: no panic; what is accepted is within the limits; and a
// configuration that is refused is JSON of the specification's form of an error.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"1.1.0","name":"porin","mtu":1500,"dns":{},"runtimeConfig":{"ips":["10.0.0.1"]}}`), "K8S_POD_NAME=a;IP=10.0.0.1", "c1", "eth0")
	f.Add([]byte(`{"cniVersion":"0.3.1","name":"porin","prevResult":{"ips":[{"address":"10.0.0.1/32"}]}}`), "IP=,;=", "../c", "eth/0")
	f.Add([]byte(`{"cniVersion":"1.1.0","name":"porin","args":{"cni":{"ips":null}},"cni.dev/valid-attachments":[{}]}`), ";", "", "lo")
	f.Add([]byte(`{"cniVersion":"1.1.0","name":"0","pool":"blue"}`), "0", " ", "0")
	f.Add([]byte(`{"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"porin.dev/pool":"Blue"}}}`), "PORIN_POOL=a", "c", "e")
	f.Fuzz(func(t *testing.T, config []byte, args, id, ifname string) {
		for _, command := range []string{"ADD", "DEL", "CHECK", "GC", "STATUS"} {
			getenv := env("CNI_COMMAND", command, "CNI_CONTAINERID", id, "CNI_IFNAME", ifname, "CNI_NETNS", "/x", "CNI_ARGS", args)
			call, fault := Read(getenv, strings.NewReader(string(config)))
			if fault != nil {
				if text := fault.JSON(call.Config.CNIVersion); !json.Valid(text) || strings.Count(string(text), "\n") != 1 || fault.Msg == "" {
					t.Errorf("error is %q", text)
				}
				continue
			}
			checkCall(t, call)
			if call.Config.PrevResult != nil {
				_, _ = ParseResult(call.Config.PrevResult)
			}
		}
	})
}

func checkCall(t *testing.T, c Call) {
	t.Helper()
	a4, a6 := c.Addresses.IPv4, c.Addresses.IPv6
	switch {
	case !json.Valid([]byte(`"`+c.Config.Name+`"`)) || c.Config.Name == "" || strings.ContainsAny(c.Config.Name+c.ContainerID, "/ "):
		t.Errorf("name %q, container %q", c.Config.Name, c.ContainerID)
	case strings.ContainsAny(c.IfName, "/%: ") || len(c.IfName) > 15 && c.Command == "ADD":
		t.Errorf("interface %q", c.IfName)
	case c.Config.MTU != 0 && (c.Config.MTU < minMTU || c.Config.MTU > maxMTU), c.Config.Timeout <= 0, !strings.HasPrefix(c.Config.Socket, "/"):
		t.Errorf("config %+v", c.Config)
	case c.Pool() != "" && v1.CheckPoolName(c.Pool()) != nil:
		t.Errorf("pool %q", c.Pool())
	case a4.IsValid() && !a4.Is4(), a6.IsValid() && !a6.Is6():
		t.Errorf("addresses %+v", c.Addresses)
	}
}
