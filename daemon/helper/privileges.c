// SPDX-License-Identifier: GPL-2.0-or-later
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "helper/privileges.h"

/* Nobody's: no account of ours is needed. */
#define NOBODY 65534

int privileges_limit(int resource, uint64_t value)
{
	struct rlimit l = { value, value };

	return prlimit(0, (enum __rlimit_resource)resource, &l, NULL) < 0 ? negative_errno() : 0;
}

static int capabilities(struct __user_cap_data_struct ret[2])
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return syscall(SYS_capget, &head, ret) < 0 ? negative_errno() : 0;
}

static void drop_bounding_set(void)
{
	for (unsigned long c = 0; prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++)
		(void)prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
}

/* A daemon that could not kill it any more must share its user with it. */
static void leave_user(void)
{
	struct __user_cap_data_struct has[2] = {};

	if (capabilities(has) < 0 || !(has[0].effective & 1U << CAP_KILL))
		return;
	(void)setgroups(0, NULL);
	if (setresgid(NOBODY, NOBODY, NOBODY) < 0)
		return;
	(void)setresuid(NOBODY, NOBODY, NOBODY);
}

static int drop_capabilities(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = {}, has[2];
	int r;

	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &head, none) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return negative_errno();
	r = capabilities(has);
	return r < 0 ? r : memcmp(has, none, sizeof(none)) == 0 ? 0 : -EPERM;
}

int privileges_drop_all(void)
{
	drop_bounding_set();
	leave_user();
	return drop_capabilities();
}
