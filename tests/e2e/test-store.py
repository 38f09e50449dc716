# SPDX-License-Identifier: GPL-2.0-or-later
"""History survives: kill -9, SIGTERM, full disks, flipped bytes."""
import glob
import os
import random
import signal
import subprocess
import time

from harness import Skip, main, workload


def calls(d, pid):
    answer = d.top("--type", "syscalls", "--by", "process", "--since", "-10min", "--filter", f"pid={pid}")
    return sum(r["events"] for r in answer["rows"])


def test_sigterm_keeps_the_last_window(t):
    d = t.daemon({"collect": {"bucket": "30s", "slice": "10s"}})
    truth = t.run(workload("calls"), 1, 1, 54321)
    assert d.stop() == 0
    d.start()
    pid = truth["pids"][0]
    answer = d.top("--type", "syscalls", "--since", "-10min", "--filter", f"pid={pid}")
    assert {r["name"]: r["events"] for r in answer["rows"]}["getpid"] == 54321


def test_kill_9_loses_at_most_the_open_bucket(t):
    d = t.daemon({"collect": {"bucket": "500ms", "slice": "500ms"}})
    truth = t.run(workload("calls"), 1, 1, 11111)
    time.sleep(1.5)
    pid = truth["pids"][0]
    before = calls(d, pid)
    assert before > 11111
    for i in range(10):
        time.sleep(random.random() * 0.8)
        d.stop(signal.SIGKILL)
        d.start()
        assert calls(d, pid) == before, i
    s = d.status()
    assert s["store"]["buckets"] > 5, s


def test_full_disk_recovers(t):
    mnt = os.path.join(t.directory, "mnt")
    os.mkdir(mnt)
    r = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8M", "tmpfs", mnt], capture_output=True)
    if r.returncode:
        raise Skip("cannot mount a tmpfs: " + r.stderr.decode())
    d = t.daemon({"collect": {"bucket": "500ms", "slice": "500ms"}}, start=False)
    d.state = os.path.join(mnt, "state")
    d.start()
    time.sleep(2)
    filler = os.path.join(mnt, "filler")
    with open(filler, "wb") as f:
        try:
            while True:
                f.write(b"x" * 65536)
                f.flush()
        except OSError:
            pass
    time.sleep(4)
    assert d.process.poll() is None, d.log()
    d.status()
    os.unlink(filler)
    truth = t.run(workload("calls"), 1, 1, 777)
    time.sleep(3)
    assert d.stop() == 0
    d.start()
    answer = d.top("--type", "syscalls", "--since", "-10min", "--filter", f"pid={truth['pids'][0]}")
    assert {r["name"]: r["events"] for r in answer["rows"]}["getpid"] == 777


def test_flipped_byte_is_found(t):
    d = t.daemon({"collect": {"bucket": "500ms", "slice": "500ms"}})
    time.sleep(6)
    d.stop()
    files = [f for f in glob.glob(d.state + "/*") if f.endswith((".db", ".sqlite")) and os.path.getsize(f) > 16384]
    assert files, os.listdir(d.state)
    size = os.path.getsize(files[0])
    rng = random.Random(7)
    with open(files[0], "r+b") as f:
        data = bytearray(f.read())
        for _ in range(40):
            at = rng.randrange(8192, size)
            data[at] ^= 0x10
        f.seek(0)
        f.write(data)
    d.start()
    time.sleep(3)
    answer = d.top("--type", "syscalls", "--by", "process", "--since", "-10min")
    s = d.status()
    assert s["store"].get("damaged", 0) or any(g["reason"] == "damaged" for g in answer["gaps"]) or glob.glob(
        d.state + "/*.corrupt*"), (s["store"], answer["gaps"], os.listdir(d.state))


main(__name__)
