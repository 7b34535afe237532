#!/bin/bash
# make e2e-kubernetes: runs the tests in configurations of NODES (1 3), PROXY (iptables nftables) and IPFAMILY (ipv4 dual), and prints at the end which
# passed: in all that agree with the given values, and without any in four that have each pair of values. $1 is the test binary, $2 the pattern of tests.
set -uo pipefail
cd "$(dirname "$0")"
. ./lib.sh
export PORIN_KUBERNETES_DIR=$DIR REQUIRE_ROOT=1
trap ./down.sh EXIT
status=0 results=()
pairs='1 iptables ipv4
1 nftables dual
3 iptables dual
3 nftables ipv4'
for nodes in ${ONLY_NODES:-1 3}; do
	for proxy in ${ONLY_PROXY:-iptables nftables}; do
		for family in ${ONLY_IPFAMILY:-ipv4 dual}; do
			[ -n "${FULL:-}${ONLY_NODES:-}${ONLY_PROXY:-}${ONLY_IPFAMILY:-}" ] || grep -qx "$nodes $proxy $family" <<<"$pairs" || continue
			name="$nodes nodes, $proxy, $family" began=$SECONDS verdict=passed
			echo "== $name"
			NODES=$nodes PROXY=$proxy IPFAMILY=$family "$1" -test.v -test.timeout 30m -test.run "$2" || verdict=FAILED status=1
			results+=("$verdict $name, in $((SECONDS - began)) s")
		done
	done
done
printf '%s\n' "== in $SECONDS s" "${results[@]}"
exit $status
