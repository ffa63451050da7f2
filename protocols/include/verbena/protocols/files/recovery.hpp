// SPDX-License-Identifier: Apache-2.0
// What survives a restart, and the time after one in which clients take back what they had (RFC 8881 8.4).
#pragma once

#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/files/types.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::files {

/// Whom a delegation keeps out as long as it is not recalled: who reads, who writes. One to read under a lease keeps out nobody on record,
/// for local processes may have written since the server ended: who reclaims it gets it recalled if the file was changed.
constexpr share kept_out_by(delegation_type type, bool leased) noexcept
{
    if (type == delegation_type::write)
        return share::both;
    return leased ? share::none : share::write;
}

/// The client's own name, of its key in the store, as users know it; a part of `key`. A key of minor version 0 of NFS 4
/// begins with "4.0 ", 16 digits and a space, and any other key is a name.
std::string_view name_of_key(std::string_view key) noexcept;

/// Who may reclaim.
struct reclaimer {
    std::string key;               ///< of the client, as it was written
    share keeps_out = share::both; ///< as in recovery_store::add()
    friend auto operator<=>(const reclaimer&, const reclaimer&) = default;
};

/// What a start finds in the store. It was written down that there was this start before anybody is served.
struct recovery_start {
    std::uint32_t epoch = 1; ///< of this start, another one each time; not 0 and not 2^32 - 1
    /// Those that may reclaim: who was in the list at the end of the last grace period, and who was added since. None: there
    /// is no grace period.
    std::vector<reclaimer> reclaimers;
    /// At least of the start that gave out what is reclaimed; 0 at the first one. The grace period is no shorter: until then a client
    /// may not have heard of this start.
    duration lease_before{};
    /// When the start that gave out what is reclaimed was, in seconds since 1970. 0: that is not known, as the last one ended within its grace period,
    /// or by the clock it is still to come.
    std::uint32_t started_before = 0;
};

/// The list of clients that may reclaim after the next start, on stable storage.
///
/// Whoever makes the store has begun with it (recovery_start) before the table exists: also when the server started again within a grace
/// period, which then begins anew, with the same list. What is added goes to a new list, which is the list when end_grace() has been
/// written.
///
/// For each function. Completes when: it is on stable storage, or failed. On cancel: as the implementation says; a change may have
/// been written though an error is answered. Errors: any; then the state layer doesn't grant what depends on it. Lifetime: the key is
/// copied before the first wait. Shard: that of the task. The state layer has one call at a time for each key, several for several
/// keys.
class recovery_store {
public:
    virtual ~recovery_store() = default;
    /// `key` may reclaim after the next start. `keeps_out`: whether it may have kept others from reading, or from writing, by deny bits and
    /// delegations. If the key is there already, what was said before stays true as well.
    virtual task<result<void>> add(std::string_view key, share keeps_out) = 0;
    /// `key` may not, whichever list it is in. Also if it isn't there.
    virtual task<result<void>> remove(std::string_view key) = 0;
    /// The new list takes the place of the old one.
    virtual task<result<void>> end_grace() = 0;
};

/// None: nobody may reclaim after a restart, and there is no grace period.
class no_recovery_store final : public recovery_store {
public:
    task<result<void>> add(std::string_view, share) override { co_return result<void>(); }
    task<result<void>> remove(std::string_view) override { co_return result<void>(); }
    task<result<void>> end_grace() override { co_return result<void>(); }
};

/// Who may reclaim, and until when. Shard-local; decides, and writes nothing.
class grace_period {
public:
    /// What may be granted just now.
    enum class phase : std::uint8_t {
        reclaiming, ///< clients take back what they had
        ending,     ///< its end is being written: nobody reclaims, and nothing new is granted
        over,
    };
    /// Over at once where nobody may reclaim: a first start, or all clients had gone.
    grace_period(std::vector<reclaimer> reclaimers, time_point until);

    /// On its shard.
    phase now() const noexcept { return phase_; }
    /// Whether that client had something before the restart, and has not said that it is done.
    bool may_reclaim(std::string_view key) const noexcept { return keys_.contains(key); }
    /// A client of that key is there again.
    void note_back(std::string_view key) noexcept;
    /// What `key` may reclaim that keeps others from reading or writing.
    share keeps_out(std::string_view key) const noexcept;
    /// Clients that may, and have not said that they are done.
    std::size_t left() const noexcept { return keys_.size(); }
    /// Of these, those that may reclaim what keeps others from `access`, which is read or write.
    std::size_t left_against(share access) const noexcept { return left_[access == share::write]; }
    /// Whether one of them may reclaim what keeps others from `access`.
    bool holds_up(share access) const noexcept;
    /// How a client's part ends.
    enum class part : std::uint8_t {
        done, ///< it has taken back all that it wants
        lost, ///< it may take back nothing any more: what it had is gone
    };
    /// Of `key`.
    void complete(std::string_view key, part how = part::done) noexcept;
    /// Numbers of clients.
    struct counts {
        std::size_t recorded = 0; ///< that had something before the restart
        std::size_t done = 0;     ///< of these, that have said that they took back all
        std::size_t lost = 0;     ///< whose part has ended otherwise
        std::size_t back =
            0; ///< that are there again, and have not said so: those of minor version 0 never do
        std::size_t absent = 0; ///< that have not come back
    };
    /// Where it is over: as it was at its end.
    const counts& clients() const noexcept { return clients_; }
    /// How it goes, or went.
    struct report {
        phase now = phase::over;
        duration left{}; ///< at most; 0 where it is over
        counts clients;
        /// Keys of those that are back, and that are absent, in their order. Some may be missing.
        std::vector<std::string> keys_back, keys_absent;
    };
    /// With `most` keys of each sort at most; where it is over, also with no more than most_kept.
    report how_it_goes(time_point now, std::size_t most) const;
    static constexpr std::size_t most_kept = 256; ///< of keys of each sort, when it is over
    /// Whether nobody is left who might reclaim, or its time is over.
    bool is_due(time_point now) const noexcept
    {
        return phase_ == phase::reclaiming && (keys_.empty() || now >= until_);
    }
    /// When it is over if clients don't end it earlier.
    time_point until() const noexcept { return until_; }
    /// From now on nobody reclaims; what comes waits until end().
    void begin_end() noexcept { phase_ = phase::ending; }
    /// It was written, or not: then it goes on, to be ended again.
    void end(bool written) noexcept;

private:
    struct waited_for {
        share keeps_out = share::both;
        bool is_back = false;
    };
    void count(share keeps_out, std::ptrdiff_t by) noexcept;
    void list_those_left(report& into, std::size_t most) const;
    std::map<std::string, waited_for, std::less<>> keys_; // of those that have not said that they are done
    counts clients_;
    report ended_;                      // the keys of then
    std::array<std::size_t, 2> left_{}; // by reading and writing
    time_point until_;
    phase phase_;
};

} // namespace verbena::files

#pragma GCC visibility pop
