// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>

#include "base/clock.h"
#include "base/log.h"
#include "manager/internal.h"

#define STATUS_NS (10 * NSEC_PER_SEC)
/* The drain thread is stuck when it has closed no window for this many slices. */
#define STUCK_SLICES 5

/* ---- configuration ------------------------------------------------------------------------------- */

void manager_log_problems(const struct strbuf *problems)
{
	_cleanup_free_ char *copy = problems->data ? strdup(problems->data) : NULL;
	char *save = NULL;

	for (char *line = copy ? strtok_r(copy, "\n", &save) : NULL; line;
	     line = strtok_r(NULL, "\n", &save))
		log_warning("%s", line);
}

int manager_load_config(const struct manager_options *o, struct config **ret,
			struct strbuf *problems)
{
	_cleanup_(config_free_p) struct config *c = NULL;
	int n, r;

	r = config_new(&c);
	if (r < 0)
		return r;
	n = config_load(c, o->config_path, o->config_required, problems);
	if (n >= 0)
		*ret = TAKE_PTR(c);
	return n;
}

int manager_check_config(const struct manager_options *o)
{
	_cleanup_(strbuf_done) struct strbuf problems = {};
	_cleanup_(config_free_p) struct config *c = NULL;
	int n = manager_load_config(o, &c, &problems);

	if (n > 0)
		fputs(problems.data, stderr);
	return n;
}

/* ---- events --------------------------------------------------------------------------------------- */

static int on_stop(sd_event_source *s, const struct signalfd_siginfo *si, void *ctx)
{
	sd_notify(false, "STOPPING=1\nSTATUS=");
	return sd_event_exit(sd_event_source_get_event(s), 0);
}

static int on_stored(sd_event_source *s, int fd, uint32_t revents, void *ctx)
{
	struct manager *m = ctx;
	struct bucket *taken[STORED_MAX];
	size_t n;
	uint64_t count;

	if (read(fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return negative_errno();
	pthread_mutex_lock(&m->stored_lock);
	n = m->n_stored;
	memcpy(taken, m->stored, n * sizeof(taken[0]));
	m->n_stored = 0;
	pthread_mutex_unlock(&m->stored_lock);
	for (size_t i = 0; i < n; i++) {
		server_publish(m->server, taken[i]);
		bucket_free(taken[i]);
	}
	return 0;
}

/* On the archive thread. */
static void bucket_stored(void *ctx, struct bucket *b)
{
	struct manager *m = ctx;
	uint64_t one = 1;

	pthread_mutex_lock(&m->stored_lock);
	if (b && m->n_stored < STORED_MAX) {
		m->stored[m->n_stored++] = TAKE_PTR(b);
	} else {
		m->stored_dropped++;
	}
	pthread_mutex_unlock(&m->stored_lock);
	bucket_free(b);
	if (write(m->stored_fd, &one, sizeof(one)) < 0)
		return; /* the counter is full: the reader has enough to wake for */
}

static int on_status(sd_event_source *s, uint64_t usec, void *ctx)
{
	struct manager *m = ctx;
	char line[256];

	manager_status_line(m, line, sizeof(line));
	sd_notifyf(false, "STATUS=%s", line);
	return sd_event_source_set_time_relative(s, STATUS_NS / NSEC_PER_USEC);
}

/* The service manager hears from us only while windows are drained: that is what we are for. */
static int on_watchdog(sd_event_source *s, uint64_t usec, void *ctx)
{
	struct manager *m = ctx;
	struct recorder_state st;
	uint64_t slice_ns = (m->reloaded ?: m->config)->slice_ns;
	uint64_t patience = MAX(m->watchdog_ns, STUCK_SLICES * slice_ns);

	recorder_get_state(m->recorder, &st);
	if (mono_now_ns() - st.progress_mono_ns < patience)
		sd_notify(false, "WATCHDOG=1");
	else
		log_error(
			"No window drained for %llu s",
			(unsigned long long)((mono_now_ns() - st.progress_mono_ns) / NSEC_PER_SEC));
	return sd_event_source_set_time_relative(s, m->watchdog_ns / 3 / NSEC_PER_USEC);
}

static int add_timer(struct manager *m, uint64_t first_ns, sd_event_time_handler_t fn)
{
	sd_event_source *s = NULL;
	int r = sd_event_add_time_relative(m->event, &s, CLOCK_MONOTONIC, first_ns / NSEC_PER_USEC,
					   0, fn, m);

	if (r >= 0)
		r = sd_event_source_set_enabled(s, SD_EVENT_ON);
	if (r >= 0)
		r = sd_event_source_set_floating(s, true);
	sd_event_source_unref(s);
	return r;
}

static int add_signal(struct manager *m, int sig, sd_event_signal_handler_t fn)
{
	return sd_event_add_signal(m->event, NULL, sig, fn, m);
}

static int add_events(struct manager *m)
{
	uint64_t usec = 0;
	int r;

	r = add_signal(m, SIGTERM, on_stop);
	if (r >= 0)
		r = add_signal(m, SIGINT, on_stop);
	if (r >= 0)
		r = add_signal(m, SIGHUP, manager_reload);
	if (r >= 0)
		r = manager_reload_init(m);
	if (r >= 0)
		r = sd_event_add_io(m->event, NULL, m->stored_fd, EPOLLIN, on_stored, m);
	if (r >= 0)
		r = add_timer(m, NSEC_PER_SEC, on_status);
	if (r >= 0 && sd_watchdog_enabled(false, &usec) > 0) {
		m->watchdog_ns = usec * NSEC_PER_USEC;
		r = add_timer(m, m->watchdog_ns / 3, on_watchdog);
	}
	return r;
}

/* Before the first thread, so that all of them inherit it. */
static int block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	signal(SIGPIPE, SIG_IGN);
	return sigprocmask(SIG_BLOCK, &set, NULL) < 0 ? negative_errno() : 0;
}

/* ---- stages --------------------------------------------------------------------------------------- */

static int open_binary(void *ctx, uint64_t key)
{
	struct manager *m = ctx;

	return m->recorder ? recorder_open_binary(m->recorder, key) : -ENODEV;
}

static int open_debug_file(void *ctx, uint64_t key, const char *paths, size_t n, size_t *ret_which)
{
	struct manager *m = ctx;

	return m->recorder ? recorder_open_debug_file(m->recorder, key, paths, n, ret_which)
			   : -ENODEV;
}

static int open_fetched(void *ctx, const char *build_id)
{
	struct manager *m = ctx;

	return fetch_open(m->fetch, build_id);
}

static int start_fetch(struct manager *m)
{
	_cleanup_free_ char *directory = NULL;
	struct fetch_options o = {
		.urls = m->config->debuginfod_urls,
		.bytes_max = m->config->debuginfod_bytes,
	};
	int r;

	if (!*o.urls)
		return 0;
	if (asprintf(&directory, "%s/debuginfod", manager_state_directory(m)) < 0)
		return -ENOMEM;
	o.directory = directory;
	r = fetch_new(&o, &m->fetch);
	if (r < 0)
		log_error("Cannot start to ask debuginfod servers: %s", strerror(-r));
	return r;
}

static int start_symbolizer(struct manager *m)
{
	struct symbolizer_options o = {
		.open_fetched = m->fetch ? open_fetched : NULL,
		.open_binary = open_binary,
		.open_debug_file = open_debug_file,
		.open_ctx = m,
		.cache_bytes = m->config->symbol_cache_bytes,
		.reply_timeout_ns = m->config->symbol_timeout_ns,
		.helper_memory = m->config->symbol_memory,
	};
	int r = symbolizer_new(&o, &m->symbolizer);

	if (r < 0)
		log_error("Cannot start the symbol helper: %s", strerror(-r));
	return r;
}

static int start_archive(struct manager *m)
{
	struct archive_options o = {
		.symbolizer = m->symbolizer,
		.name_timeout_ns = 2 * m->config->symbol_timeout_ns,
		.stored = bucket_stored,
		.ctx = m,
	};
	int r;

	manager_store_options(m, m->config, &o.store);
	r = archive_start(&o, &m->archive);
	if (r < 0)
		log_error("Cannot use the state directory %s: %s", manager_state_directory(m),
			  r == -EPERM	? "others can write there, or it belongs to somebody else"
			  : r == -EBUSY ? "another sysprofd uses it"
					: strerror(-r));
	return r;
}

void manager_log_sources(struct manager *m, const struct collect_options *o)
{
	struct recorder_state st;

	recorder_get_state(m->recorder, &st);
	for (unsigned i = 0; i < SOURCE_N; i++) {
		const char *name = profile_type_name((enum profile_type)i);

		if (o->enabled[i] && !st.source[i].running)
			log_warning("%s is not recorded: %s", name, st.source[i].text);
		else
			log_info("%s: %s%s%s", name, st.source[i].text,
				 *st.source[i].hook ? " on " : "", st.source[i].hook);
	}
}

static int start_recorder(struct manager *m)
{
	struct recorder_options o;
	_cleanup_free_ char *why = NULL;
	int r;

	if (asprintf(&m->table_cache, "%s/unwind", manager_state_directory(m)) < 0) {
		m->table_cache = NULL;
		return -ENOMEM;
	}
	manager_recorder_options(m, m->config, &o);
	r = recorder_new(&o, &m->recorder, &why);
	if (r < 0) {
		log_error("Cannot record: %s", why ?: strerror(-r));
		return r;
	}
	manager_log_sources(m, &o.collect);
	r = recorder_start(m->recorder);
	if (r < 0)
		log_error("Cannot start the drain thread: %s", strerror(-r));
	return r;
}

/* The directory of the default socket is the service manager's to make; without one it is made here. */
static void make_socket_directory(const char *path)
{
	_cleanup_free_ char *dir = strdup(path);
	char *slash = dir ? strrchr(dir, '/') : NULL;

	if (!slash || slash == dir)
		return;
	*slash = 0;
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		log_debug("cannot create %s: %s", dir, strerror(errno));
}

static int start_server(struct manager *m)
{
	static const struct serve_ops ops = {
		.snapshot = manager_snapshot,
		.status = manager_status,
		.stacks = manager_stacks,
		.hardware = manager_hardware,
		.record_start = manager_record_start,
		.record_read = manager_record_read,
		.record_free = manager_record_free,
		.put_work = manager_put_work,
	};
	struct serve_options o = {
		.socket_path = m->options.socket ?: m->config->socket,
		.listen_fd = sd_listen_fds(true) > 0 ? SD_LISTEN_FDS_START : -1,
		.store_directory = manager_state_directory(m),
		.version = SYSPROFD_VERSION,
		.max_connections = (uint32_t)m->config->max_connections,
		.max_request_bytes = 65536,
		.max_answer_bytes = m->config->max_answer_bytes,
		.request_timeout_ns = m->config->request_timeout_ns,
		.query_timeout_ns = m->config->query_timeout_ns,
		.workers = 2,
		.group = m->config->group,
		.rules = m->config->rules,
		.n_rules = m->config->n_rules,
	};
	int r;

	if (o.listen_fd < 0)
		make_socket_directory(o.socket_path);
	r = server_new(m->event, &o, &ops, m, &m->server);
	if (r < 0)
		log_error("Cannot listen on %s: %s", o.socket_path,
			  r == -EADDRINUSE ? "another sysprofd serves it" : strerror(-r));
	return r;
}

int manager_new(const struct manager_options *o, struct manager **ret)
{
	_cleanup_(strbuf_done) struct strbuf problems = {};
	_cleanup_(manager_free_p) struct manager *m = new0(struct manager, 1);
	int r;

	if (!m)
		return -ENOMEM;
	m->options = *o;
	m->start_mono_ns = mono_now_ns();
	m->stored_fd = m->reload.replaced_fd = -1;
	pthread_mutex_init(&m->stored_lock, NULL);
	work_init(&m->work);
	r = manager_load_config(o, &m->config, &problems);
	if (r < 0)
		return r;
	manager_log_problems(&problems);
	log_set_level(m->config->log_level);
	m->stored_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (m->stored_fd < 0)
		return negative_errno();
	r = block_signals();
	if (r >= 0)
		r = sd_event_new(&m->event);
	if (r >= 0)
		r = start_fetch(m);
	if (r >= 0)
		r = start_symbolizer(m);
	if (r >= 0)
		r = start_archive(m);
	if (r >= 0)
		r = start_recorder(m);
	if (r >= 0)
		r = start_server(m);
	if (r >= 0)
		r = add_events(m);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(m);
	return 0;
}

int manager_run(struct manager *m)
{
	char line[256];

	log_info("sysprofd %s records on %s", SYSPROFD_VERSION,
		 m->options.socket ?: m->config->socket);
	manager_status_line(m, line, sizeof(line));
	sd_notifyf(false, "READY=1\nSTATUS=%s", line);
	return sd_event_loop(m->event);
}

/* In the direction of the data: no more questions, the last bucket, its names, the store. */
struct manager *manager_free(struct manager *m)
{
	if (!m)
		return NULL;
	server_free(m->server);
	recorder_stop(m->recorder);
	manager_reload_done(m);
	archive_stop(m->archive);
	symbolizer_free(m->symbolizer);
	fetch_free(m->fetch);
	recorder_free(m->recorder);
	for (size_t i = 0; i < m->n_stored; i++)
		bucket_free(m->stored[i]);
	sd_event_unref(m->event);
	close_fd(m->stored_fd);
	free(m->table_cache);
	work_done(&m->work);
	pthread_mutex_destroy(&m->stored_lock);
	config_free(m->reloaded);
	config_free(m->config);
	free(m);
	return NULL;
}
