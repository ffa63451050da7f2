// SPDX-License-Identifier: Apache-2.0
// What the streams of one server share.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/log.hpp>
#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/net/refusals.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/task/stop.hpp>
#include <verbena/core/task/wait_record.hpp>
#include <verbena/protocols/rpc/address_shares.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpcstream/stream_server.hpp>

#include <coroutine>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

namespace verbena::rpc {

class stream_connection;

struct stream_server::impl {
    impl(stream_server& s, reactor& r, buffer_pool& p, dispatcher& d, const stream_options& o)
        : server(s),
          shard(r),
          pool(p),
          calls(d),
          options(o),
          own_peers(o.peers == nullptr ? std::make_unique<peer_shares>() : nullptr),
          peers(o.peers == nullptr ? *own_peers : *o.peers)
    {
    }
    // Nobody tells a stream that another shard has given memory back.
    static constexpr duration least_memory_pause = std::chrono::milliseconds(1);
    static constexpr duration most_memory_pause = std::chrono::milliseconds(50);

    /// Ends of connections are noted where they happen and happen at the end of the turn.
    class reaper final : public deferred {
    public:
        explicit reaper(impl& i) noexcept : impl_(i) {}
        void run() noexcept override { impl_.reap(); }

    private:
        impl& impl_;
    };
    class memory_timer final : public timer {
    public:
        explicit memory_timer(impl& i) noexcept : impl_(i) {}
        void on_timer() noexcept override { impl_.memory_again(); }

    private:
        impl& impl_;
    };
    class deadline_timer final : public timer {
    public:
        explicit deadline_timer(impl& i) noexcept : impl_(i) {}
        void on_timer() noexcept override { impl_.deadline_passed(); }

    private:
        impl& impl_;
    };
    struct member : list_hook {
        explicit member(stream_connection& c) noexcept : connection(c) {}
        stream_connection& connection;
    };

    /// What the streams of one peer hold on this shard for large messages on their way, and for results: each shard
    /// has its part of the limit, so that no call touches what shards share.
    struct host_share {
        std::size_t bytes = 0;
        std::size_t connections = 0;
        intrusive_list<member> waiting; // in the order in which they asked; who asks now waits behind them
        std::size_t result_bytes = 0;
        intrusive_list<member> result_waiting; // to serve a call, likewise
        member* result_turn = nullptr;         // the one that was first, which may serve a call now
    };

    struct refusal {
        stream_end end;
        refused why; // count_: the server is ending
        std::uint64_t most;
        std::string_view said;
    };

    std::optional<refusal> look_at(bool is_evicted, const peer_charge& place, bool stranger) const;
    /// Serves it, or closes it and says why.
    void take(net::unique_fd socket, const net::endpoint& peer, std::string_view transport);
    void reap() noexcept;
    void memory_again() noexcept;
    /// Has the streams that wait for memory try again after a while: the longer, the more often they have.
    void await_memory() noexcept;
    void deadline_passed() noexcept;
    task_context context_of_a_call(stop_source& caller_gone) noexcept;

    stream_server& server;
    reactor& shard;
    buffer_pool& pool;
    dispatcher& calls;
    const stream_options options;
    stream_stats stats;
    log_limiter exceptions_logged;
    log_limiter refusals_logged;
    log_limiter cuts_logged; // files that ended too early
    stop_source stopping;
    bool ending = false;
    std::size_t count = 0;
    std::size_t strangers = 0; // of these
    std::unique_ptr<peer_shares> own_peers;
    peer_shares& peers;
    address_shares<host_share> shares;
    intrusive_list<member> live;
    intrusive_list<member> dead;
    verbena::detail::task_group call_group{"calls that came over streams"};
    std::coroutine_handle<> joiner; // of shut_down()
    wait_mark joiner_mark;
    reaper reaper_{*this};
    memory_timer memory{*this};
    duration memory_pause = least_memory_pause;
    time_point memory_asked{}; // when streams last tried again
    deadline_timer deadline{*this};
};

} // namespace verbena::rpc
