// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rpcstream/stream_server.hpp>

#include "stream_connection.hpp"

#include <verbena/core/task/exception.hpp>

#include <algorithm>
#include <cassert>
#include <optional>
#include <string>
#include <utility>

namespace verbena::rpc {
namespace {

// Not cancellable: calls in flight can't be left behind.
template<class Server>
class all_gone {
public:
    explicit all_gone(Server& s) noexcept : server_(s) {}
    bool await_ready() const noexcept { return server_.live.empty() && server_.dead.empty(); }
    template<class Promise>
    void await_suspend(std::coroutine_handle<Promise> h) noexcept
    {
        server_.joiner = h;
        server_.joiner_mark.set(h, "the end of its connections");
    }
    void await_resume() const noexcept {}

private:
    Server& server_;
};

} // namespace

const char* text_of(stream_end cause) noexcept
{
    switch (cause) {
    case stream_end::closed_by_peer: return "closed_by_peer";
    case stream_end::lost: return "lost";
    case stream_end::idle: return "idle";
    case stream_end::no_first_call: return "no_first_call";
    case stream_end::evicted: return "evicted";
    case stream_end::slow_record: return "slow_record";
    case stream_end::output_not_taken: return "output_not_taken";
    case stream_end::record_too_long: return "record_too_long";
    case stream_end::too_many_fragments: return "too_many_fragments";
    case stream_end::refused: return "refused";
    case stream_end::shutdown: return "shutdown";
    case stream_end::exception: return "exception";
    case stream_end::not_admitted: return "not_admitted";
    }
    return "unknown";
}

std::string_view to_string(stream_end cause) noexcept { return text_of(cause); }

task_context stream_server::impl::context_of_a_call(stop_source& caller_gone) noexcept
{
    task_context context;
    context.shard = &shard;
    context.stop = caller_gone.token();
    return context;
}

void stream_server::impl::reap() noexcept
{
    intrusive_list<member> still_used;
    while (member* m = dead.pop_front()) {
        if (m->connection.unreferenced())
            delete &m->connection;
        else
            still_used.push_back(*m);
    }
    while (member* m = still_used.pop_front())
        dead.push_back(*m);
    if (joiner && live.empty() && dead.empty()) {
        joiner_mark.clear();
        shard.post(std::exchange(joiner, {}));
    }
}

void stream_server::impl::await_memory() noexcept
{
    if (memory.is_armed())
        return;
    const time_point now = shard.now();
    // So soon after the last time: it was in vain.
    memory_pause = now - memory_asked <= memory_pause ? std::min(memory_pause * 2, most_memory_pause)
                                                      : least_memory_pause;
    shard.timers().arm(memory, now + memory_pause);
}

void stream_server::impl::memory_again() noexcept
{
    memory_asked = shard.now();
    for (member* m = live.front(); m != nullptr; m = live.next(*m)) {
        if (m->connection.waits_for_memory())
            m->connection.memory_again();
    }
}

void stream_server::impl::deadline_passed() noexcept
{
    stopping.request_stop();
    while (member* m = live.front())
        m->connection.end(stream_end::shutdown);
}

stream_server::stream_server(reactor& shard, buffer_pool& pool, dispatcher& calls,
                             const stream_options& options)
    : impl_(std::make_unique<impl>(*this, shard, pool, calls, options))
{
}

stream_server::~stream_server()
{
    while (impl::member* m = impl_->live.front())
        m->connection.end(stream_end::shutdown);
    impl_->reap();
    assert(impl_->dead.empty() && "a stream server is shut down before it goes");
}

// Nothing: the stream is taken.
std::optional<stream_server::impl::refusal>
stream_server::impl::look_at(bool is_evicted, const peer_charge& place, bool stranger) const
{
    if (is_evicted)
        return refusal{stream_end::refused, refused::connection_evicted, 0, {}};
    if (!place)
        return refusal{stream_end::refused, refused::connection_share, options.max_peer_connections, {}};
    if (!place.also(peer_use::calls_left, 0, options.max_peer_left_bytes))
        return refusal{stream_end::refused, refused::connection_left_calls, options.max_peer_left_bytes, {}};
    if (stranger && strangers >= options.max_strangers)
        return refusal{stream_end::not_admitted, refused::connection_address, options.max_strangers,
                       "that many strangers are there already"};
    if (ending)
        return refusal{stream_end::refused, refused::count_, 0, {}};
    if (count >= options.max_connections)
        return refusal{stream_end::refused, refused::connection_all, options.max_connections,
                       "of this shard"};
    return std::nullopt;
}

void stream_server::adopt(net::unique_fd socket, const net::endpoint& peer,
                          std::string_view transport) noexcept
{
    impl& i = *impl_;
    i.stats.accepted.add();
    try {
        i.take(std::move(socket), peer, transport);
    } catch (...) {
        i.stats.ended[static_cast<std::size_t>(stream_end::exception)].add();
        log_limited(i.refusals_logged, log_level::error, "rpc", "an exception kept a stream from being taken",
                    {{"exception", what_of(std::current_exception())}});
    }
}

void stream_server::impl::take(net::unique_fd socket, const net::endpoint& peer, std::string_view transport)
{
    const std::string address = peer.address();
    const std::string name = peer.to_string();
    // Charged, then admitted, before anything is made for it.
    peer_charge place = peers.charge(address, peer_use::streams, 1, options.max_peer_connections);
    const bool stranger = place && !calls.admits({address, name, transport, peer.port()});
    const bool is_evicted = peers.evicted().has(address, shard.clock().now());
    if (const auto closed = look_at(is_evicted, place, stranger)) {
        stats.ended[static_cast<std::size_t>(closed->end)].add();
        if (closed->why == refused::count_)
            log_limited(refusals_logged, log_level::info, "rpc", "stream refused, as the server is ending",
                        {{"peer", name}});
        else
            tell_refusal(closed->why, {.peer = address,
                                       .object = transport,
                                       .most = closed->most == SIZE_MAX ? 0 : closed->most,
                                       .said = closed->said});
        return;
    }
    auto connection = std::make_unique<stream_connection>(*this, std::move(socket), peer, transport,
                                                          std::move(place), stranger);
    ++count;
    strangers += stranger ? 1 : 0;
    stats.connections.add(1);
    connection.release()->start();
}

task<void> stream_server::shut_down(time_point deadline)
{
    impl& i = *impl_;
    i.ending = true;
    for (impl::member* m = i.live.front(); m != nullptr;) {
        impl::member* next = i.live.next(*m);
        m->connection.finish(stream_end::shutdown);
        m = next;
    }
    i.shard.timers().arm(i.deadline, deadline);
    all_gone wait(i);
    co_await wait;
    i.deadline.cancel();
}

std::size_t stream_server::connections() const noexcept { return impl_->count; }
const stream_stats& stream_server::stats() const noexcept { return impl_->stats; }
const stream_options& stream_server::options() const noexcept { return impl_->options; }

} // namespace verbena::rpc
