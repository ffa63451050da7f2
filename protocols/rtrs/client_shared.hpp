// SPDX-License-Identifier: Apache-2.0
// What all paths of a client share: the session's sizes, its chunks, and who waits for one.
#pragma once

#include "io_operation.hpp"
#include "permit_line.hpp"

#include <verbena/protocols/rtrs/client.hpp>

#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace verbena::rtrs {

/// Before what there was no memory for is done again.
constexpr duration pause_without_memory = std::chrono::seconds(1);

uuid random_uuid(random_source& random) noexcept;

/// What all paths of a client share.
struct client_shared {
    client_shared(reactor& s, buffer_pool& b, client_options o, client_stats& st)
        : shard(s), buffers(b), options(std::move(o)), stats(st), tasks(s), session(random_uuid(s.random()))
    {
    }
    reactor& shard;
    buffer_pool& buffers;
    const client_options options;
    client_stats& stats;
    scope tasks;
    uuid session; ///< begin_anew() draws another one
    // The server's, since the first path came up; of those that follow they are the same.
    std::uint32_t queue_depth = 0;
    std::uint32_t max_io_size = 0;
    std::uint32_t max_header_size = 0;
    // One less than there are chunks: service messages get through while all requests wait for what they set right.
    permit_line permits{0};
    permit_line service_permit{1};
    std::vector<std::uint32_t> free_chunks;
    event chunk_free;
    struct carrier {
        uuid path;
        std::uint64_t life = 0;
    };
    /// Of each chunk: the paths that its request was sent by, and in which of their lives. Their memory stays for the next request.
    std::vector<std::vector<carrier>> sent_by;
    /// Chunks of requests that were given up after they were sent. The server may be at them still, and what is written there then would be
    /// taken for those requests. A path that is connected again is the proof that its last life is over. Where it never is, client::impl::begin_anew()
    /// is the way out.
    std::vector<std::uint32_t> held;
    std::uint32_t owed_permits =
        0;            ///< that requests don't give back, as the chunk of a service message is held
    event path_moved; ///< a path came up or went
    std::size_t connected_paths = 0;
    // How long requests could not go on though a path was connected, since all chunks are held.
    std::optional<time_point> stuck_since; ///< while a path is connected
    duration stuck_before{};               ///< until the last path went, before that
    std::uint64_t epoch = 0;
    bool restarting = false;
    std::function<task<void>()> restarted;
    bool closing = false;

    /// A path came up, in its life `life`.
    void path_up(const uuid& path, std::uint64_t life);
    /// A path that was up is so no more.
    void path_lost() noexcept;
    /// No path will be.
    void end() noexcept;
    /// Every chunk that `o` could have is held, so that no answer to another request brings one.
    bool all_held(const io_operation& o) const noexcept
    {
        return o.service ? queue_depth != 0 && held.size() >= queue_depth : all_held();
    }
    /// That a request could have which is no service message. As of `permits`.
    bool all_held() const noexcept { return queue_depth != 0 && held.size() + 1 >= queue_depth; }
    /// No path brought a chunk, though one was connected for `patience`: the session is to begin anew. Paths that went with the others have
    /// had that long to come back, too.
    bool is_stuck() const noexcept { return stuck_since && stuck_for() >= options.patience; }
    duration stuck_for() const noexcept;
    /// Whenever a path comes or goes, or `held` has changed.
    void look_at_held() noexcept;
    /// How long `o` may wait: for ever while a path is connected, unless all chunks are held. Then it is at least until the session is_stuck().
    time_point patience_of(io_operation& o);
    /// Frees all held chunks: another session begins, whose chunks are others.
    void release_held() noexcept;
    task<result<void>> take_chunk(io_operation& o);
    /// Until something happened. Errors: ENOTCONN when it is `until`, ECANCELED.
    task<result<void>> wait_for(event& what, time_point until);
    void give_chunk(io_operation& o) noexcept;
    void give_permit() noexcept;
    void wake_waiters() noexcept;
    task<result<void>> wait_for_chunk(io_operation& o);
    task<void> restart();

    std::uint32_t chunk_size() const noexcept { return max_io_size + max_header_size; }
    /// Keeps the sizes of the first answer; false for others in a later one.
    bool agree(const connect_reply& r);
};

} // namespace verbena::rtrs
