#!/usr/bin/env bash
# make release VERSION=0.1.0: the files of a release, in bin/release/0.1.0. deploy/chart/Chart.yaml and CHANGELOG.md must have the version.
# The same commit gives the same checksums, except for the chart, whose archive has the time of its files.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=${1:?the version, such as 0.1.0} out=$BIN/release/$1

fail() { echo "make release: $*" >&2; exit 1; }
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || fail "VERSION is $version: want three numbers, such as 0.1.0"
for key in version appVersion; do
	grep -qE "^$key: *\"?$version\"?$" deploy/chart/Chart.yaml || fail "$key of deploy/chart/Chart.yaml is not $version"
done
notes=$(awk -v heading="## [$version]" 'index($0, "## ") == 1 { inside = index($0, heading) == 1; next } inside' CHANGELOG.md)
[ -n "${notes//[[:space:]]/}" ] || fail "CHANGELOG.md has no section \"## [$version]\""
[ -z "$(git status --porcelain)" ] || fail "the work tree has changes: commit them"

rm -rf "$out" && mkdir -p "$out"
make --no-print-directory image VERSION="$version" TAG="$version"
mv "$BIN/porin-image.tar" "$out/porin-image-$version.tar"
for platform in linux/amd64 linux/arm64; do
	tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "$BIN/image/$platform" -c porin porin-agent porin-cni porin-proxy \
		-C "$PWD" LICENSE | gzip -n >"$out/porin-$version-${platform/\//-}.tar.gz"
done
make --no-print-directory helm
"$BIN/helm" package deploy/chart --destination "$out" # porin-VERSION.tgz
cp deploy/porin.yaml deploy/cleanup.yaml "$out/"
"$GO" -C deploy/release tool cyclonedx-gomod mod -type application -std -json -noserial -notimestamp -output "$out/porin-$version.cdx.json" "$PWD"
echo "$notes" >"$out/NOTES.md"
(cd "$out" && sha256sum -- * >SHA256SUMS)
ls -l "$out"
