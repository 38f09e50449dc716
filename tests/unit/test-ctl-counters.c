// SPDX-License-Identifier: GPL-2.0-or-later
/* Counters of the hardware as sysprofctl shows them: rates where there are both halves, reasons where there are not. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <sys/wait.h>

#include "ctl/command.h"
#include "export/wire.h"
#include "fake-daemon.h"

static struct fake_daemon fake;

/* In a child, whose standard output is a pipe. */
static void run(bool json, struct strbuf *out)
{
	struct options o = { .command = COMMAND_COUNTERS,
			     .since = "-5min",
			     .until = "now",
			     .rows = 20,
			     .json = json };
	char block[4096];
	int fds[2], status;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		_cleanup_(client_free_p) struct client *c = NULL;

		dup2(fds[1], STDOUT_FILENO);
		close(fds[0]);
		close(fds[1]);
		_exit(client_new(fake.path, &c) < 0 ? CTL_FAILED : command_counters(&o, c));
	}
	close(fds[1]);
	while ((n = read(fds[0], block, sizeof(block))) > 0)
		strbuf_add(out, block, (size_t)n);
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), CTL_ANSWERED);
}

static void answer(const Sysprofd__V1__CountersResponse *m)
{
	uint8_t packed[2048];
	size_t n = sysprofd__v1__counters_response__pack(m, packed);

	assert_true(n < sizeof(packed));
	fake_answers(&fake, 200, "application/proto", packed, n);
}

static void fill(Sysprofd__V1__CountersResponse *m, Sysprofd__V1__Coverage *coverage,
		 Sysprofd__V1__CountersRow **row)
{
	coverage->covered_ns = 10 * NSEC_PER_SEC;
	coverage->type = SYSPROFD__V1__PROFILE_TYPE__PROFILE_TYPE_ON_CPU;
	m->coverage = coverage;
	m->rows = row;
	m->n_rows = 1;
	row[0]->name = (char *)"work";
	row[0]->pid = 7;
	row[0]->cpu_ns = NSEC_PER_SEC;
}

static void test_some(void **state)
{
	static const struct {
		const char *name;
		uint64_t value;
	} values[] = { { "cycles", 2500000000 },
		       { "instructions", 1000000000 },
		       { "cache-misses", 4000000 } };
	Sysprofd__V1__CountersResponse m = SYSPROFD__V1__COUNTERS_RESPONSE__INIT;
	Sysprofd__V1__Coverage coverage = SYSPROFD__V1__COVERAGE__INIT;
	Sysprofd__V1__CountersRow row = SYSPROFD__V1__COUNTERS_ROW__INIT, *rows[] = { &row };
	Sysprofd__V1__Counter counters[3], *pointers[3];
	Sysprofd__V1__HardwareCounter hardware[2], *kinds[] = { &hardware[0], &hardware[1] };
	_cleanup_(strbuf_done) struct strbuf text = {}, json = {};

	fill(&m, &coverage, rows);
	for (int i = 0; i < 3; i++) {
		sysprofd__v1__counter__init(&counters[i]);
		counters[i].name = (char *)values[i].name;
		counters[i].value = values[i].value;
		counters[i].counted_ns = NSEC_PER_SEC / 2;
		pointers[i] = &counters[i];
	}
	row.counters = pointers;
	row.n_counters = 3;
	row.hardware_ns = NSEC_PER_SEC;
	row.hardware_spans = 1234;
	for (int i = 0; i < 2; i++)
		sysprofd__v1__hardware_counter__init(&hardware[i]);
	hardware[0].name = (char *)"cycles";
	hardware[1].name = (char *)"branch-misses";
	hardware[1].absent = (char *)"not permitted";
	m.hardware = kinds;
	m.n_hardware = 2;
	answer(&m);
	run(false, &text);
	assert_non_null(strstr(text.data, "GHz   IPC  CACHE-MISSES/k"));
	assert_non_null(strstr(text.data, "2.50  0.40            4.00"));
	assert_null(strstr(text.data, "BRANCH-MISSES"));
	assert_non_null(strstr(text.data, "estimates from 1,234 spans, for 1.00 s of CPU time"));
	assert_non_null(strstr(text.data, "absent counters: not permitted: branch-misses"));
	run(true, &json);
	assert_non_null(strstr(
		json.data,
		"\"hardware\":{\"cycles\":\"counted\",\"branch-misses\":\"not permitted\"}"));
	assert_non_null(strstr(json.data, "\"ipc\":0.4,"));
	assert_non_null(strstr(json.data, "\"cycles\":2500000000,"));
	assert_null(strstr(json.data, "branch_misses_per_1000"));
}

static void test_none(void **state)
{
	Sysprofd__V1__CountersResponse m = SYSPROFD__V1__COUNTERS_RESPONSE__INIT;
	Sysprofd__V1__Coverage coverage = SYSPROFD__V1__COVERAGE__INIT;
	Sysprofd__V1__CountersRow row = SYSPROFD__V1__COUNTERS_ROW__INIT, *rows[] = { &row };
	_cleanup_(strbuf_done) struct strbuf text = {}, json = {};

	fill(&m, &coverage, rows);
	m.no_hardware = (char *)"the reason";
	answer(&m);
	run(false, &text);
	assert_non_null(strstr(text.data, "no hardware counters: the reason\n"));
	assert_null(strstr(text.data, "GHz"));
	run(true, &json);
	assert_non_null(strstr(json.data, "\"hardware\":{\"none\":\"the reason\"}"));
}

static int setup(void **state)
{
	fake_start(&fake);
	return 0;
}

static int teardown(void **state)
{
	fake_stop(&fake);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_some),
		cmocka_unit_test(test_none),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
