#!/bin/sh
# Prints the C tables of system call names, from the kernel's own headers. Arguments: the C compiler.
set -eu
cc=$*
machine=$($cc -dumpmachine)

# "NUMBER NAME" of each. The compiler evaluates the numbers: some are defined by way of another macro.
calls() # header
{
	{
		echo "#include <$1>"
		echo "#include <$1>" | $cc -E -dM -x c - | sed -nE 's/^#define __NR_([a-z0-9_]+) .*/call "\1" __NR_\1/p'
	} | $cc -E -P -x c - | sed -nE 's/^call "(.*)" \(?(__X32_SYSCALL_BIT \+ )?([0-9]+)\)?$/\3 \1/p'
}

table() # name, header...
{
	name=$1 rows=
	shift
	for header; do
		if echo "#include <$header>" | $cc -E -x c - >/dev/null 2>&1; then
			rows=$(calls "$header" | sort -n -u -k1,1 |
				awk '$1 < 1024 && $2 !~ /^(syscalls|arch_specific_syscall)$/ { printf "\t[%d] = \"%s\",\n", $1, $2 }')
			break
		fi
	done
	if [ -z "$rows" ]; then
		echo "syscall-names.sh: $cc finds no system calls in $*: the kernel's headers (linux-libc-dev) are needed" >&2
		exit 1
	fi
	printf 'static const char *const %s[] = {\n%s\n\t[1023] = NULL,\n};\n' "$name" "$rows"
}

table native_syscalls asm/unistd_64.h asm/unistd.h
case $machine in
x86_64*)
	table compat_syscalls asm/unistd_32.h
	table x32_syscalls asm/unistd_x32.h
	;;
*)
	echo 'static const char *const compat_syscalls[] = { [1023] = NULL };'
	echo 'static const char *const x32_syscalls[] = { [1023] = NULL };'
	;;
esac
