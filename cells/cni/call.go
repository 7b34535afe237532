package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/delegate"
)

// call is one execution of the plugin, checked.
type call struct {
	command    string
	attachment endpoint.Attachment // the zero one for STATUS and GC
	netns      string              // path, for people and IPAM plugins
	args       string              // CNI_ARGS
	began      time.Duration
	raw        []byte // the configuration
	config     baseConfig
}

// baseConfig is what every command needs of a network configuration. A DEL above all reads nothing else: it must not
// fail for what it does not use, as it would fail for ever. The tags doc are for docs/reference.
type baseConfig struct {
	CNIVersion string `json:"cniVersion" doc:"version of the CNI specification"`
	Name       string `json:"name" doc:"name of the network; GC deletes attachments of this network alone"`
	IPAM       struct {
		Type string `json:"type" doc:"the IPAM plugin that the agent calls for addresses; none: Porin gives them"`
	} `json:"ipam"`
}

// versions are the versions of the specification, from the first to the last that Porin supports.
var versions = version.VersionsStartingFrom("0.3.0")

// since are the commands that came later.
var since = map[string]string{"CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}

// parse reads a call. The call is valid as far as it came, for the version of an error.
func parse(body v1.CNICall) (c call, err error) {
	env := body.Environment
	c = call{command: env["CNI_COMMAND"], netns: env["CNI_NETNS"], args: env["CNI_ARGS"], began: time.Duration(body.Began), raw: body.Config}
	err = json.Unmarshal(body.Config, &c.config)
	if _, isMismatch := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !(isMismatch && c.command == "DEL") {
		return c, fail(types.ErrDecodingFailure, "network configuration: "+err.Error(), "correct the network configuration")
	}
	switch c.command {
	case "ADD", "DEL", "CHECK":
		c.attachment = endpoint.Attachment{ContainerID: env["CNI_CONTAINERID"], IfName: env["CNI_IFNAME"]}
		if err := c.attachment.Validate(); err != nil {
			return c, fail(types.ErrInvalidEnvironmentVariables, "CNI_CONTAINERID, CNI_IFNAME: "+err.Error(), "the container runtime must set them")
		}
	case "GC", "STATUS":
	default:
		return c, fail(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("CNI_COMMAND=%.64q is unknown", c.command),
			"the container runtime must set it to ADD, DEL, CHECK, GC, STATUS or VERSION")
	}
	return c, c.check()
}

// check compares what the configuration and the command say.
func (c *call) check() error {
	given := c.config.CNIVersion
	if given == "" {
		given = "0.1.0" // which is what the specification takes a missing version for
	}
	if !slices.Contains(versions.SupportedVersions(), given) {
		return fail(types.ErrIncompatibleCNIVersion, fmt.Sprintf("cniVersion %.64s of the network configuration is not supported", given),
			"set it to one of "+strings.Join(versions.SupportedVersions(), ", "))
	}
	if first := since[c.command]; first != "" {
		if later, err := version.GreaterThanOrEqualTo(given, first); err != nil || !later {
			return fail(types.ErrIncompatibleCNIVersion, c.command+" is not part of CNI "+given, "set cniVersion to "+first+" or later")
		}
	}
	if name := c.config.Name; !v1.IsName(name) || len(name) > 253 {
		return badConfig("name", fmt.Sprintf("%.64q: want letters, digits, '_', '.' and '-', beginning with a letter or digit", name))
	}
	return nil
}

func badConfig(key, text string) error {
	return fail(types.ErrInvalidNetworkConfig, "network configuration: "+key+": "+text, `correct "`+key+`" in the network configuration`)
}

// delegated reports whether another IPAM plugin gives the addresses.
func (c *call) delegated() bool { return c.config.IPAM.Type != "" }

// plugin is what that plugin is called with.
func (c *call) plugin() endpoint.IPAMPlugin {
	if !c.delegated() {
		return endpoint.IPAMPlugin{}
	}
	return endpoint.IPAMPlugin{Type: c.config.IPAM.Type, Config: string(c.raw), Args: c.args}
}

func (c *call) delegateCall() delegate.Call {
	return delegate.Call{IPAMPlugin: c.plugin(), Attachment: c.attachment, NetNS: c.netns}
}

// subject names the attachment in an error, with an ID that does not fill it.
func (c *call) subject() string {
	return fmt.Sprintf("%.12s:%s", c.attachment.ContainerID, c.attachment.IfName)
}
