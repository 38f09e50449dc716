// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Exports of profiles whose names are hostile, whose counts are 64 bits wide, that are empty, that are deep:
 * what comes out is read by the tools that people read it with.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <gelf.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/wait.h>

#include "../bpf/sysprofd.h"
#include "base/io.h"
#include "base/utf8.h"
#include "export/caption.h"
#include "export/escape.h"
#include "export/export.h"
#include "export/human.h"
#include "export/tree.h"

static char directory[] = "/tmp/test-export-XXXXXX";

/* What symbol tables and comm fields were seen to hold, and worse. */
static const char *const hostile[] = {
	"plain",
	"a;b;c",
	"new\nline",
	"<script>alert(1)</script>",
	"]]>",
	"&nbsp;&amp;\"'",
	"operator<< <int>(std::ostream&, int const&)",
	"\x01\x02\x1b[31mred\x7f",
	"\xff\xfe broken \xc3(",
	"\xef\xbf\xbe\xef\xbf\xbf", /* U+FFFE, U+FFFF: UTF-8, but no XML */
	"\xed\xa0\x80", /* a surrogate */
	"\xc2\x85 next line",
	"日本語の関数",
	"back\\slash",
	" leading and trailing 12 ",
	"</text></svg>",
	"--><!--",
	"%s%n",
};

/* ---- building profiles ----------------------------------------------------------------------- */

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

/* main -> each hostile name as caller, as leaf and as kernel frame. */
static struct profile *hostile_profile(enum profile_type type)
{
	struct profile *p = new_profile(type);
	uint32_t exe = add_binary(p, "/usr/bin/a<b>&\"c", BINARY_ELF);
	uint32_t kernel = add_binary(p, "[kernel]", BINARY_KERNEL);
	uint32_t root = push(p, 0, add_frame(p, exe, FRAME_NATIVE, 0x1040, "main"));
	uint32_t key = type == PROFILE_OFF_CPU ? OFF_KEY(OFF_BLOCKED, 1, 0) : 0;

	for (uint32_t i = 0; i < ARRAY_SIZE(hostile); i++) {
		uint32_t s = add_series(p, hostile[i], hostile[i], i + 1);
		uint32_t a = push(p, root,
				  add_frame(p, exe, FRAME_NATIVE, 0x2000 + i * 16, hostile[i]));
		uint32_t b = push(p, a, add_frame(p, kernel, FRAME_KERNEL, 0x100 + i, hostile[i]));

		add_row(p, s, b, key, 0, i + 1, (i + 1) * NSEC_PER_MSEC);
	}
	p->accounting.lost[0] = 3;
	return p;
}

static struct profile *syscall_profile(void)
{
	struct profile *p = new_profile(PROFILE_SYSCALLS);
	uint32_t s = add_series(p, "chatty", "/bin/chatty", 5);

	add_row(p, s, 0, SYSCALL_KEY(0, 39, 0), 0, 1000000, 0);
	add_row(p, s, 0, SYSCALL_KEY(0, 0, 11), 0, 17, 0);
	return p;
}

static struct profile *futex_profile(void)
{
	struct profile *p = new_profile(PROFILE_FUTEX);
	uint32_t s = add_series(p, "locky", "/bin/locky", 6);
	uint32_t exe = add_binary(p, "/bin/locky", BINARY_ELF);
	uint32_t stack = push(p, 0, add_frame(p, exe, FRAME_NATIVE, 0x40, "wait_here"));
	struct lock l = { .name = string(p, "big;lock"), .pid = 6, .address = 0x7000, .flags = 2 };
	int64_t lock = dict_lock(p->dict, &l);

	assert_true(lock > 0);
	add_row(p, s, stack, FUTEX_KEY(1, 1), (uint32_t)lock, 10, 5 * NSEC_PER_SEC);
	return p;
}

/* ---- reading back ---------------------------------------------------------------------------- */

static const char *write_file(const char *name, const struct strbuf *b)
{
	static char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write_full(fd, b->data, b->len), 0);
	close(fd);
	return path;
}

static bool installed(const char *program)
{
	char command[256];

	snprintf(command, sizeof(command), "command -v %s >/dev/null 2>&1", program);
	return system(command) == 0;
}

static const char *pprof_path(void)
{
	static const char *const places[] = {
		"/usr/lib/go-1.19/pkg/tool/linux_amd64/pprof",
		"/usr/lib/go-1.24/pkg/tool/linux_amd64/pprof",
		"/usr/lib/go-1.19/pkg/tool/linux_arm64/pprof",
	};

	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if (access(places[i], X_OK) == 0)
			return places[i];
	return NULL;
}

/* Runs a command on a file; its standard output in *ret. Returns the exit status. */
static int run_on(struct strbuf *ret, const char *fmt, const char *path)
{
	char command[512], block[4096];
	size_t n;
	FILE *f;

	snprintf(command, sizeof(command), fmt, path, path, path);
	f = popen(command, "r");
	assert_non_null(f);
	while ((n = fread(block, 1, sizeof(block), f)) > 0)
		strbuf_add(ret, block, n);
	return WEXITSTATUS(pclose(f));
}

static void assert_accepted(const char *program, const char *fmt, const char *path)
{
	_cleanup_(strbuf_done) struct strbuf out = {};
	int status;

	if (!installed(program)) {
		print_message("not checked, %s is not installed: %s\n", program, path);
		return;
	}
	status = run_on(&out, fmt, path);
	if (status)
		print_message("%s\n", out.data ?: "");
	assert_int_equal(status, 0);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void for_each_profile(void (*check)(struct profile *p, const char *name))
{
	struct profile *list[] = {
		hostile_profile(PROFILE_ON_CPU),
		hostile_profile(PROFILE_OFF_CPU),
		syscall_profile(),
		futex_profile(),
		new_profile(PROFILE_ON_CPU),
		new_profile(PROFILE_SYSCALLS),
	};

	list[4]->covered_ns = 0; /* nothing recorded */
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		char name[16];

		snprintf(name, sizeof(name), "p%zu", i);
		check(list[i], name);
		profile_free(list[i]);
	}
}

static void check_svg(struct profile *p, const char *name)
{
	_cleanup_(strbuf_done) struct strbuf b = {};

	assert_int_equal(export_svg(p, "a title & <more> \x02", &b), 0);
	assert_true(utf8_valid(b.data, b.len));
	assert_accepted("xmllint", "xmllint --noout '%s' 2>&1", write_file("v.svg", &b));
}

static void test_svg_is_xml(void **state)
{
	for_each_profile(check_svg);
}

/* The script does what it should, as far as node can tell without a browser. */
static void test_svg_script(void **state)
{
	_cleanup_(profile_free_p) struct profile *p = new_profile(PROFILE_ON_CPU);
	_cleanup_(strbuf_done) struct strbuf b = {};
	uint32_t exe = add_binary(p, "/bin/p", BINARY_ELF), s = add_series(p, "p", "/bin/p", 1);
	uint32_t a = push(p, 0, add_frame(p, exe, FRAME_NATIVE, 1, "a"));

	add_row(p, s, push(p, 0, add_frame(p, exe, FRAME_NATIVE, 3, "b")), 0, 0, 3, 300);
	add_row(p, s, push(p, a, add_frame(p, exe, FRAME_NATIVE, 2, "a1")), 0, 0, 4, 400);
	add_row(p, s, push(p, 0, add_frame(p, exe, FRAME_NATIVE, 4, "c")), 0, 0, 1, 100);
	add_row(p, s, a, 0, 0, 2, 200);
	assert_int_equal(export_svg(p, "t", &b), 0);
	assert_accepted("node", "node tests/unit/flame-dom.js '%s' 2>&1",
			write_file("script.svg", &b));
}

static void check_html(struct profile *p, const char *name)
{
	_cleanup_(strbuf_done) struct strbuf b = {};

	assert_int_equal(export_html(p, "t", &b), 0);
	assert_true(utf8_valid(b.data, b.len));
	/* The only script is ours, and nothing is loaded from elsewhere. */
	assert_ptr_equal(strstr(b.data, "<script"), strstr(b.data, "<script>\n//"));
	assert_null(strstr(strstr(b.data, "<script") + 1, "<script"));
	assert_null(strstr(b.data, " src="));
	assert_accepted("xmllint", "xmllint --html --noout --nowarning '%s' 2>/dev/null",
			write_file("v.html", &b));
}

static void test_html_is_self_contained(void **state)
{
	for_each_profile(check_html);
}

static void check_speedscope(struct profile *p, const char *name)
{
	_cleanup_(strbuf_done) struct strbuf b = {};

	assert_int_equal(export_speedscope(p, "t\"\\\n", &b), 0);
	assert_accepted("python3",
			"python3 -c '\n"
			"import json, sys\n"
			"d = json.load(open(sys.argv[1], encoding=\"utf-8\"))\n"
			"p = d[\"profiles\"][0]\n"
			"assert len(p[\"samples\"]) == len(p[\"weights\"])\n"
			"assert sum(p[\"weights\"]) == p[\"endValue\"]\n"
			"n = len(d[\"shared\"][\"frames\"])\n"
			"assert all(0 <= i < n for s in p[\"samples\"] for i in s)\n"
			"' '%s' 2>&1",
			write_file("v.json", &b));
}

static void test_speedscope_is_json(void **state)
{
	for_each_profile(check_speedscope);
}

/* One record a line: "stack N", with nothing but printable characters and the N adding up. */
static void check_folded(struct profile *p, const char *name)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	uint64_t sum = 0;
	size_t lines = 0;
	char *save = NULL;

	assert_int_equal(export_folded(p, &b), 0);
	for (char *line = b.data ? strtok_r(b.data, "\n", &save) : NULL; line;
	     line = strtok_r(NULL, "\n", &save)) {
		char *space = strrchr(line, ' '), *end;

		assert_non_null(space);
		sum += strtoull(space + 1, &end, 10);
		assert_int_equal(*end, 0);
		assert_true(space > line && space[-1] != ';');
		assert_null(strstr(line, ";;"));
		for (const char *c = line; *c; c++)
			assert_true((unsigned char)*c >= 0x20 && *c != 0x7f);
		lines++;
	}
	assert_true(sum == (p->type == PROFILE_ON_CPU ? p->samples : p->total));
	assert_int_equal(lines, p->columns.n);
}

/* What pprof -raw says of the profile; NULL where pprof is not installed. */
static char *pprof_raw(struct profile *p, const char *options)
{
	_cleanup_(strbuf_done) struct strbuf b = {}, out = {};
	char fmt[256];
	int status;

	assert_int_equal(export_pprof(p, &b), 0);
	if (!pprof_path()) {
		print_message("not checked, no pprof of Go is installed\n");
		return NULL;
	}
	snprintf(fmt, sizeof(fmt), "PPROF_TMPDIR='%s' %s %s '%%s' 2>&1", directory, pprof_path(),
		 options);
	status = run_on(&out, fmt, write_file("v.pb.gz", &b));
	if (status)
		print_message("%s\n", out.data ?: "");
	assert_int_equal(status, 0);
	return strbuf_take(&out, NULL);
}

static void check_pprof(struct profile *p, const char *name)
{
	_cleanup_free_ char *raw = pprof_raw(p, "-symbolize=none -raw");
	static const char *const types[] = { "samples/count cpu/nanoseconds[dflt]",
					     "events/count off_cpu/nanoseconds[dflt]",
					     "calls/count[dflt] errors/count",
					     "waits/count futex_wait/nanoseconds[dflt]" };

	if (!raw)
		return;
	assert_non_null(strstr(raw, types[p->type]));
	assert_non_null(strstr(raw, "Time: 2026-09-21"));
	assert_true(!p->covered_ns == !strstr(raw, "Duration: 4m59"));
	if (p->type == PROFILE_ON_CPU)
		assert_non_null(strstr(raw, "Period: 52631578"));
}

static void test_pprof_is_read(void **state)
{
	for_each_profile(check_pprof);
}

/* Names stay what they were, the reader does not ask again: has_functions is set where names are. */
static void test_pprof_keeps_names(void **state)
{
	_cleanup_(profile_free_p) struct profile *p = new_profile(PROFILE_ON_CPU);
	_cleanup_free_ char *raw = NULL;
	uint32_t exe = add_binary(p, "/bin/true", BINARY_ELF);
	uint32_t lib = add_binary(p, "/nowhere/libnone.so", BINARY_ELF);
	uint32_t kernel = add_binary(p, "[kernel]", BINARY_KERNEL);
	uint32_t s = add_series(p, "true", "/bin/true", 1);
	uint32_t stack = push(p, 0, add_frame(p, lib, FRAME_NATIVE, 0x12345, NULL));
	uint32_t mangled = add_frame(p, exe, FRAME_NATIVE, 0x3240, "ns::f(int)");

	p->dict->frames[mangled].system_name = string(p, "_ZN2ns1fEi");
	stack = push(p, stack, add_frame(p, exe, FRAME_NATIVE, 0x3040, "our_name"));
	stack = push(p, stack, mangled);
	stack = push(p, stack, add_frame(p, exe, FRAME_NATIVE, 0x3140, NULL));
	add_row(p, s, push(p, stack, add_frame(p, kernel, FRAME_KERNEL, 0x77, "vfs_read")), 0, 0, 1,
		5);
	raw = pprof_raw(p, "-raw");
	if (!raw)
		return;
	assert_non_null(strstr(raw, "1: 0x555555554000/0x555555555000/0x3000 /bin/true  [FN]"));
	assert_non_null(
		strstr(raw, "0x7f0000000000/0x7f0000001000/0x12000 /nowhere/libnone.so  \n"));
	assert_non_null(strstr(raw, "/0x0 [kernel.kallsyms]  [FN]"));
	assert_non_null(strstr(raw, ": 0x555555554040 M=1 our_name "));
	assert_non_null(strstr(raw, ": 0x555555554240 M=1 ns::f(int) "));
	assert_non_null(strstr(raw, "(_ZN2ns1fEi)\n"));
	assert_non_null(strstr(raw, ": 0x555555554140 M=1 true+0x3140 "));
	assert_non_null(strstr(raw, ": 0x7f0000000345 M="));
	assert_non_null(strstr(raw, ": 0xffffffff81000077 M=2 vfs_read "));
	assert_non_null(strstr(raw, "comm:[true]"));
	assert_non_null(strstr(raw, "pid:[1 id]"));
}

struct elf_facts {
	GElf_Phdr load[16];
	size_t n;
	uint64_t vaddr, offset; /* of the wanted function */
};

static void read_elf(const char *path, const char *function, struct elf_facts *ret)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	Elf_Scn *scn = NULL;
	size_t n = 0;
	Elf *elf;

	assert_true(fd >= 0 && elf_version(EV_CURRENT) != EV_NONE);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	assert_non_null(elf);
	while ((scn = elf_nextscn(elf, scn))) {
		Elf_Data *data = elf_getdata(scn, NULL);
		GElf_Shdr sh;
		GElf_Sym sym;

		if (!gelf_getshdr(scn, &sh) || sh.sh_type != SHT_SYMTAB)
			continue;
		for (int i = 0; gelf_getsym(data, i, &sym); i++)
			if (streq(elf_strptr(elf, sh.sh_link, sym.st_name) ?: "", function))
				ret->vaddr = sym.st_value;
	}
	assert_int_equal(elf_getphdrnum(elf, &n), 0);
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr *ph = &ret->load[ret->n];

		if (!gelf_getphdr(elf, (int)i, ph) || ph->p_type != PT_LOAD)
			continue;
		if (ret->vaddr >= ph->p_vaddr && ret->vaddr < ph->p_vaddr + ph->p_filesz)
			ret->offset = ret->vaddr - ph->p_vaddr + ph->p_offset;
		assert_true(++ret->n < ARRAY_SIZE(ret->load));
	}
	elf_end(elf);
}

/*
 * How pprof (internal/elfexec) comes from an address to one of the ELF file: it takes the segments that overlap
 * the mapping and do not begin before it, narrows by file offset if these are several, and shifts.
 */
static uint64_t pprof_rule(const struct elf_facts *e, uint64_t start, uint64_t limit,
			   uint64_t offset, uint64_t address)
{
	uint64_t file_offset = address - start + offset;
	const GElf_Phdr *found[16];
	size_t n = 0;

	for (size_t i = 0; i < e->n; i++) {
		const GElf_Phdr *ph = &e->load[i];
		uint64_t end = ph->p_offset + ph->p_memsz, in_page = ph->p_vaddr & 4095;
		uint64_t begin = ph->p_offset > in_page ? ph->p_offset - in_page : 0;

		if (ph->p_filesz && offset < end && ph->p_offset < offset + limit - start &&
		    offset >= begin)
			found[n++] = ph;
	}
	for (size_t i = 0; i < n; i++)
		if (n == 1 || (file_offset >= found[i]->p_offset &&
			       file_offset < found[i]->p_offset + found[i]->p_memsz))
			return file_offset - found[i]->p_offset + found[i]->p_vaddr;
	return 0;
}

static bool build_program(const char *linking, const char *path)
{
	char command[512];

	snprintf(command, sizeof(command),
		 "printf 'int a(int x){return x*3;}int zz_wanted(int x){return a(x)+1;}"
		 "int main(void){return zz_wanted(2);}' | gcc -O0 -g -x c %s -o '%s' - 2>/dev/null",
		 linking, path);
	return system(command) == 0;
}

/* One unnamed frame in zz_wanted; another, 40 pages up, when far is set, must not disturb it. */
static struct profile *unnamed_profile(const char *path, uint64_t offset, bool far)
{
	struct profile *p = new_profile(PROFILE_ON_CPU);
	uint32_t binary = add_binary(p, path, BINARY_ELF), s = add_series(p, "x", path, 1);

	add_row(p, s, push(p, 0, add_frame(p, binary, FRAME_NATIVE, offset, NULL)), 0, 0, 1, 5);
	if (far)
		add_row(p, s,
			push(p, 0, add_frame(p, binary, FRAME_NATIVE, offset + 40 * 4096, NULL)), 0,
			0, 1, 5);
	return p;
}

static void check_address(const char *path, const struct elf_facts *e, bool far)
{
	_cleanup_(profile_free_p) struct profile *p = unnamed_profile(path, e->offset + 6, far);
	_cleanup_free_ char *raw = pprof_raw(p, "-symbolize=none -raw");
	uint64_t address = 0, start = 0, limit = 0, offset = 0;
	const char *at = strstr(raw, "Locations\n"), *mapping = strstr(raw, "Mappings\n");

	assert_non_null(at);
	assert_non_null(mapping);
	assert_int_equal(sscanf(at, "Locations 1: %" SCNx64, &address), 1);
	assert_int_equal(sscanf(mapping, "Mappings 1: %" SCNx64 "/%" SCNx64 "/%" SCNx64, &start,
				&limit, &offset),
			 3);
	assert_true(address >= start && address < limit);
	assert_int_equal(address - start + offset, e->offset + 6);
	assert_int_equal(pprof_rule(e, start, limit, offset, address), e->vaddr + 6);
}

/*
 * A reader that has only Mapping{start, limit, offset, file} names an unnamed frame by itself, also where the
 * linker gave segments file offsets that differ from their addresses.
 */
static void test_pprof_can_be_symbolised_elsewhere(void **state)
{
	static const char *const linkings[] = {
		"-pie -fPIE",
		"-no-pie",
		"-fuse-ld=lld -pie -fPIE",
		"-fuse-ld=lld -no-pie",
		"-fuse-ld=gold -pie -fPIE",
		"-shared -fPIC -Wl,-Ttext-segment=0x340000000",
		"-static-pie -fPIE",
	};

	if (!pprof_path())
		skip();
	for (size_t i = 0; i < ARRAY_SIZE(linkings); i++) {
		struct elf_facts e = {};
		char path[128];

		snprintf(path, sizeof(path), "%s/prog%zu", directory, i);
		if (!build_program(linkings[i], path)) {
			print_message("not checked: gcc cannot link with %s\n", linkings[i]);
			continue;
		}
		read_elf(path, "zz_wanted", &e);
		assert_true(e.offset > 0);
		check_address(path, &e, false);
		check_address(path, &e, true);
	}
}

/* The Go tool does it in one: it has a rule of its own, which holds for what GNU ld makes. */
static void test_pprof_names_by_itself(void **state)
{
	_cleanup_(profile_free_p) struct profile *p = NULL;
	_cleanup_free_ char *raw = NULL;
	struct elf_facts e = {};
	char path[128];

	snprintf(path, sizeof(path), "%s/program", directory);
	if (!pprof_path() || !build_program("-pie -fPIE", path))
		skip();
	read_elf(path, "zz_wanted", &e);
	p = unnamed_profile(path, e.offset + 6, false);
	raw = pprof_raw(p, "-symbolize=local -top");
	assert_non_null(strstr(raw, "zz_wanted"));
}

static void test_folded_grammar(void **state)
{
	for_each_profile(check_folded);
}

static void test_folded_escapes(void **state)
{
	static const struct {
		const char *in, *out;
	} table[] = {
		{ "a;b", "a:b" },    { "a\nb", "a?b" },		 { "a\\b", "a\\b" },
		{ "", "[unknown]" }, { "\xff", "\xef\xbf\xbd" }, { "f(int) 5", "f(int) 5" },
		{ "\xc2\x85", "?" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		_cleanup_(strbuf_done) struct strbuf b = {};

		escape_folded(&b, table[i].in);
		assert_string_equal(b.data, table[i].out);
	}
}

/* A recording by another event than time: what is shown is a number of these, and no duration. */
static void test_events(void **state)
{
	_cleanup_(profile_free_p) struct profile *p = new_profile(PROFILE_ON_CPU);
	_cleanup_(strbuf_done) struct strbuf folded = {}, svg = {}, speedscope = {}, what = {};
	uint32_t exe = add_binary(p, "/bin/x", BINARY_ELF);
	uint32_t a = push(p, 0, add_frame(p, exe, FRAME_NATIVE, 1, "a"));

	p->event = EVENT_CACHE_MISSES;
	add_row(p, add_series(p, "x", "/bin/x", 1), a, 0, 0, 3, 81234);
	assert_int_equal(export_folded(p, &folded), 0);
	assert_string_equal(folded.data, "x;a 81234\n");
	assert_int_equal(export_svg(p, "t", &svg), 0);
	assert_non_null(strstr(svg.data, "81,234"));
	assert_null(strstr(svg.data, "81.2 us"));
	assert_int_equal(export_speedscope(p, "t", &speedscope), 0);
	assert_non_null(strstr(speedscope.data, "\"unit\":\"none\""));
	caption_what(p, &what);
	assert_string_equal(what.data, "on-cpu: 81,234 cache-misses in 3 samples");
}

/* Counts beyond 2^63 neither wrap nor go negative. */
static void test_wide_counts(void **state)
{
	_cleanup_(profile_free_p) struct profile *p = new_profile(PROFILE_ON_CPU);
	_cleanup_(strbuf_done) struct strbuf folded = {}, svg = {}, pprof = {};
	uint32_t exe = add_binary(p, "/bin/x", BINARY_ELF);
	uint32_t a = push(p, 0, add_frame(p, exe, FRAME_NATIVE, 1, "a"));
	uint32_t b = push(p, a, add_frame(p, exe, FRAME_NATIVE, 2, "b"));
	uint32_t s = add_series(p, "x", "/bin/x", 1);

	add_row(p, s, a, 0, 0, UINT64_MAX, UINT64_MAX);
	add_row(p, s, b, 0, 0, UINT64_MAX - 1, UINT64_MAX - 1);
	assert_int_equal(export_folded(p, &folded), 0);
	assert_non_null(strstr(folded.data, "x;a 18446744073709551615\n"));
	assert_non_null(strstr(folded.data, "x;a;b 18446744073709551614\n"));
	assert_int_equal(export_svg(p, "t", &svg), 0);
	assert_null(strstr(svg.data, "nan"));
	assert_null(strstr(svg.data, "width=\"-"));
	assert_int_equal(export_pprof(p, &pprof), 0);
}

static void test_functions_merge_over_addresses(void **state)
{
	_cleanup_(profile_free_p) struct profile *p = new_profile(PROFILE_ON_CPU);
	_cleanup_(strbuf_done) struct strbuf b = {};
	uint32_t exe = add_binary(p, "/bin/x", BINARY_ELF);
	uint32_t s1 = add_series(p, "x", "/bin/x", 1), s2 = add_series(p, "x", "/bin/x", 2);

	add_row(p, s1, push(p, 0, add_frame(p, exe, FRAME_NATIVE, 16, "f")), 0, 0, 2, 20);
	add_row(p, s2, push(p, 0, add_frame(p, exe, FRAME_NATIVE, 32, "f")), 0, 0, 3, 30);
	assert_int_equal(export_folded(p, &b), 0);
	assert_string_equal(b.data, "x;f 5\n");
}

static void test_deep_stack(void **state)
{
	_cleanup_(profile_free_p) struct profile *p = new_profile(PROFILE_ON_CPU);
	_cleanup_(strbuf_done) struct strbuf svg = {}, folded = {}, pprof = {}, scope = {};
	uint32_t exe = add_binary(p, "/bin/deep", BINARY_ELF), stack = 0;

	for (int i = 0; i < 30000; i++)
		stack = push(p, stack, add_frame(p, exe, FRAME_NATIVE, 0x1000, "recurse"));
	add_row(p, add_series(p, "deep", "/bin/deep", 1), stack, 0, 0, 1, 1000);
	assert_int_equal(export_svg(p, "t", &svg), 0);
	assert_int_equal(export_folded(p, &folded), 0);
	assert_int_equal(export_pprof(p, &pprof), 0);
	assert_int_equal(export_speedscope(p, "t", &scope), 0);
}

/* Exact totals beside sampled rows are not added to them; alone they are shown. */
static void test_off_cpu_totals(void **state)
{
	_cleanup_(profile_free_p) struct profile *p = new_profile(PROFILE_OFF_CPU);
	_cleanup_(strbuf_done) struct strbuf both = {}, alone = {};
	uint32_t exe = add_binary(p, "/bin/x", BINARY_ELF);
	uint32_t s = add_series(p, "x", "/bin/x", 1);
	uint32_t stack = push(p, 0, add_frame(p, exe, FRAME_NATIVE, 16, "f"));

	add_row(p, s, 0, OFF_KEY(OFF_BLOCKED, 0, 1), 0, 5, 500);
	assert_int_equal(export_folded(p, &alone), 0);
	assert_string_equal(alone.data, "x;[blocked];[no stack] 500\n");
	add_row(p, s, stack, OFF_KEY(OFF_BLOCKED, 1, 0), 0, 1, 500);
	assert_int_equal(export_folded(p, &both), 0);
	assert_string_equal(both.data, "x;[blocked];f 500\n");
}

static void test_formats(void **state)
{
	assert_int_equal(export_format_from_path("a.svg"), EXPORT_SVG);
	assert_int_equal(export_format_from_path("dir.x/a.pb.gz"), EXPORT_PPROF);
	assert_int_equal(export_format_from_path("a.folded"), EXPORT_FOLDED);
	assert_int_equal(export_format_from_path("a.html"), EXPORT_HTML);
	assert_int_equal(export_format_from_path("a.json"), EXPORT_SPEEDSCOPE);
	assert_int_equal(export_format_from_path(".svg"), -EINVAL);
	assert_int_equal(export_format_from_path("a.gz"), -EINVAL);
	assert_int_equal(export_format_from_path("svg"), -EINVAL);
	assert_int_equal(export_format_from_name("speedscope"), EXPORT_SPEEDSCOPE);
	assert_int_equal(export_format_from_name("SVG"), -EINVAL);
}

static void test_human(void **state)
{
	char b[HUMAN_MAX];

	assert_string_equal(human_duration(0, b), "0");
	assert_string_equal(human_duration(999, b), "999 ns");
	assert_string_equal(human_duration(999499, b), "999 us");
	assert_string_equal(human_duration(999500, b), "1.00 ms");
	assert_string_equal(human_duration(12345678, b), "12.3 ms");
	assert_string_equal(human_duration(119 * NSEC_PER_SEC, b), "119 s");
	assert_string_equal(human_duration(250 * NSEC_PER_SEC, b), "4 min 10 s");
	assert_string_equal(human_duration(7200 * NSEC_PER_SEC, b), "2 h");
	assert_string_equal(human_duration(UINT64_MAX, b), "213503 d 23 h");
	assert_string_equal(human_count(1234567, b), "1,234,567");
	assert_string_equal(human_count(UINT64_MAX, b), "18,446,744,073,709,551,615");
	assert_string_equal(human_share(1, 3, b), "33.3 %");
	assert_string_equal(human_share(1, 0, b), "-");
	assert_string_equal(human_bytes(1023, b), "1.00 KiB");
	assert_string_equal(human_bytes(UINT64_MAX, b), "16.0 EiB");
}

static int set_up(void **state)
{
	return mkdtemp(directory) ? 0 : -1;
}

static int tear_down(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf '%s'", directory);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_svg_is_xml),
		cmocka_unit_test(test_svg_script),
		cmocka_unit_test(test_html_is_self_contained),
		cmocka_unit_test(test_speedscope_is_json),
		cmocka_unit_test(test_pprof_is_read),
		cmocka_unit_test(test_pprof_keeps_names),
		cmocka_unit_test(test_pprof_can_be_symbolised_elsewhere),
		cmocka_unit_test(test_pprof_names_by_itself),
		cmocka_unit_test(test_folded_grammar),
		cmocka_unit_test(test_folded_escapes),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_wide_counts),
		cmocka_unit_test(test_functions_merge_over_addresses),
		cmocka_unit_test(test_deep_stack),
		cmocka_unit_test(test_off_cpu_totals),
		cmocka_unit_test(test_formats),
		cmocka_unit_test(test_human),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
