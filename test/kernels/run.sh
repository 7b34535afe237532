#!/bin/bash
# Runs the tests that depend on the kernel on other kernels: make test-kernels.
#
#   run.sh [VERSION...]    6.1 and 6.12, at the same time
#
# A machine keeps one CPU busy. So one version alone has two machines, which share the tests.
#
# SHORT=1 leaves out upgrades, conformance of policies, and most of bpf, datapath and e2e.
# BIN is the folder with what "make build ipam-plugins libcni" has built. TESTS and RUN restrict the tests.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${BIN:=$PWD/bin}" "${GO:=go}"
[ $# != 0 ] || set -- 6.1 6.12

dir=$BIN/kernels
rm -rf "$dir"
mkdir -p "$dir/bin"
cp -r "$BIN"/porin "$BIN"/porin-agent "$BIN"/porin-cni "$BIN"/porin-proxy "$BIN"/plugins "$BIN"/libcni "$BIN"/versions "$dir/bin/"
cp test/kernels/tests.sh "$dir/"
for package in bpf cells/datapath cells/datapath/hostfilter cells/datapath/loader cells/node/masquerade cells/node/tunnel internal/conntrack internal/netns test/demo test/e2e test/policy; do
	CGO_ENABLED=0 "$GO" test -c -trimpath -ldflags '-s -w' -o "$dir/$(basename "$package").test" "./$package"
done

# The machines are made one after the other, so that only one of them installs and unpacks.
for version; do
	test/kernels/vm.sh "$version" "$dir" true >/dev/null || { echo "the machine with kernel $version does not run" >&2; exit 1; }
done
shares=("bpf datapath hostfilter conntrack netns" "tunnel demo e2e policy loader masquerade") # take about as long
[ -z "${SHORT:-}" ] || shares=("bpf datapath policy loader masquerade hostfilter conntrack netns" "tunnel demo e2e")
if [ $# != 1 ] || [ -n "${TESTS:-}${RUN:-}" ]; then # a part of a restricted run may have no test
	shares=("${TESTS:-${shares[*]}}")
fi
machines=() runs=() failed=()
for version; do
	for share in "${shares[@]}"; do
		log=$dir/$version.${#machines[@]}.log
		command="TESTS='$share' RUN='${RUN:-}' SHORT='${SHORT:-}' sh tests.sh"
		(test/kernels/vm.sh "$version" "$dir" "$command" 2>&1 | sed -u "s/^/$version	/" | tee "$log") & # fails with vm.sh: pipefail
		machines+=("$log") runs+=($!)
	done
done
status=0
for i in "${!runs[@]}"; do
	wait "${runs[$i]}" && continue
	status=1
	failed+=("${machines[$i]}")
done
# The other machine's lines are in between: once more, what failed.
for log in "${failed[@]}"; do
	echo "== failed: $(basename "$log" .log)"
	grep -aA20 -e '--- FAIL' -e 'panic:' "$log" | tail -60
done
exit $status
