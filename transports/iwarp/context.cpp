// SPDX-License-Identifier: Apache-2.0
#include "context.hpp"

#include "startup.hpp"

#include <verbena/core/net/net.hpp>

#include <cassert>
#include <cstring>

namespace verbena::iwarp {

std::string_view to_string(end_cause c) noexcept
{
    switch (c) {
    case end_cause::orderly: return "orderly";
    case end_cause::peer_reset: return "peer_reset";
    case end_cause::peer_terminate: return "peer_terminate";
    case end_cause::startup_timeout: return "startup_timeout";
    case end_cause::startup_crowded: return "startup_crowded";
    case end_cause::bad_startup: return "bad_startup";
    case end_cause::revision_refused: return "revision_refused";
    case end_cause::markers_refused: return "markers_refused";
    case end_cause::peer_to_peer_refused: return "peer_to_peer_refused";
    case end_cause::waiting_crowded: return "waiting_crowded";
    case end_cause::rejected: return "rejected";
    case end_cause::crc_error: return "crc_error";
    case end_cause::protocol_error: return "protocol_error";
    case end_cause::access_error: return "access_error";
    case end_cause::no_receive: return "no_receive";
    case end_cause::slow_fpdu: return "slow_fpdu";
    case end_cause::setup_failed: return "setup_failed";
    case end_cause::local: return "local";
    case end_cause::count_: break;
    }
    return "unknown";
}

context_impl::context_impl(reactor& shard, const iwarp::options& o)
    : shard_(shard), options_(o), staging_(new std::byte[staging_size]), kept_(new std::byte[staging_size])
{
    capabilities_.provider = "iwarp";
    capabilities_.remote_invalidate = true;
    capabilities_.grant_per_queue_pair = true;
    capabilities_.write_with_immediate = true; // RFC 7306, which not every peer knows
    capabilities_.send_with_immediate = capabilities_.immediates_apart = true;
    capabilities_.renewable_grants = capabilities_.renews_at_once = true;
    capabilities_.shared_receives = capabilities_.receives_on_demand = true;
    capabilities_.local_invalidate = true;
    capabilities_.notices_dead_peers = true;
    capabilities_.checks_read_rights = true;
    capabilities_.checks_grant_bounds = true;
    capabilities_.bounds_peer_reads = true;
    capabilities_.max_send_segments = connection::max_segments;
    capabilities_.max_outstanding_reads = 128; // siw refuses more
    capabilities_.max_private_data = 252;      // siw takes frames of 256 octets, 4 of them ours
}

context_impl::~context_impl() = default;

void context_impl::hold_over(const connection& c, std::span<const std::byte> bytes) noexcept
{
    if (held_for_ == &c) { // a part of what it had kept
        held_ = bytes;
        return;
    }
    if (bytes.empty())
        return;
    assert(held_for_ == nullptr && "two connections read ahead without memory for messages");
    std::memcpy(kept_.get(), bytes.data(), bytes.size());
    held_ = {kept_.get(), bytes.size()};
    held_for_ = &c;
}

std::unique_ptr<context> make_context(reactor& shard, const options& o)
{
    return std::make_unique<context_impl>(shard, o);
}

result<std::unique_ptr<verbs::protection_domain>> context_impl::make_domain()
{
    return std::unique_ptr<verbs::protection_domain>(std::make_unique<domain>(table_));
}

result<std::unique_ptr<verbs::listener>> context_impl::listen(std::string_view address)
{
    const auto where = net::endpoint::parse(address);
    if (!where)
        return where.error();
    auto fd = net::open_listener(*where);
    if (!fd)
        return fd.error();
    const auto bound = net::endpoint::local(fd->get());
    if (!bound)
        return bound.error();
    return std::unique_ptr<verbs::listener>(
        std::make_unique<mpa_listener>(*this, std::move(*fd), "iwarp://" + bound->to_string()));
}

result<std::unique_ptr<verbs::listener>> context_impl::listen_adopted(std::string_view url)
{
    return std::unique_ptr<verbs::listener>(
        std::make_unique<mpa_listener>(*this, net::unique_fd(), std::string(url)));
}

void context_impl::adopt(int fd, verbs::listener& where) noexcept
{
    static_cast<mpa_listener&>(where).take(net::unique_fd(fd));
}

void context_impl::adopt(std::unique_ptr<verbs::arrival> peer, verbs::listener& where) noexcept
{
    static_cast<mpa_listener&>(where).take(
        std::unique_ptr<arrived_peer>(static_cast<arrived_peer*>(peer.release())));
}

} // namespace verbena::iwarp
