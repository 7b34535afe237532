package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// metricsAddress is where the agents of these tests serve their metrics, each in its own namespace.
const metricsAddress = "127.0.0.1:9964"

// metrics reads what Prometheus would, by name and labels as they are printed.
func (r *rig) metrics() map[string]float64 {
	r.Helper()
	conn, err := r.node.Dial(netip.MustParseAddrPort(metricsAddress), reach)
	if err != nil {
		r.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /metrics HTTP/1.0\r\n\r\n"); err != nil {
		r.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	header, body, _ := strings.Cut(string(answer), "\r\n\r\n")
	if err != nil || !strings.Contains(header, strconv.Itoa(http.StatusOK)) {
		r.Fatalf("GET /metrics: %v, %s", err, header)
	}
	all := map[string]float64{}
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ') // labels may have spaces, too
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			r.Errorf("metric %s: %v", line, err)
		}
		all[line[:max(at, 0)]] = value
	}
	return all
}

// expect compares some of the metrics; a missing one is 0.
func (r *rig) expect(want map[string]float64) {
	r.Helper()
	all := r.metrics()
	for name, value := range want {
		if all[name] != value {
			r.Errorf("%s is %v, want %v", name, all[name], value)
		}
	}
}

// phases are the metrics that count an operation.
func phases(operation string, n float64, names ...string) map[string]float64 {
	want := map[string]float64{}
	for _, name := range append(names, "total") {
		want[fmt.Sprintf(`porin_endpoint_phase_duration_seconds_count{operation=%q,phase=%q}`, operation, name)] = n
	}
	return want
}

func (r *rig) addresses(use string, n float64) map[string]float64 {
	want := map[string]float64{}
	for _, prefix := range []netip.Prefix{r.node.PodIPv4, r.node.PodIPv6} {
		want[fmt.Sprintf(`porin_ipam_addresses{pool="default",prefix=%q,use=%q}`, prefix, use)] = n
	}
	return want
}

func requests(method, route string, n float64) map[string]float64 {
	return map[string]float64{fmt.Sprintf(`porin_api_request_duration_seconds_count{method=%q,route=%q,status="200"}`, method, route): n}
}

func TestMetricsOfEndpoints(t *testing.T) {
	r := newRig(t, "--metrics-address="+metricsAddress)
	r.expect(r.addresses("used", 0))
	a, b := r.pod(), r.pod()
	r.expect(map[string]float64{`porin_endpoints{state="ready"}`: 2})
	r.expect(r.addresses("used", 2))
	r.expect(phases("add", 2, "plugin", "queue", "admission", "ledger-intent", "ipam", "link", "bandwidth", "hostport", "policy", "proxy", "datapath", "ledger-commit"))
	r.expect(requests("POST", "/v1/cni", 2))

	r.cni.MustDel(t, a.Container)
	r.expect(map[string]float64{`porin_endpoints{state="ready"}`: 1})
	r.expect(r.addresses("used", 1))
	r.expect(r.addresses("quarantined", 1))
	r.expect(phases("del", 1, "plugin", "queue", "admission", "ledger-intent", "ipam", "link", "bandwidth", "hostport", "policy", "proxy", "datapath", "ledger-commit"))
	r.expect(requests("POST", "/v1/cni", 3))

	r.agent.Restart(t)
	r.expect(map[string]float64{`porin_endpoints{state="ready"}`: 1})
	r.expect(phases("restore", 1, "ipam", "link", "bandwidth", "hostport", "policy", "proxy", "datapath"))
	r.expect(r.addresses("quarantined", 1))
	r.cni.MustDel(t, b.Container)
	r.expect(map[string]float64{`porin_endpoints{state="ready"}`: 0})
}

// TestMetricsOfPools has both sides of the alert PorinPoolRunsOut.
func TestMetricsOfPools(t *testing.T) {
	r := withPools(t, map[string]string{"blue": "10.65.0.0/23"}, "--metrics-address="+metricsAddress)
	r.pod() // claims a block
	r.expect(map[string]float64{
		`porin_multipool_pool_blocks{family="ipv4",pool="default"}`: 4, `porin_multipool_pool_blocks{family="ipv4",pool="blue"}`: 8, // of 64 addresses
		`porin_multipool_blocks{family="ipv4",pool="default",state="owned"}`: 1,
	})
}

func TestMetricsOfTraffic(t *testing.T) {
	r := newRig(t, "--metrics-address="+metricsAddress)
	a, b := r.pod(), r.pod()
	if err := testutil.RoundTrip(a.Namespace, b.Echo(t, b.ipv4), reach); err != nil {
		t.Fatal(err)
	}
	stranger := a.ipv4.Next().Next().Next()
	wire := r.wire(a)
	for range 3 {
		wire.send(wire.udp4(stranger, b.ipv4, "spoofed"))
	}
	const bytes, drops = `porin_datapath_bytes_total{direction="from-pod"}`, `porin_datapath_drops_total{reason="spoofed-address"}`
	testutil.Eventually(t, func() error {
		if all := r.metrics(); all[drops] != 3 || all[bytes] < 20_000 {
			return fmt.Errorf("%v drops, %v bytes", all[drops], all[bytes])
		}
		return nil
	})
	before := r.metrics()
	r.cni.MustDel(t, a.Container)
	r.cni.MustDel(t, b.Container)
	if after := r.metrics(); after[bytes] < before[bytes] || after[drops] < before[drops] {
		t.Errorf("counters fell: %v bytes, %v drops, before %v and %v", after[bytes], after[drops], before[bytes], before[drops])
	}
}

func TestMetricsOfFailedADD(t *testing.T) {
	r := newRig(t, "--metrics-address="+metricsAddress, "--ipam-pod-cidr=10.9.0.0/30")
	r.pod()
	if _, err := r.cni.Add(testutil.NewContainer(t)); err == nil {
		t.Fatal("the pool is not exhausted")
	}
	if out := r.cli("doctor").out; !strings.Contains(out, "Note:") || !strings.Contains(out, "0 of 1 left") {
		t.Errorf("porin doctor does not tell of the pool:\n%s", out)
	}
	r.expect(map[string]float64{
		`porin_endpoints{state="ready"}`:                                                       1,
		`porin_endpoint_phase_failures_total{operation="add",phase="ipam"}`:                    1,
		`porin_endpoint_phase_duration_seconds_count{operation="add",phase="undo"}`:            1,
		`porin_api_request_duration_seconds_count{method="POST",route="/v1/cni",status="422"}`: 1,
	})
}
