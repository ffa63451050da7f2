# SPDX-License-Identifier: Apache-2.0
# Fails in the way that failing_test.py asks for.
#   fails command|reason|kernel|guest|nothing
# lab: limit=60
. "$LAB_LIB"
echo "here is what $1 writes"
case $1 in
command) [[ 1 == 2 ]] ;;
reason) fail 'a reason of its own' ;;
kernel) echo 'WARNING: made by hand' >/dev/kmsg ;;
guest) echo c >/proc/sysrq-trigger && sleep 60 ;;
nothing) ;;
esac
