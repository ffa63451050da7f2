# SPDX-License-Identifier: Apache-2.0
# Leaves a process that cannot even be killed.
# lab: limit=10
. "$LAB_LIB"
modprobe -a loop ext4
truncate -s 16M disk
mkfs.ext4 -q disk
mkdir frozen
mount -o loop disk frozen
fsfreeze --freeze frozen
touch frozen/file
