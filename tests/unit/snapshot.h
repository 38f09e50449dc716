/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A thread at one moment, as a walk needs it: registers, stack, executable mappings. As a file it is text:
 *
 *	sysprofd-snapshot 1 MACHINE
 *	registers HEX...			the words of bpf/regs.h
 *	map START END OFFSET PATH		an executable mapping; no path: memory without a file; hex
 *	stack ADDRESS BYTES			memory from there on, as hex, a line of it; lines follow each other,
 *						but for one break: a signal handler may have a stack of its own
 *
 * Lines that begin with '#' are comments. Of handlers with a stack of their own in threads other than the main one the
 * stack below them is missing: only the kernel knows where it lies.
 */
#pragma once

#include <ctype.h>
#include <elf.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/utsname.h>

#include "../bpf/regs.h"
#include "base/util.h"

#define SNAPSHOT_MAPS 512
#define SNAPSHOT_STACK (256U << 10)
#define SNAPSHOT_RED_ZONE 128
#define SNAPSHOT_LINE 32 /* bytes of stack */

struct snapshot_map {
	uint64_t start, end, offset;
	char path[512]; /* "": none */
};

struct snapshot {
	uint64_t regs[REGS_WORDS];
	struct snapshot_map maps[SNAPSHOT_MAPS];
	size_t n_maps;
	/* From the stack pointer on, and the main stack where that is another one. */
	struct snapshot_stack {
		uint64_t at;
		size_t n;
		uint8_t bytes[SNAPSHOT_STACK];
	} stacks[2];
};

/* Memory of the stack; what was not recorded cannot be read. */
static int snapshot_memory(void *ctx, void *to, uint32_t size, uint64_t from)
{
	const struct snapshot *s = ctx;

	for (size_t i = 0; i < ARRAY_SIZE(s->stacks); i++) {
		const struct snapshot_stack *k = &s->stacks[i];

		if (from >= k->at && size <= k->n && from - k->at <= k->n - size) {
			memcpy(to, k->bytes + (from - k->at), size);
			return 0;
		}
	}
	return -EFAULT;
}

static const struct snapshot_map *snapshot_map_at(const struct snapshot *s, uint64_t address)
{
	for (size_t i = 0; i < s->n_maps; i++)
		if (address >= s->maps[i].start && address < s->maps[i].end)
			return &s->maps[i];
	return NULL;
}

/* ---- taking one --------------------------------------------------------------------------------- */

struct span {
	uint64_t start, end;
};

/* Executable mappings; those of the stack pointer and of the main stack, which may be the same. */
static int snapshot_take_maps(pid_t pid, uint64_t sp, struct snapshot *s, struct span *ret_at,
			      struct span *ret_main)
{
	char line[1024], path[64], x;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	f = fopen(path, "re");
	if (!f)
		return negative_errno();
	while (fgets(line, sizeof(line), f)) {
		struct snapshot_map m = {};
		int at = 0;

		if (sscanf(line, "%lx-%lx %*c%*c%c%*c %lx %*s %*u %n", &m.start, &m.end, &x,
			   &m.offset, &at) != 4)
			continue;
		snprintf(m.path, sizeof(m.path), "%.*s", (int)strcspn(line + at, "\n"), line + at);
		if (sp >= m.start && sp < m.end)
			*ret_at = (struct span){ MAX(m.start, sp - SNAPSHOT_RED_ZONE), m.end };
		else if (streq(m.path, "[stack]"))
			*ret_main = (struct span){ m.start, m.end };
		if (x == 'x' && s->n_maps < SNAPSHOT_MAPS)
			s->maps[s->n_maps++] = m;
	}
	fclose(f);
	return 0;
}

static int snapshot_take_stack(pid_t pid, uint64_t start, uint64_t end, struct snapshot_stack *k)
{
	struct iovec local = { k->bytes, MIN(end - start, (uint64_t)SNAPSHOT_STACK) };
	struct iovec remote = { (void *)start, local.iov_len };
	ssize_t n = process_vm_readv(pid, &local, 1, &remote, 1, 0);

	if (n < 0)
		return negative_errno();
	k->at = start;
	k->n = (size_t)n;
	return 0;
}

/* Of a thread that ptrace has stopped. */
static int snapshot_take(pid_t pid, struct snapshot *s)
{
	struct span at = {}, main = {};
	uint64_t words[64] = {};
	struct iovec regs = { words, sizeof(words) };
	int r;

	s->n_maps = s->stacks[0].n = s->stacks[1].n = 0;
	if (ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &regs) < 0)
		return negative_errno();
	memcpy(s->regs, words, sizeof(s->regs));
	r = snapshot_take_maps(pid, s->regs[REGS_SP], s, &at, &main);
	if (r >= 0)
		r = snapshot_take_stack(pid, at.start, at.end, &s->stacks[0]);
	/* Of a large one what the outermost frames are in. */
	if (r >= 0 && main.end)
		r = snapshot_take_stack(pid, MAX(main.start, main.end - SNAPSHOT_STACK), main.end,
					&s->stacks[1]);
	return r;
}

/* ---- as a file ----------------------------------------------------------------------------------- */

static void snapshot_write(const struct snapshot *s, FILE *f)
{
	struct utsname u;

	uname(&u);
	fprintf(f, "sysprofd-snapshot 1 %s\nregisters", u.machine);
	for (size_t i = 0; i < REGS_WORDS; i++)
		fprintf(f, " %lx", s->regs[i]);
	fputc('\n', f);
	for (size_t i = 0; i < s->n_maps; i++) {
		const struct snapshot_map *m = &s->maps[i];

		fprintf(f, "map %lx %lx %lx %s\n", m->start, m->end, m->offset, m->path);
	}
	for (size_t k = 0; k < ARRAY_SIZE(s->stacks); k++)
		for (size_t i = 0; i < s->stacks[k].n; i++) {
			if (i % SNAPSHOT_LINE == 0)
				fprintf(f, "%sstack %lx ", i ? "\n" : "", s->stacks[k].at + i);
			fprintf(f, "%02x%s", s->stacks[k].bytes[i],
				i + 1 == s->stacks[k].n ? "\n" : "");
		}
}

static bool snapshot_read_registers(const char *p, struct snapshot *s)
{
	for (size_t i = 0; i < REGS_WORDS; i++) {
		char *end;

		s->regs[i] = strtoull(p, &end, 16);
		if (end == p)
			return false;
		p = end;
	}
	return true;
}

static bool snapshot_read_map(const char *p, struct snapshot *s)
{
	struct snapshot_map m = {};
	int at = 0;

	if (s->n_maps == SNAPSHOT_MAPS ||
	    sscanf(p, "%lx %lx %lx %n", &m.start, &m.end, &m.offset, &at) != 3)
		return false;
	snprintf(m.path, sizeof(m.path), "%s", p + at);
	s->maps[s->n_maps++] = m;
	return m.start < m.end;
}

static bool snapshot_read_stack(const char *p, struct snapshot *s)
{
	char *bytes;
	uint64_t at = strtoull(p, &bytes, 16);
	struct snapshot_stack *k = &s->stacks[s->stacks[1].n > 0];
	unsigned byte;

	if (s->stacks[0].n && at != k->at + k->n)
		k = &s->stacks[1];
	if (k->n == 0)
		k->at = at;
	if (at != k->at + k->n)
		return false;
	for (bytes += strspn(bytes, " ");
	     isxdigit(bytes[0]) && isxdigit(bytes[1]) && sscanf(bytes, "%2x", &byte) == 1;
	     bytes += 2) {
		if (k->n == SNAPSHOT_STACK)
			return false;
		k->bytes[k->n++] = (uint8_t)byte;
	}
	return *bytes == '\0' && k->n > 0;
}

/* -EBADMSG: it is not of this kind, or of another machine. */
static int snapshot_read(FILE *f, struct snapshot *s)
{
	char line[1024], head[128];
	struct utsname u;

	uname(&u);
	s->n_maps = s->stacks[0].n = s->stacks[1].n = 0;
	snprintf(head, sizeof(head), "sysprofd-snapshot 1 %s\n", u.machine);
	if (!fgets(line, sizeof(line), f) || !streq(line, head))
		return -EBADMSG;
	while (fgets(line, sizeof(line), f)) {
		const char *p;
		bool good;

		line[strcspn(line, "\n")] = '\0';
		if (line[0] == '#' || line[0] == '\0')
			continue;
		if ((p = str_skip_prefix(line, "registers ")))
			good = snapshot_read_registers(p, s);
		else if ((p = str_skip_prefix(line, "map ")))
			good = snapshot_read_map(p, s);
		else
			good = (p = str_skip_prefix(line, "stack ")) && snapshot_read_stack(p, s);
		if (!good)
			return -EBADMSG;
	}
	return s->stacks[0].n ? 0 : -EBADMSG;
}
