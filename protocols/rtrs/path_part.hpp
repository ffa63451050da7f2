// SPDX-License-Identifier: Apache-2.0
// What a path has on one shard: its connections there, and the requests that came by them.
#pragma once

#include "connection_charges.hpp"

#include <verbena/protocols/rtrs/path_end.hpp>
#include <verbena/protocols/rtrs/wire.hpp>

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/verbs/verbs.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace verbena::rtrs {

class path_part;
struct path_counters;
class server_connection;
class server_path;
class server_session;
struct server_shared;

/// A message between the shard of a path's part and the path's home. One for each thing that can be said, so that none has to be made.
class part_note final : public remote_message {
public:
    part_note(path_part& p, void (path_part::*arrived)() noexcept) noexcept : part_(p), arrived_(arrived) {}
    void deliver() noexcept override { (part_.*arrived_)(); }

private:
    path_part& part_;
    void (path_part::*arrived_)() noexcept;
};

/// The connections of a path that stand on one shard. The part at the session's home is a member of its path. Any other one is told of
/// what happens to the path, and says what happens to it, by messages; its shard owns it, and it goes when the path has gone.
class path_part final : public exception_handler {
public:
    /// On the shard of `here`. The path waits for it from arrived_home() on.
    path_part(server_path& path, server_shared& here, verbs::context& device);
    ~path_part();

    // On its shard.

    /// Takes a connection of the path, with what it is charged.
    void add(std::unique_ptr<verbs::connect_request> request, std::uint16_t number,
             connection_charges charged);
    /// Ends the path; the first reason counts.
    void close(path_end why, const error& cause = {}) noexcept;
    /// Has the path take no more requests.
    void ask_to_drain() noexcept;
    void on_exception(const std::exception_ptr& e) noexcept override;
    /// Anything came. The path's heartbeats look at it.
    void heard() noexcept
    {
        if (!heard_.load(std::memory_order_relaxed))
            heard_.store(true, std::memory_order_relaxed);
    }
    void heartbeat_answered() noexcept;
    void start_information(std::uint32_t length);
    /// One of requests() is about to end.
    void request_over() noexcept;
    /// A copy of a request that waited for its chunk is on its way here, or has come.
    void copy_comes() noexcept { copies_.fetch_add(1, std::memory_order_relaxed); }
    void copy_came() noexcept
    {
        copies_.fetch_sub(1, std::memory_order_relaxed);
        copy_came_.set();
    }

    bool connected() const noexcept { return stage_ == stage::connected || draining(); }
    bool draining() const noexcept { return stage_ == stage::draining; }
    bool closing() const noexcept { return stage_ == stage::closing; }
    server_path& whole() const noexcept { return path_; }
    server_session& session() const noexcept;
    /// Of its shard.
    server_shared& shared() const noexcept { return here_; }
    verbs::context& device() const noexcept { return device_; }
    verbs::protection_domain& domain() const noexcept;
    scope& requests() noexcept { return requests_; }
    const lease& service_memory() const noexcept;
    verbs::grant& grant_of(std::uint32_t chunk) noexcept;
    bool take_key(std::uint32_t chunk) noexcept;
    void begin_new_key(std::uint32_t chunk) noexcept;
    void give_key(std::uint32_t chunk) noexcept;
    std::span<std::byte> key_message(std::uint32_t chunk) const noexcept;
    /// Once it is connected.
    path_counters& counters() const noexcept { return *counters_; }
    std::vector<std::unique_ptr<server_connection>>& connections() noexcept { return connections_; }
    /// The tasks of whoever took its first connection.
    void belongs_to(const scope& paths) noexcept { paths_ = &paths; }
    bool is_of(const scope& paths) const noexcept { return paths_ == &paths; }

    /// Of a part that is not at home: lives as long as it.
    task<void> run();

    // On its shard, of the part at home.

    void be_connected();
    void drain() noexcept;
    void be_closed() noexcept { stage_ = stage::closing; }
    /// Its connections end, and what it does is asked to stop.
    void begin_end(bool orderly) noexcept;
    /// No request is under way any more. Allocates nothing.
    struct rest {
        scope& tasks;
        scope& requests;
    };
    rest tasks() noexcept { return {tasks_, requests_}; }
    bool copies_come() const noexcept { return copies_.load(std::memory_order_relaxed) != 0; }
    event& copy_came_event() noexcept { return copy_came_; }

    // At the path's home.

    bool at_home() const noexcept { return at_home_; }
    /// How many connections were accepted.
    std::size_t accepted() const noexcept { return accepted_.load(std::memory_order_acquire); }
    bool take_heard() noexcept
    {
        return heard_.load(std::memory_order_relaxed) && heard_.exchange(false, std::memory_order_relaxed);
    }
    // Messages to its shard, each once.
    void tell_connected() noexcept;
    void tell_to_drain() noexcept;
    void tell_closed() noexcept;
    /// The path has gone. Nothing of the part is touched behind this.
    void tell_gone() noexcept;

private:
    enum class stage : std::uint8_t {
        making,    ///< its connections come
        connected, ///< takes requests
        draining,  ///< takes no more of them
        closing,
    };

    task<void> take(std::unique_ptr<verbs::connect_request> request, server_connection& c);
    // What arrives on its shard,
    void path_connected() noexcept;
    void path_drains() noexcept;
    void path_closed() noexcept;
    void path_gone() noexcept;
    // and at home.
    void says_accepted() noexcept;
    void says_connected() noexcept;
    void says_drain() noexcept;
    void says_drained() noexcept;
    void says_close() noexcept;
    void says_ended() noexcept;
    void send_home(part_note& note) noexcept;

    server_path& path_; // may be gone once ended_note_ is sent
    server_shared& here_;
    const bool at_home_;
    verbs::context& device_;
    const scope* paths_ = nullptr;
    stage stage_ = stage::making;
    bool asked_to_drain_ = false;
    bool drained_ = false;
    path_end why_ = path_end::closed; // of close(), for home
    error cause_;
    path_counters* counters_ = nullptr; // the stats of its shard have them
    std::vector<std::unique_ptr<server_connection>> connections_;
    std::atomic<std::size_t> accepted_{0};
    std::atomic<bool> accepted_told_{false}; // and not heard yet
    std::atomic<bool> heard_{false};
    std::atomic<std::uint32_t> copies_{0};
    event copy_came_;
    event closed_;
    event gone_;
    scope tasks_;
    scope requests_; // asked to stop at the end of the path, and waited for

    part_note connected_{*this, &path_part::path_connected};
    part_note drains_{*this, &path_part::path_drains};
    part_note closed_note_{*this, &path_part::path_closed};
    part_note gone_note_{*this, &path_part::path_gone};
    part_note accepted_note_{*this, &path_part::says_accepted};
    part_note connected_note_{*this, &path_part::says_connected};
    part_note drain_note_{*this, &path_part::says_drain};
    part_note drained_note_{*this, &path_part::says_drained};
    part_note close_note_{*this, &path_part::says_close};
    part_note ended_note_{*this, &path_part::says_ended};
};

} // namespace verbena::rtrs
