# SPDX-License-Identifier: Apache-2.0
# The server of work-host: that of siw-host.
. "$LAB_ROOT/tests/lab/scenarios/siw-host.host.sh"
