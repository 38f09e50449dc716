// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/io.h"
#include "collect/types.h"

#define SIZE_LIMIT (256U << 20)

/* Before 6.15 it cannot be mapped. */
static int read_all(int fd, struct kernel_types *t)
{
	t->data = malloc(t->size);
	return t->data ? pread_full(fd, t->data, t->size, 0) : -ENOMEM;
}

/* Both sections within the data, strings ended: from here on all of it can be walked. */
static int find_sections(struct kernel_types *t)
{
	const struct btf_header *h = t->data;
	uint64_t body = t->size;

	if (t->size < sizeof(*h) || h->magic != BTF_MAGIC || h->version != BTF_VERSION ||
	    h->hdr_len < sizeof(*h) || h->hdr_len > t->size)
		return -EBADMSG;
	body -= h->hdr_len;
	if ((uint64_t)h->type_off + h->type_len > body || h->type_off % 4 || h->hdr_len % 4 ||
	    (uint64_t)h->str_off + h->str_len > body || h->str_len == 0)
		return -EBADMSG;
	t->types = (const char *)t->data + h->hdr_len + h->type_off;
	t->types_end = t->types + h->type_len;
	t->strings = (const char *)t->data + h->hdr_len + h->str_off;
	t->strings_size = h->str_len;
	return t->strings[t->strings_size - 1] ? -EBADMSG : 0;
}

int types_open(const char *path, struct kernel_types *ret)
{
	_cleanup_(types_done) struct kernel_types t = {};
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	int r = 0;

	if (fd < 0 || fstat(fd, &st) < 0)
		return negative_errno();
	if (st.st_size <= 0 || st.st_size > SIZE_LIMIT)
		return -EBADMSG;
	t.size = (size_t)st.st_size;
	t.data = mmap(NULL, t.size, PROT_READ, MAP_PRIVATE, fd, 0);
	t.mapped = t.data != MAP_FAILED;
	if (!t.mapped) {
		t.data = NULL;
		r = read_all(fd, &t);
	}
	if (r == 0)
		r = find_sections(&t);
	if (r < 0)
		return r;
	*ret = t;
	t = (struct kernel_types){};
	return 0;
}

void types_done(struct kernel_types *t)
{
	if (t->mapped)
		munmap(t->data, t->size);
	else
		free(t->data);
	*t = (struct kernel_types){};
}

/* What follows the type's head; SIZE_MAX for a kind that is not known. */
static size_t tail_size(const struct btf_type *t)
{
	size_t n = btf_vlen(t);

	switch (btf_kind(t)) {
	case BTF_KIND_PTR:
	case BTF_KIND_FWD:
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_FUNC:
	case BTF_KIND_FLOAT:
	case BTF_KIND_TYPE_TAG:
		return 0;
	case BTF_KIND_INT:
	case BTF_KIND_VAR:
	case BTF_KIND_DECL_TAG:
		return 4;
	case BTF_KIND_ARRAY:
		return sizeof(struct btf_array);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		return n * sizeof(struct btf_member);
	case BTF_KIND_ENUM:
		return n * sizeof(struct btf_enum);
	case BTF_KIND_ENUM64:
		return n * 3 * sizeof(uint32_t);
	case BTF_KIND_FUNC_PROTO:
		return n * sizeof(struct btf_param);
	case BTF_KIND_DATASEC:
		return n * sizeof(struct btf_var_secinfo);
	}
	return SIZE_MAX;
}

/* The type at `at` if all of it is there, and where the next one begins. */
static const struct btf_type *type_at(const struct kernel_types *t, const char *at,
				      const char **ret_next)
{
	const struct btf_type *type = (const void *)at;
	size_t left = (size_t)(t->types_end - at), tail;

	if (left < sizeof(*type))
		return NULL;
	tail = tail_size(type);
	if (tail > left - sizeof(*type))
		return NULL;
	*ret_next = at + sizeof(*type) + tail;
	return type;
}

const char *types_string(const struct kernel_types *t, uint32_t offset)
{
	return offset < t->strings_size ? t->strings + offset : "";
}

const struct btf_type *types_find(const struct kernel_types *t, const char *name, unsigned kind,
				  uint32_t *ret_id)
{
	const struct btf_type *type;
	const char *at = t->types;

	for (uint32_t id = 1; (type = type_at(t, at, &at)); id++)
		if (btf_kind(type) == kind && streq(types_string(t, type->name_off), name)) {
			*ret_id = id;
			return type;
		}
	return NULL;
}

const struct btf_type *types_get(const struct kernel_types *t, uint32_t id)
{
	const struct btf_type *type = NULL;
	const char *at = t->types;

	for (uint32_t i = 0; i < id; i++) {
		type = type_at(t, at, &at);
		if (!type)
			return NULL;
	}
	return type;
}
