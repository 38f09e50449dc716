// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * SIGHUP: reads the configuration again, makes a collector for it beside the running one, and lets the drain
 * thread change over. The main thread waits for none of it. A SIGHUP that comes meanwhile is answered by one more
 * reload at the end. What cannot be used changes nothing.
 */
#include <sys/eventfd.h>
#include <systemd/sd-daemon.h>

#include "base/clock.h"
#include "base/log.h"
#include "manager/internal.h"

static void begin(struct manager *m);

static void finish(struct manager *m)
{
	struct reload *rl = &m->reload;
	bool again = rl->again;

	rl->again = false;
	rl->source = sd_event_source_disable_unref(rl->source);
	rl->loader = loader_free(rl->loader);
	loaded_done(&rl->loaded);
	if (again)
		begin(m);
	else
		sd_notify(false, "READY=1");
}

static void fail(struct manager *m, const char *why)
{
	log_error("Configuration not reloaded: %s", why);
	finish(m);
}

/* What changes while running: [collect], [store] limits, who sees what, [log]. */
static void apply(struct manager *m)
{
	struct store_options store;

	config_free(m->reloaded);
	m->reloaded = TAKE_PTR(m->reload.loaded.config);
	server_set_access(m->server, TAKE_PTR(m->reload.loaded.access));
	manager_store_options(m, m->reloaded, &store);
	archive_reconfigure(m->archive, &store);
	log_set_level(m->reloaded->log_level);
	log_info("Configuration reloaded; [serve] but its group, [symbol], paths and "
		 "max-processes apply from the next start");
	finish(m);
}

static int on_replaced(sd_event_source *s, int fd, uint32_t revents, void *ctx)
{
	struct manager *m = ctx;
	uint64_t n;

	if (read(fd, &n, sizeof(n)) < 0)
		return errno == EAGAIN ? 0 : negative_errno();
	if (m->reload.result < 0) {
		fail(m, strerror(-m->reload.result));
		return 0;
	}
	manager_log_sources(m, &m->reload.options.collect);
	apply(m);
	return 0;
}

/* On the drain thread. */
static void replaced(void *ctx, int result)
{
	struct manager *m = ctx;
	uint64_t one = 1;

	m->reload.result = result;
	/* One reload at a time: the counter is never full. */
	if (write(m->reload.replaced_fd, &one, sizeof(one)) < 0)
		assert(false);
}

static int on_loaded(sd_event_source *s, int fd, uint32_t revents, void *ctx)
{
	struct manager *m = ctx;
	struct loaded *made = &m->reload.loaded;
	_cleanup_free_ char *why = NULL;
	int r = loader_take(m->reload.loader, made, &why);

	sd_event_source_set_enabled(s, SD_EVENT_OFF);
	if (r >= 0 && !made->collector) {
		apply(m);
		return 0;
	}
	if (r >= 0)
		r = recorder_replace(m->recorder, &m->reload.options, TAKE_PTR(made->collector),
				     replaced, m);
	if (r < 0)
		fail(m, why ?: strerror(-r));
	return 0;
}

/* A source that could not be had may be there now. */
static bool all_run(struct manager *m, const struct collect_options *o)
{
	struct recorder_state st;

	recorder_get_state(m->recorder, &st);
	for (unsigned i = 0; i < SOURCE_N; i++)
		if (o->enabled[i] && !st.source[i].running)
			return false;
	return true;
}

static bool same_recorder(struct manager *m, const struct config *c)
{
	const struct config *old = m->reloaded ?: m->config;

	return config_section_equal(old, c, "collect") && old->max_bursts == c->max_bursts &&
	       all_run(m, &m->reload.options.collect);
}

static int start_loader(struct manager *m, struct config *c)
{
	struct reload *rl = &m->reload;
	bool same;
	int r;

	manager_recorder_options(m, c, &rl->options);
	rl->options.collect.places = recorder_places(m->recorder);
	rl->options.collect.tables = recorder_tables(m->recorder);
	same = same_recorder(m, c);
	r = loader_start(c, same ? NULL : &rl->options.collect, &rl->loader);
	if (r < 0)
		return r;
	return sd_event_add_io(m->event, &rl->source, loader_fd(rl->loader), EPOLLIN, on_loaded, m);
}

static void begin(struct manager *m)
{
	_cleanup_(strbuf_done) struct strbuf problems = {};
	_cleanup_(config_free_p) struct config *c = NULL;
	int r = manager_load_config(&m->options, &c, &problems);

	manager_log_problems(&problems);
	if (r != 0) {
		fail(m, r < 0 ? strerror(-r) : "the one before stays in force");
		return;
	}
	r = start_loader(m, TAKE_PTR(c));
	if (r < 0)
		fail(m, strerror(-r));
}

int manager_reload(sd_event_source *s, const struct signalfd_siginfo *si, void *ctx)
{
	struct manager *m = ctx;

	/* Each with its time, by which the service manager knows that it is its own. */
	sd_notifyf(false, "RELOADING=1\nMONOTONIC_USEC=%llu",
		   (unsigned long long)(mono_now_ns() / NSEC_PER_USEC));
	if (m->reload.loader)
		m->reload.again = true;
	else
		begin(m);
	return 0;
}

int manager_reload_init(struct manager *m)
{
	m->reload.replaced_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (m->reload.replaced_fd < 0)
		return negative_errno();
	return sd_event_add_io(m->event, NULL, m->reload.replaced_fd, EPOLLIN, on_replaced, m);
}

void manager_reload_done(struct manager *m)
{
	sd_event_source_disable_unref(m->reload.source);
	loader_free(m->reload.loader);
	loaded_done(&m->reload.loaded);
	close_fd(m->reload.replaced_fd);
}
