// SPDX-License-Identifier: GPL-2.0-or-later
#include <dirent.h>

#include "collect/labels.h"

#define CONTAINER_ID_LEN 64
#define POD_DIRECTORIES_MAX 65536

struct span {
	const char *p;
	size_t len;
};

static bool span_is(struct span s, const char *text)
{
	return strlen(text) == s.len && memcmp(s.p, text, s.len) == 0;
}

static bool skip_prefix(struct span *s, const char *prefix)
{
	size_t n = strlen(prefix);

	if (s->len < n || memcmp(s->p, prefix, n) != 0)
		return false;
	s->p += n;
	s->len -= n;
	return true;
}

static bool skip_suffix(struct span *s, const char *suffix)
{
	size_t n = strlen(suffix);

	if (s->len < n || memcmp(s->p + s->len - n, suffix, n) != 0)
		return false;
	s->len -= n;
	return true;
}

static bool is_hex(struct span s)
{
	for (size_t i = 0; i < s.len; i++)
		if (!((s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= 'a' && s.p[i] <= 'f')))
			return false;
	return s.len > 0;
}

static void span_copy(struct span s, char *dst, size_t size)
{
	size_t n = MIN(s.len, size - 1);

	memcpy(dst, s.p, n);
	dst[n] = 0;
}

/* Takes the next component off *rest; false at the end. */
static bool next_component(struct span *rest, struct span *ret)
{
	const char *slash;

	while (skip_prefix(rest, "/"))
		;
	if (rest->len == 0)
		return false;
	slash = memchr(rest->p, '/', rest->len);
	*ret = (struct span){ rest->p, slash ? (size_t)(slash - rest->p) : rest->len };
	rest->p += ret->len;
	rest->len -= ret->len;
	return true;
}

/* ---- one component ------------------------------------------------------------------------------------ */

static bool is_unit(struct span c)
{
	static const char *const suffixes[] = { ".service", ".scope", ".socket", ".mount",
						".swap",    ".timer", ".path",	 ".automount" };

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		struct span s = c;

		if (skip_suffix(&s, suffixes[i]) && s.len > 0)
			return true;
	}
	return false;
}

/*
 * docker-ID.scope, cri-containerd-ID.scope, crio-ID, libpod-ID.scope, bare IDs of the cgroupfs drivers.
 * "crio-conmon-ID" and "libpod-conmon-ID" hold the monitor, which is not in the container.
 */
static bool container_of(struct span c, struct span *ret)
{
	skip_suffix(&c, ".scope");
	if (memmem(c.p, c.len, "conmon", 6))
		return false;
	/* containerd without systemd's driver under a systemd path: SLICE:cri-containerd:ID */
	for (size_t i = c.len; i > 0; i--)
		if (c.p[i - 1] == '-' || c.p[i - 1] == ':') {
			c = (struct span){ c.p + i, c.len - i };
			break;
		}
	if (c.len != CONTAINER_ID_LEN || !is_hex(c))
		return false;
	*ret = c;
	return true;
}

/* What lxc and systemd-nspawn name a container stands in place of an id. */
static bool machine_of(struct span c, struct span *ret)
{
	if (skip_prefix(&c, "lxc.payload.") ||
	    (skip_prefix(&c, "machine-") && skip_suffix(&c, ".scope")) ||
	    (skip_prefix(&c, "systemd-nspawn@") && skip_suffix(&c, ".service"))) {
		*ret = c;
		return c.len > 0;
	}
	return false;
}

/* kubepods-burstable-podUID.slice (dashes as underscores) or podUID. */
static bool pod_of(struct span c, struct span *ret)
{
	const char *pod, *colon = memchr(c.p, ':', c.len);

	if (colon)
		c.len = (size_t)(colon - c.p);
	if (skip_prefix(&c, "kubepods-")) {
		if (!skip_suffix(&c, ".slice"))
			return false;
		pod = memmem(c.p, c.len, "pod", 3);
		if (!pod)
			return false;
		c.len -= (size_t)(pod - c.p);
		c.p = pod;
	}
	if (!skip_prefix(&c, "pod") || c.len < 32 || c.len >= LABEL_MAX)
		return false;
	for (size_t i = 0; i < c.len; i++)
		if (c.p[i] != '-' && c.p[i] != '_' && !is_hex((struct span){ c.p + i, 1 }))
			return false;
	*ret = c;
	return true;
}

/* ---- the path ------------------------------------------------------------------------------------------ */

/* systemd escapes names that could be taken for cgroup attributes with a leading underscore. */
static struct span unescape(struct span c)
{
	skip_prefix(&c, "_");
	return c;
}

void cgroup_labels_from_path(const char *path, size_t len, struct cgroup_labels *ret)
{
	struct span rest = { path, len }, c, found;

	*ret = (struct cgroup_labels){};
	span_copy(rest, ret->cgroup, sizeof(ret->cgroup));
	while (next_component(&rest, &c)) {
		/* The outermost unit: what a container's own systemd calls its units is not ours. */
		if (!ret->unit[0] && is_unit(c))
			span_copy(unescape(c), ret->unit, sizeof(ret->unit));
		/* The innermost container and pod. */
		if (container_of(c, &found) || machine_of(c, &found))
			span_copy(found, ret->container, sizeof(ret->container));
		if (pod_of(c, &found)) {
			span_copy(found, ret->pod_uid, sizeof(ret->pod_uid));
			for (char *p = ret->pod_uid; *p; p++)
				if (*p == '_')
					*p = '-';
		}
	}
}

static bool has_controller(struct span list, const char *name)
{
	while (list.len > 0) {
		const char *comma = memchr(list.p, ',', list.len);
		struct span one = { list.p, comma ? (size_t)(comma - list.p) : list.len };

		if (span_is(one, name))
			return true;
		list.p += MIN(one.len + 1, list.len);
		list.len -= MIN(one.len + 1, list.len);
	}
	return false;
}

/* How good the path of this hierarchy is; "/" says nothing, whatever its hierarchy. */
static int rank(struct span controllers, struct span path)
{
	struct span rest = path, c, found;
	int r = 1;

	if (span_is(path, "/"))
		return 0;
	if (controllers.len == 0)
		r = 6;
	else if (span_is(controllers, "name=systemd"))
		r = 5;
	else if (has_controller(controllers, "memory"))
		r = 4;
	else if (has_controller(controllers, "cpu"))
		r = 3;
	else if (has_controller(controllers, "pids"))
		r = 2;
	while (next_component(&rest, &c))
		if (container_of(c, &found))
			return r + 10;
	return r;
}

/* "4:memory,foo:/path": the path may hold colons, the others not. */
static bool split_line(struct span line, struct span *ret_controllers, struct span *ret_path)
{
	const char *a = memchr(line.p, ':', line.len), *b;

	if (!a)
		return false;
	b = memchr(a + 1, ':', (size_t)(line.p + line.len - (a + 1)));
	if (!b)
		return false;
	*ret_controllers = (struct span){ a + 1, (size_t)(b - (a + 1)) };
	*ret_path = (struct span){ b + 1, (size_t)(line.p + line.len - (b + 1)) };
	return true;
}

void cgroup_labels_from_text(const char *text, size_t len, struct cgroup_labels *ret)
{
	struct span best = { "", 0 };
	int best_rank = -1;

	while (len > 0) {
		const char *nl = memchr(text, '\n', len);
		struct span line = { text, nl ? (size_t)(nl - text) : len }, controllers, path;

		if (split_line(line, &controllers, &path)) {
			/* A cgroup that was removed while the process stayed in it. */
			skip_suffix(&path, " (deleted)");
			if (rank(controllers, path) > best_rank) {
				best_rank = rank(controllers, path);
				best = path;
			}
		}
		text += MIN(line.len + 1, len);
		len -= MIN(line.len + 1, len);
	}
	cgroup_labels_from_path(best.p, best.len, ret);
}

/* ---- pods ----------------------------------------------------------------------------------------------- */

static void closedir_p(DIR **d)
{
	if (*d)
		closedir(*d);
}

/* Splits NAMESPACE_POD_UID: neither namespaces nor pod names hold underscores. */
static bool split_pod(const char *name, const char *uid, char *ret_namespace, char *ret_pod)
{
	struct span s = { name, strlen(name) }, pod;
	const char *sep;

	if (!skip_suffix(&s, uid) || !skip_suffix(&s, "_"))
		return false;
	sep = memchr(s.p, '_', s.len);
	if (!sep || sep == s.p)
		return false;
	pod = (struct span){ sep + 1, (size_t)(s.p + s.len - (sep + 1)) };
	if (pod.len == 0 || pod.len >= LABEL_MAX)
		return false;
	span_copy((struct span){ s.p, (size_t)(sep - s.p) }, ret_namespace, LABEL_MAX);
	span_copy(pod, ret_pod, LABEL_MAX);
	return true;
}

int pod_find(const char *root, const char *pod_uid, char *ret_namespace, char *ret_pod)
{
	_cleanup_(closedir_p) DIR *d = NULL;
	const struct dirent *e;

	if (str_empty(pod_uid))
		return -ENOENT;
	d = opendir(root);
	if (!d)
		return negative_errno();
	for (unsigned n = 0; n < POD_DIRECTORIES_MAX && (e = readdir(d)); n++)
		if (split_pod(e->d_name, pod_uid, ret_namespace, ret_pod))
			return 0;
	return -ENOENT;
}
