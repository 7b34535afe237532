#!/bin/sh
# Runs every fuzz test of the repository for the time $1.
set -eu
cd "$(dirname "$0")/.."
grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do
	dir=$(dirname "$file")
	for name in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$file"); do
		echo "$dir $name"
		"$GO" test -run '^$' -fuzz "^$name\$" -fuzztime "$1" "$dir"
	done
done
