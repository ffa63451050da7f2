# SPDX-License-Identifier: Apache-2.0
# Comes to no end, nor does what it started, which takes no hint.
# lab: limit=10
. "$LAB_LIB"
echo 'here is what hangs writes'
(trap '' TERM && sleep 601) &
trap '' TERM
sleep 602
