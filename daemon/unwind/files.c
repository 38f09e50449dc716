// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Tables by file, for processes that are not installed. One binary may lie in many files: each container has its own
 * copy of the C library. Where there is no room the file that was added first goes; the walk asks for it again.
 */
#include <bpf/bpf.h>

#include "unwind/internal.h"

struct file_slot {
	struct unwind_file_key key;
	const struct installed *table; /* NULL: free */
};

int files_new(struct unwinder *u)
{
	u->files_fd = bpf_map_create(BPF_MAP_TYPE_HASH, "unwind_files",
				     sizeof(struct unwind_file_key), sizeof(struct unwind_file),
				     UNWINDER_FILES_MAX, NULL);
	if (u->files_fd < 0)
		return negative_errno();
	u->strangers_fd = bpf_map_create(BPF_MAP_TYPE_HASH, "unwind_stranger",
					 sizeof(struct unwind_file_key),
					 sizeof(struct unwind_stranger), STRANGERS_MAX, NULL);
	if (u->strangers_fd < 0)
		return negative_errno();
	return 0;
}

void files_done(struct unwinder *u)
{
	close_fd(u->files_fd);
	close_fd(u->strangers_fd);
	free(u->files);
}

/* That of the same file, one more, or that of the oldest. */
static struct file_slot *take_slot(struct unwinder *u, const struct unwind_file_key *key)
{
	struct file_slot *slot;

	for (size_t i = 0; i < u->n_files; i++)
		if (u->files[i].table && memcmp(&u->files[i].key, key, sizeof(*key)) == 0)
			return &u->files[i];
	if (u->n_files < UNWINDER_FILES_MAX) {
		if (ARRAY_GROW(u->files, u->cap_files, u->n_files + 1) < 0)
			return NULL;
		return &u->files[u->n_files++];
	}
	slot = &u->files[u->oldest_file];
	u->oldest_file = (u->oldest_file + 1) % UNWINDER_FILES_MAX;
	if (slot->table)
		bpf_map_delete_elem(u->files_fd, &slot->key);
	return slot;
}

void files_add(struct unwinder *u, const struct installed *t, const struct unwind_file_key *key)
{
	struct unwind_file value = { .root = t->root };
	struct file_slot *slot = take_slot(u, key);

	if (!slot)
		return;
	slot->table = NULL;
	for (size_t i = 0; i < t->n_segments && i < UNWIND_FILE_SEGMENTS; i++) {
		value.segment[i].offset = t->segments[i].offset;
		value.segment[i].size = t->segments[i].size;
		value.segment[i].pc = t->segments[i].pc;
		value.n++;
	}
	if (bpf_map_update_elem(u->files_fd, key, &value, BPF_ANY) < 0) {
		/* What was there before is no longer kept track of. */
		bpf_map_delete_elem(u->files_fd, key);
		return;
	}
	slot->key = *key;
	slot->table = t;
}

void files_forget(struct unwinder *u, const struct installed *t)
{
	for (size_t i = 0; i < u->n_files; i++) {
		if (u->files[i].table != t)
			continue;
		bpf_map_delete_elem(u->files_fd, &u->files[i].key);
		u->files[i].table = NULL;
	}
}

bool unwinder_stranger(struct unwinder *u, struct unwind_file_key *ret_file,
		       struct unwind_stranger *ret)
{
	if (bpf_map_get_next_key(u->strangers_fd, NULL, ret_file) < 0)
		return false;
	if (bpf_map_lookup_elem(u->strangers_fd, ret_file, ret) < 0)
		*ret = (struct unwind_stranger){};
	bpf_map_delete_elem(u->strangers_fd, ret_file);
	return true;
}

void unwinder_file(struct unwinder *u, uint64_t binary, uint64_t author,
		   const struct unwind_file_key *file, uint32_t owner)
{
	const struct installed *t;

	if (author != 0 && author != owner)
		return;
	pthread_mutex_lock(&u->lock);
	t = installed_find(u, binary);
	if (t && t->file_size == file->size &&
	    (t->root || (t->state == INSTALLED_LACKING && !t->retry_mono_ns)))
		files_add(u, t, file);
	pthread_mutex_unlock(&u->lock);
}
