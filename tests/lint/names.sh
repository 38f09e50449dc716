#!/bin/bash
# What must not be in the tree: paths of one machine, leftovers, files that hold two subjects. Prints TAP.
set -u
cd "$(dirname "$0")/../.." || exit 1
bad=0
echo "1..4"
check() # number, name, offenders
{
	if [ -z "$3" ]; then
		echo "ok $1 - $2"
	else
		echo "not ok $1 - $2"
		printf '# %s\n' "$3"
		bad=1
	fi
}
files=$(find daemon bpf proto packaging tests docs Makefile README.md sysprofd.service -type f \
	! -path tests/lint/names.sh 2>/dev/null)
check 1 "no leftovers" "$(grep -nE '\b(TODO|FIXME|XXX|HACK)\b' $files)"
check 2 "no paths of one machine" "$(grep -nE '/(work|farm|root|home/[a-z]+)/' $files | grep -vE '/home/[a-z]*\*' |
	grep -vE '/proc/[^ ]*/root/|%s/root/|PID/root/|pid>/root/')"
check 3 "no file over 800 lines" "$(wc -l $(echo "$files" | grep -E '\.(c|h)$') | awk '$2 != "total" && $1 > 800')"
check 4 "nothing else at the top level" "$(ls | grep -vxE 'daemon|bpf|proto|packaging|tests|docs|Makefile|README\.md|sysprofd\.service|build.*')"
exit $bad
