// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Where in the kernel a CPU waits for work.
 *
 * A tick on pid 0 is idle when it interrupted one of these places; anything else on pid 0 is interrupt work
 * that must count. Besides the section made for such code there are the functions that enable interrupts
 * after a wait that was entered with interrupts off: there the pending tick arrives on arm64, and on x86 after
 * mwait.
 */
#include <stdio.h>

#include "collect/internal.h"

#define IDLE_SECTION_START "__cpuidle_text_start"
#define IDLE_SECTION_END "__cpuidle_text_end"

static const char *const idle_functions[] = {
	"acpi_idle_do_entry", "acpi_idle_enter",       "acpi_idle_enter_bm",  "acpi_safe_halt",
	"arch_cpu_idle",      "cpu_do_idle",	       "cpu_idle_poll",	      "cpuidle_enter_state",
	"default_idle",	      "default_idle_call",     "intel_idle",	      "intel_idle_ibrs",
	"intel_idle_irq",     "intel_idle_xstate",     "mwait_idle",	      "native_safe_halt",
	"poll_idle",	      "psci_enter_idle_state", "pv_native_safe_halt", "pvm_safe_halt",
	"pvm_safe_halt_hc",   "tdx_safe_halt",	       "xen_safe_halt",
};

#define MAX_FOUND (2 * ARRAY_SIZE(idle_functions))

struct scan {
	struct idle_range found[MAX_FOUND];
	size_t n;
	uint64_t open; /* begin of a function whose end is the next symbol */
	uint64_t section;
};

static bool is_idle_function(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(idle_functions); i++)
		if (streq(name, idle_functions[i]))
			return true;
	return false;
}

static void add_found(struct scan *k, uint64_t start, uint64_t end)
{
	if (end > start && k->n < MAX_FOUND)
		k->found[k->n++] = (struct idle_range){ start, end - start };
}

static void scan_symbol(struct scan *k, uint64_t address, char type, const char *name)
{
	if (k->open && address > k->open) {
		add_found(k, k->open, address);
		k->open = 0;
	}
	if (streq(name, IDLE_SECTION_START))
		k->section = address;
	else if (streq(name, IDLE_SECTION_END) && k->section)
		add_found(k, k->section, address);
	else if ((type == 't' || type == 'T') && address && is_idle_function(name))
		k->open = address;
}

/* "ffffffff81000000 T _stext": cuts the line at its end. NULL when it has another form. */
static char *parse_line(char *line, uint64_t *ret_address, char *ret_type)
{
	char *p;

	*ret_address = strtoull(line, &p, 16);
	if (p == line || *p != ' ' || !p[1] || p[2] != ' ')
		return NULL;
	*ret_type = p[1];
	p += 3;
	p[strcspn(p, "\n")] = 0;
	return p;
}

static int by_start(const void *a, const void *b)
{
	const struct idle_range *x = a, *y = b;

	return (x->start > y->start) - (x->start < y->start);
}

/* Adjoining and overlapping ranges become one; what exceeds max counts as work. */
static size_t merge(struct scan *k, struct idle_range *ranges, size_t max)
{
	size_t n = 0;

	qsort(k->found, k->n, sizeof(*k->found), by_start);
	for (size_t i = 0; i < k->n; i++) {
		const struct idle_range *f = &k->found[i];
		struct idle_range *last = n ? &ranges[n - 1] : NULL;

		if (last && f->start - last->start <= last->size)
			last->size = MAX(last->size, f->start + f->size - last->start);
		else if (n < max)
			ranges[n++] = *f;
	}
	return n;
}

/* Symbols of the kernel proper come first and in the order of their addresses; modules hold none of these. */
int idle_ranges_read(const char *kallsyms_path, struct idle_range *ranges, size_t max,
		     size_t *ret_n)
{
	struct scan k = {};
	FILE *f = fopen(kallsyms_path, "re");
	char line[1024];

	if (!f)
		return negative_errno();
	while (fgets(line, sizeof(line), f)) {
		uint64_t address;
		char type, *name = parse_line(line, &address, &type);

		if (!name)
			continue;
		if (strchr(name, '['))
			break;
		scan_symbol(&k, address, type, name);
	}
	fclose(f);
	*ret_n = merge(&k, ranges, max);
	return 0;
}
