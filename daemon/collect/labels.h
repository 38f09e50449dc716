/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a cgroup path tells about a process: systemd unit, container, Kubernetes pod. Pure functions on text,
 * except for the pod's name, which the name of its log directory gives. Thread-safe.
 */
#pragma once

#include "base/util.h"

#define CGROUP_PATH_MAX 4096
#define LABEL_MAX 256 /* file name limit of units and of pod log directories */

struct cgroup_labels {
	char cgroup[CGROUP_PATH_MAX]; /* raw bytes, like all of these */
	char unit[LABEL_MAX];
	char container[LABEL_MAX]; /* 64 hexadecimal digits, or another id of that runtime */
	char pod_uid[LABEL_MAX]; /* with dashes where it has any */
};

/*
 * Reads the text of /proc/PID/cgroup, versions 1, 2 and both. The one path that is kept is, in this order:
 * one that names a container, the unified one, that of the systemd hierarchy, then memory, cpu, pids; "/"
 * only when there is no other.
 */
void cgroup_labels_from_text(const char *text, size_t len, struct cgroup_labels *ret);
void cgroup_labels_from_path(const char *path, size_t len, struct cgroup_labels *ret);

/*
 * Looks under `root` (/var/log/pods) for the directory NAMESPACE_POD_UID. -ENOENT when there is none. Both
 * outputs have room for LABEL_MAX bytes.
 */
int pod_find(const char *root, const char *pod_uid, char *ret_namespace,
	     char *ret_pod) _warn_unused_;
