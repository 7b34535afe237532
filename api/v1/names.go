package v1

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
)

// DefaultSocket is where the agent listens unless told otherwise.
const DefaultSocket = "/run/porin/agent.sock"

// HostInterfacePrefix begins the name of every host end that Porin makes, and of nothing else.
const HostInterfacePrefix = "por"

// HostInterfaceName is the name of the host end of an attachment's veth pair: 15 characters (IFNAMSIZ less one), of
// which 12 are 60 bits of a digest of the attachment. The attachment determines the link, with or without
// the agent.
func HostInterfaceName(containerID, ifname string) string {
	sum := digest("host", containerID, ifname)
	return HostInterfacePrefix + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:12])
}

// InterfaceMACs are the addresses of both ends of an attachment's veth pair, colon separated: locally administered,
// unicast, and the same for the same attachment, so that a retry makes the same link.
func InterfaceMACs(containerID, ifname string) (host, container string) {
	return macOf(digest("host-mac", containerID, ifname)), macOf(digest("container-mac", containerID, ifname))
}

func digest(purpose, containerID, ifname string) [sha256.Size]byte {
	return sha256.Sum256([]byte(purpose + "\x00" + containerID + "\x00" + ifname))
}

func macOf(sum [sha256.Size]byte) string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", sum[0]&^0x01|0x02, sum[1], sum[2], sum[3], sum[4], sum[5])
}
