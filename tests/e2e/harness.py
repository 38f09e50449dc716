# SPDX-License-Identifier: GPL-2.0-or-later
"""End-to-end tests: a real daemon on the real kernel, asked by the real sysprofctl.

A test file defines functions test_*(t) and ends with main(__name__). Each gets a Daemon factory and helpers
through `t`. Output is TAP. Raise Skip(reason) where the host cannot do it.
"""
import contextlib
import ctypes
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", os.path.join(HERE, "../../build")))
SYSPROFD = os.path.join(BUILD, "sysprofd")
SYSPROFCTL = os.path.join(BUILD, "sysprofctl")


class Skip(Exception):
    pass


def die_with_parent():
    """A test that is stopped for its time leaves no daemon behind that would disturb the others."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def workload(name):
    return os.path.join(BUILD, "tests/workload", name)


class Daemon:
    """sysprofd with short buckets, a state directory and a socket of its own."""

    def __init__(self, directory, config=None, start=True, env=None):
        self.directory = directory
        self.socket = os.path.join(directory, "api.sock")
        self.state = os.path.join(directory, "state")
        self.log_path = os.path.join(directory, "log")
        self.config = {"collect": {"bucket": "1s", "slice": "1s"}}
        for section, values in (config or {}).items():
            self.config.setdefault(section, {}).update(values)
        self.env = env
        self.process = None
        if start:
            self.start()

    def write_config(self):
        path = os.path.join(self.directory, "sysprofd.conf")
        with open(path, "w") as f:
            for section, values in self.config.items():
                f.write(f"[{section}]\n")
                for key, value in values.items():
                    f.write(f"{key}={value}\n")
        return path

    def start(self, timeout=20, listening=True):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)
        log = open(self.log_path, "a")
        self.process = subprocess.Popen(
            [SYSPROFD, "--config", self.write_config(), "--state-directory", self.state,
             "--socket", self.socket], stderr=log, stdin=subprocess.DEVNULL, env=self.env,
            preexec_fn=die_with_parent)
        log.close()
        if listening:
            self.wait_listening(timeout)
        return self

    def wait_listening(self, timeout):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if os.path.exists(self.socket):
                return
            if self.process.poll() is not None:
                raise AssertionError("sysprofd ended: " + self.log())
            time.sleep(0.02)
        raise AssertionError("sysprofd does not listen: " + self.log())

    def stop(self, sig=signal.SIGTERM, timeout=20):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(sig)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError("sysprofd did not end in time: " + self.log())
        return self.process.returncode if self.process else None

    def reload(self, timeout=60):
        """Waits until the daemon has said what became of it."""
        def answers():
            return self.log().count("Configuration reloaded") + self.log().count("Configuration not reloaded")

        before = answers()
        self.write_config()
        self.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + timeout
        while answers() == before:
            assert time.monotonic() < end and self.process.poll() is None, "no reload: " + self.log()
            time.sleep(0.02)

    def reload_while(self, process, most):
        """Up to so many reloads while the process runs, each with another rate. How many there were."""
        reloads = 0
        while process.poll() is None and reloads < most:
            self.config["collect"]["on-cpu-rate"] = str(30 + reloads)
            self.reload()
            reloads += 1
        return reloads

    def log(self):
        with open(self.log_path) as f:
            return f.read()

    def ctl(self, *args, check=True, timeout=60):
        r = subprocess.run([SYSPROFCTL, "--socket", self.socket, *map(str, args)],
                           capture_output=True, timeout=timeout)
        if check and r.returncode != 0:
            raise AssertionError(f"sysprofctl {args}: {r.returncode}: {r.stderr.decode()}\n{self.log()[-2000:]}")
        return r

    def top(self, *args, n=10000, **kw):
        return json.loads(self.ctl("top", "--format", "json", "-n", n, *args, **kw).stdout)

    def ask(self, *args):
        """A command's answer as JSON."""
        return json.loads(self.ctl(*args, "--format", "json").stdout)

    def offcpu(self, *args, n=10000):
        return json.loads(self.ctl("offcpu", "--format", "json", "-n", n, *args).stdout)

    def syscalls(self, *args, n=10000):
        return json.loads(self.ctl("syscalls", "--format", "json", "-n", n, *args).stdout)

    def status(self):
        return json.loads(self.ctl("status", "--format", "json").stdout)


    def settle(self, windows=2):
        """Until what has happened so far was taken out of the kernel, however busy the host is."""
        begin = self.status()["windows"]
        wait_for(lambda: self.status()["windows"], lambda n: n >= begin + windows)

    def check_balance(self):
        """What each source saw is stored, idle, or lost for a reason that is told."""
        for name, c in self.status()["collectors"].items():
            assert c["seen"] == c["samples"] + c["idle"] + sum(c["lost"].values()), (name, c)


class Test:
    def __init__(self, directory):
        self.directory = directory
        self.daemons = []
        self.processes = []

    def daemon(self, config=None, **kw):
        d = os.path.join(self.directory, f"d{len(self.daemons)}")
        os.mkdir(d)
        self.daemons.append(Daemon(d, config, **kw))
        return self.daemons[-1]

    def spawn(self, *args, **kw):
        kw.setdefault("preexec_fn", die_with_parent)
        p = subprocess.Popen(list(map(str, args)), stdout=subprocess.PIPE, **kw)
        self.processes.append(p)
        return p

    def run(self, *args, timeout=120, **kw):
        """Runs a workload to its end and returns the JSON object that it prints: its truth."""
        r = subprocess.run(list(map(str, args)), stdout=subprocess.PIPE, timeout=timeout, check=True, **kw)
        return json.loads(r.stdout)

    def run_quietly(self, *args, timeout=120):
        subprocess.run(list(map(str, args)), stdout=subprocess.DEVNULL, timeout=timeout, check=True)

    def finish(self, p, timeout=120):
        out, _ = p.communicate(timeout=timeout)
        assert p.returncode == 0, f"workload ended with {p.returncode}"
        return json.loads(out)

    def cleanup(self):
        for p in self.processes:
            if p.poll() is None:
                p.kill()
                p.wait()
        for d in self.daemons:
            if d.process and d.process.poll() is None:
                d.process.send_signal(signal.SIGCONT)
                d.process.kill()
                d.process.wait()


def binomial_bound(p, n):
    """Half width around p of 99.99 % of sampled shares (normal quantile 3.89)."""
    return 3.89 * math.sqrt(p * (1 - p) / n) + 1 / n


def cpu_ns(pid):
    """CPU time that the main thread of a process has had so far, as the scheduler counts it."""
    with open(f"/proc/{pid}/schedstat") as f:
        return int(f.read().split()[0])


def wait_for(ask, enough, timeout=30):
    """Asks until the answer is enough; the last answer in any case, for the assertion to show."""
    end = time.monotonic() + timeout
    while True:
        answer = ask()
        if enough(answer) or time.monotonic() > end:
            return answer
        time.sleep(0.1)


def rows_by_name(answer):
    return {r["name"]: r for r in answer["rows"]}


def main(name):
    if name != "__main__":
        return
    module = sys.modules["__main__"]
    only = sys.argv[1:] or None
    tests = [(k, v) for k, v in vars(module).items()
             if k.startswith("test_") and callable(v) and (not only or k in only)]
    print(f"1..{len(tests)}")
    bad = 0
    for i, (k, fn) in enumerate(tests, 1):
        directory = tempfile.mkdtemp(prefix="sysprofd-e2e-")
        t = Test(directory)
        try:
            fn(t)
            for d in t.daemons:
                if d.process and d.process.poll() is None:
                    d.check_balance()
            print(f"ok {i} - {k}", flush=True)
        except Skip as e:
            print(f"ok {i} - {k} # SKIP {e}", flush=True)
        except Exception as e:  # noqa: BLE001 - any failure is the test's
            bad += 1
            print(f"not ok {i} - {k}")
            for line in [*traceback.format_exception_only(type(e), e), *traceback.format_exc().splitlines()]:
                print("# " + line.strip("\n").replace("\n", "\n# "))
            for d in t.daemons:
                with contextlib.suppress(OSError):
                    for line in d.log().splitlines()[-20:]:
                        print("# log: " + line)
            sys.stdout.flush()
        finally:
            t.cleanup()
            subprocess.run(["umount", "-l", os.path.join(directory, "mnt")], capture_output=True)
            shutil.rmtree(directory, ignore_errors=True)
    sys.exit(bad != 0)
