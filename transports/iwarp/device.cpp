// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include "context.hpp"
#include "queue_pair.hpp"

namespace verbena::iwarp {

device_impl::device_impl()
{
    capabilities_.provider = "iwarp";
    capabilities_.remote_invalidate = true;
    capabilities_.grant_per_queue_pair = true;
    capabilities_.write_with_immediate = true; // RFC 7306, which not every peer knows
    capabilities_.send_with_immediate = capabilities_.immediates_apart = true;
    capabilities_.renewable_grants = capabilities_.renews_at_once = true;
    capabilities_.shared_receives = capabilities_.receives_on_demand = true;
    capabilities_.local_invalidate = capabilities_.grants_stores = true;
    capabilities_.domains_across_shards = true;
    capabilities_.notices_dead_peers = true;
    capabilities_.checks_read_rights = true;
    capabilities_.checks_grant_bounds = true;
    capabilities_.bounds_peer_reads = true;
    capabilities_.max_send_segments = connection::max_segments;
    capabilities_.max_outstanding_reads = 128; // siw refuses more
    capabilities_.max_private_data = 252;      // siw takes frames of 256 octets, 4 of them ours
}

result<std::unique_ptr<verbs::protection_domain>> device_impl::make_domain(std::string_view)
{
    return std::unique_ptr<verbs::protection_domain>(std::make_unique<domain>(*this));
}

std::unique_ptr<iwarp::context> device_impl::make_context(reactor& shard, const iwarp::options& o)
{
    return std::make_unique<context_impl>(*this, shard, o);
}

std::unique_ptr<device> make_device() { return std::make_unique<device_impl>(); }

std::unique_ptr<context> make_context(reactor& shard, const options& o)
{
    return std::make_unique<context_impl>(std::make_unique<device_impl>(), shard, o);
}

} // namespace verbena::iwarp
