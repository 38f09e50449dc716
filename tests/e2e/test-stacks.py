# SPDX-License-Identifier: GPL-2.0-or-later
"""User stacks of programs without frame pointers: complete, and the same however the program was built."""
import itertools
import json
import os
import shutil
import subprocess
import time

from harness import HERE, main, wait_for

SOURCE = os.path.join(HERE, "../workload/unwind.c")
COMPILERS = ("gcc", "clang")
LEVELS = ("-O0", "-O2", "-O3 -march=native")
LINKERS = ("bfd", "gold", "lld")
KINDS = ("-fPIE -pie", "-no-pie", "-static", "-static-pie")
CHAIN = ["main", "first", "second", "realigned", "variable"]


def build(out, compiler="gcc", level="-O2", linker="bfd", kind="-fPIE -pie"):
    return subprocess.Popen([compiler, *level.split(), "-w", "-fomit-frame-pointer", f"-fuse-ld={linker}",
                             *kind.split(), "-o", out, SOURCE, "-lrt"])


def stacks_of(d, comm, directory, since=None):
    """{(frame, ...): samples} of one program, root first."""
    path = os.path.join(directory, "folded")
    d.ctl("flame", "--format", "folded", "-o", path, "--filter", f"comm={comm}",
          "--since", f"@{since:.0f}" if since else "-1h")
    result = {}
    with open(path) as f:
        for line in f:
            stack, n = line.rstrip("\n").rsplit(" ", 1)
            frames = tuple(stack.split(";")[1:])
            result[frames] = result.get(frames, 0) + int(n)
    return result


def share_with(stacks, chain):
    """How many of the samples have these frames in this order, from main on."""
    good = 0
    for frames, n in stacks.items():
        if "main" in frames and list(frames[frames.index("main"):][:len(chain)]) == chain:
            good += n
    total = sum(stacks.values())
    return good / total if total else 0, total


def complete_in(d):
    """{binary: samples with a complete stack}"""
    rows = json.loads(d.ctl("stacks", "--format", "json", "-n", "1000").stdout)["rows"]
    return {r["binary"]: r["complete"] for r in rows}


def test_every_build_has_the_same_stacks(t):
    """gold makes no static-pie."""
    matrix = [m for m in itertools.product(COMPILERS, LEVELS, LINKERS, KINDS) if m[2:] != ("gold", "-static-pie")]
    for at in range(0, len(matrix), 4):
        compilers = [build(os.path.join(t.directory, f"u{at + i}"), *m) for i, m in enumerate(matrix[at:at + 4])]
        assert all(c.wait() == 0 for c in compilers)
    d = t.daemon({"collect": {"on-cpu-rate": "199", "slice": "500ms"}})
    bad = []
    # Not all at once: the tables are made beside them.
    for at in range(0, len(matrix), 11):
        names = [f"u{i}" for i in range(at, min(at + 11, len(matrix)))]
        running = [t.spawn(os.path.join(t.directory, n), "100", "variable") for n in names]
        wait_for(lambda: complete_in(d), lambda c: all(c.get(os.path.join(t.directory, n)) for n in names), timeout=60)
        since = time.time() + 1
        time.sleep(4)
        d.settle()
        for p in running:
            p.kill()
        for n, m in zip(names, matrix[at:]):
            share, samples = share_with(stacks_of(d, n, t.directory, since), CHAIN)
            if samples < 5 or share < 0.97:
                bad.append((m, share, samples))
    assert not bad, bad


def of_user(stacks):
    """In the middle of an exec there is no user stack, and a fork has another program's."""
    return {f: n for f, n in stacks.items() if not any("exec" in x or "fork" in x.lower() for x in f)}


def named(stacks):
    return sum(n for f, n in stacks.items() if "+0x" not in f[-1] and f[-1] != "[unknown]")


def test_short_lived_processes(t):
    """They live 50 ms, and are over before anybody could look at them. One binary lies in two files, as in containers."""
    program = os.path.join(t.directory, "brief")
    copy = os.path.join(t.directory, "copy", "brief")
    assert build(program).wait() == 0
    os.mkdir(os.path.dirname(copy))
    shutil.copy(program, copy)
    d = t.daemon({"collect": {"on-cpu-rate": "997"}})
    for path in (program, copy):
        t.run_quietly(path, "1", "variable")
    wait_for(lambda: d.status()["unwind"], lambda u: u["tables"] > 3 and u["wanted"] == 0)
    t.run_quietly(copy, "0.2", "variable")
    d.settle()
    since = time.time()
    for _ in range(50):
        t.run_quietly(program, "0.05", "variable")
        t.run_quietly(copy, "0.05", "variable")
    d.settle()
    user = of_user(stacks_of(d, "brief", t.directory, since))
    total = sum(user.values())
    assert total > 1000, user
    whole = sum(n for f, n in user.items() if f[0] == "_start" or "do_exit" in f)
    assert whole > 0.95 * total, [s for s in sorted(user.items(), key=lambda s: -s[1]) if s[0][0] != "_start"][:20]
    assert named(user) > 0.95 * total, (named(user), total)


def test_leaves_of_strangers_are_named(t):
    """Half of the processes are of a binary that nobody met before: without a build-id each copy is one."""
    program = os.path.join(t.directory, "brief")
    assert build(program, kind="-fPIE -pie -Wl,--build-id=none").wait() == 0
    d = t.daemon({"collect": {"on-cpu-rate": "997"}})
    t.run_quietly(program, "1", "variable")
    d.settle()
    since = time.time()
    for i in range(40):
        os.mkdir(os.path.join(t.directory, str(i)))
        copy = os.path.join(t.directory, str(i), "brief")
        shutil.copy(program, copy)
        t.run_quietly(copy, "0.05", "variable")
        t.run_quietly(program, "0.05", "variable")
    d.settle()
    user = of_user(stacks_of(d, "brief", t.directory, since))
    total = sum(user.values())
    assert total > 800, user
    assert named(user) > 0.95 * total, (named(user), total, sorted(user.items(), key=lambda s: -s[1])[:20])


def test_depths(t):
    """512 frames, and then the leaf's side is kept under one marker."""
    program = os.path.join(t.directory, "deep")
    source = os.path.join(t.directory, "deep.c")
    with open(source, "w") as f:
        f.write("""#include <stdlib.h>
volatile unsigned long sink;
__attribute__((noinline)) void spin(void) { for (;;) sink++; }
__attribute__((noinline)) void rec(int n) { if (n) rec(n - 1); else spin(); sink++; }
int main(int argc, char **argv) { rec(atoi(argv[1])); return 0; }
""")
    subprocess.run(["gcc", "-O1", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-o", program, source], check=True)
    d = t.daemon({"collect": {"on-cpu-rate": "199"}})
    for depth, frames in ((50, 51), (127, 128), (128, 129), (200, 201), (490, 491), (1000, None), (100000, None)):
        name = f"deep{depth}"
        os.link(program, os.path.join(t.directory, name))
        p = t.spawn(os.path.join(t.directory, name), depth)
        time.sleep(3)
        p.kill()
        d.settle()
        stacks = {f: n for f, n in stacks_of(d, name, t.directory).items() if "spin" in f}
        frames_seen, n = max(stacks.items(), key=lambda s: s[1])
        assert n > 50, (depth, stacks)
        if frames:
            assert frames_seen[:1] == ("_start",) and frames_seen.count("rec") == frames, (depth, frames_seen)
        else:
            assert frames_seen[0] == "[truncated]" and frames_seen.count("[truncated]") == 1, frames_seen[:3]
            assert frames_seen.count("rec") == 511, (depth, frames_seen.count("rec"))


def test_stacks_are_accounted(t):
    d = t.daemon({"collect": {"on-cpu-rate": "199"}})
    time.sleep(3)
    d.settle()
    answer = json.loads(d.ctl("stacks", "--format", "json", "-n", "1000").stdout)
    assert answer["samples"] == sum(r["samples"] for r in answer["rows"]) > 0
    for r in answer["rows"]:
        assert r["samples"] == r["complete"] + sum(r["partial"].values()), r
    text = d.ctl("stacks").stdout.decode()
    assert "ENDED IN" in text and "complete user stack" in text, text
    assert "user stacks:" in d.ctl("status").stdout.decode()


main(__name__)
