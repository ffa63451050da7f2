// SPDX-License-Identifier: Apache-2.0
// suspension: a back end lets go of its file system for a while, and comes back to it, while clients wait. docs/internals/posixfs.md,
// "Suspended".
#pragma once

#include <verbena/core/reactor/clock.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::storage {

/// Work that is under way elsewhere and may wait for a disk. Whoever waits for it calls this now and then: nothing while it is under way;
/// then once an empty text, or what went wrong. The work may outlive this, and what made it.
using suspension_step = std::function<std::optional<std::string>()>;
/// One that is over.
suspension_step ended_step(std::string failure = {});

/// A back end that can let go of its file system. Everything here returns at once and waits for neither a disk nor a shard. Called by one
/// thread at a time, which is no shard.
class suspendable {
public:
    /// What is still at work for clients.
    struct calls {
        std::size_t running = 0;      ///< that have not ended
        std::vector<unsigned> silent; ///< shards that have not said since they were asked last
        /// Whether no call runs, as far as each shard has said.
        bool ended() const noexcept { return running == 0 && silent.empty(); }
    };

    /// The file system is there, and from now on nobody looks whether it still is. Yields nothing while somebody looks just now; then an empty
    /// text, or why there is nothing to suspend.
    virtual std::optional<std::string> hold() = 0;
    /// Undoes hold().
    virtual void release() noexcept = 0;
    /// Fails with the names of files that are open and have no name: these end with their last descriptor.
    virtual suspension_step find_nameless() = 0;
    /// Leases are asked back.
    virtual void want_leases() noexcept = 0;
    /// Leases that are still there. Each look may ask the shards anew.
    virtual std::size_t leases() noexcept = 0;
    /// From now on calls are answered with ENOMEDIUM, which clients wait for. Those that are under way go on.
    virtual void shut() noexcept = 0;
    /// Undoes shut().
    virtual void unshut() noexcept = 0;
    /// Asks all shards anew each time.
    virtual calls calls_under_way() = 0;
    /// All that was written is on stable storage.
    virtual suspension_step sync() = 0;
    /// Closes all that is open there. Only come_back() undoes this.
    virtual void let_go() noexcept = 0;
    /// Fails with the names of what this program has open there still, beneath the export.
    virtual suspension_step still_open() = 0;
    /// Opens the file system again and serves it, which undoes hold() and shut(). Fails, and nothing has changed, where another one is there,
    /// or none.
    virtual suspension_step come_back() = 0;
    /// What come_back() has begun is to change nothing any more, however late it ends. False: it has served the file system already.
    virtual bool give_up() noexcept = 0;

protected:
    ~suspendable() = default;
};

/// What clients had, and what has become of it.
struct restored_state {
    std::size_t files = 0;         ///< open ones that are there again
    std::size_t locks = 0;         ///< ranges that are locked again
    std::vector<std::string> lost; ///< what was taken from clients, in words; the first most_told of them
    std::size_t lost_files = 0, lost_locks = 0;
    std::size_t later =
        0; ///< files whose locks could not be taken now; they are when another export of the tree comes back
    static constexpr std::size_t most_told = 64; ///< of `lost`
};

/// The state layer's part. As suspendable.
class suspension_side {
public:
    /// What clients use without calls is asked back. Fails where somebody does not give it back.
    virtual suspension_step recall() = 0;
    /// Locks of bytes are no more locks of the file system. Clients keep them.
    virtual suspension_step let_go_of_locks() = 0;
    /// They are again. What can't be had again is taken from its client. `to` is good when it is over.
    virtual suspension_step restore(std::shared_ptr<restored_state> to) = 0;

protected:
    ~suspension_side() = default;
};

/// Why an export is not suspended, or not resumed: what stands against it, and the cure.
class suspension_failure : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Brings one back end from `served` to `suspended` and back, or leaves it where it was.
class suspension {
public:
    /// Where a suspension is. It goes down the list and begins again. What fails on the way down leaves it
    /// `served`, or `suspended` if the file system can't be served again.
    enum class state : std::uint8_t {
        served,
        draining,    ///< new calls wait; those under way end
        syncing,     ///< what they have written goes to the disk
        letting_go,  ///< all is closed
        suspended,   ///< the file system may go
        coming_back, ///< it is looked for and opened
        restoring,   ///< it is served, and what clients had is looked for
    };
    /// How long each step may take.
    struct options {
        duration patience = std::chrono::seconds(10); ///< with each step
        duration recall_patience =
            std::chrono::seconds(100); ///< with clients: no less than they have for a recall
        duration lease_patience = std::chrono::seconds(5); ///< with leases; then it goes on without them
        /// With the look for what clients had, when it is served again.
        duration restore_patience = std::chrono::seconds(60);
        duration pause = std::chrono::milliseconds(5); ///< between two looks at a step
    };
    /// How the calling thread waits.
    struct waiting {
        std::function<time_point()> now;
        std::function<void(duration)> wait;
    };
    /// By the steady clock, asleep.
    static waiting asleep();

    /// `side` may be nullptr. Both outlive this.
    suspension(suspendable& of, suspension_side* side, options o, waiting w);

    /// Both block, on a thread that is no shard; one at a time. Throw suspension_failure, also soon after `stop` was asked for.
    void suspend(std::stop_token stop = {});
    /// Serves it again: looks for the file system, opens it, and says what became of what clients had.
    restored_state resume(std::stop_token stop = {});

    /// Any thread.
    state now() const noexcept { return state_.load(std::memory_order_acquire); }
    /// Since when it is suspended, in seconds since 1970; nothing where it is not. Any thread.
    std::optional<std::int64_t> since() const noexcept;

private:
    void finish(const suspension_step& step, duration patience, const char* what);
    void pause();
    void hold();
    void ask_leases_back();
    void drain();
    void let_go();
    void come_back();
    [[noreturn]] void come_back_after(const std::string& why);
    restored_state restore();

    suspendable& of_;
    suspension_side* const side_;
    const options options_;
    const waiting waiting_;
    std::stop_token stop_; // of the call
    std::atomic<state> state_{state::served};
    std::atomic<std::int64_t> since_{0};
};

/// The enumerator's name, for people and metrics. A literal.
std::string_view to_string(suspension::state s) noexcept;

} // namespace verbena::storage

#pragma GCC visibility pop
