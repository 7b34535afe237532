#!/bin/sh
# Runs the tests of the packages $1 whose names match $2, in full. As root nothing may be skipped; without root it lists what was.
set -eu
cd "$(dirname "$0")/.."

export HEAVY=1
flags="-count=1 -timeout=40m -parallel=6" # tests of e2e that wait most of their time are parallel: more than there are processors
packages=$("$GO" list $1)
status=0

# Without the race detector: the model, which has one goroutine, and whose searches it makes ten times slower; the tests of BPF programs; and
# those of programs in processes of their own, which are built without it. They wait often, and fail when too many of them run side by side.
raceless='porin.dev/porin/(bpf|cells/ipam/multipool/model|test/(chaos|crash|docs|e2e|nodecheck|policy|scale)(/.*)?)'
if [ -n "${RACE:-}" ]; then
	without=$(echo "$packages" | grep -Ex "$raceless" || true)
	packages=$(echo "$packages" | grep -Evx "$raceless" || true)
	if [ -n "$without" ]; then
		# shellcheck disable=SC2086 # flags and packages are lists
		"$GO" test $flags -p 2 -run "$2" $without || status=$?
	fi
	[ -n "$packages" ] || exit "$status"
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
