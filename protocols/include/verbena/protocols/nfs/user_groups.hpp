// SPDX-License-Identifier: Apache-2.0
// The groups of users as the server knows them (manage_gids): AUTH_SYS carries 16 at most, and takes the caller's
// word for them.
//
// Whoever knows them may take seconds to tell, or never tell. So a user is looked up beside the calls, once however
// many calls wait for him, and what was found is kept for a while. Users choose their numbers themselves, so that each
// peer has a share of the lookups. docs/internals/nfs.md, "Groups of callers".
#pragma once

#include <verbena/core/log.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/nfs/user_names.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// Who knows which groups a user is in.
class group_source {
public:
    virtual ~group_source() = default;
    /// All groups of the user, in any order, with the one that he has by himself; nothing if there is no such user.
    /// Completes when: it knows, or knows that it can't. On cancel: as it likes. Errors: what can't be found out now.
    /// Lifetime: it outlives the task. Shard: that of the user_groups which asks.
    virtual task<result<std::optional<std::vector<std::uint32_t>>>> find_groups(std::uint32_t uid) = 0;
};

/// What is known of users by their numbers, for a while. Shard-local.
template<class Value>
using cache_of_users = v4::detail::expiring_cache<std::uint32_t, Value>;

/// How long groups are known, and how many lookups may run.
struct user_groups_options {
    duration kept = std::chrono::minutes(10);        ///< how long a user's groups are known
    duration kept_unknown = std::chrono::minutes(1); ///< and that there is no such user
    duration kept_failure = std::chrono::seconds(5); ///< and that it could not be found out
    duration patience = std::chrono::seconds(2);     ///< how long a call waits for a lookup
    /// How old a user's groups may become where they can't be found out anew. They are those that he had.
    duration kept_old = std::chrono::hours(1);
    /// How long, from the first failure on, a user is asked to come again of whom there are no such groups. Then he
    /// is refused, until a lookup succeeds.
    duration most_later = std::chrono::hours(1);
    std::size_t most_users = 8192;   ///< that are kept
    std::size_t most_others = 1024;  ///< the same of numbers that are nobody's
    std::size_t most_groups = 4096;  ///< of one user; the lookup of a user who is in more has failed
    std::size_t most_under_way = 64; ///< lookups, with those whose turn has not come
    std::size_t most_at_once = 8;    ///< of them, that the source is asked for
    /// Of these two, and of `most_others`, those that calls of one peer group began. One at least.
    unsigned peer_percent = 25;
    unsigned v6_prefix = default_peer_prefix; ///< of peer_group(), by which peers are told apart
    bool logs =
        false; ///< what can't be found out, with a user for whom it is so, and that a peer has its share
};

/// What became of lookups. Written on the home of its user_groups, read from any thread.
struct user_groups_counters {
    /// What a lookup found.
    enum class outcome : std::uint8_t { found, unknown, failed };
    static constexpr std::size_t outcomes = 3; ///< of outcome
    /// What a call was told.
    enum class answer : std::uint8_t {
        cached,    ///< the groups were known
        looked_up, ///< the call waited for them
        old,       ///< they can't be found out now, and those of before count
        late,      ///< they can't be found out now, or not in time: the client comes again
        refused,   ///< likewise, as too many lookups are under way
        given_up   ///< they can't be found out for too long: the call is refused
    };
    static constexpr std::size_t answers = 6;

    std::array<counter, outcomes> lookups;
    std::array<counter, answers> given; ///< to calls that their shard could not answer
    gauge under_way;                    ///< lookups
    gauge waiting;                      ///< calls
    gauge cached;                       ///< users
};

/// What is known of a caller's groups. Nobody acts with fewer groups than he has: a mode, or an ACL that denies a
/// group, may give him more rights then.
enum class groups_standing : std::uint8_t {
    known,
    later,  ///< not now, so the caller has to come again
    refused ///< not for too long, so the call fails
};

/// What is known of users' groups. It runs lookups in the tasks of `home`, which end before this goes; `source` goes
/// after it.
class user_groups {
public:
    /// For calls of every shard; lookups run on `home`. On its shard.
    user_groups(shard& home, group_source& source, user_groups_options options = {});
    user_groups(const user_groups&) = delete;

    /// What is known of a user.
    struct answer {
        groups_standing is = groups_standing::later; ///< whether the groups are known
        storage::shared_groups groups;               ///< if known; of nobody's number empty, but there
        time_point until;                            ///< unless later: how long
    };
    /// The groups of `uid`, for a call that came from the address `from`.
    /// Completes when: they are known, or patience is over. On cancel: later, or groups of before. Errors: none.
    /// Lifetime: this outlives it. Shard: any.
    task<answer> of(std::uint32_t uid, std::string from);

    const user_groups_options& options() const noexcept { return options_; }
    const user_groups_counters& counters() const noexcept { return counters_; }
    /// What `until` is compared with. Any thread.
    time_point now() const noexcept;
    /// verbena_nfs_group_*. Any thread.
    metric_registrations expose(metric_registry& registry) const;

private:
    struct found {
        storage::shared_groups groups;
        time_point when;
    };
    using cache = cache_of_users<found>;
    struct lookup {
        std::uint32_t uid = 0;
        /// Whose calls want it, the one that began it first. Each waits for a turn of its own share.
        std::vector<std::string> peers;
        std::size_t runs_for = no_peer; // of them
        event over;
        time_point begun;
        time_point failing_since; // if it fails: an earlier one may have failed, too
        bool is_told = false;     // in the log, that it fails
        cache::entry got;         // when it is over
    };
    using lookups = std::vector<std::shared_ptr<lookup>>;
    static constexpr std::size_t no_peer = SIZE_MAX;
    static constexpr std::size_t most_peers = 8; // of one lookup

    task<answer> ask(std::uint32_t uid, std::string from);
    std::shared_ptr<lookup> begin(std::uint32_t uid, std::string peer);
    void join(lookup& l, std::string peer);
    std::size_t share_of(std::size_t all) const noexcept;
    std::size_t running_for(std::string_view peer) const noexcept;
    std::shared_ptr<lookup> take_next() noexcept;
    void start_next() noexcept;
    task<void> find(std::shared_ptr<lookup> l);
    task<bool> wait_for(std::shared_ptr<lookup> l);
    void end(lookup& l, result<std::optional<std::vector<std::uint32_t>>> got) noexcept;
    storage::shared_groups kept_form(std::uint32_t uid, std::vector<std::uint32_t> groups);
    answer tell(const cache::entry& e, user_groups_counters::answer how) noexcept;
    answer tell_without(const std::optional<found>& last, time_point since,
                        user_groups_counters::answer how) noexcept;
    answer tell_refused(std::uint32_t uid, std::uint64_t peer) noexcept;
    void log_failure(lookup& l, std::string_view why);
    void answered(user_groups_counters::answer how) noexcept
    {
        counters_.given[static_cast<std::size_t>(how)].add();
    }
    void show_levels() noexcept;

    shard& home_;
    group_source& source_;
    const user_groups_options options_;
    const siphash_key key_; // of peers
    const storage::shared_groups none_;
    cache known_;
    std::map<std::uint32_t, std::shared_ptr<lookup>> under_way_;
    lookups waiting_; // of them, in their order
    std::size_t running_ = 0;
    log_limiter failures_{5, std::chrono::minutes(1)};
    log_limiter refusals_{1, std::chrono::minutes(1)};
    bool told_too_many_ = false;
    user_groups_counters counters_;
};

} // namespace verbena::nfs

#pragma GCC visibility pop
