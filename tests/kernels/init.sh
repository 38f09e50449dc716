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
/bin/busybox poweroff -f
