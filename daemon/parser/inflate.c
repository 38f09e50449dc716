// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libelf unpacks zstd from 0.189 on, and not in every build. What it leaves is unpacked here, into a memory file: an
 * ELF file with nothing but the debug sections, which is all that libdw wants.
 */
#include <gelf.h>
#include <sys/mman.h>
#include <zstd.h>

#include "base/io.h"
#include "parser/internal.h"

#define ZSTD 2 /* ELFCOMPRESS_ZSTD, which older headers do not have */
#define SECTIONS_MAX 64
#define BYTES_MAX (96ULL << 20) /* the sandbox allows 128 MiB in a file */

struct inflated {
	int fd;
	uint64_t size;
	struct strbuf names;
	Elf64_Shdr sections[SECTIONS_MAX]; /* [0] unused */
	size_t n;
};

static bool is_native(Elf *elf)
{
	GElf_Ehdr e;

	return gelf_getehdr(elf, &e) && e.e_ident[EI_CLASS] == ELFCLASS64 &&
	       e.e_ident[EI_DATA] == (__BYTE_ORDER == __LITTLE_ENDIAN ? ELFDATA2LSB : ELFDATA2MSB);
}

static int append(struct inflated *f, const void *data, size_t len)
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

/* Adds a section as it is, or without its compression where that is zstd. */
static int add_section(struct inflated *f, Elf_Scn *scn, const GElf_Shdr *s, const char *name)
{
	const Elf_Data *d = elf_rawdata(scn, NULL);
	Elf64_Shdr *to = &f->sections[f->n];
	_cleanup_free_ void *plain = NULL;
	Elf64_Chdr c = {};
	int r;

	if (!d || !d->d_buf)
		return 0;
	if (f->n == SECTIONS_MAX - 1)
		return -EFBIG;
	*to = (Elf64_Shdr){ .sh_name = (Elf64_Word)f->names.len,
			    .sh_type = SHT_PROGBITS,
			    .sh_flags = s->sh_flags & SHF_COMPRESSED,
			    .sh_offset = f->size,
			    .sh_size = d->d_size,
			    .sh_addralign = 1 };
	if (to->sh_flags && d->d_size > sizeof(c))
		memcpy(&c, d->d_buf, sizeof(c));
	if (c.ch_type == ZSTD) {
		if (c.ch_size > BYTES_MAX)
			return -EFBIG;
		plain = malloc(c.ch_size + 1);
		if (!plain)
			return -ENOMEM;
		if (ZSTD_decompress(plain, c.ch_size, (const char *)d->d_buf + sizeof(c),
				    d->d_size - sizeof(c)) != c.ch_size)
			return -EBADMSG;
		to->sh_flags = 0;
		to->sh_size = c.ch_size;
	}
	r = append(f, plain ?: d->d_buf, to->sh_size);
	strbuf_add(&f->names, name, strlen(name) + 1);
	f->n++;
	return r;
}

static int add_sections(struct inflated *f, Elf *elf)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr s;
	size_t names;

	if (elf_getshdrstrndx(elf, &names) < 0)
		return -EBADMSG;
	while ((scn = elf_nextscn(elf, scn))) {
		const char *name = gelf_getshdr(scn, &s) ? elf_strptr(elf, names, s.sh_name) : NULL;
		int r;

		if (!name || strncmp(name, ".debug_", 7) || s.sh_type != SHT_PROGBITS)
			continue;
		r = add_section(f, scn, &s, name);
		if (r < 0)
			return r;
	}
	return 0;
}

/* The section headers go to the end, and the file's header, whose room was left, tells where. */
static int finish(struct inflated *f, Elf *elf)
{
	Elf64_Shdr *strings = &f->sections[f->n++];
	GElf_Ehdr from;
	Elf64_Ehdr e;
	int r;

	*strings = (Elf64_Shdr){ .sh_name = 1,
				 .sh_type = SHT_STRTAB,
				 .sh_offset = f->size,
				 .sh_size = f->names.len,
				 .sh_addralign = 1 };
	r = append(f, f->names.data, f->names.len);
	if (r < 0 || !gelf_getehdr(elf, &from))
		return r < 0 ? r : -EBADMSG;
	e = (Elf64_Ehdr){ .e_type = from.e_type,
			  .e_machine = from.e_machine,
			  .e_version = EV_CURRENT,
			  .e_shoff = f->size,
			  .e_ehsize = sizeof(e),
			  .e_shentsize = sizeof(Elf64_Shdr),
			  .e_shnum = (Elf64_Half)f->n,
			  .e_shstrndx = (Elf64_Half)(f->n - 1) };
	memcpy(e.e_ident, from.e_ident, sizeof(e.e_ident));
	r = append(f, f->sections, f->n * sizeof(*f->sections));
	if (r < 0)
		return r;
	return pwrite(f->fd, &e, sizeof(e), 0) == sizeof(e) ? 0 : -EIO;
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
	struct inflated f = { .fd = -1, .n = 1 };
	Elf64_Ehdr room = {};
	int r;

	if (!is_native(elf))
		return -EOPNOTSUPP;
	f.fd = memfd_create("inflated", MFD_CLOEXEC);
	if (f.fd < 0)
		return negative_errno();
	strbuf_add(&f.names, "\0.shstrtab", sizeof("\0.shstrtab"));
	r = append(&f, &room, sizeof(room));
	if (r >= 0)
		r = add_sections(&f, elf);
	if (r >= 0)
		r = strbuf_error(&f.names);
	if (r >= 0)
		r = finish(&f, elf);
	strbuf_done(&f.names);
	if (r < 0) {
		close_fd(f.fd);
		return r;
	}
	*ret_fd = f.fd;
	return 0;
}
