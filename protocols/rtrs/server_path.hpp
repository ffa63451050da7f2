// SPDX-License-Identifier: Apache-2.0
// What a server keeps of a client's path: its connections, and how the client gets at the session's chunks.
#pragma once

#include "connection_charges.hpp"
#include "path_states.hpp"

#include <verbena/protocols/rtrs/path_end.hpp>
#include <verbena/protocols/rtrs/wire.hpp>

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/verbs/verbs.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace verbena::rtrs {

struct path_counters;
class server_connection;
class server_session;
struct server_shared;

/// The connections of one client's path.
class server_path final : public exception_handler {
public:
    /// `half_made` is given back when the path is connected.
    server_path(server_session& session, verbs::context& device, const connect_request& first,
                std::string peer, peer_charge half_made);
    ~server_path();

    /// Takes connection `m.connection`, which is the next.
    void add(std::unique_ptr<verbs::connect_request> request, const connect_request& m,
             connection_charges charged);
    /// An errno if `m` can't be the next connection by `device`.
    std::uint16_t refuses(const verbs::context& device, const connect_request& m) const noexcept;
    /// Lives as long as the path.
    task<void> run();
    /// Ends it; the first reason counts.
    void close(path_end why, const error& cause = {}) noexcept;
    /// Takes no more requests, and ends it when those under way have been answered.
    void drain() noexcept;
    /// One of requests() is about to end.
    void request_over() noexcept;
    /// The tasks of whoever took its first connection.
    void belongs_to(const scope& paths) noexcept { paths_ = &paths; }
    bool is_of(const scope& paths) const noexcept { return paths_ == &paths; }

    void on_exception(const std::exception_ptr& e) noexcept override;
    /// A heartbeat or anything else came.
    void heard() noexcept { missed_ = 0; }
    void heartbeat_answered() noexcept { heartbeat_out_ = false; }
    void start_information(std::uint32_t length);

    bool connected() const noexcept { return state_ == server_path_state::connected || draining(); }
    bool draining() const noexcept { return state_ == server_path_state::draining; }
    bool closing() const noexcept { return state_ == server_path_state::closing; }
    server_session& session() const noexcept { return session_; }
    server_shared& shared() const noexcept;
    verbs::context& device() const noexcept { return device_; }
    verbs::protection_domain& domain() const noexcept { return *domain_; }
    scope& requests() noexcept { return requests_; }
    const lease& service_memory() const noexcept { return service_memory_; }
    /// By which the client writes into this chunk, if each has one of its own (server_options::always_invalidate).
    verbs::grant& grant_of(std::uint32_t chunk) noexcept { return grants_[chunk]; }
    /// From a request to its answer the chunk has no key. False: such a request is under way.
    bool take_key(std::uint32_t chunk) noexcept { return std::exchange(keyless_[chunk], char(1)) == 0; }
    void give_key(std::uint32_t chunk) noexcept { keyless_[chunk] = 0; }
    /// Where the message lies that brings this chunk's next key.
    std::span<std::byte> key_message(std::uint32_t chunk) const noexcept;
    const std::string& peer() const noexcept { return peer_; }
    const uuid& id() const noexcept { return id_; }
    /// Once it is connected.
    path_counters& counters() const noexcept { return *counters_; }

private:
    task<void> take(std::unique_ptr<verbs::connect_request> request, server_connection& c);
    task<result<void>> prepare();
    task<void> inform(std::uint32_t length);
    task<result<void>> map_chunks();
    task<void> limit_set_up();
    task<void> heartbeats();

    server_session& session_;
    verbs::context& device_;
    const uuid id_;
    const std::uint16_t expected_; // connections
    const std::string peer_;
    peer_charge half_made_; // until it is connected
    named_state<server_path_state, server_path_rules> state_;
    const scope* paths_ = nullptr;
    path_end why_ = path_end::closed;
    error cause_;
    std::unique_ptr<verbs::protection_domain> domain_;
    lease service_memory_;
    std::unique_ptr<verbs::region> service_region_;
    std::vector<std::unique_ptr<verbs::region>> regions_; // of the session's chunks
    std::vector<verbs::grant> grants_;                    // of these, or of each chunk
    std::vector<char> keyless_;                           // by chunk
    std::vector<std::unique_ptr<server_connection>> connections_;
    std::size_t accepted_ = 0;
    bool joined_ = false;               // the session's handler knows of it, and hears of the end
    path_counters* counters_ = nullptr; // the server's stats have them
    unsigned missed_ = 0;
    bool heartbeat_out_ = false; // without an answer yet; while connected or draining
    event close_;
    event accepted_more_;
    scope tasks_;
    scope requests_; // asked to stop at the end of the path, and waited for
};

} // namespace verbena::rtrs
