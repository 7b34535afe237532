#!/bin/sh
# Runs the tests of the packages $1 whose names match $2, in full. As root nothing may be skipped; without root it lists what was.
set -eu
cd "$(dirname "$0")/.."

export HEAVY=1
flags="-count=1 -timeout=15m"
packages=$("$GO" list $1)
status=0

# The model has one goroutine, and the race detector makes its searches ten times slower.
model=porin.dev/porin/cells/ipam/multipool/model
if [ -n "${RACE:-}" ]; then
	if echo "$packages" | grep -qx "$model"; then
		"$GO" test $flags -run "$2" "$model" || status=$?
		packages=$(echo "$packages" | grep -vx "$model") || exit "$status"
	fi
	flags="$flags -race"
fi

# shellcheck disable=SC2086 # flags and packages are lists
if [ "$(id -u)" = 0 ]; then
	export REQUIRE_ROOT=1
	"$GO" test $flags -run "$2" $packages || status=$?
	exit "$status"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
# shellcheck disable=SC2086
"$GO" test $flags -v -run "$2" $packages >"$log" 2>&1 || failed=$?
if [ "$failed" != 0 ]; then
	cat "$log"
	status=$failed
else
	grep -E '^(ok|FAIL|---|\?)' "$log" | grep -v -e '^--- PASS' -e '^--- SKIP' || true
fi
echo
echo "left out, as they need root (sudo make test runs them) or a program that is not installed:"
grep -E '^ *--- SKIP' "$log" | sed -e 's/^ *--- SKIP: /  /' -e 's/ (.*//' | sort -u
exit "$status"
