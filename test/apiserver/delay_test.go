package apiserver

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"porin.dev/porin/internal/testutil"
)

// delayed serves the API with the certificate of the API server, and watches that are late, and returns its URL.
func (n *node) delayed(by time.Duration) string {
	n.Helper()
	target, err := url.Parse(n.URL)
	if err != nil {
		n.Fatal(err)
	}
	fabric := n.machine.Fabric
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // of this test
		DialContext: func(_ context.Context, _, addr string) (conn net.Conn, err error) {
			return fabric.Dial(netip.MustParseAddrPort(addr), testutil.Patience)
		},
	}
	proxy := &http.Server{ReadHeaderTimeout: time.Minute, Handler: &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ModifyResponse: func(response *http.Response) error {
			if response.Request.URL.Query().Get("watch") != "" {
				response.Body = delay(response.Body, by)
			}
			return nil
		},
	}}
	listener := fabric.Listen(n, netip.AddrPortFrom(testutil.OutsideIPv4, 0))
	var serving sync.WaitGroup
	serving.Go(func() { _ = proxy.ServeTLS(listener, n.CertFile(), n.KeyFile()) })
	n.Cleanup(func() {
		_ = proxy.Close()
		serving.Wait()
		transport.CloseIdleConnections()
	})
	return "https://" + listener.Addr().String()
}

// delayedBody has what a body has, later.
type delayedBody struct {
	*io.PipeReader
	body io.Closer
}

func (b delayedBody) Close() error {
	_ = b.PipeReader.Close()
	return b.body.Close()
}

func delay(body io.ReadCloser, by time.Duration) io.ReadCloser {
	type part struct {
		text []byte
		due  time.Time
	}
	reader, writer := io.Pipe()
	parts := make(chan part, 10000)
	go func() {
		defer close(parts)
		for text := make([]byte, 64<<10); ; {
			size, err := body.Read(text)
			if size > 0 {
				parts <- part{append([]byte(nil), text[:size]...), time.Now().Add(by)}
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		for p := range parts {
			time.Sleep(time.Until(p.due))
			_, _ = writer.Write(p.text) // fails when the reader is closed
		}
		_ = writer.Close()
	}()
	return delayedBody{reader, body}
}
