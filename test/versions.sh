#!/bin/bash
# Builds agent, proxy and plugin of the commits that test/e2e/testdata/versions names: in BIN/versions/COMMIT, unless they are there. A commit with a
# chart also gets its image, with the tag "earlier", and its manifest.
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
		(cd "$work/$commit" && "$GO" build -ldflags '-s -w' -o "$work/built/porin-$command" "./cmd/$command")
	done
	if [ -d "$work/$commit/deploy/chart" ]; then
		make --no-print-directory -C "$work/$commit" image BIN="$work/built" GO="$GO" VERSION=earlier TAG=earlier PLATFORMS="linux/$("$GO" env GOARCH)"
		rm -r "$work/built/image"
		sed 's|\(image: porin.dev/porin\):.*|\1:earlier|' "$work/$commit/deploy/porin.yaml" >"$work/built/porin.yaml"
	fi
	mv "$work/built" "$to"
done
