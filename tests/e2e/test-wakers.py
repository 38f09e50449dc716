# SPDX-License-Identifier: GPL-2.0-or-later
"""Who ends waits: the thread and its function, or an interrupt."""
import os

from harness import main, workload

ALWAYS = {"collect": {"off-cpu-threshold": "1ms", "off-cpu-wakers": "always"}}
KINDS = {"pipe": "pipe", "socket": "socket", "mutex": "futex", "timer": "sleep"}


def waits_of(answer, thread):
    rows = [r for r in answer["rows"] if r["thread"] == thread and r["wait"] == KINDS[thread]]
    return max(rows, key=lambda r: r["total"])


def test_wakers(t):
    d = t.daemon(ALWAYS)
    truth = t.run(workload("wakes"), 4)
    d.settle()
    pid = f"pid={truth['pid']}"
    answer = d.offcpu("--filter", pid)
    for thread in ("pipe", "socket", "mutex"):
        row = waits_of(answer, thread)
        waker = row["wakers"][0]
        assert waker["thread"] == thread + "-by" and waker["pid"] == truth["pid"], (thread, row)
        assert waker["function"] == thread + "_by", (thread, row)
        assert waker["share"] > 0.5, (thread, row)
        # All waits are kept, and all their ends are seen: but for what is under way when buckets end.
        assert 0.5 * row["total"] < sum(w["time"] for w in row["wakers"]) < 1.2 * row["total"], (thread, row)
    row = waits_of(answer, "timer")
    assert row["idle"] and row["wakers"][0]["function"] == "[interrupt]", row
    assert "pid" not in row["wakers"][0] and row["wakers"][0]["share"] > 0.8, row
    text = d.ctl("offcpu", "--filter", pid).stdout
    assert b"WOKEN BY" in text and b"pipe_by" in text, text
    assert d.status()["collectors"], d.status()


def test_chains(t):
    d = t.daemon(ALWAYS)
    truth = t.run(workload("wakes"), 3)
    d.settle()
    pid = f"pid={truth['pid']}"
    out = os.path.join(t.directory, "chains")
    d.ctl("flame", "--wakers", "-o", out, "--format", "folded", "--filter", pid)
    with open(out) as f:
        chains = {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in f}
    for thread in ("pipe", "socket", "mutex"):
        # Upside down: the waker's function lies above its main function's callee, not below.
        found = [c for c in chains if f"run_{thread};" in c and ";woken by wakes;" in c and
                 0 < c.find(";woken by wakes;") < c.find(f";{thread}_by;") < c.find(f";run_{thread}_by")]
        assert found, (thread, list(chains))
    assert any("run_timer" in c and c.endswith(";woken by [interrupt]") for c in chains), list(chains)
    whole = sum(chains.values())
    assert whole > 3e9, whole
    # Filters choose waits by where they are.
    d.ctl("flame", "--wakers", "-o", out, "--format", "folded", "--filter", pid, "--filter", "function=run_pipe")
    with open(out) as f:
        lines = f.read().splitlines()
    assert lines and all("run_pipe;" in line for line in lines), lines
    failed = d.ctl("flame", "--wakers", "--type", "on-cpu", "-o", out, "--format", "folded", check=False)
    assert failed.returncode != 0 and b"off-CPU" in failed.stderr, failed


def test_a_part_of_the_time(t):
    """Without a setting: a tenth of the time is looked at, and stands for all of it."""
    d = t.daemon({"collect": {"off-cpu-threshold": "1ms", "bucket": "4s"}})
    truth = t.run(workload("wakes"), 16)
    d.settle()
    row = waits_of(d.offcpu("--filter", f"pid={truth['pid']}"), "pipe")
    time = sum(w["time"] for w in row["wakers"])
    print(f"# wakers stand for {time / 1e9:.2f} s of {row['total'] / 1e9:.2f}")
    assert row["wakers"][0]["function"] == "pipe_by", row
    assert 0 < sum(w["waits"] for w in row["wakers"]) < 3 * row["waits"], row
    assert 0.1 * row["total"] < time < 4 * row["total"], row


main(__name__)
