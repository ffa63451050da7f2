// SPDX-License-Identifier: Apache-2.0
// A line in the log that names the file for which a call to a disk is waited for.
#pragma once

#include <verbena/core/log.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/task/stop.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace verbena::posixfs {

/// A call for a peer that has left the shard: it waits for a thread, or a thread for the disk. Nobody can end it, so
/// that a connection, a client's LAYOUTRETURN and the end of the server wait for it. A line says so when it has
/// lasted for `patience`, each `again` from then on, and at once when whoever asked for it is to stop behind that. On
/// its shard, but is_stopped().
class slow_call final : private timer, private stop_listener {
public:
    static constexpr duration patience = std::chrono::seconds(5);
    static constexpr duration again = std::chrono::seconds(10);

    struct what {
        std::string_view name, root; ///< of the export; they outlive it
        int fd;                      ///< of the file, likewise open
        const char* operation;
        std::uint64_t offset;
        std::size_t size;
    };
    slow_call(reactor& shard, const stop_token& by, log_limiter& logged, const what& w) noexcept;
    ~slow_call() = default;
    /// Who asked for it is no longer there. Any thread.
    bool is_stopped() const noexcept { return is_stopped_; }

private:
    void on_timer() noexcept override { tell(); }
    void on_stop() noexcept override;
    void tell() noexcept;

    reactor& shard_;
    log_limiter& logged_;
    const what what_;
    const time_point begun_;
    std::atomic<bool> is_stopped_{false}; // a thread of the lane looks
};

} // namespace verbena::posixfs
