package bench

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// idlePairs is how many connections are kept through a proxy. Each has had a request, and so has one to the server;
// nginx shares 64 of these.
const idlePairs = 2000

// idleProxies measures what processes of proxies take up for connections that nothing goes through.
func idleProxies(t *testing.T, r *report) {
	const measure = "memory of an idle pair of connections, HTTP/1.1"
	for _, p := range []httpPath{nginxHTTP(t, nginxHTTP1, serveHTTP), porinHTTP(t, serveHTTP)} {
		p.requests(t, httpRequests)
		before := residentOf(t, p.pids)
		p.keep(t, idlePairs)
		r.add(measure, p.name, (residentOf(t, p.pids)-before)*1024/idlePairs, "KiB")
	}
	r.against(measure, "nginx")
	r.atMost(measure, r.value(measure, "porin"), 32, " KiB")
}

func residentOf(t *testing.T, pids []int) (mib float64) {
	for _, pid := range pids {
		mib += residentMiB(t, pid)
	}
	return mib
}

// keep opens connections that have had a request each, and closes them at the end of the test.
func (p httpPath) keep(t *testing.T, n int) {
	t.Helper()
	for range n {
		conn, err := p.from.Dial(p.to, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := askOnce(conn); err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
	}
}

func askOnce(conn net.Conn) error {
	if _, err := io.WriteString(conn, "GET /public/items HTTP/1.1\r\nHost: shop.example.com\r\n\r\n"); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
	}
	return err
}
