#!/bin/sh
# Installs Debian packages: what the build needs, with "test" also what the tests need, with "bench" also what is measured
# beside us, with "stacks" also programs whose stacks are.
# Does nothing, and needs no root and no network, when all of them are there.
set -eu

build="gcc make pkg-config clang llvm bpftool libbpf-dev libc6-dev linux-libc-dev libelf-dev libdw-dev
	zlib1g-dev liblzma-dev libzstd-dev libxxhash-dev libsqlite3-dev libsystemd-dev libprotobuf-c-dev
	protobuf-c-compiler protobuf-compiler libmicrohttpd-dev libcurl4-openssl-dev libiberty-dev"
# Real clients and real readers of what we write, compilers for input that is built by the tests, an emulator
# for other kernels. package/command: a command from elsewhere will do.
test="libcmocka-dev python3/python3 libxml2-utils golang-go/go prometheus/promtool npm/npm curl/curl lld binutils
	g++ rustc/rustc gdb dwz debuginfod
	strace valgrind clang-format clang-tidy qemu-system-x86 qemu-system-arm gcc-aarch64-linux-gnu busybox-static cpio xz-utils zstd
	musl-tools procps util-linux"

# A server that is slowed down, and bcc's tools to compare with.
bench="redis-server/redis-server redis-tools/redis-benchmark libbpf-tools/offcputime"
# Programs whose stacks are looked at.
stacks="python3/python3 perl sqlite3 openssl git nginx postgresql/postgres nodejs/node default-jdk-headless/java curl/curl"

want=$build
case ${1:-build} in
test) want="$build $test" ;;
bench) want="$build $test $bench" ;;
stacks) want="$build $test $bench $stacks" ;;
esac

missing=
for p in $want; do
	case $p in
	*/*)
		! command -v "${p#*/}" >/dev/null || continue
		p=${p%/*}
		;;
	esac
	status=$(dpkg-query -W -f '${Status}' "$p" 2>/dev/null || :)
	case $status in *" installed") ;; *) missing="$missing $p" ;; esac
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
	echo "No apt-get on this system. What is missing, as Debian names it:$missing" >&2
	exit 1
fi
if [ "$(id -u)" != 0 ]; then
	echo "Missing packages. As root: apt-get install$missing" >&2
	exit 1
fi
echo "Installing:$missing"
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

# The prometheus package would start a server: only its promtool is wanted.
policy=/usr/sbin/policy-rc.d
log=$(mktemp)
made=
trap '[ -z "$made" ] || rm -f $policy; rm -f "$log"' EXIT
trap 'exit 130' INT TERM
if [ ! -e $policy ]; then
	made=yes
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod +x $policy
fi

# It takes minutes: a line when a step begins. Returns what apt-get returned.
steps()
{
	n= unpacked= set_up=
	while IFS= read -r line; do
		printf '%s\n' "$line" >>"$log"
		case $line in
		*" newly installed, "*) n=${line%% newly*} n=${n##* } ;;
		"Need to get "*) line=${line#Need to get } && echo "  fetching ${line%.}" ;;
		"Unpacking "*) [ -n "$unpacked" ] || { unpacked=yes && echo "  unpacking $n packages"; } ;;
		"Setting up "*) [ -n "$set_up" ] || { set_up=yes && echo "  setting up $n packages"; } ;;
		"apt-get returned "*) return "${line##* }" ;;
		esac
	done
}

echo "  reading the lists of packages"
apt-get update -qq || echo "apt-get update failed; trying with the lists at hand" >&2
status=0
{
	apt-get install -q -y --no-install-recommends $missing 2>&1
	echo "apt-get returned $?"
} | steps || status=$?
if [ $status != 0 ]; then
	tail -20 "$log" >&2
	echo "Could not install:$missing" >&2
fi
exit $status
