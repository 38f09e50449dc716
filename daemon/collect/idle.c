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
	"acpi_idle_do_entry", "acpi_idle_enter", "acpi_idle_enter_bm", "acpi_safe_halt",
	"arch_cpu_idle", "cpu_do_idle", "cpu_idle_poll", "cpuidle_enter_state", "default_idle",
	"default_idle_call", "intel_idle", "intel_idle_ibrs", "intel_idle_irq", "intel_idle_xstate",
	"mwait_idle", "native_safe_halt", "poll_idle", "psci_enter_idle_state", "pv_native_safe_halt",
	"pvm_safe_halt", "pvm_safe_halt_hc", "tdx_safe_halt", "xen_safe_halt",
};

struct scan {
	struct idle_range *ranges;
	size_t n, max;
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

/* Adjoining and overlapping ranges become one; what does not fit counts as work. */
static void add_range(struct scan *k, uint64_t start, uint64_t end)
{
	struct idle_range *last = k->n ? &k->ranges[k->n - 1] : NULL;

	if (end <= start)
		return;
	if (last && start <= last->start + last->size && start >= last->start) {
		last->size = MAX(last->size, end - last->start);
		return;
	}
	if (k->n < k->max)
		k->ranges[k->n++] = (struct idle_range){ start, end - start };
}

static void scan_symbol(struct scan *k, uint64_t address, char type, const char *name)
{
	if (k->open && address > k->open) {
		add_range(k, k->open, address);
		k->open = 0;
	}
	if (streq(name, IDLE_SECTION_START))
		k->section = address;
	else if (streq(name, IDLE_SECTION_END) && k->section)
		add_range(k, k->section, address);
	else if ((type == 't' || type == 'T') && address && is_idle_function(name))
		k->open = address;
}

/* Symbols of the kernel proper come first and in the order of their addresses; modules hold none of these. */
int idle_ranges_read(const char *kallsyms_path, struct idle_range *ranges, size_t max, size_t *ret_n)
{
	struct scan k = { .ranges = ranges, .max = max };
	FILE *f = fopen(kallsyms_path, "re");
	char line[1024], name[512], type;

	if (!f)
		return negative_errno();
	while (fgets(line, sizeof(line), f)) {
		unsigned long long address;

		if (sscanf(line, "%llx %c %511s", &address, &type, name) != 3)
			continue;
		if (strchr(line, '['))
			break;
		scan_symbol(&k, address, type, name);
	}
	fclose(f);
	*ret_n = k.n;
	return 0;
}
