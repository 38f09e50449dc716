# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs that are made to hurt who reads them run beside a good one, and somebody kills the helpers: the good one's
stacks stay whole and named, and the daemon neither grows nor hangs."""
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time

import elf
from harness import HERE, main, rows_by_name, wait_for, workload

MUTANTS = 2004
DESCRIPTORS = 600  # of binaries 512 are kept open
SOURCE = os.path.join(HERE, "../workload/unwind.c")
CHAIN = ("main", "first", "second", "realigned", "variable")


def build_good(path, build_id):
    subprocess.run(["gcc", "-O2", "-w", "-fomit-frame-pointer", f"-Wl,--build-id=0x{build_id}", "-o", path, SOURCE,
                    "-lrt"], check=True)


def share_of_whole(d, t, comm, since):
    """Of the program's samples those from _start to a function with a name, by way of main, and how many there are."""
    path = os.path.join(t.directory, "folded")
    d.ctl("flame", "--format", "folded", "-o", path, "--filter", f"comm={comm}", "--since", f"@{since:.3f}")
    good = total = 0
    with open(path) as f:
        for line in f:
            stack, n = line.rstrip("\n").rsplit(" ", 1)
            frames = tuple(stack.split(";")[1:])
            at = frames.index("main") if "main" in frames else 0
            total += int(n)
            if frames[0] == "_start" and frames[at:at + len(CHAIN)] == CHAIN and "+0x" not in frames[-1]:
                good += int(n)
    return (good / total if total else 0), total


def wait_until_whole(d, t, comm):
    seen = wait_for(lambda: share_of_whole(d, t, comm, time.time() - 3), lambda s: s[0] > 0.99 and s[1] > 100, 60)
    assert seen[0] > 0.99, (seen, d.status())


def helpers(d, name):
    found = []
    for pid in subprocess.run(["pgrep", "-P", str(d.process.pid)], capture_output=True, text=True).stdout.split():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as f:
            if f.read().startswith(name):
                found.append(int(pid))
    return found


def signal_helpers(d, sig):
    for pid in helpers(d, "sysprofd-"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sig)


def links(pid):
    """What the descriptors of a process are."""
    found = []
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return found


def descriptors(d):
    """All, and by kind those that do not stay by right: binaries do as long as there is room, and so do tables."""
    kinds, found = {}, links(d.process.pid)
    for link in found:
        kind = re.sub("[0-9]+", "N", link)
        if kind.startswith("/proc") or not kind.startswith(("/", "anon_inode:bpf")):
            kinds[kind] = kinds.get(kind, 0) + 1
    return len(found), kinds


def grown(before, now):
    """The host has other processes as well."""
    return {kind: n for kind, n in now[1].items() if n > before[1].get(kind, 0) + 8}


class Watch(threading.Thread):
    """What the daemon takes at its worst."""

    def __init__(self, d):
        super().__init__(daemon=True)
        self.d, self.ended = d, threading.Event()
        self.bytes = self.slowest = self.most_descriptors = 0
        self.start()

    def run(self):
        while not self.ended.wait(0.5):
            begin = time.monotonic()
            memory = self.d.status()["memory"]
            self.slowest = max(self.slowest, time.monotonic() - begin)
            self.bytes = max(self.bytes, memory["rss_bytes"] + memory["bpf_bytes"])
            self.most_descriptors = max(self.most_descriptors, descriptors(self.d)[0])


def make_files(t):
    """What was built, and lists of "@offset" and paths: mutants, bombs, giants."""
    rng, mutants, bombs, giants = elf.seeded(), [], [], []
    bases = {kind: elf.build(t.directory, kind) for kind in elf.KINDS}
    for kind, (path, offset) in bases.items():
        mutants.append(f"@{offset}")
        for i in range(MUTANTS // len(bases)):
            mutants.append(os.path.join(t.directory, f"mutant-{kind}{i}"))
            elf.mutate(path, rng).write(mutants[-1])
    so, offset = bases["gcc"]
    for name, e in elf.bombs(so, bases["debug_frame"][0], bases["debugdata"][0], rng):
        at = bases["debug_frame" if ".debug_frame" in name else "debugdata" if "gnu" in name else "gcc"][1]
        bombs += [f"@{at}", os.path.join(t.directory, name)]
        e.write(bombs[-1])
    for name, (e, size) in (("sparse", elf.sparse(so, rng)), ("tables", elf.large_tables(so, rng))):
        giants += [f"@{offset}", os.path.join(t.directory, name)]
        e.write(giants[-1], size)
    return bases, mutants, bombs, giants


def start_fuse(t, base, offset):
    """In a mount namespace of its own; silent from now on."""
    where = os.path.join(t.directory, "fuse")
    os.mkdir(where)
    p = t.spawn("unshare", "--mount", "--propagation", "private", sys.executable, os.path.join(HERE, "fuse.py"), where,
                base, workload("mapped"), 5, f"@{offset}", os.path.join(where, "file"), stdin=subprocess.PIPE)
    assert p.stdout.readline() == b"silent\n"
    return p


def start_replaced(t):
    """A program whose path is a FIFO by now."""
    path = os.path.join(t.directory, "replaced")
    build_good(path, "badc0ffee0ddf00d")
    p = t.spawn(path, 1000, "variable")
    os.unlink(path)
    os.mkfifo(path)
    return p


def crashes(status):
    return sum(status["counters"].get(name, 0) for name in ("unwind-parser-crashes", "symbol-helper-crashes"))


def test_good_beside_hostile(t):
    bases, *lists = make_files(t)
    good, later = (os.path.join(t.directory, name) for name in ("good", "later"))
    build_good(good, "1234567890abcdef")
    build_good(later, "fedcba0987654321")
    d = t.daemon({"collect": {"on-cpu-rate": "499"}})
    t.spawn(good, 1000, "variable")
    wait_until_whole(d, t, "good")
    d.settle()
    before, status = descriptors(d), d.status()
    watch, since = Watch(d), time.time()
    fuse, replaced = start_fuse(t, *bases["gcc"]), start_replaced(t)
    hostile = [t.spawn(workload("mapped"), 2, *f) for f in lists]
    for p in hostile:
        assert p.stdout.readline() == b"ready\n"
    # Names and tables for them all are under way: then nobody answers.
    for sig in (signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL):
        time.sleep(1)
        signal_helpers(d, sig)
    # Between two requests nobody misses a parser; within one, somebody does.
    if not crashes(d.status()):
        wait_for(lambda: time.sleep(0.3) or signal_helpers(d, signal.SIGKILL) or crashes(d.status()), bool)
    d.ctl("record", "-F", "997", "-d", "2", "-o", os.path.join(t.directory, "burst.folded"), "--filter", "comm=mapped")
    after = wait_for(d.status, lambda s: s["unwind"]["wanted"] == 0, 20)
    wait_until_whole(d, t, "replaced")
    whole, samples = share_of_whole(d, t, "good", since + 1)
    fuse.stdin.close()
    asked = fuse.stdout.readline().split()
    for p in (*hostile, replaced, fuse):
        p.kill()
        p.wait()
    # What comes now finds everything as it was.
    t.spawn(later, 1000, "variable")
    wait_until_whole(d, t, "later")
    left = wait_for(lambda: descriptors(d), lambda n: not grown(before, n))
    watch.ended.set()
    watch.join()
    cpu = after["cpu_seconds"] - status["cpu_seconds"]
    tables = after["unwind"]["tables"]
    print(f"# good: {whole:.1%} of {samples} samples; {tables} tables, at most {watch.bytes >> 20} MiB, {cpu:.0f} s of CPU in "
          f"{time.time() - since:.0f} s, answers within {watch.slowest:.1f} s", flush=True)
    assert whole > 0.99 and samples > 100, (whole, samples, after)
    # The silent filesystem holds one thread of each opener that there was.
    assert int(asked[0]) <= 4, asked
    # How far it comes depends on the host; what is in its way is only time.
    assert after["unwind"]["tables"] > MUTANTS / 20, after
    assert crashes(after), after
    assert after["counters"].get("opener-failures"), after
    # For recordings a parser unpacks 256 MiB of DWARF.
    assert watch.bytes < 512 * elf.MIB and cpu < 60 and watch.slowest < 10, (watch.bytes, cpu, watch.slowest)
    assert watch.most_descriptors < before[0] + DESCRIPTORS, (before, watch.most_descriptors)
    assert not grown(before, left), (before, left)


def test_filesystem_falls_asleep(t):
    """It answered when a program there was first met. Files of FUSE are left alone: then nothing is held that could hang."""
    where, path, later = (os.path.join(t.directory, name) for name in ("fuse", "asleep", "later"))
    os.mkdir(where)
    build_good(path, "1234567890abcdef")
    build_good(later, "fedcba0987654321")
    d = t.daemon({"collect": {"on-cpu-rate": "499"}})
    fuse = t.spawn("unshare", "--mount", "--propagation", "private", sys.executable, os.path.join(HERE, "fuse.py"), where,
                   path, "setpriv", "--pdeathsig", "KILL", "sh", "-c",
                   'setpriv --pdeathsig KILL "$0"/file 1000 variable >/dev/null & read x; echo; wait', where,
                   stdin=subprocess.PIPE)

    def names(comm):
        return rows_by_name(d.top("--filter", f"comm={comm}"))

    assert "variable" not in wait_for(lambda: names("file"), lambda rows: rows, 60), d.status()
    fuse.stdin.write(b"\n")
    fuse.stdin.flush()
    assert fuse.stdout.readline() == b"silent\n"
    # A bucket is stored, and all that is known of the file's attributes has grown old.
    time.sleep(4)
    t.spawn(later, 1000, "variable")
    assert "variable" in wait_for(lambda: names("later"), lambda rows: "variable" in rows, 40), d.status()
    fuse.stdin.close()
    fuse.stdout.readline()
    fuse.kill()


main(__name__)
