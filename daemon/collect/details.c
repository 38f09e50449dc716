// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * How long calls take and how many bytes they move, taken in spans of time.
 *
 * A second program at every call costs, so it is attached for spans only, drawn at random so that nothing periodic can
 * hide between them: gaps and spans are both of random length. What a span covered is exact, since the programs
 * compare times with its limits, which are set when the program is attached already. Rows are scaled where the
 * bucket's whole coverage is known: see window/calls.c.
 */
#include <stdio.h>

#include "base/clock.h"
#include "collect/internal.h"
#include "model/profile.h"

/* A thread whose slot is taken goes without for as long as the other one's call lasts: most slots are to be free. */
#define STAMP_BITS_MIN 16
#define STAMP_BITS_MAX 18
#define STAMPS_PER_THREAD 32

_Static_assert((int)DETAIL_LATENCY == CALL_LATENCY && (int)DETAIL_BYTES == CALL_BYTES, "aspects");

struct details {
	struct span_program begins; /* stamps the begin of calls */
};

/* ---- before load ----------------------------------------------------------------------------------- */

static const char *const sized_names[] = {
	"read",
	"write",
	"readv",
	"writev",
	"pread64",
	"pwrite64",
	"preadv",
	"pwritev",
	"preadv2",
	"pwritev2",
	"send",
	"recv",
	"sendto",
	"recvfrom",
	"sendmsg",
	"recvmsg",
	"sendfile",
	"sendfile64",
	"splice",
	"tee",
	"vmsplice",
	"getdents",
	"getdents64",
	"getrandom",
	"copy_file_range",
	"process_vm_readv",
	"process_vm_writev",
};

static void name_sized_calls(struct sysprofd_bpf *skel)
{
	for (unsigned abi = 0; abi < SIZED_ABIS; abi++)
		for (size_t i = 0; i < ARRAY_SIZE(sized_names); i++) {
			int nr = syscall_number(abi, sized_names[i]);

			if (nr >= 0 && nr < SIZED_WORDS * 64)
				skel->rodata->sized_calls[abi][nr / 64] |= 1ULL << nr % 64;
		}
}

static int use_stamps(struct collector *c)
{
	uint32_t wanted = count_threads() * STAMPS_PER_THREAD;
	unsigned bits = STAMP_BITS_MIN;

	while (bits < STAMP_BITS_MAX && 1U << bits < wanted)
		bits++;
	bits -= c->shrink;
	c->skel->rodata->stamp_tag_bits = TID_BITS - bits;
	c->skel->rodata->stamp_base = mono_now_ns() - 1; /* no stamp is 0 */
	return use_map(c->skel->maps.call_stamps, 1U << bits);
}

int details_configure(struct collector *c)
{
	uint32_t entries = count_entries(c, 250, 8192, 32768);
	struct sysprofd_bpf *skel = c->skel;
	int r = use_stamps(c);

	if (r == 0)
		r = use_map(skel->maps.call_paces, 0);
	if (r == 0)
		r = use_map(skel->maps.detail_caches, 0);
	if (r == 0)
		r = use_map(skel->maps.details_a, entries);
	if (r == 0)
		r = use_map(skel->maps.details_b, entries);
	if (r < 0)
		return r;
	name_sized_calls(skel);
	skel->rodata->details_enabled = true;
	use_program(skel->progs.syscall_exec);
	use_program(skel->progs.syscall_enter);
	if (c->hooks.classic)
		use_program(skel->progs.syscall_enter_classic);
	return 0;
}

/* ---- spans ----------------------------------------------------------------------------------------- */

static struct details *details_of(const struct collector *c)
{
	return c->sources[SOURCE_SYSCALLS].priv;
}

/* When it is known how the return of calls is seen. */
static void choose_program(struct collector *c, struct details *d)
{
	struct sysprofd_bpf *skel = c->skel;

	d->begins.program = hooks_sys_exit_is_classic(c) ? skel->progs.syscall_enter_classic
							 : skel->progs.syscall_enter;
}

int details_poll(struct collector *c, uint64_t mono_ns)
{
	struct details *d = details_of(c);

	return d ? span_program_poll(c, &d->begins, mono_ns) : 0;
}

uint64_t details_wake_ns(const struct collector *c)
{
	const struct details *d = details_of(c);

	return d ? spans_next_ns(&d->begins.spans) : UINT64_MAX;
}

int details_attach(struct collector *c)
{
	struct bpf_link *exec;
	struct details *d;

	if (!c->skel->rodata->details_enabled)
		return 0;
	exec = bpf_program__attach(c->skel->progs.syscall_exec);
	if (!exec)
		return negative_errno();
	c->skel->links.syscall_exec = exec;
	d = new0(struct details, 1);
	if (!d)
		return -ENOMEM;
	c->sources[SOURCE_SYSCALLS].priv = d;
	d->begins.limits = &c->skel->bss->call_span;
	if (c->o.sample_calls)
		return 0;
	choose_program(c, d);
	return span_program_start(c, &d->begins, c->o.syscall_details);
}

int details_begin(struct collector *c, const struct span *s)
{
	struct details *d = details_of(c);

	if (!d)
		return 0;
	choose_program(c, d);
	return span_program_open(&d->begins, s);
}

void details_end(struct collector *c)
{
	struct details *d = details_of(c);

	if (d)
		span_program_stop(&d->begins);
}

void details_free(struct collector *c)
{
	struct details *d = details_of(c);

	if (!d)
		return;
	span_program_stop(&d->begins);
	free(d);
	c->sources[SOURCE_SYSCALLS].priv = NULL;
}

/* ---- out of the kernel ----------------------------------------------------------------------------- */

static int add_detail(struct slice *s, const struct syscall_key *key,
		      const struct call_detail *value)
{
	int r = ARRAY_GROW(s->details, s->cap_details, s->n_details + 1);

	if (r == 0)
		s->details[s->n_details++] = (struct slice_detail){ *key, *value };
	return r;
}

static int drain_one(void *ctx, const void *key, const void *value)
{
	struct call_detail v;
	struct syscall_key k;

	memcpy(&k, key, sizeof(k));
	memcpy(&v, value, sizeof(v));
	return add_detail(ctx, &k, &v);
}

static int drain_caches(struct collector *c, unsigned set, struct slice *s)
{
	const struct bpf_map *map = c->skel->maps.detail_caches;
	_cleanup_free_ struct detail_cache *caches = new0(struct detail_cache, c->cpus_possible);
	int r, k;

	if (!caches)
		return -ENOMEM;
	r = read_per_cpu(c, map, set, caches);
	if (r < 0)
		return r;
	for (size_t i = 0; i < (size_t)c->cpus_possible * DETAIL_LINES && r == 0; i++) {
		const struct detail_line *line = &caches[i / DETAIL_LINES].lines[i % DETAIL_LINES];

		if (line->value.calls)
			r = add_detail(s, &line->key, &line->value);
	}
	memset(caches, 0, c->cpus_possible * sizeof(*caches));
	k = write_per_cpu(c, map, set, caches);
	return r < 0 ? r : k;
}

/* Calls that began in a span end long after it: something may be there whenever the programs run. */
int details_drain(struct collector *c, unsigned set, struct slice *s)
{
	struct details *d = details_of(c);
	int r, k;

	if (!d)
		return 0;
	r = drain_map(c, set ? c->skel->maps.details_b : c->skel->maps.details_a, drain_one, s);
	k = drain_caches(c, set, s);
	if (!c->o.sample_calls) {
		s->span_ns = spans_take(&d->begins.spans, s->mono_start_ns, s->mono_end_ns);
		s->span_share = d->begins.spans.share;
	}
	return r < 0 ? r : k;
}
