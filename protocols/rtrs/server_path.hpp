// SPDX-License-Identifier: Apache-2.0
// What a server keeps of a client's path: its connections, and how the client gets at the session's chunks.
#pragma once

#include "connection_charges.hpp"
#include "path_part.hpp"
#include "path_states.hpp"

#include <verbena/protocols/rtrs/path_end.hpp>
#include <verbena/protocols/rtrs/wire.hpp>

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/verbs/verbs.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace verbena::rtrs {

class path_hold;
class server_session;
struct server_shared;

/// The connections of one client's path. Its home is the shard of its session, where it is used but for what says otherwise: connections
/// that stand on other shards are those of its parts there (path_part).
class server_path final : public exception_handler {
public:
    /// `half_made` is given back when the path is connected. `number` tells it from all paths that there ever were.
    server_path(server_session& session, verbs::context& device, const connect_request& first,
                std::string peer, peer_charge half_made, std::uint64_t number);
    ~server_path();

    /// Takes connection `m.connection`, which is the next and came to its home.
    void add(std::unique_ptr<verbs::connect_request> request, const connect_request& m,
             connection_charges charged);
    /// The next connection came to another shard. The path does not end before that shard has said by this what became of it. Throws
    /// std::bad_alloc.
    path_hold add_elsewhere();
    /// An errno if `m` can't be the next connection by `device`.
    std::uint16_t refuses(const verbs::device& device, const connect_request& m) const noexcept;
    /// Lives as long as the path.
    task<void> run();
    /// Ends it; the first reason counts.
    void close(path_end why, const error& cause = {}) noexcept;
    /// Takes no more requests, and ends it when those under way have been answered.
    void drain() noexcept;
    /// The part of it that stands at home.
    path_part& home() noexcept { return home_; }
    void on_exception(const std::exception_ptr& e) noexcept override;
    void heartbeat_answered() noexcept { heartbeat_out_ = false; }
    void start_information(std::uint32_t length);
    /// Domain, and memory for messages. Errors: those of the domain; ENOMEM.
    task<result<void>> prepare();
    // What its parts say.
    void look_at_accepted() noexcept { accepted_more_.set(); }
    void part_connected() noexcept;
    void part_drained() noexcept;
    void part_ended() noexcept;

    std::uint16_t expected_connections() const noexcept { return expected_; }
    const char* state_name() const noexcept { return state_.name(); }
    bool connected() const noexcept { return state_ == server_path_state::connected || draining(); }
    bool draining() const noexcept { return state_ == server_path_state::draining; }
    bool closing() const noexcept { return state_ == server_path_state::closing; }

    // Any shard that has a part of it.

    std::uint64_t number() const noexcept { return number_; }
    server_session& session() const noexcept { return session_; }
    server_shared& shared() const noexcept;
    /// Once its first connection was accepted.
    bool is_prepared() const noexcept { return domain_ != nullptr; }
    verbs::protection_domain& domain() const noexcept { return *domain_; }
    const lease& service_memory() const noexcept { return service_memory_; }
    /// By which the client writes into this chunk, if each has one of its own (server_options::always_invalidate).
    verbs::grant& grant_of(std::uint32_t chunk) noexcept { return grants_[chunk]; }
    /// From a request to its answer the chunk has no key. False: such a request is under way.
    bool take_key(std::uint32_t chunk) noexcept;
    /// The answer is about to be posted, with the next key, and has been. The client may have it in between, and send the next request to
    /// another shard, which waits in take_key() then: there is no wait and no work of others between the two.
    void begin_new_key(std::uint32_t chunk) noexcept
    {
        keys_[chunk].store(key::on_its_way, std::memory_order_relaxed);
    }
    void give_key(std::uint32_t chunk) noexcept
    {
        keys_[chunk].store(key::theirs, std::memory_order_release);
    }
    /// Where the message lies that brings this chunk's next key.
    std::span<std::byte> key_message(std::uint32_t chunk) const noexcept;
    const std::string& peer() const noexcept { return peer_; }
    const uuid& id() const noexcept { return id_; }
    /// Of one that is closed.
    path_end why() const noexcept { return why_; }

private:
    friend class path_pin;
    /// Of a chunk.
    enum class key : std::uint8_t { theirs, taken, on_its_way };
    void arrived_elsewhere(path_part* made, bool failed) noexcept;
    std::size_t accepted() const noexcept;
    task<bool> connect_parts();
    task<void> inform(std::uint32_t length);
    task<result<void>> map_chunks();
    task<void> limit_set_up();
    task<void> heartbeats();

    server_session& session_;
    verbs::context& device_;
    const std::uint64_t number_;
    const uuid id_;
    const std::uint16_t expected_; // connections
    const std::string peer_;
    peer_charge half_made_; // until it is connected
    named_state<server_path_state, server_path_rules> state_;
    path_end why_ = path_end::closed;
    error cause_;
    std::unique_ptr<verbs::protection_domain> domain_;
    lease service_memory_;
    std::unique_ptr<verbs::region> service_region_;
    std::vector<std::unique_ptr<verbs::region>> regions_; // of the session's chunks
    std::vector<verbs::grant> grants_;                    // of these, or of each chunk
    std::unique_ptr<std::atomic<key>[]> keys_;            // by chunk; with always_invalidate
    std::size_t came_ = 0;                                // connections, to any shard
    bool joined_ = false; // the session's handler knows of it, and hears of the end
    unsigned missed_ = 0;
    bool heartbeat_out_ = false; // without an answer yet; while connected or draining
    event close_;
    event accepted_more_;
    std::size_t pins_ = 0;          // connections that are on their way to another shard
    std::vector<path_part*> parts_; // on other shards
    std::size_t connected_parts_ = 0;
    std::size_t undrained_ = 0;
    std::size_t ended_parts_ = 0;
    event part_moved_;
    scope tasks_;
    path_part home_;
};

/// Says at a path's home, by a message, what became of a connection that came to another shard.
class path_pin final : public remote_message {
public:
    explicit path_pin(server_path& p) noexcept : path(p) {}
    void deliver() noexcept override;

    server_path& path;
    path_part* made = nullptr; ///< for it
    bool failed = true;
};

/// A pin that goes home when this goes. May be moved to another shard.
class path_hold {
public:
    path_hold() noexcept = default;
    explicit path_hold(std::unique_ptr<path_pin> p) noexcept : pin_(p.release()) {}
    path_hold(path_hold&& other) noexcept : pin_(std::exchange(other.pin_, nullptr)) {}
    path_hold& operator=(path_hold&& other) noexcept
    {
        std::swap(pin_, other.pin_);
        return *this;
    }
    ~path_hold();
    path_pin* operator->() const noexcept { return pin_; }

private:
    path_pin* pin_ = nullptr;
};

} // namespace verbena::rtrs
