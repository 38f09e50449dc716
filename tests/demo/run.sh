#!/bin/bash
# `make run`: records this host for about 20 s beside a small known load, and shows the answers. $1: build directory.
set -u
build=$(cd "$1" && pwd) || exit 1
seconds=${DEMO_SECONDS:-20}
daemon= load= dir=

if [ "$(id -u)" != 0 ]; then
	echo "make run needs root to load its programs into the kernel: sudo make run" >&2
	exit 1
fi
cleanup()
{
	trap '' INT TERM
	[ -z "$load" ] || kill "$load" 2>/dev/null
	if [ -n "$daemon" ]; then
		kill "$daemon" 2>/dev/null
		wait "$daemon" 2>/dev/null
	fi
	[ -z "$dir" ] || rm -rf "$dir"
}
trap 'cleanup; [ ! -t 1 ] || printf "\r\033[K"; echo "Stopped."; exit 130' INT TERM
trap cleanup EXIT

dir=$(mktemp -d /tmp/sysprofd-demo.XXXXXX) || exit 1
svg=$build/demo-flame.svg
ctl() { "$build/sysprofctl" --socket "$dir/api.sock" "$@"; }

"$build/tests/demo/demo" &
load=$!
printf '[collect]\nbucket=2s\nslice=1s\n' >"$dir/sysprofd.conf"
"$build/sysprofd" --config "$dir/sysprofd.conf" --state-directory "$dir/state" --socket "$dir/api.sock" \
	2>"$dir/log" &
daemon=$!

for _ in $(seq 100); do
	[ -S "$dir/api.sock" ] && break
	kill -0 "$daemon" 2>/dev/null || break
	sleep 0.1
done
if ! [ -S "$dir/api.sock" ]; then
	echo "sysprofd did not start:" >&2
	sed 's/^<[0-9]>/  /' "$dir/log" >&2
	exit 1
fi
for ((i = 1; i <= seconds; i++)); do
	sleep 1
	kill -0 "$daemon" 2>/dev/null || { echo "sysprofd ended:" >&2; cat "$dir/log" >&2; exit 1; }
	bar=$(printf '%*s' $((i * 30 / seconds)) '' | tr ' ' '#')
	if [ -t 1 ]; then
		printf '\rRecording %2d of %d s  [%-30s]' "$i" "$seconds" "$bar"
	elif ((i % 5 == 0)); then
		echo "Recording $i of $seconds s"
	fi
done
[ ! -t 1 ] || printf '\r\033[K'

status=0
ctl status | head -1 || status=1
show()
{
	echo
	ctl top --type "$@" --since "-${seconds}s" -n 8 || status=1
}
show on-cpu
# Most threads of a host wait all the time, for something to do: of the load it is known what it waits for.
show off-cpu --by thread --filter comm=demo
show syscalls
show futex
echo
ctl flame --since "-${seconds}s" -o "$svg" >/dev/null || status=1
[ -s "$svg" ] && echo "Flame graph: $svg" || status=1
exit $status
