// SPDX-License-Identifier: Apache-2.0
#include "runtime.hpp"

#include <verbena/transports/iwarp.hpp>
#ifdef VERBENA_HAS_RDMA
#include <verbena/transports/rdma.hpp>
#endif

namespace verbena::cli {

verbs::context& runtime::iwarp()
{
    if (!iwarp_)
        iwarp_ = verbena::iwarp::make_context(*shard_);
    return *iwarp_;
}

result<verbs::context*> runtime::rdma()
{
#ifdef VERBENA_HAS_RDMA
    if (!rdma_) {
        auto made = verbena::rdma::make_context(*shard_, files_);
        if (!made)
            return made.error();
        rdma_ = std::move(*made);
    }
    return rdma_.get();
#else
    return error(
        std::errc::function_not_supported,
        "this build has no RDMA devices (libibverbs and librdmacm were missing); nfs+iwarp:// needs none");
#endif
}

} // namespace verbena::cli
