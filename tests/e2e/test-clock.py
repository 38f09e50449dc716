# SPDX-License-Identifier: GPL-2.0-or-later
"""The wall clock is set while the daemon runs: nothing lost, nothing twice, history kept."""
import os
import subprocess
import time

from harness import HERE, main, workload


def daemon_with_clock(t):
    shim = os.path.join(t.directory, "clock.so")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", shim, os.path.join(HERE, "../shim/clock.c")], check=True)
    offset = os.path.join(t.directory, "offset")
    env = dict(os.environ, LD_PRELOAD=shim, CLOCK_OFFSET_FILE=offset)

    def step(seconds):
        with open(offset + ".new", "w") as f:
            f.write(str(seconds))
        os.rename(offset + ".new", offset)

    step(0)
    return t.daemon(env=env), step


def getpids(d, pid, since):
    answer = d.top("--type", "syscalls", "--since", since, "--until", f"@{int(time.time()) + 90000}",
                   "--filter", f"pid={pid}")
    return {r["name"]: r["events"] for r in answer["rows"]}.get("getpid", 0), answer


def test_steps_of_an_hour(t):
    d, step = daemon_with_clock(t)
    begin = time.time()
    pids = []
    for offset in (0, 3600, 0, -3600, 0):
        step(offset)
        time.sleep(1.6)
        pids.append(t.run(workload("calls"), 1, 1, 1000)["pids"][0])
        time.sleep(1.6)
    # By sequence the buckets are all there, each call once, wherever the clock stood.
    for pid in pids:
        n, answer = getpids(d, pid, f"@{begin - 4000:.0f}")
        assert n == 1000, (pid, n, answer)
    assert any(g["reason"] == "clock-step" for g in answer["gaps"]), answer["gaps"]
    assert d.status()["store"]["buckets"] > 5
    assert d.stop() == 0


def test_a_year_ahead_and_back(t):
    """Retention by age does not wipe history because the clock was wrong for a moment."""
    d, step = daemon_with_clock(t)
    begin = time.time()
    pid = t.run(workload("calls"), 1, 1, 500)["pids"][0]
    time.sleep(2.5)
    step(365 * 86400)
    time.sleep(3)
    step(0)
    time.sleep(2)
    assert getpids(d, pid, f"@{begin - 10:.0f}")[0] == 500
    d.stop()
    d.start()
    assert getpids(d, pid, f"@{begin - 10:.0f}")[0] == 500


main(__name__)
