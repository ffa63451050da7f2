// SPDX-License-Identifier: Apache-2.0
// What all homes of files know of a client. The book writes most of it, on the clients' home; tables read it on theirs.
#pragma once

#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/result.hpp>
#include <verbena/protocols/files/client_book.hpp>
#include <verbena/protocols/files/recovery.hpp>
#include <verbena/protocols/files/requests.hpp>
#include <verbena/protocols/files/types.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace verbena::files::detail {

/// What has a limit of each client, of its peer and of all.
struct use_counts {
    std::atomic<std::size_t> opens{0}, locks{0}, lock_states{0}, owner_names{0};
};

struct use_of_all : use_counts {
    std::atomic<std::size_t> delegations{0};
};

/// What the clients of a peer have together.
struct peer_use : use_counts {
    explicit peer_use(std::uint64_t n) noexcept : number(n) {}
    const std::uint64_t number;
    std::atomic<std::size_t> others{0}; // client_card::others and fences
    std::size_t clients = 0, hosts = 0; // hosts are some of the clients. The book's
};

/// What is in the recovery store of a client, and what has to be before it gets something that keeps others out. One
/// word, so that nothing is granted between a look at the record and the note of what is granted.
class client_record {
public:
    /// Whether it may get what keeps out whom `keeps_out` says: without the record it could not take that back after
    /// the next start, or others would read and write then what it keeps them from. A client that has not said
    /// "complete" yet is written down with all that it has by then; one that is silent has to have a record first.
    bool covers(share keeps_out, bool is_silent) const noexcept
    {
        return covers(word_.load(std::memory_order_acquire), keeps_out, is_silent);
    }
    /// The same for what is about to be granted; and notes that it may keep those out. False: it is not to be granted.
    bool note(share keeps_out, bool is_silent) noexcept
    {
        word w = word_.load(std::memory_order_acquire);
        do {
            if (!covers(w, keeps_out, is_silent))
                return false;
        } while (!word_.compare_exchange_weak(w, word(w | kept(keeps_out)), std::memory_order_acq_rel));
        return true;
    }
    /// That it may keep those out, whether it is written down or not: the record is to be written.
    void want(share keeps_out) noexcept { word_.fetch_or(kept(keeps_out), std::memory_order_acq_rel); }

    bool is_written() const noexcept { return (word_.load(std::memory_order_acquire) & written) != 0; }
    /// Whether the record says all that it has to.
    bool is_complete() const noexcept
    {
        const word w = word_.load(std::memory_order_acquire);
        return (w & written) != 0 && includes(says(w), keeps_out(w));
    }
    /// Whom it may have kept out since it came.
    share keeps_out() const noexcept { return keeps_out(word_.load(std::memory_order_acquire)); }
    /// It was written, and says that.
    void set(share says) noexcept
    {
        word w = word_.load(std::memory_order_acquire);
        while (!word_.compare_exchange_weak(w, word((w & kept(share::both)) | written | word(says) << 1),
                                            std::memory_order_acq_rel)) {
        }
    }
    /// It was removed.
    void clear() noexcept { word_.fetch_and(word(~written), std::memory_order_acq_rel); }

private:
    using word = std::uint8_t;
    static constexpr word written = 1;
    static constexpr word kept(share s) noexcept { return word(unsigned(s) << 3); }
    static constexpr share says(word w) noexcept { return share(w >> 1 & 3); }
    static constexpr share keeps_out(word w) noexcept { return share(w >> 3 & 3); }
    static constexpr bool covers(word w, share keeps_out, bool is_silent) noexcept
    {
        return (w & written) != 0 ? includes(says(w), keeps_out) : !is_silent;
    }
    std::atomic<word> word_{0};
};

/// How many tables have something of each owner of a client that is called by stateids (NFS version 4.0): whoever keeps
/// more of such an owner has to know whether it has anything, wherever. Any thread.
class owner_uses {
public:
    /// A table makes its entry of the owner: `name` is a hash of its name by a key that clients don't know.
    void enter(bool locks, std::uint64_t name)
    {
        const std::lock_guard held(lock_);
        ++tables_[key(locks, name)];
    }
    /// Its entry goes.
    void leave(bool locks, std::uint64_t name) noexcept
    {
        const std::lock_guard held(lock_);
        const auto it = tables_.find(key(locks, name));
        if (--it->second == 0)
            tables_.erase(it);
    }
    bool has(bool locks, std::uint64_t name) const noexcept
    {
        const std::lock_guard held(lock_);
        return tables_.contains(key(locks, name));
    }

private:
    static std::uint64_t key(bool locks, std::uint64_t name) noexcept { return name << 1 | unsigned(locks); }
    mutable std::mutex lock_; // held for one step
    std::unordered_map<std::uint64_t, unsigned> tables_;
};

/// Any thread, but for what says otherwise. Those who refer to it own it together.
struct client_card {
    client_card(client_id i, std::string_view k, std::shared_ptr<peer_use> p, use_of_all& every,
                client_label who, bool host)
        : id(i), key(k), label(std::move(who)), is_host(host), peer(std::move(p)), all(every)
    {
    }

    const client_id id;
    const std::string key;
    const client_label label;
    const bool is_host;                   // has no lease: it stays active
    const std::shared_ptr<peer_use> peer; // nullptr: its own alone
    use_of_all& all;

    // The book writes these.
    std::atomic<client_state> state{client_state::active};
    std::atomic<unsigned> leaving{0}; // tasks that take all that it has: it gets nothing more
    std::atomic<unsigned> lapses{0};  // how often its lease was over
    std::atomic<bool> callable{false};
    std::atomic<bool> complete{false}; // has said "reclaim complete"
    std::atomic<bool> silent{false};   // never says it
    // Whether it may take back what it had before the start, and whom of that its record says that it kept out.
    std::atomic<bool> may_reclaim{false};
    std::atomic<share> reclaims_against{share::none};
    client_record record;
    std::atomic<bool> is_unrecorded{false}; // a table says that its record is to be written again

    // Tables write these.
    use_counts use;
    std::atomic<std::size_t> pending{0}, waits{0}; // opens that are begun; waits for locks
    std::atomic<std::size_t> recallables{0}, revoked{0},
        others{0};                        // revoked ones are among the first, and no others
    std::atomic<std::size_t> fences{0};   // of what it lost, until it is out of its reach
    std::atomic<std::size_t> recalled{0}; // of `recallables`: asked for, and neither back nor revoked
    owner_uses owners;                    // where hears_by_stateids()
    std::atomic<unsigned> revoking{0};    // whose record is removed for that
    // Losses of what ended with its lease: all; those that it was told of, which the book writes; those after which it asked what is left.
    std::atomic<unsigned> losses{0}, told_losses{0}, asked_losses{0};
    // Of what an administrator took: how much tables keep in mind that it has not freed; how much there was.
    std::atomic<std::size_t> admin_lost{0};
    std::atomic<unsigned> admin_losses{0};
    std::atomic<time_point> next_ask_back{time_point{}};        // for delegations
    std::atomic<time_point> next_ask_back_others{time_point{}}; // for what is of other kinds
    std::atomic<time_point> leases_from{
        time_point{}}; // no delegation under a lease before: it did not give one back
    std::atomic<time_point> trusted_from{
        time_point{}}; // no delegation at all before: it did not give back several
    std::mutex blame;  // of these two
    time_point last_revocation{};
    unsigned revoked_lately = 0;

    // Tables may change these meanwhile.
    std::size_t delegations() const noexcept
    {
        const std::size_t less = revoked + others, all_of_them = recallables;
        return all_of_them > less ? all_of_them - less : 0;
    }
    /// Opens, locks or delegations, revoked ones too.
    bool has_something() const noexcept
    {
        return use.opens != 0 || use.lock_states != 0 || recallables != 0 || pending != 0;
    }
    void count(std::atomic<std::size_t> use_counts::* what, std::ptrdiff_t by) noexcept
    {
        const auto n = std::size_t(by);
        (use.*what).fetch_add(n, std::memory_order_relaxed);
        (all.*what).fetch_add(n, std::memory_order_relaxed);
        if (peer != nullptr)
            (peer.get()->*what).fetch_add(n, std::memory_order_relaxed);
    }
    /// Of `others` or `fences`.
    void count(std::atomic<std::size_t> client_card::* what, std::ptrdiff_t by) noexcept
    {
        (this->*what).fetch_add(std::size_t(by));
        if (peer != nullptr)
            peer->others.fetch_add(std::size_t(by));
    }
    bool may_be_granted(share keeps_out) const noexcept { return record.covers(keeps_out, silent); }
    /// Whether its stateids are all that it hears by that something was taken.
    bool hears_by_stateids() const noexcept { return silent && !is_host; }
};

/// Whether it may do anything. `even_leaving`: also while all it has is being taken.
inline result<void> is_living(const client_card& c, bool even_leaving) noexcept
{
    const bool leaves = c.leaving != 0; // first: what it became stands there before it leaves no more
    switch (c.state.load()) {
    case client_state::active:
    case client_state::courtesy: break; // it still has all; that it asks renews nothing
    case client_state::expired: return error(errc::expired);
    case client_state::revoked: return error(errc::admin_revoked);
    }
    if (leaves && !even_leaving)
        return error(errc::busy, "the client's state is being taken");
    return {};
}

/// Where tables find cards, and what limits of all count. Any thread.
class client_cards {
public:
    std::shared_ptr<client_card> find(client_id id) const noexcept
    {
        const std::lock_guard held(lock_);
        const auto it = cards_.find(id);
        return it == cards_.end() ? nullptr : it->second;
    }
    void add(std::shared_ptr<client_card> card)
    {
        const client_id id = card->id;
        const std::lock_guard held(lock_);
        cards_.emplace(id, std::move(card));
    }
    void remove(client_id id) noexcept
    {
        const std::lock_guard held(lock_);
        cards_.erase(id);
    }
    use_of_all use;

private:
    mutable std::mutex lock_; // held for a look, once for each client that a table meets
    std::unordered_map<client_id, std::shared_ptr<client_card>> cards_;
};

} // namespace verbena::files::detail
