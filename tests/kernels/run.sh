#!/bin/bash
# Boots other kernels in the emulator and runs kernel-check on each. $1: build directory.
#
# Kernels are Debian's, the newest of each series: fetched with an apt root of its own from the mirror that this
# machine's apt uses, unpacked, never installed. Downloads stay in $1/kernels. Prints TAP, one line per kernel.
# KERNELS="5.10 6.1 6.12 7" chooses series.
set -u
build=${1:-build}
here=$(cd "$(dirname "$0")" && pwd)
series=(${KERNELS:-5.10 6.1 6.12 7})
boot_limit=${KERNEL_TIMEOUT:-400}
lists_days=7
mkdir -p "$build/kernels"
root=$(cd "$build/kernels" && pwd)

# ---- where kernels come from -----------------------------------------------------------------------

# "URI SUITE" of each Debian source that apt is configured with.
configured_sources()
{
	cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
		sed -nE 's/^deb[ \t]+(\[[^]]*\][ \t]+)?([^ \t]+)[ \t]+([^ \t]+).*/\2 \3/p'
	cat /etc/apt/sources.list.d/*.sources 2>/dev/null |
		awk 'tolower($1) == "uris:" { uri = $2 }
		     tolower($1) == "suites:" { for (i = 2; i <= NF; i++) suites = suites " " $i }
		     /^[ \t]*$/ { flush() } END { flush() }
		     function flush(  n, s) {
			n = split(suites, s, " "); for (i = 1; i <= n; i++) print uri, s[i]; uri = suites = ""
		     }'
}

find_mirrors()
{
	local release uri suite
	release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
	mirror='' security=''
	while read -r uri suite; do
		[ "$suite" = "$release" ] && mirror=${mirror:-${uri%/}}
		[ "$suite" = "$release-security" ] && security=${security:-${uri%/}}
	done < <(configured_sources)
	security=${security:-${mirror}-security}
	[ -n "$mirror" ]
}

apt_options()
{
	options=(-q -o Dir::Etc::sourcelist="$root/sources.list" -o Dir::Etc::sourceparts=/dev/null/none
		-o Dir::Etc::preferencesparts=/dev/null/none -o Dir::Etc::preferences=/dev/null/none
		-o Dir::State="$root/apt" -o Dir::State::lists="$root/apt/lists"
		-o Dir::State::status="$root/apt/status" -o Dir::Cache="$root/apt/cache"
		-o APT::Architecture=amd64 -o APT::Sandbox::User=root -o APT::Install-Recommends=false
		-o Acquire::Languages=none -o Acquire::Check-Valid-Until=false -o Acquire::Retries=2)
}

# A suite that the mirror has given up is an error in the log and no more: the others are read.
update_lists()
{
	local line
	if [ -s "$root/sources.list" ] && [ -z "$(find "$root/sources.list" -mtime +$lists_days)" ]; then
		return
	fi
	mkdir -p "$root"/apt/{lists/partial,cache/archives/partial}
	: >"$root/apt/status"
	for line in "$mirror bullseye" "$security bullseye-security" "$mirror-archive/debian bullseye" \
		"$mirror bookworm" "$security bookworm-security" "$mirror trixie" "$mirror trixie-backports"; do
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $line main"
	done >"$root/sources.list"
	apt-get "${options[@]}" update >"$root/apt.log" 2>&1
	if ! ls "$root"/apt/lists/*_Packages* >/dev/null 2>&1; then
		rm -f "$root/sources.list"
		return 1
	fi
}

newest_package() # series
{
	apt-cache "${options[@]}" pkgnames linux-image- 2>/dev/null | grep -E "^linux-image-${1//./\\.}\.[0-9].*-cloud-amd64\$" |
		grep -v -- '-rt-' | sort -V | tail -n 1
}

# Unpacks the kernel image of a package into $image, if it has one.
unpack_kernel() # package
{
	local dir=${image%/*}
	rm -f "$dir"/*.deb
	(cd "$dir" && apt-get "${options[@]}" download "$1" >>"$root/apt.log" 2>&1) || return 1
	dpkg-deb --fsys-tarfile "$dir"/*.deb | tar -xO --wildcards '*/vmlinuz*' >"$image.part" 2>/dev/null
	rm -f "$dir"/*.deb
	[ -s "$image.part" ] && mv "$image.part" "$image"
}

# Prints name and image of the newest kernel of a series, or why there is none.
fetch_kernel() # series
{
	local package name image
	package=$(newest_package "$1")
	if [ -z "$package" ]; then
		echo "no package linux-image-$1*-cloud-amd64 at $mirror, see $root/apt.log"
		return 1
	fi
	name=${package#linux-image-}
	image=$root/$name/vmlinuz
	if [ ! -s "$image" ]; then
		mkdir -p "$root/$name"
		# Since 7.3 the image package is empty and the kernel lies in a package of its own.
		unpack_kernel "$package" || unpack_kernel "linux-binary-$name" || {
			echo "$package: no kernel could be fetched, see $root/apt.log"
			return 1
		}
	fi
	echo "$name $image"
}

# ---- what runs on them ---------------------------------------------------------------------------------

make_initramfs()
{
	local tree=$root/initramfs program lib
	rm -rf "$tree"
	mkdir -p "$tree/bin"
	cp /bin/busybox "$tree/bin/busybox" || return 1
	ln -s busybox "$tree/bin/sh"
	cp "$here/init.sh" "$tree/init"
	chmod 755 "$tree/init"
	for program in sysprofd sysprofctl tests/demo/demo tests/kernels/kernel-check; do
		cp "$build/$program" "$tree/bin/" || return 1
		while read -r lib; do
			[ -e "$tree$lib" ] || install -D "$(readlink -f "$lib")" "$tree$lib" || return 1
		done < <(ldd "$build/$program" | grep -oE '/[^ ]+')
	done
	# Names of the demo's functions are part of the test.
	strip "$tree"/bin/{sysprofd,sysprofctl,kernel-check}
	(cd "$tree" && find . | cpio -o -H newc --quiet) >"$root/initramfs.cpio"
}

# One thread for all CPUs: with a thread each, an emulated CPU may run the int3 of code that another is patching.
boot() # log
{
	timeout -k 5 "$boot_limit" qemu-system-x86_64 -accel tcg,thread=single -cpu max -m 1G -smp 2 -nographic -no-reboot \
		-nic none -kernel "$image" -initrd "$root/initramfs.cpio" \
		-append "console=ttyS0 quiet panic=-1" </dev/null 2>&1 | tr -d '\r' >"$1"
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

# What explains a failure: what kernel and daemon said, and the first lines of each answer.
evidence() # log
{
	grep -aE '^log |^daemon |Kernel panic|BUG:|WARNING:' "$1" | tail -n 60
	grep -aE '^(top|asked|status) ' "$1" | awk '$1 != "top" || seen[$2]++ < 12' | tail -n 80
}

check_kernel() # series
{
	local log facts missing='' start=$SECONDS
	name='' image=''
	if ! result=$(fetch_kernel "$1"); then
		return 1
	fi
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
	[ -z "$missing" ] || facts+="; FAILED: the daemon's answers lack$missing"
	result="$name ($((SECONDS - start)) s): $facts"
	grep -aq '^done' "$log" && grep -aq '^status 0' "$log" && [ -z "$missing" ]
}

main()
{
	local n=0 status=0 s
	apt_options
	find_mirrors || {
		echo "1..1"
		echo "not ok 1 - no Debian mirror is configured in /etc/apt"
		exit 1
	}
	if ! update_lists; then
		echo "1..1"
		echo "not ok 1 - the lists of $mirror could not be read, see $root/apt.log"
		exit 1
	fi
	make_initramfs || exit 1
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
