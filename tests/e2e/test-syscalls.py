# SPDX-License-Identifier: GPL-2.0-or-later
"""System calls: exact."""
import os
import signal

from harness import main, rows_by_name, wait_for, workload

ALWAYS = {"collect": {"syscall-details": "always"}}


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


def test_two_threads_of_a_million(t):
    d = t.daemon()
    truth = t.run(workload("calls"), 1, 2, 1000000)
    n = getpids(d, truth)
    assert n == 2000000, n


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


KNOWN = """
import os, socket, time
for i in range(30): time.sleep(0.02)
r, w = os.pipe()
for i in range(5000):
    os.write(w, b"x")
    os.read(r, 100)
null = os.open("/dev/null", os.O_WRONLY)
# Slowly: of calls in quick succession only some are measured.
for i in range(200):
    os.write(null, b"z" * 65536)
    end = time.monotonic() + 0.001
    while time.monotonic() < end: pass
a, b = socket.socketpair()
a.setblocking(False)
for i in range(3000):
    try: a.recv(10)
    except BlockingIOError: pass
"""


def test_latency_sizes_and_errors_of_known_calls(t):
    d = t.daemon(ALWAYS)
    p = t.spawn("python3", "-c", KNOWN)
    assert p.wait() == 0
    d.settle()
    answer = d.syscalls("--filter", f"pid={p.pid}")
    rows = {r["syscall"]: r for r in answer["rows"]}
    sleeps = [r for n, r in rows.items() if n in ("clock_nanosleep", "select", "pselect6")][0]
    latency = sleeps["latency"]
    assert sleeps["calls"] == 30 and latency["measured"] >= 1, sleeps
    # Not less than they slept; a busy host lets them sleep longer.
    assert 16.7e6 <= latency["p50"] <= latency["p99"] <= latency["max"], latency
    assert latency["histogram"][0]["below"] > 20e6, latency
    writes = rows["write"]
    assert writes["calls"] >= 5200 and writes["bytes"]["measured"] > 10, writes
    assert writes["tiny"] > 0.5 and writes["bytes"]["p50"] == 1, writes
    assert writes["bytes"]["max"] == 65536, writes
    receives = rows["recvfrom"]
    assert receives["errors"] == receives["calls"] == 3000, receives
    assert receives["errnos"] == [{"name": "EAGAIN", "calls": 3000}], receives
    assert receives["bytes"] is None, receives
    errnos = {r["errno"]: r for r in d.syscalls("--by", "errno", "--filter", f"pid={p.pid}")["rows"]}
    assert errnos["EAGAIN"]["syscalls"][0] == {"name": "recvfrom", "calls": 3000}, errnos
    process = d.syscalls("--by", "process", "--filter", f"pid={p.pid}")["rows"]
    assert [r["pid"] for r in process] == [p.pid], process
    assert process[0]["calls"] == sum(r["calls"] for r in answer["rows"]), (process, answer)


def test_a_process_killed_in_a_read(t):
    d = t.daemon(ALWAYS)
    p = t.spawn("cat", stdin=-1)
    d.settle()
    p.send_signal(signal.SIGKILL)
    p.wait()
    d.settle()
    answer = d.syscalls("--filter", f"pid={p.pid}", "--filter", "syscall=read")
    read = answer["rows"][0]
    assert {"name": "ERESTARTSYS", "calls": 1} in read["errnos"], read


def test_details_of_a_part_of_the_time(t):
    """Without a setting: counts are exact, details are of some calls, and there is nothing to be configured."""
    d = t.daemon()
    p = t.spawn("python3", "-c", "import os, time\nend = time.time() + 60\n"
                "while time.time() < end: os.getppid()")
    args = ["--filter", f"pid={p.pid}", "--filter", "syscall=getppid"]
    row = wait_for(lambda: (d.syscalls(*args)["rows"] or [None])[0],
                   lambda r: r and r["latency"] and r["latency"]["measured"] > 100)
    p.kill()
    p.wait()
    assert row["latency"] and 100 < row["latency"]["measured"] < row["calls"], row
    # They stand for all.
    stood = sum(b["calls"] for b in row["latency"]["histogram"])
    assert abs(stood - row["calls"]) <= len(row["latency"]["histogram"]), row


STEADY = """
import os, sys, time
end, n = time.monotonic() + float(sys.argv[1]), 0
while time.monotonic() < end:
    for i in range(20): os.getppid()
    n += 20
    time.sleep(0.002)
print(n)
"""


def sampled(t, **more):
    d = t.daemon({"collect": {"syscall-counts": "sampled", "bucket": "1s", "slice": "500ms", **more}})
    p = t.spawn("python3", "-c", STEADY, "14")
    n = int(p.communicate(timeout=60)[0])
    d.settle()
    return d, n, ["--since", "-40s", "--filter", f"pid={p.pid}"]


def check_sampled(d, n, args):
    answer = d.syscalls(*args)
    row = {r["syscall"]: r for r in answer["rows"]}["getppid"]
    print(f"# {n} calls; {row['low']} to {row['high']}, {answer['counted_seconds']:.2f} s of "
          f"{answer['covered_seconds']:.2f} s")
    assert answer["exact"] is False and row["exact"] is False, answer
    assert row["low"] <= row["calls"] <= row["high"], row
    # One interval in twenty misses the truth; nearly none by as much as this.
    assert row["low"] / 2 <= n <= row["high"] * 2, (n, row)
    assert 0.02 < answer["counted_seconds"] / answer["covered_seconds"] < 0.4, answer["covered_seconds"]
    top = rows_by_name(d.top("--type", "syscalls", *args))["getppid"]
    assert not top["exact"] and top["self"] == row["calls"], top
    assert (top["low"], top["high"]) == (row["low"], row["high"]), (top, row)


def test_sampled(t):
    d, n, args = sampled(t)
    check_sampled(d, n, args)
    status = d.status()["collectors"]["syscalls"]
    assert status["share"] == 0.1 and "sampled" in status["state"], status
    text = d.ctl("syscalls", *args).stdout.decode()
    assert "numbers are estimates" in text and "WITHIN" in text and "~" in text, text


def test_sampled_alone(t):
    """Where no other collector needs the return of calls, its program is there in spans only."""
    check_sampled(*sampled(t, futex="no"))


def test_exact_and_sampled(t):
    d = t.daemon()
    t.run(workload("calls"), 1, 1, 1000)
    d.settle()
    assert d.syscalls("--since", "-60s")["exact"] is True
    assert all(r["exact"] for r in d.syscalls("--since", "-60s")["rows"])
    d.config["collect"]["syscall-counts"] = "sampled"
    d.reload()
    # The first span comes in the course of a bucket.
    answer = wait_for(lambda: d.syscalls("--since", "-60s"), lambda a: a["exact"] is False, timeout=45)
    assert all(not r["exact"] and r["low"] <= r["calls"] for r in answer["rows"]), answer["rows"][:3]


def test_who_calls(t):
    d = t.daemon({"collect": {"syscall-stacks": "10"}})
    truth = t.run(workload("askers"), 50000)
    d.settle()
    args = ["--since", "-60s", "--filter", f"pid={truth['pid']}", "--filter", "syscall=getppid"]
    answer = d.top("--type", "syscalls", "--by", "function", "--sort", "total", *args)
    rows = rows_by_name(answer)
    often, seldom = rows["asks_often"]["total"], rows["asks_seldom"]["total"]
    print(f"# {often} and {seldom} of {answer['total']}")
    assert answer["total"] == truth["getppid"], answer["total"]
    # A burst, of which the ration of walks is not used up at the beginning.
    assert often + seldom > 0.8 * answer["total"], (often, seldom)
    assert 1.8 < often / seldom < 5, (often, seldom)
    assert not rows["asks_often"]["exact"]
    d.ctl("flame", "-o", os.path.join(d.directory, "calls.folded"), "--type", "syscalls", *args)
    with open(os.path.join(d.directory, "calls.folded")) as f:
        assert "asks_often;getppid " in f.read()
    # Counts stay what they were.
    assert rows_by_name(d.top("--type", "syscalls", *args))["getppid"]["self"] == truth["getppid"]


def test_status_says_what_counting_costs(t):
    d = t.daemon({"collect": {"cpu-budget": "0.01%"}})
    load = t.spawn(workload("calls"), 1, 1, 10000000)
    text = wait_for(lambda: d.ctl("status").stdout.decode(), lambda s: "counting alone takes" in s)
    print("# " + [line for line in text.splitlines() if "counting alone" in line][0])
    status = d.status()["collectors"]["syscalls"]
    assert 0 < status["event_ns"] < 20000 and status["budget"] == 0.0001, status
    t.finish(load)
    d.config["collect"]["cpu-budget"] = "100%"
    d.reload()
    wait_for(lambda: d.ctl("status").stdout.decode(), lambda s: "counting alone takes" not in s)

main(__name__)
