// SPDX-License-Identifier: GPL-2.0-or-later
/* The maps of real processes, and what lies in their place. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/io.h"
#include "collect/jit-map.h"
#include "collect/procfs.h"

/* For what should come, and for what should not. */
#define SOON_NS (10 * NSEC_PER_SEC)
#define MEANWHILE_NS (300 * NSEC_PER_MSEC)

/* A process in a root of its own, whose /tmp is a link to an absolute path. */
struct fixture {
	struct jit_maps *maps;
	char root[64];
	char map[128]; /* where its map lies, seen from here */
	pid_t pid;
	int pid_fd, proc_fd;
};

static void write_file(const char *path, const char *text)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write_full(fd, text, strlen(text)), 0);
}

/* In the child: lives until it is killed. */
static void live(const char *root)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (chroot(root) < 0 || chdir("/") < 0)
		_exit(1);
	for (;;)
		pause();
}

static int set_up(void **state)
{
	_cleanup_(opener_unref_p) struct opener *o = NULL;
	struct fixture *f = new0(struct fixture, 1);
	char path[128];

	snprintf(f->root, sizeof(f->root), "/tmp/test-jit-map-XXXXXX");
	if (!mkdtemp(f->root) || chmod(f->root, 0755) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/tmp2", f->root);
	if (mkdir(path, 0755) < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/tmp", f->root);
	if (symlink("/tmp2", path) < 0)
		return -1;
	f->pid = fork();
	if (f->pid == 0)
		live(f->root);
	snprintf(f->map, sizeof(f->map), "%s/tmp2/perf-%d.map", f->root, f->pid);
	f->proc_fd = proc_open("/proc");
	f->pid_fd = proc_open_pid(f->proc_fd, (uint32_t)f->pid);
	/* Its root is what it will be. */
	for (uint64_t end = mono_now_ns() + SOON_NS; mono_now_ns() < end; usleep(1000)) {
		char link[256] = "", name[64];

		snprintf(name, sizeof(name), "/proc/%d/root", f->pid);
		if (readlink(name, link, sizeof(link) - 1) > 0 && streq(link, f->root))
			break;
	}
	*state = f;
	return opener_new(false, &o) < 0 || jit_maps_new(o, &f->maps) < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	char command[128];

	jit_maps_free(f->maps);
	kill(f->pid, SIGKILL);
	waitpid(f->pid, NULL, 0);
	close_fd(f->pid_fd);
	close_fd(f->proc_fd);
	snprintf(command, sizeof(command), "rm -rf '%s'", f->root);
	free(f);
	return system(command);
}

static uint64_t add(struct fixture *f)
{
	uint64_t key = jit_maps_add(f->maps, &(struct jit_process){ .pid_fd = f->pid_fd,
								    .pid = (uint32_t)f->pid });

	assert_true(key & JIT_MAP_KEY);
	return key;
}

/* Until it holds this text; "": until it cannot be opened. */
static bool wait_text(struct fixture *f, uint64_t key, const char *text, uint64_t ns)
{
	for (uint64_t end = mono_now_ns() + ns; mono_now_ns() < end; usleep(1000)) {
		_cleanup_close_ int fd = jit_maps_open(f->maps, key);
		char buf[64] = "";

		if (fd < 0 ? !*text : (pread(fd, buf, sizeof(buf) - 1, 0) >= 0 && streq(buf, text)))
			return true;
	}
	return false;
}

static void assert_refused(struct fixture *f)
{
	uint64_t key = add(f);

	for (uint64_t end = mono_now_ns() + SOON_NS; jit_maps_has(f->maps, key) > 0; usleep(1000))
		assert_true(mono_now_ns() < end);
	assert_int_equal(jit_maps_open(f->maps, key), -ENOENT);
	/* Neither later. */
	usleep(MEANWHILE_NS / NSEC_PER_USEC);
	assert_int_equal(jit_maps_has(f->maps, key), 0);
	assert_int_equal(jit_maps_open(f->maps, key), -ENOENT);
}

static void in_its_root(void **state)
{
	struct fixture *f = *state;
	uint64_t key;

	write_file(f->map, "map");
	key = add(f);
	assert_int_equal(jit_maps_has(f->maps, key), 1);
	assert_true(wait_text(f, key, "map", SOON_NS));
	assert_int_equal(jit_maps_open(f->maps, key + 256), -ENOENT);
}

static void it_comes_later(void **state)
{
	struct fixture *f = *state;
	uint64_t key = add(f);

	while (jit_maps_has(f->maps, key) > 0)
		usleep(1000);
	write_file(f->map, "late");
	assert_true(wait_text(f, key, "late", SOON_NS));
	assert_int_equal(jit_maps_has(f->maps, key), 1);
	/* Another one in its place. */
	assert_int_equal(unlink(f->map), 0);
	write_file(f->map, "other");
	jit_maps_look(f->maps, key, 0, 0);
	assert_true(wait_text(f, key, "other", SOON_NS));
}

static void it_outlives_the_process(void **state)
{
	struct fixture *f = *state;
	uint64_t key;

	write_file(f->map, "map");
	key = add(f);
	assert_true(wait_text(f, key, "map", SOON_NS));
	kill(f->pid, SIGKILL);
	waitpid(f->pid, NULL, 0);
	assert_int_equal(unlink(f->map), 0);
	jit_maps_look(f->maps, key, 0, 0);
	jit_maps_release(f->maps, key);
	assert_false(wait_text(f, key, "", MEANWHILE_NS));
	assert_true(wait_text(f, key, "map", SOON_NS));
}

static void no_links(void **state)
{
	struct fixture *f = *state;
	char path[128];

	assert_int_equal(symlink("/etc/shadow", f->map), 0);
	assert_refused(f);
	/* Not within its own root either, */
	assert_int_equal(unlink(f->map), 0);
	snprintf(path, sizeof(path), "%s/secret", f->root);
	write_file(path, "secret");
	assert_int_equal(symlink("/secret", f->map), 0);
	assert_refused(f);
	/* nor by another name. */
	assert_int_equal(unlink(f->map), 0);
	assert_int_equal(link(path, f->map), 0);
	assert_refused(f);
}

static void no_other_kinds(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(mkfifo(f->map, 0666), 0);
	assert_refused(f);
	assert_int_equal(unlink(f->map), 0);
	assert_int_equal(mkdir(f->map, 0755), 0);
	assert_refused(f);
	assert_int_equal(rmdir(f->map), 0);
	assert_int_equal(mknod(f->map, S_IFCHR | 0666, makedev(1, 5)), 0); /* /dev/zero */
	assert_refused(f);
}

static void nobody_elses(void **state)
{
	struct fixture *f = *state;
	struct timespec old[2] = { { 1000, 0 }, { 1000, 0 } };

	/* Of another user, */
	write_file(f->map, "theirs");
	assert_int_equal(chown(f->map, 12345, 12345), 0);
	assert_refused(f);
	/* and of a process that had this number. */
	assert_int_equal(chown(f->map, 0, 0), 0);
	assert_int_equal(utimensat(AT_FDCWD, f->map, old, 0), 0);
	assert_refused(f);
}

/* The innermost of three pid namespaces: it is 1 there. */
static void in_namespaces(void **state)
{
	struct fixture *f = *state;
	int pipe_fds[2];
	pid_t outer, inner = 0;
	uint64_t key;

	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	outer = fork();
	if (outer == 0) {
		char text[32] = "";

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int i = 0; i < 2; i++) {
			if (unshare(CLONE_NEWPID) < 0)
				_exit(1);
			if (fork() > 0)
				for (;;)
					pause();
			prctl(PR_SET_PDEATHSIG, SIGKILL);
		}
		/* Its number outside, from a /proc that is still the outer one. */
		if (readlink("/proc/self", text, sizeof(text) - 1) < 0 ||
		    write_full(pipe_fds[1], text, sizeof(text)) < 0)
			_exit(1);
		live(f->root);
	}
	close_fd(pipe_fds[1]);
	{
		char text[32] = "";

		assert_int_equal(read(pipe_fds[0], text, sizeof(text)), sizeof(text));
		inner = atoi(text);
	}
	close_fd(pipe_fds[0]);
	assert_true(inner > 1);
	close_fd(f->pid_fd);
	f->pid_fd = proc_open_pid(f->proc_fd, (uint32_t)inner);
	snprintf(f->map, sizeof(f->map), "%s/tmp2/perf-1.map", f->root);
	key = jit_maps_add(f->maps,
			   &(struct jit_process){ .pid_fd = f->pid_fd, .pid = (uint32_t)inner });
	write_file(f->map, "inner");
	assert_true(wait_text(f, key, "inner", SOON_NS));
	kill(outer, SIGKILL);
	waitpid(outer, NULL, 0);
}

/* A filesystem whose server has read no request yet, and never will. */
static int mount_silent(const char *at)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char options[96];

	if (fd < 0)
		return -1;
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	return mount("silent", at, "fuse", MS_NOSUID | MS_NODEV, options) < 0 ? close_fd(fd) : fd;
}

/* Where an open hangs, it costs its user his names, and nobody else. */
static void no_answer(void **state)
{
	struct fixture *f = *state, *other;
	uint64_t key, begin = mono_now_ns(), refused, hanging;
	void *other_state;
	char at[128];
	int server;

	snprintf(at, sizeof(at), "%s/tmp2", f->root);
	server = mount_silent(at);
	if (server < 0) {
		skip();
		return;
	}
	for (int i = 0; i < 6; i++) {
		key = jit_maps_add(f->maps, &(struct jit_process){ .pid_fd = f->pid_fd,
								   .pid = (uint32_t)f->pid,
								   .uid = 1000 });
		while (jit_maps_has(f->maps, key) > 0)
			usleep(1000);
		assert_int_equal(jit_maps_open(f->maps, key), -ENOENT);
	}
	/* One of them waited. */
	jit_maps_stats(f->maps, &refused, &hanging);
	assert_int_equal(hanging, 1);
	assert_true(mono_now_ns() - begin < SOON_NS);
	assert_int_equal(set_up(&other_state), 0);
	other = other_state;
	write_file(other->map, "map");
	key = jit_maps_add(f->maps, &(struct jit_process){ .pid_fd = other->pid_fd,
							   .pid = (uint32_t)other->pid,
							   .uid = 1001 });
	assert_true(wait_text(f, key, "map", SOON_NS));
	tear_down(&other_state);
	umount2(at, MNT_DETACH);
	close_fd(server);
}

static void too_many(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int self = proc_open_pid(f->proc_fd, (uint32_t)getpid());
	uint64_t first = jit_maps_add(f->maps, &(struct jit_process){ .pid_fd = self }), last = 0;
	uint64_t refused, hanging;

	while (jit_maps_has(f->maps, first) > 0)
		usleep(1000);
	/* Those without a map make room; the others stay. */
	write_file(f->map, "map");
	for (int i = 0; i < 256; i++) {
		uint64_t key = add(f);

		assert_true(wait_text(f, key, "map", SOON_NS));
		last = key;
	}
	assert_int_equal(jit_maps_has(f->maps, first), -ENOENT);
	assert_int_equal(jit_maps_has(f->maps, last), 1);
	assert_int_equal(jit_maps_add(f->maps, &(struct jit_process){ .pid_fd = f->pid_fd }), 0);
	jit_maps_stats(f->maps, &refused, &hanging);
	assert_int_equal(refused, 1);
	/* One that is gone makes room when there is none. */
	jit_maps_release(f->maps, last);
	assert_true(wait_text(f, last, "map", SOON_NS));
	add(f);
	assert_int_equal(jit_maps_has(f->maps, last), -ENOENT);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(in_its_root),   TEST(it_comes_later), TEST(it_outlives_the_process),
		TEST(no_links),	     TEST(no_other_kinds), TEST(nobody_elses),
		TEST(in_namespaces), TEST(no_answer),	   TEST(too_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
