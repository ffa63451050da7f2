# SPDX-License-Identifier: Apache-2.0
. "$LAB_LIB"
tell there
told cut 90
busybox ping -q -c 3 -W 2 "$LAB_PEER" >ping.out && fail 'an answer came by a wire that is cut'
tell unheard
told end 90
