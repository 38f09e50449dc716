#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Counters of processes against what they did, and what the host was short of."""
import os
import subprocess
import sys

from harness import main, wait_for

FAULTS = """
import mmap, time
time.sleep(1)
pages = mmap.mmap(-1, 4096 * 20000)
if hasattr(mmap, "MADV_NOHUGEPAGE"):
    pages.madvise(mmap.MADV_NOHUGEPAGE)
for i in range(20000):
    pages[i * 4096] = 1
for i in range(300):
    time.sleep(0.001)
print("{}", flush=True)
time.sleep(60)
"""


def row_of(d, pid):
    rows = d.ask("counters", "--filter", f"pid={pid}")["rows"]
    return rows[0] if rows else {}


def test_faults_and_switches(t):
    """Each page that is touched is a fault, each sleep a switch; what the host had before counts for nobody."""
    old = t.spawn(sys.executable, "-c", FAULTS)
    old.stdout.readline()
    d = t.daemon()
    p = t.spawn(sys.executable, "-c", FAULTS)
    p.stdout.readline()
    row = wait_for(lambda: row_of(d, p.pid), lambda r: r.get("minor-faults", 0) >= 20000)
    assert 20000 <= row["minor-faults"] < 40000, row
    assert 300 <= row["voluntary-switches"] < 1000, row
    assert row["name"].startswith("python"), row
    before = row_of(d, old.pid)
    assert before.get("minor-faults", 0) < 1000 and before.get("voluntary-switches", 0) < 100, before


def test_process_that_ends_between_two_looks(t):
    """A process of some milliseconds is counted by what its threads say at their end."""
    d = t.daemon()
    d.settle()
    # Under a name that nothing else here has.
    name = os.path.join(t.directory, "shortlived")
    os.symlink(sys.executable, name)
    subprocess.run([name, "-c", "import mmap; m = mmap.mmap(-1, 4096 * 3000); "
                    "m.madvise(mmap.MADV_NOHUGEPAGE); [m.__setitem__(i * 4096, 1) for i in range(3000)]"], check=True)
    rows = wait_for(lambda: d.ask("counters", "-n", "10000", "--filter", "comm=shortlived")["rows"],
                    lambda rows: sum(r.get("minor-faults", 0) for r in rows) >= 3000)
    assert sum(r.get("minor-faults", 0) for r in rows) >= 3000, rows


def test_short_of_cpu(t):
    """Three that spin on one CPU: two of them wait for it at any time."""
    d = t.daemon()
    burners = [t.spawn("taskset", "-c", "0", "sh", "-c", "while :; do :; done") for _ in range(3)]
    waited = wait_for(lambda: d.ask("counters")["saturation"], lambda s: s["run_queue"] + s["preempted"] > 4e9)
    assert waited["run_queue"] + waited["preempted"] > 4e9, waited
    assert 0 < waited["busy"] <= waited["capacity"] * 1.3, waited
    if waited["pressure_covered"]:
        s = wait_for(lambda: d.ask("counters")["saturation"], lambda s: s["cpu_some"] > 1e9)
        assert 1e9 < s["cpu_some"] <= s["pressure_covered"] * 1.3, s
    text = d.ctl("counters").stdout.decode()
    assert "CPUs " in text and "waiting " in text and "pressure " in text, text
    switched = [row_of(d, p.pid).get("involuntary-switches", 0) for p in burners]
    assert min(switched) > 0, switched


def test_hardware(t):
    """What the processor counts; or the sentence that says why there is nothing, where one would look for it."""
    d = t.daemon()
    t.spawn("sh", "-c", "while :; do :; done")
    answer = wait_for(lambda: d.ask("counters"), lambda a: a["rows"])
    text, status = d.ctl("counters").stdout.decode(), d.ask("status")
    assert status["hardware"] == answer["hardware"], (status["hardware"], answer["hardware"])
    assert d.ctl("top", "--type", "counters").stdout.decode().split("\n")[-2] == text.split("\n")[-2]
    if "none" in answer["hardware"]:
        assert "no hardware counters: the performance unit of the processor is not visible" in text, text
        assert "no hardware counters: " in d.ctl("status").stdout.decode()
        assert not any("ipc" in row or "cycles" in row for row in answer["rows"]), answer["rows"]
        return
    rows = wait_for(lambda: d.ask("counters")["rows"], lambda rows: any("cycles" in row for row in rows))
    assert any(row.get("ghz", 0) > 0 for row in rows), rows
    assert "GHz" in d.ctl("counters").stdout.decode()


def test_record_by_event(t):
    """An event that the processor does not count is refused, with those that it does; time is always there."""
    d = t.daemon()
    p = t.spawn("sh", "-c", "while :; do :; done")
    out = os.path.join(t.directory, "burst.folded")
    there = d.ask("status")["hardware"]
    for event in ("cycles", "cache-misses"):
        r = d.ctl("record", "--event", event, "-d", "1", "-o", out, "--filter", f"pid={p.pid}", check=False)
        if there.get(event) == "counted":
            assert r.returncode == 0, r
            with open(out) as f:
                assert sum(int(line.rsplit(" ", 1)[1]) for line in f) > 1e6, event
            continue
        assert r.returncode == 1, r
        assert f"no {event} here: ".encode() in r.stderr and b"there is cpu-clock" in r.stderr, r.stderr
    d.ctl("record", "--event", "cpu-clock", "-F", "200", "-d", "2", "-o", out, "--filter", f"pid={p.pid}")
    with open(out) as f:
        # Samples, as without an event.
        assert 0 < sum(int(line.rsplit(" ", 1)[1]) for line in f) < 1000


def test_hardware_off(t):
    """A setting leaves them alone, which is said as well."""
    d = t.daemon({"collect": {"counter-reads": "0"}})
    t.spawn("sh", "-c", "while :; do :; done")
    wait_for(lambda: d.ask("counters")["rows"], lambda rows: rows)
    text = d.ctl("counters").stdout.decode()
    assert "no hardware counters: " in text, text


main(__name__)
