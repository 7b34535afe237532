package connectivity

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"porin.dev/porin/internal/task"
)

// Probe is one thing to try from a pod or from a node.
type Probe struct {
	Kind string `json:"kind"`
	// Address is where to connect to; for [DNS] the server, or "" for /etc/resolv.conf.
	Address string `json:"address,omitempty"`
	Name    string `json:"name,omitempty"` // that DNS is asked for, or that a server must have; "" for any
	// For is how long it is tried again, in nanoseconds; the last try may begin then.
	For time.Duration `json:"for,omitempty"`
}

// The kinds of a [Probe].
const (
	Connect = "connect" // TCP, without a request
	HTTP    = "http"    // a request, and the name of the server
	UDP     = "udp"     // a datagram, and the same back
	Large   = "large"   // 256 KiB by TCP, and the same back
	DNS     = "dns"     // addresses of a name
)

// Result is how a probe has ended.
type Result struct {
	Error string        `json:"error,omitempty"` // "" is success
	Took  time.Duration `json:"took"`            // in nanoseconds
}

const (
	probeTimeout = 3 * time.Second
	dnsTimeout   = 12 * time.Second       // a resolver asks the next server, or again, after 5 s
	pause        = 500 * time.Millisecond // between two tries
	atOnce       = 64
	largeSize    = 256 << 10
	maxName      = 1 << 10
)

// RunProbes tries all probes and returns their results in the same order.
func RunProbes(ctx context.Context, probes []Probe) []Result {
	results := make([]Result, len(probes))
	var running sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i, p := range probes {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			first := time.Now()
			began := first
			err := p.run(ctx)
			for err != nil && time.Since(first) < p.For && task.Sleep(ctx, pause) == nil {
				began = time.Now()
				err = p.run(ctx)
			}
			results[i].Took = time.Since(began)
			if err != nil {
				results[i].Error = err.Error()
			}
		})
	}
	running.Wait()
	return results
}

func (p Probe) run(ctx context.Context) error {
	timeout := probeTimeout
	if p.Kind == DNS {
		timeout = dnsTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch p.Kind {
	case Connect:
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.Address)
		if err == nil {
			_ = conn.Close()
		}
		return err
	case HTTP:
		name, err := request(ctx, http.MethodGet, "http://"+p.Address+"/name", nil, maxName)
		if err == nil && p.Name != "" && string(name) != p.Name {
			err = fmt.Errorf("%.100q has answered, and not %q", name, p.Name)
		}
		return err
	case Large:
		content := make([]byte, largeSize)
		_, _ = rand.Read(content)
		answer, err := request(ctx, http.MethodPost, "http://"+p.Address+"/echo", content, largeSize)
		if err == nil && !bytes.Equal(answer, content) {
			err = errors.New("the answer is not what was sent")
		}
		return err
	case UDP:
		return datagram(ctx, p.Address)
	case DNS:
		return lookup(ctx, p.Address, p.Name)
	}
	return fmt.Errorf("unknown kind of probe %q", p.Kind)
}

func request(ctx context.Context, method, url string, body []byte, limit int64) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, limit))
}

func datagram(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "udp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	sent := []byte(rand.Text())
	if _, err := conn.Write(sent); err != nil {
		return err
	}
	answer := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return err
	}
	if !bytes.Equal(answer, sent) {
		return errors.New("the answer is not what was sent")
	}
	return nil
}

func lookup(ctx context.Context, server, name string) error {
	resolver := &net.Resolver{PreferGo: true}
	if server != "" {
		resolver.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server)
		}
	}
	addrs, err := resolver.LookupHost(ctx, name)
	if err == nil && len(addrs) == 0 {
		err = errors.New("no address")
	}
	return err
}

// Serve answers probes at the ports of servers until ctx ends: HTTP and UDP.
func Serve(ctx context.Context, name string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /name", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largeSize))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = w.Write(content)
	})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ports := []int{openPort, deniedPort}
	errs := make(chan error, 2*len(ports))
	var config net.ListenConfig
	for _, port := range ports {
		address := fmt.Sprintf(":%d", port)
		listener, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			return err
		}
		server := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
		defer func() { _ = server.Close() }()
		go func() { errs <- server.Serve(listener) }()
		packets, err := config.ListenPacket(ctx, "udp", address)
		if err != nil {
			return err
		}
		defer func() { _ = packets.Close() }()
		go func() { errs <- echo(packets) }()
	}
	select {
	case err := <-errs:
		return err
	case <-ctx.Done():
		return nil
	}
}

func echo(packets net.PacketConn) error {
	buffer := make([]byte, 2048)
	for {
		n, from, err := packets.ReadFrom(buffer)
		if err != nil {
			return err
		}
		_, _ = packets.WriteTo(buffer[:n], from)
	}
}

// familyOf is "ipv4" or "ipv6".
func familyOf(addr netip.Addr) string {
	if addr.Is4() {
		return "ipv4"
	}
	return "ipv6"
}

func joinNonEmpty(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(t string) bool { return t == "" }), " ")
}
