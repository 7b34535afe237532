#!/bin/sh
# Runs the tests of the packages $1 whose names match $2. As root nothing may be skipped; without root it lists what was.
set -eu
cd "$(dirname "$0")/.."

flags="-count=1 -timeout=15m"
[ -z "${RACE:-}" ] || flags="$flags -race"

if [ "$(id -u)" = 0 ]; then
	export REQUIRE_ROOT=1
	# shellcheck disable=SC2086 # flags and packages are lists
	exec "$GO" test $flags -run "$2" $1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
# shellcheck disable=SC2086
"$GO" test $flags -v -run "$2" $1 >"$log" 2>&1 || status=$?
if [ "$status" != 0 ]; then
	cat "$log"
else
	grep -E '^(ok|FAIL|---|\?)' "$log" | grep -v -e '^--- PASS' -e '^--- SKIP' || true
fi
echo
echo "left out, as they need root (sudo make test runs them) or a program that is not installed:"
grep -E '^ *--- SKIP' "$log" | sed -e 's/^ *--- SKIP: /  /' -e 's/ (.*//' | sort -u
exit "$status"
