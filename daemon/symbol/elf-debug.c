// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Symbols of stripped programs that lie elsewhere. .gnu_debugdata is an ELF file in the file, compressed with xz,
 * whose .symtab holds the functions that .dynsym does not have. A few bytes can stand for any number, so what is
 * unpacked is limited, and of that only the names are kept. A separate debug file is opened by the daemon; here is
 * found out whether it belongs to the program.
 */
#include <lzma.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/io.h"
#include "symbol/elf-internal.h"

#define UNPACKED_MAX (64ULL << 20)
/* Symbol tables shrink to a fifth; what shrinks to less than a hundredth is no symbol table. */
#define RATIO_MAX 100
#define RATIO_FREE (1ULL << 20)
#define UNPACK_MEMORY (64ULL << 20) /* xz -9 asks for this much */
#define TEXT_MAX (16ULL << 20)
#define CHUNK 65536
#define CRC_MAX (256LL << 20) /* read within a second or two */

/* ---- a symbol table in another file -------------------------------------------------------------- */

/* With the names' place in t->strings. -ENOENT: there is none. */
static int read_symtab(struct elf_reader *r, enum symbol_strings strings)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr s;
	int q = elf_index_sections(r);

	if (q < 0)
		return q;
	while ((scn = elf_nextscn(r->elf, scn)))
		if (gelf_getshdr(scn, &s) && s.sh_type == SHT_SYMTAB)
			return elf_read_section(r, &s, strings);
	return -ENOENT;
}

/* Adds the functions of fd's .symtab to the table of main, or nothing. */
static int read_other(const struct elf_reader *main, int fd, enum symbol_strings strings)
{
	_cleanup_(elf_end_p) Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
	struct elf_reader r = { .fd = fd, .elf = elf, .t = main->t };
	size_t before = main->t->n_symbols;
	GElf_Ehdr e;
	int q;

	if (!elf || elf_kind(elf) != ELF_K_ELF || !gelf_getehdr(elf, &e) ||
	    gelf_getclass(elf) != main->class || e.e_ident[EI_DATA] != main->encoding ||
	    e.e_machine != main->machine)
		return -EBADMSG;
	r.class = main->class;
	r.encoding = main->encoding;
	r.machine = main->machine;
	q = read_symtab(&r, strings);
	free(r.by_index);
	if (q < 0)
		main->t->n_symbols = before;
	return q;
}

/* ---- .gnu_debugdata --------------------------------------------------------------------------------- */

/* One turn of the decoder: what it made goes to out. 1 when all is unpacked. */
static int unpack_some(lzma_stream *z, int out, lzma_action action)
{
	uint8_t buf[CHUNK];
	lzma_ret r;
	int q;

	z->next_out = buf;
	z->avail_out = sizeof(buf);
	r = lzma_code(z, action);
	if (r != LZMA_OK && r != LZMA_STREAM_END)
		return r == LZMA_MEM_ERROR ? -ENOMEM : -EBADMSG;
	if (z->total_out > UNPACKED_MAX ||
	    (z->total_out > RATIO_FREE && z->total_out / RATIO_MAX > z->total_in))
		return -EFBIG;
	q = write_full(out, buf, sizeof(buf) - z->avail_out);
	return q < 0 ? q : r == LZMA_STREAM_END;
}

static int unpack(lzma_stream *z, int fd, struct range packed, int out)
{
	_cleanup_free_ uint8_t *in = malloc(CHUNK);
	int q = 0;

	if (!in)
		return -ENOMEM;
	while (q == 0) {
		if (z->avail_in == 0) {
			size_t n = MIN(packed.end - packed.start, (uint64_t)CHUNK);

			q = pread_full(fd, in, n, packed.start);
			if (q < 0)
				return q;
			packed.start += n;
			z->next_in = in;
			z->avail_in = n;
		}
		q = unpack_some(z, out, packed.start == packed.end ? LZMA_FINISH : LZMA_RUN);
	}
	return q < 0 ? q : 0;
}

static int unpack_section(const struct elf_reader *r, const GElf_Shdr *s, int *ret)
{
	_cleanup_close_ int fd = memfd_create("debugdata", MFD_CLOEXEC);
	lzma_stream z = LZMA_STREAM_INIT;
	int q;

	if (fd < 0)
		return negative_errno();
	if (s->sh_offset > INT64_MAX || s->sh_size > UNPACKED_MAX)
		return -EFBIG;
	if (lzma_stream_decoder(&z, UNPACK_MEMORY, 0) != LZMA_OK)
		return -ENOMEM;
	q = unpack(&z, r->fd, (struct range){ s->sh_offset, s->sh_offset + s->sh_size }, fd);
	lzma_end(&z);
	if (q < 0)
		return q;
	*ret = TAKE_FD(fd);
	return 0;
}

/* The names outlive the file that was unpacked. */
static int keep_text(struct elf_table *t, int fd)
{
	struct range *text = &t->strings[STRINGS_TEXT];
	_cleanup_free_ char *copy = NULL;
	int q;

	if (text->end <= text->start || text->end - text->start > TEXT_MAX)
		return -EBADMSG;
	copy = malloc(text->end - text->start);
	if (!copy)
		return -ENOMEM;
	q = pread_full(fd, copy, text->end - text->start, text->start);
	if (q < 0)
		return q;
	t->text = TAKE_PTR(copy);
	return 0;
}

int elf_read_debugdata(struct elf_reader *r)
{
	size_t before = r->t->n_symbols;
	_cleanup_close_ int fd = -1;
	GElf_Shdr s;
	int q;

	if (!elf_find_section(r, ".gnu_debugdata", &s))
		return 0;
	q = unpack_section(r, &s, &fd);
	if (q >= 0)
		q = read_other(r, fd, STRINGS_TEXT);
	if (q >= 0)
		q = keep_text(r->t, fd);
	if (q >= 0)
		return 0;
	r->t->n_symbols = before;
	return q == -ENOMEM ? q : 0;
}

/* ---- a separate debug file --------------------------------------------------------------------------- */

/* A base name, padded to four bytes, and the CRC. */
void elf_read_link(struct elf_reader *r)
{
	char buf[NAME_MAX + 1 + 3 + sizeof(uint32_t)];
	struct elf_table *t = r->t;
	size_t len, size;
	GElf_Shdr s;

	if (!elf_find_section(r, ".gnu_debuglink", &s))
		return;
	size = MIN(s.sh_size, sizeof(buf));
	if (s.sh_offset > INT64_MAX || pread_full(r->fd, buf, size, s.sh_offset) < 0)
		return;
	len = strnlen(buf, size);
	if (!len || len > NAME_MAX || (len + 4) / 4 * 4 + sizeof(uint32_t) > size ||
	    memchr(buf, '/', len) || streq(buf, ".") || streq(buf, ".."))
		return;
	if (elf_read_records(r, ELF_T_WORD, &t->link_crc, sizeof(t->link_crc),
			     s.sh_offset + (len + 4) / 4 * 4) == 0)
		memcpy(t->link, buf, len + 1);
}

static bool has_crc(int fd, uint32_t want)
{
	_cleanup_free_ uint8_t *buf = malloc(CHUNK);
	uLong crc = crc32(0, NULL, 0);
	struct stat st;

	if (!buf || fstat(fd, &st) < 0 || st.st_size > CRC_MAX)
		return false;
	for (off_t at = 0; at < st.st_size;) {
		size_t n = (size_t)MIN(st.st_size - at, (off_t)CHUNK);

		if (pread_full(fd, buf, n, (uint64_t)at) < 0)
			return false;
		crc = crc32(crc, buf, (uInt)n);
		at += (off_t)n;
	}
	return crc == want;
}

bool elf_table_owns(const struct elf_table *t, int debug_fd)
{
	_cleanup_(elf_end_p) Elf *elf = elf_begin(debug_fd, ELF_C_READ, NULL);
	char build_id[2 * ELF_BUILD_ID_MAX + 1];

	if (!elf || elf_kind(elf) != ELF_K_ELF)
		return false;
	elf_read_build_id(elf, build_id);
	if (*build_id && *t->build_id)
		return streq(build_id, t->build_id);
	return *t->link && has_crc(debug_fd, t->link_crc);
}

int elf_read_debug_file(struct elf_reader *r)
{
	int q = elf_table_owns(r->t, r->debug_fd) ? read_other(r, r->debug_fd, STRINGS_DEBUG)
						  : -ESTALE;

	if (q < 0)
		return q == -ENOMEM ? q : -ESTALE;
	r->t->has_debug_file = true;
	return 0;
}
