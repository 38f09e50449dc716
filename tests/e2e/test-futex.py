# SPDX-License-Identifier: GPL-2.0-or-later
"""Futex waits that really slept."""

from harness import main, rows_by_name, workload


def test_raw_lock(t):
    d = t.daemon()
    truth = t.run(workload("futexes"), 300)
    d.settle()
    pid = f"pid={truth['pid']}"
    locks = d.top("--type", "futex", "--by", "lock", "--since", "-2min", "--filter", pid)
    by = rows_by_name(locks)
    assert "contended_lock" in by, list(by)
    row = by["contended_lock"]
    # A wait may be counted by the workload although it did not sleep, when the wake overtook it: few.
    assert truth["waits"] * 0.97 <= row["events"] <= truth["waits"] + 2, (row, truth)
    assert abs(row["self"] - truth["wait_ns"]) < 0.05 * truth["wait_ns"] + 5e6, (row, truth)
    assert row["max"] <= row["self"]
    functions = rows_by_name(d.top("--type", "futex", "--sort", "total", "--since", "-2min", "--filter", pid))
    assert functions["take_lock"]["total"] > 0.9 * row["self"], list(functions)
    # Threads that merely have nothing to do wait far longer; their stack tells them from the lock, and excludes them.
    idle = functions["pool_wait"]
    assert idle["events"] >= 4 and abs(idle["total"] - truth["pool_ns"]) < 0.05 * truth["pool_ns"], (idle, truth)
    busy = d.top("--type", "futex", "--by", "lock", "--since", "-2min", "--filter", pid, "--filter",
                 "function!=pool_wait")
    assert {r["name"] for r in busy["rows"]} >= {"contended_lock", "idle_word"}, busy
    assert "pool_over" in by and "pool_over" not in rows_by_name(busy), (by, busy)
    # 1,000 calls that found the value changed are no waits; five timeouts are.
    assert by["idle_word"]["events"] == 5, by


main(__name__)
