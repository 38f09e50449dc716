/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Units of work that services reported: a table of its own, since they are few and not sampled. A row is one
 * (bucket, name{labels}) and its units.
 */
#pragma once

#include "model/profile.h"
#include "store/sql.h"

#define WORK_SCHEMA                                                                           \
	"CREATE TABLE work(seq INTEGER NOT NULL, text TEXT NOT NULL, units INTEGER NOT NULL," \
	" PRIMARY KEY(seq, text)) WITHOUT ROWID;"

/* Inside the transaction that stores the bucket. */
int work_write(sqlite3 *db, const struct bucket *b) _warn_unused_;
/* Adds the rows of the bucket to its COLUMNS_WORK. */
int work_read(sqlite3 *db, struct bucket *b) _warn_unused_;
/* Forgets the rows of buckets that are gone: those before the oldest that is left. */
int work_prune(sqlite3 *db) _warn_unused_;
