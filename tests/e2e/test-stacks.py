# SPDX-License-Identifier: GPL-2.0-or-later
"""User stacks of programs without frame pointers: complete, and the same however the program was built."""
import itertools
import json
import os
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


def stacks_of(d, comm, directory):
    """{(frame, ...): samples} of one program's user side, root first."""
    path = os.path.join(directory, "folded")
    d.ctl("flame", "--format", "folded", "-o", path, "--filter", f"comm={comm}")
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


def test_every_build_has_the_same_stacks(t):
    """gold makes no static-pie."""
    matrix = [m for m in itertools.product(COMPILERS, LEVELS, LINKERS, KINDS) if m[2:] != ("gold", "-static-pie")]
    for at in range(0, len(matrix), 4):
        compilers = [build(os.path.join(t.directory, f"u{at + i}"), *m) for i, m in enumerate(matrix[at:at + 4])]
        assert all(c.wait() == 0 for c in compilers)
    d = t.daemon({"collect": {"on-cpu-rate": "199", "slice": "500ms"}})
    # The tables come first, or the beginning of each is partial.
    for seconds in ("1", "14"):
        running = [t.spawn(os.path.join(t.directory, f"u{i}"), seconds, "variable") for i in range(len(matrix))]
        for p in running:
            assert p.wait(120) == 0
        d.settle()
        if seconds == "1":
            wait_for(lambda: d.status()["unwind"]["wanted"], lambda n: n == 0, timeout=60)
            d.stop()
            subprocess.run(["rm", "-f", *(os.path.join(d.state, n) for n in os.listdir(d.state) if n != "unwind")])
            d.start()
    bad = []
    for i, m in enumerate(matrix):
        share, n = share_with(stacks_of(d, f"u{i}", t.directory), CHAIN)
        # The dynamic linker's and the kernel's own start are no part of main.
        if n < 5 or share < 0.9:
            bad.append((m, share, n))
    assert not bad, bad


def test_short_lived_processes(t):
    """They live 50 ms, and are over before anybody could look at them."""
    program = os.path.join(t.directory, "brief")
    assert build(program).wait() == 0
    d = t.daemon({"collect": {"on-cpu-rate": "997"}})
    t.run_quietly(program, "1", "variable")
    wait_for(lambda: d.status()["unwind"], lambda u: u["tables"] > 3 and u["wanted"] == 0)
    since = time.time()
    for _ in range(100):
        t.run_quietly(program, "0.05", "variable")
    d.settle()
    path = os.path.join(t.directory, "folded")
    d.ctl("flame", "--format", "folded", "-o", path, "--filter", "comm=brief", "--since", f"@{since:.0f}")
    whole = named = total = 0
    with open(path) as f:
        for line in f:
            stack, n = line.rstrip("\n").rsplit(" ", 1)
            total += int(n)
            # The kernel's part of an exec, and the dynamic linker before main.
            whole += int(n) * ("_start" in stack or "main" in stack or "[k" in stack)
            named += int(n) * ("+0x" not in stack.rsplit(";", 1)[1])
    assert total > 1000, total
    share, _ = share_with(stacks_of(d, "brief", t.directory), CHAIN)
    assert share > 0.6, share
    rows = json.loads(d.ctl("stacks", "--format", "json", "-n", "1000").stdout)["rows"]
    mine = [r for r in rows if r["binary"] == program or "libc" in r["binary"] or "ld-linux" in r["binary"]]
    assert named > 0.95 * total, (named, total)
    assert sum(r["complete"] for r in mine) > 0.95 * sum(r["samples"] for r in mine), mine


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
