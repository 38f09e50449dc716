# SPDX-License-Identifier: GPL-2.0-or-later
"""The daemon itself: configuration, signals, loss, churn."""
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import time

from harness import SYSPROFD, cpu_ns, main, rows_by_name, wait_for, workload


def test_bad_settings_never_stop_it(t):
    d = t.daemon({"collect": {"on-cpu-rate": "0", "frobnicate": "1"}, "nonsense": {"a": "b"}})
    log = d.log()
    assert "sysprofd.conf:" in log and "on-cpu-rate=0: expected a number from 1 to 9999" in log, log
    assert "unknown key frobnicate" in log and "unknown section [nonsense]" in log, log
    assert d.status()["collectors"]["on-cpu"]["rate_hz"] == 19
    r = subprocess.run([SYSPROFD, "--config", os.path.join(d.directory, "sysprofd.conf"), "--check-config"],
                       capture_output=True)
    assert r.returncode == 78 and b"expected" in r.stderr, r


CAPABILITIES = {"CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38, "CAP_BPF": 39}


def without(names):
    """What leaves the bounding set, root does not get at exec."""
    def drop():
        pr_capbset_drop = 24
        for name in ("CAP_SYS_ADMIN", *names):
            assert ctypes.CDLL(None).prctl(pr_capbset_drop, CAPABILITIES[name]) == 0
    return drop


def test_missing_capabilities_are_named(t):
    d = t.daemon(start=False)
    command = [SYSPROFD, "--config", d.write_config(), "--state-directory", d.state, "--socket", d.socket]
    for names in ["CAP_BPF", "CAP_PERFMON"], ["CAP_PERFMON"]:
        r = subprocess.run(command, preexec_fn=without(names), capture_output=True, text=True, timeout=60)
        # Debian's kernel.perf_event_paranoid=3 demands more than upstream.
        assert r.returncode == 1 and (" and ".join(names) + " missing" in r.stderr or
                                      "kernel.perf_event_paranoid" in r.stderr), r


def test_service_manager_is_told(t):
    d = t.daemon(start=False)
    path = os.path.join(d.directory, "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(path)
        s.settimeout(30)
        d.env = {**os.environ, "NOTIFY_SOCKET": path}
        d.start()
        first = s.recv(4096).decode()
        assert first.startswith("READY=1\nSTATUS=Recording on-cpu off-cpu syscalls futex;"), first
        other = subprocess.run([SYSPROFD, "--state-directory", d.state, "--socket", d.socket + "2"],
                               capture_output=True, text=True, timeout=60)
        assert other.returncode == 1 and "another sysprofd uses it" in other.stderr, other
        d.stop()
        told = ""
        while "STOPPING=1\nSTATUS=" not in told:
            told = s.recv(4096).decode()


def rate(d):
    return d.status()["collectors"]["on-cpu"]["rate_hz"]


def test_reload(t):
    d = t.daemon({"collect": {"on-cpu-rate": "19"}})
    d.config["collect"]["on-cpu-rate"] = "49"
    d.reload()
    assert rate(d) == 49, d.log()
    # What the programs need not know of leaves them alone.
    told = d.log().count("on-cpu:")
    d.config["store"] = {"max-size": "64M"}
    d.reload()
    assert d.log().count("Configuration reloaded") == 2 and d.log().count("on-cpu:") == told, d.log()
    d.config["collect"]["on-cpu-rate"] = "many"
    d.reload()
    assert rate(d) == 49
    assert "stays in force" in d.log()
    # A configuration for which nothing can be recorded.
    for source in ("on-cpu", "off-cpu", "syscalls", "futex"):
        d.config["collect"][source] = "no"
    del d.config["collect"]["on-cpu-rate"]
    d.reload()
    assert rate(d) == 49 and d.log().count("Configuration not reloaded") == 2, d.log()


def test_many_reloads_at_once(t):
    """They become two: the one that runs, and one for all that came meanwhile. Questions are answered throughout."""
    d = t.daemon({"collect": {"on-cpu-rate": "19"}})
    for i in range(40):
        d.config["collect"]["on-cpu-rate"] = str(20 + i)
        d.write_config()
        d.process.send_signal(signal.SIGHUP)
        if i % 10 == 0:
            d.ctl("status", timeout=5)
        time.sleep(0.01)
    end = time.monotonic() + 60
    while rate(d) != 59 and time.monotonic() < end:
        time.sleep(0.1)
    assert rate(d) == 59, d.log()
    time.sleep(1)
    assert 1 <= d.log().count("Configuration reloaded") < 20, d.log()
    # One that cannot be used, after one that is being loaded.
    d.config["collect"]["on-cpu-rate"] = "99"
    d.write_config()
    d.process.send_signal(signal.SIGHUP)
    time.sleep(0.05)
    d.config["collect"]["on-cpu-rate"] = "many"
    d.write_config()
    d.process.send_signal(signal.SIGHUP)
    while "stays in force" not in d.log() and time.monotonic() < end:
        time.sleep(0.1)
    assert rate(d) == 99, d.log()


def test_end_while_reloading(t):
    d = t.daemon({"collect": {"on-cpu-rate": "499"}})
    for wait in (0, 0.05, 0.15, 0.3):
        load = t.run(workload("shares"), 0.5)
        d.config["collect"]["on-cpu-rate"] = str(499 + wait * 100)
        d.write_config()
        d.process.send_signal(signal.SIGHUP)
        time.sleep(wait)
        begin = time.monotonic()
        assert d.stop() == 0, d.log()
        assert time.monotonic() - begin < 5, time.monotonic() - begin
        d.start()
        answer = d.top("--since", "-1min", "--filter", f"pid={load['pid']}")
        assert answer["total"] > 0.5 * 0.5e9, (wait, answer["total"])


def test_stopped_for_ten_seconds(t):
    d = t.daemon({"collect": {"on-cpu-rate": "499", "ring-size": "64K"}})
    spin = t.spawn(workload("shares"), 60)
    d.settle()
    before = cpu_ns(spin.pid)
    since = time.time()
    d.process.send_signal(signal.SIGSTOP)
    until = time.monotonic() + 10
    t.run(workload("stacks"), 1)
    calls = t.run(workload("calls"), 2, 1, 500000)
    time.sleep(max(0, until - time.monotonic()))
    d.process.send_signal(signal.SIGCONT)
    used = cpu_ns(spin.pid) - before
    # Counted in the kernel all the while: calls exactly, time but for what is told as lost.
    answer = wait_for(lambda: d.top("--type", "syscalls", "--filter", f"pid={calls['pids'][0]}",
                                    "--filter", f"pid={calls['pids'][1]}"), lambda a: a["total"] >= 1000000)
    assert rows_by_name(answer)["getpid"]["events"] == 1000000, answer
    answer = d.top("--since", f"@{since - 1:.3f}", "--filter", f"pid={spin.pid}", "--by", "process")
    assert answer["total"] + answer["lost"] * 1e9 / 499 > 0.95 * used, (answer, used)
    # It may have begun later than a second before.
    gaps = [g for g in answer["gaps"] if g["reason"] != "not-running"]
    assert answer["covered_seconds"] > 10 and not gaps, answer
    # Stacks had no way out: that is told, and their weight is among the samples.
    assert d.status()["collectors"]["on-cpu"]["folded"]["stack-ring-full"] > 0, d.status()
    d.check_balance()
    spin.kill()
    check_profiled(d, t.run(workload("shares"), 2))


def test_many_distinct_stacks(t):
    """20,000 and more at once: none is lost or folded, and over so many samples time is right, too."""
    d = t.daemon({"collect": {"on-cpu-rate": "4999", "slice": "5s", "bucket": "10s", "max-stacks": "1000000",
                              "ring-size": "16M"}})
    truth = t.run(workload("stacks"), 3.5, 2)

    def enough(a):
        return a["total"] + a["lost"] * 1e9 / 4999 > 0.97 * truth["cpu_ns"]

    answer = wait_for(lambda: d.top("--by", "stack", "--filter", f"pid={truth['pid']}"), enough)
    assert enough(answer) and answer["total"] < 1.03 * truth["cpu_ns"], (answer["total"], answer["lost"], truth)
    assert len(answer["rows"]) + answer["rows_omitted"] >= 20000, (len(answer["rows"]), answer["rows_omitted"])
    s = d.status()["collectors"]["on-cpu"]
    assert not s["folded"] and not s["lost"].keys() - {"tick-skipped"}, s


def check_profiled(d, truth):
    """Of a process that is over, all there is to know is known."""
    own = ("--filter", f"pid={truth['pid']}", "--sort", "total")
    rows = rows_by_name(wait_for(lambda: d.top(*own), lambda a: "alpha" in rows_by_name(a)))
    assert {"alpha", "beta", "gamma_", "main"} <= rows.keys(), rows
    assert rows["alpha"]["total"] > rows["beta"]["total"], rows


def test_process_churn(t):
    """50,000 processes of a few ms: each is counted, memory stays flat, and a process started afterwards is profiled."""
    d = t.daemon({"collect": {"on-cpu-rate": "99"}})
    t.run(workload("churn"), 5000)
    before = d.status()["memory"]["rss_bytes"]
    t.run(workload("churn"), 45000, timeout=1000)
    memory = d.status()["memory"]
    exits = ("--type", "syscalls", "--since", "-30min", "--filter", "comm=churn", "--filter", "syscall=exit_group")
    # Those, and the two that started them.
    answer = d.top(*exits)
    lost = sum(d.status()["collectors"]["syscalls"]["lost"].values())
    assert 50002 - lost <= answer["total"] <= 50002, (answer["total"], lost)
    # Each is an element of a dictionary, whose size is limited.
    assert memory["rss_bytes"] < before + (24 << 20), (before, memory)
    check_profiled(d, t.run(workload("shares"), 2))


def test_hostile_comm(t):
    d = t.daemon({"collect": {"on-cpu-rate": "499"}})
    copy = shutil.copy(workload("shares"), os.path.join(t.directory, ") 1 R;x"))
    truth = t.run(copy, 2)
    answer = d.top("--by", "process", "--filter", f"pid={truth['pid']}")
    assert answer["rows"][0]["name"].startswith(") 1 R"), answer["rows"]
    answer = wait_for(lambda: d.top("--filter", "comm=) 1 R*", "--sort", "total"), lambda a: "alpha" in rows_by_name(a))
    assert "alpha" in rows_by_name(answer), answer["rows"][:5]


def test_thread_names(t):
    """The process keeps its leader's name, a thread the name that it had; 20,000 names are too many to tell apart."""
    d = t.daemon({"collect": {"on-cpu-rate": "499", "max-series": "3000", "slice": "200ms", "bucket": "10s"}})
    stored = d.status()["store"]["bytes"]
    truth = t.run(workload("names"), 20000)
    own = ("--filter", f"pid={truth['pid']}")
    processes = d.top("--by", "process", *own)
    assert {r["name"] for r in processes["rows"]} == {"names"}, processes
    # A name holds for the window in which it was given.
    answers = [d.top("--by", "thread", *own, "--filter", f"thread={name}") for name in ("before", "after")]
    before, after = (a["total"] for a in answers)
    skipped = answers[0]["lost"] * 1e9 / 499
    assert 0 < before < 1.1 * truth["before_ns"], (answers, truth)
    assert after > 0.9 * truth["after_ns"] - skipped, (answers, truth)
    assert before + after < 1.05 * (truth["before_ns"] + truth["after_ns"]) + 20e6, (answers, truth)
    # What does not fit is told, and keeps its count under another name.
    calls = rows_by_name(d.top("--type", "syscalls"))
    assert calls["getppid"]["events"] >= 20000, calls["getppid"]
    assert d.status()["collectors"]["off-cpu"]["folded"]["bucket-limit"] > 5000, d.status()
    assert d.stop() == 0
    d.start()
    assert d.status()["store"]["bytes"] < stored + (4 << 20), (stored, d.status()["store"])


def test_deleted_and_replaced_binary(t):
    d = t.daemon({"collect": {"on-cpu-rate": "499"}})
    copy = shutil.copy(workload("shares"), os.path.join(t.directory, "prog"))
    p = t.spawn(copy, 4)
    time.sleep(0.3)
    os.unlink(copy)
    with open(copy, "w") as f:
        f.write("something else entirely\n")
    check_profiled(d, t.finish(p))


def children(pid):
    found = []
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/children") as f:
            found += f.read().split()
    return found


def test_helper_may_die(t):
    d = t.daemon({"collect": {"on-cpu-rate": "499"}})
    for kill in range(2):
        helpers = []
        for attempt in range(20):
            t.run(workload("shares"), 0.3)
            d.top()  # asks for names: the helper is started when it is needed
            helpers = children(d.process.pid)
            if helpers:
                break
        assert helpers
        for pid in helpers:
            os.kill(int(pid), signal.SIGKILL)
    check_profiled(d, t.run(workload("shares"), 2))


main(__name__)
