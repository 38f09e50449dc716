// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Split DWARF, 4 (GNU) and 5. libdw wants to open such files itself, by paths that lead nowhere from here, and cannot be
 * handed one. Yet a unit is complete with what few sections its program has for it. So an image is made of both: the
 * unit's own sections, which lie in its .dwo file or in a package of all units (.dwp), and of the program's .debug_addr
 * and .debug_ranges what is the unit's, from where libdw takes it when nothing else is told. Lists of ranges count
 * from the unit's lowest address, which only the skeleton knows, while libdw takes zero: therefore all addresses of an
 * image are told from there.
 */
#include <dwarf.h>

#include "helper/limits.h"
#include "parser/internal.h"

#define SPLITS_MAX 256
#define IMAGES_BYTES (192ULL << 20) /* of all units of one program */
#define TABLE_MAX (8ULL << 20) /* of addresses or ranges of one unit */
#define COLUMNS_MAX 16
#define PACKAGE UINT64_MAX /* its id, as a part */

struct splits {
	Elf *program, *package;
	struct split items[SPLITS_MAX];
	size_t n;
	uint64_t bytes;
	bool package_wanted;
};

int splits_new(Elf *program, struct splits **ret)
{
	struct splits *s = new0(struct splits, 1);

	if (!s)
		return -ENOMEM;
	s->program = program;
	*ret = s;
	return 0;
}

static void detach(struct split *x)
{
	dwarf_end(x->dwarf);
	elf_end(x->elf);
	x->dwarf = NULL;
	x->elf = NULL;
}

struct splits *splits_free(struct splits *s)
{
	if (!s)
		return NULL;
	for (size_t i = 0; i < s->n; i++)
		detach(&s->items[i]);
	elf_end(s->package);
	free(s);
	return NULL;
}

/* ---- sections ---------------------------------------------------------------------------------------- */

/* What a section holds, or NULL. */
static const Elf_Data *section(Elf *elf, const char *name)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr s;
	size_t names;

	if (elf_getshdrstrndx(elf, &names) < 0)
		return NULL;
	while ((scn = elf_nextscn(elf, scn))) {
		const char *n = gelf_getshdr(scn, &s) ? elf_strptr(elf, names, s.sh_name) : NULL;
		const Elf_Data *d;

		if (!n || !streq(n, name) || s.sh_type != SHT_PROGBITS)
			continue;
		if ((s.sh_flags & SHF_COMPRESSED) && elf_compress(scn, 0, 0) < 0)
			return NULL;
		d = elf_getdata(scn, NULL);
		return d && d->d_buf ? d : NULL;
	}
	return NULL;
}

static uint64_t number(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static uint32_t word(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* ---- what the program has of a unit ---------------------------------------------------------------------- */

/* Where the unit's part of a section begins. */
static uint64_t base_of(Dwarf_Die *skeleton, unsigned name, unsigned gnu_name)
{
	Dwarf_Attribute a;
	Dwarf_Word v = 0;

	if (dwarf_attr(skeleton, name, &a) || dwarf_attr(skeleton, gnu_name, &a))
		(void)dwarf_formudata(&a, &v);
	return v;
}

/* A copy of a table of words from at on; NULL: there is none, or no memory. */
static uint64_t *copy_table(const Elf_Data *d, uint64_t at, uint64_t len, size_t *ret_n)
{
	uint64_t *copy;

	if (!d || at >= d->d_size)
		return NULL;
	*ret_n = MIN(MIN(len, d->d_size - at), TABLE_MAX) / sizeof(*copy);
	copy = malloc(*ret_n * sizeof(*copy) + 1);
	if (copy)
		memcpy(copy, (const uint8_t *)d->d_buf + at, *ret_n * sizeof(*copy));
	return copy;
}

static int add_addresses(struct debug_image *f, Elf *program, struct split *x, unsigned version)
{
	uint64_t at = base_of(&x->skeleton, DW_AT_addr_base, DW_AT_GNU_addr_base), len = UINT64_MAX;
	const Elf_Data *d = section(program, ".debug_addr");
	_cleanup_free_ uint64_t *table = NULL;
	size_t n;

	/* Before it stand its length, which counts four bytes of the rest, and those. */
	if (version >= 5 && d && at >= 8 && at <= d->d_size) {
		len = word((const uint8_t *)d->d_buf + at - 8);
		len -= MIN(len, 4ULL);
	}
	table = copy_table(d, at, len, &n);
	if (!table)
		return -ENODATA;
	for (size_t i = 0; i < n; i++)
		table[i] -= x->base;
	return debug_image_add(f, ".debug_addr.dwo", table, n * sizeof(*table), 0);
}

/* Version 5 has them in the .dwo. They are pairs; one that begins with the highest address sets what others count from. */
static int add_ranges(struct debug_image *f, Elf *program, struct split *x)
{
	uint64_t at = base_of(&x->skeleton, DW_AT_GNU_ranges_base, DW_AT_GNU_ranges_base);
	_cleanup_free_ uint64_t *table = NULL;
	size_t n;

	table = copy_table(section(program, ".debug_ranges"), at, UINT64_MAX, &n);
	if (!table)
		return 0;
	for (size_t i = 0; i + 1 < n; i += 2)
		if (table[i] == UINT64_MAX)
			table[i + 1] -= x->base;
	return debug_image_add(f, ".debug_ranges.dwo", table, n * sizeof(*table), 0);
}

/* ---- what a package has of a unit -------------------------------------------------------------------------- */

/* The index of a package: units by hash, and where each has its part of which sections. Version 2 is GNU's. */
struct package_index {
	const uint8_t *slots, *rows, *ids, *offsets, *sizes;
	uint32_t columns, units, n_slots;
	unsigned version;
};

static int read_index(Elf *package, struct package_index *ret)
{
	const Elf_Data *d = section(package, ".debug_cu_index");
	struct package_index x;
	const uint8_t *p;
	uint64_t table;

	if (!d || d->d_size < 16)
		return -ENODATA;
	p = d->d_buf;
	/* Two bytes of it are padding in version 5. */
	x.version = word(p) & 0xffff;
	x.columns = word(p + 4);
	x.units = word(p + 8);
	x.n_slots = word(p + 12);
	table = 4ULL * x.units * x.columns;
	if ((x.version != 2 && x.version != 5) || x.columns > COLUMNS_MAX ||
	    (x.n_slots & (x.n_slots - 1)) ||
	    16 + 12ULL * x.n_slots + 4ULL * x.columns + 2 * table > d->d_size)
		return -EBADMSG;
	x.slots = p + 16;
	x.rows = x.slots + 8ULL * x.n_slots;
	x.ids = x.rows + 4ULL * x.n_slots;
	x.offsets = x.ids + 4ULL * x.columns;
	x.sizes = x.offsets + table;
	*ret = x;
	return 0;
}

/* The row of a unit, from 0 on. */
static int find_row(const struct package_index *x, uint64_t id, uint32_t *ret)
{
	uint64_t mask = x->n_slots - 1ULL, at = id & mask, step = ((id >> 32) & mask) | 1;

	for (uint32_t i = 0; i < x->n_slots; i++, at = (at + step) & mask) {
		uint32_t row = word(x->rows + 4 * at);

		if (!row)
			break;
		if (number(x->slots + 8 * at) != id)
			continue;
		if (row > x->units)
			return -EBADMSG;
		*ret = row - 1;
		return 0;
	}
	return -ENOENT;
}

static const char *column_name(unsigned version, uint32_t id)
{
	static const char *const names[] = {
		[DW_SECT_INFO] = ".debug_info.dwo",
		[DW_SECT_ABBREV] = ".debug_abbrev.dwo",
		[DW_SECT_LINE] = ".debug_line.dwo",
		[DW_SECT_STR_OFFSETS] = ".debug_str_offsets.dwo",
		[DW_SECT_RNGLISTS] = ".debug_rnglists.dwo",
	};

	/* Locations are of no use here; and what is one of macros in version 2 is of ranges in 5. */
	return id >= ARRAY_SIZE(names) || (version < 5 && id == DW_SECT_RNGLISTS) ? NULL
										  : names[id];
}

static int add_from_package(struct debug_image *f, Elf *package, uint64_t id)
{
	const Elf_Data *strings = section(package, ".debug_str.dwo");
	struct package_index x;
	uint32_t row;
	int r = read_index(package, &x);

	if (r >= 0)
		r = find_row(&x, id, &row);
	for (uint32_t c = 0; r >= 0 && c < x.columns; c++) {
		const char *name = column_name(x.version, word(x.ids + 4ULL * c));
		uint64_t at = 4 * ((uint64_t)row * x.columns + c);
		uint64_t offset = word(x.offsets + at), size = word(x.sizes + at);
		const Elf_Data *d = name ? section(package, name) : NULL;

		if (!d)
			continue;
		if (offset > d->d_size || size > d->d_size - offset)
			return -EBADMSG;
		r = debug_image_add(f, name, (const uint8_t *)d->d_buf + offset, size, 0);
	}
	if (r >= 0 && strings)
		r = debug_image_add(f, ".debug_str.dwo", strings->d_buf, strings->d_size, 0);
	return r;
}

/* ---- units ------------------------------------------------------------------------------------------------ */

/* Goes on with the unit in the image, if it is the one. */
static int open_image(struct split *x, int fd)
{
	Dwarf_CU *unit = NULL;
	uint64_t id;
	int r = debug_elf_begin(fd, &x->elf);

	if (r < 0)
		return r;
	x->dwarf = dwarf_begin_elf(x->elf, DWARF_C_READ, NULL);
	while (x->dwarf && dwarf_get_units(x->dwarf, unit, &unit, NULL, NULL, &x->unit, NULL) == 0)
		if (dwarf_cu_info(unit, NULL, NULL, NULL, NULL, &id, NULL, NULL) == 0 &&
		    id == x->id)
			return 0;
	return -ESTALE;
}

/* With what is the unit's of a .dwo file, or of the package. */
static int attach(struct splits *s, struct split *x, Elf *dwo)
{
	_cleanup_(debug_image_done) struct debug_image f = { .fd = -1 };
	uint8_t address_size;
	Dwarf_Half version;
	int r;

	if (s->bytes >= IMAGES_BYTES)
		return -EFBIG;
	if (dwarf_cu_info(x->skeleton.cu, &version, NULL, NULL, NULL, NULL, &address_size, NULL) !=
		    0 ||
	    address_size != 8)
		return -EOPNOTSUPP;
	r = debug_image_begin(&f, dwo ?: s->package);
	if (r >= 0)
		r = dwo ? debug_image_add_all(&f, dwo) : add_from_package(&f, s->package, x->id);
	if (r >= 0)
		r = add_addresses(&f, s->program, x, version);
	if (r >= 0 && version < 5)
		r = add_ranges(&f, s->program, x);
	if (r >= 0)
		r = debug_image_finish(&f);
	if (r >= 0)
		r = open_image(x, f.fd);
	if (r < 0)
		detach(x);
	else
		s->bytes += f.size;
	return r;
}

static const char *text_of(Dwarf_Die *die, unsigned name, unsigned gnu_name)
{
	Dwarf_Attribute a;
	const char *text = NULL;

	if (dwarf_attr(die, name, &a) || dwarf_attr(die, gnu_name, &a))
		text = dwarf_formstring(&a);
	return text;
}

/* Of each program the package is wanted first of all. */
static int want(struct splits *s, const struct split *x, struct answer *a)
{
	Dwarf_Die skeleton = x->skeleton;
	const char *path = text_of(&skeleton, DW_AT_dwo_name, DW_AT_GNU_dwo_name),
		   *directory = text_of(&skeleton, DW_AT_comp_dir, DW_AT_comp_dir);
	int r;

	if (!path)
		return 0;
	if (!s->package_wanted) {
		r = answer_want(a, SYSPROFD__V1__WANTED_KIND__WANTED_KIND_PACKAGE, PACKAGE, "", "");
		if (r < 0)
			return r;
		s->package_wanted = true;
	}
	return answer_want(a, SYSPROFD__V1__WANTED_KIND__WANTED_KIND_SPLIT, x->id, path,
			   directory ?: "");
}

static struct split *find(struct splits *s, uint64_t id)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->items[i].id == id)
			return &s->items[i];
	return NULL;
}

const struct split *splits_find(struct splits *s, Dwarf_Die *entry, struct answer *a)
{
	uint8_t type;
	struct split *x;
	uint64_t id;

	if (dwarf_cu_info(entry->cu, NULL, &type, NULL, NULL, &id, NULL, NULL) != 0 ||
	    type != DW_UT_skeleton)
		return NULL;
	x = find(s, id);
	if (x)
		return x->dwarf ? x : NULL;
	if (s->n == SPLITS_MAX)
		return NULL;
	x = &s->items[s->n];
	*x = (struct split){ .id = id, .skeleton = *entry };
	if (dwarf_lowpc(entry, &x->base) != 0)
		x->base = 0;
	if (s->package ? attach(s, x, NULL) < 0 : want(s, x, a) < 0)
		return NULL;
	s->n++;
	return x->dwarf ? x : NULL;
}

static int add_package(struct splits *s, Elf **package)
{
	struct package_index x;
	int r = s->package ? -EEXIST : read_index(*package, &x);

	if (r < 0)
		return r;
	s->package = TAKE_PTR(*package);
	for (size_t i = 0; i < s->n; i++)
		if (!s->items[i].dwarf)
			(void)attach(s, &s->items[i], NULL);
	return 0;
}

int splits_add(struct splits *s, const struct part *p)
{
	struct split *x = p->id == PACKAGE ? NULL : find(s, p->id);
	Elf *elf = NULL;
	int r = debug_elf_begin(p->fd, &elf);

	if (r >= 0 && p->id == PACKAGE)
		r = add_package(s, &elf);
	else if (r >= 0)
		r = x && !x->dwarf ? attach(s, x, elf) : -ENOENT;
	elf_end(elf);
	return r;
}
