// SPDX-License-Identifier: GPL-2.0-or-later
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>
#include <sys/stat.h>

#include "collect/labels.h"

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define UID "1f0bfd4a-5e0c-4b0e-9d4b-6f1b8a1f0c11"
#define UID_ "1f0bfd4a_5e0c_4b0e_9d4b_6f1b8a1f0c11"

struct expected {
	const char *path, *unit, *container, *pod_uid;
};

static const struct expected paths[] = {
	{ "/", "", "", "" },
	{ "", "", "", "" },
	{ "/foo", "", "", "" },
	{ "/system.slice/nginx.service", "nginx.service", "", "" },
	{ "/system.slice/nginx.service/worker", "nginx.service", "", "" },
	{ "/system.slice/system-getty.slice/getty@tty1.service", "getty@tty1.service", "", "" },
	{ "/system.slice/_cpu.service", "cpu.service", "", "" },
	{ "/system.slice/.service", "", "", "" },
	{ "/user.slice/user-1000.slice/session-3.scope", "session-3.scope", "", "" },
	{ "/user.slice/user-1000.slice/user@1000.service/app.slice/app-a.service",
	  "user@1000.service", "", "" },
	{ "/user.slice", "", "", "" },
	{ "/init.scope", "init.scope", "", "" },
	/* docker, systemd and cgroupfs drivers */
	{ "/system.slice/docker-" ID ".scope", "docker-" ID ".scope", ID, "" },
	{ "/docker/" ID, "", ID, "" },
	{ "/docker/" ID "/system.slice/sshd.service", "sshd.service", ID, "" },
	{ "/system.slice/docker-" ID ".scope/system.slice/sshd.service", "docker-" ID ".scope", ID,
	  "" },
	/* podman */
	{ "/machine.slice/libpod-" ID ".scope/container", "libpod-" ID ".scope", ID, "" },
	{ "/machine.slice/libpod-conmon-" ID ".scope", "libpod-conmon-" ID ".scope", "", "" },
	{ "/libpod_parent/libpod-" ID, "", ID, "" },
	/* Kubernetes: containerd, cri-o, both drivers */
	{ "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UID_
	  ".slice/cri-containerd-" ID ".scope",
	  "cri-containerd-" ID ".scope", ID, UID },
	{ "/kubepods.slice/kubepods-pod" UID_ ".slice/crio-" ID ".scope", "crio-" ID ".scope", ID,
	  UID },
	{ "/kubepods.slice/kubepods-pod" UID_ ".slice/crio-conmon-" ID ".scope",
	  "crio-conmon-" ID ".scope", "", UID },
	{ "/kubepods/besteffort/pod" UID "/" ID, "", ID, UID },
	{ "/kubepods/pod0123456789abcdef0123456789abcdef/" ID, "", ID,
	  "0123456789abcdef0123456789abcdef" },
	{ "/system.slice/containerd.service/kubepods-besteffort-pod" UID_
	  ".slice:cri-containerd:" ID,
	  "containerd.service", ID, UID },
	{ "/kubelet.slice/kubelet-kubepods.slice", "", "", "" },
	/* others */
	{ "/ecs/0123456789abcdef0123456789abcdef/" ID, "", ID, "" },
	{ "/lxc.payload.web1/system.slice/a.service", "a.service", "web1", "" },
	{ "/machine.slice/machine-deb.scope", "machine-deb.scope", "deb", "" },
	{ "/machine.slice/systemd-nspawn@deb.service/payload", "systemd-nspawn@deb.service", "deb",
	  "" },
	/* close, but none */
	{ "/docker/0123456789abcdef", "", "", "" },
	{ "/docker/X" ID, "", "", "" },
	{ "/docker/" ID "0", "", "", "" },
	{ "/podium", "", "", "" },
	{ "/kubepods.slice/kubepods-burstable.slice", "", "", "" },
	/* the innermost container counts */
	{ "/docker/ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff/docker/" ID, "",
	  ID, "" },
};

static void test_paths(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		const struct expected *e = &paths[i];
		struct cgroup_labels l;

		cgroup_labels_from_path(e->path, strlen(e->path), &l);
		assert_string_equal(l.cgroup, e->path);
		assert_string_equal(l.unit, e->unit);
		assert_string_equal(l.container, e->container);
		assert_string_equal(l.pod_uid, e->pod_uid);
	}
}

static void check_text(const char *text, const char *cgroup, const char *container)
{
	struct cgroup_labels l;

	cgroup_labels_from_text(text, strlen(text), &l);
	assert_string_equal(l.cgroup, cgroup);
	assert_string_equal(l.container, container);
}

static void test_text(void **state)
{
	/* version 2 */
	check_text("0::/system.slice/a.service\n", "/system.slice/a.service", "");
	check_text("0::/\n", "/", "");
	check_text("0::/a:b:c\n", "/a:b:c", "");
	check_text("0::/gone (deleted)\n", "/gone", "");
	/* hybrid: the unified hierarchy is systemd's */
	check_text("3:memory:/m\n1:name=systemd:/s\n0::/u\n", "/u", "");
	check_text("3:memory:/m\n1:name=systemd:/s\n0::/\n", "/s", "");
	/* version 1 */
	check_text("5:pids:/p\n4:cpu,cpuacct:/c\n3:memory:/m\n", "/m", "");
	check_text("5:pids:/p\n4:cpu,cpuacct:/c\n3:memory:/\n", "/c", "");
	check_text("5:freezer:/f\n", "/f", "");
	check_text("5:freezer:/\n4:cpuset:/\n", "/", "");
	/* whichever hierarchy knows the container */
	check_text("4:memory:/docker/" ID
		   "\n1:name=systemd:/system.slice/x.service\n0::/system.slice/x.service\n",
		   "/docker/" ID, ID);
	/* no line at all, or none that is one */
	check_text("", "", "");
	check_text("nonsense\n\n:\n", "", "");
	check_text("0::/no-newline", "/no-newline", "");
}

static void test_long(void **state)
{
	char path[2 * CGROUP_PATH_MAX];
	struct cgroup_labels l;

	memset(path, 'a', sizeof(path));
	path[0] = '/';
	cgroup_labels_from_path(path, sizeof(path), &l);
	assert_int_equal(strlen(l.cgroup), CGROUP_PATH_MAX - 1);
	memcpy(path + sizeof(path) - 8, ".service", 8);
	cgroup_labels_from_path(path, sizeof(path), &l);
	assert_int_equal(strlen(l.unit), LABEL_MAX - 1);
}

static void test_pods(void **state)
{
	char root[] = "/tmp/sysprofd-pods-XXXXXX", path[256], ns[LABEL_MAX] = "",
	     pod[LABEL_MAX] = "";
	static const char *const dirs[] = { "kube-system_coredns-abc_" UID, "_x_" UID "0",
					    "bad_" UID,
					    "a_b_00000000-0000-0000-0000-000000000000" };

	assert_non_null(mkdtemp(root));
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		snprintf(path, sizeof(path), "%s/%s", root, dirs[i]);
		assert_int_equal(mkdir(path, 0755), 0);
	}
	assert_int_equal(pod_find(root, UID, ns, pod), 0);
	assert_string_equal(ns, "kube-system");
	assert_string_equal(pod, "coredns-abc");
	assert_int_equal(pod_find(root, "11111111-0000-0000-0000-000000000000", ns, pod), -ENOENT);
	assert_string_equal(pod, "coredns-abc");
	assert_int_equal(pod_find(root, "", ns, pod), -ENOENT);
	assert_int_equal(pod_find("/nowhere/at/all", UID, ns, pod), -ENOENT);
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		snprintf(path, sizeof(path), "%s/%s", root, dirs[i]);
		assert_int_equal(rmdir(path), 0);
	}
	assert_int_equal(rmdir(root), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_long),
		cmocka_unit_test(test_pods),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
