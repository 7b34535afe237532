package client

import (
	"context"
	"net"
	"net/http"
	"os"

	"golang.org/x/sys/unix"
)

// withDescriptor is a client that passes the file to the agent (SCM_RIGHTS), on the first byte of a connection of its
// own.
func (c *Client) withDescriptor(file *os.File) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", c.socket)
		if err != nil {
			return nil, err
		}
		return &descriptorConn{UnixConn: conn.(*net.UnixConn), file: file}, nil
	}
	return &Client{socket: c.socket, http: http.Client{Transport: &http.Transport{
		DialContext: dial, DisableCompression: true, DisableKeepAlives: true,
	}}}
}

// descriptorConn sends a file with its first byte.
type descriptorConn struct {
	*net.UnixConn
	file *os.File // nil when it is sent
}

func (c *descriptorConn) Write(data []byte) (int, error) {
	if c.file == nil || len(data) == 0 {
		return c.UnixConn.Write(data)
	}
	n, _, err := c.WriteMsgUnix(data, unix.UnixRights(int(c.file.Fd())), nil)
	if n > 0 {
		c.file = nil
	}
	if err != nil || n == len(data) {
		return n, err
	}
	rest, err := c.UnixConn.Write(data[n:])
	return n + rest, err
}
