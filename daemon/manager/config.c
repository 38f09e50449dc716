// SPDX-License-Identifier: GPL-2.0-or-later
/* The table of settings, and the parser of their files. */
#include <ctype.h>
#include <fcntl.h>
#include <glob.h>
#include <math.h>

#include "base/io.h"
#include "base/log.h"
#include "base/utf8.h"
#include "manager/config.h"

#define MAX_FILE_BYTES (256 * 1024)
#define MAX_DROP_INS 256
#define MAX_RULES 64

enum kind {
	KIND_BOOL,
	KIND_NUMBER, /* uint64_t */
	KIND_REAL, /* double */
	KIND_SHARE, /* double, of the time: "off", "always", "10%" */
	KIND_TIME, /* uint64_t ns: "10s", "500ms", "7d" */
	KIND_BYTES, /* uint64_t: "64M", "1G" */
	KIND_TEXT, /* char * */
	KIND_URLS, /* char *: http:// or https://, separated by blanks */
	KIND_CHOICE, /* unsigned: index into choices */
	KIND_RULE, /* appends to rules */
};

struct setting {
	const char *section, *key;
	enum kind kind;
	size_t offset;
	const char *initial; /* the default, as it would be written */
	const char *min, *max;
	const char *const *choices;
	const char *help;
};

static const char *const events[] = { "cpu-clock", "cycles", NULL };
static const char *const counts[] = { "exact", "sampled", NULL };
static const char *const levels[] = { "error", "warning", "info", "debug", NULL };
static const enum log_level level_values[] = { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO,
					       LOG_LEVEL_DEBUG };

#define AT(member) offsetof(struct config, member)

/* clang-format off */
static const struct setting settings[] = {
	{ "collect", "on-cpu", KIND_BOOL, AT(on_cpu), "yes", NULL, NULL, NULL,
	  "Sample what runs on each CPU." },
	{ "collect", "off-cpu", KIND_BOOL, AT(off_cpu), "yes", NULL, NULL, NULL,
	  "Measure what threads wait for." },
	{ "collect", "off-cpu-wakers", KIND_SHARE, AT(off_cpu_wakers), "10%", "0.1%", "100%", NULL,
	  "Share of the time in which it is seen who ends waits: random stretches of it, always, or off." },
	{ "collect", "syscalls", KIND_BOOL, AT(syscalls), "yes", NULL, NULL, NULL,
	  "Count system calls and their errors." },
	{ "collect", "syscall-counts", KIND_CHOICE, AT(syscall_counts), "exact", NULL, NULL, counts,
	  "Each call is counted, or those of a tenth of the time, at random in each bucket: rows are scaled then, and say how exact they are." },
	{ "collect", "cpu-budget", KIND_SHARE, AT(cpu_budget), "0.5%", "0.01%", "100%", NULL,
	  "What counting may cost, of the time of all CPUs. Counts stay exact beyond it; status says by how much it is exceeded. Stacks of waits take half of it: above that the threshold rises." },
	{ "collect", "syscall-details", KIND_SHARE, AT(syscall_details), "10%", "0.1%", "100%", NULL,
	  "Share of the time in which system calls are timed and sized: random stretches of it, always, or off." },
	{ "collect", "syscall-stacks", KIND_NUMBER, AT(syscall_stacks), "0", "0", "10000000", NULL,
	  "The stack of one system call in so many is taken, at random: who makes them. 0: of none." },
	{ "collect", "futex", KIND_BOOL, AT(futex), "yes", NULL, NULL, NULL,
	  "Measure waits for locks." },
	{ "collect", "kernel-locks", KIND_BOOL, AT(kernel_locks), "yes", NULL, NULL, NULL,
	  "With futex: measure waits for the kernel's own locks as well, where it tells them (Linux 5.19)." },
	{ "collect", "on-cpu-rate", KIND_REAL, AT(on_cpu_rate), "19", "1", "9999", NULL,
	  "On-CPU samples per second and CPU." },
	{ "collect", "on-cpu-event", KIND_CHOICE, AT(on_cpu_event), "cpu-clock", NULL, NULL, events,
	  "What drives on-CPU samples. Where cycles cannot be counted, cpu-clock is used." },
	{ "collect", "off-cpu-threshold", KIND_TIME, AT(off_cpu_threshold_ns), "10ms", "10us", "10s", NULL,
	  "The stack of every wait of this length is kept; of a shorter one with probability length/threshold." },
	{ "collect", "off-cpu-threshold-max", KIND_TIME, AT(off_cpu_threshold_max_ns), "1s", "10us", "1min", NULL,
	  "How far the threshold may rise when stacks of waits cost too much." },
	{ "collect", "walks-per-second", KIND_NUMBER, AT(walks_per_second), "2000", "10", "1000000", NULL,
	  "Stacks walked per second and CPU for waits; above it the threshold rises." },
	{ "collect", "counter-reads", KIND_NUMBER, AT(counter_reads), "1000", "0", "1000000", NULL,
	  "How often a second and CPU hardware counters are read, at context switches, at most; where there are more switches, in a random share of the time. 0: off." },
	{ "collect", "slice", KIND_TIME, AT(slice_ns), "2s", "100ms", "10s", NULL,
	  "How often counts are taken out of the kernel." },
	{ "collect", "bucket", KIND_TIME, AT(bucket_ns), "10s", "500ms", "1min", NULL,
	  "The time that one stored bucket covers." },
	{ "collect", "count-entries", KIND_NUMBER, AT(count_entries), "0", "0", "4194304", NULL,
	  "Entries of each count map; 0: by number of CPUs and rate." },
	{ "collect", "ring-size", KIND_BYTES, AT(ring_bytes), "0", "0", "256M", NULL,
	  "Buffer for stacks on their way out of the kernel; 0: by number of CPUs." },
	{ "collect", "max-threads", KIND_NUMBER, AT(max_threads), "262144", "1024", "4194304", NULL,
	  "Threads whose waits are remembered at a time." },
	{ "collect", "unwind-memory", KIND_BYTES, AT(unwind_bytes), "64M", "0", "1G", NULL,
	  "Limit of the tables that user stacks are walked by, which grow by need, 1M at a time; 0: by frame pointers alone. Read at start." },
	{ "collect", "max-processes", KIND_NUMBER, AT(max_processes), "65536", "64", "1048576", NULL,
	  "Processes remembered at a time." },
	{ "collect", "max-series", KIND_NUMBER, AT(max_series), "10000", "16", "1000000", NULL,
	  "Threads and processes told apart in one bucket; the rest is [other]." },
	{ "collect", "max-stacks", KIND_NUMBER, AT(max_stacks), "200000", "100", "10000000", NULL,
	  "Stack nodes in one bucket; the rest is [other]." },
	{ "store", "state-directory", KIND_TEXT, AT(state_directory), "/var/lib/sysprofd", NULL, NULL, NULL,
	  "Where history lies." },
	{ "store", "max-size", KIND_BYTES, AT(store_max_bytes), "1G", "8M", "1T", NULL,
	  "All files of the store together; the oldest history goes first." },
	{ "store", "max-age", KIND_TIME, AT(store_max_age_ns), "9d", "1h", "3650d", NULL,
	  "How long history is kept." },
	{ "serve", "socket", KIND_TEXT, AT(socket), "/run/sysprofd/api.sock", NULL, NULL, NULL,
	  "The Unix socket, unless systemd passes one." },
	{ "serve", "group", KIND_TEXT, AT(group), "sysprofd", NULL, NULL, NULL,
	  "Members of this group see everything, as root does." },
	{ "serve", "max-connections", KIND_NUMBER, AT(max_connections), "64", "1", "4096", NULL,
	  "Clients at a time; one more hears \"busy\" at once." },
	{ "serve", "request-timeout", KIND_TIME, AT(request_timeout_ns), "10s", "100ms", "10min", NULL,
	  "How long a client may take to send its request." },
	{ "serve", "query-timeout", KIND_TIME, AT(query_timeout_ns), "30s", "100ms", "10min", NULL,
	  "How long one query may run." },
	{ "serve", "max-answer", KIND_BYTES, AT(max_answer_bytes), "64M", "64K", "1G", NULL,
	  "The largest answer; half for who does not see everything." },
	{ "serve", "max-bursts", KIND_NUMBER, AT(max_bursts), "2", "0", "16", NULL,
	  "Recordings at another rate at a time." },
	{ "symbol", "cache-size", KIND_BYTES, AT(symbol_cache_bytes), "8M", "64K", "1G", NULL,
	  "Names kept in memory." },
	{ "symbol", "memory-max", KIND_BYTES, AT(symbol_memory), "1G", "64M", "64G", NULL,
	  "Address space of the helper that reads symbol tables." },
	{ "symbol", "timeout", KIND_TIME, AT(symbol_timeout_ns), "5s", "100ms", "1min", NULL,
	  "After this time without an answer the helper is killed and started anew." },
	{ "symbol", "debuginfod-urls", KIND_URLS, AT(debuginfod_urls), "", NULL, NULL, NULL,
	  "Servers that are asked for debug files of stripped programs, separated by blanks; empty: none. They learn what runs here. Read at start." },
	{ "symbol", "debuginfod-cache", KIND_BYTES, AT(debuginfod_bytes), "1G", "16M", "64G", NULL,
	  "Debug files from servers kept in the state directory; one may have half of it. Read at start." },
	{ "access", "allow", KIND_RULE, 0, "", NULL, NULL, NULL,
	  "group:NAME unit=GLOB: members of the group see these units. May be repeated." },
	{ "log", "level", KIND_CHOICE, AT(log_level), "info", NULL, NULL, levels,
	  "error, warning, info or debug." },
};
/* clang-format on */

/* ---- values ---------------------------------------------------------------------------------- */

struct suffix {
	const char *name;
	double factor;
};

static const struct suffix time_suffixes[] = {
	{ "ns", 1 },	 { "us", 1e3 },	  { "ms", 1e6 },    { "s", 1e9 },
	{ "min", 60e9 }, { "h", 3600e9 }, { "d", 86400e9 }, { NULL, 0 },
};
static const struct suffix byte_suffixes[] = {
	{ "K", 1024.0 },	  { "M", 1048576.0 }, { "G", 1073741824.0 },
	{ "T", 1099511627776.0 }, { "", 1 },	      { NULL, 0 },
};
static const struct suffix share_suffixes[] = { { "%", 0.01 }, { NULL, 0 } };
static const struct suffix no_suffixes[] = { { "", 1 }, { NULL, 0 } };

static bool parse_scaled(const char *text, const struct suffix *suffixes, double *ret)
{
	char *end;
	double v;

	if (!isdigit((unsigned char)text[0]))
		return false;
	v = strtod(text, &end);
	while (*end == ' ')
		end++;
	for (; suffixes->name; suffixes++)
		if (streq(end, suffixes->name)) {
			*ret = v * suffixes->factor;
			return isfinite(*ret);
		}
	return false;
}

static const struct suffix *suffixes_of(enum kind kind)
{
	switch (kind) {
	case KIND_TIME:
		return time_suffixes;
	case KIND_BYTES:
		return byte_suffixes;
	case KIND_SHARE:
		return share_suffixes;
	default:
		return no_suffixes;
	}
}

static bool parse_bool(const char *text, bool *ret)
{
	static const char *const yes[] = { "yes", "true", "on", "1" };
	static const char *const no[] = { "no", "false", "off", "0" };

	for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
		if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
			*ret = strcasecmp(text, yes[i]) == 0;
			return true;
		}
	}
	return false;
}

static void expect(struct strbuf *why, const struct setting *s)
{
	switch (s->kind) {
	case KIND_BOOL:
		strbuf_puts(why, "yes or no");
		break;
	case KIND_SHARE:
		strbuf_printf(why, "off, always, or a share from %s to %s", s->min, s->max);
		break;
	case KIND_TIME:
		strbuf_printf(why, "a time from %s to %s, such as %s", s->min, s->max, s->initial);
		break;
	case KIND_BYTES:
		strbuf_printf(why, "a size from %s to %s, such as 64M", s->min, s->max);
		break;
	case KIND_NUMBER:
	case KIND_REAL:
		strbuf_printf(why, "a number from %s to %s", s->min, s->max);
		break;
	case KIND_CHOICE:
		for (size_t i = 0; s->choices[i]; i++)
			strbuf_printf(why, "%s%s", i ? (s->choices[i + 1] ? ", " : " or ") : "",
				      s->choices[i]);
		break;
	case KIND_TEXT:
		strbuf_puts(why, "a text of at most 4,095 bytes");
		break;
	case KIND_URLS:
		strbuf_puts(why, "http:// or https:// and a host, separated by blanks, in at most "
				 "4,095 bytes");
		break;
	case KIND_RULE:
		strbuf_puts(why, "group:NAME unit=GLOB");
		break;
	}
}

static bool set_number(void *at, const struct setting *s, const char *text)
{
	double v, lo = 0, hi = 0;

	if (!parse_scaled(text, suffixes_of(s->kind), &v))
		return false;
	if (!parse_scaled(s->min, suffixes_of(s->kind), &lo) ||
	    !parse_scaled(s->max, suffixes_of(s->kind), &hi) || v < lo || v > hi)
		return false;
	if (s->kind == KIND_REAL || s->kind == KIND_SHARE) {
		*(double *)at = v;
		return true;
	}
	if (s->kind == KIND_NUMBER && v != floor(v))
		return false;
	*(uint64_t *)at = (uint64_t)v;
	return true;
}

static bool set_share(void *at, const struct setting *s, const char *text)
{
	if (streq(text, "off") || streq(text, "always")) {
		*(double *)at = streq(text, "always");
		return true;
	}
	return set_number(at, s, text);
}

static bool set_choice(void *at, const struct setting *s, const char *text)
{
	for (unsigned i = 0; s->choices[i]; i++)
		if (streq(s->choices[i], text)) {
			*(unsigned *)at = s->choices == levels ? level_values[i] : i;
			return true;
		}
	return false;
}

/* 1: not of the form, or one too many. */
static int add_rule(struct config *c, const char *text)
{
	_cleanup_free_ char *group = NULL, *unit = NULL;
	int r;

	if (sscanf(text, "group:%m[^ \t] unit=%m[^ \t]", &group, &unit) != 2)
		return 1;
	if (c->n_rules >= MAX_RULES)
		return 1;
	r = ARRAY_GROW(c->rules, c->cap_rules, c->n_rules + 1);
	if (r < 0)
		return r;
	c->rules[c->n_rules].group = TAKE_PTR(group);
	c->rules[c->n_rules++].unit = TAKE_PTR(unit);
	return 0;
}

/* Anything else would be asked for as a host of the local domain. */
static bool are_urls(const char *text)
{
	while (*text) {
		const char *host = str_skip_prefix(text, "http://");
		size_t n = strcspn(text, " ");

		host = host ?: str_skip_prefix(text, "https://");
		if (!host || !strcspn(host, " /:?#"))
			return false;
		/* A second one, behind a comma or a tab. */
		if (memmem(host, n - (size_t)(host - text), "://", 3))
			return false;
		text += n;
		text += strspn(text, " ");
	}
	return true;
}

static int set_text(char **at, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		return -ENOMEM;
	free(*at);
	*at = copy;
	return 0;
}

/* 0, 1: the text does not fit the setting, -ENOMEM. */
static int set_value(struct config *c, const struct setting *s, const char *text)
{
	void *at = (char *)c + s->offset;

	switch (s->kind) {
	case KIND_BOOL:
		return !parse_bool(text, at);
	case KIND_SHARE:
		return !set_share(at, s, text);
	case KIND_CHOICE:
		return !set_choice(at, s, text);
	case KIND_RULE:
		return add_rule(c, text);
	case KIND_TEXT:
	case KIND_URLS:
		if (strlen(text) >= 4096 || (!*text && *s->initial))
			return 1;
		return s->kind == KIND_URLS && !are_urls(text) ? 1 : set_text(at, text);
	default:
		return !set_number(at, s, text);
	}
}

/* ---- files ----------------------------------------------------------------------------------- */

static char *strip(char *s)
{
	char *end;

	while (*s == ' ')
		s++;
	end = s + strlen(s);
	while (end > s && end[-1] == ' ')
		*--end = 0;
	return s;
}

static const struct setting *find_setting(const char *section, const char *key)
{
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
		if (streq(settings[i].section, section) && streq(settings[i].key, key))
			return &settings[i];
	return NULL;
}

static bool known_section(const char *section)
{
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
		if (streq(settings[i].section, section))
			return true;
	return false;
}

static void complain_unknown(struct strbuf *problems, const char *section, const char *key)
{
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
		if (streq(settings[i].key, key)) {
			strbuf_printf(problems, "%s belongs into section [%s]; ignored\n", key,
				      settings[i].section);
			return;
		}
	strbuf_printf(problems, "unknown key %s in section [%s]; ignored\n", key, section);
}

#define SECTION_MAX 32

/* 0 or 1 problem. */
static int parse_section(char *line, char section[SECTION_MAX], const char *where,
			 struct strbuf *problems)
{
	size_t n = strlen(line);

	if (n < 3 || line[n - 1] != ']' || n - 2 >= SECTION_MAX) {
		strbuf_printf(problems, "%s: expected [section]\n", where);
		return 1;
	}
	memcpy(section, line + 1, n - 2);
	section[n - 2] = 0;
	if (known_section(section))
		return 0;
	strbuf_printf(problems, "%s: unknown section [%s]; ignored\n", where, section);
	return 1;
}

/* The number of problems (0 or 1) or -errno. A section line changes `section`. */
static int parse_line(struct config *c, char *line, char section[SECTION_MAX], const char *where,
		      struct strbuf *problems)
{
	const struct setting *s;
	char *value;
	int r;

	line = strip(line);
	if (!*line || *line == '#' || *line == ';')
		return 0;
	if (*line == '[')
		return parse_section(line, section, where, problems);
	value = strchr(line, '=');
	if (!value) {
		strbuf_printf(problems, "%s: expected key=value\n", where);
		return 1;
	}
	*value++ = 0;
	line = strip(line);
	value = strip(value);
	s = find_setting(section, line);
	if (!s) {
		if (section[0] && !known_section(section))
			return 0; /* the section was reported */
		strbuf_printf(problems, "%s: ", where);
		complain_unknown(problems, section, line);
		return 1;
	}
	r = set_value(c, s, value);
	if (r <= 0)
		return r;
	strbuf_printf(problems, "%s: %s=%s: expected ", where, line, value);
	expect(problems, s);
	strbuf_puts(problems, "; ignored\n");
	return 1;
}

static int load_file(struct config *c, const char *path, bool required, struct strbuf *problems)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	_cleanup_free_ char *text = NULL;
	char section[SECTION_MAX] = "", *next;
	int n = 0, number = 0, r;

	r = read_file_at(AT_FDCWD, path, MAX_FILE_BYTES, &b);
	if (r == -ENOENT && !required)
		return 0;
	if (r < 0) {
		strbuf_printf(problems, "%s: cannot read: %s\n", path,
			      r == -EFBIG ? "larger than 256 KiB" : strerror(-r));
		return 1;
	}
	text = malloc(b.len * 3 + 1);
	if (!text)
		return -ENOMEM;
	for (char *line = b.data; line && *line; line = next) {
		char where[4200];

		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		for (char *p = line; *p; p++)
			if (*p == '\t' || *p == '\r')
				*p = ' ';
		utf8_sanitize(text, b.len * 3 + 1, line, strlen(line));
		snprintf(where, sizeof(where), "%s:%d", path, ++number);
		r = parse_line(c, text, section, where, problems);
		if (r < 0)
			return r;
		n += r;
	}
	return n;
}

int config_load(struct config *c, const char *path, bool required, struct strbuf *problems)
{
	_cleanup_free_ char *pattern = NULL;
	glob_t g = {};
	int n, r = 0;

	n = load_file(c, path, required, problems);
	if (n < 0)
		return n;
	if (asprintf(&pattern, "%s.d/*.conf", path) < 0)
		return -ENOMEM;
	if (glob(pattern, 0, NULL, &g) == 0) {
		for (size_t i = 0; r >= 0 && i < MIN(g.gl_pathc, (size_t)MAX_DROP_INS); i++) {
			r = load_file(c, g.gl_pathv[i], true, problems);
			n += MAX(r, 0);
		}
		if (g.gl_pathc > MAX_DROP_INS) {
			strbuf_printf(problems, "%s.d: only the first %d drop-ins are read\n", path,
				      MAX_DROP_INS);
			n++;
		}
	}
	globfree(&g);
	return r < 0 ? r : n;
}

int config_new(struct config **ret)
{
	_cleanup_(config_free_p) struct config *c = new0(struct config, 1);

	if (!c)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		int r;

		if (settings[i].kind == KIND_RULE)
			continue;
		r = set_value(c, &settings[i], settings[i].initial);
		if (r < 0)
			return r;
		assert(r == 0);
	}
	*ret = TAKE_PTR(c);
	return 0;
}

static bool value_equal(const struct setting *s, const void *a, const void *b)
{
	switch (s->kind) {
	case KIND_BOOL:
		return *(const bool *)a == *(const bool *)b;
	case KIND_CHOICE:
		return *(const unsigned *)a == *(const unsigned *)b;
	case KIND_REAL:
	case KIND_SHARE:
		return *(const double *)a == *(const double *)b;
	case KIND_TEXT:
	case KIND_URLS:
		return streq(*(char *const *)a, *(char *const *)b);
	case KIND_RULE:
		break;
	default:
		return *(const uint64_t *)a == *(const uint64_t *)b;
	}
	assert(false);
	return false;
}

bool config_section_equal(const struct config *a, const struct config *b, const char *section)
{
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		size_t at = settings[i].offset;

		if (streq(settings[i].section, section) &&
		    !value_equal(&settings[i], (const char *)a + at, (const char *)b + at))
			return false;
	}
	return true;
}

struct config *config_free(struct config *c)
{
	if (!c)
		return NULL;
	for (size_t i = 0; i < c->n_rules; i++) {
		free(c->rules[i].group);
		free(c->rules[i].unit);
	}
	free(c->rules);
	free(c->state_directory);
	free(c->debuginfod_urls);
	free(c->socket);
	free(c->group);
	free(c);
	return NULL;
}

int config_print_sample(FILE *f)
{
	const char *section = "";

	fprintf(f, "# Configuration of sysprofd. Every line shows a default; remove the # to "
		   "change it.\n"
		   "# Drop-ins: sysprofd.conf.d/*.conf. Check with: sysprofd --check-config\n");
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		const struct setting *s = &settings[i];

		if (!streq(section, s->section))
			fprintf(f, "\n[%s]\n", section = s->section);
		fprintf(f, "# %s", s->help);
		if (s->min)
			fprintf(f, " From %s to %s.", s->min, s->max);
		fprintf(f, "\n#%s=%s\n", s->key, s->initial);
	}
	return ferror(f) ? -EIO : 0;
}
