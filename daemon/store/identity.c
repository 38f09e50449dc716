// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

#include "base/io.h"
#include "store/format.h"
#include "store/identity.h"

#define FILE_NAME "store.id"
#define NEW_NAME "store.id.new"
#define FILE_LIMIT 4096

int identity_new(struct identity *ret)
{
	uint8_t random[16];
	struct identity id = { .next_seq = 1, .reserved_seq = 1 };

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return negative_errno();
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(id.uuid + 2 * i, 3, "%02x", random[i]);
	*ret = id;
	return 0;
}

int identity_load(int directory_fd, struct identity *ret)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	struct identity id = {};
	int version, r;

	r = read_file_at(directory_fd, FILE_NAME, FILE_LIMIT, &b);
	if (r < 0)
		return r == -EFBIG ? -EBADMSG : r;
	if (!b.data ||
	    sscanf(b.data,
		   "sysprofd-store %d\nuuid %32[0-9a-f]\nnext %" SCNu64 "\nreserved %" SCNu64
		   "\ntrusted %" SCNu64,
		   &version, id.uuid, &id.next_seq, &id.reserved_seq, &id.trusted_wall_ns) != 5)
		return -EBADMSG;
	if (version != STORE_VERSION || strlen(id.uuid) != STORE_UUID_MAX - 1 || id.next_seq == 0 ||
	    id.next_seq > id.reserved_seq || id.reserved_seq > SEQ_MAX)
		return -EBADMSG;
	*ret = id;
	return 0;
}

int identity_save(int directory_fd, const struct identity *id)
{
	_cleanup_close_ int fd = -1;
	char text[256];
	int n, r;

	n = snprintf(text, sizeof(text),
		     "sysprofd-store %d\nuuid %s\nnext %" PRIu64 "\nreserved %" PRIu64
		     "\ntrusted %" PRIu64 "\n",
		     STORE_VERSION, id->uuid, id->next_seq, id->reserved_seq, id->trusted_wall_ns);
	fd = openat(directory_fd, NEW_NAME, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
		    0600);
	if (fd < 0)
		return negative_errno();
	r = write_full(fd, text, (size_t)n);
	if (r >= 0 && fsync(fd) < 0)
		r = negative_errno();
	if (r >= 0 && renameat(directory_fd, NEW_NAME, directory_fd, FILE_NAME) < 0)
		r = negative_errno();
	if (r >= 0 && fsync(directory_fd) < 0)
		r = negative_errno();
	if (r < 0)
		(void)unlinkat(directory_fd, NEW_NAME, 0);
	return r < 0 ? r : 0;
}
