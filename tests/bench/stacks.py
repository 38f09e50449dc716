# SPDX-License-Identifier: GPL-2.0-or-later
"""`make bench-stacks`: how complete the stacks of real programs are, and what a frame costs. $1: the build directory.

Each program runs under load for a while, without debug packages and without help: its share of complete stacks, and
of frames that have a name. Then nanoseconds per frame, and what the tables of the largest libraries cost. Root; nothing
else should run.
"""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.stdout.reconfigure(line_buffering=True)

BUILD = os.path.abspath(sys.argv[1])
ONLY = os.environ.get("ONLY", "")
SECONDS = int(os.environ.get("SECONDS_EACH", "10"))
DIR = tempfile.mkdtemp(prefix="sysprofd-bench-")
NOBODY = 65534
STATISTICS = "/proc/sys/kernel/bpf_stats_enabled"

JAVA = """public class Spin {
  static int f(int n) { return n < 2 ? 1 : f(n - 1) + f(n - 2); }
  public static void main(String[] a) { long s = 0; while (true) { s += f(25); s += String.valueOf(s).hashCode(); } }
}
"""
NODE = "const f=n=>n<2?1:f(n-1)+f(n-2);let s=0;for(;;){s+=f(20);s+=JSON.stringify({s}).length}"
PYTHON = """import json
def f(n): return 1 if n < 2 else f(n-1) + f(n-2)
while True: f(15); json.dumps(list(range(300))); sorted(str(i) for i in range(300))
"""
PERL = "sub f { my $n = shift; $n < 2 ? 1 : f($n-1) + f($n-2) } while (1) { f(12); my @a = sort map { \"x$_\" } 1..300 }"
SQL = "WITH RECURSIVE c(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM c) SELECT sum(length(hex(x)) + x % 7) FROM c;"
C = "".join(f"int f{i}(int x){{int s=0;for(int i=0;i<x;i++)s+=i*x^{i};return s;}}\n" for i in range(20000))


def path(name, text=None):
    p = os.path.join(DIR, name)
    if text is not None:
        with open(p, "w") as f:
            f.write(text)
    return p


# name, what it needs, how it is run, comm glob; with "jit" counted apart.
PROGRAMS = [
    ("python3", "python3", lambda: ["python3", path("p.py", PYTHON)], "python3*", False),
    ("perl", "perl", lambda: ["perl", "-e", PERL], "perl", False),
    ("sqlite3", "sqlite3", lambda: ["sqlite3", ":memory:", SQL], "sqlite3", False),
    ("xz", "xz", lambda: ["sh", "-c", "exec xz -6 -c /dev/urandom >/dev/null"], "xz", False),
    ("openssl speed", "openssl", lambda: ["openssl", "speed", "-seconds", "60", "-evp", "chacha20-poly1305"], "openssl", False),
    ("gcc (cc1 -O2)", "gcc", lambda: ["sh", "-c", f"while :; do gcc -O2 -S -o /dev/null {path('c.c', C)}; done"], "cc1", False),
    ("git", "git", lambda: ["sh", "-c", f"git init -q {path('g')} && cd {path('g')} && while :; do seq $((i=i+1)) >f; git add f; "
                            "git -c user.name=x -c user.email=x commit -qm x; git log -p >/dev/null; git gc -q; done"], "git", False),
    ("redis-server", "redis-server", lambda: ["redis-server", "--port", "16399", "--save", "", "--appendonly", "no"], "redis-server", False),
    ("nginx", "nginx", lambda: ["nginx", "-p", DIR, "-c", path("nginx.conf", "daemon off;pid %s/pid;error_log /dev/null;events{}"
                                "http{access_log off;server{listen 127.0.0.1:16400;location / {return 200 x;}}}" % DIR)], "nginx", False),
    ("postgres", "postgres", lambda: ["sh", "-c", f"initdb -D {path('pg')} >/dev/null 2>&1 && exec postgres -D {path('pg')} -p 16401 -k {DIR}"],
     "postgres", False),
    ("node", "node", lambda: ["node", "--perf-basic-prof", "-e", NODE], "node", True),
    ("node, no map", "node", lambda: ["node", "-e", NODE], "node", True),
    ("java, frame pointers", "java", lambda: ["java", "-XX:+PreserveFramePointer", path("Spin.java", JAVA)], "java", True),
    ("java", "java", lambda: ["java", path("Spin.java", JAVA)], "java", True),
]
# What drives them, once they answer: then the file "driven" is there. {pid} is the program's.
LOADS = {
    "redis-server": "until redis-cli -p 16399 ping; do sleep 0.2; done; touch driven; exec redis-benchmark -p 16399 -n 100000000 -q -t get,set,lpush,zadd",
    "nginx": "touch driven; while :; do curl -s -o /dev/null $(yes http://127.0.0.1:16400/ | head -200); done",
    "postgres": f"until pgbench -h {DIR} -p 16401 -i -q postgres; do sleep 0.2; done; touch driven;"
                f"exec pgbench -h {DIR} -p 16401 -T 600 -c 4 postgres",
    "java, frame pointers": "jcmd {pid} Compiler.perfmap && touch driven",
}
AS_NOBODY = ("postgres",)


def start(args, nobody=False):
    def own_group():
        os.setsid()
        if nobody:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
    return subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            cwd=DIR, preexec_fn=own_group)


def stop(p):
    try:
        os.killpg(p.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    p.wait()


class Daemon:
    def __init__(self, rate):
        state, self.socket = path(f"state-{time.monotonic_ns()}"), path("api.sock")
        config = path("conf", f"[collect]\non-cpu-rate={rate}\nbucket=1s\nslice=1s\n")
        self.p = subprocess.Popen([BUILD + "/sysprofd", "--config", config, "--state-directory", state, "--socket", self.socket],
                                  stderr=subprocess.DEVNULL)
        while not os.path.exists(self.socket):
            time.sleep(0.05)
            assert self.p.poll() is None, "sysprofd does not start"

    def ctl(self, *args):
        return subprocess.run([BUILD + "/sysprofctl", "--socket", self.socket, *args], capture_output=True, check=True).stdout

    def stop(self):
        self.p.terminate()
        self.p.wait()


def folded(d, comm, since):
    out = path("folded")
    d.ctl("flame", "--format", "folded", "-o", out, "--filter", f"comm={comm}", "--since", f"@{since:.0f}")
    with open(out) as f:
        for line in f:
            stack, n = line.rstrip("\n").rsplit(" ", 1)
            yield stack.split(";")[1:], int(n)


def programs(d):
    print(f"{'PROGRAM':<22} {'SAMPLES':>8} {'COMPLETE':>9} {'NAMED':>7}")
    for name, needs, command, comm, jit in PROGRAMS:
        if ONLY and ONLY not in name:
            continue
        if not shutil.which(needs):
            print(f"{name:<22} not installed")
            continue
        running = [start(command(), name in AS_NOBODY)]
        time.sleep(4)
        if name in LOADS:
            driven = path("driven")
            running.append(start(["sh", "-c", LOADS[name].replace("{pid}", str(running[0].pid))], name in AS_NOBODY))
            while not os.path.exists(driven):
                time.sleep(0.1)
                assert running[0].poll() is None, f"{name} does not run"
            os.unlink(driven)
            time.sleep(4)
        since = time.time()
        time.sleep(SECONDS)
        d.ctl("status")
        samples = complete = frames = named = 0
        for stack, n in folded(d, comm, since):
            samples += n
            complete += n * (stack[0] not in ("[incomplete]", "[truncated]", "[user stack pending]"))
            frames += n * len(stack)
            named += n * sum("+0x" not in f and f not in ("[unknown]", "[anon]") for f in stack)
        for p in reversed(running):
            stop(p)
        if samples:
            print(f"{name:<22} {samples:>8,} {100 * complete / samples:>7.1f} % {100 * named / frames:>5.1f} %{'  JIT' if jit else ''}")
        else:
            print(f"{name:<22} no samples")


def tick_ns():
    programs = json.loads(subprocess.run(["bpftool", "-j", "prog", "show"], capture_output=True, check=True).stdout)
    ticks = [p for p in programs if p.get("name") == "oncpu_tick"]
    return sum(p.get("run_time_ns", 0) for p in ticks), sum(p.get("run_cnt", 0) for p in ticks)


def frame_cost():
    """What 64 frames more cost a sample, at a high rate and at the usual one."""
    program = path("unwind")
    subprocess.run(["gcc", "-O2", "-w", "-fomit-frame-pointer", "-o", program, "tests/workload/unwind.c", "-lrt"], check=True)
    before = open(STATISTICS).read()
    for rate in (4999, 199, 19):
        d, cost = Daemon(rate), {}
        open(STATISTICS, "w").write("1")
        for kind in ("plain", "deep", "plain", "deep"):
            # One on each CPU: ticks that find it idle cost nothing, and would be counted.
            busy = [start(["taskset", "-c", str(cpu), program, "60", kind]) for cpu in os.sched_getaffinity(0)]
            time.sleep(4)
            ns, runs = tick_ns()
            time.sleep(max(4, 600 / rate))
            ns2, runs2 = tick_ns()
            for p in busy:
                stop(p)
            cost.setdefault(kind, []).append((ns2 - ns) / max(runs2 - runs, 1))
        open(STATISTICS, "w").write(before)
        d.stop()
        plain, deep = min(cost["plain"]), min(cost["deep"])
        print(f"{rate:>6} Hz: {plain:8,.0f} ns a tick of 9 frames, {deep:8,.0f} ns of 74: {(deep - plain) / 65:6.0f} ns a frame")


def sample_cost():
    """What a sample costs whose stack nobody made for the purpose: its tables have left the processor's caches by the next."""
    print(f"{'PROGRAM':<22} {'RATE':>8} {'FRAMES':>7} {'A SAMPLE':>10} {'A FRAME':>9}")
    chosen = [p for p in PROGRAMS if p[0] in ("python3", "perl", "gcc (cc1 -O2)", "node") and shutil.which(p[1])]
    for rate in (4999, 199, 19):
        d = Daemon(rate)
        with open(STATISTICS, "w") as f:
            f.write("1")
        for name, _, command, comm, _ in chosen:
            busy = [start(["taskset", "-c", str(cpu), *command()]) for cpu in os.sched_getaffinity(0)]
            time.sleep(6)
            since = time.time()
            ns, runs = tick_ns()
            time.sleep(max(5, 800 / rate))
            ns2, runs2 = tick_ns()
            d.ctl("status")
            frames = samples = 0
            for stack, n in folded(d, comm, since):
                frames, samples = frames + n * len(stack), samples + n
            for p in busy:
                stop(p)
            mean, cost = frames / max(samples, 1), (ns2 - ns) / max(runs2 - runs, 1)
            print(f"{name:<22} {rate:>5} Hz {mean:>7.1f} {cost:>7,.0f} ns {cost / max(mean, 1):>6,.0f} ns")
        with open(STATISTICS, "w") as f:
            f.write("0")
        d.stop()


def tables():
    files = []
    for pattern in ("/usr/lib/*/libLLVM*.so*", "/usr/lib/llvm-*/lib/libLLVM*.so*", "/usr/lib/*/librustc_driver*.so", "/usr/bin/node",
                    "/usr/lib/*/libnode.so*", "/usr/lib/jvm/*/lib/server/libjvm.so", "/usr/lib/*/libclang-cpp.so*", "/usr/lib/*/libc.so.6",
                    "/usr/lib/gcc/*/*/cc1plus"):
        files += [f for f in glob.glob(pattern) if os.path.isfile(f) and not os.path.islink(f)]
    subprocess.run([BUILD + "/tests/bench/bench-unwind", *files[:12]], check=False)


def main():
    os.chmod(DIR, 0o777)
    try:
        d = Daemon(199)
        programs(d)
        print()
        status = json.loads(d.ctl("status", "--format", "json"))
        u = status["unwind"]
        print(f"tables: {u['tables']} of binaries in {u['bytes'] / 2**20:.1f} MiB, {u['rules']:,} rules; "
              f"all memory {(status['memory']['rss_bytes'] + status['memory']['bpf_bytes']) / 2**20:.1f} MiB\n")
        d.stop()
        if not ONLY:
            sample_cost()
            print()
            frame_cost()
            print()
            tables()
    finally:
        shutil.rmtree(DIR, ignore_errors=True)


main()
