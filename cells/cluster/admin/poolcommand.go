package admin

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"porin.dev/porin/cells/cluster"
)

// PoolCommand is what an administrator runs to have the pool as it was. now is how it is; nil when it is gone.
func PoolCommand(was cluster.Pool, now *cluster.Pool) string {
	if now == nil {
		fresh := cluster.Pool{Quarantine: cluster.DefaultQuarantine}.WithDefaults()
		text := "porin pool create " + was.Name + poolFlags(was, fresh)
		if was.IPv4BlockBits != fresh.IPv4BlockBits {
			text += fmt.Sprintf(" --ipv4-block %d", was.IPv4BlockBits)
		}
		if was.IPv6BlockBits != fresh.IPv6BlockBits {
			text += fmt.Sprintf(" --ipv6-block %d", was.IPv6BlockBits)
		}
		return text
	}
	return "porin pool set " + was.Name + poolFlags(was, *now)
}

// SameSettings reports whether an administrator would see no difference.
func SameSettings(a, b cluster.Pool) bool {
	return poolFlags(a, b) == "" && a.IPv4BlockBits == b.IPv4BlockBits && a.IPv6BlockBits == b.IPv6BlockBits
}

// poolFlags are those of what differs.
func poolFlags(was, now cluster.Pool) (text string) {
	lists := func(p cluster.Pool) [4]string {
		return [4]string{prefixesText(p.Prefixes), prefixesText(p.Exclude), labelsText(p.NodeSelector), strings.Join(p.AllowedNamespaces, ",")}
	}
	before, after := lists(was), lists(now)
	for i, flag := range []string{"prefix", "exclude", "node-label", "allowed-namespace"} {
		if before[i] != after[i] {
			text += " --" + flag + "=" + before[i]
		}
	}
	if was.Disabled != now.Disabled {
		text += fmt.Sprintf(" --disabled=%t", was.Disabled)
	}
	if was.Quarantine != now.Quarantine {
		text += " --quarantine=" + was.Quarantine.String()
	}
	if was.ReuseResting != now.ReuseResting {
		text += fmt.Sprintf(" --reuse-resting=%t", was.ReuseResting)
	}
	return text
}

func prefixesText(prefixes []netip.Prefix) string {
	var texts []string
	for _, p := range prefixes {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ",")
}

func labelsText(labels map[string]string) string {
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		texts = append(texts, key+"="+labels[key])
	}
	return strings.Join(texts, ",")
}
