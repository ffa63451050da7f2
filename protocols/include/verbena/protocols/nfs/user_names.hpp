// SPDX-License-Identifier: Apache-2.0
// Users and groups by their names: "alice@example.org" in the place of 1000 (RFC 8881 5.9).
//
// Whoever knows the names may take seconds to tell one, or never tell it. So they are asked beside the calls, once for a name
// however many calls want it, and what they said is kept for a while. docs/internals/nfs4.md, "Users by name".
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/task.hpp>

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// What a name or number is of.
enum class account_kind : std::uint8_t { user, group };

/// A user or a group by its number.
struct account {
    account_kind kind = account_kind::user; ///< of `id`
    std::uint32_t id = 0;                   ///< uid or gid
    friend auto operator<=>(const account&, const account&) = default;
};

/// Who knows the names. Its tasks run beside the calls that want them.
///
/// This holds for all its tasks. Completes when: it knows, or knows that it can't. On cancel: as it likes. Errors: what can't be found out
/// now. Lifetime: it outlives them. Shard: that of the user_names which asks.
class name_source {
public:
    virtual ~name_source() = default;
    /// What stands behind the @ where nobody has said it; empty if there is no such thing. Asked until it is known, or known not to be.
    virtual task<result<std::string>> domain() = 0;
    /// The number of who is called so, without a domain; nothing if there is nobody.
    virtual task<result<std::optional<std::uint32_t>>> find_id(account_kind kind, std::string name) = 0;
    /// The name of who has that number, without a domain; nothing if there is nobody.
    virtual task<result<std::optional<std::string>>> find_name(account who) = 0;
};

/// An owner string that is no number, in two: the domain is what follows the last @, as names of a directory may have one themselves.
struct named_owner {
    std::string_view name;
    std::string_view domain;
};
/// Nothing for what nobody can be called: without an @, with nothing before or behind it, with a name of more than 256 bytes, with
/// octets that are no UTF-8, or with control characters (a NUL would end the name for who looks it up).
std::optional<named_owner> split_owner(std::string_view text) noexcept;
/// Whether `text` may stand behind the `@`: up to 120 letters, digits, '-', '_' and '.'.
bool is_id_domain(std::string_view text) noexcept;
/// Domains differ in more than the case of ASCII letters.
bool is_same_domain(std::string_view a, std::string_view b) noexcept;

namespace detail {

/// What was found out, for a while. A number of entries each for what is there and for what is not, so that who asks for names that nobody has
/// drives out no others; beyond it those go that were not used for longest. Of what is not there an owner has a share:
/// those of owners that have more go before others'. What was there is kept beyond its while, for when nobody can say
/// whether it still is. Shard-local.
template<class Key, class Value>
class expiring_cache {
public:
    struct entry {
        Key key;
        std::optional<Value> value; ///< nothing: there is none, or it could not be found out
        bool failed = false;        ///< it could not be found out; the value is the one before
        time_point until;
        time_point failing_since = {}; ///< if it failed: since when it does
        std::uint64_t owner = 0;       ///< who wants to know; 0: nobody whose share counts
    };
    expiring_cache(std::size_t most_found, std::size_t most_others, std::size_t share = SIZE_MAX)
        : most_{most_others, most_found}, share_(share)
    {
    }

    /// Good until the next put() or find(); nullptr where it is to be found out.
    const entry* find(const Key& key, time_point now)
    {
        const auto found = by_key_.find(key);
        if (found == by_key_.end())
            return nullptr;
        auto& of = part_of(*found->second);
        if (found->second->until <= now) {
            // One that failed stays, as it knows since when.
            if (!found->second->value && !found->second->failed)
                drop(found);
            return nullptr;
        }
        of.splice(of.begin(), of, found->second);
        return &*found->second;
    }
    /// What was there when that was last known, however long ago.
    std::optional<Value> last(const Key& key)
    {
        const auto found = by_key_.find(key);
        if (found == by_key_.end())
            return std::nullopt;
        auto& of = part_of(*found->second);
        of.splice(of.begin(), of, found->second);
        return found->second->value;
    }
    /// Since when it can't be found out, each time that somebody tried; nothing where it could, or is not kept. So it is where nobody has tried
    /// for as long as `most`, and it had not failed for so long before: it may have been to be had since.
    std::optional<time_point> failing_since(const Key& key, time_point now, duration most) const
    {
        const auto found = by_key_.find(key);
        if (found == by_key_.end() || !found->second->failed)
            return std::nullopt;
        const entry& e = *found->second;
        if (now - e.until > most && e.until - e.failing_since < most)
            return std::nullopt;
        return e.failing_since;
    }
    void put(entry e)
    {
        if (const auto before = by_key_.find(e.key); before != by_key_.end()) {
            // It counts for whichever of them has less, so that nobody makes others' his own.
            const std::uint64_t owner = before->second->owner;
            if (!before->second->value && count_of(owner) - 1 < count_of(e.owner))
                e.owner = owner;
            drop(before);
        }
        auto& of = part_of(e);
        const bool is_other = !e.value;
        const std::uint64_t owner = is_other ? e.owner : 0;
        entries added;
        added.push_front(std::move(e));
        std::size_t* const count = owner != 0 ? &counts_[owner] : nullptr;
        try {
            by_key_.emplace(added.front().key, added.begin());
        } catch (...) {
            if (count != nullptr && *count == 0)
                counts_.erase(owner);
            throw;
        }
        of.splice(of.begin(), added); // from here on nothing throws
        if (count != nullptr)
            ++*count;
        if (of.size() > most_[is_other ? 0 : 1])
            drop(by_key_.find(least_needed(of)->key));
    }
    /// `owner` wants to know it, too. What is not there counts for whichever of them has less.
    void want(const Key& key, std::uint64_t owner)
    {
        const auto found = by_key_.find(key);
        if (found == by_key_.end() || found->second->value)
            return;
        entry& e = *found->second;
        if (e.owner == owner || (e.owner != 0 && count_of(e.owner) - 1 < count_of(owner)))
            return;
        ++counts_[owner];
        if (const auto count = counts_.find(e.owner); count != counts_.end() && --count->second == 0)
            counts_.erase(count);
        e.owner = owner;
    }
    std::size_t size() const noexcept { return by_key_.size(); }

private:
    using entries = std::list<entry>; // those first that were used last
    using place = typename std::map<Key, typename entries::iterator>::iterator;
    std::size_t count_of(std::uint64_t owner) const noexcept
    {
        const auto found = counts_.find(owner);
        return found == counts_.end() ? 0 : found->second;
    }
    void drop(place at) noexcept
    {
        const entry& e = *at->second;
        if (const auto count = counts_.find(e.owner);
            !e.value && count != counts_.end() && --count->second == 0)
            counts_.erase(count);
        part_of(e).erase(at->second);
        by_key_.erase(at);
    }
    // Not the newest one, for which room is made.
    typename entries::iterator least_needed(entries& of) noexcept
    {
        for (auto at = std::prev(of.end()); at != of.begin() && !at->value; --at) {
            if (count_of(at->owner) > share_)
                return at;
        }
        return std::prev(of.end());
    }
    entries& part_of(const entry& e) noexcept { return parts_[e.value ? 1 : 0]; }

    std::array<std::size_t, 2> most_;
    const std::size_t share_;
    std::array<entries, 2> parts_;
    std::map<std::uint64_t, std::size_t> counts_;      // of those that are not there, by owner
    std::map<Key, typename entries::iterator> by_key_; // a tree, as clients choose the keys
};

} // namespace detail

/// How names are made of numbers, and how long they are known.
struct user_names_options {
    std::string domain;                       ///< what stands behind the @; empty: the source says it
    bool sends_names = false;                 ///< of a server: it tells owners by their names
    bool logs = false;                        ///< once what stands behind the @, and that names are given up
    duration kept = std::chrono::minutes(10); ///< how long what was found is known
    duration kept_unknown = std::chrono::minutes(1); ///< and that there is nobody
    duration kept_failure = std::chrono::seconds(5); ///< and that it could not be found out
    duration patience = std::chrono::seconds(2);     ///< how long a call waits for a lookup
    duration most_later = std::chrono::minutes(1);   ///< how long a name that can't be looked up is `later`
    std::size_t most_found = 8192;                   ///< entries, each of names and of numbers
    std::size_t most_others = 1024;                  ///< the same of what is not there
    std::size_t most_under_way = 64;                 ///< lookups, each of names and of numbers
};

/// What became of lookups. Written on the shard of its user_names, read from any thread.
struct user_names_counters {
    /// What a lookup found.
    enum class outcome : std::uint8_t { found, unknown, failed };
    static constexpr std::size_t outcomes = 3; ///< of outcome
    /// What a call was told.
    enum class answer : std::uint8_t {
        cached,    ///< it was known
        looked_up, ///< it was waited for
        late,      ///< not for longer: it was not there in time
        refused,   ///< too many were under way
        foreign    ///< it is of another domain
    };
    static constexpr std::size_t answers = 5;

    std::array<counter, outcomes> ids;   ///< lookups of a number by the name
    std::array<counter, outcomes> names; ///< and the other way
    std::array<counter, answers> given;  ///< to calls
    gauge under_way;
    gauge cached;
};

/// What a shard knows of names, and asks a source for. It runs lookups in `lookups`, a scope that is joined before this goes, and before which
/// `source` does not go.
class user_names {
public:
    /// "alice@example.org" and so on up to so many bytes: Linux reserves no more for one (IDMAP_NAMESZ).
    static constexpr std::size_t max_text = 128;

    /// Lookups run in `lookups`, which is joined before this goes.
    user_names(scope& lookups, name_source& source, user_names_options options = {});
    user_names(const user_names&) = delete;

    /// What is known.
    enum class outcome : std::uint8_t {
        found,
        unknown, ///< there is nobody of that name or number
        later,   ///< it could not be found out, or not in time
        given_up ///< of a name: nor for user_names_options::most_later, so that nobody should wait any longer
    };
    /// The number of a name.
    struct id_answer {
        outcome how = outcome::later; ///< whether it is known
        std::uint32_t id = 0;         ///< if found
    };
    /// The name of a number.
    struct text_answer {
        outcome how = outcome::later;            ///< whether it is known
        std::shared_ptr<const std::string> text; ///< with the domain
        time_point until;                        ///< how long that is so; in the past: no longer than now
    };

    /// The number of who is called `text`, with the domain; unknown for one of another domain; later where it can't be found out in time, and
    /// given_up where that is so since `most_later`, until a lookup of it succeeds.
    /// Completes when: it is known, or patience is over, or it is `deadline`. On cancel: as at the deadline. Errors: none. Lifetime: this
    /// outlives it. Shard: that of the lookups.
    task<id_answer> id_of(account_kind kind, std::string text, time_point deadline = time_point::max());
    /// What each of `those` is called, in their order. Where that can't be found out in time, what it was when that was last known, if it
    /// ever was; else later.
    /// Completes when: each is known, or patience, one for all of them, is over, or it is `deadline`. On cancel: as at the deadline. Errors:
    /// none. Lifetime: this outlives it. Shard: that of the lookups.
    task<std::vector<text_answer>> texts_of(std::vector<account> those,
                                            time_point deadline = time_point::max());
    /// The number that it is or was when that was last known, to be shown and no more: nothing is looked up. Shard: that of the lookups.
    std::optional<std::uint32_t> known_id(account_kind kind, std::string_view text);

    /// Any thread.
    bool sends_names() const noexcept { return options_.sends_names; }
    /// How long a call waits at most. Any thread.
    duration patience() const noexcept { return options_.patience; }
    const user_names_counters& counters() const noexcept { return counters_; }

private:
    template<class Value>
    struct lookup {
        event over;
        time_point begun;
        time_point failing_since;   // if it fails: an earlier one may have failed, too
        std::optional<Value> value; // when it is over, as an entry of what is known
        bool failed = true;
        time_point until;
    };
    template<class Key, class Value>
    struct direction {
        explicit direction(const user_names_options& o) : known(o.most_found, o.most_others) {}
        detail::expiring_cache<Key, Value> known;
        std::map<Key, std::shared_ptr<lookup<Value>>> under_way;
    };
    using name_key = std::pair<account_kind, std::string>;
    using shared_text = std::shared_ptr<const std::string>;

    void answered(user_names_counters::answer how) noexcept
    {
        counters_.given[static_cast<std::size_t>(how)].add();
    }
    template<class Value>
    task<bool> wait_for(std::shared_ptr<lookup<Value>> l, time_point deadline);
    task<bool> knows_domain(time_point deadline);
    task<void> learn_domain(std::shared_ptr<lookup<std::string>> l);
    template<class Key, class Value, class Find>
    std::shared_ptr<lookup<Value>> begin(direction<Key, Value>& in, const Key& key, Find find);
    template<class Key, class Value>
    void end(direction<Key, Value>& in, const Key& key, lookup<Value>& l, result<std::optional<Value>> got,
             std::array<counter, user_names_counters::outcomes>& counts);
    task<void> find_id(name_key key, std::shared_ptr<lookup<std::uint32_t>> l);
    task<void> find_text(account who, std::shared_ptr<lookup<shared_text>> l);
    task<text_answer> text_of(account who, time_point deadline, bool may_begin);
    text_answer text_without_lookup(account who, time_point since);
    template<class Key, class Value>
    static time_point full_since(const direction<Key, Value>& in) noexcept;
    id_answer id_not_found_out(time_point since, std::string_view text);
    void show_levels() noexcept;

    scope& lookups_;
    name_source& source_;
    const user_names_options options_;
    std::optional<std::string> domain_;
    std::shared_ptr<lookup<std::string>> learning_domain_;
    std::optional<time_point> asked_for_domain_; // first
    bool domain_failed_ = false;                 // once
    bool gave_up_ = false;                       // likewise
    direction<name_key, std::uint32_t> ids_;
    direction<account, shared_text> texts_;
    user_names_counters counters_;
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
