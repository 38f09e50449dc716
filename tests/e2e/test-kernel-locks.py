# SPDX-License-Identifier: GPL-2.0-or-later
"""Locks of the kernel: kind, process, the function that takes the lock, and how long threads wait for it."""
from harness import Skip, main, wait_for, workload

ROUNDS = 10


def ask(d, *args):
    return d.ask("locks", "--kernel", "-n", 1000, "--since", "-1min", *args)


def has_tracepoints(d):
    text = d.status()["collectors"]["futex"]["kernel_locks"]
    if text == "contention tracepoints":
        return True
    assert "no contention tracepoints" in text, text
    return False


def row_of(answer, kind, callers):
    rows = [r for r in answer["rows"] if r["kind"] == kind and r["caller"] in callers]
    assert rows, answer
    return max(rows, key=lambda r: r["total"])


def check_row(row, truth, asked):
    assert row["waits"] >= ROUNDS, (row, truth)
    assert ROUNDS * truth["hold_ns"] <= row["total"] <= truth[asked], (row, truth)
    assert truth["hold_ns"] <= row["max"] <= row["total"], (row, truth)
    assert [w["pid"] for w in row["waiters"]] == [truth["pid"]], row
    assert row["waiters"][0]["process"] == "kernel-locks", row
    assert row["stack"][0] == row["caller"], row


def test_known_waits(t):
    d = t.daemon()
    if not has_tracepoints(d):
        raise Skip("the kernel has no contention tracepoints")
    truth = t.run(workload("kernel-locks"), "held", ROUNDS, t.directory)
    if truth["rounds"] < ROUNDS:
        raise Skip("no userfaultfd")
    d.settle()
    answer = ask(d, "--filter", f"pid={truth['pid']}")
    pipe = row_of(answer, "mutex", ("pipe_write", "anon_pipe_write"))
    check_row(pipe, truth, "pipe_ns")
    writers = ("ext4_buffered_write_iter", "ext4_file_write_iter", "generic_file_write_iter", "shmem_file_write_iter",
               "xfs_file_buffered_write", "btrfs_inode_lock", "btrfs_buffered_write", "ovl_write_iter", "xfs_ilock")
    check_row(row_of(answer, "rwsem-write", writers), truth, "file_ns")
    # What people read.
    text = d.ctl("locks", "--kernel", "--since", "-1min", "--filter", f"pid={truth['pid']}").stdout.decode()
    assert "rwsem-write" in text and pipe["caller"] + " <" in text, text
    # Waits for locks in user space are another matter.
    locks = d.ask("locks", "--since", "-1min", "--filter", f"pid={truth['pid']}")
    assert not any(r["total"] >= ROUNDS * truth["hold_ns"] and r["class"] == "unknown" for r in locks["rows"]), locks


def test_mapping_crowd(t):
    """Threads that map and unmap wait for their memory map's rwsem."""
    d = t.daemon()
    if not has_tracepoints(d):
        raise Skip("the kernel has no contention tracepoints")

    def run_crowd():
        truth = t.run(workload("kernel-locks"), "crowd", 1.5, 12)
        d.settle()
        return ask(d, "--filter", f"pid={truth['pid']}")

    answer = wait_for(run_crowd, lambda a: any(r["kind"] == "rwsem-write" for r in a["rows"]))
    callers = {r["caller"] for r in answer["rows"] if r["kind"] == "rwsem-write"}
    assert callers & {"vm_mmap_pgoff", "__vm_munmap", "do_syscall_64", "__x64_sys_munmap"}, answer
    assert all(r["max"] <= r["total"] and r["stack"][:1] in ([r["caller"]], []) for r in answer["rows"]), answer


def test_off(t):
    d = t.daemon({"collect": {"kernel-locks": "no"}})
    d.settle()
    r = d.ctl("locks", "--kernel", "--since", "-1min")
    assert b"Waits for the kernel's own locks are not recorded: off (kernel-locks=no)." in r.stdout, r.stdout
    assert ask(d)["absent"].endswith("off (kernel-locks=no)."), ask(d)


main(__name__)
