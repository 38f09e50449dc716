#!/bin/bash
# `make bench`: what sysprofd costs on this host, beside its targets. $1: the build directory. Root.
#
# What is compared is interleaved, on one CPU, in CPU time where nothing else is said. A figure is the median of its rounds,
# with the quartiles behind it. Takes about six minutes; where the host is not quiet it says so, since then no figure
# means much. ONLY=hooks|redis|mix|start|store runs a part, ROUNDS=n another number of blocks for hooks and redis.
set -u
build=$(realpath "${1:-build}")
rounds=${ROUNDS:-120}
tool_rounds=5
daemon_rounds=8
only=${ONLY:-*}
mix_seconds=30
mix_warm=25 # the tables are there, and the parser that made them has gone
crowd_processes=1000 crowd_threads=10
cpus=$(nproc)
cpu=$(taskset -cp $$ | sed 's/.*[^0-9]//') # the last one that we may use
met=0 missed=0
pids=() # all that runs in the background
dir=
stats=/proc/sys/kernel/bpf_stats_enabled
stats_before=$(cat $stats 2>/dev/null)

PATH=$PATH:/usr/sbin:/sbin

cleanup()
{
	stop "${pids[@]}"
	[ "$(cat $stats 2>/dev/null)" = "$stats_before" ] || echo "$stats_before" >$stats
	[ -z "$dir" ] || rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

stop() # pid...
{
	local p
	for p in "$@"; do
		kill "$p" 2>/dev/null
		for _ in $(seq 100); do
			kill -0 "$p" 2>/dev/null || break
			sleep 0.05
		done
		kill -9 "$p" 2>/dev/null
		wait "$p" 2>/dev/null
		local rest=() q
		for q in "${pids[@]}"; do [ "$q" = "$p" ] || rest+=("$q"); done
		pids=("${rest[@]}")
	done
}

die()
{
	echo "bench: $*" >&2
	exit 1
}

# ---- the table -----------------------------------------------------------------------------------------

section()
{
	printf '\n%s\n' "$*"
}

# Prints one line: the median of the values and their quartiles. A target is an upper limit, or - for none.
row() # what, unit, target, value...
{
	local what=$1 unit=$2 target=$3 line
	shift 3
	line=$(printf '%s\n' "$@" | sort -g | awk -v what="$what" -v unit="$unit" -v target="$target" '
		function text(x, a) {
			a = x < 0 ? -x : x
			return sprintf(a >= 99.95 ? "%.0f" : a >= 9.995 ? "%.1f" : a >= 0.9995 ? "%.2f" : "%.3f", x)
		}
		{ v[NR] = $1 }
		END {
			m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2
			q = int((NR + 3) / 4)
			if (NR > 1)
				spread = text(v[q]) " .. " text(v[NR + 1 - q])
			if (target != "-") {
				limit = "<= " target
				verdict = m <= target ? "ok" : "MISS"
			}
			printf "  %-46s %8s %-3s  %-18s %-8s %s\n", what, text(m), unit, spread, limit, verdict
		}')
	case $line in
	*" MISS") missed=$((missed + 1)) ;;
	*" ok") met=$((met + 1)) ;;
	esac
	printf '%s\n' "${line%"${line##*[! ]}"}"
}

note()
{
	printf '  %s\n' "$*"
}

calculate() # awk expression
{
	awk "BEGIN { print $1 }"
}

# ---- daemons and tools -----------------------------------------------------------------------------------

# Starts sysprofd with its defaults but for these settings, and a state of its own; waits until it listens: $daemon
start_daemon() # name, lines of [collect]...
{
	local d=$dir/$1
	shift
	rm -rf "$d" && mkdir "$d" && printf '%s\n' '[collect]' "$@" >"$d/conf"
	"$build/sysprofd" --config "$d/conf" --state-directory "$d/state" --socket "$d/api.sock" \
		2>"$d/log" </dev/null &
	daemon=$! socket=$d/api.sock
	pids+=("$daemon")
	until [ -S "$socket" ]; do
		kill -0 "$daemon" 2>/dev/null || die "sysprofd ended: $(cat "$d/log")"
		sleep 0.01
	done
}

ctl()
{
	"$build/sysprofctl" --socket "$socket" "$@"
}

# A process is ready when it holds attached programs.
holds_link() # pid
{
	cat /proc/"$1"/fdinfo/* 2>/dev/null | grep -q -e '^link_type' -e '^prog_id'
}

# Starts a tool of libbpf-tools: $tool. Some use classic tracepoints, which want tracefs.
start_tool() # command
{
	unshare -m sh -c 'mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
		exec "$0"' "$1" >"$dir/tool" 2>&1 </dev/null &
	tool=$!
	pids+=("$tool")
	for _ in $(seq 200); do
		kill -0 "$tool" 2>/dev/null || return 1
		if holds_link "$tool"; then
			sleep 0.5
			kill -0 "$tool" 2>/dev/null
			return
		fi
		sleep 0.05
	done
	return 1
}

# Empty programs on the same events as ours: $floor
start_floor()
{
	"$build/tests/bench/bench-floor" >"$dir/floor" 2>&1 </dev/null &
	floor=$!
	pids+=("$floor")
	until grep -q ready "$dir/floor"; do
		kill -0 "$floor" 2>/dev/null || die "$(cat "$dir/floor")"
		sleep 0.01
	done
}

# "idle seconds of all CPUs, seconds of the clock, context switches, processes". Of a busy CPU ticks may go missing.
host_counts()
{
	awk -v now="$(date +%s%N)" '/^cpu / { idle = $5 + $6 } /^ctxt/ { switches = $2 } /^processes/ { forks = $2 }
		END { printf "%.2f %.3f %s %s\n", idle / 100, now / 1e9, switches, forks }' /proc/stat
}

# Percent of the CPUs that are busy while we do nothing.
busy_before()
{
	local before
	before=$(host_counts)
	sleep 2
	echo "$before $(host_counts)" | awk -v cpus="$cpus" '{ printf "%.0f\n", 100 - ($5 - $1) * 100 / ($6 - $2) / cpus }'
}

# Others on this host whose programs we would measure along with ours.
others()
{
	local p
	for p in /proc/[0-9]*; do
		if [ "${p#/proc/}" != $$ ] && grep -qs '^link_type' "$p"/fdinfo/*; then
			printf '%s (%s) ' "${p#/proc/}" "$(cat "$p/comm" 2>/dev/null)"
		fi
	done
}

# ---- hooks -----------------------------------------------------------------------------------------------

# Values of a figure of bench-hooks, in $dir/figures.
figures() # name
{
	sed -n "s/^$1 //p" "$dir/figures"
}

# The row of such a figure; none where it could not be measured, of which a note tells.
figure_row() # name, what, unit, target
{
	local values
	values=$(figures "$1")
	# shellcheck disable=SC2086 # many of them
	[ -z "$values" ] || row "$2" "$3" "$4" $values
}

figure_notes()
{
	local line
	figures note | while IFS= read -r line; do note "$line"; done
}

# What operations cost beside a tool of round i: ops_NAME[i], NAME being call, pipe or futex with the tool or none.
declare -A ops
measure_ops() # tool or none, round
{
	local name ns
	while read -r name ns; do
		ops[$name-$1-$2]=$ns
	done < <("$build/tests/bench/bench-ops" "$cpu")
	[ -n "${ops[futex-$1-$2]-}" ] || die "bench-ops failed"
}

# One value per round from an awk expression in which call, pipe and futex are what the operations cost with
# the tool, call0, pipe0 and futex0 without.
per_round() # tool, expression
{
	local i
	for ((i = 0; i < tool_rounds; i++)); do
		awk -v call="${ops[call-$1-$i]}" -v pipe="${ops[pipe-$1-$i]}" \
			-v futex="${ops[futex-$1-$i]}" -v call0="${ops[call-none-$i]}" \
			-v pipe0="${ops[pipe-none-$i]}" -v futex0="${ops[futex-none-$i]}" "BEGIN { print $2 }"
	done
}

tool_row() # tool, what, unit, expression
{
	# shellcheck disable=SC2046 # many values
	[[ " ${tools[*]} " != *" $1 "* ]] || row "$2" "$3" - $(per_round "$1" "$4")
}

# Tools of others, which are started and stopped once a round.
measure_tools()
{
	local i t
	for t in offcputime syscount futexctn; do
		if ! command -v $t >/dev/null; then
			absent+=("bcc's $t is skipped: it is not here (package libbpf-tools)")
		elif start_tool $t; then
			tools+=($t)
		else
			absent+=("bcc's $t does not run here: $(tail -n 1 "$dir/tool")")
		fi
		stop "${pids[@]}"
	done
	for ((i = 0; i < tool_rounds && ${#tools[@]}; i++)); do
		measure_ops none $i
		for t in "${tools[@]}"; do
			start_tool $t || die "$t: $(tail -n 1 "$dir/tool")"
			measure_ops $t $i
			stop "$tool"
		done
	done
}

hooks()
{
	local t tools=() absent=()
	"$build/tests/bench/bench-hooks" "$cpu" "$rounds" >"$dir/figures" || die "bench-hooks failed"
	measure_tools
	section "Hooks: CPU time on CPU $cpu, $rounds blocks of 18 ms each, between blocks with nothing attached"
	figure_row call "system call, nothing attached" ns -
	figure_row call-empty "system call: an empty program adds" ns -
	figure_row call-counts "system call: counts and errors add" ns 130
	figure_row call-timed "system call: counts, times and sizes add" ns 175
	figure_row call-default "system call: these a tenth of the time" ns 135
	figure_row call-stacks "system call: the stack of one in 1,000 adds" ns -
	tool_row syscount "system call: bcc syscount adds" ns 'call - call0'
	figure_row pipe "pipe round trip, nothing attached" ns -
	figure_row switch-empty "context switch: an empty program adds" ns -
	figure_row switch-empties "context switch: one at the resume as well" ns -
	figure_row switch "context switch: off-CPU adds" ns 300
	figure_row switch-wakers "context switch: off-CPU with wakers adds" ns -
	figure_row switch-counters "context switch: hardware counters add to it" ns -
	figure_row switch-reads "context switch: those, read each time" ns -
	tool_row offcputime "context switch: bcc offcputime adds" ns '(pipe - pipe0) / 2'
	figure_row pipe-all "pipe round trip: lost to all sources" % 25
	figure_row pipe-always "pipe round trip: lost while in spans" % -
	tool_row offcputime "pipe round trip: lost to bcc offcputime" % '(pipe / pipe0 - 1) * 100'
	figure_row futex "futex round trip, nothing attached" ns -
	figure_row futex-all "futex round trip: lost to all sources" % -
	tool_row futexctn "futex round trip: lost to bcc futexctn" % '(futex / futex0 - 1) * 100'
	figure_row futex-wait "futex wait and wake: futex adds to the others" ns 100
	figure_row lock-wait "wait for a kernel mutex: kernel locks add" ns -
	note "(of all sources a tenth of the time is in spans: calls are timed and sized, wakers are seen)"
	figure_notes
	for t in "${absent[@]}"; do note "$t"; done
}

# ---- redis -----------------------------------------------------------------------------------------------

# Requests a second.
requests()
{
	taskset -c "$client_cpu" redis-benchmark -p "$port" -t get -n 100000 --csv 2>/dev/null |
		awk -F '"' '$2 == "GET" { print $4 }'
}

start_redis()
{
	local i
	for i in $(seq 100); do
		[ $((i % 20)) != 1 ] || port=$((20000 + RANDOM % 10000))
		redis-cli -p "$port" ping >/dev/null 2>&1 && continue
		taskset -c "$cpu" redis-server --bind 127.0.0.1 --port "$port" --save '' --appendonly no \
			--dir "$dir" >"$dir/redis" </dev/null 2>&1 &
		server=$!
		pids+=("$server")
		for _ in $(seq 50); do
			kill -0 "$server" 2>/dev/null || break
			[ "$(redis-cli -p "$port" ping 2>/dev/null)" != PONG ] || return 0
			sleep 0.1
		done
		stop "$server"
	done
	return 1
}

redis()
{
	local i t port server load before with after lost=() client_cpu
	client_cpu=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//') # the first one that we may use
	for t in redis-server redis-cli redis-benchmark; do
		command -v $t >/dev/null && continue
		section "Redis"
		note "skipped: $t is not here (packages redis-server, redis-tools)"
		return
	done
	start_redis || die "redis-server does not start: $(tail -n 1 "$dir/redis")"
	taskset -c "$client_cpu" redis-benchmark -p "$port" -t get -n 1000000000 -q >/dev/null 2>&1 </dev/null &
	load=$!
	pids+=("$load")
	sleep 0.5
	"$build/tests/bench/bench-hooks" "$cpu" "$rounds" "$port" >"$dir/figures" || die "bench-hooks failed"
	stop "$load"
	before=$(requests)
	for ((i = 0; i < daemon_rounds; i++)); do
		start_daemon redis
		sleep 3
		with=$(requests)
		stop "$daemon"
		after=$(requests)
		lost+=("$(calculate "(1 - $with / (($before + $after) / 2)) * 100")")
		before=$after
	done
	section "Redis: GET by redis-benchmark on CPU $client_cpu, server on CPU $cpu, elapsed time"
	figure_row request "a request, nothing attached" ns -
	figure_row request-empties "requests lost to empty programs" % -
	figure_row request-all "requests lost to the programs" % -
	figure_row request-always "requests lost to the programs in spans" % -
	row "requests lost to the daemon, of $daemon_rounds starts" % - "${lost[@]}"
	stop "$server"
}

# ---- an ordinary mix ---------------------------------------------------------------------------------------

# CPU time in ns of all threads of the processes.
cpu_ns() # pid...
{
	local p
	for p in "$@"; do cat /proc/"$p"/task/*/schedstat 2>/dev/null; done | awk '{ n += $1 } END { printf "%.0f\n", n }'
}

# Time in ns that a process's programs ran, less what the kernel's statistics take for themselves ($timing_ns a
# run), and how often; then bytes of its maps; as their descriptors tell.
program_runs() # pid
{
	cat /proc/"$1"/fdinfo/* 2>/dev/null | awk -v timing="$timing_ns" '
		/^prog_id:/ { id = $2 }
		/^run_time_ns:/ { n[id] = $2 }
		/^run_cnt:/ { runs[id] = $2 }
		END {
			for (i in n) { sum += n[i]; all += runs[i] }
			printf "%.0f %.0f\n", sum - timing * all, all
		}'
}

program_ns() # pid
{
	program_runs "$1" | cut -d ' ' -f 1
}

# What the kernel books for a run of an empty program: $timing_ns
measure_timing()
{
	timing_ns=0
	start_floor
	"$build/tests/bench/bench-ops" "$cpu" >/dev/null
	timing_ns=$(program_runs "$floor" | awk '{ print $2 ? $1 / $2 : 0 }')
	stop "$floor"
}

map_bytes() # pid
{
	cat /proc/"$1"/fdinfo/* 2>/dev/null | awk '
		/^map_type:/ { map = 1 } /^prog_type:/ { map = 0 }
		/^memlock:/ { bytes = $2 }
		/^map_id:/ { if (map) n[$2] = bytes }
		END { for (i in n) sum += n[i]; printf "%.0f\n", sum }'
}

pss_bytes() # pid...
{
	local p
	for p in "$@"; do cat /proc/"$p"/smaps_rollup 2>/dev/null; done | awk '/^Pss:/ { n += $2 } END { print n * 1024 }'
}

samples_of() # collector
{
	ctl status --format json | python3 -c "import json, sys
print(json.load(sys.stdin)['collectors']['$1']['samples'])"
}

mix()
{
	local load helpers i t0 t1 d0 d1 b0 b1 before after calls waits
	local daemons=() programs=() all=()

	"$build/tests/workload/mix" $((mix_seconds + mix_warm + 20)) 200 </dev/null >/dev/null 2>&1 &
	load=$!
	pids+=("$load")
	start_daemon mix
	sleep $mix_warm
	helpers=$(pgrep -P "$daemon")
	# Only here: the kernel's statistics make every run of a program dearer.
	echo 1 >$stats
	measure_timing
	calls=$(samples_of syscalls) waits=$(samples_of futex)
	before=$(host_counts)
	t0=$(date +%s%N) d0=$(cpu_ns "$daemon" $helpers) b0=$(program_ns "$daemon")
	for ((i = 0; i < 3; i++)); do
		sleep $((mix_seconds / 3))
		t1=$(date +%s%N) d1=$(cpu_ns "$daemon" $helpers) b1=$(program_ns "$daemon")
		daemons+=("$(calculate "($d1 - $d0) * 100 / ($t1 - $t0) / $cpus")")
		programs+=("$(calculate "($b1 - $b0) * 100 / ($t1 - $t0) / $cpus")")
		all+=("$(calculate "($d1 - $d0 + $b1 - $b0) * 100 / ($t1 - $t0) / $cpus")")
		t0=$t1 d0=$d1 b0=$b1
	done
	echo "$stats_before" >$stats
	after=$(host_counts)
	calls=$(($(samples_of syscalls) - calls)) waits=$(($(samples_of futex) - waits))
	section "Ordinary mix, $mix_seconds s: $(echo "$before $after" | awk -v cpus="$cpus" -v calls=$calls -v waits=$waits '{
		seconds = $6 - $2
		printf "per CPU %.0f %% busy, a second %.0f switches, %.0f calls, %.0f futex waits, %.0f processes",
			100 - ($5 - $1) * 100 / seconds / cpus, ($7 - $3) / cpus / seconds, calls / cpus / seconds,
			waits / cpus / seconds, ($8 - $4) / cpus / seconds }')"
	row "CPU of the host: daemon and helpers" % - "${daemons[@]}"
	row "CPU of the host: BPF programs" % - "${programs[@]}"
	note "(without $(calculate "int($timing_ns + 0.5)") ns a run, which the kernel books for an empty program while it takes the time)"
	row "CPU of the host: all together" % 0.5 "${all[@]}"
	local pss helper_pss maps mib=1048576
	pss=$(pss_bytes "$daemon") maps=$(map_bytes "$daemon") helper_pss=$(pss_bytes $helpers)
	row "memory: daemon (PSS)" MiB - "$(calculate "$pss / $mib")"
	row "memory: opener and parsers (PSS)" MiB - "$(calculate "$helper_pss / $mib")"
	row "memory: BPF maps" MiB - "$(calculate "$maps / $mib")"
	row "memory: in all" MiB 64 "$(calculate "($pss + $helper_pss + $maps) / $mib")"
	stop "$daemon" "$load"
}

# ---- start -------------------------------------------------------------------------------------------------

# Until a query of what was just recorded finds time on CPU.
first_sample()
{
	local begin end listening
	begin=$(date +%s%N)
	start_daemon start
	listening=$(date +%s%N)
	until ctl top -n 1 --since -1min --format json 2>/dev/null | grep -q '"name"'; do
		kill -0 "$daemon" 2>/dev/null || die "sysprofd ended: $(cat "$dir/start/log")"
	done
	end=$(date +%s%N)
	listens+=("$(calculate "($listening - $begin) / 1e9")")
	samples+=("$(calculate "($end - $begin) / 1e9")")
	stop "$daemon"
}

start()
{
	local i crowd line listens=() samples=()
	mkfifo "$dir/ready"
	"$build/tests/workload/crowd" $crowd_processes $crowd_threads >"$dir/ready" </dev/null &
	crowd=$!
	pids+=("$crowd")
	read -r line <"$dir/ready" && [ "$line" = ready ] || die "the crowd did not come"
	for ((i = 0; i < 5; i++)); do first_sample; done
	section "Start, with $crowd_processes processes and $((crowd_processes * crowd_threads)) threads"
	row "until it listens" s - "${listens[@]}"
	row "until the first sample is answered" s 1 "${samples[@]}"
	stop "$crowd"
}

# ---- the store ---------------------------------------------------------------------------------------------

# Of bench-store or bench-query: the number before the unit, on the line with the label.
figure() # label, unit
{
	sed -n "s/^ *$1  *//p" "$dir/store.out" | grep -o "[0-9.]* $2" | head -n 1 | cut -d ' ' -f 1
}

store()
{
	"$build/tests/bench/bench-store" "$dir/day" >"$dir/store.out" || die "bench-store failed"
	"$build/tests/bench/bench-query" "$dir/day" >>"$dir/store.out" || die "bench-query failed"
	section "Store: a day of the model, 8,640 buckets; CPU time where nothing else is said"
	row "disk, a day" MiB 22 "$(figure 'day files' MiB)"
	row "disk, once: reserve and log" MiB - "$(figure 'beside them, once' MiB)"
	row "append and repack, each bucket" ms - \
		"$(calculate "$(figure append 'ms CPU') + $(figure 'maintenance per append' 'ms CPU')")"
	row "open again" ms - "$(figure 'open again' ms)"
	row "on-cpu rows of 24 h added up, warm" ms 50 "$(figure 'on-cpu, all, again' 'ms CPU')"
	row "on-cpu rows of 24 h added up, cold (elapsed)" ms 100 "$(figure 'on-cpu, all, cold' ms)"
	row "on-cpu rows of 1 h added up, warm" ms 5 "$(figure 'on-cpu, the last hour' 'ms CPU')"
	row "on-cpu profile of 24 h as a query answers it" ms - "$(figure 'on-cpu, merge, 24 h' ms)"
	row "on-cpu top by function, 24 h" ms - "$(figure 'on-cpu, top by function, 24 h' ms)"
	rm -rf "$dir/day"
}

# ---- all -----------------------------------------------------------------------------------------------------

[ "$(id -u)" = 0 ] || die "needs root: it loads BPF programs"
dir=$(mktemp -d /var/tmp/sysprofd-bench.XXXXXX) || exit 1
begin=$SECONDS
printf '  %-46s %12s  %-18s %-8s\n' "" "median" "quartiles" "target"
busy=$(busy_before)
[ "$busy" -lt 10 ] || note "Others use $busy % of this host's CPUs: the figures are worse than they could be."
attached=$(others)
[ -z "$attached" ] || note "Programs of others are attached and measured along: ${attached% }"
# shellcheck disable=SC2053 # a pattern is meant
for part in hooks redis mix start store; do
	[[ $part != $only ]] || $part
done
printf '\n%d targets met, %d missed, %d s\n' $met $missed $((SECONDS - begin))
