// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A tick on pid 0 is idle when it interrupted a place where a CPU waits for work; anything else on pid 0 is
 * interrupt work that must count. Besides the section made for such code there are the functions that enable
 * interrupts after a wait that was entered with interrupts off: there the pending tick arrives on arm64, and on
 * x86 after mwait.
 */
#include <stdio.h>

#include "collect/places.h"

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

static bool is_idle_function(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(idle_functions); i++)
		if (streq(name, idle_functions[i]))
			return true;
	return false;
}

/* Adjoining and overlapping ranges become one; what exceeds the room counts as work. */
static void add_idle(struct kernel_places *p, uint64_t start, uint64_t end)
{
	struct idle_range *last;

	if (end <= start)
		return;
	while (p->n_idle > 0 && p->idle[p->n_idle - 1].start >= start)
		p->n_idle--; /* within the section, whose end is told after them */
	last = p->n_idle > 0 ? &p->idle[p->n_idle - 1] : NULL;
	if (last && start - last->start <= last->size)
		last->size = MAX(last->size, end - last->start);
	else if (p->n_idle < MAX_IDLE_RANGES)
		p->idle[p->n_idle++] = (struct idle_range){ start, end - start };
}

/* Compilers add suffixes (".isra.0" since 6.1). A cold part is not where the function begins. */
static bool is_finish_task_switch(const char *name)
{
	const char *rest = str_skip_prefix(name, "finish_task_switch");

	return rest && (!*rest || ((str_skip_prefix(rest, ".isra.") ||
				    str_skip_prefix(rest, ".constprop.")) &&
				   !strstr(rest, ".cold")));
}

void places_tell(void *ctx, uint64_t start, uint64_t end, const char *name)
{
	struct kernel_places *p = ctx;

	if (streq(name, IDLE_SECTION_START))
		p->idle_section = start;
	else if (streq(name, IDLE_SECTION_END) && p->idle_section)
		add_idle(p, p->idle_section, start);
	else if (is_idle_function(name))
		add_idle(p, start, end);
	else if (streq(name, "__local_bh_enable_ip"))
		p->own[OWN_SERVES] = (struct idle_range){ start, end - start };
	else if (streq(name, "asm_exc_page_fault"))
		p->own[OWN_FAULTS] = (struct idle_range){ start, end - start };
	else if (!*p->finish_task_switch && is_finish_task_switch(name))
		snprintf(p->finish_task_switch, sizeof(p->finish_task_switch), "%s", name);
}
