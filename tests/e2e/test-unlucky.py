# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs that other profilers show without names, or with wrong ones, all beside each other under one daemon."""
import contextlib
import ctypes
import os
import shutil
import subprocess
import time

from harness import Skip, main, wait_for
from jit import map_path, program

# Without frame pointers, and with their functions in a known order.
BUILD = ("gcc", "-O1", "-w", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-fno-inline")
SPIN = """
volatile unsigned long sink;
void inner(void) { for (;;) sink++; }
void outer(void) { inner(); sink++; }
"""
PROGRAMS = {
    # The page that the file begins with is no longer mapped.
    "hole": SPIN + """
#include <stdio.h>
#include <sys/mman.h>
extern char __executable_start[];
int main() { munmap(__executable_start, 4096); outer(); return 0; }
""",
    "vdso": """
#include <time.h>
struct timespec t;
void outer(void) { for (;;) clock_gettime(CLOCK_MONOTONIC, &t); }
int main() { outer(); return 0; }
""",
    # Libraries that come and go while they are sampled.
    "loads": """
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
void *load(void *path)
{
	for (;;) {
		void *library = dlopen(path, RTLD_NOW);
		void (*f)(void) = (void (*)(void))dlsym(library, "library_spin");
		f();
		dlclose(library);
	}
}
int main(int argc, char **argv)
{
	pthread_t t;
	pthread_create(&t, NULL, load, argv[1]);
	load(argv[2]);
}
""",
    # Each waits where a thread can be cancelled.
    "waits": """
#include <pthread.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>
int fds[2];
volatile int sink;
void in_read(void) { char c; for (;;) sink += read(fds[0], &c, 1); }
void in_nanosleep(void) { struct timespec t = { 0, 5000000 }; for (;;) sink += nanosleep(&t, NULL); }
void in_epoll(void) { struct epoll_event e; int fd = epoll_create1(0); for (;;) sink += epoll_wait(fd, &e, 1, 5); }
void in_poll(void) { for (;;) sink += poll(NULL, 0, 5); }
void in_write(void) { struct timespec t = { 0, 5000000 }; for (;;) { sink += write(fds[1], "x", 1); usleep(5000); } }
void *start(void *f) { ((void (*)(void))f)(); sink++; return NULL; }
int main()
{
	void (*all[])(void) = { in_read, in_nanosleep, in_epoll, in_poll };
	pthread_t t;
	pipe(fds);
	for (int i = 0; i < 4; i++)
		pthread_create(&t, NULL, start, (void *)all[i]);
	in_write();
}
""",
    # One function for each system call, in random order.
    "calls": """
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
static char buf[65536];
volatile long sink;
int zero, fds[2];
void f_read(void) { sink += read(zero, buf, sizeof(buf)); }
void f_getrandom(void) { sink += getrandom(buf, 4096, 0); }
void f_mmap(void) { sink += (long)mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
void f_readlink(void) { sink += readlink("/proc/self/exe", buf, sizeof(buf)); }
void f_pipe2(void) { int p[2]; sink += pipe2(p, O_CLOEXEC); close(p[0]); close(p[1]); }
void f_access(void) { sink += access("/usr/lib/x86_64-linux-gnu/libc.so.6", R_OK); }
int main()
{
	void (*all[])(void) = { f_read, f_getrandom, f_readlink, f_pipe2, f_access };
	zero = open("/dev/zero", O_RDONLY);
	for (;;) all[rand() % 5]();
}
""",
}
CALLS = ("read", "getrandom", "readlink", "pipe2", "access")


def build(t, name, *options, source=None, out=None):
    path, code = os.path.join(t.directory, out or name), os.path.join(t.directory, name + ".c")
    with open(code, "w") as f:
        f.write(source or PROGRAMS[name])
    subprocess.run([*BUILD, *options, "-o", path, code, "-lpthread", "-ldl"], check=True)
    return path


def stacks(d, t, last, *args):
    """(frames, root first; samples) of the last seconds."""
    path = os.path.join(t.directory, "folded")
    d.ctl("flame", "--format", "folded", "-o", path, "--since", f"@{time.time() - last:.3f}", *args)
    with open(path) as f:
        return [(line.rsplit(" ", 1)[0].split(";")[1:], int(line.rsplit(" ", 1)[1])) for line in f]


def wait_for_chain(d, t, comm, chain, share=0.9, last=2):
    """Until of the program's latest samples this share has the chain in it, in this order."""
    def ask():
        good = total = 0
        for frames, n in stacks(d, t, last, "--filter", f"comm={comm}"):
            total += n
            good += n * any(frames[i:i + len(chain)] == chain for i in range(len(frames)))
        return good / total if total else 0, total

    seen = wait_for(ask, lambda s: s[0] >= share and s[1] > 20, 60)
    assert seen[0] >= share, (comm, chain, seen, stacks(d, t, last, "--filter", f"comm={comm}")[:5])


def test_names_and_chains(t):
    library = [build(t, f"lib{i}", "-shared", "-fPIC",
                     source="volatile long sink; void library_spin(void) { for (int i = 0; i < 3000000; i++) sink++; }")
               for i in range(2)]
    # Rust without panics and such: no tables, but frame pointers.
    plain = build(t, "plain", "-O0", "-fno-asynchronous-unwind-tables", "-fno-omit-frame-pointer",
                  source=SPIN + "int main() { outer(); return 0; }")
    early = t.spawn(*program('m = Memory(); write(m.line("before_the_daemon")); m.spin(1000)'))
    d = t.daemon({"collect": {"on-cpu-rate": "499"}})
    try:
        for p in ([build(t, "hole")], [build(t, "vdso")], [build(t, "loads"), *library], [plain]):
            t.spawn(*p)
        wait_for_chain(d, t, "hole", ["main", "outer", "inner"])
        wait_for_chain(d, t, "plain", ["main", "outer", "inner"])
        wait_for_chain(d, t, "vdso", ["main", "outer"])
        names = {r["name"] for r in d.top("--filter", "comm=vdso")["rows"]}
        assert any("vdso_clock_gettime" in n for n in names), names
        wait_for_chain(d, t, "loads", ["load", "library_spin"], share=0.5)
        jit = wait_for(lambda: {r["name"] for r in d.top("--filter", f"pid={early.pid}")["rows"]},
                       lambda n: "before_the_daemon" in n)
        assert "before_the_daemon" in jit, jit
    finally:
        os.unlink(map_path(early.pid))


def test_namespaces(t):
    """Three pid namespaces deep, and from an overlay."""
    d = t.daemon({"collect": {"on-cpu-rate": "499"}})
    inner = program('import subprocess; subprocess.run(["mount", "-t", "tmpfs", "none", "/tmp"], check=True)\n'
                    'm = Memory(); write(m.line("three_deep")); m.spin(1000)')
    deep = ("unshare", "--pid", "--fork", "--kill-child", "--mount", "--propagation", "private")
    t.spawn(*deep, *deep, *deep, *inner)
    layers = [os.path.join(t.directory, name) for name in ("lower", "upper", "work", "merged")]
    for path in layers:
        os.mkdir(path)
    shutil.copy(build(t, "over", source=SPIN + "int main() { outer(); return 0; }"), layers[0])
    mount = "mount -t overlay none -o lowerdir={},upperdir={},workdir={} {}".format(*layers)
    over = t.spawn("unshare", "--mount", "--propagation", "private", "sh", "-c",
                   f"{mount} && exec {layers[3]}/over")
    time.sleep(0.5)
    if over.poll() is not None:
        raise Skip("no overlay can be mounted here")
    names = wait_for(lambda: {r["name"] for r in d.top("--by", "function")["rows"]}, lambda n: "three_deep" in n)
    assert "three_deep" in names
    wait_for_chain(d, t, "over", ["main", "outer", "inner"])
    # By the pid that the host knows it by.
    assert d.top("--filter", f"pid={over.pid}")["samples"] > 0


def test_file_of_one_inode(t):
    """Another content in the same file: each process keeps the names of its own."""
    d = t.daemon({"collect": {"on-cpu-rate": "499"}})
    path = os.path.join(t.directory, "reused")
    for name in ("first_name", "second_name"):
        made = build(t, name, source=SPIN.replace("inner", name) + "int main() { outer(); return 0; }")
        with open(made, "rb") as f, open(path, "wb") as out:
            out.write(f.read())
        os.chmod(path, 0o755)
        p = t.spawn(path)
        wait_for_chain(d, t, "reused", ["main", "outer", name], last=1.5)
        p.kill()
        p.wait()
    names = {r["name"] for r in d.top("--filter", "comm=reused")["rows"]}
    assert {"first_name", "second_name"} <= names, names


def test_kernel_and_user_sides_belong_together(t):
    d = t.daemon({"collect": {"on-cpu-rate": "997"}})
    p = t.spawn(build(t, "calls"))
    wait_for(lambda: d.top("--filter", f"pid={p.pid}")["samples"], lambda n: n > 2000)
    wait_for_chain(d, t, "calls", ["main"])
    seen = {}
    for frames, n in stacks(d, t, 2, "--filter", f"pid={p.pid}"):
        user = {f[2:] for f in frames if f.startswith("f_")}
        kernel = {c for c in CALLS if f"__x64_sys_{c}" in frames or f"__arm64_sys_{c}" in frames}
        assert not kernel or kernel == user, frames
        for c in kernel:
            seen[c] = seen.get(c, 0) + n
    assert len(seen) >= 3, seen


def test_waits_where_threads_are_cancelled(t):
    d = t.daemon()
    p = t.spawn(build(t, "waits"))
    time.sleep(3)

    def ask():
        return stacks(d, t, 2, "--type", "off-cpu", "--filter", f"pid={p.pid}")

    wanted = ("in_read", "in_nanosleep", "in_epoll", "in_poll", "in_write")
    found = wait_for(ask, lambda s: all(any(w in f for f, _ in s) for w in wanted), 30)
    for name in wanted:
        mine = [(f, n) for f, n in found if name in f]
        assert mine, (name, found[:5])
        below = "main" if name == "in_write" else "start"
        assert all(f[f.index(name) - 1] == below for f, _ in mine), mine


def make_container():
    """A cgroup as a container has it, or None where there can be none."""
    for root in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
        path = os.path.join(root, "docker", f"{os.getpid():064x}")
        if os.path.exists(os.path.join(root, "cgroup.procs")):
            os.makedirs(path)
            return path
    raise Skip("no cgroups here")


def remove_container(path, p):
    p.kill()
    p.wait()
    wait_for(lambda: open(os.path.join(path, "cgroup.procs")).read(), lambda text: not text)
    os.rmdir(path)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))


def test_short_lived_in_a_container(t):
    """Processes of 20 ms: all of them are the container's."""
    program_ = build(t, "boxed", source="""
#include <time.h>
int main() { volatile long sink = 0; while (clock() < 20000) sink++; return 0; }
""")
    d, path = t.daemon({"collect": {"on-cpu-rate": "997"}}), make_container()
    p = t.spawn("sh", "-c", f"echo $$ > {path}/cgroup.procs; while :; do {program_}; done")
    try:
        ask = ("--by", "container", "--filter", "comm=boxed", "--since", f"@{time.time() + 1:.3f}")
        time.sleep(2)
        rows = wait_for(lambda: d.top(*ask)["rows"], lambda rows: sum(r["self"] for r in rows) > 5e8)
    finally:
        remove_container(path, p)
    mine = sum(r["self"] for r in rows if r["name"] == os.path.basename(path))
    assert mine > 0.95 * sum(r["self"] for r in rows) > 0, rows


def test_threads_of_the_kernel(t):
    """They have neither user stack nor binary, and are there all the same."""
    d = t.daemon({"collect": {"on-cpu-rate": "997"}})
    out = os.path.join(t.directory, "file")
    p = t.spawn("sh", "-c", f"while :; do dd if=/dev/zero of={out} bs=1M count=16 conv=fsync 2>/dev/null; done")

    def ask():
        return [r for r in d.top("--by", "process")["rows"] if r["name"].startswith(("kworker/", "jbd2/"))]

    rows = wait_for(ask, lambda rows: rows)
    p.kill()
    assert rows, d.top("--by", "process")["rows"]
    for frames, _ in stacks(d, t, 60, "--filter", f"pid={rows[0]['pid']}"):
        assert not any(f.startswith("[") for f in frames), frames


def load_program():
    """bpf(BPF_PROG_LOAD) of a socket filter: r0 = 0; exit"""
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(bytes.fromhex("b7000000000000009500000000000000"))
    terms = ctypes.create_string_buffer(b"GPL")
    attr = (ctypes.c_uint64 * 16)(1 | 2 << 32, ctypes.addressof(code), ctypes.addressof(terms))
    fd = libc.syscall({"x86_64": 321, "aarch64": 280}[os.uname().machine], 5, attr, ctypes.sizeof(attr))
    assert fd >= 0, os.strerror(ctypes.get_errno())
    os.close(fd)


def test_programs_that_come_and_go_in_the_kernel(t):
    """Ten BPF programs a second: symbols of the kernel are not read anew for each."""
    d = t.daemon({"collect": {"on-cpu-rate": "19"}})
    wait_for(lambda: d.status()["unwind"]["wanted"], lambda n: n == 0)
    used = []
    for work in (lambda: None, load_program):
        before, until = d.status()["cpu_seconds"], time.monotonic() + 5
        while time.monotonic() < until:
            work()
            time.sleep(0.1)
        used.append(d.status()["cpu_seconds"] - before)
    assert used[1] < used[0] + 0.05 * 5, used


main(__name__)
