# shellcheck shell=bash disable=SC2154 # sourced by run.sh
#
# Programs whose stacks test-truth-live compares with libdw's, cross-built: /truth in the initramfs holds a file for
# each, which runs until it is killed.

# One source, built in many ways: without frame pointers, with return addresses signed, in leaf functions too.
truth_build() # name, kinds, compiler and flags...
{
	local name=$1 kinds=$2 kind
	shift 2
	"$@" -w -fomit-frame-pointer "--sysroot=$sysroot" "$here/../workload/unwind.c" \
		-o "$tree/lib/truth/$name" || return 1
	copy_libraries "$tree/lib/truth/$name" || return 1
	for kind in $kinds; do
		truth_program "$name-$kind" "/lib/truth/$name 1000 $kind"
	done
}

truth_program() # name, command
{
	printf '#!/bin/sh\nexec %s\n' "$2" >"$tree/truth/$1"
	chmod 755 "$tree/truth/$1"
}

make_truth()
{
	local gcc=${cross}gcc test
	mkdir -p "$tree/truth" "$tree/lib/truth"
	for test in "${foreign_tests[@]}"; do
		install -s --strip-program="${cross}strip" -Dt "$tree/unit" "$built/tests/unit/$test" &&
			copy_libraries "$tree/unit/$test" || return 1
	done
	mv "$tree/unit/test-truth-live" "$tree/bin/"
	truth_build gcc "signal variable plt" "$gcc" -O2 || return 1
	truth_build gcc-O0 signal "$gcc" -O0 -no-pie || return 1
	truth_build gcc-signed "signal deep tall" "$gcc" -O2 -mbranch-protection=standard || return 1
	truth_build gcc-static signal "$gcc" -O2 -static || return 1
	truth_build gcc-leaf-signed variable "$gcc" -O2 -static-pie -mbranch-protection=pac-ret+leaf || return 1
	truth_build clang-signed "signal variable" clang "--target=$triplet" -O2 -fuse-ld=lld \
		-mbranch-protection=standard || return 1
	cp "$sysroot/usr/bin/perl" "$tree/bin/" && copy_libraries "$tree/bin/perl" || return 1
	truth_program perl "/bin/perl -e 'sub f { my \$n = shift; \$n < 2 ? 1 : f(\$n - 1) + f(\$n - 2) }
		while (1) { f(10); my @a = sort map { \"x\$_\" } 1..300; join(\",\", @a) =~ s/x(\\d)/y\$1/gr }'"
}
