// SPDX-License-Identifier: Apache-2.0
#include "context.hpp"

#include "queue_pair.hpp"
#include "startup.hpp"

#include <verbena/core/net/net.hpp>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>
#include <utility>

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
    case end_cause::slow_reader: return "slow_reader";
    case end_cause::store_failed: return "store_failed";
    case end_cause::setup_failed: return "setup_failed";
    case end_cause::local: return "local";
    case end_cause::count_: break;
    }
    return "unknown";
}

context_impl::context_impl(device_impl& d, reactor& shard, const iwarp::options& o)
    : device_(d),
      shard_(shard),
      table_(d.table()),
      options_(o),
      store_memory_(steering::store_buffers::make(shard, o.buffers, o.max_store_bytes,
                                                  {stats_.store_buffer_bytes, stats_.store_buffer_waits})),
      staging_(new std::byte[staging_size]),
      kept_(new std::byte[staging_size]),
      lane_(d.shards().enter(shard, *this, slots_))
{
}

context_impl::context_impl(std::unique_ptr<device_impl> d, reactor& shard, const iwarp::options& o)
    : context_impl(*d, shard, o)
{
    own_ = std::move(d);
}

context_impl::~context_impl()
{
    table_.give_back(slots_);
    device_.shards().leave(lane_);
}

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

steering::store_buffer_share context_impl::store_share(std::string_view address)
{
    if (options_.peers == nullptr)
        return {};
    return store_memory_->share_of(peer_group(address, options_.peers->options().v6_prefix));
}

bool context_impl::note_debt(connection& c) noexcept
{
    try {
        debtors_.push_back(&c);
    } catch (const std::bad_alloc&) {
        return false;
    }
    lane_.set_debts(debtors_.size());
    return true;
}

void context_impl::clear_debt(connection& c) noexcept
{
    std::erase(debtors_, &c);
    lane_.set_debts(debtors_.size());
}

// Bytes of memory whose tag has gone may be queued for a socket that was full. They can't be recalled, so the connection goes
// (RFC 8166 4.4.1: if it cannot fence, it closes).
void context_impl::settle_debts() noexcept
{
    // Who hears of that end may take more away, which ends others, and may destroy connections: no place in the list holds, so
    // each search begins anew. One that ends leaves the list.
    const auto owing = [this] {
        return std::ranges::find_if(debtors_, [](const connection* c) { return c->owes_what_is_gone(); });
    };
    for (auto c = owing(); c != debtors_.end(); c = owing())
        (*c)->abort(error(std::errc::operation_canceled, "grant revoked while the peer was reading it"));
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
