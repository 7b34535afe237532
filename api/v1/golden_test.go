package v1_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "porin.dev/porin/api/v1"
)

var update = flag.Bool("update", false, "write the golden files anew")

var (
	host      = v1.Interface{Name: "por6nq2b4zvwkly", Index: 12, MAC: v1.MAC{0x02, 0x00, 0x5e, 0x10, 0x00, 0x01}}
	container = v1.Interface{Name: "eth0", MAC: v1.MAC{0x02, 0x00, 0x5e, 0x10, 0x00, 0x02}}
	pod       = v1.Pod{
		Namespace: "default", Name: "web-0", UID: "6f1c8f0e-2f5b-4c0b-9d0c-1f6d9b7a3a11", PriorityClass: "high",
	}
	addresses = v1.Addresses{IPv4: netip.MustParseAddr("10.1.0.7"), IPv6: netip.MustParseAddr("fd00::7")}
	noon      = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

	labels, namespaceLabels = map[string]string{"app": "web"}, map[string]string{"team": "shop"}
	namedPorts              = []v1.NamedPort{{Name: "http", Protocol: v1.ProtocolTCP, Port: 80}}

	bandwidth = v1.Bandwidth{IngressRate: 1e7, IngressBurst: 1e6, EgressRate: 1.5e9, EgressBurst: 1e8}

	endpoint = v1.Endpoint{
		ID: 7, ContainerID: "0123456789ab", IfName: "eth0", Kind: "health", State: "ready", Network: "porin", Pod: pod,
		NetNS: "/run/netns/web-0", Host: host, Container: container, Addresses: addresses, Pool: "blue", ExternalIPAM: true, Created: noon,
		Labels: labels, NamespaceLabels: namespaceLabels, NamedPorts: namedPorts, Bandwidth: bandwidth,
		Gateways: v1.Addresses{IPv4: v1.GatewayIPv4, IPv6: v1.GatewayIPv6},
		Policy:   &v1.EndpointPolicy{Egress: true, Ingress: true, Error: "policies: no space left on device"},
		Traffic: &v1.Traffic{
			FromPod: v1.Counter{Packets: 10, Bytes: 840}, ToPod: v1.Counter{Packets: 9, Bytes: 756},
			Drops: map[string]uint64{"source-address": 1},
		},
	}
)

// bodies has one value a type, with every field set: the field names are what callers in other languages know.
var bodies = map[string]any{
	"endpoint": endpoint,
	"endpoint-request": v1.EndpointRequest{
		Network: "porin", Pod: pod, NetNS: "/run/netns/web-0", MTU: 1400, Pool: "blue",
		Addresses: addresses, Reservation: "4UFXKSCNGRY3KIRXEYBGT6NQXC", ExternalIPAM: true, Began: 123456789,
		Labels: labels, NamespaceLabels: namespaceLabels, NamedPorts: namedPorts, Bandwidth: bandwidth,
	},
	"endpoint-patch": v1.EndpointPatch{Labels: labels, NamespaceLabels: map[string]string{}, NamedPorts: namedPorts, Audit: new(false)},
	"health": v1.ClusterHealth{
		Node: "node1", Endpoint: v1.HealthEndpoint{Status: v1.HealthFailing, ID: 7, Addresses: addresses, Checked: &noon, Error: "ICMP to 10.1.0.7: no answer in time"},
		Interval: time.Minute, Sample: 200, Bounds: []time.Duration{time.Millisecond},
		Nodes: []v1.NodeHealth{{
			Name: "node2", Key: "abcdefgh", Status: v1.HealthFailing, Faults: []v1.HealthFault{{Part: "tunnel", Detail: "ipv4: nothing comes through the tunnel"}},
			Probes: []v1.HealthProbe{{
				Target: "endpoint", Protocol: "http", Family: "ipv4", Address: addresses.IPv4, OK: true, LastProbe: &noon, LastSeen: &noon, Failures: 1,
				Latency: time.Millisecond, Histogram: []uint32{1, 0}, Error: "no answer in time",
			}},
		}},
	},
	"endpoint-minimal": v1.Endpoint{},
	"request-minimal":  v1.EndpointRequest{},
	"delete-request":   v1.DeleteRequest{ContainerID: "0123456789ab", Began: 123456789},
	"delete-result": v1.DeleteResult{
		Deleted: 1, Skipped: 1, Errors: 1, Details: []string{"datapath: delete link por6nq2b4zvwkly: device busy"}, GivenUp: []string{"ipam: plugin not found"},
	},
	"ipam": v1.IPAM{
		Mode: "pod-cidr",
		Pools: []v1.Pool{{Name: "default", Ranges: []v1.Range{
			{Prefix: netip.MustParsePrefix("10.1.0.0/24"), Capacity: 253, Used: 1, Quarantined: 2, Free: 250, Drained: true, NodeAddresses: []netip.Addr{netip.MustParseAddr("10.1.0.9")}},
		}}},
		Allocations: []v1.Allocation{{Address: addresses.IPv4, Pool: "default", Owner: "0123456789ab:eth0", ContainerID: "0123456789ab", IfName: "eth0", Pod: v1.Pod{Namespace: "default", Name: "web-0"}, Since: noon, Expires: noon, Unnamed: true}},
	},
	"reservation-request-permanent": v1.ReservationRequest{Owner: "printer", Permanent: true},
	"reservation-permanent":         v1.Reservation{Owner: "printer", Pool: "default", Addresses: addresses, Token: "4UFXKSCNGRY3KIRXEYBGT6NQXC", Permanent: true},
	"reservation-request":           v1.ReservationRequest{Owner: "migration", Pool: "default", Addresses: addresses, Expires: time.Minute},
	"reservation":                   v1.Reservation{Owner: "migration", Pool: "default", Addresses: addresses, Token: "4UFXKSCNGRY3KIRXEYBGT6NQXC", Expires: noon},
	"status": v1.Status{
		Version: "v0.1.0", Node: "node-1", PID: 4711, Started: noon, Ready: true,
		Endpoints: map[string]int{"ready": 2, "disconnecting": 1},
		Restored: v1.Restored{
			Adopted: 2, Replaced: 1, Undone: 1, Duration: 1500 * time.Microsecond,
			Reasons: []v1.RestoredEndpoint{{Endpoint: "0123456789ab:eth0", Outcome: "undone", Reasons: []string{"its interface is gone"}}},
			Removed: []string{"interface por6nq2b4zvwkly"},
		},
		Held: v1.Held{Count: 1, Endpoints: []v1.HeldEndpoint{{
			Endpoint: "0123456789ab:eth0", Link: "por6nq2b4zvwkly", Addresses: v1.Addresses{IPv4: netip.MustParseAddr("10.1.0.7")},
			Reason: "link-lost", Detail: "the ledger has it, and its link is gone: link: no such host interface",
		}}},
		Findings: v1.Findings{Count: 1, First: []v1.Finding{{Kind: "cni-conf-shadowed", Owner: "cniconf", Subject: "/etc/cni/net.d/00-other.conflist", Detail: "it sorts before Porin's", Since: noon, Times: 2, Manual: true, Repair: "remove it"}}},
		Datapath: v1.Datapath{
			BPFRoot: "/sys/fs/bpf/porin", Digest: "5e8f", Adopted: true, Programs: []v1.Program{{Name: "from_pod", ID: 42, Tag: "a1b2c3d4e5f60718"}},
			Missing:   []string{"bpf_redirect_peer (Linux 5.10): packets take the host's stack"},
			Unmanaged: &v1.Unmanaged{Passed: 3, Denied: 7},
		},
		Policy: v1.PolicyStatus{
			Policies: 2, Revision: 12, Identities: 9, Error: "policies: no space left on device", FailedSince: noon,
			Reports: []v1.PolicyReport{{Policies: []string{"ClusterNetworkPolicy a", "ClusterNetworkPolicy b"}, Text: "equal priority 7 in tier admin"}},
		},
		Proxy: v1.ProxyStatus{InUse: true, RuleSets: 3, Connections: 17, Error: "kernel lacks SK_LOOKUP programs"},
		Kubernetes: &v1.KubernetesStatus{
			Server: "https://10.96.0.1:443", Reachable: true,
			Kinds:          []v1.KubernetesKind{{Kind: "pods", Objects: 30, Synced: true, LastContact: noon, Error: "watch pods: connection refused"}},
			UnattachedPods: []string{"kube-system/coredns-0"},
		},
		Network: v1.NetworkStatus{
			Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Blocks: 2, Routing: "native", Published: true, Peers: 12, MissingPeers: 1, Errors: 1,
			Tunnel: &v1.TunnelStatus{
				Port: 8472, Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.1")}, Dropped: map[string]uint64{"source": 3}, Error: "no VXLAN",
			},
			Masquerade: v1.MasqueradeStatus{
				Families: []string{"ipv4"}, Excluded: []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")}, Connections: 3, Error: "no nf_tables",
			},
		},
		Recovery:  &v1.RecoveryStatus{UnderWay: true, Began: noon, Reason: "an administrator said so", Unwritten: true},
		Conflicts: []v1.BlockConflict{{CIDR: netip.MustParsePrefix("10.1.0.32/29"), Pool: "default", Owner: "one/aaaaaaaaaa"}},
		Resources: []v1.Resource{{
			Name: "addresses/default/10.1.0.0/24", Used: 250, Quarantined: 2, Capacity: 253, Available: false, Reason: "1 of 253 is left, and 2 must be",
		}},
	},
	"doctor": v1.Doctor{
		Findings: []v1.Finding{{
			Kind: "link-orphan", Owner: "datapath", Subject: "por6nq2b4zvwkly, index 12", Endpoint: "0123456789ab:eth0",
			Detail: "the interface belongs to no endpoint", Repair: "remove it", Manual: true, Since: noon, Times: 2, Outcome: "repaired",
		}},
		Examined: noon, Duration: 3 * time.Millisecond, Errors: []string{"ipam: the ledger is closed"},
		Notes:    []v1.Finding{{Kind: "resource-runs-out", Owner: "capacity", Subject: "endpoint-numbers", Since: noon, Times: 1}},
		Repaired: []v1.Finding{{Kind: "route-orphan", Owner: "datapath", Subject: "route to 10.1.0.9/32 by link 7", Since: noon, Times: 2, Outcome: "repaired"}},
	},
	"accept-request": v1.AcceptRequest{Endpoint: "0123456789ab:eth0"},
	"gc-request":     v1.GCRequest{Network: "porin", Valid: []string{"0123456789ab:eth0"}, Began: 123456789, DryRun: true},
	"gc-result": v1.GCResult{
		Stale: []string{"0123456789ab:eth0"}, Deleted: 1, Errors: 1, Details: []string{"datapath: delete link por6nq2b4zvwkly: device busy"},
		Withheld: "1 of 1 is not valid",
	},
	"trace": v1.Trace{
		Operation: "add", Endpoint: "0123456789ab:eth0", Pod: "default/web-0", Began: noon, Duration: time.Millisecond,
		Phases: []v1.Phase{{Name: "ipam", Duration: 21 * time.Microsecond}}, Error: "no free address",
	},
	"event": v1.Event{
		Seq: 3, Time: noon, Type: v1.EventEndpointFailed, Endpoint: &endpoint, Operation: "add",
		Phases:  []v1.Phase{{Name: "ipam", Duration: 21 * time.Microsecond, Error: "no free address"}},
		Message: "for people", Error: "no free address",
	},
	"flow": v1.Flow{
		Seq: 9, Time: noon, Lost: 12, Verdict: v1.FlowDenied, Reason: "policy-ingress", Place: "to-pod", Protocol: "TCP", Reply: true, Length: 74,
		From: v1.FlowEnd{
			Address: netip.MustParseAddr("10.1.0.8"), Port: 41234, Kind: "pod", Identity: 5, Pod: v1.Pod{Namespace: "demo", Name: "client"}, Endpoint: 8, Labels: labels,
		},
		To:      v1.FlowEnd{Address: netip.MustParseAddr("10.1.0.7"), Port: 8080, Kind: "pod", Identity: 4, Pod: v1.Pod{Namespace: "demo", Name: "web"}, Endpoint: 7, Names: []string{"www.example.com"}},
		Service: v1.FlowEnd{Address: netip.MustParseAddr("10.96.0.1"), Port: 80},
		Egress:  &v1.PolicyDecision{Allowed: true, Reason: "no policy selects the pod"},
		Ingress: &v1.PolicyDecision{Reason: "default deny", Rule: &v1.PolicyRule{Kind: "NetworkPolicy", Namespace: "demo", Policy: "web", Direction: "ingress", Index: -1}},
	},
	"flow-minimal": v1.Flow{},
	"pool-spec": v1.PoolSpec{
		Name: "blue", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}, IPv4BlockBits: 26, IPv6BlockBits: 122,
		Exclude: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/28")}, NodeSelector: map[string]string{"zone": "a"},
		AllowedNamespaces: []string{"shop"}, Disabled: true, Quarantine: new(30 * time.Second), ReuseResting: true,
		State: "accepted", Version: "1f2e3d4c5b6a7988",
		Warnings: []string{"it has 2 IPv4 blocks, and the cluster has 3 nodes"},
		Use:      []v1.PoolUse{{Family: "ipv4", Blocks: 1024, Owned: 3, Nodes: 2}},
		Draining: []v1.PoolBlock{{CIDR: netip.MustParsePrefix("10.3.0.0/26"), Node: "node-1", Key: "abcdefgh23"}},
	},
	"node": v1.Node{
		Name: "node-1", Key: "abcdefgh23", State: "active", Created: noon, LastContact: noon, Contested: true,
		Blocks: []v1.NodeBlock{{CIDR: netip.MustParsePrefix("10.2.0.0/26"), Pool: "blue"}},
	},
	"node-deletion": v1.NodeDeletion{Key: "abcdefgh23", MachineIsOff: true},
	"node-reset":    v1.NodeReset{Key: "abcdefgh23"},
	"recovery": v1.Recovery{
		UnderWay: true, Began: noon, Reason: "an administrator said so", Requested: true,
		Unwritten: []v1.UnwrittenNode{{Node: "node-1/abcdefgh23", Conflicts: []string{"node-3/cdefghij45"}}},
	},
	"recovery-request": v1.RecoveryRequest{Begin: true, End: true, Force: true},
	"policy": v1.Policy{
		Kind: "NetworkPolicy", Namespace: "shop", Name: "web", Tier: "networkpolicy", Priority: 7, Egress: -1, Ingress: 2,
		Reports: []string{"ingress rule 0: rules for HTTP and for DNS accept the same connections, which are denied"}, Outcome: "created", Source: "kubernetes",
		Manifest: json.RawMessage("{\n    \"kind\": \"NetworkPolicy\"\n  }"),
	},
	"policy-explanation": v1.PolicyExplanation{
		From: v1.PolicyEnd{Address: addresses.IPv4, Kind: "pod", Pod: pod, Endpoint: 7}, To: v1.PolicyEnd{Address: netip.MustParseAddr("192.0.2.1"), Kind: "world", Names: []string{"www.example.org"}},
		Protocol: "TCP", Port: 80, Allowed: true, Error: "policies: no space left on device",
		Egress: v1.PolicyDecision{
			Allowed: true, Reason: "rule", Rule: &v1.PolicyRule{Kind: "NetworkPolicy", Namespace: "shop", Policy: "web", Direction: "egress"},
			Passed: []v1.PolicyRule{{Kind: "ClusterNetworkPolicy", Policy: "cluster", Direction: "egress", Index: 2, Name: "to-all"}},
			Layer7: []string{"GET /public/.*", "and 3 more"},
		},
		Ingress:     v1.PolicyDecision{Allowed: true, Reason: "not a pod"},
		AuditEgress: &v1.PolicyDecision{Reason: "default deny"}, AuditIngress: &v1.PolicyDecision{Reason: "default deny"},
		Datapath: v1.PolicyDatapath{Egress: new(false), Differs: true, NotAsked: "neither end is a pod of this node"},
	},
	"policy-diff": v1.PolicyDiff{
		Flows: 345, Since: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), Changed: 1, Changes: []v1.PolicyFlowChange{{
			From: v1.PolicyEnd{Address: netip.MustParseAddr("192.0.2.1"), Kind: "world"}, To: v1.PolicyEnd{Address: addresses.IPv4, Kind: "pod", Pod: pod, Endpoint: 7},
			Protocol: "TCP", Port: 80, Count: 12, LastSeen: time.Date(2026, 11, 22, 13, 0, 0, 0, time.UTC),
			Now:  v1.PolicyVerdict{Allowed: true, Egress: v1.PolicyDecision{Allowed: true, Reason: "not a pod"}, Ingress: v1.PolicyDecision{Allowed: true, Reason: "no policy selects the pod"}},
			Then: v1.PolicyVerdict{Egress: v1.PolicyDecision{Allowed: true, Reason: "not a pod"}, Ingress: v1.PolicyDecision{Reason: "default deny"}},
		}},
	},
	"problem": v1.Problem{Title: "Conflict", Status: 409, Code: v1.CodeConflict, Detail: "address 10.1.0.7 is in use"},
}

func TestGoldenBodies(t *testing.T) {
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			got, err := json.MarshalIndent(body, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			path := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", path, diff)
			}
			readsBack(t, want, body)
		})
	}
}

// readsBack holds that the golden file, read strictly, is the value.
func readsBack(t *testing.T, golden []byte, body any) {
	t.Helper()
	read := reflect.New(reflect.TypeOf(body))
	decoder := json.NewDecoder(bytes.NewReader(golden))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(read.Interface()); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(read.Elem().Interface(), body) {
		t.Errorf("reads back as %+v", read.Elem())
	}
}
