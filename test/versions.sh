#!/bin/bash
# Builds agent, proxy and plugin of the commits that test/e2e/testdata/versions names: in BIN/versions/COMMIT, unless they are there.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${BIN:=$PWD/bin}" "${GO:=go}"
export CGO_ENABLED=0 GOFLAGS=-trimpath
mkdir -p "$BIN/versions"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for commit in $(sed -n 's/^\([0-9a-f]\{40\}\) .*/\1/p' test/e2e/testdata/versions); do
	to=$BIN/versions/$commit
	[ ! -d "$to" ] || continue
	git cat-file -e "$commit^{commit}" 2>/dev/null || { echo "versions.sh: the checkout lacks $commit: git fetch origin $commit" >&2; exit 1; }
	mkdir -p "$work/$commit" "$work/built"
	git archive "$commit" | tar -x -C "$work/$commit"
	for command in agent proxy cni; do
		[ -d "$work/$commit/cmd/$command" ] || continue # there was no proxy yet
		(cd "$work/$commit" && "$GO" build -ldflags '-s -w' -o "$work/built/porin-$command" "./cmd/$command")
	done
	mv "$work/built" "$to"
done
