# SPDX-License-Identifier: GPL-2.0-or-later
"""Code that is made at run time gets its names from the maps of those who make it, and from nobody else's."""
import contextlib
import os
import platform

from harness import main, wait_for
from jit import map_path, program

FAST = {"collect": {"on-cpu-rate": "997"}}


def names(d, *args):
    """Time in code that was made at run time, by function; "[anon]" is code without a name."""
    return {r["name"]: r["self"] for r in d.top("--by", "function", *args)["rows"]
            if r["binary"] in ("[jit]", "[anon]")}


def of(d, p, *args):
    return names(d, "--filter", f"pid={p.pid}", *args)


def start_all(t, programs):
    return {k: t.spawn(*program(text)) for k, text in programs.items()}


def container(t, text):
    """A pid namespace and a /tmp of its own: the program is process 1 there."""
    tmp = 'import subprocess; subprocess.run(["mount", "-t", "tmpfs", "none", "/tmp"], check=True)\n'
    return t.spawn("unshare", "--pid", "--fork", "--kill-child", "--mount", "--propagation", "private",
                   *program(tmp + text))


def remove_maps(processes):
    for p in processes:
        with contextlib.suppress(FileNotFoundError):
            path = map_path(p.pid)
            os.rmdir(path) if os.path.isdir(path) else os.unlink(path)


def test_maps(t):
    programs = {
        "plain": 'm = Memory(); write(m.line("plain")); m.spin(4)',
        "prefix": 'm = Memory(); write(f"0x{m.address():016x} 0x{64:016x} void Some.java(int, int)\\n"); m.spin(4)',
        # What the second covers of the first is its own.
        "overlap": 'm = Memory(); write(m.line("first", size=128) + m.line("second", 1)); m.spin(2); m.spin(2, 1)',
        "junk": 'm = Memory(); write("JS:~a\\nline break\\n" + m.line("behind")); m.spin(4)',
        "late": 'm = Memory(); m.spin(1.5); write(m.line("late")); m.spin(3)',
        "grows": 'm = Memory(); write(""); m.spin(1); write(m.line("grown")); m.spin(3)',
        "thread": 'import threading; m = Memory(); write(m.line("in_thread"));'
                  ' threading.Thread(target=m.spin, args=(4,)).start()',
        "none": "m = Memory(); m.spin(4)",
    }
    d = t.daemon(FAST)
    p = start_all(t, programs)
    containers = [container(t, f'm = Memory(); write(m.line("container_{i}")); assert map_path() == "/tmp/perf-1.map";'
                               " m.spin(4)") for i in range(2)]
    try:
        for q in [*p.values(), *containers]:
            assert q.wait(60) == 0
        d.settle()
        seen = {k: of(d, q) for k, q in p.items()}
        everything = names(d)
    finally:
        remove_maps(p.values())
    for k, name in (("plain", "plain"), ("prefix", "void Some.java(int, int)"), ("junk", "behind"),
                    ("thread", "in_thread")):
        # A process is known to make code when it has; until its map is open, names may be missing.
        assert seen[k].get(name, 0) > 5 * seen[k].get("[anon]", 0), (k, seen[k])
    for k in ("late", "grows"):
        assert seen[k].get(k if k == "late" else "grown"), (k, seen[k])
    assert seen["overlap"].get("first") and seen["overlap"].get("second"), seen["overlap"]
    assert seen["none"].get("[anon]"), seen["none"]
    for i in range(2):
        assert everything.get(f"container_{i}"), everything
    # None by address.
    assert not [n for n in everything if "+0x" in n], everything


def test_trampolines(t):
    """Below code that drops its frame behind a call, as that of python -X perf, stacks go on to their roots."""
    if platform.machine() != "x86_64":
        return
    d = t.daemon(FAST)
    p = t.spawn(*program('m = Memory(); write(m.line("py::f:f.py")); m.fill_through_trampoline(100)'))
    out = f"{t.directory}/stacks"

    def whole():
        d.ctl("flame", "--format", "folded", "-o", out, "--filter", f"pid={p.pid}")
        with open(out, encoding="utf-8") as f:
            return [s for s in f if ";_start;" in s and ";py::f:f.py;" in s]

    try:
        # Until the tables of its binaries are there, stacks are incomplete.
        assert wait_for(whole, bool)
    finally:
        p.kill()
        p.wait()
        remove_maps([p])


def test_history_keeps_its_names(t):
    """The place of code is used again, in the same process and by the program that comes after it."""
    programs = {
        "again": """
m = Memory()
write(m.line("before"), mode="w")
m.spin(6)
print(time.time(), flush=True)
write(m.line("after"), mode="w")
m.spin(3)
""",
        "exec": """
m = Memory()
write(m.line("first_image"), mode="w")
m.spin(4)
text = 'm = Memory(); write(m.line("second_image"), mode="w"); m.spin(2)'
os.execv(sys.executable, program(text))
""",
    }
    d = t.daemon(FAST)
    p = start_all(t, programs)
    try:
        split = float(p["again"].stdout.readline())
        for q in p.values():
            assert q.wait(60) == 0
        d.settle()
        # Buckets of a second, which are named when they are closed: those in between may tell either.
        before = of(d, p["again"], "--until", f"@{split - 4:.3f}")
        after = of(d, p["again"], "--since", f"@{split + 1.5:.3f}")
        execs = of(d, p["exec"])
    finally:
        remove_maps(p.values())
    assert before.get("before") and not before.get("after"), (before, after)
    assert after.get("after") and not after.get("before"), (before, after)
    assert execs.get("first_image") and execs.get("second_image"), execs


def test_hostile_maps(t):
    programs = {
        "shadow": 'm = Memory(); os.symlink("/etc/shadow", map_path()); m.spin(3)',
        "fifo": "m = Memory(); os.mkfifo(map_path()); m.spin(3)",
        "directory": "m = Memory(); os.mkdir(map_path()); m.spin(3)",
        # /dev/zero
        "device": "m = Memory(); os.mknod(map_path(), 0o020644, os.makedev(1, 5)); m.spin(3)",
        # 100 MB, and more every half second.
        "large": """
m = Memory()
lines = "".join(f"{0x10000 + i * 64:x} 40 function_{i}\\n" for i in range(40000)).encode()
with open(map_path(), "wb") as f:
    while f.tell() < 100 << 20:
        f.write(lines)
write(m.line("large"))
while True:
    write(m.line("large") * 10000)
    m.spin(0.5)
""",
        "honest": 'm = Memory(); write(m.line("honest")); m.spin(3)',
    }
    d = t.daemon(FAST)
    p = start_all(t, programs)
    large = p["large"]
    try:
        # Its names come when all of it was read.
        wait_for(lambda: of(d, large), lambda functions: functions.get("large"), 60)
        large.kill()
        for q in p.values():
            assert q.wait(60) == 0 or q is large
        d.settle()
        seen = {k: of(d, q) for k, q in p.items()}
        everything = d.top("--by", "function")["rows"]
        status = d.status()
    finally:
        remove_maps(p.values())
    assert seen["honest"].get("honest"), seen
    assert seen["large"].get("large"), seen
    for k in ("shadow", "fifo", "directory", "device"):
        assert seen[k].get("[anon]"), (k, seen)
    with open("/etc/shadow") as f:
        for line in filter(None, map(str.strip, f)):
            assert not [r for r in everything if line in r["name"]]
    assert not [k for k in status.get("counters", {}) if k.startswith(("symbol-helper", "opener"))], status


FIB = "function %s(n) { return n < 2 ? n : %s(n - 1) + %s(n - 2) };"
SPIN = " const end = Date.now() + %d; while (Date.now() < end) %s(20);"


def node(t, name, ms, *options):
    return t.spawn("node", *options, "-e", FIB % (name, name, name) + SPIN % (ms, name), cwd=t.directory)


def test_node(t):
    """Processes of 300 ms are gone when their samples are looked at; a jitdump lies in the working directory."""
    d = t.daemon(FAST)
    worker = "new (require('worker_threads').Worker)(`%s`, { eval: true })" % (FIB % ("work", "work", "work") +
                                                                             SPIN % (1500, "work"))
    p = [t.spawn("node", "--perf-basic-prof", "-e", worker, cwd=t.directory),
         node(t, "dumped", 1500, "--perf-prof"),
         node(t, "unnamed", 1000)]
    short = []
    try:
        for q in p:
            assert q.wait(60) == 0
        for _ in range(5):
            short.append(node(t, "short", 200, "--perf-basic-prof"))
            assert short[-1].wait(60) == 0
        d.settle()
        seen = [of(d, q) for q in p]
        total = names(d, *(x for q in short for x in ("--filter", f"pid={q.pid}")))
    finally:
        remove_maps([*p, *short])

    def time_in(functions, part):
        return sum(v for k, v in functions.items() if part in k)

    assert time_in(seen[0], "*work ") > 5 * seen[0].get("[anon]", 0), seen[0]
    assert time_in(seen[1], "*dumped ") > 5 * seen[1].get("[anon]", 0), seen[1]
    assert seen[2].get("[anon]") and not time_in(seen[2], "unnamed"), seen[2]
    named, nameless = time_in(total, "*short "), total.get("[anon]", 0)
    assert named > nameless, total
    print(f"# short-lived: {named / (named + nameless):.0%} of {len(short)} processes' time is named", flush=True)


main(__name__)
