# SPDX-License-Identifier: GPL-2.0-or-later
"""Locks with a known trouble: the verdict, the lock's name and the function that is to blame."""
import json
import os

from harness import main, wait_for, workload


def spawn(t, kind, seconds):
    return t.spawn(workload("locks"), kind, seconds, os.path.join(t.directory, "shared-lock"))


def ask(d, who):
    return json.loads(d.ctl("locks", "--format", "json", "-n", 100, "--since", "-1min", "--filter", who).stdout)["rows"]


def named(rows, lock):
    """A symbol may have several words that are waited for: the main one."""
    return max((r for r in rows if r["lock"] == lock), key=lambda r: r["waits"], default=None)


def row_of(d, who, lock):
    """Names come a moment after the waits."""
    def has_names(rows):
        return named(rows, lock) and places(named(rows, lock)["waiters"]).strip()

    rows = wait_for(lambda: ask(d, who), has_names)
    assert named(rows, lock), rows
    return named(rows, lock)


def run(t, d, locks, seconds=2.5):
    """Workloads side by side. Of each, by its kind, the lock that is in trouble and what it knows itself."""
    processes = {kind: spawn(t, kind, seconds) for kind in locks}
    truths = {kind: t.finish(p) for kind, p in processes.items()}
    d.settle()
    return {kind: (row_of(d, f"pid={truths[kind]['pid']}", lock), truths[kind]) for kind, lock in locks.items()}


def warm_up(t, d):
    """Until stacks in the workload and the C library are walked to the function that holds a lock."""
    for _ in range(10):
        row, _ = run(t, d, {"io": "io_lock"}, 1)["io"]
        if "read_under_lock" in places(row["unlockers"]):
            return


def finds_holders(row):
    return row["holder"]["seen_running"] + row["holder"]["seen_runnable"] + row["holder"]["seen_blocked"] > 0


def check_sums(row):
    assert sum(b["waits"] for b in row["histogram"]) == row["waits"], row
    assert sum(row["outcomes"].values()) == row["waits"], row
    assert row["p50"] <= row["p99"] <= row["max"] <= row["total"], row


def places(stacks):
    return " ".join(s["place"] for s in stacks)


def check_holder(row, verdict, function):
    """The unlock site tells the function on all kernels; the verdict needs the holder's task (Linux 6.2)."""
    check_sums(row)
    assert row["class"] in ("mutex", "rwlock"), row
    assert function in places(row["unlockers"]), row
    if not finds_holders(row):
        assert tuple(map(int, os.uname().release.split(".")[:2])) < (6, 2), row
        return
    assert row["verdict"] == verdict, row
    assert function in places(row["holders"]), row


def check_shared(d, row):
    """One lock, though each process has it at another address: named by the file and the place in it."""
    check_holder(row, "io-under-lock", "read_under_lock")
    assert row["shared"] and "pid" not in row, row
    # What people read.
    text = d.ctl("locks", "--since", "-1min", "--filter", "lock=shared-lock*").stdout.decode()
    assert "shared-lock+0x190" in text and row["evidence"] in text, text
    # A filter by function chooses locks by those who wait; all that is known of the lock comes along.
    other = json.loads(d.ctl("locks", "--format", "json", "--since", "-1min", "--filter",
                             "function=run_shared").stdout)
    assert sorted(r["lock"] for r in other["rows"]) == ["[shared memory]+0x190", "shared-lock+0x190"], other
    for r in other["rows"]:
        assert r["unlockers"] and r["histogram"], other


def test_blocked_holders(t):
    d = t.daemon()
    warm_up(t, d)
    shared, anonymous = spawn(t, "shared", 2.5), spawn(t, "anonymous", 2.5)
    found = run(t, d, {"io": "io_lock", "pi": "pi_lock", "rwlock": "rw_lock"})
    t.finish(shared)
    t.finish(anonymous)
    for row, _ in found.values():
        check_holder(row, "io-under-lock", "write_slowly" if row["lock"] == "rw_lock" else "read_under_lock")
    assert found["rwlock"][0]["class"] == "rwlock", found["rwlock"]
    row, truth = found["io"]
    assert row["class"] == "mutex" and "ask_for_it" in places(row["waiters"]), row
    # Nobody waits more often than somebody asks for it or takes it.
    assert 0 < row["waits"] <= 2 * truth["waits"] + 2, (row, truth)
    if finds_holders(row):
        assert "sleep" in [h["wait"] for h in row["holders"]], row
        assert row["holder"]["seen_unknown"] < sum(
            row["holder"][k] for k in ("seen_running", "seen_runnable", "seen_blocked")), row
    check_shared(d, row_of(d, "lock=shared-lock*", "shared-lock+0x190"))
    # Of memory that has no file the same, whichever process waits.
    row = row_of(d, "function=run_shared", "[shared memory]+0x190")
    check_holder(row, "io-under-lock", "read_under_lock")
    assert row["shared"] and "pid" not in row and row["waits"] > 10, row


def test_holders_of_the_cpu(t):
    d = t.daemon()
    warm_up(t, d)
    row, _ = run(t, d, {"preempted": "preempted_lock"}, 2)["preempted"]
    check_holder(row, "holder-preempted", "work_without_cpu")
    row, _ = run(t, d, {"long": "long_lock"})["long"]
    held = row["holder"]["held_running"] + row["holder"]["held_runnable"] + row["holder"]["held_blocked"]
    # On a host whose CPUs are all taken the holder may well be without one for longer than it works.
    if row["holder"]["held_runnable"] >= 0.5 * held:
        expected = "holder-preempted"
    elif row["holder"]["held_running"] >= 0.5 * held:
        expected = "long-critical-section"
    else:
        expected = "contended"
    check_holder(row, expected, "compute_under_lock")
    assert row["holder"]["held_blocked"] <= 0.2 * held, row


def test_crowds(t):
    d = t.daemon()
    found = run(t, d, {"herd": "herd_cond", "pool": "pool_cond"})
    row, _ = found["herd"]
    check_sums(row)
    assert row["class"] == "condvar" and row["verdict"] == "thundering-herd", row
    assert row["concurrent"] > 50 and row["woken"] > 10 * row["wakes"], row
    assert "wake_the_herd" in places(row["unlockers"]) and "take_item" in places(row["waiters"]), row
    row, truth = found["pool"]
    check_sums(row)
    assert row["class"] == "condvar" and row["verdict"] == "idle-pool", row
    assert row["concurrent"] > 50 and "wait_for_work" in places(row["waiters"]), row
    # It comes behind every lock that is a problem.
    idle = [r["verdict"] == "idle-pool" for r in ask(d, f"pid={truth['pid']}")]
    assert idle == sorted(idle), idle


main(__name__)
