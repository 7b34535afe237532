#!/bin/sh
# Installs the programs that tests run: make deps. With "generate": the BPF compiler and the shells, make deps-generate. With "bench":
# the peers of make bench.
# With "list" it prints the missing programs and installs none.
# As root on Debian or Ubuntu it installs missing programs. Elsewhere, and without root, it lists them: tests that need one are left out.
set -eu
PATH=$PATH:/usr/sbin:/sbin

# program and package
tests='nft nftables
iptables iptables
conntrack conntrack
ip iproute2
bpftool bpftool
curl curl
gcc gcc
/usr/include/stdlib.h libc6-dev
musl-gcc musl-tools'
generate='clang-19 clang-19
llvm-strip-19 llvm-19
/usr/include/bpf/bpf_helpers.h libbpf-dev
/usr/include/asm-generic/types.h linux-libc-dev
zsh zsh
fish fish
bpftool bpftool'
bench='nginx nginx-light'

list=$tests
[ "${1:-}" != generate ] || list=$generate
[ "${1:-}" != bench ] || list=$bench

missing() {
	echo "$list" | while read -r program package; do
		command -v "$program" >/dev/null || test -f "$program" || echo "$program $package"
	done
}
lacks=$(missing)
[ -n "$lacks" ] || exit 0
[ "${1:-}" != list ] || { echo "$lacks"; exit 0; }
packages=$(echo "$lacks" | cut -d' ' -f2 | sort -u | tr '\n' ' ')
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "programs that are missing: $(echo "$lacks" | cut -d' ' -f1 | tr '\n' ' ')" >&2
	echo "Tests that need one of them are left out. As root on Debian, make installs the packages $packages" >&2
	exit 0
fi
echo "installing $packages"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086 # a list
apt-get install -y -qq --no-install-recommends $packages >/dev/null
lacks=$(missing)
[ -z "$lacks" ] || { echo "still missing after the installation: $lacks" >&2; exit 1; }
