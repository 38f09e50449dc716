// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The symbol helper: a process that parses ELF files of strangers. It keeps nothing but its socket, gets
 * each file as a descriptor with the request that asks about it, and may crash, hang or be killed at any
 * moment: the daemon notices, and starts another. Single-threaded.
 *
 * Parsed tables are kept, least recently used dropped first, within TABLES_BYTES. A single table beyond
 * that is used for its request and dropped.
 */
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "symbol/channel.h"
#include "symbol/demangle.h"
#include "symbol/elf.h"
#include "symbol/helper.h"
#include "symbol/symbolizer.h"
#include "sysprofd/v1/helper.pb-c.h"

#define TABLES_BYTES (24U << 20)
#define TABLES_MAX 256

/*
 * Which file a table belongs to. The build-id will not do: a stripped copy has the same one, and its names
 * lie elsewhere.
 */
struct file_identity {
	uint64_t dev, ino, size;
	int64_t changed_sec, changed_nsec;
};

struct cached_table {
	struct file_identity file;
	enum elf_want want;
	struct elf_table *table;
	uint64_t used; /* the request that used it last */
};

struct helper {
	struct channel channel;
	struct cached_table tables[TABLES_MAX];
	size_t n_tables;
	size_t bytes;
	uint64_t clock;
};

/* ---- parsed tables ----------------------------------------------------------------------------- */

static int identify(int fd, struct file_identity *ret)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return -EINVAL;
	*ret = (struct file_identity){
		.dev = st.st_dev,
		.ino = st.st_ino,
		.size = (uint64_t)st.st_size,
		.changed_sec = st.st_ctim.tv_sec,
		.changed_nsec = st.st_ctim.tv_nsec,
	};
	return 0;
}

static struct cached_table *find_table(struct helper *h, const struct file_identity *file,
				       enum elf_want want)
{
	for (size_t i = 0; i < h->n_tables; i++) {
		struct cached_table *c = &h->tables[i];

		if (c->want == want && memcmp(&c->file, file, sizeof(*file)) == 0) {
			c->used = ++h->clock;
			return c;
		}
	}
	return NULL;
}

static void drop_table(struct helper *h, size_t i)
{
	h->bytes -= elf_table_bytes(h->tables[i].table);
	elf_table_free(h->tables[i].table);
	h->tables[i] = h->tables[--h->n_tables];
}

static void drop_oldest(struct helper *h)
{
	size_t oldest = 0;

	for (size_t i = 1; i < h->n_tables; i++)
		if (h->tables[i].used < h->tables[oldest].used)
			oldest = i;
	drop_table(h, oldest);
}

/* Takes over the table, or leaves it to the caller when it is too large to be kept. */
static void keep_table(struct helper *h, const struct file_identity *file, enum elf_want want,
		       struct elf_table **table)
{
	size_t bytes = elf_table_bytes(*table);
	struct cached_table *c;

	if (bytes > TABLES_BYTES)
		return;
	while (h->n_tables && (h->n_tables == TABLES_MAX || h->bytes + bytes > TABLES_BYTES))
		drop_oldest(h);
	c = &h->tables[h->n_tables++];
	c->file = *file;
	c->want = want;
	c->used = ++h->clock;
	c->table = TAKE_PTR(*table);
	h->bytes += bytes;
}

/* ---- answering --------------------------------------------------------------------------------- */

struct answer {
	Sysprofd__V1__SymbolizeResponse response;
	Sysprofd__V1__Symbol *symbols;
	Sysprofd__V1__Symbol **pointers;
	size_t n;
	struct elf_table *unkept; /* a table that is too large to be kept */
	bool parsed;
};

static void answer_done(struct answer *a)
{
	for (size_t i = 0; a->symbols && i < a->n; i++) {
		if (a->symbols[i].name != protobuf_c_empty_string)
			free(a->symbols[i].name);
		if (a->symbols[i].system_name != protobuf_c_empty_string)
			free(a->symbols[i].system_name);
	}
	free(a->symbols);
	free(a->pointers);
	elf_table_free(a->unkept);
	/* Parsing leaves the heap in holes as large as the file's tables. */
	if (a->parsed)
		malloc_trim(0);
}

static int set_symbol(Sysprofd__V1__Symbol *s, const char *system_name)
{
	char readable[SYMBOL_NAME_MAX], plain[SYMBOL_NAME_MAX];

	symbol_readable_name(system_name, readable);
	symbol_plain_name(system_name, plain);
	s->name = strdup(readable);
	if (!s->name)
		return -ENOMEM;
	if (streq(readable, plain))
		return 0;
	s->system_name = strdup(plain);
	if (!s->system_name) {
		s->system_name = (char *)protobuf_c_empty_string;
		return -ENOMEM;
	}
	return 0;
}

static int find_symbols(const struct elf_table *t, int fd, enum elf_want want,
			const Sysprofd__V1__SymbolizeRequest *q, struct answer *a)
{
	char name[ELF_NAME_MAX];

	a->symbols = new0(Sysprofd__V1__Symbol, q->n_offsets);
	a->pointers = new0(Sysprofd__V1__Symbol *, q->n_offsets);
	if (!a->symbols || !a->pointers)
		return -ENOMEM;
	a->n = q->n_offsets;
	for (size_t i = 0; i < a->n; i++) {
		sysprofd__v1__symbol__init(&a->symbols[i]);
		a->pointers[i] = &a->symbols[i];
	}
	for (size_t i = 0; i < a->n; i++) {
		int r = 0;

		if (elf_table_find(t, fd, q->offsets[i], name))
			r = set_symbol(&a->symbols[i], name);
		else if (want == ELF_WANT_DATA && !elf_table_reaches(t, q->offsets[i]))
			r = set_symbol(&a->symbols[i], HELPER_NOT_OF_FILE);
		if (r < 0)
			return r;
	}
	a->response.symbols = a->pointers;
	a->response.n_symbols = a->n;
	return 0;
}

static Sysprofd__V1__SymbolizeStatus status_of(int error)
{
	switch (error) {
	case 0:
		return SYSPROFD__V1__SYMBOLIZE_STATUS__SYMBOLIZE_STATUS_OK;
	case -ENOEXEC:
		return SYSPROFD__V1__SYMBOLIZE_STATUS__SYMBOLIZE_STATUS_NOT_ELF;
	case -EFBIG:
		return SYSPROFD__V1__SYMBOLIZE_STATUS__SYMBOLIZE_STATUS_TOO_LARGE;
	case -ENOMEM:
		return SYSPROFD__V1__SYMBOLIZE_STATUS__SYMBOLIZE_STATUS_NO_MEMORY;
	case -EINVAL:
		return SYSPROFD__V1__SYMBOLIZE_STATUS__SYMBOLIZE_STATUS_BAD_REQUEST;
	default:
		return SYSPROFD__V1__SYMBOLIZE_STATUS__SYMBOLIZE_STATUS_DAMAGED;
	}
}

static int answer_request(struct helper *h, const Sysprofd__V1__SymbolizeRequest *q, int fd,
			  struct answer *a)
{
	enum elf_want want = q->kind == SYSPROFD__V1__SYMBOL_KIND__SYMBOL_KIND_DATA ? ELF_WANT_DATA
										    : ELF_WANT_CODE;
	struct file_identity file;
	struct cached_table *c;
	const struct elf_table *t;
	int r;

	if (q->n_offsets > HELPER_OFFSETS_MAX)
		return -EINVAL;
	r = identify(fd, &file);
	if (r < 0)
		return r;
	c = find_table(h, &file, want);
	if (c) {
		t = c->table;
	} else {
		_cleanup_(elf_table_free_p) struct elf_table *fresh = NULL;

		r = elf_table_new(fd, want, &fresh);
		if (r < 0)
			return r;
		t = fresh;
		keep_table(h, &file, want, &fresh);
		a->unkept = TAKE_PTR(fresh);
		a->parsed = true;
	}
	a->response.build_id = (char *)elf_table_build_id(t);
	return find_symbols(t, fd, want, q, a);
}

static int serve(struct helper *h, const Sysprofd__V1__SymbolizeRequest *q, int fd)
{
	_cleanup_(answer_done) struct answer a = {};
	int r;

	sysprofd__v1__symbolize_response__init(&a.response);
	a.response.id = q->id;
	r = answer_request(h, q, fd, &a);
	a.response.status = status_of(r);
	return channel_send(&h->channel, &a.response.base, -1, CHANNEL_FOREVER);
}

/* ---- the process ------------------------------------------------------------------------------- */

/* SIGXCPU ends a request that takes this many seconds of CPU; the limit moves on with each request. */
static void renew_cpu_limit(void)
{
	struct rlimit limit;
	struct rusage u;

	if (getrlimit(RLIMIT_CPU, &limit) < 0 || getrusage(RUSAGE_SELF, &u) < 0)
		return;
	limit.rlim_cur = (rlim_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec + 2 + HELPER_CPU_SECONDS);
	if (limit.rlim_max != RLIM_INFINITY)
		limit.rlim_cur = MIN(limit.rlim_cur, limit.rlim_max);
	setrlimit(RLIMIT_CPU, &limit);
}

static int isolate(int fd)
{
	struct rlimit none = { 0, 0 };
	int null;

	/* The daemon's descriptors are close-on-exec; this is for those that are not. */
	if (fd > 3 && syscall(SYS_close_range, 3, fd - 1, 0) < 0 && errno != ENOSYS)
		return negative_errno();
	if (syscall(SYS_close_range, MAX(fd + 1, 3), ~0U, 0) < 0 && errno != ENOSYS)
		return negative_errno();
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
		return negative_errno();
	for (int i = 0; i < 3; i++) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
		/* Reports of sanitizers must be seen. */
		if (i == 2)
			continue;
#endif
		if (dup2(null, i) < 0)
			return negative_errno();
	}
	close_fd(null);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return negative_errno();
	/* A core file would hold parts of a stranger's file. */
	setrlimit(RLIMIT_CORE, &none);
	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_NAME, "sysprofd-symbol");
	return 0;
}

int symbol_helper_main(int fd)
{
	struct helper *h;
	int r;

	if (fd < 3 || isolate(fd) < 0)
		return EXIT_FAILURE;
	h = new0(struct helper, 1);
	if (!h || channel_init(&h->channel, fd, HELPER_REQUEST_MAX) < 0) {
		free(h);
		return EXIT_FAILURE;
	}
	do {
		_cleanup_close_ int file = -1;
		ProtobufCMessage *m = NULL;

		r = channel_receive(&h->channel, &sysprofd__v1__symbolize_request__descriptor,
				    CHANNEL_FOREVER, &m, &file);
		if (r < 0)
			break;
		renew_cpu_limit();
		r = serve(h, (Sysprofd__V1__SymbolizeRequest *)m, file);
		channel_message_free(&h->channel, m);
	} while (r >= 0);
	while (h->n_tables)
		drop_table(h, 0);
	channel_done(&h->channel);
	free(h);
	return r == -EPIPE ? EXIT_SUCCESS : EXIT_FAILURE;
}
