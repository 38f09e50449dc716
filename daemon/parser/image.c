// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Memory files that libdw reads: ELF files with nothing but debug sections, put together here. libelf unpacks zstd from
 * 0.189 on, and not in every build: what it leaves is unpacked on the way.
 */
#include <gelf.h>
#include <sys/mman.h>
#include <zstd.h>

#include "base/io.h"
#include "parser/internal.h"

#define ZSTD 2 /* ELFCOMPRESS_ZSTD, which older headers do not have */
#define BYTES_MAX (96ULL << 20) /* the sandbox allows 128 MiB in a file */

static bool is_native(Elf *elf)
{
	GElf_Ehdr e;

	return gelf_getehdr(elf, &e) && e.e_ident[EI_CLASS] == ELFCLASS64 &&
	       e.e_ident[EI_DATA] == (__BYTE_ORDER == __LITTLE_ENDIAN ? ELFDATA2LSB : ELFDATA2MSB);
}

static int append(struct debug_image *f, const void *data, size_t len)
{
	static const char zeros[8];
	size_t padding = -(f->size + len) & 7;
	int r;

	if (len > BYTES_MAX || f->size + len > BYTES_MAX)
		return -EFBIG;
	r = write_full(f->fd, data, len);
	if (r >= 0)
		r = write_full(f->fd, zeros, padding);
	f->size += len + padding;
	return r;
}

int debug_image_add(struct debug_image *f, const char *name, const void *data, size_t len,
		    uint64_t flags)
{
	Elf64_Shdr *to = &f->sections[f->n];
	int r;

	if (f->n == IMAGE_SECTIONS_MAX - 1)
		return -EFBIG;
	*to = (Elf64_Shdr){ .sh_name = (Elf64_Word)f->names.len,
			    .sh_type = SHT_PROGBITS,
			    .sh_flags = flags & SHF_COMPRESSED,
			    .sh_offset = f->size,
			    .sh_size = len,
			    .sh_addralign = 1 };
	r = append(f, data, len);
	strbuf_add(&f->names, name, strlen(name) + 1);
	f->n++;
	return r;
}

/* As it is, or without its compression where that is zstd. */
static int add_section(struct debug_image *f, Elf_Scn *scn, const GElf_Shdr *s, const char *name)
{
	const Elf_Data *d = elf_rawdata(scn, NULL);
	_cleanup_free_ void *plain = NULL;
	Elf64_Chdr c = {};

	if (!d || !d->d_buf)
		return 0;
	if ((s->sh_flags & SHF_COMPRESSED) && d->d_size > sizeof(c))
		memcpy(&c, d->d_buf, sizeof(c));
	if (c.ch_type != ZSTD)
		return debug_image_add(f, name, d->d_buf, d->d_size, s->sh_flags);
	if (c.ch_size > BYTES_MAX)
		return -EFBIG;
	plain = malloc(c.ch_size + 1);
	if (!plain)
		return -ENOMEM;
	if (ZSTD_decompress(plain, c.ch_size, (const char *)d->d_buf + sizeof(c),
			    d->d_size - sizeof(c)) != c.ch_size)
		return -EBADMSG;
	return debug_image_add(f, name, plain, c.ch_size, 0);
}

int debug_image_add_all(struct debug_image *f, Elf *elf)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr s;
	size_t names;

	if (elf_getshdrstrndx(elf, &names) < 0)
		return -EBADMSG;
	while ((scn = elf_nextscn(elf, scn))) {
		const char *name = gelf_getshdr(scn, &s) ? elf_strptr(elf, names, s.sh_name) : NULL;
		int r;

		if (!name || s.sh_type != SHT_PROGBITS ||
		    (strncmp(name, ".debug_", 7) && !streq(name, ".gnu_debugaltlink")))
			continue;
		r = add_section(f, scn, &s, name);
		if (r < 0)
			return r;
	}
	return 0;
}

/* The section headers go to the end, and the file's header, whose room was left, tells where. */
int debug_image_finish(struct debug_image *f)
{
	Elf64_Shdr *strings = &f->sections[f->n++];
	int r;

	*strings = (Elf64_Shdr){ .sh_name = 1,
				 .sh_type = SHT_STRTAB,
				 .sh_offset = f->size,
				 .sh_size = f->names.len,
				 .sh_addralign = 1 };
	r = strbuf_error(&f->names);
	if (r >= 0)
		r = append(f, f->names.data, f->names.len);
	if (r < 0)
		return r;
	f->head.e_shoff = f->size;
	f->head.e_shnum = (Elf64_Half)f->n;
	f->head.e_shstrndx = (Elf64_Half)(f->n - 1);
	r = append(f, f->sections, f->n * sizeof(*f->sections));
	if (r < 0)
		return r;
	return pwrite(f->fd, &f->head, sizeof(f->head), 0) == sizeof(f->head) ? 0 : -EIO;
}

int debug_image_begin(struct debug_image *f, Elf *like)
{
	static const Elf64_Ehdr room;
	GElf_Ehdr e;

	*f = (struct debug_image){ .fd = -1, .n = 1 };
	if (!is_native(like) || !gelf_getehdr(like, &e))
		return -EOPNOTSUPP;
	f->head = (Elf64_Ehdr){ .e_type = e.e_type,
				.e_machine = e.e_machine,
				.e_version = EV_CURRENT,
				.e_ehsize = sizeof(f->head),
				.e_shentsize = sizeof(Elf64_Shdr) };
	memcpy(f->head.e_ident, e.e_ident, sizeof(e.e_ident));
	f->fd = memfd_create("image", MFD_CLOEXEC);
	if (f->fd < 0)
		return negative_errno();
	strbuf_add(&f->names, "\0.shstrtab", sizeof("\0.shstrtab"));
	return append(f, &room, sizeof(room));
}

void debug_image_done(struct debug_image *f)
{
	close_fd(f->fd);
	strbuf_done(&f->names);
}

bool needs_inflating(Elf *elf)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr s;
	GElf_Chdr c;

	while ((scn = elf_nextscn(elf, scn)))
		if (gelf_getshdr(scn, &s) && (s.sh_flags & SHF_COMPRESSED) &&
		    gelf_getchdr(scn, &c) && c.ch_type == ZSTD)
			return true;
	return false;
}

int inflate_debug(Elf *elf, int *ret_fd)
{
	_cleanup_(debug_image_done) struct debug_image f;
	int r = debug_image_begin(&f, elf);

	if (r >= 0)
		r = debug_image_add_all(&f, elf);
	if (r >= 0)
		r = debug_image_finish(&f);
	if (r >= 0)
		*ret_fd = TAKE_FD(f.fd);
	return r;
}
