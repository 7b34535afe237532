#!/bin/bash
# Runs the tests that depend on the kernel on other kernels: make test-kernels.
#
#   run.sh [VERSION...]    6.1 and 6.12, at the same time: a machine keeps one CPU busy
#
# BIN is the folder with what "make build ipam-plugins libcni" has built. TESTS and RUN restrict the tests.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${BIN:=$PWD/bin}" "${GO:=go}"
[ $# != 0 ] || set -- 6.1 6.12

dir=$BIN/kernels
rm -rf "$dir"
mkdir -p "$dir/bin"
cp -r "$BIN"/porin "$BIN"/porin-agent "$BIN"/porin-cni "$BIN"/plugins "$BIN"/libcni "$dir/bin/"
cp test/kernels/tests.sh "$dir/"
for package in bpf cells/datapath cells/datapath/hostfilter cells/datapath/loader cells/node/masquerade cells/node/tunnel internal/conntrack internal/netns test/demo test/e2e test/policy; do
	CGO_ENABLED=0 "$GO" test -c -trimpath -ldflags '-s -w' -o "$dir/$(basename "$package").test" "./$package"
done

# The machines are made one after the other, so that only one of them installs and unpacks.
for version; do
	test/kernels/vm.sh "$version" "$dir" true >/dev/null || { echo "the machine with kernel $version does not run" >&2; exit 1; }
done
command="TESTS='${TESTS:-}' RUN='${RUN:-}' sh tests.sh"
declare -A runs
failed=()
for version; do
	(test/kernels/vm.sh "$version" "$dir" "$command" 2>&1 | sed -u "s/^/$version	/" | tee "$dir/$version.log") & # fails with vm.sh: pipefail
	runs[$version]=$!
done
status=0
for version; do
	wait "${runs[$version]}" && continue
	status=1
	failed+=("$version")
done
# The other machine's lines are in between: once more, what failed.
for version in "${failed[@]}"; do
	echo "== failed on kernel $version"
	grep -aA20 -e '--- FAIL' -e 'panic:' "$dir/$version.log" | tail -60
done
exit $status
