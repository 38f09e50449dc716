#!/bin/sh
# Installs Debian packages: what the build needs, and with "test" also what the tests need. Does nothing, and
# needs no root and no network, when all of them are there.
set -eu

build="gcc make pkg-config clang llvm bpftool libbpf-dev libc6-dev linux-libc-dev libelf-dev libdw-dev
	zlib1g-dev libzstd-dev libxxhash-dev libsqlite3-dev libsystemd-dev libprotobuf-c-dev
	protobuf-c-compiler protobuf-compiler libmicrohttpd-dev libcurl4-openssl-dev libiberty-dev"
# Real clients and real readers of what we write, compilers for input that is built by the tests, an emulator
# for other kernels. package/command: a command from elsewhere will do.
test="libcmocka-dev python3/python3 libxml2-utils golang-go/go prometheus/promtool npm/npm curl/curl lld binutils
	g++ rustc/rustc gdb
	strace valgrind clang-format clang-tidy qemu-system-x86 busybox-static cpio xz-utils zstd
	musl-tools procps util-linux"

want=$build
[ "${1:-build}" = test ] && want="$build $test"

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

if [ "$(id -u)" != 0 ]; then
	echo "Missing packages. As root: apt-get install$missing" >&2
	exit 1
fi
echo "Installing:$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null || echo "apt-get update failed; trying with the lists at hand" >&2
# The prometheus package would start a server: only its promtool is wanted.
policy=/usr/sbin/policy-rc.d
made=
if [ ! -e $policy ]; then
	printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy && made=yes
fi
status=0
apt-get install -q -y --no-install-recommends $missing >/tmp/sysprofd-deps.$$ 2>&1 || status=$?
[ -z "$made" ] || rm -f $policy
if [ $status != 0 ]; then
	tail -20 /tmp/sysprofd-deps.$$ >&2
	echo "Could not install:$missing" >&2
fi
rm -f /tmp/sysprofd-deps.$$
exit $status
