# SPDX-License-Identifier: GPL-2.0-or-later
"""History survives: kill -9, SIGTERM, full disks, flipped bytes."""
import glob
import os
import random
import signal
import sqlite3
import subprocess
import time

from harness import Skip, main, wait_for, workload


def calls(d, pid):
    answer = d.top("--type", "syscalls", "--by", "process", "--since", "-10min", "--filter", f"pid={pid}")
    return sum(r["events"] for r in answer["rows"])


def keeps_the_last_window(t, sig):
    d = t.daemon({"collect": {"bucket": "30s", "slice": "10s"}})
    truth = t.run(workload("calls"), 1, 1, 54321)
    assert d.stop(sig) == 0
    d.start()
    pid = truth["pids"][0]
    answer = d.top("--type", "syscalls", "--since", "-10min", "--filter", f"pid={pid}")
    assert {r["name"]: r["events"] for r in answer["rows"]}["getpid"] == 54321


def test_sigterm_keeps_the_last_window(t):
    keeps_the_last_window(t, signal.SIGTERM)


def test_sigint_keeps_the_last_window(t):
    keeps_the_last_window(t, signal.SIGINT)


def test_kill_9_loses_at_most_the_open_bucket(t):
    d = t.daemon({"collect": {"bucket": "500ms", "slice": "500ms"}})
    truth = t.run(workload("calls"), 1, 1, 11111)
    time.sleep(1.5)
    pid = truth["pids"][0]
    before = calls(d, pid)
    assert before > 11111
    d.stop(signal.SIGKILL)
    rng = random.Random(9)
    buckets = 0
    for i in range(100):
        # Within the start, and around the commit of the first buckets.
        d.start(listening=i % 2)
        time.sleep(rng.random() * 1.2)
        d.stop(signal.SIGKILL)
        if i % 20 == 19:
            d.start()
            assert calls(d, pid) == before, i
            s = d.status()["store"]
            assert s["buckets"] >= buckets and not s["damaged"] and not s["dropped"] + s["given_up"], (i, s, buckets)
            buckets = s["buckets"]
            d.stop(signal.SIGKILL)
    assert buckets > 10, buckets


def test_damaged_file_is_told(t):
    d = t.daemon({"collect": {"bucket": "500ms", "slice": "500ms"}})
    wait_for(d.status, lambda s: s["store"]["buckets"])
    assert d.stop() == 0
    name = next(n for n in os.listdir(d.state) if n.endswith(".db"))
    with open(os.path.join(d.state, name), "wb") as f:
        f.write(b"no database" * 500)
    assert "Damaged" not in d.log()
    d.start()
    assert d.log().count("Damaged files of the store, set aside as *.corrupt: 1;") == 1, d.log()
    assert d.status()["counters"]["store-corrupt-files"] == 1


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
    with open(filler, "wb", buffering=0) as f:
        try:
            while True:
                f.write(b"x" * 65536)
        except OSError:
            pass
    # It keeps recording and answering, and tells of each bucket that it gave up: the oldest, or one that found no room.
    s = wait_for(d.status, lambda s: s["store"]["dropped"] + s["store"]["given_up"])
    assert s["store"]["dropped"] + s["store"]["given_up"], s["store"]
    samples = s["collectors"]["syscalls"]["samples"]
    s = wait_for(d.status, lambda s: s["collectors"]["syscalls"]["samples"] > samples)
    assert s["collectors"]["syscalls"]["samples"] > samples
    assert d.top("--type", "syscalls", "--since", "-2s")["total"] > 0
    os.unlink(filler)
    truth = t.run(workload("calls"), 1, 1, 777)
    s = wait_for(d.status, lambda s: s["store"]["state"] == "ok")
    assert s["store"]["state"] == "ok", s["store"]
    assert d.stop() == 0
    d.start()
    answer = d.top("--type", "syscalls", "--since", "-10min", "--filter", f"pid={truth['pids'][0]}")
    assert {r["name"]: r["events"] for r in answer["rows"]}["getpid"] == 777


def flip_a_byte_of_the_largest_blob(path):
    """Inside the samples of one bucket, found in the file by their own bytes: SQLite sees nothing wrong."""
    db = sqlite3.connect(path)
    blobs = [row[0] for row in db.execute("SELECT syscalls FROM recent")]
    db.close()
    blob = max(blobs, key=len)
    with open(path, "r+b") as f:
        data = f.read()
        # A row that spills over lies in pieces, and pages that were given up may hold older copies.
        pieces = (blob[i:i + 32] for i in range(16, len(blob) - 32))
        piece = next(p for p in pieces if p in data)
        at = data.find(piece)
        while at >= 0:
            f.seek(at + 16)
            f.write(bytes([data[at + 16] ^ 0x10]))
            at = data.find(piece, at + 1)


def test_flipped_byte_is_found(t):
    d = t.daemon({"collect": {"bucket": "500ms", "slice": "500ms"}})
    truth = t.run(workload("calls"), 1, 1, 4242)
    time.sleep(4)
    assert d.stop() == 0
    files = glob.glob(d.state + "/*.db")
    assert len(files) == 1, os.listdir(d.state)
    flip_a_byte_of_the_largest_blob(files[0])
    d.start()
    s = wait_for(d.status, lambda s: s["store"]["damaged"])
    assert s["store"]["damaged"] == 1, s["store"]
    answer = d.top("--type", "syscalls", "--by", "process", "--since", "-10min")
    damaged = [g for g in answer["gaps"] if g["reason"] == "damaged"]
    assert len(damaged) == 1, answer["gaps"]
    assert answer["rows"], answer
    # What was not damaged is still there, in every other type and bucket.
    assert not [g for g in d.top("--since", "-10min")["gaps"] if g["reason"] == "damaged"]


main(__name__)
