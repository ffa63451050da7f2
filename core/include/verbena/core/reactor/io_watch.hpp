// SPDX-License-Identifier: Apache-2.0
// Readiness of one file descriptor, by whichever way is faster now.
//
// While a shard spins, a non-blocking read straight away costs less than asking whether there is
// anything (4.5 us against 6.3 us by ring for a 64-byte ping-pong over TCP). So a watch that wants
// to read is either *hot*, and tried in every turn, or *armed* in the ring, never both. Going to
// sleep arms all hot ones; a readiness event makes a watch hot again. In a reactor that is nested in another loop a watch is
// armed in the descriptor that the other loop has (reactor::native_handle()), once for as long as it wants to read.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/ring.hpp>

#include <cstdint>

#pragma GCC visibility push(default)

namespace verbena {

/// Base of whatever reads and writes a descriptor without blocking. Shard-local. Does not own the
/// descriptor; stop() must have been called, or the watch destroyed, before it is closed.
class io_watch : public list_hook {
public:
    /// Turns without data before a hot watch goes to the ring: what follows soon, as on a connection, comes sooner so.
    static constexpr std::uint32_t usual_tries = 256;

    /// With `tries` 0 it is tried once after each event only: for what seldom has more, as a listener.
    io_watch(reactor& r, int fd, std::uint32_t tries = usual_tries) noexcept;

    /// Starts or stops calling on_readable().
    void want_read(bool wanted) noexcept;
    /// Calls on_writable() once, when the descriptor can be written.
    void want_write() noexcept;
    /// Stops both; cancels what is armed in the ring.
    void stop() noexcept;
    int fd() const noexcept { return fd_; }
    /// The reactor on whose thread it is called.
    reactor& shard() const noexcept { return reactor_; }

protected:
    ~io_watch();
    /// Reads what there is, bounded by a budget; true if there was anything. Inside a poll: it must
    /// not resume coroutines. It may destroy the watch.
    virtual bool on_readable() noexcept = 0;
    /// The descriptor can be written. Inside a poll: it must not resume coroutines. It may destroy the watch.
    virtual void on_writable() noexcept = 0;

private:
    friend class reactor;
    class armed final : public ring_completion {
    public:
        armed(io_watch& watch, bool write) noexcept : watch_(watch), write_(write) {}
        void on_complete(std::int32_t res) noexcept override;

    private:
        io_watch& watch_;
        bool write_;
    };
    // The ring refused want_write(): it is asked again at the end of each turn, and the shard does not sleep.
    class refused final : public deferred {
    public:
        explicit refused(io_watch& watch) noexcept : watch_(watch) {}
        void run() noexcept override { watch_.arm_write(); }

    private:
        io_watch& watch_;
    };
    void arm_write() noexcept;
    void make_hot() noexcept;
    void leave_hot() noexcept;
    /// Hot no more: it is woken when there is something to read. False if the ring refuses.
    bool arm_read() noexcept;
    void leave_ring() noexcept;
    void leave_nested() noexcept;
    void readable() noexcept;

    reactor& reactor_;
    int fd_;
    const std::uint32_t tries_;
    bool wants_read_ = false;
    bool hot_ = false;
    bool in_nested_ = false; // armed in reactor::nested_
    bool write_pending_ = false;
    std::uint32_t idle_turns_ = 0;
    armed read_{*this, false};
    armed write_{*this, true};
    refused write_refused_{*this};
};

} // namespace verbena

#pragma GCC visibility pop
