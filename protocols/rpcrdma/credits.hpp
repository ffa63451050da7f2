// SPDX-License-Identifier: Apache-2.0
// What each requester may have under way, of what all connections of a listener share on one shard.
//
// A credit is a promise: there is, or can be, a receive for one more message. So what is granted adds up to no more than there is
// (credit_pool), and each connection accounts for what its requester may believe (credit_account). A requester learns of its
// grant by replies alone (RFC 8166 3.3.1): a lower one takes effect with the next reply, and for a while after it messages come
// that were sent before.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/reactor/clock.hpp>

#include <cstdint>

namespace verbena::rpcrdma {

class credit_account;

struct credit_terms {
    std::uint32_t most = 128; ///< of one connection
    std::uint32_t idle = 2;   ///< of one that makes no calls
    duration window = std::chrono::milliseconds(100);
    duration idle_after = std::chrono::seconds(1);
    /// For so long after a lower grant was told, the requester may not have seen it.
    duration settling = std::chrono::seconds(1);
    std::uint64_t most_raised = UINT64_MAX; ///< beyond the idle ones, of all connections
    std::uint64_t most_peer_raised =
        UINT64_MAX; ///< of one peer's; one connection may always have all its credits
    /// A message without a receive waits: a silent connection counts as an idle one, whatever it was told.
    bool on_demand = false;
};

/// Of one listener on one shard. Outlives its accounts.
class credit_pool {
public:
    explicit credit_pool(const credit_terms& t) noexcept : terms_(t) {}
    const credit_terms& terms() const noexcept { return terms_; }
    /// Receives that must stand, or that must be there in time, for what is promised.
    std::uint64_t promised() const noexcept { return idle_ + raised_ + owed_; }
    std::uint64_t raised() const noexcept { return raised_; }
    std::uint64_t accounts() const noexcept { return accounts_; }
    /// Promises nothing more for larger grants whose requesters know better by now.
    void settle(time_point now) noexcept;

private:
    friend class credit_account;
    std::uint32_t promise(std::uint32_t wanted, bool of_raised, time_point now) noexcept;
    void reclaim_silent(time_point now) noexcept;
    /// The most of one connection's at this time.
    std::uint32_t fair(time_point now) const noexcept;

    // An account that has more than the idle credits.
    struct raised_hook : list_hook {
        explicit raised_hook(credit_account& a) noexcept : account(a) {}
        credit_account& account;
    };
    // One whose requester may not have seen its lower grant, in order of when that will be over.
    struct falling_hook : list_hook {
        explicit falling_hook(credit_account& a) noexcept : account(a) {}
        credit_account& account;
    };

    const credit_terms terms_;
    std::uint64_t accounts_ = 0;
    std::uint64_t idle_ = 0;
    std::uint64_t raised_ = 0;
    std::uint64_t owed_ = 0;
    std::uint64_t raised_accounts_ = 0;
    time_point wanting_until_{}; // somebody got less than it could use
    std::uint64_t shares_ = 1;   // into which what there is was to be parted then
    intrusive_list<raised_hook> raised_list_;
    intrusive_list<falling_hook> falling_;
};

/// Of one connection. What it holds goes back to the pool with it.
class credit_account {
public:
    /// `of_peer` counts what is raised by all connections of the peer; outlives the account.
    credit_account(credit_pool& pool, std::uint64_t& of_peer) noexcept;
    credit_account(const credit_account&) = delete;
    ~credit_account();

    /// A call came, whose requester wants so many. Yields how many more than before it may be granted: for those receives have to be
    /// found, or take_back() be called.
    std::uint32_t called(std::uint32_t wanted, time_point now) noexcept;
    void take_back(std::uint32_t raised) noexcept;
    /// What the reply that goes out now tells a requester that wants so many: at least 1. `is_short`: not all receives stand that
    /// are promised.
    std::uint32_t grant(std::uint32_t wanted, bool is_short, time_point now) noexcept;
    /// Calls that the requester may have under way, as far as it can know.
    std::uint32_t bound(time_point now) noexcept;
    /// Receives that are promised to this one.
    std::uint32_t counted() const noexcept { return counted_ + owed_; }
    std::uint32_t credits() const noexcept { return credits_; }

    /// A call to the requester, whose reply takes a receive too; at most `most` of them count.
    void called_back(std::uint32_t most) noexcept;
    void answered_back() noexcept;

private:
    friend class credit_pool;
    void count(std::uint32_t counted) noexcept;
    void release(time_point now) noexcept;
    void end_window(time_point now) noexcept;
    std::uint64_t raised() const noexcept { return counted_ - idle_; }

    credit_pool& pool_;
    std::uint64_t& of_peer_;
    const std::uint32_t idle_;
    std::uint32_t credits_;  // what may be granted at this time
    std::uint32_t told_;     // by the last reply
    std::uint32_t believed_; // until settled_ the requester may take this for its grant
    std::uint32_t counted_;  // promised by the pool
    std::uint32_t owed_ = 0; // replies to calls back
    std::uint32_t window_calls_ = 0;
    std::uint32_t peak_ = 0; // of the windows in this period
    time_point window_begun_{};
    time_point period_begun_{};
    time_point last_call_{};
    time_point settled_{};
    credit_pool::raised_hook raised_hook_{*this};
    credit_pool::falling_hook falling_hook_{*this};
};

} // namespace verbena::rpcrdma
