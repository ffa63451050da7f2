// SPDX-License-Identifier: Apache-2.0
// What rpcgen makes of nfs4_rdma_layout.x, which is C, as C++: so the tests need no C compiler. C++17 has no `register`,
// which the build therefore takes away.
#pragma GCC diagnostic ignored "-Wunused-variable"
#include "nfs4_rdma_layout_xdr.h"
