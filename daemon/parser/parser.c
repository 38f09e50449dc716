// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The process that parses files of strangers. It keeps nothing but its socket, gets each file as a descriptor with
 * the request that asks about it, and may crash, hang or be killed at any moment: the daemon notices, and starts
 * another. Single-threaded.
 */
#include <limits.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/heap.h"
#include "helper/child.h"
#include "helper/limits.h"
#include "parser/internal.h"
#include "parser/parser.h"
#include "parser/sandbox.h"

/* What it keeps from one request to the next. */
struct parser {
	struct names *names;
	struct lines *lines;
	struct maps *maps;
	/* Of the messages before. */
	int debug_fd; /* or -1 */
	struct part parts[HELPER_PARTS_MAX];
	size_t n_parts;
};

/* ---- answering --------------------------------------------------------------------------------- */

void answer_lines_done(struct answer *a)
{
	for (size_t i = 0; i < a->response.n_places; i++)
		sysprofd__v1__place__free_unpacked(a->response.places[i], NULL);
	free(a->response.places);
	for (size_t i = 0; i < a->response.n_wanted_files; i++)
		sysprofd__v1__wanted_file__free_unpacked(a->response.wanted_files[i], NULL);
	free(a->response.wanted_files);
}

static void answer_done(struct answer *a)
{
	for (size_t i = 0; a->symbols && i < a->n; i++) {
		if (a->symbols[i].name != protobuf_c_empty_string)
			free(a->symbols[i].name);
		if (a->symbols[i].system_name != protobuf_c_empty_string)
			free(a->symbols[i].system_name);
	}
	answer_lines_done(a);
	free(a->symbols);
	free(a->pointers);
	elf_table_free(a->unkept);
	close_fd(a->fd);
	/* Parsing leaves the heap in holes as large as the file's tables. */
	if (a->parsed)
		heap_give_back();
}

static char *copy_text(const char *s)
{
	return *s ? strdup(s) : (char *)protobuf_c_empty_string;
}

int answer_want(struct answer *a, Sysprofd__V1__WantedKind kind, uint64_t id, const char *path,
		const char *directory)
{
	Sysprofd__V1__ParseResponse *p = &a->response;
	Sysprofd__V1__WantedFile *w;

	if (p->n_wanted_files == HELPER_PARTS_MAX || strlen(path) >= PATH_MAX ||
	    strlen(directory) >= PATH_MAX)
		return -ENOSPC;
	if (!p->wanted_files)
		p->wanted_files = new0(Sysprofd__V1__WantedFile *, HELPER_PARTS_MAX);
	w = p->wanted_files ? malloc(sizeof(*w)) : NULL;
	if (!w)
		return -ENOMEM;
	sysprofd__v1__wanted_file__init(w);
	w->kind = kind;
	w->id = id;
	w->path = copy_text(path);
	w->directory = copy_text(directory);
	if (!w->path || !w->directory) {
		sysprofd__v1__wanted_file__free_unpacked(w, NULL);
		return -ENOMEM;
	}
	p->wanted_files[p->n_wanted_files++] = w;
	return 0;
}

int answer_make_symbols(struct answer *a, size_t n)
{
	a->symbols = new0(Sysprofd__V1__Symbol, n);
	a->pointers = new0(Sysprofd__V1__Symbol *, n);
	if (n > 0 && (!a->symbols || !a->pointers))
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		sysprofd__v1__symbol__init(&a->symbols[i]);
		a->pointers[i] = &a->symbols[i];
	}
	a->n = n;
	a->response.symbols = a->pointers;
	a->response.n_symbols = n;
	return 0;
}

static int identify(int fd, struct parsed_file *ret)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return -EINVAL;
	*ret = (struct parsed_file){
		.dev = st.st_dev,
		.ino = st.st_ino,
		.size = (uint64_t)st.st_size,
		.changed_sec = st.st_ctim.tv_sec,
		.changed_nsec = st.st_ctim.tv_nsec,
	};
	return 0;
}

static Sysprofd__V1__ParseStatus status_of(int error)
{
	switch (error) {
	case 0:
		return SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_OK;
	case -ENOEXEC:
		return SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_NOT_ELF;
	case -EFBIG:
		return SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_TOO_LARGE;
	case -ENOMEM:
		return SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_NO_MEMORY;
	case -ENODATA:
		return SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_NO_TABLE;
	case -EINVAL:
		return SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_BAD_REQUEST;
	case -EAGAIN:
		return SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_UNFINISHED;
	default:
		return SYSPROFD__V1__PARSE_STATUS__PARSE_STATUS_DAMAGED;
	}
}

static int answer_lines(struct parser *p, const Sysprofd__V1__ParseRequest *q,
			const struct input *file, const struct input *debug, struct answer *a)
{
	const struct input none = { .fd = -1 };
	const struct elf_table *t;
	int r = q->n_offsets > HELPER_OFFSETS_MAX
			? -EINVAL
			: names_table(p->names, file, &none, ELF_WANT_CODE, a, &t);

	if (r < 0)
		return r;
	a->response.build_id = (char *)elf_table_build_id(t);
	a->response.debug_link = (char *)elf_table_link(t);
	return lines_answer(p->lines, t, q, file, debug, p->parts, p->n_parts, a);
}

static int answer_request(struct parser *p, const Sysprofd__V1__ParseRequest *q, int fd,
			  struct answer *a)
{
	struct input file = { .fd = fd }, debug = { .fd = p->debug_fd };
	int r = identify(fd, &file.id);

	if (r < 0)
		return r;
	if (q->kind != SYSPROFD__V1__PARSE_KIND__PARSE_KIND_LINES)
		lines_forget(p->lines);
	if (q->kind == SYSPROFD__V1__PARSE_KIND__PARSE_KIND_UNWIND)
		return table_answer(fd, a);
	if (q->kind == SYSPROFD__V1__PARSE_KIND__PARSE_KIND_PERF_MAP)
		return maps_answer(p->maps, q, &file, a);
	if (debug.fd >= 0 && identify(debug.fd, &debug.id) < 0)
		debug.fd = -1;
	if (q->kind == SYSPROFD__V1__PARSE_KIND__PARSE_KIND_LINES)
		return answer_lines(p, q, &file, &debug, a);
	return names_answer(p->names, q, &file, &debug, a);
}

static int serve(struct channel *c, struct parser *p, const Sysprofd__V1__ParseRequest *q, int fd)
{
	_cleanup_(answer_done) struct answer a = { .fd = -1 };
	int r;

	sysprofd__v1__parse_response__init(&a.response);
	a.response.id = q->id;
	r = answer_request(p, q, fd, &a);
	a.response.status = status_of(r);
	/* Of an answer that failed half-way nothing is told. */
	if (r < 0)
		a.response.n_symbols = 0;
	return channel_send(c, &a.response.base, a.fd, CHANNEL_FOREVER);
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

static void forget_files(struct parser *p)
{
	p->debug_fd = close_fd(p->debug_fd);
	while (p->n_parts)
		close_fd(p->parts[--p->n_parts].fd);
}

static void take_part(struct parser *p, const Sysprofd__V1__ParseRequest *q, int *fd)
{
	if (p->n_parts < HELPER_PARTS_MAX && q->n_offsets == 1)
		p->parts[p->n_parts++] = (struct part){ TAKE_FD(*fd), q->offsets[0] };
}

static int turn(struct channel *c, struct parser *p)
{
	_cleanup_close_ int file = -1;
	const Sysprofd__V1__ParseRequest *q;
	ProtobufCMessage *m = NULL;
	int r;

	r = channel_receive(c, &sysprofd__v1__parse_request__descriptor, CHANNEL_FOREVER, &m,
			    &file);
	if (r < 0)
		return r;
	q = (const Sysprofd__V1__ParseRequest *)m;
	if (q->kind == SYSPROFD__V1__PARSE_KIND__PARSE_KIND_DEBUG_FILE) {
		close_fd(p->debug_fd);
		p->debug_fd = TAKE_FD(file);
	} else if (q->kind == SYSPROFD__V1__PARSE_KIND__PARSE_KIND_DEBUG_PART) {
		take_part(p, q, &file);
	} else {
		renew_cpu_limit();
		r = serve(c, p, q, file);
		forget_files(p);
	}
	channel_message_free(c, m);
	return r;
}

int parser_main(const char *how)
{
	struct parser parser = { .debug_fd = -1 };
	struct channel channel;
	uint64_t memory;
	int r;

	/* Tables are made one after the other, in the same memory. */
	heap_keep_some();
	if (helper_begin(how, "sysprofd-symbol", HELPER_REQUEST_MAX, &channel, &memory) < 0 ||
	    names_new(&parser.names) < 0 || lines_new(&parser.lines) < 0 ||
	    maps_new(&parser.maps) < 0 || sandbox_enter(memory) < 0)
		return EXIT_FAILURE;
	do
		r = turn(&channel, &parser);
	while (r >= 0);
	forget_files(&parser);
	lines_free(parser.lines);
	names_free(parser.names);
	maps_free(parser.maps);
	channel_done(&channel);
	return r == -EPIPE ? EXIT_SUCCESS : EXIT_FAILURE;
}
