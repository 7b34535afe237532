#!/bin/bash
# make e2e-kubernetes: runs the tests in two clusters, 1 node with iptables, IPv4 and runc, and 3 nodes with nftables, dual stack and crun. The first leaves out
# what the second shows. With values of NODES, PROXY or IPFAMILY: all tests in all clusters that agree with them; FULL=1: in all eight. It prints at the end which
# passed. $1 is the test binary, $2 the pattern of tests.
set -uo pipefail
cd "$(dirname "$0")"
. ./lib.sh
export PORIN_KUBERNETES_DIR=$DIR REQUIRE_ROOT=1
trap ./down.sh EXIT
status=0 results=()
all=${FULL:-}${ONLY_NODES:-}${ONLY_PROXY:-}${ONLY_IPFAMILY:-}
for cluster in "1 iptables ipv4" "1 iptables dual" "1 nftables ipv4" "1 nftables dual" "3 iptables ipv4" "3 iptables dual" "3 nftables ipv4" "3 nftables dual"; do
	read -r nodes proxy family <<<"$cluster"
	[[ ${ONLY_NODES:-$nodes} = "$nodes" && ${ONLY_PROXY:-$proxy} = "$proxy" && ${ONLY_IPFAMILY:-$family} = "$family" ]] || continue
	skip=^$ last=yes
	if [ -z "$all" ]; then
		case $cluster in
		"1 iptables ipv4") last=no skip='^Test(NetworkPolicyAPI|Upgrade|KilledAgents|Evicted|SetBack|Chart|Restarts)$' ;;
		"3 nftables dual") skip='^TestTutorial$' ;; # the page has a node
		*) continue ;;
		esac
	fi
	[ "$nodes" = 1 ] && runtime=runc || runtime=crun
	name="$nodes nodes, $proxy, $family, $runtime" began=$SECONDS verdict=passed
	echo "== $name"
	LAST=$last RUNTIME=$runtime NODES=$nodes PROXY=$proxy IPFAMILY=$family "$1" -test.v -test.timeout 75m -test.run "$2" -test.skip "$skip" || verdict=FAILED status=1
	results+=("$verdict $name, in $((SECONDS - began)) s")
done
printf '%s\n' "== in $SECONDS s" "${results[@]}"
exit $status
