// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The order is that of what each step takes away from the next: namespaces and the root need CAP_SYS_ADMIN, the
 * user CAP_SETUID, then the capabilities go, then the system calls.
 *
 * Under sanitizers the host's root and all system calls stay: their runtimes read /proc, and write reports.
 */
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "helper/privileges.h"
#include "parser/sandbox.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WATCHED 1
#else
#define WATCHED 0
#endif

#define FILE_BYTES_MAX (128U << 20) /* of memory files: unwind tables */
#define DESCRIPTORS_MAX 32

/* ---- limits -------------------------------------------------------------------------------------- */

static int set_limits(uint64_t memory)
{
	int r = privileges_limit(RLIMIT_NOFILE, DESCRIPTORS_MAX);

	if (r >= 0)
		r = privileges_limit(RLIMIT_FSIZE, FILE_BYTES_MAX);
	if (r >= 0)
		r = privileges_limit(RLIMIT_NPROC, 0);
	/* A core file would hold parts of a stranger's file. */
	if (r >= 0)
		r = privileges_limit(RLIMIT_CORE, 0);
	if (r >= 0 && memory && !WATCHED)
		r = privileges_limit(RLIMIT_AS, memory);
	return r;
}

/* ---- what can be seen ------------------------------------------------------------------------------ */

/* An empty directory that nobody can write becomes all there is. */
static void leave_root(void)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("none", "/proc", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
		  "size=4k,nr_inodes=1,mode=0500") < 0)
		return;
	if (chdir("/proc") < 0)
		return;
	/* The first root of a boot cannot be put away. */
	if (syscall(SYS_pivot_root, ".", ".") < 0 ? chroot(".") < 0 : umount2(".", MNT_DETACH) < 0)
		return;
	(void)mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
		    NULL);
}

static void leave_namespaces(void)
{
	int spaces = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;

	/* Who may not do it as he is may do it in a user namespace, where the host allows that. */
	if (unshare(spaces) < 0 && unshare(spaces | CLONE_NEWUSER) < 0)
		return;
	if (!WATCHED)
		leave_root();
}

/* ---- what it can ask for --------------------------------------------------------------------------- */

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE AUDIT_ARCH_AARCH64
#else
#error "which architecture do system calls have here?"
#endif

/* The lower half of an argument, on a little-endian machine. */
#define ARG(n) offsetof(struct seccomp_data, args[n])
#define FIELD(at) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (at))
#define CALL offsetof(struct seccomp_data, nr)
#define IF(op, value, yes, no) BPF_JUMP(BPF_JMP | (op) | BPF_K, (value), (yes), (no))
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, (action))
#define ALLOW RETURN(SECCOMP_RET_ALLOW)
#define KILL RETURN(SECCOMP_RET_KILL_PROCESS)

#define ALLOWED(call) IF(BPF_JEQ, __NR_##call, 0, 1), ALLOW
/* Libraries look for files beside the one that they were given: there are none. */
#define ABSENT(call) IF(BPF_JEQ, __NR_##call, 0, 1), RETURN(SECCOMP_RET_ERRNO | ENOENT)
/* Allowed if the comparison is true of that argument. */
#define ALLOWED_IF(call, arg, op, value) \
	IF(BPF_JEQ, __NR_##call, 0, 4), FIELD(ARG(arg)), IF(op, value, 0, 1), ALLOW, KILL
#define ALLOWED_UNLESS(call, arg, op, value) \
	IF(BPF_JEQ, __NR_##call, 0, 4), FIELD(ARG(arg)), IF(op, value, 0, 1), KILL, ALLOW

static int limit_calls(void)
{
	struct sock_filter filter[] = {
		FIELD(offsetof(struct seccomp_data, arch)),
		IF(BPF_JEQ, NATIVE, 1, 0),
		KILL,
		FIELD(CALL),
		ALLOWED(read),
		ALLOWED(pread64),
		ALLOWED(write),
		ALLOWED(writev),
		ALLOWED(pwrite64),
		ALLOWED(recvmsg),
		ALLOWED(sendmsg),
#ifdef __NR_poll
		ALLOWED(poll),
#endif
		ALLOWED(ppoll),
		ALLOWED(restart_syscall),
		ALLOWED(fstat),
		ALLOWED(lseek),
		ALLOWED(close),
		ALLOWED(memfd_create),
		ALLOWED(ftruncate),
		ALLOWED(munmap),
		ALLOWED(mremap),
		ALLOWED(madvise),
		ALLOWED(brk),
		ALLOWED(futex),
		ALLOWED(clock_gettime),
		ALLOWED(getrandom),
		ALLOWED(getrusage),
		ALLOWED(sysinfo), /* of qsort() */
		ALLOWED(exit),
		ALLOWED(exit_group),
		ALLOWED(rt_sigreturn),
		ALLOWED(rt_sigaction),
		ALLOWED(rt_sigprocmask),
		ALLOWED(getpid),
		ALLOWED(gettid),
#ifdef __NR_getrlimit
		ALLOWED(getrlimit),
#endif
		ALLOWED_UNLESS(mmap, 2, BPF_JSET, PROT_EXEC),
		ALLOWED_UNLESS(mprotect, 2, BPF_JSET, PROT_EXEC),
		ALLOWED_UNLESS(fcntl, 1, BPF_JGT, F_GETFL),
		ALLOWED_IF(prlimit64, 0, BPF_JEQ, 0),
		ALLOWED_IF(tgkill, 0, BPF_JEQ, (uint32_t)getpid()),
		/* fstat() in other words. */
		IF(BPF_JEQ, __NR_newfstatat, 0, 4),
		FIELD(ARG(3)),
		IF(BPF_JSET, AT_EMPTY_PATH, 0, 1),
		ALLOW,
		RETURN(SECCOMP_RET_ERRNO | ENOENT),
		ABSENT(openat),
		ABSENT(readlinkat),
		ABSENT(faccessat),
#ifdef __NR_open
		ABSENT(open),
		ABSENT(access),
		ABSENT(readlink),
		ABSENT(stat),
		ABSENT(lstat),
#endif
		KILL,
	};
	struct sock_fprog program = { .len = ARRAY_SIZE(filter), .filter = filter };

	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0 ? negative_errno()
									      : 0;
}

int sandbox_enter(uint64_t memory)
{
	int r = set_limits(memory);

	if (r < 0)
		return r;
	leave_namespaces();
	r = privileges_drop_all();
	if (r < 0)
		return r;
	/* Both are lost with the user. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0)
		return negative_errno();
	return WATCHED ? 0 : limit_calls();
}
