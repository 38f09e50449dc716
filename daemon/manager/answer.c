// SPDX-License-Identifier: GPL-2.0-or-later
/* What the server asks for while it answers; on its worker threads. */
#include "base/clock.h"
#include "manager/internal.h"

#define SNAPSHOT_NS (2 * NSEC_PER_SEC)
#define WORK_AGE_NS (60 * NSEC_PER_SEC)
#define NAMES_NS (800 * NSEC_PER_MSEC)

int manager_snapshot(void *ctx, struct recent *ret)
{
	struct manager *m = ctx;
	struct filled f = {};
	struct recent recent = {};
	int r;

	r = recorder_snapshot(m->recorder, SNAPSHOT_NS, &f);
	/* A host too busy for that is the one that is asked about: then up to the last closed bucket. */
	if (r < 0 && r != -ETIME)
		return r;
	if (r == 0) {
		symbolizer_name(m->symbolizer, f.bucket->dict, f.binary_keys, f.n_keys,
				mono_now_ns() + NAMES_NS);
		recent.open = TAKE_PTR(f.bucket);
	}
	filled_done(&f);
	/* After the open one: a bucket that closes in between is in both, and counted once. */
	r = archive_recent(m->archive, mono_now_ns() + NAMES_NS, &recent);
	if (r < 0) {
		recent_done(&recent);
		return r;
	}
	*ret = recent;
	return 0;
}

int manager_put_work(void *ctx, const char *name, const char *const *labels, size_t n_labels,
		     uint64_t count, uint64_t wall_ns, bool privileged)
{
	struct manager *m = ctx;
	uint64_t now = wall_now_ns();

	/* Units belong to the open bucket: a report about another time has none. */
	if (wall_ns + WORK_AGE_NS < now || wall_ns > now + WORK_AGE_NS)
		return -EINVAL;
	return work_add(&m->work, name, labels, n_labels, count, privileged);
}
