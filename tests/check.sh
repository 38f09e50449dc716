#!/bin/bash
# `make check`: the tests, then other kernels in the emulator. $1: build directory.
set -u
here=$(dirname "$0")
log=$(mktemp)
trap 'rm -f "$log"' EXIT

"$here/run.sh" "$1" | tee "$log"
status=${PIPESTATUS[0]}
counts=$(tail -n 1 "$log")
read -r passed _ failed _ skipped _ <<<"$counts"

if [ "${CHECK_KERNELS:-yes}" = yes ]; then
	echo
	echo "Other kernels:"
	"$here/kernels/run.sh" "$1" | tee "$log"
	[ "${PIPESTATUS[0]}" = 0 ] || status=1
	passed=$((passed + $(grep -c '^ok ' "$log")))
	failed=$((failed + $(grep -c '^not ok ' "$log")))
	skipped=$((skipped + $(grep -c '^ok .*# SKIP' "$log")))
	passed=$((passed - $(grep -c '^ok .*# SKIP' "$log")))
fi
echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$status" = 0 ] && [ "$failed" = 0 ]
