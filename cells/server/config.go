package server

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	v1 "porin.dev/porin/api/v1"
)

// Config says where the API listens and for whom.
type Config struct {
	// Socket is the path of the Unix socket. "<Socket>.lock" beside it is locked while the agent serves, and stays.
	Socket string
	// Group owns the socket: a name or a number; "" leaves it to the kernel, which takes the agent's.
	Group string
}

// DefaultConfig is what the agent runs with by default.
func DefaultConfig() Config { return Config{Socket: v1.DefaultSocket} }

// Flags adds the flags of the server.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Socket, "api-socket", c.Socket, "`path` of the Unix socket that the API listens on")
	fs.StringVar(&c.Group, "api-group", c.Group, "`group`, a name or a number, that may use the API besides root")
}

// Validate reports every fault.
func (c Config) Validate() error {
	return errors.Join(c.validateSocket(), c.validateGroup())
}

// maxSocketPath is sun_path of sockaddr_un (unix(7)) less the zero byte at its end.
const maxSocketPath = 107

func (c Config) validateSocket() error {
	switch {
	case !filepath.IsAbs(c.Socket) || strings.HasSuffix(c.Socket, "/"):
		return fmt.Errorf("api-socket %q: want the absolute path of a socket, such as %s", c.Socket, v1.DefaultSocket)
	case strings.ContainsRune(c.Socket, 0):
		return fmt.Errorf("api-socket %q: a path holds no zero byte", c.Socket)
	case len(c.Socket) > maxSocketPath:
		return fmt.Errorf("api-socket %q: %d bytes long, and the kernel takes at most %d", c.Socket, len(c.Socket), maxSocketPath)
	}
	return nil
}

func (c Config) validateGroup() error {
	if strings.TrimSpace(c.Group) != c.Group || strings.ContainsAny(c.Group, ":\x00") {
		return fmt.Errorf("api-group %q: want the name or number of a group", c.Group)
	}
	return nil
}
