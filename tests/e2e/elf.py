# SPDX-License-Identifier: GPL-2.0-or-later
"""Small ELF files, and what spoils them: flipped bytes, sections that expand without end, tables of a gigabyte."""
import lzma
import os
import random
import struct
import subprocess
import zlib

SOURCE = """
struct point { long x, y; };
#define INLINE static inline __attribute__((always_inline))
INLINE long twice(struct point *p, long n) { p->x += 2 * n; return p->x ^ p->y; }
__attribute__((noinline)) long other(long n) { struct point p = { n, n }; return twice(&p, n) + twice(&p, n + 1); }
__attribute__((noinline)) long count(long n) { volatile long s = 0; while (n-- > 0) s += n; return s; }
int main(int argc, char **argv) { return (int)(count(argc) + other(argc)); }
"""
KINDS = {
    "gcc": "gcc -shared -fPIC -g -O2",
    "program": "gcc -no-pie -g -O2 -fno-omit-frame-pointer",
    "dwarf4": "clang -shared -fPIC -gdwarf-4 -O2 -fuse-ld=lld",
    "zlib": "gcc -shared -fPIC -g -O2 -gz=zlib",
    "debug_frame": "gcc -shared -fPIC -g -O2 -fno-asynchronous-unwind-tables",
    "debugdata": "gcc -shared -fPIC -O2",
}
SPOILED = ("ehdr", "phdr", "shdr", ".eh_frame", ".eh_frame_hdr", ".symtab", ".strtab", ".shstrtab", ".dynsym", ".dynstr",
           ".dynamic", ".note.gnu.build-id", ".gnu_debugdata", ".debug_frame", ".debug_info", ".debug_abbrev",
           ".debug_line", ".debug_str", ".debug_aranges", ".debug_rnglists", ".debug_ranges")
SHF_COMPRESSED, ZLIB, ZSTD = 0x800, 1, 2
MIB = 1 << 20


class Elf:
    """A file of 64 bits, as bytes that can be changed."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = bytearray(f.read())
        phoff, self.shoff = struct.unpack_from("<QQ", self.data, 32)
        phentsize, phnum, shentsize, shnum, names = struct.unpack_from("<HHHHH", self.data, 54)
        self.areas = {"ehdr": (0, 64), "phdr": (phoff, phnum * phentsize), "shdr": (self.shoff, shnum * shentsize)}
        self.index = {}
        strings = self.header(names)[4]
        for i in range(1, shnum):
            h = self.header(i)
            end = self.data.index(0, strings + h[0])
            name = self.data[strings + h[0]:end].decode()
            self.index[name] = i
            if h[1] != 8:  # SHT_NOBITS
                self.areas[name] = (h[4], h[5])

    def header(self, i):
        """name, type, flags, addr, offset, size, link, info, addralign, entsize"""
        return list(struct.unpack_from("<IIQQQQIIQQ", self.data, self.shoff + i * 64))

    def set_section(self, name, offset, size, flags=0):
        h = self.header(self.index[name])
        h[2] |= flags
        h[4:6] = offset, size
        struct.pack_into("<IIQQQQIIQQ", self.data, self.shoff + self.index[name] * 64, *h)

    def replace(self, name, content, flags=0):
        self.set_section(name, len(self.data), len(content), flags)
        self.data += content

    def code_at(self, address):
        h = self.header(self.index[".text"])
        return address - h[3] + h[4]

    def own_build_id(self, rng):
        """Files with one build-id are one file."""
        offset, size = self.areas[".note.gnu.build-id"]
        self.data[offset + 16:offset + size] = rng.randbytes(size - 16)

    def write(self, path, size=0):
        with open(path, "wb") as f:
            f.write(self.data)
            if size:
                f.truncate(size)


def build(directory, kind):
    """The path, and where in the file `count` lies."""
    source, path = os.path.join(directory, "elf.c"), os.path.join(directory, kind)
    if not os.path.exists(source):
        with open(source, "w") as f:
            f.write(SOURCE)
    subprocess.run([*KINDS[kind].split(), "-w", "-Wl,--build-id=sha1", "-o", path, source], check=True)
    symbols = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    address = next(int(line.split()[0], 16) for line in symbols.splitlines() if line.endswith(" count"))
    if kind == "debugdata":
        mini = path + ".mini"
        subprocess.run(["objcopy", "-S", "--keep-symbol=count", "--only-keep-debug", path, mini], check=True)
        with open(mini, "rb") as f, open(mini + ".xz", "wb") as out:
            out.write(lzma.compress(f.read()))
        subprocess.run(["objcopy", "-S", "--add-section", f".gnu_debugdata={mini}.xz", path], check=True)
    return path, Elf(path).code_at(address)


def mutate(path, rng):
    """A copy with a few bytes changed in one or two of its tables."""
    elf = Elf(path)
    elf.own_build_id(rng)
    areas = [a for name, a in elf.areas.items() if name in SPOILED and a[1]]
    for offset, size in rng.choices(areas, k=rng.randint(1, 2)):
        for _ in range(rng.randint(1, 6)):
            elf.data[offset + rng.randrange(size)] = rng.choice((0, 1, 0x7f, 0x80, 0xff, rng.randrange(256)))
    return elf


# ---- what expands without end ------------------------------------------------------------------------

def endless_zlib(pieces):
    """So many MiB of zeros: after a full flush, deflate's state is as at its beginning."""
    z = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = z.compress(bytes(MIB)) + z.flush(zlib.Z_FULL_FLUSH)
    return b"\x78\xda" + piece * pieces


def endless_zstd(pieces):
    """Blocks of 128 KiB in four bytes each (RFC 8878), in a frame without a size."""
    block = (131072 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    return bytes.fromhex("28b52ffd0058") + block * (pieces * 8)


def endless_xz(mib):
    return lzma.compress(bytes(MIB), preset=0) * mib


def bombs(so, debug_frame, debugdata, rng):
    """(name, Elf) of files whose sections unpack to 1 GiB, whatever they say."""
    streams = {ZLIB: endless_zlib(1024), ZSTD: endless_zstd(1024)}
    for kind, stream in streams.items():
        for said in (65536, 250 * MIB, 1 << 40):
            content = struct.pack("<IIQQ", kind, 0, said, 1) + stream
            for path, section in ((so, ".debug_info"), (so, ".debug_str"), (debug_frame, ".debug_frame"),
                                  (so, ".symtab"), (so, ".strtab")):
                elf = Elf(path)
                elf.own_build_id(rng)
                elf.replace(section, content, SHF_COMPRESSED)
                yield f"bomb{section}.{kind}.{said}", elf
    elf = Elf(debugdata)
    elf.own_build_id(rng)
    elf.replace(".gnu_debugdata", endless_xz(1024))
    yield "bomb.gnu_debugdata", elf


# ---- what is large -----------------------------------------------------------------------------------

def sparse(so, rng):
    elf = Elf(so)
    elf.own_build_id(rng)
    return elf, 1 << 30


def large_tables(so, rng):
    """4.5 million symbols, a million functions in .eh_frame without a table to search, names of 512 MiB."""
    elf = Elf(so)
    elf.own_build_id(rng)
    name = 1
    symbols = b"".join(struct.pack("<IBBHQQ", name + i % 7, 2, 0, 1, 0x1000 + i * 16, 16) for i in range(4096))
    h = elf.header(elf.index[".eh_frame"])
    frames = bytes(elf.data[h[4]:h[4] + h[5] - 4])
    elf.replace(".symtab", symbols * 1100)
    elf.replace(".eh_frame", frames * (40 * MIB // len(frames)))
    elf.set_section(".strtab", len(elf.data), 512 * MIB)
    # The table of program headers, too: without the one for .eh_frame_hdr.
    phoff, phsize = elf.areas["phdr"]
    for at in range(phoff, phoff + phsize, 56):
        if struct.unpack_from("<I", elf.data, at)[0] == 0x6474e550:  # PT_GNU_EH_FRAME
            struct.pack_into("<I", elf.data, at, 0)
    return elf, 1 << 30


def seeded():
    return random.Random(20261130)
