// SPDX-License-Identifier: GPL-2.0-or-later
/* Processes that enter the sandbox, and try what a parser that was taken over would. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/strbuf.h"
#include "parser/sandbox.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WATCHED true
#else
#define WATCHED false
#endif

#define MEMORY (1ULL << 30)

/* ---- what is tried: true when it went well --------------------------------------------------------- */

static bool try_open(void)
{
	return open("/etc/passwd", O_RDONLY) >= 0;
}

static bool try_list(void)
{
	DIR *d = opendir("/");

	return d && readdir(d);
}

static bool try_create(void)
{
	return open("/x", O_WRONLY | O_CREAT, 0600) >= 0;
}

static bool try_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM, 0) >= 0;
}

static bool try_exec(void)
{
	char *const argv[] = { (char *)"true", NULL };

	execv("/bin/true", argv);
	return execveat(3, "", argv, argv, AT_EMPTY_PATH) >= 0; /* what came as a descriptor */
}

static bool try_ptrace(void)
{
	return ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0;
}

static bool try_fork(void)
{
	return fork() >= 0;
}

static bool try_kill(void)
{
	return kill(getppid(), 0) == 0;
}

static bool try_abort_other(void)
{
	return syscall(SYS_tgkill, getppid(), getppid(), 0) == 0;
}

static bool try_limit_other(void)
{
	struct rlimit l = { 0, 0 };

	return prlimit(getppid(), RLIMIT_CORE, &l, NULL) == 0;
}

static bool try_user_namespace(void)
{
	return unshare(CLONE_NEWUSER) == 0;
}

static bool try_mount(void)
{
	return mount("none", "/", "tmpfs", 0, NULL) == 0;
}

static bool try_bpf(void)
{
	return syscall(SYS_bpf, 0, NULL, 0) >= 0;
}

static bool try_setuid(void)
{
	return setuid(0) == 0 && getuid() == 0;
}

static bool try_map_code(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
	       MAP_FAILED;
}

static bool try_make_code(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p != MAP_FAILED && mprotect(p, 4096, PROT_READ | PROT_EXEC) == 0;
}

/* getpid() of x32, and of i386. */
static bool try_x32(void)
{
	return syscall(0x40000000 | SYS_getpid) > 0;
}

static bool try_compat(void)
{
	long r = 20;

#ifdef __x86_64__
	__asm__ volatile("int $0x80" : "+a"(r)::"memory", "r8", "r9", "r10", "r11");
#else
	r = syscall(0x40000000 | 20);
#endif
	return r > 0;
}

static bool try_memory(void)
{
	return mmap(NULL, MEMORY, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) !=
	       MAP_FAILED;
}

static bool try_many_descriptors(void)
{
	for (int i = 0; i < 64; i++)
		if (dup(0) < 0 && fcntl(0, F_DUPFD, 3) < 0)
			return false;
	return true;
}

/* ---- processes that try it ------------------------------------------------------------------------- */

/* The wait status of a process that does it in the sandbox: exits with 0 if it did not go well. */
static int try(bool (*attempt)(void))
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL); /* not cmocka's */
		signal(SIGABRT, SIG_DFL);
		if (sandbox_enter(MEMORY) < 0)
			_exit(2);
		_exit(attempt());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void assert_fails(bool (*attempt)(void))
{
	assert_int_equal(try(attempt), 0);
}

static void assert_killed(bool (*attempt)(void))
{
	int status;

	if (WATCHED)
		return;
	status = try(attempt);
	assert_true(WIFSIGNALED(status));
	/* Where there are no calls of i386, the instruction is none. */
	assert_true(WTERMSIG(status) == SIGSYS ||
		    (WTERMSIG(status) == SIGSEGV && attempt == try_compat));
}

static void no_files(void **state)
{
	if (WATCHED)
		return;
	assert_fails(try_open);
	assert_fails(try_list);
	assert_fails(try_create);
}

static void no_other_calls(void **state)
{
	assert_killed(try_socket);
	assert_killed(try_exec);
	assert_killed(try_ptrace);
	assert_killed(try_fork);
	assert_killed(try_kill);
	assert_killed(try_abort_other);
	assert_killed(try_limit_other);
	assert_killed(try_user_namespace);
	assert_killed(try_mount);
	assert_killed(try_bpf);
	assert_killed(try_setuid);
	assert_killed(try_x32);
	assert_killed(try_compat);
}

static void no_code(void **state)
{
	assert_killed(try_map_code);
	assert_killed(try_make_code);
}

static void limits(void **state)
{
	if (WATCHED)
		return;
	assert_fails(try_memory);
	assert_killed(try_many_descriptors); /* dup() itself is none of its calls */
}

/* ---- what a parser does ---------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Larger than what qsort() sorts on the stack, so that it asks for the size of memory. */
static bool sort_much(void)
{
	size_t n = 1 << 20;
	int *v = malloc(n * sizeof(*v));

	for (size_t i = 0; v && i < n; i++)
		v[i] = (int)((i * 2654435761U) & 0xffffff);
	if (v)
		qsort(v, n, sizeof(*v), compare);
	free(v);
	return v != NULL;
}

static bool make_table(void)
{
	int fd = memfd_create("table", MFD_CLOEXEC);
	struct rusage u;
	struct rlimit l;
	void *p;

	if (fd < 0 || ftruncate(fd, 1 << 20) < 0)
		return false;
	p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return p != MAP_FAILED && munmap(p, 1 << 20) == 0 && lseek(fd, 0, SEEK_END) == 1 << 20 &&
	       getrusage(RUSAGE_SELF, &u) == 0 && getrlimit(RLIMIT_CPU, &l) == 0 &&
	       setrlimit(RLIMIT_CPU, &l) == 0;
}

static void assert_works(bool (*attempt)(void))
{
	int status = try(attempt);

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
}

static bool abort_it(void)
{
	abort();
}

static void what_it_needs(void **state)
{
	assert_works(sort_much);
	assert_works(make_table);
	/* A failed assertion of ours is no system call that is refused. */
	assert_int_equal(WTERMSIG(try(abort_it)), SIGABRT);
}

/* ---- what the kernel says about it ------------------------------------------------------------------- */

static void assert_status(const char *text, const char *line)
{
	if (!strstr(text, line))
		fail_msg("no %s in:\n%s", line, text);
}

static pid_t start_sleeper(void)
{
	int pair[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe(pair), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (sandbox_enter(MEMORY) < 0 || write(pair[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			(void)poll(NULL, 0, -1);
	}
	close_fd(pair[1]);
	assert_int_equal(read(pair[0], &c, 1), 1);
	close_fd(pair[0]);
	return pid;
}

static void the_kernel_agrees(void **state)
{
	_cleanup_(strbuf_done) struct strbuf b = {};
	pid_t pid = start_sleeper();
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	assert_int_equal(read_file_at(AT_FDCWD, path, 16384, &b), 0);
	assert_status(b.data, "CapInh:\t0000000000000000");
	assert_status(b.data, "CapPrm:\t0000000000000000");
	assert_status(b.data, "CapEff:\t0000000000000000");
	assert_status(b.data, "CapAmb:\t0000000000000000");
	assert_status(b.data, "NoNewPrivs:\t1");
	if (!WATCHED)
		assert_status(b.data, "Seccomp:\t2");
	if (geteuid() == 0) {
		assert_status(b.data, "CapBnd:\t0000000000000000");
		assert_status(b.data, "Uid:\t65534\t65534\t65534\t65534");
		assert_status(b.data, "Gid:\t65534\t65534\t65534\t65534");
		assert_status(b.data, "Groups:\t \n");
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static ssize_t entries(const char *path)
{
	struct dirent *e;
	ssize_t n = 0;
	DIR *d = opendir(path);

	if (!d)
		return -1;
	while ((e = readdir(d)))
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static bool same_link(pid_t pid, const char *name)
{
	char path[64], theirs[256] = "", ours[256] = "";

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	assert_true(readlink(path, theirs, sizeof(theirs) - 1) > 0);
	snprintf(path, sizeof(path), "/proc/self/%s", name);
	assert_true(readlink(path, ours, sizeof(ours) - 1) > 0);
	return streq(theirs, ours);
}

static void nothing_is_shared(void **state)
{
	static const char *const spaces[] = { "ns/mnt", "ns/net", "ns/ipc", "ns/uts" };
	pid_t pid;
	char path[64];

	if (geteuid() != 0)
		return;
	pid = start_sleeper();
	for (size_t i = 0; i < ARRAY_SIZE(spaces); i++)
		assert_false(same_link(pid, spaces[i]));
	if (!WATCHED) {
		snprintf(path, sizeof(path), "/proc/%d/root/", pid);
		assert_int_equal(entries(path), 0);
		snprintf(path, sizeof(path), "/proc/%d/cwd/", pid);
		assert_int_equal(entries(path), 0);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* ---- with fewer privileges --------------------------------------------------------------------------- */

static int run_as(bool (*become)(void))
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(!become() || sandbox_enter(MEMORY) < 0 ? 2 : try_open());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static bool be_nobody(void)
{
	return setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0;
}

/* As under a service manager that allows no namespaces. */
static bool have_no_capability(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = {};

	for (unsigned long c = 0; prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++)
		if (prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0)
			return false;
	return syscall(SYS_capset, &head, none) == 0;
}

static void without_privileges(void **state)
{
	if (geteuid() != 0 || WATCHED)
		return;
	assert_int_equal(run_as(be_nobody), 0);
	assert_int_equal(run_as(have_no_capability), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_files),	     cmocka_unit_test(no_other_calls),
		cmocka_unit_test(no_code),	     cmocka_unit_test(limits),
		cmocka_unit_test(what_it_needs),     cmocka_unit_test(the_kernel_agrees),
		cmocka_unit_test(nothing_is_shared), cmocka_unit_test(without_privileges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
