// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/io.h"
#include "ctl/file.h"
#include "ctl/functions.h"
#include "ctl/text.h"
#include "export/caption.h"
#include "export/escape.h"
#include "export/short-name.h"
#include "export/wire.h"

static void unlink_p(char **path)
{
	if (*path)
		unlink(*path);
	free(*path);
}

/* As open(2) would have created it: mkstemp() allows the owner alone. */
static int allow_by_umask(int fd)
{
	mode_t mask = umask(0);

	umask(mask);
	return fchmod(fd, 0666 & ~mask) < 0 ? negative_errno() : 0;
}

/* Beside the target and renamed onto it, so that nobody ever sees half of it. */
static int replace_file(const char *path, const struct strbuf *b)
{
	_cleanup_(unlink_p) char *temporary = NULL;
	_cleanup_close_ int fd = -1;
	char *name;
	int r;

	if (asprintf(&name, "%s.XXXXXX", path) < 0)
		return -ENOMEM;
	fd = mkstemp(name);
	if (fd < 0) {
		r = negative_errno();
		free(name);
		return r;
	}
	temporary = name;
	r = write_full(fd, b->data, b->len);
	if (r >= 0)
		r = allow_by_umask(fd);
	if (r < 0)
		return r;
	if (rename(temporary, path) < 0)
		return negative_errno();
	free(temporary);
	temporary = NULL;
	return 0;
}

/* A FIFO, a terminal, /dev/stdout, a symbolic link: written into, not replaced. */
static int write_into(const char *path, const struct strbuf *b)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_TRUNC | O_NOCTTY | O_CLOEXEC);

	if (fd < 0)
		return negative_errno();
	return write_full(fd, b->data, b->len);
}

static int write_file(const char *path, const struct strbuf *b)
{
	struct stat st;

	if (streq(path, "-"))
		return write_full(STDOUT_FILENO, b->data, b->len);
	if (lstat(path, &st) < 0)
		return errno == ENOENT ? replace_file(path, b) : negative_errno();
	return S_ISREG(st.st_mode) ? replace_file(path, b) : write_into(path, b);
}

/* "on-cpu of HOST, comm=nginx". */
static void make_title(const struct options *o, const struct profile *p,
		       const Sysprofd__V1__Host *host, struct strbuf *out)
{
	strbuf_puts(out, profile_type_name(p->type));
	if (host && !str_empty(host->host_name))
		strbuf_printf(out, " of %s", host->host_name);
	for (size_t i = 0; i < o->n_filters; i++)
		strbuf_printf(out, ", %s%s=%s", o->filters[i].key, o->filters[i].negate ? "!" : "",
			      o->filters[i].glob);
}

static void report(const struct options *o, const struct profile *p)
{
	_cleanup_(strbuf_done) struct strbuf text = {}, line = {};
	bool to_stdout = streq(o->output, "-");

	if (to_stdout && o->table)
		return; /* it says so itself */
	strbuf_printf(&text, "%s: %s, ", to_stdout ? "standard output" : o->output,
		      o->table ? "text" : export_format_name(o->format));
	caption_what(p, &text);
	strbuf_puts(&text, "; ");
	caption_when(p, &text);
	strbuf_puts(&text, "; ");
	caption_missing(p, &text);
	if (p->columns.n == 0)
		strbuf_puts(&text, p->covered_ns ? "; idle: recorded, and nothing matches" : "");
	escape_utf8(&line, text.data ?: "");
	strbuf_putc(&line, '\n');
	if (text.error || line.error)
		return;
	if (to_stdout)
		fputs(line.data, stderr);
	else
		text_output(&line);
}

static int make_table(const struct options *o, const struct profile *p, const char *title,
		      struct strbuf *out)
{
	struct text text = { .utf8 = true };

	if (streq(o->output, "-"))
		text_init(&text, STDOUT_FILENO);
	return functions_text(p, title, &text, out);
}

int file_write_profile(const struct options *o, const Sysprofd__V1__Profile *m,
		       const Sysprofd__V1__Host *host)
{
	_cleanup_(profile_free_p) struct profile *p = NULL;
	_cleanup_(strbuf_done) struct strbuf bytes = {}, title = {};
	int r = m ? wire_profile_unpack(m, &p) : -EBADMSG;

	if (r < 0) {
		complain("the daemon's profile cannot be read: %s", strerror(-r));
		return CTL_FAILED;
	}
	make_title(o, p, host, &title);
	r = strbuf_error(&title);
	if (r >= 0 && o->short_names)
		r = short_names(p->dict);
	if (r >= 0)
		r = o->table ? make_table(o, p, title.data, &bytes)
			     : export_profile(p, o->format, title.data, &bytes);
	if (r >= 0)
		r = write_file(o->output, &bytes);
	if (r < 0) {
		complain("%s: %s", o->output, strerror(-r));
		return CTL_FAILED;
	}
	report(o, p);
	return CTL_ANSWERED;
}
