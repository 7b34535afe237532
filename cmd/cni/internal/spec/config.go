package spec

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/jsontext"
)

// Config is a plugin's part of a network configuration. Keys that it does not know are for others.
type Config struct {
	CNIVersion string
	Name       string        // of the network
	Socket     string        // of the agent
	StateDir   string        // of the agent: where deletions are recorded when it does not answer
	MTU        int           // of the container's interface; 0 for the kernel's default
	Timeout    time.Duration // for the whole call
	IPs        []netip.Addr  // addresses asked for, from runtimeConfig.ips and args.cni.ips
	Pool       string        // of pods that name none
	PodPool    string        // that the pod's annotation names
	DNS        []byte        // passed on to the result; nil for none
	PrevResult []byte        // nil for none
	GCDryRun   bool          // GC only tells what it would delete
	IPAM       string        // type of another IPAM plugin, which gives the addresses; empty for the agent
	// Valid are the attachments that GC must spare; nil when the runtime did not say, which is not the same as none.
	Valid []Attachment
}

// Attachment names one interface of one container.
type Attachment struct{ ContainerID, IfName string }

// Limits of what a configuration may ask for.
const (
	defaultTimeout = 30 * time.Second
	minMTU, maxMTU = 1280, 65535 // IPv6 needs 1280 (RFC 8200)
	maxSocket      = 107         // sun_path in unix(7), less a zero byte
)

// onlyFor are the keys that one command alone needs. The others do not read them: above all a DEL must not fail for
// what it does not use, as it would fail for ever.
func onlyFor(key string) (command string) {
	switch key {
	case "mtu", "dns", "runtimeConfig", "args", "pool":
		return "ADD"
	case "cni.dev/valid-attachments", "gcDryRun":
		return "GC"
	}
	return ""
}

// parseConfig reads as much of a configuration as the command needs. The version is for the caller to check.
func parseConfig(text []byte, command string) (Config, *Error) {
	cfg := Config{Socket: v1.DefaultSocket, Timeout: defaultTimeout}
	err := jsontext.Fields(text, func(key string, value []byte) error {
		if only := onlyFor(key); jsontext.IsNull(value) || only != "" && only != command {
			return nil
		}
		if err := cfg.field(key, value); err != nil {
			return badConfig(key, err)
		}
		return nil
	})
	if e, ok := errors.AsType[*Error](err); ok {
		return cfg, e
	}
	if err != nil {
		return cfg, &Error{NotJSON, "read the network configuration from stdin: " + err.Error(), "the container runtime must send a JSON object"}
	}
	if cfg.StateDir == "" {
		cfg.StateDir = filepath.Dir(cfg.Socket)
	}
	return cfg, nil
}

func badConfig(key string, err error) *Error {
	return &Error{BadConfig, "network configuration: " + key + ": " + err.Error(), `correct "` + clip(key) + `" in the network configuration`}
}

// field reads one member. An error completes its name.
func (c *Config) field(key string, value []byte) (err error) {
	switch key {
	case "cniVersion":
		c.CNIVersion, err = jsontext.String(value)
	case "name":
		c.Name, err = jsontext.String(value)
	case "socket":
		if c.Socket, err = readPath(value); err == nil && len(c.Socket) > maxSocket {
			err = fmt.Errorf("want at most %d characters, which is all that the kernel takes for a socket", maxSocket)
		}
	case "stateDir":
		c.StateDir, err = readPath(value)
	case "mtu":
		c.MTU, err = readMTU(value)
	case "timeout":
		c.Timeout, err = readTimeout(value)
	case "dns":
		c.DNS, err = readDNS(value)
	case "runtimeConfig":
		err = c.readRuntime(value)
	case "pool":
		c.Pool, err = jsontext.String(value)
	case "args":
		err = c.readArgs(value)
	case "prevResult":
		c.PrevResult = value
	case "cni.dev/valid-attachments":
		c.Valid, err = readAttachments(value)
	case "ipam":
		c.IPAM, err = readIPAM(value)
	case "gcDryRun":
		c.GCDryRun, err = jsontext.Bool(value)
	}
	return err
}

func readPath(value []byte) (string, error) {
	path, err := jsontext.String(value)
	if err == nil && !filepath.IsAbs(path) {
		err = fmt.Errorf("%q: want an absolute path", clip(path))
	}
	return path, err
}

func readMTU(value []byte) (int, error) {
	mtu, err := jsontext.Int(value)
	if err == nil && mtu != 0 && (mtu < minMTU || mtu > maxMTU) {
		err = fmt.Errorf("%d: want %d to %d, or 0 for the kernel's default", mtu, minMTU, maxMTU)
	}
	return mtu, err
}

func readTimeout(value []byte) (time.Duration, error) {
	text, err := jsontext.String(value)
	if err != nil {
		return 0, err
	}
	timeout, err := time.ParseDuration(text)
	if err != nil || timeout <= 0 {
		return 0, fmt.Errorf("%q: want a duration above zero, such as 30s", clip(text))
	}
	return timeout, nil
}

// readIPAM reads the type. A section without one asks for nothing.
func readIPAM(value []byte) (name string, err error) {
	err = jsontext.Fields(value, func(key string, value []byte) (err error) {
		if key == "type" && !jsontext.IsNull(value) {
			name, err = jsontext.String(value)
		}
		if err != nil {
			err = fmt.Errorf("type: %w", err)
		}
		return err
	})
	return name, err
}

// readArgs reads the addresses in args.cni.
func (c *Config) readArgs(value []byte) error {
	return jsontext.Fields(value, func(key string, value []byte) error {
		if key != "cni" {
			return nil
		}
		if err := c.readIPs(value); err != nil {
			return fmt.Errorf("cni: %w", err)
		}
		return nil
	})
}

// readIPs reads the member "ips" of an object.
func (c *Config) readIPs(value []byte) error {
	return jsontext.Fields(value, func(key string, value []byte) error {
		if key != "ips" || jsontext.IsNull(value) {
			return nil
		}
		texts, err := jsontext.Strings(value)
		if err == nil {
			var ips []netip.Addr
			ips, err = parseIPs(texts)
			c.IPs = append(c.IPs, ips...)
		}
		if err != nil {
			return fmt.Errorf("ips: %w", err)
		}
		return nil
	})
}

func readAttachments(value []byte) ([]Attachment, error) {
	list := []Attachment{} // empty is not nil
	err := jsontext.Items(value, func(value []byte) error {
		var a Attachment
		err := jsontext.Fields(value, func(key string, value []byte) (err error) {
			switch key {
			case "containerID":
				a.ContainerID, err = jsontext.String(value)
			case "ifname":
				a.IfName, err = jsontext.String(value)
			}
			return err
		})
		if err == nil && (a.ContainerID == "" || a.IfName == "") {
			err = errors.New("want containerID and ifname in each")
		}
		list = append(list, a)
		return err
	})
	return list, err
}
