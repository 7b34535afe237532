package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// call is one execution of the plugin.
type call struct {
	command                                string
	containerID, ifname, netns, args, path string
	raw                                    []byte // the configuration as it came
	config                                 config
	began                                  moment
	deadline                               time.Time
}

// config is what the plugin itself needs of a network configuration. The agent reads the rest. The tags doc are for
// docs/reference.
type config struct {
	CNIVersion string `json:"cniVersion" doc:"version of the CNI specification"`
	Name       string `json:"name" doc:"name of the network"`
	Socket     string `json:"socket" doc:"path of the agent's socket; /run/porin/agent.sock when it is not there"`
	StateDir   string `json:"stateDir" doc:"the agent's --state-dir, which has deletion records and heartbeat; the folder of the socket when it is not there"`
	Timeout    string `json:"timeout" doc:"time for the whole call, such as 30s, which is the default"`
	IPAM       struct {
		Type string `json:"type" doc:"the IPAM plugin that the agent calls for addresses; none: Porin gives them"`
	} `json:"ipam"`
}

const (
	maxStdin       = 16 << 20 // mostly the list of valid attachments
	maxSocket      = 107      // sun_path in unix(7), less a zero byte
	defaultTimeout = 30 * time.Second
)

// readCall reads what the runtime hands over, and checks what the plugin itself uses. The call is never nil.
func readCall(p process, command string, began moment) (*call, error) {
	c := &call{
		command: command, began: began, containerID: p.getenv("CNI_CONTAINERID"), ifname: p.getenv("CNI_IFNAME"),
		netns: p.getenv("CNI_NETNS"), args: p.getenv("CNI_ARGS"), path: p.getenv("CNI_PATH"),
	}
	if err := c.checkEnvironment(); err != nil {
		return c, err
	}
	raw, err := io.ReadAll(io.LimitReader(p.stdin, maxStdin+1))
	if err != nil {
		return c, &failure{Code: codeIOFailure, Msg: "read the network configuration from stdin: " + err.Error()}
	}
	if len(raw) > maxStdin {
		return c, &failure{Code: codeBadConfig, Msg: fmt.Sprintf("the network configuration on stdin is larger than %d bytes", maxStdin)}
	}
	if c.raw = raw; command == "DEL" {
		c.raw = shallow(raw)
	}
	if err := c.decodeConfig(); err != nil {
		return c, err
	}
	return c, c.checkConfig()
}

// decodeConfig ignores keys of the wrong type in a DEL, except socket and stateDir: with others it would reach another
// agent.
func (c *call) decodeConfig() error {
	err := json.Unmarshal(c.raw, &c.config)
	if _, isMismatch := errors.AsType[*json.UnmarshalTypeError](err); isMismatch && c.command == "DEL" {
		var paths struct{ Socket, StateDir string }
		err = json.Unmarshal(c.raw, &paths)
	}
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && mismatch.Field != "" {
		return badConfig(mismatch.Field, err.Error())
	}
	if err != nil {
		return &failure{Code: codeNotJSON, Msg: "read the network configuration from stdin: " + err.Error(), Details: "correct the network configuration"}
	}
	return nil
}

func (c *call) checkEnvironment() error {
	switch c.command {
	case "ADD", "CHECK", "DEL":
	case "GC", "STATUS":
		return nil // they concern no container
	default:
		return badEnvironment("CNI_COMMAND", fmt.Sprintf("%.64q is unknown: want ADD, DEL, CHECK, GC, STATUS or VERSION", c.command))
	}
	if err := v1.CheckContainerID(c.containerID); err != nil {
		return badEnvironment("CNI_CONTAINERID", fmt.Sprintf("%.64q %s: want %s", c.containerID, err, v1.ContainerIDRule))
	}
	if err := v1.CheckInterfaceName(c.ifname); err != nil {
		return badEnvironment("CNI_IFNAME", fmt.Sprintf("%.64q %s: want %s", c.ifname, err, v1.InterfaceNameRule))
	}
	if c.netns == "" && c.command != "DEL" {
		return badEnvironment("CNI_NETNS", "is missing")
	}
	return nil
}

func (c *call) checkConfig() error {
	if c.config.Socket == "" {
		c.config.Socket = v1.DefaultSocket
	}
	if c.config.StateDir == "" {
		c.config.StateDir = filepath.Dir(c.config.Socket)
	}
	for _, one := range []struct{ key, path string }{{"socket", c.config.Socket}, {"stateDir", c.config.StateDir}} {
		if !filepath.IsAbs(one.path) {
			return badConfig(one.key, fmt.Sprintf("%.64q: want an absolute path", one.path))
		}
	}
	if len(c.config.Socket) > maxSocket {
		return badConfig("socket", "want at most "+strconv.Itoa(maxSocket)+" characters, which is all that the kernel takes")
	}
	timeout := defaultTimeout
	if text := c.config.Timeout; text != "" {
		given, err := time.ParseDuration(text)
		isGood := err == nil && given > 0
		if !isGood && c.command != "DEL" { // which goes on without
			return badConfig("timeout", fmt.Sprintf("%.64q: want a duration above zero, such as 30s", text))
		}
		if isGood {
			timeout = given
		}
	}
	c.deadline = c.began.wall.Add(timeout)
	return nil
}

// subject names what the call is about, with an ID that does not fill an error.
func (c *call) subject() string {
	if c.containerID == "" {
		return fmt.Sprintf("network %.64s", c.config.Name)
	}
	return fmt.Sprintf("%.12s:%s", c.containerID, c.ifname)
}

// body is the request to the agent.
func (c *call) body() ([]byte, error) {
	return json.Marshal(v1.CNICall{
		Version: v1.CNICallVersion, Config: c.raw, Began: c.began.boot.Nanoseconds(),
		Environment: map[string]string{
			"CNI_COMMAND": c.command, "CNI_CONTAINERID": c.containerID, "CNI_IFNAME": c.ifname, "CNI_NETNS": c.netns,
			"CNI_ARGS": c.args, "CNI_PATH": c.path,
		},
	})
}

// maxDepth is how deep a configuration may be nested: encoding/json reads no more than 10,000 levels, and real ones
// have ten.
const maxDepth = 1000

// shallow returns the JSON text with null in place of values nested deeper than maxDepth, in a new slice if it replaces
// any. For a text that is not JSON the result is not JSON either.
func shallow(text []byte) []byte {
	var out []byte
	depth, from, inString := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth == maxDepth+1 {
				out = append(append(out, text[from:i]...), "null"...)
			}
		case c == '}' || c == ']':
			if depth--; depth == maxDepth {
				from = i + 1
			}
		}
	}
	switch {
	case out == nil:
		return text
	case depth > maxDepth: // it ends within
		return out
	}
	return append(out, text[from:]...)
}
