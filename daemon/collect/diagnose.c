// SPDX-License-Identifier: GPL-2.0-or-later
/* Why the kernel will not let us: one sentence that names what is missing. */
#include <bpf/btf.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "base/io.h"
#include "collect/internal.h"

#ifndef CAP_PERFMON
#define CAP_PERFMON 38
#define CAP_BPF 39
#endif

static char *sentence(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static char *sentence(const char *fmt, ...)
{
	struct strbuf b = {};
	va_list ap;

	va_start(ap, fmt);
	strbuf_vprintf(&b, fmt, ap);
	va_end(ap);
	return strbuf_take(&b, NULL);
}

static bool have_capability(unsigned cap)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = {};

	if (syscall(SYS_capget, &head, data) < 0)
		return true;
	return data[cap / 32].effective >> cap % 32 & 1;
}

/* CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON. */
static const char *missing_capability(void)
{
	if (have_capability(CAP_SYS_ADMIN))
		return NULL;
	if (!have_capability(CAP_BPF))
		return have_capability(CAP_PERFMON) ? "CAP_BPF" : "CAP_BPF and CAP_PERFMON";
	return have_capability(CAP_PERFMON) ? NULL : "CAP_PERFMON";
}

static bool file_contains(const char *path, const char *text)
{
	_cleanup_(strbuf_done) struct strbuf b = {};

	return read_file_at(AT_FDCWD, path, 4096, &b) >= 0 && b.data && strstr(b.data, text);
}

static bool locked_down(void)
{
	return file_contains("/sys/kernel/security/lockdown", "[confidentiality]");
}

static bool have_btf(void)
{
	struct btf *btf = btf__load_vmlinux_btf();

	if (!btf || libbpf_get_error(btf))
		return false;
	btf__free(btf);
	return true;
}

static bool have_bpf(void)
{
	return syscall(SYS_bpf, -1, NULL, 0) == 0 || errno != ENOSYS;
}

/* The last line of a verifier log before its statistics says what was wrong. */
static char *verifier_complaint(const char *log)
{
	const char *line = log, *best = NULL;

	while (*line) {
		size_t n = strcspn(line, "\n");

		if (n && strncmp(line, "processed ", 10) != 0)
			best = line;
		line += n + (line[n] == '\n');
	}
	return best ? strndup(best, MIN(strcspn(best, "\n"), 80)) : NULL;
}

char *diagnose_load(int error, const char *verifier_log)
{
	_cleanup_free_ char *complaint = NULL;
	const char *cap = missing_capability();

	if (!have_bpf())
		return sentence("this kernel has no bpf(2): it needs CONFIG_BPF_SYSCALL=y");
	if (cap && (error == -EPERM || error == -EACCES))
		return sentence("no permission to use BPF: %s missing", cap);
	if (!have_btf())
		return sentence(
			"no kernel type information in /sys/kernel/btf/vmlinux: the kernel needs "
			"CONFIG_DEBUG_INFO_BTF=y");
	/* Where securityfs is not mounted, only the verifier tells. */
	if (locked_down() || strstr(verifier_log, "cannot use helper bpf_probe_read_kernel") ||
	    strstr(verifier_log, "unknown func bpf_probe_read_kernel"))
		return sentence("lockdown=confidentiality forbids BPF to read kernel memory");
	if (error == -ENOMEM)
		return sentence(
			"not enough memory for the BPF maps: some MiB are needed (a cgroup's "
			"memory limit, before 5.11 RLIMIT_MEMLOCK?)");
	if (error == -EPERM)
		return sentence(
			"BPF is not permitted (RLIMIT_MEMLOCK, a security module or a container?)");
	complaint = verifier_complaint(verifier_log);
	if (complaint)
		return sentence("the kernel refused a program: %s", complaint);
	return sentence("BPF programs could not be loaded: %s", strerror(-error));
}

static int perf_event_paranoid(void)
{
	_cleanup_(strbuf_done) struct strbuf b = {};

	if (read_file_at(AT_FDCWD, "/proc/sys/kernel/perf_event_paranoid", 64, &b) < 0 || !b.data)
		return -1;
	return atoi(b.data);
}

char *diagnose_perf(int error)
{
	const char *cap = missing_capability();
	int paranoid = perf_event_paranoid();

	if (error == -ENOSYS)
		return sentence("this kernel has no perf events: it needs CONFIG_PERF_EVENTS=y");
	if (error == -EACCES || error == -EPERM) {
		if (paranoid >= 3 && !have_capability(CAP_SYS_ADMIN))
			return sentence(
				"kernel.perf_event_paranoid=%d demands CAP_SYS_ADMIN for perf "
				"events; set it to 2 or less",
				paranoid);
		if (cap)
			return sentence("no permission to sample all processes: %s missing", cap);
	}
	if (error == -EMFILE || error == -ENFILE)
		return sentence("no file descriptors left for a perf event on each CPU");
	return sentence("perf events could not be opened: %s", strerror(-error));
}
