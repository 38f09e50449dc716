// SPDX-License-Identifier: GPL-2.0-or-later
#include <ctype.h>
#include <math.h>
#include <stdio.h>

#include "ctl/options.h"
#include "ctl/time.h"
#include "model/hardware.h"

#define ROWS_MAX 10000 /* what the daemon answers at most, */
#define LARGE_ROWS_MAX 1000 /* and of locks and series, of which each is large */
#define RATE_MAX 997.0
#define SECONDS_MAX 300.0

static const char *const command_names[COMMAND_N] = {
	[COMMAND_STATUS] = "status",	 [COMMAND_TOP] = "top",
	[COMMAND_FLAME] = "flame",	 [COMMAND_LOCKS] = "locks",
	[COMMAND_SERIES] = "series",	 [COMMAND_STACKS] = "stacks",
	[COMMAND_TYPES] = "types",	 [COMMAND_OFFCPU] = "offcpu",
	[COMMAND_LABELS] = "labels",	 [COMMAND_WATCH] = "watch",
	[COMMAND_RECORD] = "record",	 [COMMAND_SYSCALLS] = "syscalls",
	[COMMAND_COUNTERS] = "counters",
};

const char *command_name(enum command_id id)
{
	return command_names[id];
}

static const char *const dimensions[] = {
	[SYSPROFD__V1__DIMENSION__DIMENSION_FUNCTION] = "function",
	[SYSPROFD__V1__DIMENSION__DIMENSION_PROCESS] = "process",
	[SYSPROFD__V1__DIMENSION__DIMENSION_THREAD] = "thread",
	[SYSPROFD__V1__DIMENSION__DIMENSION_UNIT] = "unit",
	[SYSPROFD__V1__DIMENSION__DIMENSION_CONTAINER] = "container",
	[SYSPROFD__V1__DIMENSION__DIMENSION_POD] = "pod",
	[SYSPROFD__V1__DIMENSION__DIMENSION_BINARY] = "binary",
	[SYSPROFD__V1__DIMENSION__DIMENSION_STACK] = "stack",
	[SYSPROFD__V1__DIMENSION__DIMENSION_CAUSE] = "cause",
	[SYSPROFD__V1__DIMENSION__DIMENSION_SYSCALL] = "syscall",
	[SYSPROFD__V1__DIMENSION__DIMENSION_LOCK] = "lock",
};

const char *dimension_word(Sysprofd__V1__Dimension by)
{
	return (size_t)by < ARRAY_SIZE(dimensions) && dimensions[by] ? dimensions[by] : "all";
}

static const char *const calls_by_words[] = {
	[SYSPROFD__V1__SYSCALLS_BY__SYSCALLS_BY_SYSCALL] = "syscall",
	[SYSPROFD__V1__SYSCALLS_BY__SYSCALLS_BY_PROCESS] = "process",
	[SYSPROFD__V1__SYSCALLS_BY__SYSCALLS_BY_ERRNO] = "errno",
};

const char *calls_by_word(Sysprofd__V1__SyscallsBy by)
{
	return (size_t)by < ARRAY_SIZE(calls_by_words) && calls_by_words[by] ? calls_by_words[by]
									     : "syscall";
}

/* Known here too, so that a mistyped key is named before anything is asked. */
static const char *const filter_keys[] = {
	"comm",	  "exe",       "pid",	"tid",	     "thread",	 "uid",	   "unit",
	"cgroup", "container", "pod",	"namespace", "build-id", "binary", "function",
	"cause",  "syscall",   "errno", "lock",	     "state",	 "wait",   "idle",
};

void options_list_keys(struct strbuf *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(filter_keys); i++)
		strbuf_printf(out, "%s%s", i ? ", " : "", filter_keys[i]);
}

static bool is_filter_key(const char *key, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(filter_keys); i++)
		if (strlen(filter_keys[i]) == len && strncmp(filter_keys[i], key, len) == 0)
			return true;
	return false;
}

/* ---- one option each ------------------------------------------------------------------------- */

static int bad(struct strbuf *error, const char *option, const char *value, const char *expected)
{
	strbuf_printf(error, "%s %s: expected %s", option, value, expected);
	return -EINVAL;
}

static int set_socket(struct options *o, const char *v, struct strbuf *error)
{
	o->socket = v;
	return *v ? 0 : bad(error, "--socket", "''", "a path");
}

static int set_type(struct options *o, const char *v, struct strbuf *error)
{
	int type = profile_type_from_name(v);

	o->counters = o->command == COMMAND_TOP && streq(v, "counters");
	if (o->counters)
		return 0;
	if (type < 0)
		return bad(error, "--type", v,
			   o->command == COMMAND_TOP
				   ? "on-cpu, off-cpu, syscalls or futex, or counters"
				   : "on-cpu, off-cpu, syscalls or futex");
	o->type = (enum profile_type)type;
	o->type_given = true;
	return 0;
}

static int set_since(struct options *o, const char *v, struct strbuf *error)
{
	o->since = v;
	return 0;
}

static int set_until(struct options *o, const char *v, struct strbuf *error)
{
	o->until = v;
	return 0;
}

static int set_filter(struct options *o, const char *v, struct strbuf *error)
{
	size_t len = strcspn(v, "=!");
	bool negate = v[len] == '!';
	struct ctl_filter *f;
	int r;

	if (v[len + negate] != '=' || !v[len])
		return bad(error, "--filter", v, "KEY=GLOB or KEY!=GLOB");
	if (!is_filter_key(v, len)) {
		strbuf_printf(error, "--filter %s: no such key; keys are ", v);
		options_list_keys(error);
		return -EINVAL;
	}
	r = ARRAY_GROW(o->filters, o->cap_filters, o->n_filters + 1);
	if (r < 0)
		return r;
	f = &o->filters[o->n_filters++];
	*f = (struct ctl_filter){ .key = strndup(v, len),
				  .glob = strdup(v + len + negate + 1),
				  .negate = negate };
	return f->key && f->glob ? 0 : -ENOMEM;
}

static int set_by(struct options *o, const char *v, struct strbuf *error)
{
	for (size_t i = 1; i < ARRAY_SIZE(dimensions); i++)
		if (streq(v, dimensions[i])) {
			o->by = (Sysprofd__V1__Dimension)i;
			return 0;
		}
	return bad(error, "--by", v,
		   "function, process, thread, unit, container, pod, binary, stack, cause, syscall "
		   "or lock");
}

static int set_rows(struct options *o, const char *v, struct strbuf *error)
{
	bool large = o->command == COMMAND_LOCKS || o->command == COMMAND_SERIES;
	unsigned long n = 0;
	char *end = NULL;

	errno = 0;
	if (isdigit((unsigned char)*v))
		n = strtoul(v, &end, 10);
	if (!end || *end || errno || n < 1 || n > (large ? LARGE_ROWS_MAX : ROWS_MAX))
		return bad(error, "-n", v,
			   large ? "a number from 1 to 1000" : "a number from 1 to 10000");
	o->rows = (uint32_t)n;
	o->rows_given = true;
	return 0;
}

static int set_sort(struct options *o, const char *v, struct strbuf *error)
{
	if (!streq(v, "self") && !streq(v, "total"))
		return bad(error, "--sort", v, "self or total");
	o->by_total = streq(v, "total");
	return 0;
}

static int set_format(struct options *o, const char *v, struct strbuf *error)
{
	if (!streq(v, "text") && !streq(v, "json"))
		return bad(error, "--format", v, "text or json");
	o->json = streq(v, "json");
	return 0;
}

static int set_names(struct options *o, const char *v, struct strbuf *error)
{
	if (!streq(v, "full") && !streq(v, "short"))
		return bad(error, "--names", v, "full or short");
	o->short_names = streq(v, "short");
	return 0;
}

static int set_file_format(struct options *o, const char *v, struct strbuf *error)
{
	int format = export_format_from_name(v);

	o->table = o->command == COMMAND_RECORD && streq(v, "text");
	o->format_given = true;
	if (o->table)
		return 0;
	if (format < 0)
		return bad(error, "--format", v,
			   o->command == COMMAND_RECORD
				   ? "text, svg, html, folded, pprof or speedscope"
				   : "svg, html, folded, pprof or speedscope");
	o->format = (enum export_format)format;
	return 0;
}

static int set_output(struct options *o, const char *v, struct strbuf *error)
{
	o->output = v;
	return *v ? 0 : bad(error, "-o", "''", "a file name, or - for standard output");
}

static int set_step(struct options *o, const char *v, struct strbuf *error)
{
	if (duration_parse(v, &o->step_ns) < 0)
		return bad(error, "--step", v, "a duration such as 10s or 5min");
	o->step = v;
	return 0;
}

static bool parse_positive(const char *v, double min, double max, double *ret)
{
	char *end;
	double d = strtod(v, &end);

	if (!isdigit((unsigned char)*v) || *end || !isfinite(d) || d < min || d > max)
		return false;
	*ret = d;
	return true;
}

static int set_rate(struct options *o, const char *v, struct strbuf *error)
{
	return parse_positive(v, 1, RATE_MAX, &o->rate_hz)
		       ? 0
		       : bad(error, "-F", v, "a rate from 1 to 997 Hz");
}

static int set_event(struct options *o, const char *v, struct strbuf *error)
{
	o->event = v;
	return sample_event_from_name(v) >= 0
		       ? 0
		       : bad(error, "--event", v,
			     "cpu-clock, cycles, instructions, cache-misses or branch-misses");
}

static int set_seconds(struct options *o, const char *v, struct strbuf *error)
{
	uint64_t ns;

	if (duration_parse(v, &ns) < 0 || (double)ns / NSEC_PER_SEC > SECONDS_MAX)
		return bad(error, "-d", v, "up to 300 seconds");
	o->seconds = (double)ns / NSEC_PER_SEC;
	return 0;
}

static int set_calls_by(struct options *o, const char *v, struct strbuf *error)
{
	for (size_t i = 0; i < ARRAY_SIZE(calls_by_words); i++)
		if (calls_by_words[i] && streq(v, calls_by_words[i])) {
			o->calls_by = (Sysprofd__V1__SyscallsBy)i;
			return 0;
		}
	return bad(error, "--by", v, "syscall, process or errno");
}

static int set_idle(struct options *o, const char *v, struct strbuf *error)
{
	o->idle = true;
	return 0;
}

static int set_kernel(struct options *o, const char *v, struct strbuf *error)
{
	o->kernel = true;
	return 0;
}

static int set_wakers(struct options *o, const char *v, struct strbuf *error)
{
	o->wakers = true;
	return 0;
}

static int set_help(struct options *o, const char *v, struct strbuf *error)
{
	o->help = true;
	return 0;
}

static int set_version(struct options *o, const char *v, struct strbuf *error)
{
	o->version = true;
	return 0;
}

/* ---- tables ---------------------------------------------------------------------------------- */

#define IN(command) (1u << COMMAND_##command)
#define ANYWHERE 0xffffffffu
#define TEXT_COMMANDS                                                                          \
	(IN(STATUS) | IN(TOP) | IN(LOCKS) | IN(OFFCPU) | IN(SERIES) | IN(STACKS) | IN(TYPES) | \
	 IN(LABELS) | IN(WATCH) | IN(SYSCALLS) | IN(COUNTERS))
#define FILE_COMMANDS (IN(FLAME) | IN(RECORD))
#define SELECTIONS (RANGES | IN(OFFCPU) | IN(LOCKS) | IN(SYSCALLS) | IN(COUNTERS))
#define RANGES (IN(TOP) | IN(FLAME) | IN(SERIES) | IN(LABELS))

static const struct option_row {
	const char *name;
	char letter;
	bool flag; /* takes no value */
	unsigned commands;
	int (*set)(struct options *o, const char *value, struct strbuf *error);
} option_rows[] = {
	{ "socket", 0, false, ANYWHERE, set_socket },
	{ "help", 'h', true, ANYWHERE, set_help },
	{ "version", 0, true, ANYWHERE, set_version },
	{ "type", 0, false, RANGES | IN(WATCH), set_type },
	{ "since", 0, false, SELECTIONS, set_since },
	{ "until", 0, false, SELECTIONS, set_until },
	{ "filter", 0, false, SELECTIONS | IN(WATCH) | IN(RECORD), set_filter },
	{ "by", 0, false, IN(TOP) | IN(SERIES), set_by },
	{ "by", 0, false, IN(SYSCALLS), set_calls_by },
	{ "idle", 0, true, IN(OFFCPU), set_idle },
	{ "kernel", 0, true, IN(LOCKS), set_kernel },
	{ "wakers", 0, true, IN(FLAME), set_wakers },
	{ "rows", 'n', false,
	  IN(TOP) | IN(LOCKS) | IN(OFFCPU) | IN(SYSCALLS) | IN(COUNTERS) | IN(SERIES) | IN(LABELS) |
		  IN(STACKS),
	  set_rows },
	{ "sort", 0, false, IN(TOP), set_sort },
	{ "step", 0, false, IN(SERIES), set_step },
	{ "names", 0, false, IN(TOP) | FILE_COMMANDS, set_names },
	{ "format", 0, false, TEXT_COMMANDS, set_format },
	{ "format", 0, false, FILE_COMMANDS, set_file_format },
	{ "output", 'o', false, FILE_COMMANDS, set_output },
	{ "frequency", 'F', false, IN(RECORD), set_rate },
	{ "event", 'e', false, IN(RECORD), set_event },
	{ "duration", 'd', false, IN(RECORD), set_seconds },
};

/* An option as found: its row is chosen when the command is known. */
struct found {
	const char *word; /* as typed, for errors */
	const char *name; /* up to '='; NULL for a letter */
	size_t name_len;
	char letter;
	const char *value;
};

static bool names_row(const struct found *f, const struct option_row *row)
{
	if (!f->name)
		return row->letter == f->letter;
	return strlen(row->name) == f->name_len && strncmp(row->name, f->name, f->name_len) == 0;
}

static const struct option_row *find_row(const struct found *f, unsigned commands)
{
	for (size_t i = 0; i < ARRAY_SIZE(option_rows); i++)
		if (names_row(f, &option_rows[i]) && (option_rows[i].commands & commands))
			return &option_rows[i];
	return NULL;
}

/* A word that begins with '-' and is not an operand: "-" alone and "-5min" are. */
static bool is_option(const char *word)
{
	return word[0] == '-' && word[1] && !isdigit((unsigned char)word[1]);
}

/* Takes one option and its value from argv at *i. */
static int scan_option(int argc, char **argv, int *i, struct found *ret, struct strbuf *error)
{
	const char *word = argv[*i], *equals = NULL;
	struct found f = { .word = word };
	const struct option_row *row;

	if (word[1] == '-') {
		equals = strchr(word, '=');
		f.name = word + 2;
		f.name_len = equals ? (size_t)(equals - f.name) : strlen(f.name);
		f.value = equals ? equals + 1 : NULL;
	} else {
		f.letter = word[1];
		f.value = word[2] ? word + 2 : NULL;
	}
	row = find_row(&f, ANYWHERE);
	if (!row) {
		strbuf_printf(error, "unknown option %s", word);
		return -EINVAL;
	}
	if (row->flag && f.value) {
		strbuf_printf(error, "%s takes no value", word);
		return -EINVAL;
	}
	if (!row->flag && !f.value) {
		if (*i + 1 >= argc || is_option(argv[*i + 1])) {
			strbuf_printf(error, "%s needs a value", word);
			return -EINVAL;
		}
		f.value = argv[++*i];
	}
	*ret = f;
	return 0;
}

static int take_operand(struct options *o, const char *word, struct strbuf *error)
{
	if (o->command == COMMAND_NONE) {
		if (streq(word, "help")) {
			o->help = true;
			return 0;
		}
		for (int i = 1; i < COMMAND_N; i++)
			if (streq(word, command_names[i])) {
				o->command = (enum command_id)i;
				return 0;
			}
		strbuf_printf(error, "no command %s; see sysprofctl --help", word);
		return -EINVAL;
	}
	if (o->command == COMMAND_LABELS && !o->operand) {
		o->operand = word;
		if (is_filter_key(word, strlen(word)))
			return 0;
		strbuf_printf(error, "no label %s; labels are ", word);
		options_list_keys(error);
		return -EINVAL;
	}
	strbuf_printf(error, "unexpected argument %s", word);
	return -EINVAL;
}

/* Splits argv into options, kept in found[], and operands, taken at once. */
static int scan(int argc, char **argv, struct options *o, struct found *found, size_t *ret_n,
		struct strbuf *error)
{
	bool options_ended = false;
	size_t n = 0;
	int r = 0;

	for (int i = 1; i < argc && r >= 0; i++) {
		if (!options_ended && streq(argv[i], "--"))
			options_ended = true;
		else if (!options_ended && is_option(argv[i]))
			r = scan_option(argc, argv, &i, &found[n++], error);
		else
			r = take_operand(o, argv[i], error);
	}
	*ret_n = n;
	return r;
}

static int apply(struct options *o, const struct found *found, size_t n, struct strbuf *error)
{
	unsigned commands = o->command == COMMAND_NONE ? ANYWHERE : 1u << o->command;

	for (size_t i = 0; i < n; i++) {
		const struct option_row *row = find_row(&found[i], commands);
		int r;

		if (!row) {
			strbuf_printf(error, "%s has no option %s; see sysprofctl %s --help",
				      command_names[o->command], found[i].word,
				      command_names[o->command]);
			return -EINVAL;
		}
		r = row->set(o, found[i].value, error);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- what hangs together --------------------------------------------------------------------- */

static int parse_moment(const char *option, const char *text, uint64_t now, uint64_t *ret,
			struct strbuf *error)
{
	int r = time_parse(text, now, ret);

	if (r == -ERANGE)
		strbuf_printf(error, "%s %s: there is no such moment", option, text);
	else if (r < 0)
		return bad(error, option, text,
			   "a time such as now, -5min, 23:50, 'yesterday 14:00', @1700000000 or "
			   "2026-11-30T14:00");
	return r < 0 ? -EINVAL : 0;
}

static int resolve_range(struct options *o, uint64_t now, struct strbuf *error)
{
	int r;

	if (!o->until)
		o->until = "now";
	o->until_now = streq(o->until, "now");
	r = parse_moment("--until", o->until, now, &o->until_wall_ns, error);
	if (r < 0)
		return r;
	if (!o->since) {
		/* Before the end, wherever that is. */
		o->since = "-5min";
		o->since_wall_ns = o->until_wall_ns - MIN(o->until_wall_ns, DEFAULT_RANGE_NS);
		return 0;
	}
	r = parse_moment("--since", o->since, now, &o->since_wall_ns, error);
	if (r < 0)
		return r;
	if (o->since_wall_ns > o->until_wall_ns) {
		strbuf_printf(error, "--since %s is after --until %s", o->since, o->until);
		return -EINVAL;
	}
	return 0;
}

/* top --type counters is counters, by another name. */
static int resolve_counters(struct options *o, struct strbuf *error)
{
	if (!o->counters)
		return 0;
	if (o->by != SYSPROFD__V1__DIMENSION__DIMENSION_UNSPECIFIED &&
	    o->by != SYSPROFD__V1__DIMENSION__DIMENSION_PROCESS) {
		strbuf_printf(error, "--by %s: counters are those of processes",
			      dimension_word(o->by));
		return -EINVAL;
	}
	o->by = SYSPROFD__V1__DIMENSION__DIMENSION_UNSPECIFIED;
	o->by_total = o->short_names = false;
	o->command = COMMAND_COUNTERS;
	return 0;
}

/* A dimension that only one type has says which type is meant. */
static void resolve_type(struct options *o)
{
	if (o->command == COMMAND_LOCKS)
		o->type = PROFILE_FUTEX;
	if (o->command == COMMAND_OFFCPU || (o->wakers && !o->type_given))
		o->type = PROFILE_OFF_CPU;
	if (o->command == COMMAND_SYSCALLS)
		o->type = PROFILE_SYSCALLS;
	if (o->type_given)
		return;
	if (o->by == SYSPROFD__V1__DIMENSION__DIMENSION_SYSCALL)
		o->type = PROFILE_SYSCALLS;
	else if (o->by == SYSPROFD__V1__DIMENSION__DIMENSION_LOCK)
		o->type = PROFILE_FUTEX;
	else if (o->by == SYSPROFD__V1__DIMENSION__DIMENSION_CAUSE)
		o->type = PROFILE_OFF_CPU;
}

static void resolve_dimension(struct options *o)
{
	if (o->command == COMMAND_TOP && o->by == SYSPROFD__V1__DIMENSION__DIMENSION_UNSPECIFIED)
		o->by = o->type == PROFILE_SYSCALLS ? SYSPROFD__V1__DIMENSION__DIMENSION_SYSCALL
						    : SYSPROFD__V1__DIMENSION__DIMENSION_FUNCTION;
}

static bool is_text_path(const char *path)
{
	size_t len = strlen(path);

	return streq(path, "-") || (len > 4 && streq(path + len - 4, ".txt"));
}

static int resolve_output(struct options *o, struct strbuf *error)
{
	bool tables = o->command == COMMAND_RECORD;
	int format;

	if (!o->output) {
		strbuf_printf(error, "%s needs -o FILE", command_names[o->command]);
		return -EINVAL;
	}
	if (o->format_given)
		return 0;
	o->table = tables && is_text_path(o->output);
	if (o->table)
		return 0;
	format = export_format_from_path(o->output);
	if (format < 0) {
		strbuf_printf(error,
			      "-o %s: the ending tells no format (%s.svg .html .folded .pb.gz "
			      ".json); say --format %ssvg|html|folded|pprof|speedscope",
			      o->output, tables ? ".txt " : "", tables ? "text|" : "");
		return -EINVAL;
	}
	o->format = (enum export_format)format;
	return 0;
}

static int resolve(struct options *o, uint64_t now, struct strbuf *error)
{
	int r;

	if (o->command == COMMAND_NONE) {
		strbuf_puts(error, "no command is given; see sysprofctl --help");
		return -EINVAL;
	}
	r = resolve_counters(o, error);
	if (r < 0)
		return r;
	resolve_type(o);
	resolve_dimension(o);
	r = resolve_range(o, now, error);
	if (r >= 0 && (o->command == COMMAND_FLAME || o->command == COMMAND_RECORD))
		r = resolve_output(o, error);
	return r;
}

int options_parse(int argc, char **argv, uint64_t now_wall_ns, struct options *ret,
		  struct strbuf *error)
{
	_cleanup_(options_done) struct options o = { .socket = DEFAULT_SOCKET,
						     .rows = DEFAULT_ROWS };
	_cleanup_free_ struct found *found = new0(struct found, (size_t)MAX(argc, 1));
	size_t n = 0;
	int r;

	if (!found)
		return -ENOMEM;
	r = scan(argc, argv, &o, found, &n, error);
	if (r >= 0)
		r = apply(&o, found, n, error);
	if (r >= 0 && !o.help && !o.version)
		r = resolve(&o, now_wall_ns, error);
	if (r < 0)
		return r;
	*ret = o;
	o = (struct options){};
	return 0;
}

void options_done(struct options *o)
{
	for (size_t i = 0; i < o->n_filters; i++) {
		free(o->filters[i].key);
		free(o->filters[i].glob);
	}
	free(o->filters);
	*o = (struct options){};
}

/* ---- back to words --------------------------------------------------------------------------- */

/* As a shell would need it. */
static void put_word(struct strbuf *out, const char *word)
{
	bool plain = *word &&
		     strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				  "-_=./:@+,%") == strlen(word);

	if (plain) {
		strbuf_puts(out, word);
		return;
	}
	strbuf_putc(out, '\'');
	for (; *word; word++) {
		if (*word == '\'')
			strbuf_puts(out, "'\\''");
		else
			strbuf_putc(out, *word);
	}
	strbuf_putc(out, '\'');
}

void options_describe(const struct options *o, struct strbuf *out)
{
	bool top = o->command == COMMAND_TOP;

	if (1u << o->command & RANGES)
		strbuf_printf(out, "--type %s ", profile_type_name(o->type));
	if (o->idle)
		strbuf_puts(out, "--idle ");
	if (o->kernel)
		strbuf_puts(out, "--kernel ");
	if (o->wakers)
		strbuf_puts(out, "--wakers ");
	if (top || o->by != SYSPROFD__V1__DIMENSION__DIMENSION_UNSPECIFIED)
		strbuf_printf(out, "--by %s ", dimension_word(o->by));
	if (o->command == COMMAND_SYSCALLS)
		strbuf_printf(out, "--by %s ", calls_by_word(o->calls_by));
	strbuf_puts(out, "--since ");
	put_word(out, o->since);
	strbuf_puts(out, " --until ");
	put_word(out, o->until);
	if (o->step)
		strbuf_printf(out, " --step %s", o->step);
	if (top || o->rows_given)
		strbuf_printf(out, " -n %u", o->rows);
	if (top)
		strbuf_printf(out, " --sort %s", o->by_total ? "total" : "self");
	if (o->short_names)
		strbuf_puts(out, " --names short");
	for (size_t i = 0; i < o->n_filters; i++) {
		_cleanup_(strbuf_done) struct strbuf word = {};

		strbuf_printf(&word, "%s%s=%s", o->filters[i].key, o->filters[i].negate ? "!" : "",
			      o->filters[i].glob);
		strbuf_puts(out, " --filter ");
		put_word(out, word.data ?: "");
	}
}
