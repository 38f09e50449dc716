// SPDX-License-Identifier: GPL-2.0-or-later
/* Recordings by cycles or misses with instructions beside them: what each format, and sysprofctl's table, tell of both. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <sys/wait.h>
#include <zlib.h>

#include "base/io.h"
#include "ctl/command.h"
#include "export/caption.h"
#include "export/export.h"
#include "export/functions.h"
#include "export/wire.h"
#include "fake-daemon.h"

static struct fake_daemon fake;

static uint32_t string(struct profile *p, const char *s)
{
	int64_t id = dict_string(p->dict, s);

	assert_true(id >= 0);
	return (uint32_t)id;
}

static uint32_t add_binary(struct profile *p, const char *path, enum binary_kind kind)
{
	const char *slash = strrchr(path, '/');
	struct binary b = { .name = string(p, slash ? slash + 1 : path),
			    .path = string(p, path),
			    .kind = kind,
			    .ino = string(p, path) };
	int64_t id = dict_binary(p->dict, &b);

	assert_true(id > 0);
	return (uint32_t)id;
}

static uint32_t add_frame(struct profile *p, uint32_t binary, enum frame_kind kind, uint64_t offset,
			  const char *name)
{
	struct frame f = { .binary = binary,
			   .kind = (uint16_t)kind,
			   .offset = offset,
			   .name = name ? string(p, name) : 0,
			   .flags = FRAME_NAMED };
	int64_t id = dict_frame(p->dict, &f);

	assert_true(id > 0);
	return (uint32_t)id;
}

static uint32_t push(struct profile *p, uint32_t parent, uint32_t frame)
{
	int64_t id = dict_stack(p->dict, parent, frame);

	assert_true(id > 0);
	return (uint32_t)id;
}

static uint32_t add_series(struct profile *p, const char *comm, const char *exe, uint32_t pid)
{
	struct series s = { .pid = pid, .tid = pid, .uid = 1000, .start = 7 };
	int64_t id;

	s.label[LABEL_COMM] = string(p, comm);
	s.label[LABEL_EXE] = string(p, exe);
	id = dict_series(p->dict, &s);
	assert_true(id > 0);
	return (uint32_t)id;
}

static struct profile *new_profile(enum profile_type type)
{
	struct profile *p = NULL;

	assert_int_equal(profile_new(type, &p), 0);
	p->from_wall_ns = 1790000000ULL * NSEC_PER_SEC;
	p->until_wall_ns = p->from_wall_ns + 300 * NSEC_PER_SEC;
	p->covered_ns = 299 * NSEC_PER_SEC;
	p->rate_mhz = 19000;
	return p;
}

static void add_row(struct profile *p, uint32_t series, uint32_t stack, uint32_t key, uint32_t aux,
		    uint64_t count, uint64_t value)
{
	assert_int_equal(columns_add(&p->columns, series, stack, key, aux, count, value, value), 0);
	p->total += p->type == PROFILE_SYSCALLS ? count : value;
	p->samples += count;
}

/*
 * fast: 100 samples of each event, 2.5 instructions per cycle. slow: 0.1, and called by fast and by itself. rare: too
 * few samples to say. alone: instructions without cycles.
 */
static struct profile *profile_with_instructions(enum sample_event event)
{
	struct profile *p = new_profile(PROFILE_ON_CPU);
	uint32_t exe = add_binary(p, "/bin/x", BINARY_ELF), s = add_series(p, "x", "/bin/x", 1);
	uint32_t fast = push(p, 0, add_frame(p, exe, FRAME_NATIVE, 1, "fast"));
	uint32_t slow = push(p, fast, add_frame(p, exe, FRAME_NATIVE, 2, "slow"));
	uint32_t again = push(p, slow, add_frame(p, exe, FRAME_NATIVE, 3, "slow"));
	uint32_t rare = push(p, 0, add_frame(p, exe, FRAME_NATIVE, 4, "rare"));
	uint32_t alone = push(p, rare, add_frame(p, exe, FRAME_NATIVE, 5, "alone"));
	const struct {
		uint32_t stack, samples;
		uint64_t value;
	} rows[] = { { fast, 100, 250000 },
		     { slow, 60, 10000 },
		     { again, 40, 20000 },
		     { rare, 1000, 1000 },
		     { alone, 1, 1 } };

	p->event = event;
	p->instructions.sampled = true;
	add_row(p, s, fast, 0, 0, 100, 100000);
	add_row(p, s, slow, 0, 0, 60, 200000);
	add_row(p, s, again, 0, 0, 40, 100000);
	add_row(p, s, rare, 0, 0, 25, 1000); /* 26 would be enough beside 1000 */
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(columns_add(&p->columns, s, rows[i].stack,
					     ON_ASPECT(ON_INSTRUCTIONS), 0, rows[i].samples,
					     rows[i].value, 0),
				 0);
	profile_sum_instructions(p);
	return p;
}

static void assert_function(const struct function_row *row, const struct profile *p,
			    const char *name, uint64_t self, uint64_t total, const char *quotient)
{
	char buf[HUMAN_MAX];

	assert_string_equal(row->function->text, name);
	assert_string_equal(row->function->binary, "x");
	assert_int_equal(row->self, self);
	assert_int_equal(row->total, total);
	assert_string_equal(quotient_text(p, &row->pair, buf), quotient);
}

static void test_functions(void **state)
{
	_cleanup_(profile_free_p) struct profile *p = profile_with_instructions(EVENT_CYCLES);
	_cleanup_(functions_done) struct functions f = {};
	_cleanup_(strbuf_done) struct strbuf what = {};

	assert_int_equal(functions_new(p, &f), 0);
	assert_int_equal(f.n_rows, 3);
	assert_function(&f.rows[0], p, "slow", 300000, 300000, "0.10");
	assert_function(&f.rows[1], p, "fast", 100000, 400000, "2.50");
	assert_function(&f.rows[2], p, "rare", 1000, 1000, "-");
	caption_what(p, &what);
	assert_string_equal(what.data,
			    "on-cpu: 401,000 cycles in 225 samples, 281,001 instructions in 1,201, "
			    "0.70 instructions per cycle");
	p->event = EVENT_CACHE_MISSES;
	functions_done(&f);
	assert_int_equal(functions_new(p, &f), 0);
	assert_function(&f.rows[1], p, "fast", 100000, 400000, "400.00");
}

/* The bound is sqrt(1/n1 + 1/n2) <= 0.2. */
static void test_quotient_is_known(void **state)
{
	const struct profile p = { .event = EVENT_CYCLES };
	struct event_pair pair = { .events = 100, .event_samples = 50, .instructions = 50 };
	char buf[HUMAN_MAX];

	for (uint64_t n = 0; n < 200; n++) {
		pair.instruction_samples = n;
		assert_string_equal(quotient_text(&p, &pair, buf), n >= 50 ? "0.50" : "-");
	}
	pair.events = 0;
	assert_string_equal(quotient_text(&p, &pair, buf), "-");
}

/* What is drawn and folded is the event; a frame tells the quotient of all above it. */
static void test_instructions_beside(void **state)
{
	_cleanup_(profile_free_p) struct profile *p = profile_with_instructions(EVENT_CYCLES);
	_cleanup_(strbuf_done) struct strbuf folded = {}, svg = {};

	assert_int_equal(export_folded(p, &folded), 0);
	assert_string_equal(folded.data, "x;fast 100000\n"
					 "x;fast;slow 200000\n"
					 "x;fast;slow;slow 100000\n"
					 "x;rare 1000\n");
	assert_int_equal(export_svg(p, "t", &svg), 0);
	assert_non_null(strstr(svg.data,
			       "<title>fast\n400,000, 99.8 %; self 100,000, 24.9 %; user, "
			       "x; 0.70 instructions per cycle</title>"));
	assert_null(strstr(svg.data, "alone"));
	assert_null(strstr(svg.data, "too narrow"));
}

static bool has_bytes(const struct strbuf *b, const char *bytes, size_t n)
{
	return memmem(b->data, b->len, bytes, n);
}

static void pprof(const struct profile *p, struct strbuf *ret)
{
	_cleanup_(strbuf_done) struct strbuf packed = {};
	z_stream z = { .avail_out = 1 << 16 };

	assert_int_equal(export_pprof(p, &packed), 0);
	strbuf_reset(ret);
	z.next_in = (Bytef *)packed.data;
	z.avail_in = (uInt)packed.len;
	z.next_out = (Bytef *)strbuf_reserve(ret, z.avail_out);
	assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
	assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
	ret->len = z.total_out;
	inflateEnd(&z);
}

/* Field 2 of a sample has the values: samples, cycles, instructions. */
static void test_pprof(void **state)
{
	_cleanup_(profile_free_p) struct profile *p = profile_with_instructions(EVENT_CYCLES);
	_cleanup_(strbuf_done) struct strbuf raw = {};

	pprof(p, &raw);
	assert_true(has_bytes(&raw, "instructions", 12));
	assert_true(has_bytes(&raw, "\x12\x05\x64\xa0\x8d\x06\x00", 7)); /* 100, 100000, 0 */
	assert_true(has_bytes(&raw, "\x12\x05\x00\x00\x90\xa1\x0f", 7)); /* 0, 0, 250000 */
	p->instructions = (struct instructions){};
	p->columns.n = 4;
	pprof(p, &raw);
	assert_false(has_bytes(&raw, "instructions", 12));
	assert_true(has_bytes(&raw, "\x12\x04\x64\xa0\x8d\x06", 6)); /* 100, 100000 */
}

/* ---- sysprofctl ------------------------------------------------------------------------------- */

/* In a child, whose standard output is a pipe. */
static void run(const char *path, struct strbuf *out)
{
	char block[4096];
	int fds[2], status;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		const struct options o = {
			.command = COMMAND_RECORD, .event = "cycles", .output = path, .table = true
		};
		_cleanup_(client_free_p) struct client *c = NULL;

		dup2(fds[1], STDOUT_FILENO);
		close(fds[0]);
		close(fds[1]);
		_exit(client_new(fake.path, &c) < 0 ? CTL_FAILED : command_record(&o, c));
	}
	close(fds[1]);
	while ((n = read(fds[0], block, sizeof(block))) > 0)
		strbuf_add(out, block, (size_t)n);
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), CTL_ANSWERED);
}

/* With instructions beside them, or without. */
static void answer_with_cycles(bool instructions)
{
	_cleanup_(profile_free_p) struct profile *p = profile_with_instructions(EVENT_CYCLES);
	_cleanup_(strbuf_done) struct strbuf frames = {};
	Sysprofd__V1__RecordResponse m = SYSPROFD__V1__RECORD_RESPONSE__INIT;
	unsigned char bytes[2048];

	if (!instructions) {
		p->columns.n = 4;
		p->instructions = (struct instructions){ .why_not = "no room" };
	}
	assert_int_equal(wire_profile_pack(p, &m.profile), 0);
	assert_true(sysprofd__v1__record_response__get_packed_size(&m) <= sizeof(bytes));
	fake_frame(&frames, 0, bytes, sysprofd__v1__record_response__pack(&m, bytes));
	wire_profile_free(m.profile);
	fake_frame(&frames, 2, "{}", 2);
	fake_answers(&fake, 200, "application/connect+proto", frames.data, frames.len);
}

static void test_record_as_table(void **state)
{
	_cleanup_(strbuf_done) struct strbuf out = {}, file = {}, said = {};
	char path[64];

	answer_with_cycles(true);
	run("-", &out);
	assert_non_null(strstr(
		out.data, "on-cpu: 401,000 cycles in 225 samples, 281,001 instructions in 1,201, "
			  "0.70 instructions per cycle\n"));
	assert_non_null(strstr(out.data, "   SELF   SHARE    TOTAL   IPC  BINARY  FUNCTION\n"
					 "300,000  74.8 %  300,000  0.10  x       slow\n"
					 "100,000  24.9 %  400,000  2.50  x       fast\n"
					 "  1,000  0.25 %    1,000     -  x       rare\n"));

	answer_with_cycles(false);
	snprintf(path, sizeof(path), "%s/r.txt", fake.directory);
	run(path, &said);
	assert_non_null(strstr(said.data, "r.txt: text, on-cpu: 401,000 cycles"));
	assert_int_equal(read_file_at(AT_FDCWD, path, 1 << 20, &file), 0);
	assert_non_null(strstr(file.data, "\nno instructions per cycle: no room\n"));
	assert_null(strstr(file.data, "IPC"));
	unlink(path);
}

static int set_up(void **state)
{
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
		cmocka_unit_test(test_functions),
		cmocka_unit_test(test_quotient_is_known),
		cmocka_unit_test(test_instructions_beside),
		cmocka_unit_test(test_pprof),
		cmocka_unit_test(test_record_as_table),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
