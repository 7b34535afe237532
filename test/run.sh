#!/bin/bash
# Runs the tests of the packages $1 whose names match $2, in full: a line for each package, with its seconds. At the end it names the tests
# that were left out. As root, and with all programs of deps.sh, these may only be those of FULL=1.
#
# RACE=1: with the race detector. RERUN=3: each test that fails is run up to three more times, alone. If it passes, it counts as flaky; more than two
# flaky tests are an error. FULL=1: see testutil.Full.
set -euo pipefail
cd "$(dirname "$0")/.."

export HEAVY=1 PATH=$PATH:/usr/sbin:/sbin
[ "$(id -u)" != 0 ] || export REQUIRE_ROOT=1
[ -n "$(test/deps.sh list)" ] || export REQUIRE_PROGRAMS=1
# make lint runs vet. Without -vet=off, go test would examine all dependencies again, once for each way to compile.
flags=(-vet=off -count=1 -timeout=40m -parallel=6) # tests of e2e that wait most of their time are parallel: more than there are processors
packages=$("$GO" list $1 | awk '{ if (/\/test\/e2e$/) print; else rest = rest $0 "\n" } END { printf "%s", rest }') # the one that takes longest comes first
logs=$(mktemp -d)
trap 'jobs -pr | xargs -r kill || true; rm -rf "$logs"' EXIT
status=0

# run NAME PACKAGES FLAG...
run() {
	local name=$1 list=$2
	shift 2
	[ -n "$list" ] || return 0
	local rerun=()
	[ -z "${RERUN:-}" ] || rerun=(--rerun-fails="$RERUN" --rerun-fails-max-failures=8 --rerun-fails-run-root-test --rerun-fails-report="$logs/$name.flaky")
	"$GO" tool -modfile=test/tools/go.mod gotestsum --format pkgname --format-hide-empty-pkg --format-icons text --hide-summary skipped "${rerun[@]}" \
		--jsonfile-timing-events "$logs/$name.json" --packages "$(echo $list)" -- "${flags[@]}" "$@" | tee "$logs/$name.log" || status=1
}

# Without the race detector: packages without goroutines, locks, atomic values, channels and fx; the tests of BPF programs; and those of programs
# in processes of their own, which are built without it. The latter wait often, and fail when too many of them run side by side.
raceless='porin.dev/porin/(bpf|test/(apiserver|bench|chaos|crash|docs|e2e|kubernetes|nodecheck|policy|scale)(/.*)?)'
concurrent=$("$GO" list -f '{{.ImportPath}} {{.Dir}}' $1 | while read -r package dir; do
	! grep -qE '^\s*go |chan |synctest|httptest|errgroup|Parallel\(|fx\.|sync\.|atomic\.|task\.' "$dir"/*.go || echo "$package"
done | grep -Evx "$raceless" || true)
# And some tests that fill tables, which the race detector makes ten times slower, too: with it only with FULL=1.
large='^(TestOwnersFull|TestPutTooLarge|TestPodsThatComeAndGo)$'
[ -z "${FULL:-}" ] || large='^$'
if [ -n "${RACE:-}" ]; then
	# What the race detector needs is compiled in the time that the tests leave, most of which wait.
	CGO_ENABLED=1 chrt --idle 0 "$GO" list -race -test -export $concurrent >/dev/null &
	compiling=$!
	run raceless "$(echo "$packages" | grep -Fvx "${concurrent:--}" || true)" -p 2 -run "$2"
	[ "$2" != . ] || run large "$(echo "$concurrent" | grep -Ex 'porin.dev/porin/cells/(node/tunnel|policy)' || true)" -run "$large"
	wait "$compiling" || true # run says what does not compile
	export CGO_ENABLED=1
	run race "$concurrent" -race -run "$2" -skip "$large"
else
	run all "$packages" -run "$2"
fi

skipped=$(sed -n 's/.*"Action":"skip","Package":"\([^"]*\)","Test":"\([^"]*\)".*/  \1 \2/p' "$logs"/*.json | sed 's|porin.dev/porin/||' | sort -u)
[ -z "$skipped" ] || printf '\nleft out, as they need root (sudo make test), FULL=1, or a program that is not installed:\n%s\n' "$skipped"

flaky=$(cat "$logs"/*.flaky 2>/dev/null | grep "\.Test[^/]*:" || true) # without subtests
if [ "$status" = 0 ] && [ -n "$flaky" ]; then
	sed -n '/^=== Failed/,/^DONE/p' "$logs"/*.log
	echo "$flaky" | sed 's/^/FLAKY /'
	[ "$(echo "$flaky" | wc -l)" -le 2 ] || { echo "more than two flaky tests" >&2; status=1; }
fi
exit "$status"
