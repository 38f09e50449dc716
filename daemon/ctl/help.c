// SPDX-License-Identifier: GPL-2.0-or-later
/* What --help says: of the program, and of each command. */
#include "ctl/command.h"
#include "ctl/text.h"

static const char type_help[] =
	"  --type TYPE       on-cpu (default), off-cpu, syscalls or futex; top: counters, too\n";

static const char selection_help[] =
	"  --since T         from this moment on; default: five minutes before --until\n"
	"  --until T         up to this moment, itself excluded; default: now\n"
	"  --filter KEY=GLOB, --filter KEY!=GLOB\n"
	"                    keep what matches (or does not). May be repeated: the same KEY gives\n"
	"                    alternatives, different KEYs narrow. GLOB has * ? [abc]; \\ takes "
	"away\n"
	"                    their meaning. KEY is one of\n"
	"                      comm (the process's name), exe, pid, tid, thread, uid, unit (with "
	"or\n"
	"                      without .service), cgroup, container, pod, namespace, build-id,\n"
	"                      binary, function (anywhere in the stack), cause, syscall, errno,\n"
	"                      lock, state, wait (io, lock, sleep, poll, futex, page-fault, pipe, "
	"socket,\n"
	"                      child, kernel-idle, other), idle (true). pid and tid are as the "
	"host "
	"counts\n"
	"                      them\n"
	"  T is now; -30s, -5min, -1h30min; today, yesterday, 'yesterday 14:00'; 23:50 (the "
	"latest\n"
	"  such moment that is not in the future); @EPOCH; or ISO 8601, as 2026-11-30T14:00 or\n"
	"  2026-11-30T13:00:00Z. Times without a zone are in yours (TZ). A bucket of 10 s belongs\n"
	"  where it starts; the bounds that were really used are printed.\n";

static const char format_help[] = "  --format FORMAT   text (default) or json\n";

static const char file_help[] =
	"  -o FILE           where to; - is standard output. The ending chooses the format:\n"
	"                      .svg      flame graph, interactive in a browser\n"
	"                      .html     the same in a page with a filter box\n"
	"                      .folded   text: process;root;...;leaf N\n"
	"                      .pb.gz    pprof\n"
	"                      .json     speedscope\n"
	"  --format FORMAT   svg, html, folded, pprof or speedscope, whatever the ending is\n"
	"  --names FORM      full (default) or short: without template and type arguments and\n"
	"                    parameters\n";

static const char tail_help[] =
	"\n"
	"EXIT STATUS\n"
	"  0 answered (an empty range is an answer), 1 the daemon or the query failed, 2 wrong\n"
	"  usage, 3 no daemon there, 4 not permitted.\n";

static const char program_help[] =
	"sysprofctl - ask sysprofd what this host was doing\n"
	"\n"
	"  sysprofctl [--socket PATH] COMMAND [SELECTION] [OPTIONS]\n"
	"\n"
	"COMMANDS\n"
	"  status    what the daemon does, what it lost, what it costs\n"
	"  top       the heaviest functions, processes, units, locks, ... of a time range\n"
	"  offcpu    who did not run, for how long, and what for\n"
	"  syscalls  system calls: how many, how long, how large, and what they failed with\n"
	"  locks     which locks hold threads up, who holds them, and why\n"
	"  counters  how short the host was of CPU, I/O, memory; faults and switches\n"
	"  flame     a flame graph, or the stacks for other tools, in a file\n"
	"  series    values over time\n"
	"  stacks    which binaries make user stacks incomplete, and why\n"
	"  types     the profile types that are recorded\n"
	"  labels    the labels that occur, or the values of one\n"
	"  watch     one line for every 10 s as they pass\n"
	"  record    a burst of on-CPU samples at another rate, in a file\n"
	"  sysprofctl COMMAND --help tells the options of one.\n"
	"\n"
	"OPTIONS\n"
	"  --socket PATH     the daemon's socket; default: " DEFAULT_SOCKET "\n"
	"  -h, --help        this text\n"
	"  --version         the version\n"
	"\n"
	"EXAMPLES\n"
	"  sysprofctl top\n"
	"  sysprofctl top --type off-cpu --by process --since 03:10 --until 03:15\n"
	"  sysprofctl top --by syscall --filter unit=nginx\n"
	"  sysprofctl flame -o night.svg --since 'yesterday 23:00' --until today\n";

static const struct {
	const char *usage;
	bool selection, format, file;
	const char *options;
} command_help_texts[COMMAND_N] = {
	[COMMAND_STATUS] = { "status [--format text|json]\n"
			     "  What the daemon does, what it lost and why, what it costs.\n"
			     "  seen = stored + idle + lost for every collector.\n",
			     false, true, false, "" },
	[COMMAND_TOP] = { "top [--by DIMENSION] [-n N] [--sort self|total] [--names full|short] "
			  "[SELECTION]\n"
			  "      [--format text|json]\n"
			  "  The heaviest rows of a selection. Self is what a row did itself, "
			  "total\n"
			  "  includes what it called; recursion counts once. Off-CPU totals are "
			  "exact,\n"
			  "  their rows by function or stack are sampled and scaled to them.\n",
			  true, true, false,
			  "  --by DIMENSION    function (default; syscall for --type syscalls), "
			  "process, thread,\n"
			  "                    unit, container, pod, binary, stack, cause, "
			  "syscall, lock\n"
			  "  -n N              so many rows; default: 20, at most 10000\n"
			  "  --sort ORDER      self (default) or total\n"
			  "  --names FORM      full (default) or short: without template and type "
			  "arguments and\n"
			  "                    parameters\n" },
	[COMMAND_OFFCPU] = { "offcpu [-n N] [--idle] [SELECTION] [--format text|json]\n"
			     "  Who did not run: threads by cause. A blocked thread waits for io, "
			     "a lock of\n"
			     "  the kernel, sleep, poll, a futex, a page-fault, a pipe, a socket, "
			     "a child,\n"
			     "  or another thing; run-queue: it was woken and waited for a CPU; "
			     "preempted:\n"
			     "  another one took its CPU. Times per thread and cause are exact, "
			     "what it was\n"
			     "  blocked by is sampled and scaled to them. WOKEN BY: who ended its "
			     "waits, seen in\n"
			     "  random stretches of time (off-cpu-wakers in sysprofd.conf).\n",
			     true, true, false,
			     "  --idle            also threads that wait for work: see "
			     "ARCHITECTURE.md\n"
			     "  -n N              so many rows; default: 20, at most 10000\n" },
	[COMMAND_SYSCALLS] = { "syscalls [--by syscall|process|errno] [-n N] [SELECTION] "
			       "[--format text|json]\n"
			       "  Counts and errors are exact. Latency and sizes are measured in "
			       "random stretches of\n"
			       "  time (syscall-details in sysprofd.conf) and scaled to the "
			       "counts: TIMED is the\n"
			       "  number of calls that they rest on. P50 and P99 lie within a "
			       "power of two. TINY is\n"
			       "  the share of reads and writes that moved fewer than 512 bytes.\n",
			       true, true, false,
			       "  --by WHAT         syscall (default), process, or errno\n"
			       "  -n N              so many rows; default: 20, at most 10000\n" },
	[COMMAND_FLAME] = { "flame -o FILE [--wakers] [SELECTION] [--format "
			    "svg|html|folded|pprof|speedscope]\n"
			    "  All stacks of a selection. Weights are nanoseconds, or calls for "
			    "syscalls;\n"
			    "  folded text of on-cpu counts samples.\n",
			    true, false, true,
			    "  --wakers          off-cpu: waits whose end was seen, and above "
			    "each the stack of\n"
			    "                    who ended it, upside down\n" },
	[COMMAND_LOCKS] = { "locks [--kernel] [-n N] [SELECTION] [--format text|json]\n"
			    "  Locks in user space, those with the longest waits first: who waits, "
			    "who "
			    "holds, who\n"
			    "  wakes, and a verdict:\n"
			    "    io-under-lock          the holder was blocked itself\n"
			    "    holder-preempted       the holder had no CPU\n"
			    "    long-critical-section  the holder worked for long\n"
			    "    thundering-herd        many are woken, and most wait again\n"
			    "    idle-pool              who waits has nothing to do: no problem\n"
			    "    contended              none of these: it is asked for often, or "
			    "the "
			    "holder is not known\n"
			    "  The holder is known of glibc's mutexes and of what inherits "
			    "priorities, "
			    "from Linux 6.2\n"
			    "  on (in containers 6.14). Waits are exact; who holds and who unlocks "
			    "is "
			    "sampled.\n"
			    "  Filters choose locks by those who wait, and count their waits; "
			    "percentiles, most at\n"
			    "  once, wakes and holders are those of the whole lock.\n",
			    true, true, false,
			    "  --kernel          waits for the kernel's own locks instead: of "
			    "which "
			    "kind they\n"
			    "                    are, the function that takes them, whose threads "
			    "wait; from\n"
			    "                    Linux 5.19 on\n"
			    "  -n N              so many locks; default: 5, of the kernel 20\n" },
	[COMMAND_SERIES] = { "series [--by DIMENSION] [--step D] [-n N] [SELECTION] [--format "
			     "text|json]\n"
			     "  Values over time: all together, or by DIMENSION. A step that was "
			     "not\n"
			     "  recorded is told from one in which nothing happened.\n",
			     true, true, false,
			     "  --by DIMENSION    as in top; default: one series for all\n"
			     "  --step D          length of a step, such as 10s, 5min; default: a "
			     "sixtieth of the\n"
			     "                    range, at least one bucket\n"
			     "  -n N              so many series, the rest is [other]; default: "
			     "20\n" },
	[COMMAND_COUNTERS] = { "counters [-n N] [SELECTION] [--format text|json]\n"
			       "  What the host was short of, and what the kernel counted of "
			       "processes: page\n"
			       "  faults (MAJOR: that waited for a disk), switches (FORCED: "
			       "another thread was\n"
			       "  put in its place) and migrations to another CPU, a second; those "
			       "with the\n"
			       "  most CPU time first. Where the processor's counters are to be "
			       "had, GHz,\n"
			       "  instructions per cycle (IPC), and cache and branch misses per "
			       "1,000\n"
			       "  instructions (/k), estimated from stretches of time; else a "
			       "sentence says why\n"
			       "  not. Pressure is the share of time in which some "
			       "tasks, or\n"
			       "  all (full), waited for a resource. The type is not asked.\n",
			       true, true, false,
			       "  -n N              so many processes; default: 20, at most "
			       "10000\n" },
	[COMMAND_STACKS] = { "stacks [-n N] [--format text|json]\n"
			     "  How complete user stacks are: all samples since the daemon's "
			     "start, by the\n"
			     "  binary in which the walk ended, most incomplete ones first. "
			     "PARTIAL "
			     "are those\n"
			     "  that do not reach their outermost frame, WHY counts them by "
			     "reason; "
			     "BY FP is\n"
			     "  the share in which a frame was found by frame pointer, for want of "
			     "better.\n"
			     "  For root and the daemon's group.\n",
			     false, true, false,
			     "  -n N              so many binaries; default: 20\n" },
	[COMMAND_TYPES] = { "types [--format text|json]\n"
			    "  The profile types that this host records.\n",
			    false, true, false, "" },
	[COMMAND_LABELS] = { "labels [KEY] [-n N] [SELECTION] [--format text|json]\n"
			     "  The label keys that occur in a selection; or the values of KEY, "
			     "heaviest\n"
			     "  first.\n",
			     true, true, false,
			     "  -n N              so many values; default: 1000\n" },
	[COMMAND_WATCH] = { "watch [--type TYPE] [--filter KEY=GLOB]... [--format text|json]\n"
			    "  One line for each bucket as it closes, until interrupted; with "
			    "json, one\n"
			    "  object a line. The KEYs are those of top.\n",
			    false, true, false, "" },
	[COMMAND_RECORD] = { "record [-F HZ] [-e EVENT] [-d SECONDS] [--filter KEY=GLOB]... -o "
			     "FILE\n"
			     "  A burst of on-CPU samples beside the history, not part of it.\n"
			     "  By cycles or misses, instructions are sampled as well, where the "
			     "processor counts\n"
			     "  both at once: -o - and .txt tell each function's IPC or misses per "
			     "1,000\n"
			     "  instructions, flame graphs those of a frame, and pprof has both "
			     "events.\n"
			     "  The KEYs are those of top.\n",
			     false, false, true,
			     "  -F HZ             samples per second and CPU, 1 to 997; default: "
			     "99\n"
			     "  -e, --event EVENT what samples are taken by, and weigh: cpu-clock "
			     "(time), cycles,\n"
			     "                    instructions, cache-misses, branch-misses, as "
			     "far "
			     "as the processor\n"
			     "                    counts them; default: on-cpu-event in "
			     "sysprofd.conf, and time\n"
			     "  -d SECONDS        how long, up to 300; default: 10\n"
			     "  --format text     as -o - and .txt do: a table by function\n" },
};

int command_help(enum command_id id)
{
	_cleanup_(strbuf_done) struct strbuf out = {};

	if (id == COMMAND_NONE) {
		strbuf_puts(&out, program_help);
		strbuf_puts(&out, tail_help);
		return text_output(&out);
	}
	strbuf_printf(&out, "  sysprofctl [--socket PATH] %s", command_help_texts[id].usage);
	strbuf_puts(&out, "\nOPTIONS\n");
	strbuf_puts(&out, command_help_texts[id].options);
	if (command_help_texts[id].file)
		strbuf_puts(&out, file_help);
	if (command_help_texts[id].format)
		strbuf_puts(&out, format_help);
	strbuf_puts(&out, "  --socket PATH     the daemon's socket; default: " DEFAULT_SOCKET "\n");
	if (command_help_texts[id].selection) {
		strbuf_puts(&out, "\nSELECTION\n");
		if (id != COMMAND_OFFCPU && id != COMMAND_LOCKS && id != COMMAND_SYSCALLS)
			strbuf_puts(&out, type_help);
		strbuf_puts(&out, selection_help);
	}
	strbuf_puts(&out, tail_help);
	return text_output(&out);
}

int command_failed(const struct client *c, int exit)
{
	complain("%s", client_error(c));
	return exit;
}
