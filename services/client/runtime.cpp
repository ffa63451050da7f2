// SPDX-License-Identifier: Apache-2.0
#include "runtime.hpp"

#include "../device_choice.hpp"
#include "../resource_limit.hpp"

#include <verbena/transports/iwarp.hpp>
#ifdef VERBENA_HAS_RDMA
#include <verbena/transports/rdma.hpp>
#endif

namespace verbena::cli {

verbs::context& runtime::iwarp()
{
    if (!iwarp_) {
        verbena::iwarp::options o;
        o.crc = options_.crc ? verbena::iwarp::crc_mode::on : verbena::iwarp::crc_mode::off;
        iwarp_ = verbena::iwarp::make_context(*shard_, o);
    }
    return *iwarp_;
}

nfs::v4::user_names& runtime::users()
{
    if (!users_) {
        nfs::v4::user_names_options o;
        o.domain = options_.id_domain;
        names_.emplace(name_threads, "user names");
        name_source_.emplace(*names_);
        users_.emplace(*shard_, *name_source_, std::move(o));
    }
    return users_->names();
}

task<bool> runtime::end_lookups()
{
    // Nobody wants what is still looked up; most of it ends in a moment all the same.
    constexpr std::chrono::milliseconds grace{500};
    if (!users_)
        co_return true;
    co_return co_await users_->end(grace);
}

result<verbs::context*> runtime::rdma()
{
#ifdef VERBENA_HAS_RDMA
    if (!rdma_) {
        verbena::rdma::options o;
        o.source = options_.rdma_source;
        if (!options_.rdma_device.empty()) {
            const auto chosen = parse_device_choice(options_.rdma_device);
            if (!chosen)
                return error(std::errc::invalid_argument,
                             "--device is NAME or NAME:PORT, ports count from 1");
            o.device = chosen->name;
            o.port = chosen->port;
        }
        raise_soft_limit(RLIMIT_MEMLOCK);
        if (!device_) {
            device_.emplace(device_threads, "RDMA devices");
            connects_.emplace(connect_threads, "RDMA connects");
        }
        auto made = verbena::rdma::make_context(*shard_, {*device_, *connects_}, o);
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
