// SPDX-License-Identifier: GPL-2.0-or-later
/* Unwind tables from the sandboxed parser: this program is that when it is executed with --symbol-helper. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/io.h"
#include "helper/process.h"
#include "parser/parser.h"
#include "symbol/elf.h"
#include "sysprofd/v1/helper.pb-c.h"
#include "unwind/compile.h"

#define PATIENCE (30 * NSEC_PER_SEC)

static struct helper_process helper;

/* Sends a file; the answer is freed by the next one. */
static const Sysprofd__V1__ParseResponse *ask(int fd, int *ret_fd)
{
	static ProtobufCMessage *last;
	Sysprofd__V1__ParseRequest q = SYSPROFD__V1__PARSE_REQUEST__INIT;
	uint64_t deadline = mono_now_ns() + PATIENCE;

	q.id = 7;
	q.kind = SYSPROFD__V1__PARSE_KIND__PARSE_KIND_UNWIND;
	assert_int_equal(helper_process_ensure(&helper, deadline), 0);
	if (last)
		channel_message_free(&helper.channel, last);
	assert_int_equal(channel_send(&helper.channel, &q.base, fd, deadline), 0);
	assert_int_equal(channel_receive(&helper.channel, &sysprofd__v1__parse_response__descriptor,
					 deadline, &last, ret_fd),
			 0);
	return (const Sysprofd__V1__ParseResponse *)last;
}

static void table_of_this_program(void **state)
{
	_cleanup_close_ int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), answer = -1;
	_cleanup_free_ struct table *here = NULL, *t = NULL;
	const Sysprofd__V1__ParseResponse *a = ask(fd, &answer);
	char build_id[2 * ELF_BUILD_ID_MAX + 1];
	struct stat st;

	assert_int_equal(a->status, SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_OK);
	assert_int_equal(a->id, 7);
	assert_int_equal(elf_build_id(fd, build_id), 0);
	assert_string_equal(a->build_id, build_id);
	assert_int_equal(fstat(answer, &st), 0);
	assert_int_equal(st.st_size, a->table_bytes);
	t = malloc(a->table_bytes);
	assert_int_equal(pread_full(answer, t, a->table_bytes, 0), 0);
	assert_int_equal(table_check(t, a->table_bytes), 0);
	assert_true(t->functions > 0);
	assert_int_equal(table_compile(fd, &here), 0);
	assert_memory_equal(t, here, here->bytes);
}

static void expect(int fd, Sysprofd__V1__ParseStatus status)
{
	int answer = -1;

	assert_int_equal(ask(fd, &answer)->status, status);
	assert_int_equal(answer, -1);
}

static void no_table(void **state)
{
	_cleanup_close_ int fd = memfd_create("file", MFD_CLOEXEC);
	_cleanup_close_ int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	char head[4096];

	expect(fd, SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_NOT_ELF);
	assert_int_equal(pwrite(fd, "#!/bin/sh\n", 10, 0), 10);
	expect(fd, SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_NOT_ELF);
	/* Only the headers of a program are there. */
	assert_int_equal(pread_full(self, head, sizeof(head), 0), 0);
	assert_int_equal(pwrite(fd, head, sizeof(head), 0), sizeof(head));
	expect(fd, SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_NO_TABLE);
	expect(-1, SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_BAD_REQUEST);
}

static int clean_up(void **state)
{
	helper_process_done(&helper);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(table_of_this_program),
		cmocka_unit_test(no_table),
	};

	if (argc == 3 && streq(argv[1], "--symbol-helper"))
		return parser_main(argv[2]);
	helper_process_init(&helper, "sysprofd-symbol", "--symbol-helper", 256ULL << 20);
	return cmocka_run_group_tests(tests, NULL, clean_up);
}
