// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/user_groups.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/combine.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <utility>

namespace verbena::nfs {

namespace {

constexpr const char* says_no_groups = "a lookup of a user's groups";

// Of what is kept. By a key, so that no peer can have the number of another one.
std::uint64_t owner_of(const siphash_key& key, const std::string& peer) noexcept
{
    return siphash(key, std::as_bytes(std::span(peer))) | 1; // nobody is 0
}

} // namespace

user_groups::user_groups(shard& home, group_source& source, user_groups_options options)
    : home_(home),
      source_(source),
      options_(options),
      key_(home.reactor().random().key()),
      none_(std::make_shared<const std::vector<std::uint32_t>>()),
      known_(options.most_users, options.most_others, share_of(options.most_others))
{
}

void user_groups::show_levels() noexcept
{
    counters_.under_way.set(static_cast<std::int64_t>(under_way_.size()));
    counters_.cached.set(static_cast<std::int64_t>(known_.size()));
}

time_point user_groups::now() const noexcept { return home_.reactor().clock().now(); }

task<user_groups::answer> user_groups::of(std::uint32_t uid, std::string from)
{
    auto asking = [this](std::uint32_t who, std::string whence) { return ask(who, std::move(whence)); };
    co_return co_await home_.run(std::move(asking), std::uint32_t(uid), std::move(from));
}

// Of who could not be found out. Without groups he might have more rights than with them, so he does not act at all
// where nobody knows which he had lately.
user_groups::answer user_groups::tell_without(const std::optional<found>& last, time_point since,
                                              user_groups_counters::answer how) noexcept
{
    const time_point at = now();
    if (last && at - last->when < options_.kept_old) {
        answered(user_groups_counters::answer::old);
        return {groups_standing::known, last->groups,
                std::min(at + options_.kept_failure, last->when + options_.kept_old)};
    }
    if (at - since < options_.most_later) {
        answered(how);
        return {};
    }
    answered(user_groups_counters::answer::given_up);
    return {groups_standing::refused, {}, at + options_.kept_failure};
}

user_groups::answer user_groups::tell(const cache::entry& e, user_groups_counters::answer how) noexcept
{
    if (e.failed)
        return tell_without(e.value, e.failing_since, user_groups_counters::answer::late);
    answered(how);
    return {groups_standing::known, e.value ? e.value->groups : none_, e.until};
}

// No lookup failed, but it is the same to the user, so that it is noted since when.
user_groups::answer user_groups::tell_refused(std::uint32_t uid, std::uint64_t peer) noexcept
{
    const time_point at = now();
    const time_point since = known_.failing_since(uid, at, options_.most_later).value_or(at);
    const std::optional<found> last = known_.last(uid);
    try {
        known_.put({uid, last, true, at, since, peer});
    } catch (const std::bad_alloc&) {
        // The next one counts from then on.
    }
    return tell_without(last, since, user_groups_counters::answer::refused);
}

task<user_groups::answer> user_groups::ask(std::uint32_t uid, std::string from)
{
    using how = user_groups_counters::answer;
    std::shared_ptr<lookup> l;
    std::uint64_t owner = 0;
    const auto* const known = known_.find(uid, now());
    if (known != nullptr && known->value && !known->failed) // as always
        co_return tell(*known, how::cached);
    try {
        std::string peer = peer_group(from, options_.v6_prefix);
        owner = owner_of(key_, peer);
        if (known != nullptr)
            known_.want(uid, owner);
        else
            l = begin(uid, std::move(peer));
    } catch (const std::bad_alloc&) {
        l = nullptr;
    }
    if (known != nullptr)
        co_return tell(*known, how::cached);
    if (!l) {
        if (options_.logs)
            log_limited(
                refusals_, log_level::warning, "nfs",
                "as many lookups of users' groups are under way as there may be of one peer, or of all: "
                "calls of more users are put off; see whether all sources of nsswitch.conf answer, "
                "and what this peer does",
                {{"peer", from}});
        co_return tell_refused(uid, owner);
    }
    const bool ended = co_await wait_for(l);
    if (ended)
        co_return tell(l->got, how::looked_up);
    log_failure(*l, "no answer yet");
    co_return tell_without(known_.last(uid), l->failing_since, how::late);
}

// One that has been waited for in vain is not waited for again: else each call would take that long while the source
// hangs.
task<bool> user_groups::wait_for(std::shared_ptr<lookup> l)
{
    const time_point at = now();
    const time_point until = l->begun + options_.patience;
    if (!l->over.is_set() && at < until) {
        const auto wait = [](std::shared_ptr<lookup> of) -> task<result<bool>> {
            const bool ended = co_await of->over.wait();
            co_return ended;
        };
        task<result<bool>> waiting = wait(l);
        counters_.waiting.add(1);
        (void)co_await with_timeout(until - at, std::move(waiting));
        counters_.waiting.add(-1);
    }
    co_return l->over.is_set();
}

std::size_t user_groups::share_of(std::size_t all) const noexcept
{
    return std::max<std::size_t>(all * options_.peer_percent / 100, 1);
}

std::size_t user_groups::running_for(std::string_view peer) const noexcept
{
    return static_cast<std::size_t>(std::ranges::count_if(under_way_, [&](const auto& each) {
        const lookup& l = *each.second;
        return l.runs_for != no_peer && l.peers[l.runs_for] == peer;
    }));
}

// Nothing where too many are under way.
std::shared_ptr<user_groups::lookup> user_groups::begin(std::uint32_t uid, std::string peer)
{
    if (const auto before = under_way_.find(uid); before != under_way_.end()) {
        std::shared_ptr<lookup> l = before->second;
        join(*l, std::move(peer));
        return l;
    }
    const auto of_peer = static_cast<std::size_t>(std::ranges::count_if(
        under_way_, [&](const auto& each) { return each.second->peers.front() == peer; }));
    if (under_way_.size() >= options_.most_under_way || of_peer >= share_of(options_.most_under_way))
        return nullptr;
    auto made = std::make_shared<lookup>();
    made->uid = uid;
    made->peers.push_back(std::move(peer));
    made->begun = now();
    const auto failing = known_.failing_since(uid, made->begun, options_.most_later);
    made->failing_since = failing.value_or(made->begun);
    made->is_told = failing.has_value();
    waiting_.push_back(made);
    try {
        under_way_.emplace(uid, made);
    } catch (...) {
        waiting_.pop_back();
        throw;
    }
    show_levels();
    start_next();
    return made;
}

// Else it would wait for a turn of the peer that began it, which may have many that hang.
void user_groups::join(lookup& l, std::string peer)
{
    if (l.runs_for != no_peer || l.peers.size() == most_peers ||
        std::ranges::find(l.peers, peer) != l.peers.end())
        return;
    l.peers.push_back(std::move(peer));
    start_next();
}

// The first of those that wait for which a peer has a turn left.
std::shared_ptr<user_groups::lookup> user_groups::take_next() noexcept
{
    for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
        const std::vector<std::string>& peers = (*at)->peers;
        const auto has_turn = [this](const std::string& peer) {
            return running_for(peer) < share_of(options_.most_at_once);
        };
        const auto found = std::ranges::find_if(peers, has_turn);
        if (found == peers.end())
            continue;
        std::shared_ptr<lookup> next = std::move(*at);
        next->runs_for = static_cast<std::size_t>(found - peers.begin());
        waiting_.erase(at);
        return next;
    }
    return nullptr;
}

void user_groups::start_next() noexcept
{
    while (running_ < options_.most_at_once) {
        const std::shared_ptr<lookup> next = take_next();
        if (!next)
            return;
        ++running_;
        try {
            home_.tasks().spawn(already_made, find(next));
        } catch (...) {
            --running_;
            end(*next, error(std::errc::not_enough_memory, says_no_groups));
        }
    }
}

task<void> user_groups::find(std::shared_ptr<lookup> l)
{
    result<std::optional<std::vector<std::uint32_t>>> got = error(std::errc::io_error, says_no_groups);
    try {
        got = co_await source_.find_groups(l->uid);
    } catch (const std::exception&) {
        got = error(std::errc::io_error, says_no_groups);
    }
    --running_;
    end(*l, std::move(got));
    start_next();
}

// Sorted and without repeats; nothing where there are more than may be kept.
storage::shared_groups user_groups::kept_form(std::uint32_t uid, std::vector<std::uint32_t> groups)
{
    std::erase(groups, ~std::uint32_t(0)); // "leave it" to the kernel
    std::ranges::sort(groups);
    const auto repeated = std::ranges::unique(groups);
    groups.erase(repeated.begin(), repeated.end());
    if (groups.size() > options_.most_groups) {
        if (options_.logs && !std::exchange(told_too_many_, true))
            log(log_level::warning, "nfs",
                "a user is in more groups than manage_gids keeps, so that his calls are put off and then "
                "refused; put the user into fewer groups",
                {{"uid", std::to_string(uid)},
                 {"groups", std::to_string(groups.size())},
                 {"kept", std::to_string(options_.most_groups)}});
        return nullptr;
    }
    groups.shrink_to_fit();
    return std::make_shared<const std::vector<std::uint32_t>>(std::move(groups));
}

// Once from the first failure until a lookup succeeds.
void user_groups::log_failure(lookup& l, std::string_view why)
{
    if (!options_.logs || std::exchange(l.is_told, true))
        return;
    log_limited(failures_, log_level::warning, "nfs",
                "the groups of a user can't be found out, as manage_gids wants them: those that were known "
                "count until they are an hour old; where none are, calls are put off, and refused when an "
                "hour has passed; see whether all sources of nsswitch.conf answer",
                {{"uid", std::to_string(l.uid)}, {"error", why}});
}

// Of a lookup: what is known now.
void user_groups::end(lookup& l, result<std::optional<std::vector<std::uint32_t>>> got) noexcept
{
    using outcome = user_groups_counters::outcome;
    const time_point at = now();
    cache::entry made{l.uid, std::nullopt, !got, {}, l.failing_since, owner_of(key_, l.peers.front())};
    try {
        storage::shared_groups groups;
        if (got && *got)
            groups = kept_form(l.uid, std::move(**got));
        if (groups)
            made.value = found{std::move(groups), at};
        else if (got && *got)
            made.failed = true;
        if (!got)
            log_failure(l, got.error().message());
    } catch (const std::bad_alloc&) {
        made.failed = true;
    }
    const outcome how = made.failed ? outcome::failed : made.value ? outcome::found : outcome::unknown;
    counters_.lookups[static_cast<std::size_t>(how)].add();
    made.until = at + (made.failed  ? options_.kept_failure
                       : made.value ? options_.kept
                                    : options_.kept_unknown);
    if (made.failed)
        made.value = known_.last(l.uid); // which tell_without() may take for too old
    l.got = made;
    try {
        known_.put(std::move(made));
    } catch (const std::bad_alloc&) {
        // Who waits has it, and who comes later asks again.
    }
    under_way_.erase(l.uid);
    show_levels();
    l.over.set();
}

metric_registrations user_groups::expose(metric_registry& registry) const
{
    metric_registrations made;
    made.push_back(registry.add(
        {"verbena_nfs_group_lookups_total",
         "Lookups of a user's groups in the sources of nsswitch.conf (manage_gids), by what came of them: "
         "found, unknown (there is no such user), or failed.",
         metric_type::counter,
         "lookups",
         {"result"},
         user_groups_counters::outcomes},
        [this](metric_sink& out) {
            static constexpr std::array<std::string_view, user_groups_counters::outcomes> results = {
                "found", "unknown", "failed"};
            for (std::size_t i = 0; i < results.size(); ++i)
                out.value({results[i]}, static_cast<double>(counters_.lookups[i].value()));
        }));
    made.push_back(registry.add(
        {"verbena_nfs_group_answers_total",
         "Users whose groups calls wanted and their shard did not know: cached (another shard did), "
         "looked_up (the call waited for it), old (they can't be found out, and those of before count), late "
         "(they can't be found out, or were not there in time) or refused (too many lookups were under way): "
         "the client is asked to come again, or given_up (that is so for an hour: the call is refused).",
         metric_type::counter,
         "answers",
         {"result"},
         user_groups_counters::answers},
        [this](metric_sink& out) {
            static constexpr std::array<std::string_view, user_groups_counters::answers> results = {
                "cached", "looked_up", "old", "late", "refused", "given_up"};
            for (std::size_t i = 0; i < results.size(); ++i)
                out.value({results[i]}, static_cast<double>(counters_.given[i].value()));
        }));
    made.push_back(
        registry.add({"verbena_nfs_group_lookups_under_way", "Of these lookups, those that are under way.",
                      metric_type::gauge, "lookups"},
                     counters_.under_way));
    made.push_back(registry.add({"verbena_nfs_group_calls_waiting",
                                 "Calls that wait for such a lookup, each for 2 seconds at most.",
                                 metric_type::gauge, "calls"},
                                counters_.waiting));
    made.push_back(registry.add({"verbena_nfs_groups_cached",
                                 "Users whose groups are kept, and those that are kept as unknown.",
                                 metric_type::gauge, "users"},
                                counters_.cached));
    return made;
}

} // namespace verbena::nfs
