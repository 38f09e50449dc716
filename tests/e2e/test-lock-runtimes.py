# SPDX-License-Identifier: GPL-2.0-or-later
"""Locks of other C libraries and languages: which lock, of what class, who waits and who wakes."""
import os
import shutil
import subprocess

from harness import HERE, Skip, main, wait_for

SOURCES = os.path.join(HERE, "../workload")


def build(t, *command):
    if not shutil.which(command[0]):
        raise Skip(f"no {command[0]} here")
    subprocess.run([*map(str, command)], check=True, cwd=t.directory, stdout=subprocess.DEVNULL,
                   env=dict(os.environ, HOME=os.environ.get("HOME", t.directory), GO111MODULE="off",
                            GOCACHE=os.path.join(t.directory, "go-cache")))


def places(stacks):
    return " ".join(s["place"] for s in stacks)


def rows_of(t, command, enough):
    """What is known of the process's locks, heaviest first, when its names have come."""
    d = t.daemon()
    # The first run is there for the tables of its binaries.
    for seconds in (1, 3):
        truth = t.run(*command, seconds, *(["unused"] if command[-1] == "io" else []))
    d.settle()
    rows = wait_for(lambda: d.ask("locks", "-n", 100, "--since", "-1min", "--filter", f"pid={truth['pid']}")["rows"],
                    enough)
    assert enough(rows), rows
    for row in rows:
        assert sum(b["waits"] for b in row["histogram"]) == row["waits"], row
    return rows


def check_handed_over(row):
    """Who gets a mutex was woken by the one that had it."""
    assert row["waits"] >= 10 and row["concurrent"] >= 1, row
    assert row["woken"] >= row["waits"] / 2, row
    # Its word does not say who holds it.
    assert row["verdict"] == "contended" and not row["holders"], row


def test_musl(t):
    build(t, "musl-gcc", "-D_GNU_SOURCE", "-O1", "-static", os.path.join(SOURCES, "locks.c"), "-o", "locks")
    rows = rows_of(t, [os.path.join(t.directory, "locks"), "io"], lambda rows: any(
        r["lock"] == "io_lock" and "pthread_mutex_unlock" in str(r["unlockers"]) for r in rows))
    row = next(r for r in rows if r["lock"] == "io_lock")
    check_handed_over(row)
    assert row["class"] == "mutex", row


def test_rust(t):
    build(t, "rustc", "-g", "-C", "opt-level=1", os.path.join(SOURCES, "runtimes/locks.rs"), "-o", "locks")
    rows = rows_of(t, [os.path.join(t.directory, "locks")], lambda rows: any(
        "IO_LOCK" in r["lock"] and "read_under_lock" in places(r["unlockers"]) and
        "ask_for_it" in places(r["waiters"]) for r in rows))
    row = next(r for r in rows if "IO_LOCK" in r["lock"])
    check_handed_over(row)
    assert row["class"] == "mutex", row


def test_go(t):
    """Goroutines wait where no kernel sees it; threads without one are no trouble."""
    build(t, "go", "build", "-o", "locks", os.path.join(SOURCES, "runtimes/locks.go"))
    rows = rows_of(t, [os.path.join(t.directory, "locks")],
                   lambda rows: any("runtime.schedule" in places(r["waiters"]) for r in rows))
    scheduler = [r for r in rows if r["class"] == "scheduler"]
    assert scheduler and all(r["verdict"] == "idle-pool" for r in scheduler), rows
    assert any("runtime.startm" in places(r["unlockers"]) for r in scheduler), scheduler


def test_java(t):
    """A monitor parks each thread at a word of its own."""
    build(t, "javac", "-d", ".", os.path.join(SOURCES, "runtimes/Locks.java"))
    rows = rows_of(t, ["java", "-cp", t.directory, "Locks"],
                   lambda rows: any("monitorenter" in places(r["waiters"]) for r in rows))
    monitors = [r for r in rows if "monitorenter" in places(r["waiters"])]
    assert all(r["class"] == "mutex" for r in monitors), monitors
    assert any("monitorexit" in places(r["unlockers"]) for r in monitors), monitors


main(__name__)
