# SPDX-License-Identifier: GPL-2.0-or-later
"""On-CPU samples: shares, order of frames, conservation, CPUs that go away."""
import gzip
import os
import subprocess
import time

from harness import BUILD, HERE, Skip, binomial_bound, main, rows_by_name, wait_for, workload

FAST = {"collect": {"on-cpu-rate": "997"}}


def test_shares_and_order(t):
    d = t.daemon(FAST)
    truth = t.run(workload("shares"), 7)
    d.settle()
    answer = d.top("--filter", f"pid={truth['pid']}", "--sort", "total")
    rows = rows_by_name(answer)
    n = answer["samples"]
    assert n > 5000, f"only {n} samples"
    for name, key in (("alpha", "alpha_ns"), ("beta", "beta_ns"), ("gamma_", "gamma_ns")):
        expected = truth[key] / truth["cpu_ns"]
        # Inclusive: a tick in clock_gettime or an interrupt below the function is the function's.
        seen = rows[name]["total"] / answer["total"]
        bound = binomial_bound(expected, n)
        assert abs(seen - expected) <= bound, f"{name}: {seen:.4f}, expected {expected:.4f} +- {bound:.4f}"
    # Time, not only shares; ticks that were skipped may have been its own.
    skipped = answer["lost"] * 1e9 / 997
    assert 0.97 * truth["cpu_ns"] - skipped < answer["total"] < 1.03 * truth["cpu_ns"], (answer["total"], truth, skipped)
    # Recursion-free inclusive: main holds nearly everything.
    assert rows["main"]["total"] > 0.98 * answer["total"]
    stacks = d.top("--by", "stack", "--filter", f"pid={truth['pid']}")
    heaviest = stacks["rows"][0]["name"]
    assert "main;outer;middle;alpha" in heaviest, heaviest


def test_kernel_and_user_frames_in_order(t):
    d = t.daemon(FAST)
    p = t.spawn("dd", "if=/dev/zero", "of=/dev/null", "bs=64k", stderr=subprocess.DEVNULL)
    time.sleep(3)
    p.kill()
    stacks = d.top("--by", "stack", "--filter", f"pid={p.pid}")["rows"]
    kernel = [s["name"] for s in stacks if "read_zero" in s["name"] or "read_iter_zero" in s["name"]]
    assert kernel, [s["name"] for s in stacks[:5]]
    # The leaf is the kernel's, user frames are nearer to the root.
    frames = kernel[0].split(";")
    syscall = next(i for i, f in enumerate(frames) if "do_syscall_64" in f or "entry_SYSCALL" in f)
    assert syscall > 0 and "read" in "".join(frames[syscall:]), frames


def test_ticks_are_conserved(t):
    """No CPU is ever idle: stored and lost time add up to all of it, while another process hammers bpf(2)."""
    d = t.daemon(FAST)
    cpus = sorted(os.sched_getaffinity(0))
    for cpu in cpus:
        t.spawn("taskset", "-c", cpu, workload("shares"), 100)
    hammer = t.spawn(workload("hammer"))
    assert hammer.stdout.readline() == b"ready\n"
    before = d.status()["collectors"]["on-cpu"]
    since = time.time()
    time.sleep(6)
    answer = d.top("--since", f"@{since + 1:.3f}", "--by", "process")
    after = d.status()["collectors"]["on-cpu"]
    # Skipped ticks leave no trace of their own; their time is missed, and told.
    assert after["lost"]["tick-skipped"] > before["lost"].get("tick-skipped", 0) + 100, (before, after)
    wall = answer["covered_seconds"] * 1e9 * len(cpus)
    lost = answer["lost"] * 1e9 / answer["rate_hz"]
    assert abs(answer["total"] + lost - wall) < 0.03 * wall, (answer["total"], lost, wall)


def test_idle_is_not_work(t):
    d = t.daemon(FAST)
    time.sleep(4)
    answer = d.top("--by", "process")
    idle = [r for r in answer["rows"] if r.get("pid", 0) == 0]
    # Two CPUs for some seconds: what pid 0 does besides idling (interrupts) is little.
    assert sum(r["self"] for r in idle) < 0.2 * 4e9 * os.cpu_count(), idle


def test_cpu_that_comes_back(t):
    online = "/sys/devices/system/cpu/cpu1/online"
    if not os.access(online, os.W_OK):
        raise Skip("no CPU can be taken offline here")
    try:
        with open(online, "w") as f:
            f.write("0")
    except OSError as e:
        raise Skip(f"no CPU can be taken offline here: {e}")
    try:
        d = t.daemon(FAST)
        time.sleep(1)
        with open(online, "w") as f:
            f.write("1")
        d.settle(4)
        p = t.spawn("taskset", "2", workload("shares"), 3)
        truth = t.finish(p)
        d.settle()
        answer = d.top("--filter", f"pid={truth['pid']}", "--by", "process")
        assert answer["total"] > 0.9 * truth["cpu_ns"], (answer["total"], truth)
        # And once more while running.
        with open(online, "w") as f:
            f.write("0")
        time.sleep(1)
        with open(online, "w") as f:
            f.write("1")
        d.settle(4)
        truth = t.finish(t.spawn("taskset", "2", workload("shares"), 3))
        d.settle()
        answer = d.top("--filter", f"pid={truth['pid']}", "--by", "process")
        assert answer["total"] > 0.9 * truth["cpu_ns"], (answer["total"], truth)
    finally:
        with open(online, "w") as f:
            f.write("1")


def test_periodic_work_does_not_hide(t):
    """A fifth of each millisecond or ten, sampled at 100 Hz: a fixed period would hit all of it, or nothing."""
    d = t.daemon({"collect": {"on-cpu-rate": "100"}})
    for p in [t.spawn(workload("periodic"), 12, period) for period in (1, 10)]:
        truth = t.finish(p)
        answer = d.top("--filter", f"pid={truth['pid']}", "--by", "process")
        n, skipped = truth["cpu_ns"] / 1e7, answer["lost"] * 1e7
        bound = 5 / n ** 0.5 * truth["cpu_ns"]
        assert truth["cpu_ns"] - bound - skipped < answer["total"] < truth["cpu_ns"] + bound, (answer["total"], truth)


def test_cycles_fall_back(t):
    d = t.daemon({"collect": {"on-cpu-event": "cycles", "on-cpu-rate": "99"}})
    s = d.status()["collectors"]["on-cpu"]
    assert s["event"] in ("cycles", "cpu-clock"), s
    truth = t.run(workload("shares"), 2)
    d.settle()
    answer = d.top("--filter", f"pid={truth['pid']}", "--by", "process")
    assert answer["samples"] > 50


def test_burst_leaves_history_alone(t):
    d = t.daemon({"collect": {"on-cpu-rate": "19"}})
    p = t.spawn(workload("shares"), 8)
    time.sleep(1)
    out = os.path.join(t.directory, "burst.folded")
    d.ctl("record", "-F", "499", "-d", "3", "-o", out, "--filter", f"pid={p.pid}")
    with open(out) as f:
        total = sum(int(line.rsplit(" ", 1)[1]) for line in f)
    t.finish(p)
    d.settle()
    answer = d.top("--filter", f"pid={p.pid}", "--by", "process")
    assert answer["samples"] < 8 * 19 * 2, answer["samples"]
    assert answer["rate_hz"] < 25, answer["rate_hz"]
    assert total > 0


def test_recording_tells_inlined_functions(t):
    """A recording has the functions and lines of DWARF; what is stored has the symbol table's names."""
    d = t.daemon()
    p = t.spawn(workload("inlined"), 60)
    profile = os.path.join(t.directory, "burst.pb.gz")
    folded = os.path.join(t.directory, "burst.folded")
    for out in (folded, profile):
        d.ctl("record", "-F", "99", "-d", "2", "-o", out, "--filter", f"pid={p.pid}")
    with open(folded) as f:
        stacks = [line.rsplit(" ", 1) for line in f]
    inlined = sum(int(n) for s, n in stacks if s.endswith("main;host;inlined_spin"))
    assert inlined > 0.8 * sum(int(n) for _, n in stacks), stacks
    raw = gzip.decompress(open(profile, "rb").read())
    assert b"/workload/inlined.c" in raw
    names = {r["name"] for r in d.top("--filter", f"pid={p.pid}")["rows"]}
    assert "host" in names and "inlined_spin" not in names, names


def test_debug_file_in_the_root_of_the_process(t):
    """A stripped program in a root of its own, whose debug file lies there and nowhere else."""
    root = os.path.join(t.directory, "root")
    debug = os.path.join(root, "usr/lib/debug/.build-id/12/34567890abcdef.debug")
    full = os.path.join(t.directory, "full")
    os.makedirs(os.path.dirname(debug))
    subprocess.run(["gcc", "-static", "-g", "-O0", "-fno-omit-frame-pointer", "-Wl,--build-id=0x1234567890abcdef",
                    "-o", full, os.path.join(HERE, "../workload/inlined.c")], check=True)
    subprocess.run(["objcopy", "--only-keep-debug", full, debug], check=True)
    subprocess.run(["strip", "-o", os.path.join(root, "prog"), full], check=True)
    d = t.daemon()
    p = t.spawn("chroot", root, "/prog", 60)
    names = wait_for(lambda: rows_by_name(d.top("--filter", f"pid={p.pid}")), lambda rows: "host" in rows)
    assert "host" in names and "main" in names, names


def count_processes(prefix):
    """Those whose comm begins so."""
    n = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as f:
                n += f.read().startswith(prefix)
        except OSError:
            pass
    return n


def test_burst_of_300_processes(t):
    """The number of processes is no limit; that of filters is one, and says so."""
    d = t.daemon({"collect": {"on-cpu-rate": "19"}})
    # Each with a name of its own, so that the recording tells them apart.
    for i in range(300):
        os.symlink(workload("shares"), os.path.join(t.directory, f"share-{i}"))
    # All of them end with the shell, and that with the test. They let the daemon load a recording's programs.
    one = f"nice -n 19 setpriv --pdeathsig KILL {t.directory}/share-$i 30"
    p = t.spawn("sh", "-c", f"for i in $(seq 0 299); do {one} & done; wait")
    wait_for(lambda: count_processes("share-"), lambda n: n == 300, timeout=60)
    out = os.path.join(t.directory, "burst.folded")
    d.ctl("record", "-F", "499", "-d", "5", "-o", out, "--filter", "comm=share-*")
    with open(out) as f:
        names = {line.split(";", 1)[0] for line in f}
    # The scheduler lets each of them run for some milliseconds a second.
    assert len(names) > 200, (len(names), d.status())
    filters = [a for i in range(300) for a in ("--filter", f"pid={i + 1}")]
    r = d.ctl("record", "-d", "1", "-o", out, *filters, check=False)
    assert r.returncode == 2 and b"at most 256 filters" in r.stderr, r
    p.kill()
    p.wait()


main(__name__)
