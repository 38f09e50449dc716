/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SQLite with errors as this project has them. */
#pragma once

#include <sqlite3.h>

#include "base/util.h"

/*
 * -EBADMSG: the file is damaged. -ENOSPC: no room, on the disk or below max_page_count. -EIO, -ENOMEM, -EBUSY;
 * -ENOENT and other errors of open(2). Only -EBADMSG ever condemns a file.
 */
int sql_error(sqlite3 *db, int rc);

/* One or more statements without results. */
int sql_exec(sqlite3 *db, const char *text) _warn_unused_;
int sql_prepare(sqlite3 *db, const char *text, sqlite3_stmt **ret) _warn_unused_;
/* 1: a row, 0: the end. The statement is reset on the end and on errors. */
int sql_step(sqlite3_stmt *s) _warn_unused_;
/* A statement without rows. */
int sql_run(sqlite3_stmt *s) _warn_unused_;
/* The first column of the first row as an integer; `otherwise` where there is none. */
int sql_integer(sqlite3 *db, const char *text, int64_t otherwise, int64_t *ret) _warn_unused_;

void sql_bind_u64(sqlite3_stmt *s, int i, uint64_t v);
/* The memory must stay until the statement is reset. */
void sql_bind_blob(sqlite3_stmt *s, int i, const void *data, size_t len);
