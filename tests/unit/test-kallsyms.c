// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/io.h"
#include "symbol/kallsyms.h"

static int text_fd(const char *text, size_t len)
{
	int fd = memfd_create("kallsyms", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write_full(fd, text, len), 0);
	return fd;
}

static struct kallsyms *parse(const char *text)
{
	_cleanup_close_ int fd = text_fd(text, strlen(text));
	struct kallsyms *k = NULL;

	assert_int_equal(kallsyms_new(fd, &k), 0);
	return k;
}

static const char sample[] = "ffffffff81000000 T _stext\n"
			     "ffffffff81000000 T _text\n"
			     "ffffffff81000010 t __pfx_first\n"
			     "ffffffff81000020 T first\n"
			     "ffffffff81000020 W weak_first\n"
			     "ffffffff81000040 t work.isra.0\n"
			     "ffffffff81000080 t work.isra.0.cold\n"
			     "ffffffff81000090 T __cpuidle_text_start\n"
			     "ffffffff81000090 t default_idle\n"
			     "ffffffff810000a0 T __cpuidle_text_end\n"
			     "ffffffff810000b0 D some_data\n"
			     "ffffffff810000b0 t last\n"
			     "ffffffff81000100 T _etext\n"
			     "ffffffff81000200 B bss\n"
			     "ffffffffc0000400 t mod_late\t[ext4]\n"
			     "ffffffffc0000100 t mod_early\t[ext4]\n"
			     "ffffffffc0100000 t other\t[kvm]\n"
			     "ffffffffc0200000 t ftrace_trampoline\t[__builtin__ftrace]\n"
			     "ffffffffc0300000 t bpf_prog_0123456789abcdef_one\t[bpf]\n"
			     "ffffffffc0300100 t bpf_prog_fedcba9876543210_two\t[bpf]";

static void assert_found(const struct kallsyms *k, uint64_t address, const char *name,
			 const char *module, uint64_t offset)
{
	struct kernel_symbol s;

	assert_true(kallsyms_find(k, address, &s));
	assert_string_equal(s.name, name);
	assert_string_equal(s.module, module);
	assert_int_equal(s.offset & UINT32_MAX, offset);
}

static void assert_none(const struct kallsyms *k, uint64_t address)
{
	struct kernel_symbol s;

	assert_false(kallsyms_find(k, address, &s));
}

static void finds(void **state)
{
	_cleanup_(kallsyms_free_p) struct kallsyms *k = parse(sample);

	assert_none(k, 0xffffffff80ffffffULL);
	assert_none(k, 0xffffffff81000005ULL); /* nothing but boundaries lie here */
	assert_found(k, 0xffffffff81000020ULL, "first", "", 0x20);
	assert_found(k, 0xffffffff8100003fULL, "first", "", 0x3f);
	assert_found(k, 0xffffffff81000085ULL, "work.isra.0.cold", "", 0x85);
	assert_found(k, 0xffffffff81000095ULL, "default_idle", "", 0x95);
	assert_found(k, 0xffffffff810000b8ULL, "last", "", 0xb8);
	assert_none(k, 0xffffffff81000150ULL); /* behind _etext */
	assert_found(k, 0xffffffffc0000110ULL, "mod_early", "ext4", 0x10);
	assert_found(k, 0xffffffffc0000410ULL, "mod_late", "ext4", 0x310);
	assert_found(k, 0xffffffffc0100000ULL, "other", "kvm", 0);
	assert_none(k, 0xffffffffc0100000ULL + (256U << 10)); /* too far from any symbol */
	assert_found(k, 0xffffffffc0200010ULL, "ftrace_trampoline", "__builtin__ftrace", 0x10);
	assert_found(k, 0xffffffffc0300020ULL, "bpf_prog_0123456789abcdef_one", "bpf", 0x20);
}

static void addresses_of_names(void **state)
{
	_cleanup_(kallsyms_free_p) struct kallsyms *k = parse(sample);
	uint64_t start = 0, end = 0;

	assert_int_equal(kallsyms_address(k, "first"), 0xffffffff81000020ULL);
	assert_int_equal(kallsyms_address(k, "work"), 0xffffffff81000040ULL);
	assert_int_equal(kallsyms_address(k, "work.isra.0"), 0xffffffff81000040ULL);
	assert_int_equal(kallsyms_address(k, "wor"), 0);
	assert_int_equal(kallsyms_address(k, "some_data"), 0);
	assert_int_equal(kallsyms_address(k, "bpf_prog_fedcba9876543210_two"),
			 0xffffffffc0300100ULL);
	assert_int_equal(kallsyms_address(k, "__cpuidle_text_start"), 0xffffffff81000090ULL);
	assert_int_equal(kallsyms_address(k, "__cpuidle_text_end"), 0xffffffff810000a0ULL);
	assert_true(kallsyms_range(k, "work", &start, &end));
	assert_int_equal(start, 0xffffffff81000040ULL);
	assert_int_equal(end, 0xffffffff81000080ULL);
	assert_false(kallsyms_range(k, "nothing", &start, &end));
}

static void programs_come_and_go(void **state)
{
	_cleanup_(kallsyms_free_p) struct kallsyms *k = parse(sample);
	struct kernel_symbol one, two;

	kallsyms_remove(k, 0xffffffffc0300000ULL);
	assert_none(k, 0xffffffffc0300020ULL);
	assert_found(k, 0xffffffffc0300120ULL, "bpf_prog_fedcba9876543210_two", "bpf", 0x20);

	assert_int_equal(kallsyms_add(k, 0xffffffffc0300000ULL, 0x80, "bpf_prog_three", "bpf"), 0);
	assert_found(k, 0xffffffffc030007fULL, "bpf_prog_three", "bpf", 0x7f);
	assert_none(k, 0xffffffffc0300080ULL);

	/* Memory that is used again without a word about its former owner. */
	assert_int_equal(kallsyms_add(k, 0xffffffffc0300040ULL, 0x200, "bpf_prog_four", "bpf"), 0);
	assert_none(k, 0xffffffffc0300020ULL);
	assert_found(k, 0xffffffffc0300120ULL, "bpf_prog_four", "bpf", 0xe0);
	assert_int_equal(kallsyms_add(k, 0xffffffffc0300040ULL, 0x10, "bpf_prog_five", "bpf"), 0);
	assert_found(k, 0xffffffffc0300041ULL, "bpf_prog_five", "bpf", 1);
	assert_none(k, 0xffffffffc0300060ULL);

	/* Equal offsets in two programs are two places. */
	assert_int_equal(kallsyms_add(k, 0xffffffffc0400000ULL, 0x10, "bpf_prog_six", "bpf"), 0);
	assert_true(kallsyms_find(k, 0xffffffffc0300041ULL, &one));
	assert_true(kallsyms_find(k, 0xffffffffc0400001ULL, &two));
	assert_int_not_equal(one.offset, two.offset);
	kallsyms_remove(k, 0x1234);
}

static void hidden_addresses(void **state)
{
	static const char text[] = "0000000000000000 T _stext\n0000000000000000 t first\n";
	_cleanup_close_ int fd = text_fd(text, strlen(text));
	struct kallsyms *k = NULL;

	assert_int_equal(kallsyms_new(fd, &k), -EPERM);
	assert_null(k);
}

static void survives_nonsense(void **state)
{
	static const char *const texts[] = {
		"x\nffffffff81000000\nffffffff81000000 T\nffffffff81000000 T \nffffffff81000000  T "
		"x\n"
		"ffffffff81000000 t a\t\nffffffff81000000 t a\t[\nffffffff81000000 t a\t[]\n"
		"fffffffffffffffffffff t b\nffffffff81000020 t good\n",
	};
	_cleanup_(kallsyms_free_p) struct kallsyms *k = NULL;
	char big[4096];
	int fd;

	k = parse(texts[0]);
	assert_found(k, 0xffffffff81000021ULL, "good", "", 1);

	memset(big, 'x', sizeof(big));
	memcpy(big, "ffffffff81000000 t ", 19);
	fd = text_fd(big, sizeof(big));
	k = kallsyms_free(k);
	(void)kallsyms_new(fd, &k);
	close_fd(fd);
}

static void own_kernel(void **state)
{
	_cleanup_close_ int fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);
	_cleanup_(kallsyms_free_p) struct kallsyms *k = NULL;
	struct kernel_symbol s;
	uint64_t start, end;
	int r;

	if (fd < 0)
		skip();
	r = kallsyms_new(fd, &k);
	if (r == -EPERM) {
		print_message("kernel addresses are hidden here\n");
		skip();
	}
	assert_int_equal(r, 0);
	assert_true(kallsyms_range(k, "__schedule", &start, &end));
	assert_true(end > start);
	assert_true(kallsyms_find(k, end - 1, &s));
	assert_string_equal(s.name, "__schedule");
	assert_int_equal(s.start, start);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds),
		cmocka_unit_test(addresses_of_names),
		cmocka_unit_test(programs_come_and_go),
		cmocka_unit_test(hidden_addresses),
		cmocka_unit_test(survives_nonsense),
		cmocka_unit_test(own_kernel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
