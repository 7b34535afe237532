package httpx

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// CheckAddress returns what is wrong with the value of a flag that is a host:port to serve on. "" serves nothing, and
// is right.
func CheckAddress(flag, address, example string) error {
	if address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%s %q: want host:port, such as %s", flag, address, example)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return fmt.Errorf("%s %q: no such port: %s", flag, address, port)
	}
	return nil
}

// Listen listens on the address of a flag. what names the service, for the error: "metrics".
func Listen(ctx context.Context, what, flag, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("serve %s on %s: the address is in use; choose another --%s: %w", what, address, flag, err)
	}
	if err != nil {
		return nil, fmt.Errorf("serve %s on %s: %w", what, address, err)
	}
	return listener, nil
}
