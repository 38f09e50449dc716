# SPDX-License-Identifier: GPL-2.0-or-later
"""fuse.py DIRECTORY FILE COMMAND...: a filesystem with one file, "file", until the command, which may use it, says
something.

From then on it answers nothing. At the end of its standard input it prints how often it was asked since, and ends.
"""
import ctypes
import errno
import os
import select
import struct
import subprocess
import sys
import threading

from harness import die_with_parent

LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT, OPENDIR, DESTROY = 1, 2, 3, 14, 15, 18, 25, 26, 27, 38
# They have no answer, or come from the kernel by itself.
UNASKED = (FORGET, RELEASE, DESTROY, 36, 42)


class Filesystem:
    def __init__(self, directory, content):
        self.content = content
        self.fd = os.open("/dev/fuse", os.O_RDWR)
        self.silent = False
        self.asked = []
        libc = ctypes.CDLL(None, use_errno=True)
        options = f"fd={self.fd},rootmode=40000,user_id=0,group_id=0,allow_other"
        if libc.mount(b"test", directory.encode(), b"fuse", 0, options.encode()) != 0:
            sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")

    def attributes(self, node):
        mode, size = (0o40755, 0) if node == 1 else (0o100755, len(self.content))
        return struct.pack("<QQQQQQIIIIIIIIII", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def answer(self, opcode, node, body):
        if opcode == INIT:
            return struct.pack("<IIIIHHIIHHI28x", 7, 31, 131072, 0, 16, 16, 131072, 1, 32, 0, 0)
        if opcode == LOOKUP and body == b"file\0":
            return struct.pack("<QQQQII", 2, 0, 3600, 1, 0, 0) + self.attributes(2)
        if opcode == GETATTR:
            return struct.pack("<QII", 1, 0, 0) + self.attributes(node)
        if opcode in (OPEN, OPENDIR):
            return struct.pack("<QII", 0, 2, 0)  # FOPEN_KEEP_CACHE
        if opcode == READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            return self.content[offset:offset + size]
        return b"" if opcode == FLUSH else None

    def serve(self):
        while True:
            try:
                request = os.read(self.fd, 1 << 20)
            except OSError:
                return
            _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
            if self.silent:
                if opcode not in UNASKED:
                    self.asked.append(opcode)
                continue
            if opcode in UNASKED:
                continue
            answer = self.answer(opcode, node, request[40:])
            error = 0 if answer is not None else -errno.ENOENT if opcode == LOOKUP else -errno.ENOSYS
            answer = answer or b""
            os.write(self.fd, struct.pack("<IiQ", 16 + len(answer), error, unique) + answer)


def main(directory, path, *command):
    with open(path, "rb") as f:
        fs = Filesystem(directory, f.read())
    threading.Thread(target=fs.serve, daemon=True).start()
    p = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
    p.stdout.readline()
    fs.silent = True
    print("silent", flush=True)
    select.select([sys.stdin], [], [])
    print(len(fs.asked), *fs.asked, flush=True)
    p.kill()
    # The kernel aborts what still waits.
    os.close(fs.fd)


main(*sys.argv[1:])
