// SPDX-License-Identifier: GPL-2.0-or-later
#include "store/sql.h"

static int system_error(sqlite3 *db, int otherwise)
{
	int e = sqlite3_system_errno(db);

	return e == ENOSPC || e == EDQUOT ? -ENOSPC : e > 0 ? -e : otherwise;
}

int sql_error(sqlite3 *db, int rc)
{
	if (rc == SQLITE_IOERR_NOMEM)
		return -ENOMEM;
	switch (rc & 0xff) {
	case SQLITE_OK:
	case SQLITE_ROW:
	case SQLITE_DONE:
		return 0;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
	case SQLITE_PROTOCOL:
		return -EBUSY;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return -EBADMSG;
	case SQLITE_CANTOPEN:
		return system_error(db, -ENOENT);
	case SQLITE_READONLY:
		return -EROFS;
	case SQLITE_PERM:
	case SQLITE_AUTH:
		return -EACCES;
	case SQLITE_INTERRUPT:
		return -ECANCELED;
	case SQLITE_TOOBIG:
		return -E2BIG;
	case SQLITE_ERROR:
	case SQLITE_CONSTRAINT:
	case SQLITE_MISMATCH:
	case SQLITE_SCHEMA:
		/* Our statements are right, so the schema or the rows are not what we wrote. */
		return -EBADMSG;
	default:
		return system_error(db, -EIO);
	}
}

int sql_exec(sqlite3 *db, const char *text)
{
	return sql_error(db, sqlite3_exec(db, text, NULL, NULL, NULL));
}

int sql_prepare(sqlite3 *db, const char *text, sqlite3_stmt **ret)
{
	return sql_error(db,
			 sqlite3_prepare_v3(db, text, -1, SQLITE_PREPARE_PERSISTENT, ret, NULL));
}

int sql_step(sqlite3_stmt *s)
{
	int rc = sqlite3_step(s);

	if (rc == SQLITE_ROW)
		return 1;
	rc = sql_error(sqlite3_db_handle(s), rc);
	sqlite3_reset(s);
	return rc;
}

int sql_run(sqlite3_stmt *s)
{
	int r = sql_step(s);

	if (r > 0)
		sqlite3_reset(s);
	return r < 0 ? r : 0;
}

int sql_integer(sqlite3 *db, const char *text, int64_t otherwise, int64_t *ret)
{
	sqlite3_stmt *s = NULL;
	int r = sql_prepare(db, text, &s);

	if (r < 0)
		return r;
	r = sql_step(s);
	if (r > 0)
		*ret = sqlite3_column_type(s, 0) == SQLITE_NULL ? otherwise
								: sqlite3_column_int64(s, 0);
	else if (r == 0)
		*ret = otherwise;
	sqlite3_finalize(s);
	return r < 0 ? r : 0;
}

void sql_bind_u64(sqlite3_stmt *s, int i, uint64_t v)
{
	sqlite3_bind_int64(s, i, (int64_t)v);
}

void sql_bind_blob(sqlite3_stmt *s, int i, const void *data, size_t len)
{
	sqlite3_bind_blob64(s, i, data, len, SQLITE_STATIC);
}
