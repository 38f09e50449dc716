// SPDX-License-Identifier: GPL-2.0-or-later
/* Files of others: FIFOs, symlinks out of a root, files that changed, filesystems that do not answer. */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "base/io.h"
#include "collect/filesystem.h"
#include "collect/opener-process.h"
#include "collect/procfs.h"

static char dir[] = "/tmp/sysprofd-opener-XXXXXX";
static int dir_fd = -1, proc_fd = -1;

static int setup(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	proc_fd = proc_open("/proc");
	return dir_fd < 0 || proc_fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	char command[128];

	close_fd(dir_fd);
	close_fd(proc_fd);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static void put_at(int at, const char *name, const void *data, size_t len)
{
	_cleanup_close_ int fd = openat(at, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write_full(fd, data, len), 0);
}

static void put(const char *name, const void *data, size_t len)
{
	put_at(dir_fd, name, data, len);
}

static int open_path(const char *name)
{
	return openat(dir_fd, name, O_PATH | O_CLOEXEC | O_NOFOLLOW);
}

/* ---- filesystems ------------------------------------------------------------------------------------------ */

static const char mounts[] =
	"26 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n"
	"27 26 0:40 / /srv/nfs rw shared:2 master:1 propagate_from:2 - nfs4 server:/a\\040b "
	"rw,vers=4.2\n"
	"28 26 0:41 / /mnt/fuse rw - fuse.sshfs u@h: rw,user_id=0\n"
	"29 26 0:42 / /var/lib/images/1 rw - fuse stargz rw\n"
	"30 26 0:43 / /run/c/a rw - overlay overlay "
	"rw,lowerdir=l/AB:l/CD,upperdir=/var/lib/up/1,workdir=/w\n"
	"31 26 0:44 / /run/c/b rw - overlay overlay "
	"rw,lowerdir=/var/lib/l/2:/var/lib/images/1/fs,upperdir=/u\n"
	"32 26 0:45 / /run/c/c rw - overlay overlay rw,lowerdir=/var/lib/images/10/fs:/l\n"
	"33 26 0:46 / /run/c/d rw - overlay overlay "
	"rw,lowerdir+=/l,lowerdir+=/srv/nfs,upperdir=/u\n"
	"34 26 8:17 / /mnt/ntfs rw - fuseblk /dev/sdb1 rw\n"
	"35 27 0:47 / /srv/nfs/tmp rw - tmpfs tmpfs rw\n"
	"garbage\n"
	"36 26 0:48 / /half rw\n"
	"37 26 0:49 / /net rw - autofs systemd-1 rw\n"
	"38 26 0:50 / /run/c/e rw - overlay overlay rw,lowerdir=/srv/nfs/tmp/x:/srv/nfsx\n"
	"39 26 0:51 / /run/c/f rw - overlay overlay rw,lowerdir=images/1:1,upperdir=/u\n"
	"40 26 0:52 / /run/c/g rw - overlay overlay rw,lowerdir=ges/1:s,upperdir=/u";

static void check_device(unsigned maj, unsigned min, int expected)
{
	_cleanup_(mounts_done) struct mounts m = {};

	assert_int_equal(mounts_read(dir_fd, "mounts", &m), 0);
	assert_int_equal(mounts_is_prompt(&m, makedev(maj, min), &m), expected);
}

static void test_mountinfo(void **state)
{
	put("mounts", mounts, sizeof(mounts) - 1);
	check_device(254, 0, 1);
	check_device(0, 40, 0);
	check_device(0, 41, 0);
	check_device(0, 42, 0);
	check_device(8, 17, 0);
	check_device(0, 47, 1);
	check_device(0, 49, 0);
	check_device(0, 48, -ENOENT);
	check_device(0, 99, -ENOENT);
	/* An overlay is as prompt as what it lies on. */
	check_device(0, 43, 1);
	check_device(0, 44, 0);
	check_device(0, 45, 1);
	check_device(0, 46, 0);
	check_device(0, 50, 1);
	/* Relative layers: of a mount that ends so. */
	check_device(0, 51, 0);
	check_device(0, 52, 1);
	put("mounts", "", 0);
	check_device(254, 0, -ENOENT);
}

static void test_own_files(void **state)
{
	_cleanup_close_ int pid_fd = proc_open_pid(proc_fd, (uint32_t)getpid()), memory = -1;
	_cleanup_(filesystems_done) struct filesystems fs;
	struct stat st;

	filesystems_init(&fs);
	memory = memfd_create("x", MFD_CLOEXEC);
	assert_int_equal(fstat(memory, &st), 0);
	assert_true(filesystem_is_prompt(&fs, pid_fd, st.st_dev, 1));
	assert_false(filesystem_is_prompt(&fs, pid_fd, makedev(4000, 4000), 1));
	/* Of a process that has gone nothing is remembered. */
	assert_int_equal(stat("/", &st), 0);
	assert_false(filesystem_is_prompt(&fs, dir_fd, st.st_dev, 1));
	assert_true(filesystem_is_prompt(&fs, pid_fd, st.st_dev, 1));
	assert_int_equal(fstat(memory, &st), 0);
	/* More devices than are remembered. */
	for (unsigned i = 0; i < 3 * FILESYSTEMS_MAX; i++)
		filesystem_is_prompt(&fs, pid_fd, makedev(4000, i), 1);
	assert_true(filesystem_is_prompt(&fs, pid_fd, st.st_dev, 1));
	assert_true(fs.n <= FILESYSTEMS_MAX);
}

/* ---- what is opened --------------------------------------------------------------------------------------- */

static int try_regular(const char *name)
{
	_cleanup_close_ int path_fd = open_path(name), fd = -1;
	struct stat st;

	assert_true(path_fd >= 0);
	fd = open_regular(path_fd, &st);
	return fd < 0 ? fd : 0;
}

static void test_regular_only(void **state)
{
	put("file", "x", 1);
	assert_int_equal(mkfifoat(dir_fd, "fifo", 0644), 0);
	assert_int_equal(mkdirat(dir_fd, "directory", 0755), 0);
	assert_int_equal(symlinkat("/etc/passwd", dir_fd, "link"), 0);
	assert_int_equal(try_regular("file"), 0);
	assert_int_equal(try_regular("fifo"), -EMEDIUMTYPE);
	assert_int_equal(try_regular("directory"), -EMEDIUMTYPE);
	assert_int_equal(try_regular("link"), -EMEDIUMTYPE);
	if (mknodat(dir_fd, "null", S_IFCHR | 0644, makedev(1, 3)) == 0)
		assert_int_equal(try_regular("null"), -EMEDIUMTYPE);
}

/* A made-up /proc/PID whose root is a directory of ours. */
static void test_root(void **state)
{
	_cleanup_close_ int pid_fd = -1, root_fd = -1;
	struct stat st;
	int fd;

	assert_int_equal(mkdirat(dir_fd, "1", 0755), 0);
	assert_int_equal(mkdirat(dir_fd, "1/root", 0755), 0);
	root_fd = openat(dir_fd, "1/root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	put_at(root_fd, "inside", "in", 2);
	put("outside", "out", 3);
	assert_int_equal(symlinkat("inside", root_fd, "relative"), 0);
	assert_int_equal(symlinkat("/inside", root_fd, "absolute"), 0);
	assert_int_equal(symlinkat("../../outside", root_fd, "up"), 0);
	assert_int_equal(symlinkat("/etc/passwd", root_fd, "host"), 0);
	assert_int_equal(symlinkat("/proc/self/exe", root_fd, "magic"), 0);
	pid_fd = openat(dir_fd, "1", O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < 3; i++) {
		static const char *const names[] = { "/inside", "/relative", "/absolute" };

		fd = open_in_root(pid_fd, names[i], &st);
		assert_true(fd >= 0);
		assert_int_equal(st.st_size, 2);
		close(fd);
	}
	assert_int_equal(open_in_root(pid_fd, "/up", &st), -ENOENT);
	assert_int_equal(open_in_root(pid_fd, "/host", &st), -ENOENT);
	assert_int_equal(open_in_root(pid_fd, "/magic", &st), -ENOENT);
	assert_int_equal(open_in_root(pid_fd, "/../../outside", &st), -ENOENT);
}

static bool is_file(const char *name, const struct file_identity *want)
{
	_cleanup_close_ int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return file_is(fd, &st, want);
}

static void test_identity(void **state)
{
	static const uint8_t note[] = { 4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, 'G', 'N', 'U', 0 };
	struct file_identity id = { .build_id_len = 20, .build_id = "0123456789abcdefghi" },
			     other = id;
	static uint8_t image[300000];
	struct stat st;

	memcpy(image + 500, note, sizeof(note));
	memcpy(image + 500 + sizeof(note), id.build_id, 20);
	put("front", image, sizeof(image));
	memset(image, 0, sizeof(image));
	memcpy(image + sizeof(image) - 40, note, sizeof(note));
	memcpy(image + sizeof(image) - 40 + sizeof(note), id.build_id, 20);
	put("back", image, sizeof(image));
	put("empty", "", 0);
	other.build_id[19] ^= 1;
	assert_true(is_file("front", &id));
	assert_true(is_file("back", &id));
	assert_false(is_file("empty", &id));
	assert_false(is_file("front", &other));
	/* Without a build-id: device, inode, time of change. */
	assert_int_equal(fstatat(dir_fd, "front", &st, 0), 0);
	id = (struct file_identity){ .dev = st.st_dev, .ino = st.st_ino };
	assert_true(is_file("front", &id));
	assert_false(is_file("back", &id));
	id.generation = (uint64_t)st.st_ctim.tv_sec * NSEC_PER_SEC + (uint64_t)st.st_ctim.tv_nsec;
	assert_true(is_file("front", &id));
	usleep(20000);
	put("front", "rewritten", 9);
	assert_false(is_file("front", &id));
}

/* Whether it is done by a process. */
static bool as_process;

static int by_thread(void **state)
{
	as_process = false;
	return 0;
}

static int by_process(void **state)
{
	as_process = true;
	return 0;
}

/* ---- with a deadline ---------------------------------------------------------------------------------------- */

static int ask_slow(struct opener *o, char *path, const struct file_identity *id, uint64_t slow_dev,
		    uint64_t timeout_ns)
{
	struct open_request rq = {
		.proc_fd = proc_fd, .path = path, .identity = *id, .slow_dev = slow_dev
	};
	int fd = open_with_deadline(o, &rq, timeout_ns);

	close_fd(fd);
	return fd < 0 ? fd : 0;
}

static int ask(struct opener *o, char *path, const struct file_identity *id, uint64_t timeout_ns)
{
	return ask_slow(o, path, id, 0, timeout_ns);
}

static void identify(const char *path, struct file_identity *ret)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	*ret = (struct file_identity){ .dev = st.st_dev, .ino = st.st_ino };
}

static void test_deadline_met(void **state)
{
	_cleanup_(opener_unref_p) struct opener *o = NULL;
	struct file_identity id = {};
	char path[128];
	struct stat st;

	put("program", "x", 1);
	snprintf(path, sizeof(path), "%s/program", dir);
	assert_int_equal(stat(path, &st), 0);
	id.dev = st.st_dev;
	id.ino = st.st_ino;
	assert_int_equal(opener_new(as_process, &o), 0);
	assert_int_equal(ask(o, path, &id, NSEC_PER_SEC), 0);
	id.ino++;
	assert_int_equal(ask(o, path, &id, NSEC_PER_SEC), -ESTALE);
	snprintf(path, sizeof(path), "%s/none", dir);
	assert_int_equal(ask(o, path, &id, NSEC_PER_SEC), -ENOENT);
	assert_true(ask(o, NULL, &id, NSEC_PER_SEC) < 0);
}

static int ask_debug(struct opener *o, pid_t pid, const char *paths, size_t n, size_t *ret_which)
{
	struct open_request rq = { .proc_fd = proc_fd,
				   .pids = { (uint32_t)pid },
				   .path = paths,
				   .identity = { .ino = 1, .author = 1000 },
				   .n_debug = n };
	int fd = open_debug_with_deadline(o, &rq, NSEC_PER_SEC, ret_which);

	close_fd(fd);
	return MIN(fd, 0);
}

/* A debug file is not the file; it is its author who counts. */
static void test_debug_file(void **state)
{
	static const struct {
		uid_t owner;
		mode_t mode;
		const char *text;
		int elsewhere, in_own_root;
	} cases[] = {
		{ 0, 0644, "\177ELF", 0, 0 },
		{ 1000, 0644, "\177ELF", 0, 0 },
		{ 1001, 0644, "\177ELF", -ESTALE, -ESTALE },
		{ 0, 0666, "\177ELF", -ESTALE, -ESTALE },
		{ 0, 0600, "\177ELF", -ESTALE, -ESTALE },
		{ 1000, 0600, "\177ELF", -ESTALE, 0 },
		{ 0, 0644, "root:x:", -ESTALE, -ESTALE },
		{ 1000, 0644, "", -ESTALE, -ESTALE },
	};
	_cleanup_(opener_unref_p) struct opener *o = NULL;
	char paths[256], *path;
	size_t which;
	int n;

	assert_int_equal(opener_new(as_process, &o), 0);
	put("program", "\177ELF", 4);
	n = snprintf(paths, sizeof(paths), "%s/absent", dir) + 1;
	path = paths + n;
	n += snprintf(path, sizeof(paths) - (size_t)n, "%s/debug", dir) + 1;
	snprintf(paths + n, sizeof(paths) - (size_t)n, "%s/program", dir);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		put("debug", cases[i].text, strlen(cases[i].text));
		if (chown(path, cases[i].owner, cases[i].owner) < 0)
			skip();
		assert_int_equal(chmod(path, cases[i].mode), 0);
		assert_int_equal(ask_debug(o, 0, paths, 2, &which), cases[i].elsewhere);
		assert_int_equal(which, 1);
		assert_int_equal(ask_debug(o, getpid(), paths, 2, &which), cases[i].in_own_root);
	}
	/* The first that may be it. */
	assert_int_equal(ask_debug(o, 0, paths, 3, &which), 0);
	assert_int_equal(which, 2);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0644), 0);
	assert_int_equal(ask_debug(o, 0, paths, 2, &which), -EMEDIUMTYPE);
	assert_int_equal(unlink(path), 0);
}

/* A FUSE filesystem whose server has fallen asleep. Returns its descriptor: closing it wakes all who wait. */
static int mount_hanging(const char *at)
{
	char options[128];
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return negative_errno();
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		close(fd);
		return -EPERM;
	}
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	if (mount("hanging", at, "fuse", 0, options) < 0) {
		int r = negative_errno();

		close(fd);
		return r;
	}
	return fd;
}

static uint64_t generation_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return (uint64_t)st.st_ctim.tv_sec * NSEC_PER_SEC + (uint64_t)st.st_ctim.tv_nsec;
}

static uint64_t device_of_mount(const char *at)
{
	_cleanup_(strbuf_done) struct strbuf text = {};
	unsigned maj, min;
	char *p;

	assert_int_equal(read_file_at(AT_FDCWD, "/proc/thread-self/mountinfo", 4 << 20, &text), 0);
	p = strstr(text.data, at);
	assert_non_null(p);
	while (p > text.data && p[-1] != '\n')
		p--;
	assert_int_equal(sscanf(p, "%*u %*u %u:%u", &maj, &min), 2);
	return makedev(maj, min);
}

static void test_deadline_missed(void **state)
{
	_cleanup_(opener_unref_p) struct opener *o = NULL;
	_cleanup_close_ int fuse = -1, pid_fd = -1;
	struct file_identity id = { .ino = 1 }, good;
	_cleanup_(filesystems_done) struct filesystems fs;
	char at[64], path[80], program[80];
	uint64_t before, dev;

	assert_true(mkdirat(dir_fd, "hanging", 0755) == 0 || errno == EEXIST);
	snprintf(at, sizeof(at), "%s/hanging", dir);
	snprintf(path, sizeof(path), "%s/program", at);
	fuse = unshare(CLONE_NEWNS) < 0 ? negative_errno() : 0;
	filesystems_init(&fs);
	pid_fd = proc_open_pid(proc_fd, (uint32_t)getpid());
	/* Ours are known before the mount: it must be noticed. */
	assert_false(filesystem_is_prompt(&fs, pid_fd, makedev(4000, 1), 1));
	fuse = fuse < 0 ? fuse : mount_hanging(at);
	if (fuse < 0) {
		print_message("skipped: no FUSE mount possible: %s\n", strerror(-fuse));
		skip();
	}
	/* Known without being touched. */
	dev = device_of_mount(at);
	assert_false(filesystem_is_prompt(&fs, pid_fd, dev, 1));
	assert_int_equal(mounts_is_prompt(&fs.ours, dev, &fs.ours), 0);
	put("program", "x", 1);
	snprintf(program, sizeof(program), "%s/program", dir);
	identify(program, &good);
	assert_int_equal(opener_new(as_process, &o), 0);
	assert_int_equal(ask(o, program, &good, 20 * NSEC_PER_SEC), 0);
	before = mono_now_ns();
	/* One waits for a filesystem that is known to be slow; another one may answer. */
	assert_int_equal(ask_slow(o, path, &id, dev, 50 * NSEC_PER_MSEC), -ETIMEDOUT);
	assert_int_equal(ask_slow(o, path, &id, dev, NSEC_PER_SEC), -EBUSY);
	assert_int_equal(ask_slow(o, program, &good, dev + 1, 20 * NSEC_PER_SEC), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(ask(o, path, &id, 50 * NSEC_PER_MSEC), -ETIMEDOUT);
	/* No more than so many wait at a time, */
	for (int i = 0; i < 100; i++)
		assert_int_equal(ask(o, path, &id, NSEC_PER_SEC), -EBUSY);
	assert_true(mono_now_ns() - before < 2 * NSEC_PER_SEC);
	/* which files that somebody could look at do not notice. */
	good.generation = generation_of(program);
	assert_int_equal(ask(o, program, &good, 20 * NSEC_PER_SEC), 0);
	/* Its owner may go while they still wait; then the server dies, and all is well. */
	fuse = close_fd(fuse);
	for (int i = 0; i < 500 && ask(o, path, &id, NSEC_PER_SEC) == -EBUSY; i++)
		usleep(10000);
	assert_int_not_equal(ask(o, path, &id, NSEC_PER_SEC), -EBUSY);
	umount2(at, MNT_DETACH);
}

/* ---- the process ---------------------------------------------------------------------------------------------- */

static struct opener_stats stats(const struct opener *o)
{
	struct opener_stats s;

	opener_get_stats(o, &s);
	return s;
}

static void test_process_ends(void **state)
{
	_cleanup_(opener_unref_p) struct opener *o = NULL;
	struct file_identity id;
	char path[128];
	int pid;

	put("program", "x", 1);
	snprintf(path, sizeof(path), "%s/program", dir);
	identify(path, &id);
	assert_int_equal(opener_new(true, &o), 0);
	assert_int_equal(stats(o).pid, 0); /* started when it is needed */
	assert_int_equal(ask(o, path, &id, 20 * NSEC_PER_SEC), 0);
	pid = stats(o).pid;
	assert_true(pid > 0);
	/* Killed: the next request finds another one. */
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(ask(o, path, &id, 20 * NSEC_PER_SEC), 0);
	assert_int_not_equal(stats(o).pid, pid);
	assert_int_equal(stats(o).failures, 1);
	/* Stopped: this one is lost, the next is not. */
	pid = stats(o).pid;
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(ask(o, path, &id, NSEC_PER_MSEC), -EBUSY);
	assert_int_equal(ask(o, path, &id, 20 * NSEC_PER_SEC), 0);
	assert_int_equal(stats(o).failures, 2);
	assert_int_equal(kill(pid, 0), -1);
}

static void assert_status(const char *text, const char *line)
{
	if (!strstr(text, line))
		fail_msg("no %s in:\n%s", line, text);
}

/* CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH, CAP_CHECKPOINT_RESTORE; tests of others than root have none. */
static void test_process_is_confined(void **state)
{
	_cleanup_(opener_unref_p) struct opener *o = NULL;
	_cleanup_(strbuf_done) struct strbuf b = {};
	struct file_identity id;
	char path[128];

	put("program", "x", 1);
	snprintf(path, sizeof(path), "%s/program", dir);
	identify(path, &id);
	assert_int_equal(opener_new(true, &o), 0);
	assert_int_equal(ask(o, path, &id, 20 * NSEC_PER_SEC), 0);
	snprintf(path, sizeof(path), "/proc/%d/status", stats(o).pid);
	assert_int_equal(read_file_at(AT_FDCWD, path, 16384, &b), 0);
	assert_status(b.data, "NoNewPrivs:\t1");
	assert_status(b.data, "CapInh:\t0000000000000000");
	if (geteuid() == 0)
		assert_status(b.data, "CapEff:\t0000010000080004");
	strbuf_done(&b);
	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", stats(o).pid);
	assert_int_equal(read_file_at(AT_FDCWD, path, 16, &b), 0);
	assert_string_equal(b.data, "1000\n");
}

struct asker {
	struct opener *opener;
	char *path;
	struct file_identity id;
	int opened;
};

static void *ask_often(void *arg)
{
	struct asker *a = arg;

	for (int i = 0; i < 50; i++)
		a->opened += ask(a->opener, a->path, &a->id, 20 * NSEC_PER_SEC) == 0;
	return NULL;
}

static void test_process_serves_all(void **state)
{
	_cleanup_(opener_unref_p) struct opener *o = NULL;
	struct asker askers[4] = {};
	pthread_t threads[4];
	char paths[4][128];

	assert_int_equal(opener_new(true, &o), 0);
	for (int i = 0; i < 4; i++) {
		char name[16];

		snprintf(name, sizeof(name), "program%d", i);
		put(name, "x", 1);
		snprintf(paths[i], sizeof(paths[i]), "%s/%s", dir, name);
		askers[i] = (struct asker){ .opener = o, .path = paths[i] };
		identify(paths[i], &askers[i].id);
		assert_int_equal(pthread_create(&threads[i], NULL, ask_often, &askers[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(askers[i].opened, 50);
	}
	assert_int_equal(stats(o).failures, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mountinfo),
		cmocka_unit_test(test_own_files),
		cmocka_unit_test(test_regular_only),
		cmocka_unit_test(test_root),
		cmocka_unit_test(test_identity),
		cmocka_unit_test_setup(test_deadline_met, by_thread),
		cmocka_unit_test_setup(test_deadline_met, by_process),
		cmocka_unit_test_setup(test_debug_file, by_thread),
		cmocka_unit_test_setup(test_debug_file, by_process),
		cmocka_unit_test(test_process_ends),
		cmocka_unit_test(test_process_is_confined),
		cmocka_unit_test(test_process_serves_all),
		cmocka_unit_test_setup(test_deadline_missed, by_thread),
		cmocka_unit_test_setup(test_deadline_missed, by_process),
	};

	if (argc == 3 && streq(argv[1], "--opener"))
		return opener_main(argv[2]);
	return cmocka_run_group_tests(tests, setup, teardown);
}
