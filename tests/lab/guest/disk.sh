# SPDX-License-Identifier: Apache-2.0
# Sourced by scenarios after lib.sh that serve a file system on a disk.

# export_disk MIB: ./exported is an ext4 of that size in memory.
export_disk() {
    modprobe ext4
    # The scenario before may have had one of another size.
    [[ ! -d /sys/module/brd ]] || rmmod brd
    modprobe brd rd_nr=1 rd_size=$(($1 << 10))
    mkfs.ext4 -q -b 4096 /dev/ram0
    mkdir exported
    mount /dev/ram0 exported
    rmdir exported/lost+found
}
