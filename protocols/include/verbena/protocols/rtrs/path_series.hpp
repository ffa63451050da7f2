// SPDX-License-Identifier: Apache-2.0
// What is counted of each path of RTRS, of a bounded number of paths.
#pragma once

#include <verbena/core/metrics.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::rtrs {

/// Of one path, in all its lives. One shard writes.
struct path_counters {
    /// Of reads, or of writes.
    struct kind {
        counter requests;             ///< that have ended, however they did
        counter bytes;                ///< of those that succeeded
        log_linear_histogram latency; ///< from when a request was posted to its answer
    };
    kind reads;
    kind writes;
    counter failed; ///< answered with an error
    gauge in_flight;
    counter missed_heartbeats; ///< intervals in which nothing came from the other side

    /// A request has ended, that took so many nanoseconds.
    void ended(bool is_write, bool succeeded, std::uint64_t bytes, std::uint64_t nanoseconds) noexcept
    {
        kind& k = is_write ? writes : reads;
        k.requests.add();
        k.latency.observe(nanoseconds);
        if (succeeded)
            k.bytes.add(bytes);
        else
            failed.add();
    }
};

/// The paths of one shard that have series of their own. Peers choose their sessions' names, so there are never more than max_paths: then
/// a path takes the place of the one that ended longest ago, and where none has ended it is counted with the others, under "other".
/// Of paths that have ended, the newest max_ended keep their series, which tell why; older ones go.
/// What is counted is written by one shard and read by any thread.
class path_series {
public:
    static constexpr std::size_t max_paths = 64; ///< that have series of their own
    static constexpr std::size_t max_ended = 16; ///< of them, those that have ended

    /// A path begins: its counters, which another of the same names had before it or has beside it. They stay until leave(), and `this`
    /// outlives that.
    path_counters& join(std::string_view session, std::string_view peer);
    /// It has ended.
    void leave(path_counters& c) noexcept;

    /// show(session, peer, counters) for each. Any thread.
    template<class Show>
    void each(const Show& show) const
    {
        const std::lock_guard lock(mutex_);
        for (const place& p : places_)
            show(p.session, p.peer, *p.counters);
        if (others_ != nullptr)
            show(std::string("other"), std::string("other"), *others_);
    }

private:
    struct place {
        std::string session;
        std::string peer;
        std::unique_ptr<path_counters> counters;
        unsigned users = 0;
        std::uint64_t left = 0; ///< the number of its last leave()
    };
    std::vector<place>::iterator oldest_ended() noexcept;

    mutable std::mutex mutex_; // of all but what the counters count
    std::vector<place> places_;
    std::unique_ptr<path_counters> others_;
    std::uint64_t leaves_ = 0;
};

} // namespace verbena::rtrs

#pragma GCC visibility pop
