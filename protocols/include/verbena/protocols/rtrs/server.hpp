// SPDX-License-Identifier: Apache-2.0
// The server of RTRS: sessions of several paths, each of several connections, on any verbs provider with
// Write-with-immediate.
//
// A client writes a request into a chunk of memory that the server owns and says so by the 32 bits of an immediate. A
// service takes requests from there; what it answers goes back by RDMA Write and an immediate.
// docs/internals/rtrs.md.
#pragma once

#include <verbena/core/log.hpp>
#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/random.hpp>
#include <verbena/core/reactor/request_list.hpp>
#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/core/task/trace_name.hpp>
#include <verbena/core/verbs/verbs.hpp>
#include <verbena/protocols/rtrs/path_end.hpp>
#include <verbena/protocols/rtrs/path_series.hpp>
#include <verbena/protocols/rtrs/wire.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::rtrs {

/// Why a connection was rejected, with which errno.
enum class refusal : std::uint8_t {
    not_valid,    ///< EINVAL: no request of RTRS, or out of order
    no_session,   ///< ENXIO: of a session that is gone
    full,         ///< ENOSPC: as many sessions, or paths of the session, as there may be
    ending,       ///< ECONNRESET: its path's last life has not ended
    unfinished,   ///< EAGAIN: as many paths of its peer as may be half made are so already
    not_admitted, ///< EACCES: the service has nothing for its address
    share,  ///< EDQUOT: its peer has as many connections or sessions, or as much memory, as a peer may have
    failed, ///< ENOMEM: an exception, as for lack of memory, kept it from being taken
    no_memory, ///< ENOBUFS: the memory budget has no room for its queues
    count_
};
/// A label of the metrics. A literal.
std::string_view to_string(refusal r) noexcept;

/// What a server gives each session, and when it gives up.
struct server_options {
    std::uint16_t queue_depth = 512;    ///< chunks of a session: so many requests it may have under way
    std::uint32_t chunk_size = 1 << 17; ///< bytes; a power of two from min_chunk_size on
    std::uint32_t header_size = 4096;   ///< of each chunk; the rest is the largest request
    /// A chunk's key works for one request: it is taken away before the request is looked at, and the answer brings
    /// another. So nothing that is served changes meanwhile, whatever the client does, by that path.
    bool always_invalidate = false;
    std::uint32_t max_sessions = 64;      ///< of all servers of a group
    std::uint32_t max_paths = 8;          ///< of a session
    std::uint32_t max_connections = 1024; ///< of a path; kernels make one for each CPU, and one
    /// Of one peer (peer_shares), each at least 1: paths that are half made, sessions, and connections. Two peers
    /// that have all that they may have leave sessions to others.
    std::uint32_t max_unfinished = 16;
    std::uint32_t max_peer_sessions = 24;      ///< sessions of one peer
    std::uint32_t max_peer_connections = 4096; ///< RDMA connections of one peer
    /// A path must be complete, and have said its session's name, so long after its first connection.
    duration set_up = std::chrono::seconds(30);
    duration heartbeat = heartbeat_interval; ///< how often a path shows that it lives
    unsigned misses = heartbeat_misses;      ///< without an answer that a path survives
};
/// What is wrong with `o`, or nothing. Errors: EINVAL.
result<void> check(const server_options& o) noexcept;

/// Bytes that the queues of a connection take when they are full: its requests, their answers, and what came. Each
/// connection is charged with so many, to its peer's share of memory and to the budget. Any thread.
std::size_t memory_of_queues(const server_options& o) noexcept;

/// What sessions take of a memory budget, in bytes.
struct session_memory {
    std::size_t each = 0;   ///< its chunks, and one path: its messages, and the queues of two connections
    std::size_t beside = 0; ///< at most, of each shard that has sessions: free room in slabs
    std::size_t kept = 0;   ///< at most, by all other shards: of sessions that have ended
    std::size_t shards = 1; ///< that sessions live on
    /// Of the first session of all: nobody keeps anything yet.
    std::size_t first() const noexcept { return each + beside; }
    /// How many sessions fit into `free` bytes of the budget, wherever they live and whoever lived before; more may
    /// if they live together.
    std::size_t count(std::size_t free) const noexcept
    {
        const std::size_t left = free - std::min(free, kept);
        const std::size_t spread = std::min(left / first(), shards); // one on each shard
        return spread < shards ? spread : spread + (left - spread * first()) / each;
    }
};
/// Of sessions with `o`, which has passed check(), in `pools` pools of `budget`, at least 1. Any thread.
session_memory memory_of_sessions(const server_options& o, const memory_budget& budget,
                                  std::size_t pools) noexcept;

/// Counters of one shard. One writer.
struct server_stats {
    counter reads;         ///< requests of clients that wait for data, or for nothing
    counter writes;        ///< requests that brought data
    counter read_bytes;    ///< that clients got
    counter write_bytes;   ///< that clients brought
    counter failed;        ///< answered with an error
    counter repeated;      ///< came again on another path while an earlier copy was under way
    counter unanswered;    ///< ended when their path was gone
    counter invalidations; ///< of keys of chunks (server_options::always_invalidate)
    gauge sessions;        ///< that live now
    gauge paths;           ///< likewise
    gauge connections;     ///< likewise
    counter refused[std::size_t(refusal::count_)]; ///< connections that were rejected
    counter ends[std::size_t(path_end::count_)];   ///< paths that ended, by path_end
    counter exceptions;                            ///< that left a service
    path_series by_path;                           ///< what each path did since it was connected
    log_limiter refusals_logged;
    log_limiter begins_logged;
    log_limiter ends_logged;
    log_limiter exceptions_logged;
};

/// A request, for the service, on the shard of the connection that brought it. Its memory is the session's and stays
/// while the service's task runs, on whichever shard; the client can write into it at any time, and only harms itself by
/// that. So what is checked is copied first.
class request final : public listed_request {
public:
    /// For the server and for tests: `data` is the chunk's part with the request's bytes, `user` the service's
    /// own header.
    request(bool is_write, std::span<std::byte> data, std::span<const std::byte> user) noexcept
        : data_(data), user_(user), is_write_(is_write)
    {
    }
    /// As the service says it (set_detail()), and who sent it.
    void report(request_report& into) const noexcept override;
    /// A connection, by new_connection_number().
    struct origin {
        std::string_view peer;
        std::string_view transport;
        std::uint32_t connection = 0;
    };
    /// The `number`-th request of a connection, which outlives it.
    void came_by(const origin& connection, std::uint32_t number) noexcept
    {
        from_ = &connection;
        number_ = number;
    }
    /// For task_context::trace_id, and for lines of the log.
    std::uint64_t trace() const noexcept
    {
        return trace_of(from_ != nullptr ? from_->connection : 0, number_);
    }
    /// true: data() came from the client. false: data() is room for the answer, and holds what an earlier request
    /// left there.
    bool is_write() const noexcept { return is_write_; }
    std::span<std::byte> data() const noexcept { return data_; }
    /// The service has filled the first `size` bytes of data() for the client, to whom they go if the request
    /// succeeds. No other byte goes: without this call the client's memory stays as it is. More than data() has
    /// counts as all of it; of a write nothing goes.
    void produce(std::size_t size) noexcept { produced_ = is_write_ ? 0 : std::min(size, data_.size()); }
    std::size_t produced() const noexcept { return produced_; }
    /// The service's own header.
    std::size_t user_size() const noexcept { return user_.size(); }
    /// Its first bytes, as many as there are and `into` takes; yields how many.
    std::size_t copy_user(std::span<std::byte> into) const noexcept
    {
        const std::size_t size = std::min(into.size(), user_.size());
        std::copy_n(user_.begin(), size, into.begin());
        return size;
    }

private:
    std::span<std::byte> data_;
    std::span<const std::byte> user_;
    std::size_t produced_ = 0;
    const origin* from_ = nullptr;
    std::uint32_t number_ = 0;
    bool is_write_;
};

/// A client, for the service. The text lives as long as the session.
struct session_info {
    std::string_view name;         ///< as the client calls it; nobody else has it
    std::string_view peer_address; ///< of its first path; canonical, without port
    std::uint32_t max_io_size = 0; ///< bytes of a request's data
    /// The session's home, where other shards find it by shard::run(). nullptr: all is on one shard.
    const shard* home = nullptr;
};

/// What a service has for one session. Made, told of paths and destroyed at the session's home: the shard of open().
/// Requests are served on the shards of their connections, so serve() runs on several at once; what changes the session
/// itself goes home from there (session_info::home). Destroyed when no path is left and no request is under way.
class session_handler {
public:
    virtual ~session_handler() = default;
    /// A path from this address is about to be connected, the session's first one too; so all that the session has
    /// open must be for that address. Errors: the path is refused and closed.
    virtual result<void> add_path(std::string_view peer_address)
    {
        (void)peer_address;
        return {};
    }
    /// A path that was added has ended, for this reason. After the last one this is destroyed.
    virtual void remove_path(std::string_view peer_address, path_end why) noexcept
    {
        (void)peer_address;
        (void)why;
    }
    /// Serves one request, beside others. Completes when: it is served; the answer goes out then. On cancel: when its
    /// path ends its task is asked to stop, and its answer is dropped: what was begun goes on to its end, what has
    /// not need not begin. Errors: an errno up to max_response_error goes to the client, all else as EIO. An
    /// exception counts as EIO, and is logged. Lifetime: `r` outlives the task. Shard: that of the connection which brought
    /// it: any of server_group::spread_over(), else the session's home.
    virtual task<result<void>> serve(request& r) = 0;
};

/// What a server serves: it lets peers in and opens sessions. Called on the shard of the server that it is of,
/// which it outlives.
class service {
public:
    virtual ~service() = default;
    /// Whether anything is served to anybody at this address. Asked for each connection, before anything is made for
    /// it; false: it is rejected.
    virtual bool admits(std::string_view peer_address)
    {
        (void)peer_address;
        return true;
    }
    /// A session wants to begin. Its name is claimed, and its memory is taken, when this has let it. What `s` has
    /// outlives the handler. Errors: the session is refused and its path closed; the protocol has no way to tell the
    /// client why.
    virtual result<std::unique_ptr<session_handler>> open(const session_info& s) = 0;
};

class server;
class session_name;

/// What the servers of several shards share: the names of their sessions, how many there are, and what each peer has
/// of them. Outlives them. Any thread.
class server_group {
public:
    /// With shares of peers of its own, whose memory is not bounded. `random` draws the key of shard_of(); it is not
    /// kept.
    explicit server_group(random_source& random = system_random());
    /// `peers` outlives it: what else serves these peers charges them there as well.
    explicit server_group(peer_shares& peers, random_source& random = system_random());
    ~server_group();
    server_group(const server_group&) = delete;

    /// Makes `name` the caller's. Completes when: it is free: at once, or when the session that has it is over, if
    /// its paths have ended and only its requests have not. On cancel: ECANCELED. Errors: EEXIST: a session that
    /// lives has it. Lifetime: `shard` outlives the group's servers. Shard: `shard`.
    task<result<session_name>> claim(reactor& shard, std::string name);
    /// False: there are `limit` already.
    bool add_session(std::uint32_t limit) noexcept;
    /// What add_session() took, when the session has ended.
    void remove_session() noexcept;
    /// The shares that connections and sessions are charged to.
    peer_shares& peers() const noexcept;
    /// Each of these shards has a server of the group, or will have one, and the connections of each session are spread over
    /// them. Without this call all connections of a session are served on one shard. Before the first server is made; the
    /// shards outlive the group's servers.
    void spread_over(std::span<const shard* const> shards);
    /// To which of `shards` servers, from 0, a connection goes, by its connect request; `shards` is their number in
    /// spread_over(), if that was called. Connection 0 of a path goes to the home of its session, and connection i to the
    /// i-th shard behind that. A key that the group has drawn chooses the home, as clients draw the names of their
    /// sessions: by a hash that they knew they could all have the shard of somebody else. Connection 0 that came elsewhere
    /// is refused by the server there; any other one is served where it came. None: it is no such request.
    std::optional<std::size_t> shard_of(std::span<const std::byte> private_data,
                                        std::size_t shards) const noexcept;

private:
    friend class server;
    friend class session_name;
    struct impl;
    std::unique_ptr<impl> impl_;
};

/// A name that a session has; free again when this goes, and whoever waits for it hears of that. One shard.
class session_name {
public:
    session_name() noexcept = default;
    session_name(session_name&& other) noexcept
        : group_(std::exchange(other.group_, nullptr)), text_(std::exchange(other.text_, {}))
    {
    }
    session_name& operator=(session_name&& other) noexcept
    {
        std::swap(group_, other.group_);
        std::swap(text_, other.text_);
        return *this;
    }
    ~session_name();
    const std::string& text() const noexcept { return text_; }
    /// Whether the session has a path, as it has at first: who wants the name of one that has none waits for its end.
    void set_live(bool live) noexcept;

private:
    friend class server_group;
    session_name(server_group& g, std::string text) noexcept : group_(&g), text_(std::move(text)) {}
    server_group* group_ = nullptr;
    std::string text_;
};

/// A session, for people.
struct session_report {
    uuid id{};
    std::string name; ///< empty until its first path has said it
    /// A path of the session.
    struct path {
        std::string peer;
        std::uint16_t connections = 0; ///< that it is to have
        const char* state = "";        ///< a literal
    };
    std::vector<path> paths;
};

/// The sessions whose home is one shard, and the connections there of those whose home is another one.
class server {
public:
    /// All outlive it. `o` has passed check(), and is the same for all servers of `group`. `shard` is one of
    /// server_group::spread_over(), if that was called, and has no other server of the group meanwhile.
    server(reactor& shard, buffer_pool& buffers, service& s, server_group& group, const server_options& o,
           server_stats& stats);
    ~server();
    server(const server&) = delete;

    /// Takes connections. Several listeners may be served at once: a session's paths may come by different ones.
    /// Completes when: `l` is closed and the paths that came this way have ended, any of whose connections did: each when
    /// its requests under way have been answered, and it takes no more of them. On cancel: the same, but paths end at once; requests that
    /// can't be called back are waited for, and not answered. Errors: logged: the provider lacks RDMA Write with
    /// immediate, or what always_invalidate needs (renewable_grants, send_with_immediate). Lifetime: `d` and `l`
    /// outlive it. Shard: the server's.
    task<void> serve(verbs::context& d, verbs::listener& l);
    /// Up to `most` sessions whose home is here, in the order of their ids, from the one behind `id` on or from the first one on. Empty: there
    /// are no more. Shard: the server's.
    std::vector<session_report> sessions_behind(const std::optional<uuid>& id, std::size_t most) const;
    /// Ends all paths of a session whose home is here, at once: no request of its begins any more, and its chunks are out of its reach. The
    /// session goes when its requests under way have ended. False: there is none, any more. Shard: the server's.
    bool end_session(const uuid& id);

private:
    struct impl;
    std::unique_ptr<impl> impl_;
};

/// Registers what `s` counts. Once for each shard: samples with equal labels are added up.
metric_registrations expose(metric_registry& registry, const server_stats& s);

} // namespace verbena::rtrs

#pragma GCC visibility pop
