// SPDX-License-Identifier: Apache-2.0
// What a server keeps of a client: a session with its chunks, its paths, and their connections.
#pragma once

#include "connection.hpp"

#include <verbena/protocols/rtrs/server.hpp>

#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace verbena::rtrs {

class server_connection;
class server_path;
class server_session;

/// A part of the process's memory budget for what is no buffer. Given back when it goes.
class budget_part {
public:
    budget_part() noexcept = default;
    /// False if the budget has no room for it.
    budget_part(memory_budget& budget, std::size_t bytes) noexcept
        : budget_(budget.reserve(bytes) ? &budget : nullptr), bytes_(bytes)
    {
    }
    budget_part(budget_part&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_)
    {
    }
    budget_part& operator=(budget_part&& other) noexcept
    {
        std::swap(budget_, other.budget_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~budget_part()
    {
        if (budget_ != nullptr)
            budget_->release(bytes_);
    }
    explicit operator bool() const noexcept { return budget_ != nullptr; }

private:
    memory_budget* budget_ = nullptr;
    std::size_t bytes_ = 0;
};

/// What a connection holds, from before anything is made for it.
struct connection_charges {
    peer_charge place;  ///< among the connections of its peer
    peer_charge memory; ///< for its queues
    budget_part budget; ///< likewise
};

/// Entries of a connection's send queue.
std::uint32_t send_depth_of(const server_options& o) noexcept;

/// What all sessions of a server share.
struct server_shared {
    reactor& shard;
    buffer_pool& buffers;
    rtrs::service& service;
    server_group& group;
    const server_options options;
    server_stats& stats;
    const request_layout layout;
    std::map<uuid, std::unique_ptr<server_session>> sessions;
    event path_over; // one of them has gone

    peer_shares& peers() const noexcept { return group.peers(); }
    /// Connections of a path for which there is room beyond the share: what a host of 128 CPUs makes.
    static constexpr std::uint16_t connections_of_first_path = 129;
    /// Bytes that a peer may have whose paths have so many connections each. One session of so many paths is always within the share.
    std::uint64_t most_memory(std::uint16_t connections, unsigned paths) const noexcept
    {
        const std::size_t chunks = std::size_t(options.queue_depth) * options.chunk_size;
        const std::size_t counted = std::min(connections, connections_of_first_path);
        return std::max<std::uint64_t>(peers().options().memory,
                                       chunks + paths * counted * memory_of_queues(options));
    }
    std::uint32_t max_io_size() const noexcept { return options.chunk_size - options.header_size; }
};

/// Where requests lie. While one copy of a request is under way others of the same number wait, since they came by another path after
/// a failure and an old READ or WRITE must not touch the chunk, or the device, once the new one was answered.
struct server_chunk {
    /// What it says was read when it came: another copy may have been written over it when its turn comes, of which data and the
    /// service's header are the same.
    struct copy {
        server_connection* from = nullptr;
        io_header header;
        std::uint32_t data_size = 0; ///< where the service's header begins
    };
    std::span<std::byte> memory;
    server_connection* busy = nullptr; ///< whose copy is under way
    std::vector<copy> waiting;         ///< at most one of each path
};

/// One queue pair.
class server_connection final : public connection {
public:
    server_connection(server_path& path, std::uint16_t number, connection_charges charged);
    ~server_connection();
    /// Makes the queue pair and answers. False: it failed, and the path ends.
    task<bool> accept(std::unique_ptr<verbs::connect_request> request, std::uint32_t receives);
    /// Nothing may be posted to it any more.
    void end(bool orderly) noexcept;

    void on_completions(std::span<const verbs::completion> batch) noexcept override;
    void run() noexcept override;
    /// Whether it was accepted.
    bool accepted() const noexcept { return accepted_; }

    /// `told`: of the last one's completion, by whatever id it has; else of one now and then.
    bool post(std::span<verbs::send_request> batch, bool told = false) noexcept;
    /// Whose turn has come.
    void start(std::uint32_t chunk, const io_header& header, std::uint32_t data_size);
    server_path& path() const noexcept { return path_; }

private:
    void on_end(const error& cause) noexcept override;
    task<bool> answer(std::unique_ptr<verbs::connect_request> request, std::uint32_t receives);
    void handle(const arrival& a);
    void answer_heartbeat() noexcept;
    void take_request(std::uint32_t immediate);
    void look_at_request(std::uint32_t immediate);
    task<void> serve(std::uint32_t chunk, io_header header, std::uint32_t data_size);
    void answer(std::uint32_t chunk, const io_header& header, std::uint32_t produced,
                std::uint16_t code) noexcept;

    server_path& path_;
    const connection_charges charged_;
    std::uint32_t send_depth_ = 0;
    std::uint32_t unsignalled_ = 0;
    std::size_t handled_ = 0; // of handling_
    bool accepted_ = false;
    bool answering_heartbeat_ = false; // the device has not sent it yet
    bool owes_heartbeat_ = false;      // an answer more
};

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

    bool connected() const noexcept { return state_ == state::connected || draining(); }
    bool draining() const noexcept { return state_ == state::draining; }
    bool closing() const noexcept { return state_ == state::closing; }
    server_session& session() const noexcept { return session_; }
    server_shared& shared() const noexcept;
    verbs::context& device() const noexcept { return device_; }
    verbs::protection_domain& domain() const noexcept { return *domain_; }
    scope& requests() noexcept { return requests_; }
    const lease& service_memory() const noexcept { return service_memory_; }
    /// By which the client writes into this chunk, if each has one of its own (server_options::always_invalidate).
    verbs::grant& grant_of(std::uint32_t chunk) const noexcept { return *grants_[chunk]; }
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
    enum class state : std::uint8_t { connecting, connected, draining, closing };

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
    state state_ = state::connecting;
    const scope* paths_ = nullptr;
    path_end why_ = path_end::closed;
    error cause_;
    std::unique_ptr<verbs::protection_domain> domain_;
    lease service_memory_;
    std::unique_ptr<verbs::region> service_region_;
    std::vector<std::unique_ptr<verbs::region>> regions_; // of the session's chunks
    std::vector<std::unique_ptr<verbs::grant>> grants_;   // of these, or of each chunk
    std::vector<char> keyless_;                           // by chunk
    std::vector<std::unique_ptr<server_connection>> connections_;
    std::size_t accepted_ = 0;
    bool informing_ = false;
    bool joined_ = false;               // the session's handler knows of it
    path_counters* counters_ = nullptr; // the server's stats have them
    unsigned missed_ = 0;
    bool heartbeat_out_ = false;
    event close_;
    event accepted_more_;
    scope tasks_;
    scope requests_; // asked to stop at the end of the path, and waited for
};

/// Clears as much of `memory` as a turn of the shard has time for, and yields the rest.
std::span<std::byte> clear_some(std::span<std::byte> memory) noexcept;

class server_session {
public:
    /// `charged`: to the peer whose path is the first.
    server_session(server_shared& shared, const uuid& id, peer_charge charged);
    ~server_session();
    /// Takes its place among those of the group, and gives it back at its end. False: there is none.
    bool take_place() noexcept;

    /// The first path said the name, and has so many connections. Yields when chunks and handler are there.
    task<result<void>> begin(std::string name, std::string_view peer_address, std::uint16_t connections);

    server_shared& shared() const noexcept { return shared_; }
    const uuid& id() const noexcept { return id_; }
    const std::string& name() const noexcept { return name_.text(); }
    bool begun() const noexcept { return handler_ != nullptr; }
    session_handler& handler() const noexcept { return *handler_; }
    std::vector<server_chunk>& chunks() noexcept { return chunks_; }
    const std::vector<lease>& memory() const noexcept { return memory_; }
    /// All memory of chunks, piece by piece.
    std::span<std::byte> memory(std::size_t piece) const noexcept
    {
        return memory_[piece].bytes().first(bytes_of_piece_);
    }
    std::map<uuid, std::unique_ptr<server_path>>& paths() noexcept { return paths_; }
    /// A path has come or has ended.
    void paths_changed() noexcept;
    /// The copy under way of this chunk's request is over: the next one starts.
    void chunk_free(std::uint32_t chunk);
    /// Forgets the copies that wait and came by `from`.
    void forget(const server_connection& from) noexcept;

private:
    task<result<void>> claim(std::string name, std::string_view peer_address, std::uint16_t connections);
    task<result<void>> allocate();

    server_shared& shared_;
    const uuid id_;
    const peer_charge charged_;
    bool placed_ = false;    // among the group's sessions
    std::string asked_name_; // what the handler was told of
    session_name name_;
    peer_charge memory_charged_; // for the chunks; back before who waits for the name hears of it
    std::string peer_address_;
    std::vector<lease> memory_;
    std::size_t bytes_of_piece_ = 0;
    std::vector<server_chunk> chunks_;
    std::unique_ptr<session_handler> handler_;
    bool beginning_ = false;
    event begun_; // or not
    std::map<uuid, std::unique_ptr<server_path>> paths_;
};

} // namespace verbena::rtrs
