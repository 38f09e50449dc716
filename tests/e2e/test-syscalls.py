# SPDX-License-Identifier: GPL-2.0-or-later
"""System calls: exact."""
import os

from harness import main, rows_by_name, wait_for, workload


def getpids(d, truth):
    """All there are at last; more never come."""
    args = [x for p in truth["pids"] for x in ("--filter", f"pid={p}")]

    def ask():
        rows = rows_by_name(d.top("--type", "syscalls", "--by", "syscall", "--since", "-2min", *args))
        return rows.get("getpid", {"events": 0})["events"]

    return wait_for(ask, lambda n: n >= truth["getpid"])


def test_a_million_calls_of_sixteen_processes(t):
    d = t.daemon()
    truth = t.run(workload("calls"), 16, 1, 62500)
    assert truth["getpid"] == 1000000
    n = getpids(d, truth)
    assert n == 1000000, n


def test_exact_across_reloads(t):
    d = t.daemon()
    load = t.spawn(workload("calls"), 4, 1, 4000000)
    reloads = d.reload_while(load, 5)
    truth = t.finish(load)
    assert reloads >= 3, reloads
    wrong = getpids(d, truth) - truth["getpid"]
    print(f"# {reloads} reloads, {wrong} of {truth['getpid']} calls wrong")
    # Each CPU may be in a call at the moment of the change.
    assert abs(wrong) <= reloads * os.cpu_count(), wrong


def test_eight_threads(t):
    d = t.daemon()
    truth = t.run(workload("calls"), 1, 8, 100000)
    n = getpids(d, truth)
    assert n == 800000, n


def test_odd_numbers(t):
    d = t.daemon()
    truth = t.run(workload("calls"), 1, 1, 5)
    d.settle()
    args = ["--filter", f"pid={truth['pids'][0]}"]
    rows = rows_by_name(d.top("--type", "syscalls", "--since", "-2min", *args))
    assert "writev" not in rows, rows.keys()
    if truth["compat"]:
        assert rows["compat:getpid"]["events"] == 10, rows
    assert rows["syscall_9999"]["events"] == 10 and rows["syscall_9999"]["errors"] == 10, rows
    assert rows["getpid"]["events"] == 5, rows["getpid"]
    x32 = [r for n, r in rows.items() if n.startswith("x32:")]
    assert sum(r["events"] for r in x32) == 10, rows.keys()
    assert rows["[invalid]"]["events"] == 10, rows.keys()
    assert rows["exit_group"]["events"] == 1, rows.keys()


def test_errors_by_errno(t):
    d = t.daemon()
    p = t.spawn("python3", "-c", """
import os
for i in range(1000):
    try: os.stat('/nonexistent')
    except FileNotFoundError: pass
""")
    p.wait()
    d.settle()
    answer = d.top("--type", "syscalls", "--since", "-2min", "--filter", f"pid={p.pid}", "--filter", "errno=ENOENT")
    assert sum(r["events"] for r in answer["rows"] if r["name"] in ("stat", "newfstatat", "statx")) >= 1000, answer


main(__name__)
