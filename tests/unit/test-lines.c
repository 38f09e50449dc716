// SPDX-License-Identifier: GPL-2.0-or-later
/* Inlined functions and source lines. The truth is addr2line, another reader of DWARF. */
#include "elf-files.h"

#include "base/clock.h"
#include "helper/limits.h"
#include "parser/internal.h"
#include "parser/parser.h"
#include "symbol/symbolizer.h"

static const char source[] =
	"static inline __attribute__((always_inline)) int inner(volatile int *p)\n"
	"{\n"
	"	return *p * 3;\n"
	"}\n"
	"static inline __attribute__((always_inline)) int middle(volatile int *p)\n"
	"{\n"
	"	return inner(p) + 1;\n"
	"}\n"
	"int outer(volatile int *p)\n"
	"{\n"
	"	*p += 5;\n"
	"	return middle(p) + 7;\n"
	"}\n";

#define SIZE 12 /* of outer(), at least */

/* ---- asking ---------------------------------------------------------------------------------------- */

struct asked {
	struct lines *lines;
	struct elf_table *table;
	struct input program, debug;
	char wanted[1024];
};

static void asked_init(struct asked *k, const char *file, const char *debug)
{
	*k = (struct asked){ .program = { .fd = open_file(file, O_RDONLY), .id = { .ino = 1 } },
			     .debug = { .fd = debug ? open_file(debug, O_RDONLY) : -1,
					.id = { .ino = 2 } } };
	assert_int_equal(lines_new(&k->lines), 0);
	assert_int_equal(elf_table_new(k->program.fd, -1, ELF_WANT_CODE, &k->table), 0);
}

static void asked_done(struct asked *k)
{
	elf_table_free(k->table);
	lines_free(k->lines);
	close_fd(k->program.fd);
	close_fd(k->debug.fd);
}

/* The files that an answer wants, from the test's directory. */
static size_t open_parts(struct asked *k, const struct answer *a, struct part *parts)
{
	size_t n = 0;

	for (size_t i = 0; i < a->response.n_wanted_files; i++) {
		const Sysprofd__V1__WantedFile *w = a->response.wanted_files[i];
		const char *slash = strrchr(w->path, '/'), *name = slash ? slash + 1 : w->path;
		char path[512];

		snprintf(path, sizeof(path), "%s/%s", dir, *name ? name : "lib.dwp");
		snprintf(k->wanted + strlen(k->wanted), sizeof(k->wanted) - strlen(k->wanted),
			 "%s ", *name ? name : "lib.dwp");
		parts[n] = (struct part){ open(path, O_RDONLY | O_CLOEXEC), w->id };
		n += parts[n].fd >= 0;
	}
	return n;
}

/* Once more with each file that is wanted. */
static void answer_with_parts(struct asked *k, const Sysprofd__V1__ParseRequest *q,
			      struct answer *a)
{
	struct part parts[HELPER_PARTS_MAX];
	size_t n = 0;

	for (;;) {
		*a = (struct answer){ .fd = -1 };
		sysprofd__v1__parse_response__init(&a->response);
		assert_int_equal(lines_answer(k->lines, k->table, q, &k->program, &k->debug, parts,
					      n, a),
				 0);
		while (n)
			close_fd(parts[--n].fd);
		n = open_parts(k, a, parts);
		if (!n)
			return;
		answer_lines_done(a);
	}
}

/* "FUNCTION\nFILE:LINE\n" for each line of the place; what has no name is the function's. True: a debug file is wanted. */
static bool ask(struct asked *k, uint64_t offset, const char *function, struct strbuf *out)
{
	Sysprofd__V1__ParseRequest q = SYSPROFD__V1__PARSE_REQUEST__INIT;
	const Sysprofd__V1__Place *p;
	struct answer a;
	bool wants;

	q.offsets = &offset;
	q.n_offsets = 1;
	answer_with_parts(k, &q, &a);
	assert_int_equal(a.response.n_places, 1);
	p = a.response.places[0];
	for (size_t i = 0; i < p->n_lines; i++) {
		const Sysprofd__V1__Line *l = p->lines[i];
		const char *slash = strrchr(l->file, '/');

		strbuf_printf(out, "%s\n%s:%u\n", *l->name ? l->name : function,
			      slash ? slash + 1 : l->file, l->line);
	}
	wants = a.response.wants_debug_file;
	answer_lines_done(&a);
	return wants;
}

/* Every byte of outer() as addr2line sees it, who is asked about `truth`. */
static void expect_lines(const char *file, const char *debug, const char *truth, const char *symbol,
			 const char *function)
{
	_cleanup_(strbuf_done) struct strbuf ours = {}, theirs = {};
	uint64_t start = nm_address(truth, symbol);
	char command[2048];
	struct asked k;
	int n;
	FILE *f;

	n = snprintf(command, sizeof(command), "addr2line -a -f -i -C -e %s/%s", dir, truth);
	asked_init(&k, file, debug);
	for (uint64_t at = start; at < start + SIZE; at++) {
		n += snprintf(command + n, sizeof(command) - (size_t)n, " %lx", at);
		strbuf_printf(&ours, "0x%016lx\n", at);
		assert_false(ask(&k, to_offset(k.program.fd, at), function, &ours));
	}
	asked_done(&k);
	snprintf(command + n, sizeof(command) - (size_t)n, " | sed 's/ (disc.*//; s,^/.*/,,'");
	f = popen(command, "re");
	assert_non_null(f);
	assert_true(read_fd(fileno(f), 1 << 20, &theirs) >= 0);
	pclose(f);
	assert_non_null(strstr(theirs.data, "inner"));
	assert_string_equal(ours.data, theirs.data);
}

/* ---- tests ----------------------------------------------------------------------------------------- */

static void as_addr2line(void **state)
{
	static const char *const builds[] = {
		"gcc -g",   "gcc -g -gdwarf-4",	  "gcc -g -gz=zlib",
		"clang -g", "clang -g -gdwarf-4", "clang -g1",
	};

	write_file("lib.c", source);
	for (size_t i = 0; i < ARRAY_SIZE(builds); i++) {
		if (!run("%s -O1 -shared -fPIC lib.c -o lib", builds[i])) {
			print_message("left out: %s\n", builds[i]);
			continue;
		}
		expect_lines("lib", NULL, "lib", "outer", "outer");
	}
}

/* The units are in files of their own, then in a package. The truth is a program that has all. */
static void split(void **state)
{
	/* dwp knows version 4 alone; llvm-dwp nothing compressed, and some of gcc it never ends with. */
	static const struct {
		const char *build, *option, *package;
	} cases[] = {
		{ "gcc -O1 -gdwarf-5", "-gsplit-dwarf", NULL },
		{ "gcc -O2 -gdwarf-4 -ffunction-sections", "-gsplit-dwarf", "dwp" },
		{ "clang -O1 -gdwarf-5 -ffunction-sections", "-gsplit-dwarf", "llvm-dwp" },
		{ "clang -O1 -gdwarf-4 -ffunction-sections", "-gsplit-dwarf", "dwp" },
		{ "clang -O2 -gdwarf-5", "-gsplit-dwarf -gz=zlib", NULL },
	};

	write_file("lib.c", source);
	must(run("echo 'int more(volatile int *p) { return middle(p); }' >>lib.c"));
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		if (!run("rm -rf *.dwo *.dwp aside && mkdir aside && "
			 "%s -g %s -shared -fPIC lib.c -o lib && %s -g -shared -fPIC lib.c -o "
			 "whole",
			 cases[i].build, cases[i].option, cases[i].build)) {
			print_message("left out: %s\n", cases[i].build);
			continue;
		}
		expect_lines("lib", NULL, "whole", "outer", "outer");
		if (!cases[i].package ||
		    !run("timeout 5 %s -e lib -o lib.dwp </dev/null && mv *.dwo aside",
			 cases[i].package)) {
			print_message("left out: a package of %s\n", cases[i].build);
			continue;
		}
		expect_lines("lib", NULL, "whole", "outer", "outer");
	}
}

/* dwz moved what two programs share into a common file. */
static void deduplicated(void **state)
{
	_cleanup_(strbuf_done) struct strbuf out = {};
	struct asked k;
	uint64_t start;

	write_file("lib.c", source);
	if (!run("gcc -g -O1 -shared -fPIC lib.c -o lib && cp lib whole && cp lib lib2 && "
		 "dwz -m common lib lib2")) {
		print_message("left out: dwz\n");
		return;
	}
	expect_lines("lib", NULL, "whole", "outer", "outer");
	must(run("strip -o bare lib && objcopy --only-keep-debug lib lib.debug"));
	expect_lines("bare", "lib.debug", "whole", "outer", "outer");
	/* What has another build-id is not it. */
	start = nm_address("lib", "outer");
	must(run("cp whole common"));
	asked_init(&k, "lib", NULL);
	for (uint64_t at = start; at < start + SIZE; at++)
		ask(&k, to_offset(k.program.fd, at), "outer", &out);
	assert_string_equal(k.wanted, "common ");
	asked_done(&k);
	assert_null(strstr(out.data, "inner"));
}

/* Which of them libelf unpacks, and which we, depends on its version. */
static void compressed(void **state)
{
	static const char *const kinds[] = { "zlib", "zstd" };

	write_file("lib.c", source);
	must(run("gcc -g -O1 -shared -fPIC lib.c -o plain"));
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (!run("objcopy --compress-debug-sections=%s plain lib", kinds[i])) {
			print_message("left out: objcopy with %s\n", kinds[i]);
			continue;
		}
		expect_lines("lib", NULL, "plain", "outer", "outer");
	}
}

/* addr2line has no name for the innermost of what g++ made: so it is said here. */
static void names_of_cxx(void **state)
{
	_cleanup_(strbuf_done) struct strbuf out = {};
	uint64_t start;
	struct asked k;

	write_file(
		"lib.cc",
		"namespace ns {\n"
		"template <class T> inline __attribute__((always_inline)) T inner(volatile T *p)\n"
		"{ return *p * 3; }\n"
		"}\n"
		"int outer(volatile int *p) { *p += 5; return ns::inner<int>(p) + 7; }\n");
	must(run("g++ -g -O1 -shared -fPIC lib.cc -o lib"));
	start = nm_address("lib", "_Z5outerPVi");
	asked_init(&k, "lib", NULL);
	for (uint64_t at = start; at < start + SIZE; at++)
		ask(&k, to_offset(k.program.fd, at), "F", &out);
	asked_done(&k);
	assert_non_null(
		strstr(out.data, "int ns::inner<int>(int volatile*)\nlib.cc:3\nF\nlib.cc:5\n"));
}

static void in_the_debug_file(void **state)
{
	_cleanup_(strbuf_done) struct strbuf none = {};
	uint64_t offset;
	struct asked k;

	write_file("lib.c", source);
	must(run("gcc -g -O1 -shared -fPIC lib.c -o lib && strip -o bare lib && "
		 "objcopy --only-keep-debug lib lib.debug && gcc -g -O0 -shared -fPIC lib.c -o "
		 "other"));
	expect_lines("bare", "lib.debug", "lib", "outer", "outer");
	asked_init(&k, "lib", NULL);
	offset = to_offset(k.program.fd, nm_address("lib", "outer"));
	asked_done(&k);
	asked_init(&k, "bare", NULL);
	assert_true(ask(&k, offset, "", &none));
	asked_done(&k);
	asked_init(&k, "bare", "other");
	assert_true(ask(&k, offset, "", &none));
	asked_done(&k);
	assert_int_equal(none.len, 0);
}

/* Parts that are elsewhere, or damaged: less is known, and nothing is wrong. */
static void incomplete(void **state)
{
	static const char *const builds[] = {
		"gcc -g -gsplit-dwarf -O1 -shared -fPIC lib.c -o lib && rm *.dwo",
		"clang -g -gdwarf-5 -gsplit-dwarf -O1 -shared -fPIC lib.c -o lib && rm *.dwo",
		"gcc -g -O1 -shared -fPIC lib.c -o lib && cp lib lib2 && dwz -m common lib lib2",
		"gcc -g -O1 -shared -fPIC lib.c -o lib && head -c 100 /dev/urandom > noise && "
		"objcopy --update-section .debug_info=noise lib",
		"gcc -g -O1 -shared -fPIC lib.c -o lib && head -c 100 /dev/urandom > noise && "
		"objcopy --update-section .debug_abbrev=noise lib",
	};

	write_file("lib.c", source);
	for (size_t i = 0; i < ARRAY_SIZE(builds); i++) {
		_cleanup_(strbuf_done) struct strbuf out = {};
		uint64_t start;
		struct asked k;

		if (!run("%s", builds[i])) {
			print_message("left out: %s\n", builds[i]);
			continue;
		}
		start = nm_address("lib", "outer");
		asked_init(&k, "lib", NULL);
		for (uint64_t at = start; at < start + SIZE; at++)
			ask(&k, to_offset(k.program.fd, at), "outer", &out);
		asked_done(&k);
	}
}

/* What is wrong with one unit, the first, costs the other nothing. */
static void one_damaged_unit(void **state)
{
	_cleanup_close_ int fd = -1;
	uint8_t noise[16];

	write_file("lib.c", source);
	write_file("more.c", "int more(int x) { return x * 7 + 1; }\n");
	must(run("gcc -g -O1 -shared -fPIC more.c lib.c -o lib && cp lib whole && "
		 "objcopy -O binary --only-section=.debug_info --set-section-flags "
		 ".debug_info=alloc lib info"));
	fd = open_file("info", O_RDWR);
	memset(noise, 0xff, sizeof(noise));
	/* Behind its header. */
	assert_int_equal(pwrite(fd, noise, sizeof(noise), 12), sizeof(noise));
	must(run("objcopy --update-section .debug_info=info lib"));
	expect_lines("lib", NULL, "whole", "outer", "outer");
}

/* ---- in the stacks of a bucket --------------------------------------------------------------------- */

static int open_lib(void *ctx, uint64_t key)
{
	return open_file("lib", O_RDONLY);
}

/* Below the test's directory lies what a process has at its root. */
static int open_other(void *ctx, uint64_t key, const char *paths, size_t n, size_t *ret_which)
{
	for (size_t i = 0; i < n; i++, paths += strlen(paths) + 1) {
		char path[512];
		int fd;

		snprintf(path, sizeof(path), "%s/root%s", dir, paths);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		*ret_which = i;
		if (fd >= 0)
			return fd;
	}
	return -ENOENT;
}

/* A bucket with a stack main -> each byte of outer(). */
static struct bucket *sampled(void)
{
	_cleanup_close_ int fd = open_file("lib", O_RDONLY);
	uint64_t start = nm_address("lib", "outer");
	struct bucket *b = NULL;
	struct binary lib = { .kind = BINARY_ELF, .ino = 1 };
	struct frame f = { .kind = FRAME_NATIVE };
	int64_t root;

	assert_int_equal(bucket_new(&b), 0);
	lib.name = (uint32_t)dict_string(b->dict, "lib");
	lib.path = (uint32_t)dict_string(b->dict, "/opt/lib");
	f.binary = (uint32_t)dict_binary(b->dict, &lib);
	root = dict_stack(b->dict, 0, (uint32_t)dict_marker(b->dict, "[root]"));
	for (uint64_t at = start; at < start + SIZE; at++) {
		int64_t id;

		f.offset = to_offset(fd, at);
		id = dict_stack(b->dict, (uint32_t)root, (uint32_t)dict_frame(b->dict, &f));
		assert_int_equal(columns_add(&b->columns[PROFILE_ON_CPU], 1, (uint32_t)id, 0, 0, 1,
					     10, 0),
				 0);
	}
	return b;
}

static size_t rows_that_read(const struct bucket *b, const char *text)
{
	const struct columns *c = &b->columns[PROFILE_ON_CPU];
	size_t n = 0;

	for (size_t i = 0; i < c->n; i++) {
		_cleanup_(strbuf_done) struct strbuf out = {};

		stack_text(b->dict, c->stack[i], &out);
		n += streq(out.data, text);
	}
	return n;
}

static struct bucket *named(const char *debug_build)
{
	struct symbolizer_options o = { .open_binary = open_lib, .open_debug_file = open_other };
	_cleanup_(symbolizer_free_p) struct symbolizer *s = NULL;
	_cleanup_(inlines_done) struct inlines lines;
	uint64_t keys[] = { 0, 1 }, deadline = mono_now_ns() + 30 * NSEC_PER_SEC;
	struct symbolizer_stats stats;
	struct bucket *b;

	write_file("lib.c", source);
	must(run("%s", debug_build));
	b = sampled();
	assert_int_equal(symbolizer_new(&o, &s), 0);
	assert_int_equal(symbolizer_name(s, b->dict, keys, 2, deadline), 0);
	inlines_init(&lines, b->dict);
	symbolizer_lines(s, &lines, keys, 2, deadline);
	assert_int_equal(inlines_expand(&lines, b), 0);
	symbolizer_stats(s, &stats);
	assert_int_equal(stats.crashes + stats.timeouts + stats.poisoned, 0);
	return b;
}

static void expands_stacks(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = named("gcc -g -O1 -shared -fPIC lib.c -o lib");
	size_t inlined = rows_that_read(b, "[root];outer;middle;inner");
	int seen = 0;

	assert_true(inlined > 0);
	assert_int_equal(inlined + rows_that_read(b, "[root];outer"), SIZE);
	for (size_t i = 1; i < b->dict->n_frames; i++) {
		const struct frame *f = &b->dict->frames[i];

		if (f->kind != FRAME_NATIVE)
			continue;
		assert_non_null(strstr(dict_str(b->dict, f->file), "/lib.c"));
		if (!(f->flags & FRAME_INLINE))
			assert_true(f->line >= 11 && f->line <= 13);
		else if (streq(dict_str(b->dict, f->name), "inner"))
			assert_int_equal(f->line, 3);
		else
			assert_int_equal(f->line, 7);
		seen++;
	}
	assert_int_equal(seen, SIZE + 2 * inlined);
}

/* The parser unpacks it in its sandbox. */
static void unpacks_in_the_sandbox(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = NULL;

	if (!run("echo 'int x;' > x.c && gcc -g -c x.c -o x.o && "
		 "objcopy --compress-debug-sections=zstd x.o")) {
		print_message("left out: objcopy with zstd\n");
		return;
	}
	b = named("gcc -g -O1 -shared -fPIC lib.c -o lib && "
		  "objcopy --compress-debug-sections=zstd lib");
	assert_true(rows_that_read(b, "[root];outer;middle;inner") > 0);
}

/* What is moved into root/opt is found there, and read in the sandbox. */
static void parts_are_found(void **state)
{
	static const char *const builds[] = {
		"clang -g -gdwarf-5 -gsplit-dwarf -O1 -shared -fPIC lib.c -o lib && mv *.dwo "
		"root/opt",
		"clang -g -gdwarf-4 -gsplit-dwarf -O1 -shared -fPIC lib.c -o lib && "
		"timeout 5 dwp -e lib -o root/opt/lib.dwp </dev/null && rm *.dwo",
		"gcc -g -O1 -shared -fPIC lib.c -o lib && cp lib lib2 && "
		"dwz -m root/opt/common -M common lib lib2",
		"gcc -g -O1 -shared -fPIC lib.c -o lib && cp lib lib2 && "
		"dwz -m root/usr/lib/debug/.dwz/common -M ../.dwz/common lib lib2",
	};

	for (size_t i = 0; i < ARRAY_SIZE(builds); i++) {
		_cleanup_(bucket_free_p) struct bucket *b = NULL;

		must(run("rm -rf root *.dwo && mkdir -p root/opt root/usr/lib/debug/.dwz"));
		write_file("lib.c", source);
		if (!run("%s", builds[i])) {
			print_message("left out: %s\n", builds[i]);
			continue;
		}
		b = named("true");
		assert_true(rows_that_read(b, "[root];outer;middle;inner") > 0);
	}
	/* And gone they cost nothing but themselves. */
	must(run("rm -rf root"));
	for (size_t i = 0; i < ARRAY_SIZE(builds); i += 2) {
		_cleanup_(bucket_free_p) struct bucket *b = NULL;

		must(run("mkdir -p root/opt root/usr/lib/debug/.dwz"));
		if (!run("%s && rm -rf root", builds[i]))
			continue;
		b = named("true");
		assert_int_equal(rows_that_read(b, "[root];outer"), SIZE);
		for (size_t k = 1; k < b->dict->n_frames; k++)
			if (b->dict->frames[k].kind == FRAME_NATIVE)
				assert_true(b->dict->frames[k].line > 0);
	}
}

static void without_dwarf(void **state)
{
	_cleanup_(bucket_free_p) struct bucket *b = named("gcc -O1 -shared -fPIC lib.c -o lib"),
					       *noise = NULL;

	assert_int_equal(rows_that_read(b, "[root];outer"), SIZE);
	noise = named(
		"gcc -g -O1 -shared -fPIC lib.c -o lib && head -c 100 /dev/urandom > noise && "
		"objcopy --update-section .debug_info=noise lib");
	assert_int_equal(rows_that_read(noise, "[root];outer"), SIZE);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_addr2line),	     cmocka_unit_test(names_of_cxx),
		cmocka_unit_test(in_the_debug_file), cmocka_unit_test(incomplete),
		cmocka_unit_test(one_damaged_unit),  cmocka_unit_test(expands_stacks),
		cmocka_unit_test(without_dwarf),     cmocka_unit_test(split),
		cmocka_unit_test(deduplicated),	     cmocka_unit_test(parts_are_found),
		cmocka_unit_test(compressed),	     cmocka_unit_test(unpacks_in_the_sandbox),
	};

	if (argc == 3 && streq(argv[1], "--symbol-helper"))
		return parser_main(argv[2]);
	if (system("command -v gcc nm strip objcopy addr2line >/dev/null") != 0) {
		print_message("SKIP: gcc and binutils are needed to build the inputs\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
