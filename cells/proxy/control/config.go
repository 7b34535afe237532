package control

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"porin.dev/porin/cells/proxy/dnsproxy"
)

// ServerConfig is what a proxy in a process of its own is told.
type ServerConfig struct {
	Socket       string        // where it is controlled
	StateDir     string        // where it keeps the rules (proxy-rules.json), for a start without the agent
	DrainTimeout time.Duration // how long requests may take when it stops or is replaced
	DeniedNames  dnsproxy.Denied
}

// DefaultServerConfig is what porin-proxy runs with unless told otherwise.
func DefaultServerConfig() ServerConfig {
	return ServerConfig{Socket: DefaultSocket, StateDir: "/run/porin", DrainTimeout: 30 * time.Second}
}

// DefaultSocket is where agent and proxy meet.
const DefaultSocket = "/run/porin/proxy.sock"

const deniedUsage = "the answer to a DNS query for a name that no rule allows: nxdomain, or refused, for which resolvers of musl (Alpine) wait 5 s and end the search"

// Flags adds the flags of porin-proxy.
func (c *ServerConfig) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Socket, "proxy-socket", c.Socket, "Unix `socket` on which the agent and the next proxy are served")
	fs.StringVar(&c.StateDir, "state-dir", c.StateDir, "`folder` for the layer 7 rules that were in force last, for the next start; best on a tmpfs")
	fs.DurationVar(&c.DrainTimeout, "drain-timeout", c.DrainTimeout, "how long requests that are being served may take when the proxy stops, which goes on with new ones meanwhile, or is replaced")
	fs.Var(&c.DeniedNames, "proxy-denied-names", deniedUsage)
}

// Validate reports every fault at once.
func (c ServerConfig) Validate() error {
	var errs []error
	for name, path := range map[string]string{"proxy-socket": c.Socket, "state-dir": c.StateDir} {
		if !filepath.IsAbs(path) {
			errs = append(errs, fmt.Errorf("%s %q: want an absolute path", name, path))
		}
	}
	if c.DrainTimeout < 0 || c.DrainTimeout > time.Hour {
		errs = append(errs, fmt.Errorf("drain-timeout %v: want 0 to 1h", c.DrainTimeout))
	}
	return errors.Join(errs...)
}

// Where the proxy runs.
const (
	ModeInternal = "internal" // within the agent
	ModeExternal = "external" // in a process of its own, porin-proxy
)

// ClientConfig says where the agent finds the proxy.
type ClientConfig struct {
	Mode, Socket string
	DeniedNames  dnsproxy.Denied // of the proxy within the agent
}

// DefaultClientConfig is what the agent runs with unless told otherwise.
func DefaultClientConfig() ClientConfig {
	return ClientConfig{Mode: ModeInternal, Socket: DefaultSocket}
}

// Flags adds the flags of the agent.
func (c *ClientConfig) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Mode, "proxy-mode", c.Mode, "where the proxy for layer 7 rules runs: "+ModeInternal+", within the agent, or "+ModeExternal+", as porin-proxy, which outlives the agent")
	fs.StringVar(&c.Socket, "proxy-socket", c.Socket, "Unix `socket` of porin-proxy, for --proxy-mode "+ModeExternal)
	fs.Var(&c.DeniedNames, "proxy-denied-names", deniedUsage+"; with --proxy-mode "+ModeExternal+" it is a flag of porin-proxy")
}

// Validate reports every fault at once.
func (c ClientConfig) Validate() error {
	var errs []error
	if c.Mode != ModeInternal && c.Mode != ModeExternal {
		errs = append(errs, fmt.Errorf("proxy-mode %q: want %s or %s", c.Mode, ModeInternal, ModeExternal))
	}
	if !filepath.IsAbs(c.Socket) {
		errs = append(errs, fmt.Errorf("proxy-socket %q: want an absolute path", c.Socket))
	}
	return errors.Join(errs...)
}
