// SPDX-License-Identifier: Apache-2.0
// One io_uring per shard, used directly.
//
// Which calls go through it is chosen by measurement (docs/internals/reactor.md): readiness of
// sockets that went quiet, wake-ups from other threads, reads and writes of files that wait for a disk, and
// the shard's sleep do; what can't block runs on the shard itself.
#pragma once

#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/result.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#pragma GCC visibility push(default)

namespace verbena {

/// Ring features that a test can mask off, to run as an older or locked-down kernel would.
enum class ring_feature : unsigned {
    none = 0,
    single_issuer = 1, ///< IORING_SETUP_SINGLE_ISSUER
    defer_taskrun = 2, ///< IORING_SETUP_DEFER_TASKRUN with TASKRUN_FLAG
};

/// Receives the completion of one ring operation, on the shard, inside ring::reap().
class ring_completion {
public:
    /// `res` is the operation's result or a negative errno.
    virtual void on_complete(std::int32_t res) noexcept = 0;

protected:
    ring_completion() = default;
    ~ring_completion() = default;

private:
    friend class ring;
    static constexpr std::uint32_t no_slot = 0xffffffff;
    std::uint32_t slot_ = no_slot;
};

/// Single-writer counters of one ring, since it was made; any thread may read them.
struct ring_stats {
    std::atomic<std::uint64_t> submitted{0}; ///< entries handed to the kernel
    std::atomic<std::uint64_t> enters{0};    ///< io_uring_enter calls
    std::atomic<std::uint64_t> stale{0};     ///< completions whose slot had a new owner or none; dropped
    /// The kernel took so long to take over entries among which were reads, where it waited for a disk meanwhile.
    std::atomic<std::uint64_t> reads_begun_nanoseconds{0};
};

/// An io_uring bound to the thread that made it. Operations stand in a table of slots; user_data is
/// slot and generation, so a late completion can never reach a new owner.
class ring {
public:
    /// Most operations in flight; one more is refused with ENOBUFS.
    static constexpr std::uint32_t max_slots = 65536;

    /// Must be called on the thread that will use it. `clock` measures what ring_stats tells of time, and outlives the ring. Fails with
    /// the errno of io_uring_setup and the cure in its context (kernel.io_uring_disabled, seccomp, RLIMIT_MEMLOCK).
    static result<std::unique_ptr<ring>> create(unsigned entries, unsigned masked_features = 0,
                                                clock_source& clock = system_clock());
    ~ring();

    /// Waits once for `events` (poll(2) bits) on `fd`. `target` must live until it completes or is detached.
    result<void> poll_once(int fd, unsigned events, ring_completion& target);
    /// One pread(2) of at most `to.size()` bytes; on_complete() gets their number or a negative errno. Until then the
    /// kernel writes to `to` whatever becomes of `target`, which must not be detached.
    result<void> read(int fd, std::span<std::byte> to, std::uint64_t offset, ring_completion& target);
    /// One pwrite(2) of at most `from.size()` bytes, with RWF_DSYNC if `through`; on_complete() gets their number or a negative errno.
    /// Until then the kernel reads `from` whatever becomes of `target`, which must not be detached.
    result<void> write(int fd, std::span<const std::byte> from, std::uint64_t offset, bool through,
                       ring_completion& target);
    /// Forgets `target`'s operation and asks the kernel to cancel it: on_complete will not be called.
    void detach(ring_completion& target) noexcept;
    /// Whether `target` waits for a completion: between what started it and on_complete() or detach().
    bool in_flight(const ring_completion& target) const noexcept
    {
        return target.slot_ != ring_completion::no_slot;
    }

    /// Hands prepared entries to the kernel, if there are any.
    void submit() noexcept;
    /// Delivers what has completed; enters the kernel only when it says that work waits there.
    bool reap() noexcept;
    /// Submits, then sleeps until a completion or `timeout` (nullopt: for ever); then reaps.
    bool wait(std::optional<duration> timeout) noexcept;

    /// Names an eventfd(2), which must outlive the ring, for set_telling(). Once. Fails as io_uring_register(2) does.
    result<void> tell(int eventfd);
    /// From set_telling(true) to set_telling(false) the kernel writes to that eventfd when an operation ends, or has work left
    /// that only reap() does. It tells of nothing older: look at is_quiet() in between. No system call.
    void set_telling(bool on) noexcept;
    /// True if reap() would find nothing and submit() has nothing to hand over. No system call.
    bool is_quiet() const noexcept;

    /// What the ring counts. Any thread may read; lives as long as the ring.
    const ring_stats& stats() const noexcept;

private:
    struct impl;
    explicit ring(std::unique_ptr<impl> i) noexcept;
    template<class Prepare>
    result<void> start(ring_completion& target, Prepare prepare);
    bool deliver() noexcept;
    std::unique_ptr<impl> impl_;
};

} // namespace verbena

#pragma GCC visibility pop
