// SPDX-License-Identifier: GPL-2.0-or-later
#include "store/work.h"

DEFINE_CLEANUP(sqlite3_stmt *, sqlite3_finalize)

int work_write(sqlite3 *db, const struct bucket *b)
{
	const struct columns *c = &b->columns[COLUMNS_WORK];
	_cleanup_(sqlite3_finalize_p) sqlite3_stmt *s = NULL;
	int r = 0;

	if (c->n == 0)
		return 0;
	r = sql_prepare(db, "INSERT OR REPLACE INTO work VALUES(?1, ?2, ?3)", &s);
	for (size_t i = 0; r >= 0 && i < c->n; i++) {
		uint32_t stack = c->stack[i];
		const char *text;

		if (stack >= b->dict->n_stacks || b->dict->stacks[stack].frame >= b->dict->n_frames)
			return -EINVAL;
		text = dict_str(b->dict, b->dict->frames[b->dict->stacks[stack].frame].name);
		sql_bind_u64(s, 1, b->meta.seq);
		sqlite3_bind_text(s, 2, text, -1, SQLITE_STATIC);
		sql_bind_u64(s, 3, MIN(c->count[i], (uint64_t)INT64_MAX));
		r = sql_run(s);
	}
	return r;
}

static int add_row(struct bucket *b, sqlite3_stmt *s)
{
	const char *text = (const char *)sqlite3_column_text(s, 0);
	int64_t units = sqlite3_column_int64(s, 1), frame, stack;

	if (!text || units < 0)
		return -EBADMSG;
	frame = dict_marker(b->dict, text);
	stack = frame < 0 ? frame : dict_stack(b->dict, 0, (uint32_t)frame);
	if (stack < 0)
		return (int)stack;
	return columns_add(&b->columns[COLUMNS_WORK], 0, (uint32_t)stack, 0, 0, (uint64_t)units, 0,
			   0);
}

int work_read(sqlite3 *db, struct bucket *b)
{
	_cleanup_(sqlite3_finalize_p) sqlite3_stmt *s = NULL;
	int r = sql_prepare(db, "SELECT text, units FROM work WHERE seq = ?1", &s);

	if (r < 0)
		return r;
	sql_bind_u64(s, 1, b->meta.seq);
	while ((r = sql_step(s)) > 0) {
		r = add_row(b, s);
		if (r < 0)
			return r;
	}
	return r;
}

int work_prune(sqlite3 *db)
{
	return sql_exec(db, "DELETE FROM work WHERE seq < (SELECT min(seq) FROM (SELECT seq FROM "
			    "recent UNION ALL"
			    " SELECT first FROM pack))");
}
