// SPDX-License-Identifier: Apache-2.0
// The client of RTRS: one session with a server, over one path or several, on any verbs provider with Write-with-immediate.
// docs/internals/rtrs.md.
#pragma once

#include <verbena/core/log.hpp>
#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/core/verbs/verbs.hpp>
#include <verbena/protocols/rtrs/path_end.hpp>
#include <verbena/protocols/rtrs/path_series.hpp>
#include <verbena/protocols/rtrs/wire.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::rtrs {

/// Which of the connected paths takes a request.
enum class path_policy : std::uint8_t {
    round_robin,
    min_inflight, ///< that with the fewest requests under way
    min_latency,  ///< that whose last heartbeat was answered soonest
};

/// How a client makes its paths, and when it gives one up.
struct client_options {
    std::string
        session; ///< 1 to max_session_name bytes without '/' and '.'; a server knows one session of a name at a time
    std::uint16_t connections = 2; ///< of each path, 2 at least: the first is for service messages
    path_policy policy = path_policy::min_inflight; ///< which path takes the next request
    duration set_up = std::chrono::seconds(30);     ///< for a path to come up
    /// Between attempts to make a path again.
    duration reconnect_delay = std::chrono::milliseconds(500);
    duration reconnect_delay_max = std::chrono::seconds(30); ///< doubled from reconnect_delay up to this
    /// A request fails with ENOTCONN when no path was connected for so long, whatever it waits for. It also fails so, though a path is connected,
    /// while the session is opened anew for longer than that, and when for so long all chunks were those of requests that were given up, and the
    /// paths that carried these did not come back. In the last case the session begins anew (on_restart()).
    duration patience = std::chrono::seconds(60);
    duration heartbeat = heartbeat_interval; ///< how often a path shows that it lives
    unsigned misses = heartbeat_misses;      ///< without an answer that a path survives
};

/// What the sessions of one shard did. That shard writes, any thread reads.
struct client_stats {
    counter reads;         ///< that have ended
    counter writes;        ///< that have ended
    counter read_bytes;    ///< of those that succeeded
    counter written_bytes; ///< of those that succeeded
    counter failed;        ///< answered with an error
    counter failovers;     ///< sent again by another path, or by the same made again
    counter reconnects;    ///< paths that were made again
    counter lost_paths[std::size_t(
        path_end::count_)];     ///< that were connected and ended, but for those that were closed
    counter abandoned_sessions; ///< begun anew, as all chunks were those of requests that were given up
    counter permit_waits;       ///< requests that waited as the session had as many under way as it may
    path_series by_path;        ///< by session and the server's address, each time that a request was sent
    log_limiter paths_logged;
};

/// What a path is doing.
enum class path_state : std::uint8_t {
    connecting, ///< for the first time
    connected,
    reconnecting, ///< it was connected, and is to be again
    closed,       ///< by remove_path() or close()
};
/// For people and metrics. A literal.
std::string_view to_string(path_state s) noexcept;

/// What becomes of a path that can't be connected when it is added.
enum class first_failure : std::uint8_t {
    is_the_end,
    is_like_any_other ///< as of a path that broke: it is tried again
};

/// One session with a server, over one path or several to it. All of it on one shard.
class client {
public:
    /// `shard`, `buffers` and `stats` outlive it.
    client(reactor& shard, buffer_pool& buffers, client_options o, client_stats& stats);
    /// close() has returned.
    ~client();
    client(const client&) = delete;

    /// Connects another path to the same server, which stays until it is removed: when it breaks, it is made again.
    /// `address` is what context::connect() takes. Completes when: the path is connected, or its first attempt has failed; then there
    /// is no path, or it is tried again and again if `then` says so. An attempt that finds too many paths of this host half made at the
    /// server goes on within `set_up`. On cancel: ECANCELED, and there is none. Errors: those of connecting; ECONNREFUSED with the server's errno as detail;
    /// EEXIST; EOPNOTSUPP where the provider lacks Write with immediate, or the server gives new keys (always_invalidate) and it lacks Send with immediate. Lifetime: `d` outlives the client.
    /// Shard: the client's.
    task<result<void>> add_path(verbs::context& d, std::string address,
                                first_failure then = first_failure::is_the_end);
    /// Ends a path. Completes when: it is gone; what is under way on it goes on by the others. On cancel: it waits on. Errors: ENOENT: there is
    /// none by this address. Lifetime: the client outlives it. Shard: the client's.
    task<result<void>> remove_path(std::string_view address);
    /// A path, as paths() saw it.
    struct path_view {
        std::string address;                       ///< as it was given to add_path()
        path_state state = path_state::connecting; ///< what it is doing
        std::uint32_t in_flight = 0;               ///< requests under way on it
        duration latency{};                        ///< of the last heartbeat
    };
    /// All paths, in the order in which they were added. On the client's shard.
    std::vector<path_view> paths() const;

    /// Once a path was connected: the session's sizes.
    std::uint32_t max_io_size() const noexcept;
    /// Requests that the session may have under way; 0 before its first path was connected.
    std::uint32_t queue_depth() const noexcept;
    /// The largest header of a service that fits beside ours.
    static constexpr std::size_t max_user_size = 480;
    /// Writes the service's header of one request, each time that it is sent: by another path, or when the session has begun anew, as what
    /// a header names (a device by its number) may mean something else then. Outlives the request.
    class header {
    public:
        /// Yields how many bytes of `into`, which has max_user_size of them, it wrote: each time as many. An error ends the request.
        virtual result<std::size_t> write(std::span<std::byte> into) noexcept = 0;

    protected:
        ~header() = default;
    };

    /// Called on the shard when the session has begun anew: no path was left, so the server has forgotten it, or was started again; or the
    /// client has given it up, see `patience`. Requests
    /// of lane::io wait until its task has ended; it may send those of lane::service. What it needs goes after close() has returned.
    void on_restart(std::function<task<void>()> f);

    /// How a request travels.
    enum class lane : std::uint8_t {
        io,
        service, ///< by each path's first connection, one at a time: there is always a chunk for it
    };
    /// Sends `data`, behind them the service's header, into a chunk; done when the server has answered. `data` is best memory of `buffers`, which
    /// is registered; other memory is registered for each call. At most max_io_size() bytes, which outlive the task and stay as
    /// they are. Completes when: the server has answered, by whichever path: while paths break and come back it waits, up to `patience`, and
    /// sends the request again in its chunk, so that the server does it once more only when what it had of it before is over.
    /// On cancel: while it is on its way by a path it waits on, since its memory may be touched; else ECANCELED. Errors: the server's errno and the
    /// header's error; ENOTCONN, EMSGSIZE. Unless the server's, what was asked for may have been done or not,
    /// or be done yet: its chunk is not used again before the paths that carried it are connected again. Lifetime: header and data outlive
    /// it. Shard: the client's.
    task<result<void>> write(header& user, std::span<const std::byte> data, lane by = lane::io);
    /// The same, for data that come back: all of `into` is filled if it succeeds. Without `into` no data are wanted.
    task<result<void>> read(header& user, std::span<std::byte> into, lane by = lane::io);
    /// The same, with a header that does not change.
    task<result<void>> write(std::span<const std::byte> user, std::span<const std::byte> data,
                             lane by = lane::io);
    /// The same.
    task<result<void>> read(std::span<const std::byte> user, std::span<std::byte> into, lane by = lane::io);

    /// Ends all paths; requests under way fail with ECANCELED. Idempotent. Completes when: no path is left. On cancel: it waits on. Errors:
    /// none. Lifetime: the client outlives it and every request. Shard: the client's.
    task<void> close();

    /// The pool that it was made with: requests whose memory is of it are sent from there without a
    /// registration of their own.
    buffer_pool& buffers() const noexcept;

private:
    struct impl;
    std::unique_ptr<impl> impl_;
};

/// Whether a request failed by the server's answer, and not on this side or on the way.
bool is_answer(const error& e) noexcept;

/// Registers what `s` counts, which outlives what it returns. Any thread.
metric_registrations expose(metric_registry& registry, const client_stats& s);

} // namespace verbena::rtrs

#pragma GCC visibility pop
