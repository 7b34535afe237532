package policy

import (
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/nodeaddr"
)

// hostKey is the engine's endpoint that has the node's own addresses. An attachment has another form.
const hostKey = "host"

// newFollower has the queue know the addresses of the node. A loopback address never reaches a pod.
func newFollower(source nodeaddr.Source, q *Queue, log *slog.Logger) *nodeaddr.Follower {
	relevant := func(addr netip.Addr) bool { return !addr.IsLoopback() }
	return nodeaddr.NewFollower("policy-follow-node-addresses", source, relevant, func(all map[netip.Addr]string) {
		addresses := slices.SortedFunc(maps.Keys(all), netip.Addr.Compare)
		addresses = slices.DeleteFunc(addresses, netip.Addr.IsLoopback)
		q.collect(setEndpoint(desiredEndpoint{Endpoint: model.Endpoint{Key: hostKey, Kind: model.Host, Addresses: addresses}}))
	}, log)
}
