#!/bin/sh
# Process 1 in the emulator: the least that a program of ours expects, then the program, then off.
/bin/busybox mkdir -p /proc /sys /dev /tmp
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t tracefs tracefs /sys/kernel/tracing
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox ip link set lo up
echo 4 > /proc/sys/kernel/printk
echo "begin $(/bin/busybox uname -r)"
/bin/kernel-check
echo "status $?"

# The daemon itself beside a load of known functions, and what it answers.
export PATH=/bin HOME=/tmp
/bin/busybox mkdir -p /etc /run /var/lib
/bin/demo &
printf '[collect]\nbucket=2s\nslice=1s\non-cpu-rate=49\n' > /tmp/sysprofd.conf
/bin/sysprofd --config /tmp/sysprofd.conf --state-directory /tmp/state --socket /tmp/api.sock 2>&1 |
	/bin/busybox sed 's/^/daemon /' &
# An emulated CPU that is shared with others is slow: what is asked for may come some seconds later.
# "asked N" tells the reader how often.
ask() # type, what the answer must name
{
	for n in 1 2 3 4 5 6 7 8; do
		/bin/sysprofctl --socket /tmp/api.sock top --type "$1" --since -1min -n 500 > /tmp/answer 2>&1
		/bin/busybox grep -qw "$2" /tmp/answer && break
		/bin/busybox sleep 2
	done
	/bin/busybox sed "s/^/top $1 /" /tmp/answer
	echo "asked $1 $n"
}
for _ in $(/bin/busybox seq 60); do
	[ -S /tmp/api.sock ] && break
	/bin/busybox sleep 1
done
/bin/busybox sleep 10
ask on-cpu parse_request
ask off-cpu schedule
ask syscalls read
ask futex lock_orders
for event in cycles cache-misses; do
	/bin/sysprofctl --socket /tmp/api.sock record -e $event -d 3 --format folded -o - 2>&1 | /bin/busybox sed "s/^/record $event /"
done
/bin/sysprofctl --socket /tmp/api.sock record -e cycles -F 499 -d 5 --filter comm=demo -o - 2>&1 | /bin/busybox sed 's/^/record table /'
/bin/sysprofctl --socket /tmp/api.sock counters --since -1min --filter comm=demo | /bin/busybox sed 's/^/counters /'
/bin/sysprofctl --socket /tmp/api.sock status | /bin/busybox sed 's/^/status /'
if [ -d /truth ]; then
	/bin/busybox killall demo sysprofd
	/bin/test-truth-live /truth && echo "truth ok"
	for t in /unit/*; do
		$t > /tmp/unit 2>&1
		echo "unit $? $t"
		/bin/busybox grep -E '^.  (ERROR|LINE)' /tmp/unit
	done
fi
echo "end"
/bin/busybox poweroff -f
