# SPDX-License-Identifier: GPL-2.0-or-later
"""Locks with a known trouble: the verdict, the lock's name and the function that is to blame."""
import json
import os

from harness import main, wait_for, workload


def run(t, kind, seconds=4, d=None, **kw):
    """The workload's rows, by lock; the daemon has seen them named."""
    d = d or t.daemon()
    # What the workload's binary is made of is known before it waits.
    d.settle(1)
    truth = t.run(workload("locks"), kind, seconds, os.path.join(t.directory, "shared-lock"))
    d.settle()
    who = "comm=locks" if kind == "shared" else f"pid={truth['pid']}"

    def ask():
        answer = json.loads(d.ctl("locks", "--format", "json", "-n", 100, "--since", "-1min", "--filter", who).stdout)
        rows = {}
        for row in answer["rows"]:
            rows.setdefault(row["lock"], row)
        return rows

    # Names come a moment later.
    return d, wait_for(ask, lambda rows: any(r["waiters"] and r["waiters"][0]["place"] for r in rows.values())), truth


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


def test_io_under_lock(t):
    _, rows, truth = run(t, "io")
    row = rows["io_lock"]
    check_holder(row, "io-under-lock", "read_under_lock")
    assert "ask_for_it" in places(row["waiters"]), row
    # Others than the two that ask wait for it at most as often as it is taken.
    assert 0 < row["waits"] <= 2 * truth["waits"] + 2, (row, truth)
    assert row["holder"]["held_blocked"] > row["holder"]["held_running"], row
    assert "sleep" in [h["wait"] for h in row["holders"]], row
    assert row["holder"]["seen_unknown"] * 4 <= sum(
        row["holder"][k] for k in ("seen_running", "seen_runnable", "seen_blocked")), row


def test_long_critical_section(t):
    _, rows, _ = run(t, "long")
    row = rows["long_lock"]
    held = row["holder"]["held_running"] + row["holder"]["held_runnable"] + row["holder"]["held_blocked"]
    # On a host whose CPUs are all taken the holder may well be without one for longer than it works.
    if row["holder"]["held_runnable"] >= 0.5 * held:
        expected = "holder-preempted"
    elif row["holder"]["held_running"] >= 0.5 * held:
        expected = "long-critical-section"
    else:
        expected = "contended"
    check_holder(row, expected, "compute_under_lock")
    assert row["holder"]["held_blocked"] < 0.2 * held, row


def test_holder_preempted(t):
    _, rows, _ = run(t, "preempted")
    check_holder(rows["preempted_lock"], "holder-preempted", "work_without_cpu")


def test_thundering_herd(t):
    _, rows, _ = run(t, "herd")
    row = rows["herd_cond"]
    check_sums(row)
    assert row["class"] == "condvar" and row["verdict"] == "thundering-herd", row
    assert row["concurrent"] > 50 and row["woken"] > 10 * row["wakes"], row
    assert "wake_the_herd" in places(row["unlockers"]) and "take_item" in places(row["waiters"]), row


def test_idle_pool(t):
    _, rows, _ = run(t, "pool")
    row = rows["pool_cond"]
    check_sums(row)
    assert row["class"] == "condvar" and row["verdict"] == "idle-pool", row
    assert row["concurrent"] > 50 and "wait_for_work" in places(row["waiters"]), row
    # It comes behind every lock that is a problem.
    idle = [r["verdict"] == "idle-pool" for r in rows.values()]
    assert idle == sorted(idle), rows


def test_priority_inheritance(t):
    _, rows, _ = run(t, "pi")
    check_holder(rows["pi_lock"], "io-under-lock", "read_under_lock")


def test_rwlock(t):
    _, rows, _ = run(t, "rwlock")
    row = rows["rw_lock"]
    check_holder(row, "io-under-lock", "write_slowly")
    assert row["class"] == "rwlock", row


def test_shared_by_processes(t):
    """One lock, though each process has it at another address: named by the file and the place in it."""
    d, rows, _ = run(t, "shared")
    row = rows["shared-lock+0x190"]
    check_holder(row, "io-under-lock", "read_under_lock")
    assert row["shared"] and "pid" not in row, row
    # What people read, on one screen.
    text = d.ctl("locks", "--since", "-1min", "--filter", "comm=locks").stdout.decode()
    assert "shared-lock+0x190" in text and "io-under-lock: the holder was" in text, text
    # A filter by function chooses locks by those who wait; all that is known of the lock comes along.
    other = json.loads(d.ctl("locks", "--format", "json", "--since", "-1min", "--filter", "function=ask_for_it").stdout)
    assert [r["lock"] for r in other["rows"]] == ["shared-lock+0x190"], other
    assert other["rows"][0]["holders"] and other["rows"][0]["histogram"], other


main(__name__)
