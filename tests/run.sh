#!/bin/bash
# Runs test programs one after another and adds up what they say. $1: the build directory.
#
# A program is a cmocka test (build/tests/unit/test-*) or an end-to-end test (tests/e2e/test-*.py); both print
# TAP lines ("ok 1 - name", "not ok 2 - name", "ok 3 - name # SKIP reason"). A skip that tests/skips does not allow
# is a failure. ONLY=pattern runs a part.
set -u
build=${1:-build}
only=${ONLY:-*}
limit=${TEST_TIMEOUT:-1200}
here=$(dirname "$0")
logs=$build/test-logs
passed=0 failed=0 skipped=0
failures=()
reasons_max=8 # lines of what a failed test says, repeated at the end

mkdir -p "$logs"

# "skips" holds lines "program test-name-glob reason"; "#" begins a comment.
skip_allowed() # program, test
{
	local program name reason
	while read -r program name reason; do
		[[ $program == \#* || -z $program ]] && continue
		# shellcheck disable=SC2053 # globs are meant
		[[ $1 == $program && $2 == $name ]] && return 0
	done <"$here/skips"
	return 1
}

count() # program, log
{
	local line name reasons=0 before=$((passed + failed + skipped))
	while IFS= read -r line; do
		line=${line%$'\r'}
		case $line in
		"#"*)
			[ $reasons -gt 0 ] && failures+=("    ${line:0:200}") && reasons=$((reasons - 1))
			continue
			;;
		esac
		reasons=0
		case $line in
		"ok "*"# SKIP"* | "not ok "*"# SKIP"*)
			# cmocka: "not ok 5 # SKIP name"; ours: "ok 5 - name # SKIP reason"
			name=${line#*# SKIP }
			[[ $line == *" - "* ]] && name=${line#ok * - } name=${name%% \#*}
			if skip_allowed "$1" "$name"; then
				skipped=$((skipped + 1))
			else
				failed=$((failed + 1))
				failures+=("$1: unexpected skip: $name (${line##*\# })")
			fi
			;;
		"ok "*) passed=$((passed + 1)) ;;
		"not ok "*)
			failed=$((failed + 1))
			failures+=("$1: ${line#not ok * - }")
			reasons=$reasons_max
			;;
		esac
	done < <(grep -aE '^((not )?ok |#)' "$2")
	[ $((passed + failed + skipped)) -gt $before ]
}

run() # name, command...
{
	local name=$1 log status=0 start=$SECONDS
	shift
	# shellcheck disable=SC2053
	[[ $name == $only ]] || return
	log=$logs/$name.log
	printf '  %-34s' "$name"
	CMOCKA_MESSAGE_OUTPUT=TAP timeout -k 10 "$limit" "$@" >"$log" 2>&1 || status=$?
	local f=$failed
	if ! count "$name" "$log"; then
		failed=$((failed + 1))
		failures+=("$name: ran no test (status $status)")
	elif [ $status != 0 ] && [ $failed = "$f" ]; then
		failed=$((failed + 1))
		failures+=("$name: ended with status $status")
	fi
	if [ $failed = "$f" ]; then
		printf 'ok %8ss\n' $((SECONDS - start))
	else
		printf 'FAILED %4ss  (%s)\n' $((SECONDS - start)) "$log"
		tail -n 40 "$log" | sed 's/^/      | /'
	fi
}

export BUILD=$build
for t in "$build"/tests/unit/test-*; do
	[[ -x $t && -f $t && $t != *.[od] ]] && run "$(basename "$t")" "$t"
done
for t in "$here"/e2e/test-*.py; do
	[ -e "$t" ] && run "$(basename "$t" .py)" python3 "$t"
done
for t in "$here"/lint/*.sh; do
	[ -e "$t" ] && run "lint-$(basename "$t" .sh)" "$t"
done

if [ ${#failures[@]} -gt 0 ]; then
	echo
	echo "Failures:"
	printf '  %s\n' "${failures[@]}"
fi
echo
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
