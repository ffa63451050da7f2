// SPDX-License-Identifier: Apache-2.0
// When no shard can be touching memory for a peer any more.
//
// A shard that is about to read or place a peer's bytes says so in a word of its own, looks the steering tag up, and says when it is
// done. Whoever takes a tag away looks at these words: where no other shard is at it, which is the rule, nothing has to be
// waited for. Else the shards that are get a message, and answer when they have come to it, which is outside of any such section.
// So neither side takes a lock or writes what the other one writes, but in that rare case. docs/internals/verbs.md.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/event.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

namespace verbena::steering {

class magazine;
class quiescence;

/// Waits on a lane until what was taken away is touched no more. Embedded in what waits.
class passing : public list_hook {
public:
    /// On the shard it was given to, or where the last shard goes.
    virtual void passed() noexcept = 0;

protected:
    ~passing() = default;

private:
    friend class quiescence;
    std::uint64_t epoch_ = 0;
};

/// For a task that waits.
class awaited_passing final : public passing {
public:
    void passed() noexcept override { done.set(); }
    event done;
};

/// What a shard does for a device when it is asked whether it is done.
class lane_user {
public:
    /// Ends what owes a peer bytes of memory whose tag is gone. On the shard, outside of sections.
    virtual void settle_debts() noexcept = 0;

protected:
    ~lane_user() = default;
};

/// A context of a device, on its shard.
class lane {
public:
    lane(quiescence& all, reactor& shard);
    lane(const lane&) = delete;

    reactor& shard() const noexcept { return shard_; }
    /// Of one shard: so none of the two is in the middle of something while the other one runs.
    bool is_beside(const lane* other) const noexcept { return other != nullptr && &other->shard_ == &shard_; }
    /// What the shard has at hand of the table; nullptr: nothing, as it has no context. On the shard.
    magazine* slots() const noexcept { return slots_; }
    /// So many connections of this shard owe bytes that a full socket did not take. On the shard; where it grows, in a section.
    void set_debts(std::size_t count) noexcept { debts_.store(count, std::memory_order_release); }

private:
    friend class quiescence;
    friend class section;
    /// What a shard is sent, by whoever: under way once at most, and outliving the lane while it is.
    class letter final : public remote_message {
    public:
        using errand = void (quiescence::*)(lane& l);
        letter(lane& l, errand what) noexcept : to_(&l), errand_(what) {}
        /// Unless it is under way already: then it has yet to look at what the sender did before.
        void send(reactor& shard) noexcept;
        /// Nothing is delivered any more. The letter is gone, or goes when it comes.
        void give_up() noexcept;

    private:
        void deliver() noexcept override;

        std::mutex lock_;
        lane* to_;
        const errand errand_;
        bool under_way_ = false;
        bool opened_ = false;
    };
    struct letter_deleter {
        void operator()(letter* l) const noexcept { l->give_up(); }
    };
    using letter_ptr = std::unique_ptr<letter, letter_deleter>;
    bool is_quiet() const noexcept
    {
        return (sections_.load(std::memory_order_seq_cst) & 1) == 0 &&
               debts_.load(std::memory_order_acquire) == 0;
    }

    quiescence& all_;
    reactor& shard_;
    // Written by the shard, many times a turn.
    alignas(64) std::atomic<std::uint64_t> sections_{0}; // odd: in one
    std::atomic<std::size_t> debts_{0};
    // Written by others, when somebody has to wait.
    alignas(64) std::atomic<std::uint64_t> passed_{0}; // what had been taken away by then is touched no more
    bool waits_ = false;                               // for others; under the lock of all
    letter_ptr visit_;
    letter_ptr wake_;
    lane_user* user_ = nullptr;       // of the shard, and changed under the lock
    magazine* slots_ = nullptr;       // of the shard
    intrusive_list<passing> passing_; // of the shard
};

/// While it lives its shard may look tags up and touch what they name. On the lane's shard; one within another changes nothing.
class section {
public:
    explicit section(lane& l) noexcept : lane_(l)
    {
        const std::uint64_t now = lane_.sections_.load(std::memory_order_relaxed);
        is_outermost_ = (now & 1) == 0;
        // Seen by who takes a tag away, or else the tag that it took is seen to be gone: one of the two.
        if (is_outermost_)
            lane_.sections_.store(now + 1, std::memory_order_seq_cst);
    }
    section(const section&) = delete;
    ~section()
    {
        if (is_outermost_)
            lane_.sections_.store(lane_.sections_.load(std::memory_order_relaxed) + 1,
                                  std::memory_order_release);
    }

private:
    lane& lane_;
    bool is_outermost_;
};

/// All shards of a device. Outlives what its shards do for it.
class quiescence {
public:
    static constexpr std::size_t max_lanes = 1024;

    quiescence() = default;
    quiescence(const quiescence&) = delete;
    /// Every shard has left. Whatever still waits has passed.
    ~quiescence();

    /// A context on `shard`, which may have several. What it is given outlives leave(). Throws std::length_error where there are
    /// max_lanes.
    lane& enter(reactor& shard, lane_user& user, magazine& slots);
    /// It goes, on its shard, and so has everything that touched memory for peers there.
    void leave(lane& l) noexcept;
    /// One of the reactor which runs here, of a context if there is one; where none runs, of a context of this thread. Or nullptr.
    lane* here() noexcept;
    /// Likewise; one that looks at no memory but can wait is made where there is none. nullptr: no reactor runs here, there is no
    /// memory for it, or there are max_lanes.
    lane* make_here() noexcept;
    /// As lane_user::settle_debts(), on the shard that runs here.
    void settle_here() noexcept;

    /// Tags were taken away before this, on the shard of `own` (nullptr: on none). 0: no other one can be touching memory under them;
    /// else what is_over() and wait() are told.
    std::uint64_t begin(const lane* own) noexcept;
    bool is_over(std::uint64_t epoch) const noexcept;
    /// p.passed() follows, not within this call, unless it is unlinked before. On the shard of `at`, and called there.
    void wait(lane& at, std::uint64_t epoch, passing& p) noexcept;
    /// p.passed() follows on whichever shard hears of it first, which may be within this call. From anywhere.
    void wait_anywhere(std::uint64_t epoch, passing& p) noexcept;

private:
    friend class lane;
    void visited(lane& l);
    void look_again(lane& l);
    void look_at_orphans() noexcept;
    void wake_all() noexcept;
    std::size_t count() const noexcept { return count_.load(std::memory_order_acquire); }
    lane* add(reactor& shard);

    std::atomic<std::uint64_t> epoch_{0};
    std::atomic<std::size_t> count_{0};
    std::array<std::unique_ptr<lane>, max_lanes> lanes_; // those below count_ don't change
    std::atomic<bool> has_orphans_{false};
    std::mutex lock_; // for adding lanes, and for orphans
    intrusive_list<passing> orphans_;
};

} // namespace verbena::steering
