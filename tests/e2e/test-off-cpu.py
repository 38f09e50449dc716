# SPDX-License-Identifier: GPL-2.0-or-later
"""Off-CPU time: exact totals, sampled stacks, causes, threads that never wake."""
import math
import sys
import time

from harness import main, rows_by_name, wait_for, workload

T_NS = 1_000_000
FAST = {"collect": {"off-cpu-threshold": "1ms"}}


def test_sleeps(t):
    d = t.daemon(FAST)
    truth = t.run(workload("sleeps"))
    d.settle()
    pid = f"pid={truth['pid']}"
    expected = truth["short_ns"] + truth["long_ns"] + truth["vfork_ns"]
    causes = rows_by_name(d.top("--type", "off-cpu", "--by", "cause", "--filter", pid))
    total = sum(r["total"] for r in causes.values())
    # The stamps lie outside the waits, by the time it takes to get the CPU back; and starting up waits as well.
    assert total > expected - 11e6, (expected, total)
    assert 0.97 * expected < causes["blocked"]["total"] < expected + 20e6, (expected, causes)
    by = rows_by_name(d.top("--type", "off-cpu", "--sort", "total", "--filter", pid))
    for name, key in (("short_sleep", "short_ns"), ("long_sleep", "long_ns")):
        bound = 4 * math.sqrt(T_NS * truth[key]) + 0.02 * truth[key]
        assert abs(by[name]["total"] - truth[key]) <= bound, (name, by[name], truth[key])
    for state, ns in (("S", truth["short_ns"] + truth["long_ns"]), ("D", truth["vfork_ns"])):
        answer = d.top("--type", "off-cpu", "--filter", pid, "--filter", f"state={state}")
        assert 0.95 * ns < answer["total"] < 1.05 * ns + 50e6, (state, answer["total"], truth)


def test_reloads_lose_nothing(t):
    d = t.daemon(FAST)
    begin = time.monotonic_ns()
    p = t.spawn(workload("sleeps"), 2)
    reloads = d.reload_while(p, 6)
    truth = t.finish(p)
    d.settle()
    pid = f"pid={truth['pid']}"
    by = rows_by_name(d.top("--type", "off-cpu", "--sort", "total", "--filter", pid))
    causes = rows_by_name(d.top("--type", "off-cpu", "--by", "cause", "--filter", pid))
    total = sum(r["total"] for r in causes.values())
    # Both of its threads wait from begin to end, for 2 s after the sleeps.
    blocked = truth["short_ns"] + truth["long_ns"] + truth["vfork_ns"] + 2e9
    expected = 2 * blocked
    print(f"# {reloads} reloads, told {total / 1e6:.1f} ms of {expected / 1e6:.1f}")
    assert reloads >= 3, reloads
    # A wait that ended while all threads were read. And no more than two threads' lives.
    assert expected * 0.99 - 11e6 < total < 2 * (truth["end_ns"] - begin) + 100e6, (expected, total, begin, truth)
    assert abs(by["blocked_throughout"]["total"] - blocked) < 0.05 * blocked, (by["blocked_throughout"], blocked)


def test_blocked_throughout_is_in_every_bucket(t):
    d = t.daemon(FAST)
    p = t.spawn(workload("sleeps"), 8)
    time.sleep(6.5)
    pid = f"pid={p.pid}"
    out = d.ctl("series", "--type", "off-cpu", "--by", "thread", "--step", "1s", "--since", "-5s", "--format",
                "json", "--filter", pid).stdout
    import json
    answer = json.loads(out)
    lines = {s["name"] + str(i): s for i, s in enumerate(answer["series"])}
    # Both threads are blocked for most of each second between.
    full = 0
    for s in lines.values():
        points = [x for x in s["points"] if x["covered_seconds"]]
        if len(points) >= 3 and all(x["value"] > 0.8e9 * x["covered_seconds"] for x in points[1:-1]):
            full += 1
    assert full >= 2, answer
    names = rows_by_name(d.top("--type", "off-cpu", "--sort", "total", "--since", "-3s", "--filter", pid))
    assert "blocked_throughout" in names, list(names)[:20]
    p.kill()


def test_two_spinners_on_one_cpu_are_preempted(t):
    d = t.daemon(FAST)
    a = t.spawn("taskset", "1", workload("shares"), 5)
    b = t.spawn("taskset", "1", workload("shares"), 5)
    t.finish(a)
    t.finish(b)
    d.settle()
    args = ["--filter", f"pid={a.pid}", "--filter", f"pid={b.pid}"]
    causes = rows_by_name(d.top("--type", "off-cpu", "--by", "cause", *args))
    assert causes["preempted"]["total"] > 3e9, causes
    assert causes.get("blocked", {"total": 0})["total"] < 0.3e9, causes
    answer = d.offcpu(*args)
    # The heaviest rows, and each of the two has one.
    first = answer["rows"][:2]
    assert {r["pid"] for r in first} == {a.pid, b.pid} and all(r["cause"] == "preempted" for r in first), first
    assert answer["preempted"] == sum(r["total"] for r in answer["rows"] if r["cause"] == "preempted"), answer


KINDS = ("sleep", "poll", "pipe", "socket", "futex", "child", "io", "page-fault")


def test_kinds_of_waits(t):
    d = t.daemon(FAST)
    truth = t.run(workload("kinds"), 3, t.directory)
    d.settle()
    for kind in KINDS:
        # A disk that waits for nothing, or a kernel without userfaultfd.
        if truth[kind + "_ns"] < 0.2e9:
            print(f"# {kind}: {truth[kind + '_ns']} ns")
            continue
        args = ["--type", "off-cpu", "--by", "cause", "--filter", f"pid={truth['pid']}", "--filter", f"thread={kind}"]
        blocked = rows_by_name(d.top(*args))["blocked"]["total"]
        # Where fsync waits for another's fsync, that is a lock.
        kinds = [kind] if kind != "io" else [kind, "lock"]
        rows = [r for r in d.offcpu("--filter", f"pid={truth['pid']}")["rows"]
                if r["thread"] == kind and r["cause"] == "blocked"]
        assert abs(sum(r["total"] for r in rows) - blocked) < 0.02 * blocked, (kind, rows, blocked)
        told = d.top(*args, *sum((["--filter", f"wait={k}"] for k in kinds), []))["total"]
        assert told > 0.8 * blocked, (kind, told, blocked)
        idle = d.top(*args, "--filter", "idle=true")["total"]
        if kind in ("sleep", "poll"):
            assert idle > 0.8 * blocked, (kind, idle, blocked)
        else:
            assert idle < 0.1 * blocked, (kind, idle, blocked)


def test_callers_are_told_apart(t):
    """Who waits at one place for two callers is told for which, however far up they are: what is not compared is walked."""
    d = t.daemon(FAST)
    # Its unwind table comes first.
    t.run(workload("callers"), 2)
    for args in ((3,), (3, "far")):
        truth = t.run(workload("callers"), *args)
        d.settle()
        by = rows_by_name(d.top("--type", "off-cpu", "--sort", "total", "--filter", f"pid={truth['pid']}"))
        for name in ("left", "right"):
            ns = truth[name + "_ns"]
            assert 0.8 * ns < by[name]["total"] < 1.15 * ns + 20e6, (args, name, by[name], truth)
    c = d.status()["collectors"]["off-cpu"]
    print(f"# {c['walked']} walked, {c['reused']} reused")


EXEC = """
import os, threading
threading.Thread(target=lambda: os.execvp("sleep", ["sleep", "60"])).start()
threading.Event().wait()
"""


def test_exec_from_a_thread(t):
    """The thread that runs another program becomes its first one, and goes on being told."""
    d = t.daemon(FAST)
    p = t.spawn(sys.executable, "-c", EXEC)

    def slept():
        rows = d.offcpu("--filter", f"pid={p.pid}", "--filter", "comm=sleep", "--since", "-1min")["rows"]
        return sum(r["total"] for r in rows if r["tid"] == p.pid and r["cause"] == "blocked")

    before = wait_for(slept, lambda ns: ns > 0)
    assert wait_for(slept, lambda ns: ns >= before + 3e9) >= before + 3e9, (before, slept())


def test_nothing_absurd(t):
    d = t.daemon(FAST)
    t.run(workload("sleeps"))
    d.settle()
    answer = d.top("--type", "off-cpu", "--by", "thread", "--since", "-1min")
    wall = answer["covered_seconds"] * 1e9
    assert answer["rows"]
    for r in answer["rows"]:
        assert r.get("pid", 0) != 0, r
        # No thread waits longer than the time that passed (and a bucket's worth of rounding).
        assert 0 <= r["total"] <= wall * 1.05 + 2e9, (r, wall)


main(__name__)
