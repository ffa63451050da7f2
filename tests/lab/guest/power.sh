# SPDX-License-Identifier: Apache-2.0
# The whole of a guest whose power will fail: verbenad on ext4 on /dev/vda. Sourced by the plan, as the first process.
touch /lab/job/booted
ip link set lo up
ip link set eth0 up
ip address add 10.0.2.15/24 dev eth0
exec >/dev/vport*p1 2>&1
modprobe -a virtio_blk ext4
mkdir -p /disk
mount -t ext4 /dev/vda /disk || exit 1
mkdir -p /disk/exported /disk/state
sync -f /disk
eval "set -- $LAB_SERVE"
LD_PRELOAD=$LAB_PRELOAD "$LAB_BUILD/services/verbenad" "$@" --state /disk/state --metrics off &
# Ends the guest in order: by itself it never does.
until [[ -e /lab/job/end ]]; do sleep 0.2; done
kill "$!" && wait "$!"
umount /disk
touch /lab/job/finished
echo o >/proc/sysrq-trigger
sleep 60
