#!/bin/bash
# Boots other kernels in the emulator and runs kernel-check on each. $1: build directory.
#
# Kernels are Debian's, the newest of each series, fetched but not installed (debian.sh). Downloads stay in $1/kernels.
# What runs on another machine than this one is cross-built in $1/ARCH first. Prints TAP, one line per kernel.
# KERNELS="5.10 6.1 6.12 7 6.1/arm64 6.12/arm64" chooses series; without an architecture: amd64.
set -u
build=${1:-build}
here=$(cd "$(dirname "$0")" && pwd)
series=(${KERNELS:-5.10 6.1 6.12 7 6.12/arm64})
boot_limit=${KERNEL_TIMEOUT:-600}
# What only another machine can tell: its code paths, its registers, its system calls.
foreign_tests=(test-truth-live test-blob test-sandbox test-unwind-live test-unwind-pool-live)
mkdir -p "$build/kernels"
root=$(cd "$build/kernels" && pwd)
# shellcheck source=tests/kernels/debian.sh
. "$here/debian.sh"
# shellcheck source=tests/kernels/truth.sh
. "$here/truth.sh"

# ---- machines ------------------------------------------------------------------------------------------

# For all emulated CPUs. With a thread each, code that one of them patches may stay what it was for the others: the
# int3 of a text_poke, or a tracepoint that is off.
one_thread=(-accel "tcg,thread=single")

# Sets what is different about one: sysroot, built (directory), cross, console, and qemu.
choose_machine() # Debian's name of it
{
	arch=$1
	case $arch in
	amd64)
		sysroot='' built=$build cross='' triplet=x86_64-linux-gnu console=ttyS0
		qemu=(qemu-system-x86_64 "${one_thread[@]}" -cpu max)
		;;
	arm64)
		sysroot=$root/root-arm64 built=$build/arm64 triplet=aarch64-linux-gnu cross=aarch64-linux-gnu-
		console=ttyAMA0
		# Pointers are authenticated, but by a quick hash.
		qemu=(qemu-system-aarch64 "${one_thread[@]}" -M virt -cpu "max,pauth-impdef=on")
		;;
	*)
		return 1
		;;
	esac
	apt_options
}

# The libraries of a cross build are those that deps.sh installs here.
cross_build()
{
	local libraries
	# shellcheck disable=SC2046 # words are meant
	libraries=$(echo $(grep -oE '[a-z0-9.+-]+-dev\>' "$here/../../packaging/deps.sh"))
	# shellcheck disable=SC2086
	fetch_root "$sysroot" $libraries busybox-static perl-base || return 1
	env -u MAKEFLAGS -u MAKELEVEL make -C "$here/../.." -j"$(nproc)" B="$(realpath -m "$built")" CROSS="$cross" SYSROOT="$sysroot" \
		all demo kernel-check "${foreign_tests[@]/#/$(realpath -m "$built")/tests/unit/}" >"$root/build-$arch.log" 2>&1
}

# ---- what runs on them ---------------------------------------------------------------------------------

# Copies the libraries that a program or a library needs, and its interpreter.
copy_libraries() # file
{
	local name lib
	for name in $(readelf -ld "$1" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p; s/.*interpreter: (.*)\]/\1/p'); do
		for lib in "$sysroot"{,/lib/"$triplet"/,/usr/lib/"$triplet"/}"$name"; do
			[ -f "$lib" ] || continue
			lib=${lib#"$sysroot"}
			if [ ! -e "$tree$lib" ]; then
				install -D "$(readlink -f "$sysroot$lib")" "$tree$lib" || return 1
				copy_libraries "$tree$lib" || return 1
			fi
			continue 2
		done
		echo "# $1 needs $name" >&2
		return 1
	done
}

make_initramfs()
{
	local tree=$root/initramfs-$arch program
	rm -rf "$tree"
	mkdir -p "$tree/bin"
	cp "$sysroot/bin/busybox" "$tree/bin/busybox" || return 1
	ln -s busybox "$tree/bin/sh"
	cp "$here/init.sh" "$tree/init"
	chmod 755 "$tree/init"
	for program in sysprofd sysprofctl tests/demo/demo tests/kernels/kernel-check; do
		cp "$built/$program" "$tree/bin/" && copy_libraries "$built/$program" || return 1
	done
	# Names of the demo's functions are part of the test.
	"${cross}strip" "$tree"/bin/{sysprofd,sysprofctl,kernel-check}
	[ -z "$cross" ] || make_truth || return 1
	(cd "$tree" && find . | cpio -o -H newc --quiet) >"$tree.cpio"
}

# Once per machine: 0, or $result says what is missing.
prepare_machine()
{
	[ "${prepared[$arch]:-}" ] && return
	result="the lists of $mirror could not be read, see $apt/log"
	update_lists || return 1
	result="the programs for $arch could not be built, see $apt/log and $root/build-$arch.log"
	[ -z "$cross" ] || cross_build || return 1
	result="the initramfs for $arch could not be made"
	make_initramfs || return 1
	prepared[$arch]=yes
}

boot() # log
{
	timeout -k 5 "$boot_limit" "${qemu[@]}" -m 1G -smp 2 -nographic -no-reboot \
		-nic none -kernel "$image" -initrd "$root/initramfs-$arch.cpio" \
		-append "console=$console quiet panic=-1" </dev/null 2>&1 | tr -d '\r' >"$1"
}

# ---- the matrix ----------------------------------------------------------------------------------------

# Whether the daemon's answer of one type names something that the demo does.
answers() # log, type, name
{
	local asked

	asked=$(grep -a "^asked $2 " "$1" | grep -oE '[0-9]+$')
	[ "${asked:-1}" -eq 1 ] || facts+="; $2 asked $asked times"
	grep -a "^top $2 " "$1" | grep -aqw -- "$3" && return
	missing+=" $2:$3"
}

# Whether a parser has built tables, and whether each call has the name that it has on this architecture.
is_whole() # log
{
	grep -aqE '^status user stacks: .*; [1-9][0-9]* unwind tables' "$1" || missing+=" tables"
	! grep -aqE '^top syscalls .* syscall_[0-9]+' "$1" || missing+=" names-of-calls"
}

# Whether the processor's counters are told, or why there are none. The emulated arm64 counts cycles, and nothing else.
counts() # log
{
	if [ "$arch" = arm64 ]; then
		grep -aqE '^record cycles demo;.* [0-9]{6,}$' "$1" || missing+=" record-cycles"
		grep -aqE '^record cache-misses .*there is cpu-clock, cycles$' "$1" || missing+=" record-refused"
		grep -aqE '^counters +CPUs +GHz ' "$1" && grep -aqE '^counters absent counters: .*: instructions, cache' "$1" ||
			missing+=" hardware-counters"
	else
		grep -aqE '^counters (no hardware counters: | +CPUs +GHz )' "$1" || missing+=" hardware-counters"
	fi
}

# Whether the stacks are those of libdw, if programs were given to compare.
is_true() # log
{
	local same
	[ -d "$root/initramfs-$arch/truth" ] || return
	same=$(grep -aoE '[0-9]+ stops: [0-9]+ the same' "$1" | awk '{ n++; stops += $1; same += $3 }
		END { print same " of " stops " stacks of " n " programs as libdw has them" }')
	facts+="; $same"
	grep -aq '^truth ok' "$1" || missing+=" truth"
	[ "$(grep -ac '^unit 0 ' "$1")" = $((${#foreign_tests[@]} - 1)) ] || missing+=" unit-tests"
}

# What explains a failure: what kernel and daemon said, and the first lines of each answer.
evidence() # log
{
	grep -aE '^log |^daemon |Kernel panic|BUG:|WARNING:' "$1" | tail -n 60
	grep -aE '^truth|^unit|libdw:|ours|stops:|LINE|ERROR' "$1" | cut -c1-1000 | tail -n 40
	grep -aE '^(top|asked|status|counters) ' "$1" | awk '$1 != "top" || seen[$2]++ < 12' | tail -n 80
}

check_kernel() # series, or series/architecture
{
	local log facts missing='' start=$SECONDS
	name='' image=''
	choose_machine "$(case $1 in */*) echo "${1#*/}" ;; *) echo amd64 ;; esac)" || {
		result="$1: no such machine"
		return 1
	}
	prepare_machine || return 1
	result=$(fetch_kernel "${1%/*}") || return 1
	read -r name image <<<"$result"
	log=$root/$name/console.log
	boot "$log"
	grep -a '^insns ' "$log" | sed 's/^insns //' | sort >"$root/$name/instructions"
	facts=$(grep -aoE 'check (ok|fail) .*' "$log" | sed -E 's/^check ok //; s/^check fail /FAILED: /' | paste -sd';' |
		sed 's/;/; /g')
	answers "$log" on-cpu parse_request
	answers "$log" off-cpu schedule
	answers "$log" syscalls read
	answers "$log" futex lock_orders
	is_whole "$log"
	counts "$log"
	is_true "$log"
	[ -z "$missing" ] || facts+="; FAILED: what is missing:$missing"
	result="$name ($((SECONDS - start)) s): $facts"
	grep -aq '^done' "$log" && grep -aq '^status 0' "$log" && [ -z "$missing" ]
}

main()
{
	local n=0 status=0 s
	declare -A prepared=()
	find_mirrors || {
		echo "1..1"
		echo "not ok 1 - no Debian mirror is configured in /etc/apt"
		exit 1
	}
	echo "1..${#series[@]}"
	for s in "${series[@]}"; do
		n=$((n + 1))
		if check_kernel "$s"; then
			echo "ok $n - $result"
		else
			echo "not ok $n - $result"
			status=1
			if [ -n "${name:-}" ] && [ -e "$root/$name/console.log" ]; then
				evidence "$root/$name/console.log" | sed 's/^/# /'
				echo "# console: $root/$name/console.log"
			fi
		fi
		awk '{ printf "%s%s %d/%d", NR > 1 ? ", " : "# instructions (size/verified): ", $1, $2, $3 }
		     END { if (NR) print "" }' "$root/${name:-none}/instructions" 2>/dev/null
	done
	exit $status
}

main
