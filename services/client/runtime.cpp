// SPDX-License-Identifier: Apache-2.0
#include "runtime.hpp"

#include "../device_choice.hpp"
#include "../resource_limit.hpp"

#include <verbena/transports/iwarp.hpp>
#ifdef VERBENA_HAS_RDMA
#include <verbena/transports/rdma.hpp>
#endif

namespace verbena::cli {

std::unique_ptr<verbs::context> make_iwarp(reactor& shard, const global_options& o)
{
    iwarp::options wanted;
    wanted.crc = o.crc ? iwarp::crc_mode::on : iwarp::crc_mode::off;
    return iwarp::make_context(shard, wanted);
}

#ifdef VERBENA_HAS_RDMA
result<std::unique_ptr<verbs::context>> make_rdma(reactor& shard, const global_options& o,
                                                  blocking_pool& devices, blocking_pool& connects)
{
    rdma::options wanted;
    wanted.source = o.rdma_source;
    if (!o.rdma_device.empty()) {
        const auto chosen = parse_device_choice(o.rdma_device);
        if (!chosen)
            return error(std::errc::invalid_argument, "--device is NAME or NAME:PORT, ports count from 1");
        wanted.device = chosen->name;
        wanted.port = chosen->port;
    }
    raise_soft_limit(RLIMIT_MEMLOCK);
    auto made = rdma::make_context(shard, {devices, connects}, wanted);
    if (!made)
        return made.error();
    return std::unique_ptr<verbs::context>(std::move(*made));
}
#else
result<std::unique_ptr<verbs::context>> make_rdma(reactor&, const global_options&, blocking_pool&,
                                                  blocking_pool&)
{
    return error(
        std::errc::function_not_supported,
        "this build has no RDMA devices (libibverbs and librdmacm were missing); nfs+iwarp:// needs none");
}
#endif

verbs::context& runtime::iwarp()
{
    if (!iwarp_)
        iwarp_ = make_iwarp(*shard_, options_);
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
    if (!rdma_) {
        if (!device_) {
            device_.emplace(device_threads, "RDMA devices");
            connects_.emplace(connect_threads, "RDMA connects");
        }
        auto made = make_rdma(*shard_, options_, *device_, *connects_);
        if (!made)
            return made.error();
        rdma_ = std::move(*made);
    }
    return rdma_.get();
}

} // namespace verbena::cli
