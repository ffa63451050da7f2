// SPDX-License-Identifier: Apache-2.0
#include "runtime.hpp"

#include <verbena/transports/iwarp.hpp>
#ifdef VERBENA_HAS_RDMA
#include <verbena/transports/rdma.hpp>
#endif

#include <charconv>

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
        verbena::rdma::options o;
        const std::size_t colon = options_.rdma_device.find(':');
        o.device = options_.rdma_device.substr(0, colon);
        o.source = options_.rdma_source;
        if (colon != std::string::npos) {
            const char* const end = options_.rdma_device.data() + options_.rdma_device.size();
            const auto [stop, failed] = std::from_chars(options_.rdma_device.data() + colon + 1, end, o.port);
            if (failed != std::errc() || stop != end || o.port == 0 || o.device.empty())
                return error(std::errc::invalid_argument,
                             "--device is NAME or NAME:PORT, ports count from 1");
        }
        auto made = verbena::rdma::make_context(*shard_, files_, o);
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
