// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/io.h"
#include "helper/child.h"

static int close_others(int fd)
{
	int null;

	/* The daemon's descriptors are close-on-exec; this is for those that are not. */
	if (fd > 3 && syscall(SYS_close_range, 3, fd - 1, 0) < 0 && errno != ENOSYS)
		return negative_errno();
	if (syscall(SYS_close_range, MAX(fd + 1, 3), ~0U, 0) < 0 && errno != ENOSYS)
		return negative_errno();
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
		return negative_errno();
	for (int i = 0; i < 3; i++) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
		/* Reports of sanitizers must be seen. */
		if (i == 2)
			continue;
#endif
		if (dup2(null, i) < 0)
			return negative_errno();
	}
	close_fd(null);
	return 0;
}

/* Where memory is short, it is not the daemon that gives way: it shares its limit with the helpers. */
static int give_way(void)
{
	_cleanup_close_ int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	return fd < 0 ? negative_errno() : write_full(fd, "1000", 4);
}

int helper_begin(const char *how, const char *name, size_t message_max, struct channel *ret,
		 uint64_t *ret_memory)
{
	unsigned long long memory;
	int fd, r;

	if (sscanf(how, "%d:%llu", &fd, &memory) != 2 || fd < 3)
		return -EINVAL;
	r = close_others(fd);
	if (r >= 0)
		r = channel_init(ret, fd, message_max);
	if (r < 0)
		return r;
	/* Without that it is the larger one. */
	(void)give_way();
	prctl(PR_SET_NAME, name);
	*ret_memory = memory;
	return 0;
}
