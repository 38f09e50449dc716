// SPDX-License-Identifier: GPL-2.0-or-later
#include <elf.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include "base/io.h"
#include "unwind/image.h"
#include "unwind/reader.h"
#include "unwind/table.h"

/* Not in each version of elf.h. */
#define COMPRESS_ZLIB 1
#define COMPRESS_ZSTD 2

/* ---- headers ----------------------------------------------------------------------------------- */

/* What of it lies in the file. */
static struct image_part part_of(const struct image *m, uint64_t offset, uint64_t size,
				 uint64_t vaddr)
{
	if (offset >= m->size || vaddr > UINT64_MAX - size)
		return (struct image_part){};
	return (struct image_part){ offset, MIN(size, m->size - offset), vaddr, false };
}

static int add_load(struct image *m, const Elf64_Phdr *p)
{
	struct image_part part = part_of(m, p->p_offset, p->p_filesz, p->p_vaddr);

	if (!part.size)
		return 0;
	if (m->n_loads == IMAGE_LOADS_MAX)
		return -EFBIG;
	m->loads[m->n_loads++] = (struct image_load){ part, p->p_flags & PF_X };
	return 0;
}

static int read_program_headers(struct image *m, const Elf64_Ehdr *e)
{
	_cleanup_(reader_done) struct reader r = {};
	uint64_t n = e->e_phnum;
	int q = reader_init(&r, m->fd, 0, m->size, 2);

	if (q < 0)
		return q;
	if (e->e_phentsize != sizeof(Elf64_Phdr))
		return -EBADMSG;
	for (uint64_t i = 0; i < n; i++) {
		const uint8_t *bytes;
		Elf64_Phdr p;

		if (e->e_phoff > INT64_MAX)
			return -EBADMSG;
		q = reader_get(&r, e->e_phoff + i * sizeof(p), sizeof(p), &bytes);
		if (q < 0)
			return q;
		memcpy(&p, bytes, sizeof(p));
		if (p.p_type == PT_LOAD)
			q = add_load(m, &p);
		else if (p.p_type == PT_GNU_EH_FRAME)
			m->frame_header = part_of(m, p.p_offset, p.p_filesz, p.p_vaddr);
		if (q < 0)
			return q;
	}
	return m->n_loads ? 0 : -ENOEXEC;
}

/* ---- sections ---------------------------------------------------------------------------------- */

static bool read_section_header(struct reader *r, uint64_t table, uint64_t i, Elf64_Shdr *ret)
{
	const uint8_t *bytes;

	if (table > INT64_MAX || i > UINT32_MAX ||
	    reader_get(r, table + i * sizeof(*ret), sizeof(*ret), &bytes) < 0)
		return false;
	memcpy(ret, bytes, sizeof(*ret));
	return true;
}

static bool begins_with(struct reader *r, const Elf64_Shdr *names, const Elf64_Shdr *s,
			const char *text, size_t len)
{
	const uint8_t *bytes;

	return s->sh_name < names->sh_size && len <= names->sh_size - s->sh_name &&
	       names->sh_offset <= INT64_MAX &&
	       reader_get(r, names->sh_offset + s->sh_name, len, &bytes) == 0 &&
	       memcmp(bytes, text, len) == 0;
}

static bool has_name(struct reader *r, const Elf64_Shdr *names, const Elf64_Shdr *s,
		     const char *name)
{
	return begins_with(r, names, s, name, strlen(name) + 1);
}

static void add_code(struct image *m, struct image_part part)
{
	if (part.size && m->n_code < IMAGE_CODE_MAX)
		m->code[m->n_code++] = part;
}

static bool is_linkage(struct reader *r, const Elf64_Shdr *names, const Elf64_Shdr *s)
{
	static const char *const tables[] = { ".plt",  ".plt.sec", ".plt.got",
					      ".iplt", ".init",	   ".fini" };

	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		if (has_name(r, names, s, tables[i]))
			return true;
	return false;
}

static void take_code(struct image *m, struct reader *r, const Elf64_Shdr *names,
		      const Elf64_Shdr *s, struct image_part part)
{
	/* The code as it was before BOLT moved it: nobody runs it. */
	static const char bolt[] = ".bolt.org";

	if (is_linkage(r, names, s) && part.size && m->n_linkage < IMAGE_LINKAGE_MAX)
		m->linkage[m->n_linkage++] = part;
	else if (!begins_with(r, names, s, bolt, sizeof(bolt) - 1))
		add_code(m, part);
}

static bool is_go_table(struct reader *r, const Elf64_Shdr *names, const Elf64_Shdr *s)
{
	return has_name(r, names, s, ".gopclntab") ||
	       has_name(r, names, s, ".data.rel.ro.gopclntab");
}

static void take_section(struct image *m, struct reader *r, const Elf64_Shdr *names,
			 const Elf64_Shdr *s)
{
	struct image_part part = part_of(m, s->sh_offset, s->sh_size, s->sh_addr);

	part.compressed = s->sh_flags & SHF_COMPRESSED;
	if (s->sh_type == SHT_NOBITS || s->sh_type == SHT_NULL)
		return;
	if (s->sh_flags & SHF_EXECINSTR)
		take_code(m, r, names, s, part);
	if (has_name(r, names, s, ".eh_frame"))
		m->eh_frame = part;
	else if (has_name(r, names, s, ".debug_frame"))
		m->debug_frame = part;
	else if (is_go_table(r, names, s))
		m->is_go = true;
}

/* Whatever is wrong with them: the program runs without sections. */
static int read_sections(struct image *m, const Elf64_Ehdr *e)
{
	_cleanup_(reader_done) struct reader r = {};
	uint64_t n = e->e_shnum, names_at = e->e_shstrndx;
	Elf64_Shdr first, names, strings, s;
	int q = reader_init(&r, m->fd, 0, m->size, 8);

	if (q < 0)
		return q;
	if (!e->e_shoff || e->e_shentsize != sizeof(Elf64_Shdr) ||
	    !read_section_header(&r, e->e_shoff, 0, &first))
		return 0;
	/* Larger numbers than the header holds are in the first section's. */
	if (!n)
		n = first.sh_size;
	if (names_at == SHN_XINDEX)
		names_at = first.sh_link;
	if (!read_section_header(&r, e->e_shoff, names_at, &names))
		return 0;
	for (uint64_t i = 1; i < n && read_section_header(&r, e->e_shoff, i, &s); i++) {
		take_section(m, &r, &names, &s);
		if (s.sh_type == SHT_SYMTAB &&
		    read_section_header(&r, e->e_shoff, s.sh_link, &strings)) {
			m->symbols = part_of(m, s.sh_offset, s.sh_size, 0);
			m->symbol_names = part_of(m, strings.sh_offset, strings.sh_size, 0);
		}
	}
	return 0;
}

static int by_vaddr(const void *a, const void *b)
{
	const struct image_part *p = a, *q = b;

	return p->vaddr < q->vaddr ? -1 : p->vaddr > q->vaddr;
}

static uint64_t code_end(const struct image_part *parts, size_t n, const struct image_part *load)
{
	uint64_t end = load->vaddr;

	for (size_t i = 0; i < n; i++)
		if (parts[i].vaddr >= load->vaddr && parts[i].vaddr - load->vaddr < load->size)
			end = MAX(end,
				  MIN(parts[i].vaddr + parts[i].size, load->vaddr + load->size));
	return end;
}

/* Of segments that are too large for a table: constants may share them with code, and be many times as large. */
static void trim_loads(struct image *m)
{
	for (size_t i = 0; i < m->n_loads; i++) {
		struct image_part *p = &m->loads[i].part;
		uint64_t end = MAX(code_end(m->code, m->n_code, p),
				   code_end(m->linkage, m->n_linkage, p));

		if (m->loads[i].executable && p->size > UNWIND_TABLE_BYTES && end > p->vaddr)
			p->size = end - p->vaddr;
	}
}

static void sort_code(struct image *m)
{
	/* So many that some were left out are as good as none. */
	if (m->n_code == IMAGE_CODE_MAX)
		m->n_code = 0;
	if (m->n_code)
		trim_loads(m);
	for (size_t i = 0; !m->n_code && i < m->n_loads; i++)
		if (m->loads[i].executable)
			add_code(m, m->loads[i].part);
	qsort(m->code, m->n_code, sizeof(m->code[0]), by_vaddr);
	qsort(m->linkage, m->n_linkage, sizeof(m->linkage[0]), by_vaddr);
}

int image_open(int fd, struct image *ret)
{
	struct image m = { .fd = fd };
	struct stat st;
	Elf64_Ehdr e;
	int r;

	if (fstat(fd, &st) < 0)
		return negative_errno();
	m.size = (uint64_t)st.st_size;
	r = pread_full(fd, &e, sizeof(e), 0);
	if (r < 0)
		return r == -ENODATA ? -ENOEXEC : r;
	if (memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 || e.e_ident[EI_CLASS] != ELFCLASS64 ||
	    e.e_ident[EI_DATA] != ELFDATA2LSB || (e.e_type != ET_EXEC && e.e_type != ET_DYN) ||
	    (e.e_machine != EM_X86_64 && e.e_machine != EM_AARCH64))
		return -ENOEXEC;
	m.machine = e.e_machine;
	m.entry = e.e_entry;
	r = read_program_headers(&m, &e);
	if (r >= 0)
		r = read_sections(&m, &e);
	if (r < 0)
		return r;
	sort_code(&m);
	*ret = m;
	return 0;
}

bool image_part_at(const struct image *m, uint64_t vaddr, struct image_part *ret)
{
	for (size_t i = 0; i < m->n_loads; i++) {
		const struct image_part *p = &m->loads[i].part;
		uint64_t skip = vaddr - p->vaddr;

		if (vaddr < p->vaddr || skip >= p->size)
			continue;
		*ret = (struct image_part){ p->offset + skip, p->size - skip, vaddr, false };
		return true;
	}
	return false;
}

/* ---- compressed sections ----------------------------------------------------------------------- */

static bool inflate_zlib(const void *in, size_t n_in, void *out, size_t n_out)
{
	uLongf n = n_out;

	return uncompress(out, &n, in, n_in) == Z_OK && n == n_out;
}

static bool inflate_zstd(const void *in, size_t n_in, void *out, size_t n_out)
{
	return ZSTD_decompress(out, n_out, in, n_in) == n_out;
}

int image_inflate(const struct image *m, const struct image_part *p, void **ret, size_t *ret_size)
{
	_cleanup_free_ uint8_t *in = NULL;
	_cleanup_free_ void *out = NULL;
	const uint8_t *data;
	size_t left;
	Elf64_Chdr h;
	bool done;
	int r;

	if (p->size <= sizeof(h))
		return -EBADMSG;
	if (p->size > IMAGE_INFLATED_MAX)
		return -EFBIG;
	in = malloc(p->size);
	if (!in)
		return -ENOMEM;
	r = pread_full(m->fd, in, p->size, p->offset);
	if (r < 0)
		return r == -ENODATA ? -EBADMSG : r;
	memcpy(&h, in, sizeof(h));
	if (h.ch_size > IMAGE_INFLATED_MAX)
		return -EFBIG;
	out = malloc(h.ch_size + !h.ch_size);
	if (!out)
		return -ENOMEM;
	data = in + sizeof(h);
	left = p->size - sizeof(h);
	if (h.ch_type == COMPRESS_ZLIB)
		done = inflate_zlib(data, left, out, h.ch_size);
	else
		done = h.ch_type == COMPRESS_ZSTD && inflate_zstd(data, left, out, h.ch_size);
	if (!done)
		return -EBADMSG;
	*ret = TAKE_PTR(out);
	*ret_size = h.ch_size;
	return 0;
}
