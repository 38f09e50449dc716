# SPDX-License-Identifier: GPL-2.0-or-later
"""Clients that are not ours, and clients that misbehave, against the real daemon."""
import contextlib
import grp
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

from harness import BUILD, HERE, SYSPROFCTL, main, rows_by_name, wait_for, workload

BUF = "@bufbuild/buf@1.75.0"
PROTO = os.path.join(HERE, "../../proto")
SERVICE = "sysprofd.v1.ProfileService"
UIDS = (54321, 54322)


def buf():
    """The buf program, installed below the build directory the first time."""
    directory = os.path.join(BUILD, "node")
    program = os.path.join(directory, "node_modules/.bin/buf")
    if not os.path.exists(program):
        os.makedirs(directory, exist_ok=True)
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", directory, BUF],
                       check=True, timeout=300, stdin=subprocess.DEVNULL)
    return program


def messages(text):
    """The JSON objects that follow one another in text."""
    decoder, at, found = json.JSONDecoder(), 0, []
    text = text.strip()
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        found.append(value)
        while at < len(text) and text[at].isspace():
            at += 1
    return found


def call(d, method, request):
    # timeout(1) ends the whole group: the program is a script's child and would outlive it.
    r = subprocess.run(["timeout", "60", buf(), "curl", "--schema", PROTO, "--unix-socket", d.socket, "-d", json.dumps(request),
                        f"http://localhost/{SERVICE}/{method}"], capture_output=True)
    return r.returncode, messages(r.stdout.decode()), r.stderr.decode()


def test_buf_lint(t):
    subprocess.run([buf(), "lint", "."], cwd=PROTO, check=True)


def test_buf_unary(t):
    d = t.daemon({"collect": {"on-cpu-rate": "99"}})
    truth = t.run(workload("shares"), 2)
    d.settle()
    code, out, err = call(d, "Status", {})
    assert code == 0 and out[0]["collectors"][0]["name"] == "on-cpu", err
    code, out, err = call(d, "Top", {"selection": {"filters": [{"key": "pid", "glob": str(truth["pid"])}]}})
    assert code == 0, err
    rows = rows_by_name(out[0])
    assert int(rows["alpha"]["self"]) > int(rows["beta"]["self"]) > 0, rows
    code, out, err = call(d, "Merge", {"selection": {"type": "PROFILE_TYPE_SYSCALLS"}, "maxNodes": 100})
    assert code == 0 and int(out[0]["profile"]["coverage"]["total"]) > 0, err
    code, out, err = call(d, "Top", {"selection": {"filters": [{"key": "nose"}]}})
    assert code != 0 and "invalid_argument" in err and "nose" in err, (code, out, err)


def test_buf_streams(t):
    d = t.daemon({"collect": {"on-cpu-rate": "99"}})
    spin = t.spawn(workload("shares"), 20)
    code, out, err = call(d, "Record", {"rateHz": 299, "seconds": 2.5, "filters": [
        {"key": "pid", "glob": str(spin.pid)}]})
    assert code == 0, err
    assert len(out) >= 3, out
    assert all("profile" not in m for m in out[:-1]), out
    profile = out[-1]["profile"]
    samples, total = int(profile["coverage"]["samples"]), int(profile["coverage"]["total"])
    assert samples > 50 and abs(total / samples * 299 / 1e9 - 1) < 0.1, profile["coverage"]
    assert "alpha" in profile["strings"]
    # The program is a script's child: a group of its own lets the signal reach it. A file takes what it says.
    path = os.path.join(t.directory, "watched")

    def watched():
        with open(path, "rb") as f:
            return f.read()

    with open(path, "wb") as out:
        watch = subprocess.Popen([buf(), "curl", "--schema", PROTO, "--unix-socket", d.socket, "-d", "{}",
                                  f"http://localhost/{SERVICE}/Watch"], stdout=out, stderr=subprocess.DEVNULL,
                                 start_new_session=True)
    t.processes.append(watch)
    # Buckets of one second; the last object may be cut.
    text = wait_for(watched, lambda text: text.count(b'"sequence"') >= 3)
    os.killpg(watch.pid, signal.SIGTERM)
    watch.wait(10)
    assert text.count(b'"sequence"') >= 3, text[:500]


def test_cursor_follows(t):
    """What ListBuckets hands out one after another adds up to what Top says of the same range."""
    d = t.daemon()
    t.run(workload("shares"), 2)
    cursor, total, seen = "", 0, []
    # Not until there are no more: on a slow machine new ones may come as fast as they are asked for.
    while len(seen) < 4:
        code, out, err = call(d, "ListBuckets", {"afterCursor": cursor, "type": "PROFILE_TYPE_SYSCALLS", "limit": 2})
        assert code == 0, err
        for b in out[0].get("buckets", []):
            seen.append(b)
            total += int(b["profiles"][0]["coverage"].get("total", 0))
        cursor = out[0]["nextCursor"]
    assert [int(b["sequence"]) for b in seen] == sorted({int(b["sequence"]) for b in seen})
    first, last = int(seen[0]["startNs"]), int(seen[-1]["startNs"]) + 1
    code, out, err = call(d, "Top", {"selection": {"type": "PROFILE_TYPE_SYSCALLS", "fromNs": str(first),
                                                   "untilNs": str(last)}})
    assert code == 0 and int(out[0]["coverage"]["total"]) == total > 0, (out, total)


def curl(d, path, *args):
    return subprocess.run(["curl", "-sS", "--unix-socket", d.socket, *args, "http://localhost" + path],
                          capture_output=True, timeout=30, check=True).stdout


def test_promtool(t):
    d = t.daemon()
    d.settle()
    curl(d, f"/{SERVICE}/Status", "-H", "Content-Type: application/json", "-d", "{}")
    text = curl(d, "/metrics")
    r = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    assert r.returncode == 0, r.stderr.decode() + r.stdout.decode()
    for name in ("sysprofd_samples_total{type=\"syscalls\"}", "sysprofd_store_bytes", "sysprofd_build_info",
                 "sysprofd_rpc_duration_seconds_count{method=\"Status\"} ", "process_resident_memory_bytes"):
        assert name in text.decode(), name


def test_completion_knows_all_commands(t):
    """The shell completes what --help lists, no more and no less."""
    text = subprocess.run([SYSPROFCTL, "--help"], capture_output=True, check=True, text=True).stdout
    listed = re.findall(r"^  ([a-z]+)  ", text.split("COMMANDS", 1)[1].split("OPTIONS", 1)[0], re.M)
    script = os.path.join(HERE, "../../packaging/sysprofctl.bash")
    words = subprocess.run(["bash", "-c", f"source {script}; COMP_WORDS=(sysprofctl ''); COMP_CWORD=1; _sysprofctl; "
                            'printf "%s\\n" "${COMPREPLY[@]}"'], capture_output=True, check=True, text=True).stdout
    assert len(listed) > 10, text
    assert {w for w in words.split() if not w.startswith("-")} == set(listed), (words, listed)


def test_go_pprof(t):
    d = t.daemon({"collect": {"on-cpu-rate": "199"}})
    t.run(workload("shares"), 3)
    d.settle()
    path = os.path.join(t.directory, "p.pb.gz")
    start = time.monotonic()
    curl(d, "/debug/pprof/profile?seconds=30", "-o", path)
    # Of the past, not of the next 30 s.
    assert time.monotonic() - start < 20
    out = subprocess.run(["go", "tool", "pprof", "-top", path], capture_output=True, check=True, timeout=60).stdout
    assert b"Type: cpu" in out and b" alpha" in out, out.decode()


def test_hostile_names(t):
    """Bytes that are no UTF-8, newlines and quotes in names: Go's protobuf refuses a whole answer over one of them."""
    d = t.daemon({"collect": {"on-cpu-rate": "199"}})
    directory = os.path.join(os.fsencode(t.directory), b"b\xff\n\"<&")
    os.mkdir(directory)
    program = shutil.copy(os.fsencode(workload("shares")), os.path.join(directory, b"\xe9\x80 ;\x1b[2J"))
    spin = subprocess.Popen([program, b"3"], stdout=subprocess.DEVNULL)
    t.processes.append(spin)
    spin.wait(60)
    d.settle()
    own = {"filters": [{"key": "pid", "glob": str(spin.pid)}]}
    code, out, err = call(d, "Merge", {"selection": own})
    assert code == 0, err
    profile = out[0]["profile"]
    assert int(profile["coverage"]["samples"]) > 50 and "alpha" in profile["strings"], profile["coverage"]
    assert not any(ord(c) < 32 or ord(c) == 127 for s in profile["strings"] for c in s)
    code, out, err = call(d, "LabelValues", {"selection": own, "name": "exe"})
    assert code == 0 and out[0]["values"][0]["value"].endswith("[2J"), (out, err)
    path = os.path.join(t.directory, "p.pb.gz")
    curl(d, "/debug/pprof/profile?seconds=30", "-o", path)
    subprocess.run(["go", "tool", "pprof", "-raw", path], capture_output=True, check=True, timeout=60)


def become(uid, gid=None):
    def change():
        os.setgroups([])
        os.setgid(gid or uid)
        os.setuid(uid)
    return change


def test_two_uids(t):
    """Each sees its own processes, and no kernel addresses; root sees all."""
    os.chmod(t.directory, 0o755)
    programs = {}
    for path in (SYSPROFCTL, workload("shares")):
        programs[path] = shutil.copy(path, t.directory)
    d = t.daemon({"collect": {"on-cpu-rate": "199"}})
    os.chmod(d.directory, 0o755)
    spins = [t.spawn(programs[workload("shares")], 4, preexec_fn=become(u)) for u in UIDS]
    for p in spins:
        t.finish(p)
    d.settle()

    def pids(uid, gid=None):
        out = subprocess.run([programs[SYSPROFCTL], "--socket", d.socket, "top", "--by", "process", "-n", "10000",
                              "--format", "json"], capture_output=True, check=True, timeout=30,
                             preexec_fn=become(uid, gid) if uid else None).stdout
        return {r["pid"] for r in json.loads(out)["rows"] if r.get("pid")}

    for own, other in ((0, 1), (1, 0)):
        seen = pids(UIDS[own])
        # Beside it, sysprofctl itself may be there.
        assert spins[own].pid in seen and len(seen) <= 3, (seen, spins[own].pid)
        assert spins[other].pid not in seen and d.process.pid not in seen, seen
    everyone = {p.pid for p in spins}
    assert pids(0) > everyone
    # The group that sees everything is another one after a reload.
    group = grp.getgrnam("users")
    assert not pids(UIDS[0], group.gr_gid) > everyone
    d.config["serve"] = {"group": group.gr_name}
    d.reload()
    assert pids(UIDS[0], group.gr_gid) > everyone
    assert not pids(UIDS[0]) > everyone


def hang(d, data=b"P"):
    s = socket.socket(socket.AF_UNIX)
    s.connect(d.socket)
    # One that is too many may have been told so, and left, by now.
    with contextlib.suppress(BrokenPipeError):
        s.send(data)
    return s


def test_crowd(t):
    """200 that hang after one byte while another is answered within a second."""
    d = t.daemon()
    d.settle()
    before = d.status()["memory"]["rss_bytes"]
    crowd = [hang(d) for _ in range(200)]
    time.sleep(0.2)

    def seconds():
        start = time.monotonic()
        d.status()
        return time.monotonic() - start

    # A busy host may need its time once to start the client.
    assert min(seconds() for _ in range(3)) < 1
    said = []
    for s in crowd:
        s.settimeout(0.01)
        try:
            said.append(s.recv(100))
        except TimeoutError:
            said.append(None)
    # Each has a place, or heard at once that there is none, or made room after a while.
    assert all(not text or text.startswith(b"HTTP/1.1 503") for text in said), said
    assert 50 <= said.count(None) <= 64 and any(said), said
    assert d.status()["memory"]["rss_bytes"] < before + (16 << 20)
    for s in crowd:
        s.close()


def test_leaves_in_the_middle(t):
    d = t.daemon({"collect": {"on-cpu-rate": "499"}})
    t.run(workload("stacks"), 3)
    d.settle()
    body = json.dumps({"maxNodes": 100000}).encode()
    request = (f"POST /{SERVICE}/Merge HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
               f"Content-Length: {len(body)}\r\n\r\n").encode() + body
    for _ in range(20):
        s = hang(d, request)
        s.recv(1000)
        s.close()
    assert d.process.poll() is None
    d.status()


main(__name__)
