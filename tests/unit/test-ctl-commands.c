// SPDX-License-Identifier: GPL-2.0-or-later
/* The commands against a daemon that answers what a test says: their JSON is a contract, their text is for people. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <inttypes.h>
#include <locale.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "ctl/command.h"
#include "ctl/text.h"
#include "export/wire.h"
#include "fake-daemon.h"

#define T0 (1790000000ULL * NSEC_PER_SEC)

static struct fake_daemon fake;

/* ---- running a command ----------------------------------------------------------------------- */

static int run_parsed(char *words, struct strbuf *error)
{
	_cleanup_(options_done) struct options o = {};
	_cleanup_(client_free_p) struct client *c = NULL;
	static int (*const commands[COMMAND_N])(const struct options *o, struct client *c) = {
		[COMMAND_STATUS] = command_status,     [COMMAND_TOP] = command_top,
		[COMMAND_FLAME] = command_flame,       [COMMAND_SERIES] = command_series,
		[COMMAND_STACKS] = command_stacks,     [COMMAND_TYPES] = command_types,
		[COMMAND_LABELS] = command_labels,     [COMMAND_WATCH] = command_watch,
		[COMMAND_RECORD] = command_record,     [COMMAND_OFFCPU] = command_off_cpu,
		[COMMAND_SYSCALLS] = command_syscalls,
	};
	char *argv[24] = { (char *)"sysprofctl" }, *save = NULL;
	int argc = 1;

	for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
		argv[argc++] = w;
	if (options_parse(argc, argv, T0 + 400 * NSEC_PER_SEC, &o, error) < 0)
		return CTL_USAGE;
	if (client_new(fake.path, &c) < 0)
		return CTL_FAILED;
	return commands[o.command](&o, c);
}

/* In a child, whose standard output is a pipe or a terminal of the given width. Returns the exit status. */
static int run(const char *line, unsigned short width, struct strbuf *out)
{
	struct winsize size = { .ws_row = 25, .ws_col = width };
	int fds[2] = { -1, -1 }, status;
	char block[4096], words[512];
	ssize_t n;
	pid_t pid;

	snprintf(words, sizeof(words), "%s", line);
	assert_int_equal(width ? openpty(&fds[0], &fds[1], NULL, NULL, &size) : pipe(fds), 0);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		_cleanup_(strbuf_done) struct strbuf error = {};

		dup2(fds[1], STDOUT_FILENO);
		close(fds[0]);
		close(fds[1]);
		_exit(run_parsed(words, &error));
	}
	close(fds[1]);
	while ((n = read(fds[0], block, sizeof(block))) > 0)
		strbuf_add(out, block, (size_t)n);
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void answer_with(const ProtobufCMessage *m)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	size_t len = protobuf_c_message_get_packed_size(m);

	assert_non_null(strbuf_reserve(&b, len));
	b.len = protobuf_c_message_pack(m, (uint8_t *)b.data);
	fake_answers(&fake, 200, "application/proto", b.data, b.len);
}

/* Reads a text with python and evaluates a condition over it, named d (JSON) and keys (of any object). */
static void assert_python(const struct strbuf *json, const char *condition)
{
	char command[2048], path[64];
	int fd, status;

	if (system("command -v python3 >/dev/null") != 0) {
		print_message("not checked, python3 is not installed\n");
		return;
	}
	snprintf(path, sizeof(path), "%s/x", fake.directory);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_int_equal(write_full(fd, json->data, json->len), 0);
	close(fd);
	snprintf(command, sizeof(command),
		 "python3 -c 'import json,sys\nd=json.load(open(sys.argv[1]))\nok=%s\n"
		 "print(d) if not ok else None\nsys.exit(not ok)' %s",
		 condition, path);
	status = system(command);
	unlink(path);
	if (status)
		print_message("%s\n", condition);
	assert_int_equal(status, 0);
}

static void assert_lines_fit(const struct strbuf *b, size_t width)
{
	_cleanup_free_ char *copy = strdup(b->data);
	char *save = NULL;

	for (char *line = strtok_r(copy, "\r\n", &save); line;
	     line = strtok_r(NULL, "\r\n", &save)) {
		char plain[1024], *o = plain;

		/* The colours take no room. */
		for (char *c = line; *c; c++) {
			if (*c == '\x1b')
				c = strchr(c, 'm');
			else
				*o++ = *c;
		}
		*o = 0;
		if (text_width(plain) > width)
			print_message("%zu: %s\n", width, plain);
		assert_true(text_width(plain) <= width);
	}
}

/* ---- answers --------------------------------------------------------------------------------- */

struct top_answer {
	Sysprofd__V1__TopResponse m;
	Sysprofd__V1__Coverage coverage;
	Sysprofd__V1__Gap gap, *gaps[1];
	Sysprofd__V1__TopRow row[3], *rows[3];
};

static void make_top(struct top_answer *a, enum profile_type type, size_t n_rows, bool covered)
{
	static const char *const names[] = {
		"main", "std::vector<int>::push_back(int&&) [clone .cold] and so on",
		"\x1b[2J日本;\"x\""
	};

	memset(a, 0, sizeof(*a));
	a->m = (Sysprofd__V1__TopResponse)SYSPROFD__V1__TOP_RESPONSE__INIT;
	a->coverage = (Sysprofd__V1__Coverage)SYSPROFD__V1__COVERAGE__INIT;
	a->gap = (Sysprofd__V1__Gap)SYSPROFD__V1__GAP__INIT;
	a->gap.from_ns = T0 + 100 * NSEC_PER_SEC;
	a->gap.until_ns = T0 + 110 * NSEC_PER_SEC;
	a->gap.reason = (char *)"stopped";
	a->gaps[0] = &a->gap;
	a->coverage.from_ns = T0 + 500 * NSEC_PER_MSEC;
	a->coverage.until_ns = T0 + 300 * NSEC_PER_SEC;
	a->coverage.covered_ns = covered ? 289500 * NSEC_PER_MSEC : 0;
	a->coverage.gaps = a->gaps;
	a->coverage.n_gaps = 1;
	a->coverage.rate_hz = type == PROFILE_ON_CPU ? 19 : 0;
	a->coverage.total = 9223372036854775809ULL;
	a->coverage.samples = 12345;
	a->coverage.lost = 7;
	a->coverage.type = SYSPROFD__V1__PROFILE_TYPE__PROFILE_TYPE_ON_CPU + (int)type;
	a->m.coverage = &a->coverage;
	for (size_t i = 0; i < n_rows; i++) {
		a->row[i] = (Sysprofd__V1__TopRow)SYSPROFD__V1__TOP_ROW__INIT;
		a->row[i].name = (char *)names[i];
		a->row[i].binary = (char *)"a-binary.so.1";
		a->row[i].self = i * 1000000;
		a->row[i].total = 5000000;
		a->row[i].share = 0.25;
		a->row[i].events = 3;
		a->row[i].errors = 2;
		a->row[i].max = 123456;
		a->rows[i] = &a->row[i];
	}
	a->m.rows = a->rows;
	a->m.n_rows = n_rows;
	a->m.rows_omitted = 4;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_top_json(void **state)
{
	_cleanup_(strbuf_done) struct strbuf on = {}, sys = {}, futex = {};
	struct top_answer a;

	make_top(&a, PROFILE_ON_CPU, 3, true);
	a.row[1].pid = 77;
	a.row[1].start_ns = 123;
	answer_with(&a.m.base);
	assert_int_equal(run("top --format json", 0, &on), 0);
	assert_int_equal(on.data[on.len - 1], '\n');
	assert_python(&on,
		      "list(d)==[\"type\",\"unit\",\"from\",\"until\",\"covered_seconds\",\"gaps\","
		      "\"rate_hz\",\"total\",\"samples\",\"lost\",\"rows_omitted\",\"rows\"]");
	assert_python(
		&on, "d[\"type\"]==\"on-cpu\" and d[\"unit\"]==\"nanoseconds\" and "
		     "d[\"from\"]==\"2026-09-21T14:13:20.500Z\" and "
		     "d[\"until\"]==\"2026-09-21T14:18:20Z\" and d[\"covered_seconds\"]==289.5 and "
		     "d[\"gaps\"]==[{\"from\":\"2026-09-21T14:15:00Z\",\"until\":"
		     "\"2026-09-21T14:15:10Z\",\"reason\":\"stopped\"}] and "
		     "d[\"total\"]==9223372036854775809 and d[\"samples\"]==12345 and "
		     "d[\"lost\"]==7 and d[\"rate_hz\"]==19 and d[\"rows_omitted\"]==4");
	assert_python(&on,
		      "d[\"rows\"][0]=={\"name\":\"main\",\"binary\":\"a-binary.so.1\",\"self\":0,"
		      "\"total\":5000000,\"share\":0.25} and d[\"rows\"][1][\"pid\"]==77 and "
		      "d[\"rows\"][1][\"start\"]==123 and "
		      "d[\"rows\"][2][\"name\"]==\"\\x1b[2J\\u65e5\\u672c;\\\"x\\\"\"");

	make_top(&a, PROFILE_SYSCALLS, 1, true);
	answer_with(&a.m.base);
	assert_int_equal(run("top --type syscalls --format json", 0, &sys), 0);
	assert_python(&sys, "d[\"unit\"]==\"calls\" and d[\"rows\"][0][\"events\"]==3 and "
			    "d[\"rows\"][0][\"errors\"]==2 and \"max\" not in d[\"rows\"][0]");
	make_top(&a, PROFILE_FUTEX, 1, true);
	answer_with(&a.m.base);
	assert_int_equal(run("top --type futex --format json", 0, &futex), 0);
	assert_python(&futex,
		      "d[\"rows\"][0][\"max\"]==123456 and \"errors\" not in d[\"rows\"][0]");
}

static void test_top_text(void **state)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	struct top_answer a;

	setenv("TZ", "Europe/Berlin", 1);
	make_top(&a, PROFILE_ON_CPU, 3, true);
	answer_with(&a.m.base);
	assert_int_equal(run("top", 0, &b), 0);
	assert_non_null(strstr(b.data,
			       "top --type on-cpu --by function --since -5min --until now -n 20 "
			       "--sort self\n"));
	assert_non_null(
		strstr(b.data, "2026-09-21 16:13:20 to 16:18:20 CEST: 4 min 49 s recorded"));
	assert_non_null(strstr(b.data, "not recorded: 16:15:00 to 16:15:10 (stopped)\n"));
	assert_non_null(strstr(b.data, "\n   SELF   SHARE    TOTAL  BINARY         FUNCTION\n"));
	assert_non_null(strstr(b.data, "\n      0  25.0 %  5.00 ms  a-binary.so.1  main\n"));
	assert_non_null(strstr(b.data, "and 4 more rows\n"));
	assert_null(strchr(b.data, '\x1b')); /* no colour, and none from names */
}

static void test_top_on_terminals(void **state)
{
	for (unsigned short width = 8; width < 150; width += 7) {
		_cleanup_(strbuf_done) struct strbuf b = {};
		struct top_answer a;

		make_top(&a, PROFILE_FUTEX, 3, true);
		answer_with(&a.m.base);
		assert_int_equal(
			run("top --by process --type futex --filter comm=*a?b*", width, &b), 0);
		assert_lines_fit(&b, width);
		assert_non_null(strstr(b.data, "\x1b[1m"));
		assert_null(strstr(b.data, "\x1b[2J"));
	}
}

static void test_idle_is_not_unrecorded(void **state)
{
	_cleanup_(strbuf_done) struct strbuf idle = {}, unrecorded = {}, within = {}, json = {};
	struct top_answer a;

	make_top(&a, PROFILE_ON_CPU, 0, true);
	answer_with(&a.m.base);
	assert_int_equal(run("top", 0, &idle), 0);
	assert_non_null(strstr(idle.data, "Idle:"));
	assert_null(strstr(idle.data, "Not recorded:"));
	make_top(&a, PROFILE_ON_CPU, 0, false);
	answer_with(&a.m.base);
	assert_int_equal(run("top", 0, &unrecorded), 0);
	assert_non_null(strstr(unrecorded.data, "Not recorded:"));
	assert_null(strstr(unrecorded.data, "Idle:"));
	a.coverage.n_gaps = 0; /* within the bucket of now */
	answer_with(&a.m.base);
	assert_int_equal(run("top", 0, &within), 0);
	assert_non_null(strstr(within.data, "No bucket starts in this time"));
	assert_int_equal(run("top --format json", 0, &json), 0);
	assert_python(&json, "d[\"rows\"]==[] and d[\"covered_seconds\"]==0");
}

static void test_request_says_what_was_asked(void **state)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	Sysprofd__V1__TopRequest *q;
	struct top_answer a;
	const char *body;

	make_top(&a, PROFILE_OFF_CPU, 0, true);
	answer_with(&a.m.base);
	assert_int_equal(
		run("top --type off-cpu --by cause -n 7 --sort total --since -300s --until -100s "
		    "--filter comm!=x* --filter unit=a",
		    0, &b),
		0);
	body = strstr(fake.request.data, "\r\n\r\n") + 4;
	q = sysprofd__v1__top_request__unpack(
		NULL, fake.request.len - (size_t)(body - fake.request.data), (const uint8_t *)body);
	assert_non_null(q);
	assert_int_equal(q->selection->type, SYSPROFD__V1__PROFILE_TYPE__PROFILE_TYPE_OFF_CPU);
	assert_true(q->selection->from_ns == T0 + 100 * NSEC_PER_SEC);
	assert_true(q->selection->until_ns == T0 + 300 * NSEC_PER_SEC);
	assert_int_equal(q->by, SYSPROFD__V1__DIMENSION__DIMENSION_CAUSE);
	assert_int_equal(q->sort, SYSPROFD__V1__SORT_ORDER__SORT_ORDER_TOTAL);
	assert_int_equal(q->limit, 7);
	assert_int_equal(q->selection->n_filters, 2);
	assert_string_equal(q->selection->filters[0]->key, "comm");
	assert_string_equal(q->selection->filters[0]->glob, "x*");
	assert_true(q->selection->filters[0]->negate && !q->selection->filters[1]->negate);
	sysprofd__v1__top_request__free_unpacked(q, NULL);
}

static void test_status(void **state)
{
	_cleanup_(strbuf_done) struct strbuf json = {}, text = {}, narrow = {}, lacking = {};
	Sysprofd__V1__UnwindStatus unwind = SYSPROFD__V1__UNWIND_STATUS__INIT;
	Sysprofd__V1__StatusResponse m = SYSPROFD__V1__STATUS_RESPONSE__INIT;
	Sysprofd__V1__CollectorStatus on = SYSPROFD__V1__COLLECTOR_STATUS__INIT, off = on;
	Sysprofd__V1__CollectorStatus *collectors[] = { &on, &off };
	Sysprofd__V1__Loss loss = SYSPROFD__V1__LOSS__INIT, shed = loss, walk = loss,
			   poisoned = loss;
	Sysprofd__V1__Loss *losses[] = { &loss, &shed }, *counters[] = { &walk, &poisoned };
	Sysprofd__V1__StoreStatus store = SYSPROFD__V1__STORE_STATUS__INIT;

	loss.reason = (char *)"tick-skipped";
	loss.count = 5;
	on.name = (char *)"on-cpu";
	on.state = (char *)"running";
	on.event = (char *)"cpu-clock";
	on.rate_hz = 19;
	on.samples = 100;
	on.seen = 205;
	on.idle = 100;
	on.lost = losses;
	on.n_lost = 2;
	shed.reason = (char *)"stack-shed";
	shed.count = 7;
	shed.folded = true;
	walk.reason = (char *)"walk-complete";
	walk.count = 90;
	poisoned.reason = (char *)"symbol-binaries-poisoned";
	poisoned.count = 1;
	m.counters = counters;
	m.n_counters = 2;
	off.name = (char *)"off-cpu";
	off.state = (char *)"failed: this kernel has no BTF, and that is a long story which does "
			    "not fit a line";
	store.bytes = 1 << 20;
	store.buckets = 12;
	store.state = (char *)"ok";
	store.damaged = 2;
	store.given_up = 3;
	m.version = (char *)"0.1.0";
	m.uptime_seconds = 12.5;
	m.collectors = collectors;
	m.n_collectors = 2;
	m.windows = 6;
	m.store = &store;
	m.rss_bytes = 30 << 20;
	m.bpf_bytes = 9 << 20;
	m.cpu_seconds = 0.25;
	answer_with(&m.base);
	assert_int_equal(run("status --format json", 0, &json), 0);
	assert_python(
		&json,
		"d=={\"version\":\"0.1.0\",\"uptime_seconds\":12.5,\"collectors\":{\"on-cpu\":{"
		"\"state\":\"running\",\"rate_hz\":19,\"event\":\"cpu-clock\",\"seen\":205,"
		"\"samples\":100,\"idle\":100,\"lost\":{\"tick-skipped\":5},"
		"\"folded\":{\"stack-shed\":7}},\"off-cpu\":{\"state\":d[\"collectors\"]"
		"[\"off-cpu\"][\"state\"],\"rate_hz\":0,\"event\":\"\",\"seen\":0,\"samples\":0,"
		"\"idle\":0,\"lost\":{},\"folded\":{}}},"
		"\"windows\":6,\"store\":{\"bytes\":1048576,\"buckets\":12,\"oldest\":None,"
		"\"limit_bytes\":0,\"damaged\":2,\"dropped\":0,\"given_up\":3,\"state\":\"ok\"},"
		"\"memory\":{\"rss_bytes\":31457280,\"bpf_bytes\":9437184},\"cpu_seconds\":0.25,"
		"\"counters\":{\"walk-complete\":90,\"symbol-binaries-poisoned\":1}}");
	assert_int_equal(run("status", 0, &text), 0);
	assert_non_null(strstr(text.data, "on-cpu lost: tick-skipped 5\n"));
	assert_non_null(strstr(text.data, "on-cpu counted, but not in full: stack-shed 7\n"));
	assert_non_null(strstr(text.data, "distinct user stacks ended: complete 90\n"));
	assert_non_null(strstr(text.data, "also dropped or refused: symbol-binaries-poisoned 1\n"));
	/* What retention does is no failure. */
	assert_non_null(strstr(text.data, ", 2 damaged, 3 given up for age or room, state: ok\n"));
	assert_non_null(strstr(text.data, "(2.00 % of one CPU)"));
	unwind.lacking = losses;
	unwind.n_lacking = 1;
	m.unwind = &unwind;
	answer_with(&m.base);
	assert_int_equal(run("status", 0, &lacking), 0);
	assert_non_null(strstr(lacking.data, "\nbinaries without unwind table: tick-skipped 5\n"));
	assert_int_equal(run("status", 40, &narrow), 0);
	assert_lines_fit(&narrow, 40);
}

static void test_stacks(void **state)
{
	_cleanup_(strbuf_done) struct strbuf text = {}, narrow = {};
	Sysprofd__V1__StacksResponse m = SYSPROFD__V1__STACKS_RESPONSE__INIT;
	Sysprofd__V1__BinaryStacks b = SYSPROFD__V1__BINARY_STACKS__INIT, *rows[] = { &b };
	Sysprofd__V1__Loss table = SYSPROFD__V1__LOSS__INIT, process = table, row = table;
	Sysprofd__V1__Loss *why[] = { &row, &table, &process };

	table.reason = (char *)"no-table";
	table.count = 3;
	process.reason = (char *)"no-process";
	row.reason = (char *)"no-row";
	row.count = 1;
	b.binary = (char *)"/usr/bin/nginx";
	b.samples = m.samples = 11;
	b.complete = m.complete = 7;
	b.partial = why;
	b.n_partial = 3;
	m.binaries = rows;
	m.n_binaries = 1;
	answer_with(&m.base);
	assert_int_equal(run("stacks", 0, &text), 0);
	assert_non_null(strstr(text.data, "/usr/bin/nginx  no-table 3, no-row 1\n"));
	assert_non_null(strstr(text.data, "\nno-table: the table "));
	/* Of which there is none. */
	assert_null(strstr(text.data, "no-process"));
	assert_int_equal(run("stacks", 60, &narrow), 0);
	assert_lines_fit(&narrow, 60);
}

static void test_off_cpu(void **state)
{
	_cleanup_(strbuf_done) struct strbuf text = {}, narrow = {}, json = {};
	Sysprofd__V1__OffCpuResponse m = SYSPROFD__V1__OFF_CPU_RESPONSE__INIT;
	Sysprofd__V1__OffCpuRow row = SYSPROFD__V1__OFF_CPU_ROW__INIT, *rows[] = { &row };
	Sysprofd__V1__OffCpuWaker waker = SYSPROFD__V1__OFF_CPU_WAKER__INIT, *wakers[] = { &waker };

	waker.comm = waker.thread = (char *)"writer";
	waker.pid = waker.tid = 7;
	waker.function = (char *)"flush_queue";
	waker.share = 0.5;
	row.comm = (char *)"nginx";
	row.thread = (char *)"worker 1";
	row.cause = (char *)"blocked";
	row.wait = (char *)"pipe";
	row.pid = 41;
	row.tid = 42;
	row.waits = 4;
	row.total = m.blocked = 2 * NSEC_PER_SEC;
	row.wakers = wakers;
	row.n_wakers = 1;
	m.idle = 60 * NSEC_PER_SEC;
	m.idle_threads = 12;
	m.rows = rows;
	m.n_rows = 1;
	answer_with(&m.base);
	assert_int_equal(run("offcpu", 0, &text), 0);
	assert_non_null(strstr(text.data, ", in 12 threads; --idle shows them\n"));
	assert_non_null(
		strstr(text.data, "pipe    41   42  nginx/worker 1  writer flush_queue 50.0 %\n"));
	assert_non_null(strstr(text.data, "2.00 s"));
	assert_int_equal(run("offcpu --idle", 60, &narrow), 0);
	assert_lines_fit(&narrow, 60);
	assert_int_equal(run("offcpu --format json", 0, &json), 0);
	assert_non_null(
		strstr(json.data, "\"cause\":\"blocked\",\"wait\":\"pipe\",\"idle\":false"));
	assert_non_null(strstr(json.data, "\"function\":\"flush_queue\""));
}

static void test_syscalls(void **state)
{
	_cleanup_(strbuf_done) struct strbuf text = {}, narrow = {}, json = {}, errnos = {},
					     estimated = {};
	Sysprofd__V1__CallInterval within = {
		PROTOBUF_C_MESSAGE_INIT(&sysprofd__v1__call_interval__descriptor), 1900, 2100, false
	};
	Sysprofd__V1__SyscallsResponse m = SYSPROFD__V1__SYSCALLS_RESPONSE__INIT;
	Sysprofd__V1__SyscallRow row = SYSPROFD__V1__SYSCALL_ROW__INIT, *rows[] = { &row };
	Sysprofd__V1__CallMeasure latency = SYSPROFD__V1__CALL_MEASURE__INIT,
				  bytes = SYSPROFD__V1__CALL_MEASURE__INIT;
	Sysprofd__V1__CallBin bin = SYSPROFD__V1__CALL_BIN__INIT, *bins[] = { &bin };
	Sysprofd__V1__CallPart part = SYSPROFD__V1__CALL_PART__INIT, *parts[] = { &part };
	Sysprofd__V1__Coverage coverage = SYSPROFD__V1__COVERAGE__INIT;

	coverage.covered_ns = 10 * NSEC_PER_SEC;
	bin.from = 512;
	bin.below = 1024;
	bin.calls = 1000;
	latency.measured = 77;
	latency.p50 = 700;
	latency.p99 = 1000;
	latency.max = 20 * NSEC_PER_MSEC;
	latency.histogram = bytes.histogram = bins;
	latency.n_histogram = bytes.n_histogram = 1;
	part.name = (char *)"EAGAIN";
	part.calls = 9;
	row.name = (char *)"recvmsg";
	row.calls = 2000;
	row.errors = 10;
	row.latency = &latency;
	row.bytes = &bytes;
	row.parts = parts;
	row.n_parts = 1;
	m.coverage = &coverage;
	m.calls = 2000;
	m.errors = 10;
	m.rows = rows;
	m.n_rows = 1;
	answer_with(&m.base);
	assert_int_equal(run("syscalls", 0, &text), 0);
	assert_non_null(strstr(text.data, "2,000 calls, 200 a second; 10 failed (0.50 %)\n"));
	/* No size was measured. */
	assert_non_null(strstr(text.data,
			       "2,000    200      10  700 ns  1.00 us  20.0 ms     77        "
			       "-     -     -  recvmsg  EAGAIN 90.0 %\n"));
	assert_int_equal(run("syscalls --by process", 60, &narrow), 0);
	assert_lines_fit(&narrow, 60);
	bytes.measured = 5;
	bytes.total = 600000;
	row.tiny = 0.25;
	answer_with(&m.base);
	assert_int_equal(run("syscalls --format json", 0, &json), 0);
	assert_non_null(strstr(json.data,
			       "\"syscall\":\"recvmsg\",\"calls\":2000,"
			       "\"calls_per_second\":200,\"errors\":10,\"exact\":true,\"errnos\":[{"
			       "\"name\":\"EAGAIN\",\"calls\":9}]"));
	assert_non_null(strstr(json.data, "\"histogram\":[{\"from\":512,\"below\":1024,"
					  "\"calls\":1000}]"));
	assert_non_null(strstr(json.data, "\"bytes_per_second\":60000,\"tiny\":0.25"));
	assert_int_equal(run("syscalls --by errno", 0, &errnos), 0);
	assert_null(strstr(errnos.data, "P50"));
	row.calls_within = m.calls_within = &within;
	coverage.estimated = m.estimated = true;
	answer_with(&m.base);
	assert_int_equal(run("syscalls", 0, &estimated), 0);
	assert_non_null(strstr(estimated.data, "~2,000 calls ("));
	assert_non_null(strstr(estimated.data, "5.00 %), 200 a second"));
}

static void test_series(void **state)
{
	_cleanup_(strbuf_done) struct strbuf json = {}, one = {}, many = {};
	Sysprofd__V1__SeriesResponse m = SYSPROFD__V1__SERIES_RESPONSE__INIT;
	Sysprofd__V1__TimeSeries s = SYSPROFD__V1__TIME_SERIES__INIT, *series[] = { &s, &s };
	Sysprofd__V1__SeriesPoint point[90], *points[90];
	struct top_answer a;

	make_top(&a, PROFILE_ON_CPU, 0, true);
	a.gap.from_ns = T0;
	a.gap.until_ns = T0 + 300 * NSEC_PER_SEC;
	a.coverage.until_ns = T0 + 900 * NSEC_PER_SEC;
	for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
		point[i] = (Sysprofd__V1__SeriesPoint)SYSPROFD__V1__SERIES_POINT__INIT;
		point[i].time_ns = T0 + i * 10 * NSEC_PER_SEC;
		point[i].covered_ns = i < 30 || i == 80 ? 0 : 10 * NSEC_PER_SEC;
		point[i].value = i < 60 ? 0 : i * NSEC_PER_SEC / 9;
		points[i] = &point[i];
	}
	s.name = (char *)"nginx";
	s.points = points;
	s.n_points = ARRAY_SIZE(points);
	m.coverage = &a.coverage;
	m.step_ns = 10 * NSEC_PER_SEC;
	m.series = series;
	m.n_series = 2;
	a.coverage.processes_merged = 1;
	answer_with(&m.base);
	assert_int_equal(run("series --format json", 0, &json), 0);
	assert_python(
		&json,
		"d[\"processes_merged\"] and d[\"step_seconds\"]==10 and len(d[\"series\"])==2 and "
		"d[\"series\"][0][\"points\"][0]=={\"time\":\"2026-09-21T14:13:20Z\",\"value\":0,"
		"\"covered_seconds\":0}");
	assert_int_equal(run("series", 0, &one), 0);
	assert_non_null(strstr(one.data, "not recorded, 30 steps\n"));
	assert_non_null(strstr(one.data, "too many processes and threads to tell apart"));
	assert_non_null(strstr(one.data, "  0  0.00\n")); /* idle is another thing */
	assert_non_null(strstr(
		one.data, "in the bucket before\n")); /* no gap: a step shorter than a bucket */
	for (unsigned short width = 20; width < 140; width += 9) {
		_cleanup_(strbuf_done) struct strbuf b = {};

		assert_int_equal(run("series --by process", width, &b), 0);
		assert_lines_fit(&b, width);
	}
	assert_int_equal(run("series --by process", 0, &many), 0);
	assert_non_null(strstr(many.data, "nginx"));
}

static void test_labels_and_types(void **state)
{
	_cleanup_(strbuf_done) struct strbuf keys = {}, values = {}, types = {};
	Sysprofd__V1__LabelsResponse l = SYSPROFD__V1__LABELS_RESPONSE__INIT;
	Sysprofd__V1__LabelValuesResponse v = SYSPROFD__V1__LABEL_VALUES_RESPONSE__INIT;
	Sysprofd__V1__LabelValue value = SYSPROFD__V1__LABEL_VALUE__INIT, *list[] = { &value };
	Sysprofd__V1__ProfileTypesResponse t = SYSPROFD__V1__PROFILE_TYPES_RESPONSE__INIT;
	Sysprofd__V1__ProfileTypeInfo info = SYSPROFD__V1__PROFILE_TYPE_INFO__INIT,
				      *infos[] = { &info };
	char *names[] = { (char *)"comm", (char *)"unit" };

	l.names = names;
	l.n_names = 2;
	answer_with(&l.base);
	assert_int_equal(run("labels --format json", 0, &keys), 0);
	assert_python(&keys, "d=={\"labels\":[\"comm\",\"unit\"]}");
	value.value = (char *)"nginx.service";
	value.total = 5;
	v.values = list;
	v.n_values = 1;
	v.next_page_token = (char *)"more";
	answer_with(&v.base);
	assert_int_equal(run("labels unit --format json", 0, &values), 0);
	assert_python(&values,
		      "d[\"label\"]==\"unit\" and d[\"values\"]==[{\"value\":\"nginx.service\","
		      "\"total\":5}] and d[\"more\"]");
	info.name = (char *)"on-cpu";
	info.unit = (char *)"nanoseconds";
	t.types = infos;
	t.n_types = 1;
	answer_with(&t.base);
	assert_int_equal(run("types --format json", 0, &types), 0);
	assert_python(&types, "d[\"types\"][0][\"name\"]==\"on-cpu\"");
}

/* ---- files ----------------------------------------------------------------------------------- */

static Sysprofd__V1__Profile *pack_profile(struct profile **ret_p)
{
	Sysprofd__V1__Profile *m = NULL;
	struct profile *p = NULL;
	struct frame f = { .kind = FRAME_NATIVE, .flags = FRAME_NAMED };
	struct series s = { .pid = 5 };
	int64_t frame, stack, series;

	assert_int_equal(profile_new(PROFILE_ON_CPU, &p), 0);
	f.name = (uint32_t)dict_string(p->dict, "f<>&");
	s.label[LABEL_COMM] = (uint32_t)dict_string(p->dict, "prog");
	frame = dict_frame(p->dict, &f);
	stack = dict_stack(p->dict, 0, (uint32_t)frame);
	series = dict_series(p->dict, &s);
	assert_int_equal(
		columns_add(&p->columns, (uint32_t)series, (uint32_t)stack, 0, 0, 3, 30, 0), 0);
	p->total = 30;
	p->samples = 3;
	p->from_wall_ns = T0;
	p->until_wall_ns = T0 + NSEC_PER_SEC;
	p->covered_ns = NSEC_PER_SEC;
	assert_int_equal(wire_profile_pack(p, &m), 0);
	*ret_p = p;
	return m;
}

static void read_back(const char *path, struct strbuf *ret)
{
	assert_int_equal(read_file_at(AT_FDCWD, path, 1 << 20, ret), 0);
}

static void test_flame(void **state)
{
	_cleanup_(strbuf_done) struct strbuf out = {}, direct = {}, file = {}, failed = {};
	_cleanup_(profile_free_p) struct profile *p = NULL;
	Sysprofd__V1__MergeResponse m = SYSPROFD__V1__MERGE_RESPONSE__INIT;
	char line[128], path[64];
	struct stat st;

	m.profile = pack_profile(&p);
	answer_with(&m.base);
	wire_profile_free(m.profile);
	snprintf(path, sizeof(path), "%s/a.folded", fake.directory);
	snprintf(line, sizeof(line), "flame -o %s", path);
	umask(022);
	assert_int_equal(run(line, 0, &out), 0);
	read_back(path, &file);
	assert_string_equal(file.data, "prog;f<>& 3\n");
	assert_non_null(strstr(out.data, "a.folded: folded, on-cpu: 30 ns in 3 samples"));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);

	assert_int_equal(run("flame -o - --format folded", 0, &direct), 0);
	assert_string_equal(direct.data, "prog;f<>& 3\n");

	/* What cannot be written leaves nothing behind, and the old file as it was. */
	assert_int_equal(run("flame -o /nonexistent/a.svg", 0, &failed), CTL_FAILED);
	snprintf(line, sizeof(line), "flame -o %s", path);
	fake_answers(&fake, 200, "application/proto", "\x0a\x05junk", 6);
	assert_int_equal(run(line, 0, &failed), CTL_FAILED);
	strbuf_reset(&file);
	read_back(path, &file);
	assert_string_equal(file.data, "prog;f<>& 3\n");
	unlink(path);
}

static void test_record(void **state)
{
	_cleanup_(strbuf_done) struct strbuf frames = {}, out = {}, file = {}, none = {};
	_cleanup_(profile_free_p) struct profile *p = NULL;
	Sysprofd__V1__RecordResponse m = SYSPROFD__V1__RECORD_RESPONSE__INIT;
	unsigned char bytes[1024];
	char line[128], path[64];

	m.elapsed_seconds = 1;
	m.samples = 17;
	fake_frame(&frames, 0, bytes, sysprofd__v1__record_response__pack(&m, bytes));
	fake_frame(&none, 0, bytes, sysprofd__v1__record_response__pack(&m, bytes));
	m.profile = pack_profile(&p);
	assert_true(sysprofd__v1__record_response__get_packed_size(&m) <= sizeof(bytes));
	fake_frame(&frames, 0, bytes, sysprofd__v1__record_response__pack(&m, bytes));
	wire_profile_free(m.profile);
	fake_frame(&frames, 2, "{}", 2);
	fake_answers(&fake, 200, "application/connect+proto", frames.data, frames.len);
	snprintf(path, sizeof(path), "%s/r.folded", fake.directory);
	snprintf(line, sizeof(line), "record -F 199 -d 1 -o %s", path);
	assert_int_equal(run(line, 0, &out), 0);
	read_back(path, &file);
	assert_string_equal(file.data, "prog;f<>& 3\n");
	unlink(path);

	/* A stream that ends without a profile is a failure, and no file. */
	fake_frame(&none, 2, "{}", 2);
	fake_answers(&fake, 200, "application/connect+proto", none.data, none.len);
	assert_int_equal(run(line, 0, &out), CTL_FAILED);
	assert_int_equal(access(path, F_OK), -1);
}

static void test_watch(void **state)
{
	_cleanup_(strbuf_done) struct strbuf frames = {}, json = {}, text = {};
	Sysprofd__V1__WatchResponse m = SYSPROFD__V1__WATCH_RESPONSE__INIT;
	Sysprofd__V1__Bucket bucket = SYSPROFD__V1__BUCKET__INIT;
	Sysprofd__V1__Profile profile = SYSPROFD__V1__PROFILE__INIT, *profiles[] = { &profile };
	Sysprofd__V1__Sample sample = SYSPROFD__V1__SAMPLE__INIT, *samples[] = { &sample };
	unsigned char bytes[1024];
	struct top_answer a;

	make_top(&a, PROFILE_ON_CPU, 0, true);
	profile.coverage = &a.coverage;
	sample.stack = 4711; /* out of every bound */
	profile.samples = samples;
	profile.n_samples = 1;
	bucket.start_ns = T0;
	bucket.profiles = profiles;
	bucket.n_profiles = 1;
	bucket.gap = (char *)"stopped";
	m.bucket = &bucket;
	for (int i = 0; i < 2; i++)
		fake_frame(&frames, 0, bytes, sysprofd__v1__watch_response__pack(&m, bytes));
	fake_frame(&frames, 2, "{}", 2);
	fake_answers(&fake, 200, "application/connect+proto", frames.data, frames.len);
	assert_int_equal(run("watch --format json", 0, &json), 0);
	*strchr(json.data, '\n') = 0; /* one object a line */
	json.len = strlen(json.data);
	assert_python(&json,
		      "d[\"gap\"]==\"stopped\" and d[\"profiles\"][0][\"type\"]==\"on-cpu\"");
	assert_int_equal(run("watch", 60, &text), 0);
	assert_lines_fit(&text, 60);
	assert_non_null(strstr(text.data, "not recorded before this (stopped)"));
}

static int set_up(void **state)
{
	setenv("TERM", "xterm", 1);
	setenv("LC_ALL", "C.UTF-8", 1);
	unsetenv("NO_COLOR");
	fake_start(&fake);
	return setlocale(LC_CTYPE, "C.UTF-8") ? 0 : -1;
}

static int tear_down(void **state)
{
	fake_stop(&fake);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_top_json),
		cmocka_unit_test(test_top_text),
		cmocka_unit_test(test_top_on_terminals),
		cmocka_unit_test(test_idle_is_not_unrecorded),
		cmocka_unit_test(test_request_says_what_was_asked),
		cmocka_unit_test(test_status),
		cmocka_unit_test(test_stacks),
		cmocka_unit_test(test_off_cpu),
		cmocka_unit_test(test_syscalls),
		cmocka_unit_test(test_series),
		cmocka_unit_test(test_labels_and_types),
		cmocka_unit_test(test_flame),
		cmocka_unit_test(test_record),
		cmocka_unit_test(test_watch),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
