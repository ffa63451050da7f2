// SPDX-License-Identifier: Apache-2.0
// The groups of users as the server knows them (manage_gids): AUTH_SYS carries 16 at most, and takes the caller's
// word for them.
//
// Whoever knows them may take seconds to tell, or never tell. So a user is looked up beside the calls, once however
// many calls wait for him, and what was found is kept for a while. docs/internals/nfs.md, "Groups of callers".
#pragma once

#include <verbena/core/clock.hpp>
#include <verbena/core/event.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/shard.hpp>
#include <verbena/core/task.hpp>
#include <verbena/protocols/nfs/user_names.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::rpc {
class call;
}

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

struct user_groups_options {
    duration kept = std::chrono::minutes(10);        ///< how long a user's groups are known
    duration kept_unknown = std::chrono::minutes(1); ///< and that there is no such user
    duration kept_failure = std::chrono::seconds(5); ///< and that it could not be found out
    duration patience = std::chrono::seconds(2);     ///< how long a call waits for a lookup
    /// How long a user whose groups can't be found out is asked to come again. Then he has none.
    duration most_later = std::chrono::minutes(1);
    std::size_t most_users = 8192;   ///< that are kept
    std::size_t most_others = 1024;  ///< the same of numbers that are nobody's
    std::size_t most_groups = 4096;  ///< of one user; beyond them those with the largest numbers are left out
    std::size_t most_under_way = 64; ///< lookups
    bool logs = false; ///< once each: that groups can't be found out, and that a user has too many
};

/// What became of lookups. Written on the home of its user_groups, read from any thread.
struct user_groups_counters {
    enum class outcome : std::uint8_t { found, unknown, failed };
    static constexpr std::size_t outcomes = 3;
    enum class answer : std::uint8_t {
        cached,    ///< the groups were known
        looked_up, ///< the call waited for them
        late,      ///< they were not there in time
        refused    ///< too many lookups were under way
    };
    static constexpr std::size_t answers = 4;

    std::array<counter, outcomes> lookups;
    std::array<counter, answers> given; ///< to calls that their shard could not answer
    gauge under_way;                    ///< lookups
    gauge waiting;                      ///< calls
    gauge cached;                       ///< users
};

/// What is known of users' groups. It runs lookups in the tasks of `home`, which end before this goes; `source` goes
/// after it.
class user_groups {
public:
    user_groups(shard& home, group_source& source, user_groups_options options = {});
    user_groups(const user_groups&) = delete;

    struct answer {
        bool known = false;            ///< false: not now, so the caller has to come again
        storage::shared_groups groups; ///< if known; of nobody's number empty, but there
        time_point until;              ///< if known: how long
    };
    /// The groups of `uid`.
    /// Completes when: they are known, or patience is over. On cancel: not known. Errors: none. Lifetime: this
    /// outlives it. Shard: any.
    task<answer> of(std::uint32_t uid);

    const user_groups_options& options() const noexcept { return options_; }
    const user_groups_counters& counters() const noexcept { return counters_; }
    /// verbena_nfs_group_*. Any thread.
    metric_registrations expose(metric_registry& registry) const;

private:
    struct lookup {
        event over;
        time_point begun;
        time_point failing_since; // if it fails: an earlier one may have failed, too
        std::optional<answer> said;
    };
    using cache = v4::detail::expiring_cache<std::uint32_t, storage::shared_groups>;

    task<answer> ask(std::uint32_t uid);
    std::shared_ptr<lookup> begin(std::uint32_t uid);
    task<void> find(std::uint32_t uid, std::shared_ptr<lookup> l);
    task<bool> wait_for(std::shared_ptr<lookup> l);
    answer end(std::uint32_t uid, const lookup& l,
               result<std::optional<std::vector<std::uint32_t>>> got) noexcept;
    storage::shared_groups kept_form(std::uint32_t uid, std::vector<std::uint32_t> groups);
    answer told(const cache::entry& e) const noexcept;
    answer not_found_out(time_point since) const noexcept;
    void answered(user_groups_counters::answer how) noexcept
    {
        counters_.given[static_cast<std::size_t>(how)].add();
    }
    void show_levels() noexcept;

    shard& home_;
    group_source& source_;
    const user_groups_options options_;
    const storage::shared_groups none_;
    cache known_;
    std::map<std::uint32_t, std::shared_ptr<lookup>> under_way_;
    bool told_failure_ = false;
    bool told_too_many_ = false;
    user_groups_counters counters_;
};

/// What one program of a shard knows of them.
class caller_groups {
public:
    /// Has `c` act with the groups that `of` finds, where the caller is a user: root and nobody in particular are not
    /// looked up, as rights of either do not come from groups. `of`: nullptr leaves each call as it came.
    /// Completes when: `c` may run: true; or its groups can't be found out now: false. On cancel: false, if it waits.
    /// Errors: none.
    /// Lifetime: this, `c` and `of` outlive it. Shard: that of the call.
    task<bool> learn(rpc::call& c, user_groups* of);
    /// Whether learn() said false of `c`: it must not act as its caller.
    static bool are_missing(const rpc::call& c, const user_groups* of) noexcept;

private:
    static constexpr std::size_t most_users = 8192;
    v4::detail::expiring_cache<std::uint32_t, storage::shared_groups> known_{most_users, most_users};
};

} // namespace verbena::nfs

#pragma GCC visibility pop
