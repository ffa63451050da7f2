// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/user_groups.hpp>

#include <verbena/core/combine.hpp>
#include <verbena/core/log.hpp>
#include <verbena/protocols/rpc/service.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>

namespace verbena::nfs {

namespace {

constexpr const char* says_no_groups = "a lookup of a user's groups";

} // namespace

user_groups::user_groups(shard& home, group_source& source, user_groups_options options)
    : home_(home),
      source_(source),
      options_(options),
      none_(std::make_shared<const std::vector<std::uint32_t>>()),
      known_(options.most_users, options.most_others)
{
}

void user_groups::show_levels() noexcept
{
    counters_.under_way.set(static_cast<std::int64_t>(under_way_.size()));
    counters_.cached.set(static_cast<std::int64_t>(known_.size()));
}

task<user_groups::answer> user_groups::of(std::uint32_t uid)
{
    auto asking = [this](std::uint32_t who) { return ask(who); };
    co_return co_await home_.run(std::move(asking), std::uint32_t(uid));
}

// Whom knfsd's helper does not find has no groups but the one that the call names; so has he here who could not be
// found for so long.
user_groups::answer user_groups::not_found_out(time_point since) const noexcept
{
    const time_point now = home_.reactor().clock().now();
    if (now - since < options_.most_later)
        return {};
    return {true, none_, now + options_.kept_failure};
}

user_groups::answer user_groups::told(const cache::entry& e) const noexcept
{
    if (e.failed)
        return not_found_out(e.failing_since);
    return {true, e.value.value_or(none_), e.until};
}

task<user_groups::answer> user_groups::ask(std::uint32_t uid)
{
    using how = user_groups_counters::answer;
    if (const auto* known = known_.find(uid, home_.reactor().clock().now())) {
        answered(how::cached);
        co_return told(*known);
    }
    const auto l = begin(uid);
    if (!l) {
        answered(how::refused);
        time_point newest; // since when none of those that are under way has made place
        for (const auto& [who, of] : under_way_)
            newest = std::max(newest, of->begun);
        co_return not_found_out(newest);
    }
    const bool ended = co_await wait_for(l);
    answered(ended ? how::looked_up : how::late);
    co_return ended ? *l->said : not_found_out(l->failing_since);
}

// One that has been waited for in vain is not waited for again: else each call would take that long while the source
// hangs.
task<bool> user_groups::wait_for(std::shared_ptr<lookup> l)
{
    const time_point now = home_.reactor().clock().now();
    const time_point until = l->begun + options_.patience;
    if (!l->over.is_set() && now < until) {
        const auto wait = [](std::shared_ptr<lookup> of) -> task<result<bool>> {
            const bool ended = co_await of->over.wait();
            co_return ended;
        };
        task<result<bool>> waiting = wait(l);
        counters_.waiting.add(1);
        (void)co_await with_timeout(until - now, std::move(waiting));
        counters_.waiting.add(-1);
    }
    co_return l->over.is_set();
}

// Nothing where too many are under way.
std::shared_ptr<user_groups::lookup> user_groups::begin(std::uint32_t uid)
{
    if (const auto before = under_way_.find(uid); before != under_way_.end())
        return before->second;
    if (under_way_.size() >= options_.most_under_way)
        return nullptr;
    auto made = std::make_shared<lookup>();
    made->begun = home_.reactor().clock().now();
    made->failing_since = known_.failing_since(uid, made->begun, options_.most_later).value_or(made->begun);
    under_way_.emplace(uid, made);
    show_levels();
    try {
        home_.tasks().spawn(&user_groups::find, this, uid, made);
    } catch (...) {
        under_way_.erase(uid); // else it would be under way for ever
        throw;
    }
    return made;
}

task<void> user_groups::find(std::uint32_t uid, std::shared_ptr<lookup> l)
{
    result<std::optional<std::vector<std::uint32_t>>> got = error(std::errc::io_error, says_no_groups);
    try {
        got = co_await source_.find_groups(uid);
    } catch (const std::exception&) {
        got = error(std::errc::io_error, says_no_groups);
    }
    l->said = end(uid, *l, std::move(got));
    under_way_.erase(uid);
    show_levels();
    l->over.set();
}

// Sorted and without repeats, and no longer than may be kept.
storage::shared_groups user_groups::kept_form(std::uint32_t uid, std::vector<std::uint32_t> groups)
{
    std::erase(groups, ~std::uint32_t(0)); // "leave it" to the kernel
    std::ranges::sort(groups);
    const auto repeated = std::ranges::unique(groups);
    groups.erase(repeated.begin(), repeated.end());
    if (groups.size() > options_.most_groups) {
        if (options_.logs && !std::exchange(told_too_many_, true))
            log(log_level::warning, "nfs",
                "a user is in more groups than manage_gids keeps; those with the largest numbers count for "
                "nothing, so put the user into fewer groups",
                {{"uid", std::to_string(uid)},
                 {"groups", std::to_string(groups.size())},
                 {"kept", std::to_string(options_.most_groups)}});
        groups.resize(options_.most_groups);
    }
    groups.shrink_to_fit();
    return std::make_shared<const std::vector<std::uint32_t>>(std::move(groups));
}

user_groups::answer user_groups::end(std::uint32_t uid, const lookup& l,
                                     result<std::optional<std::vector<std::uint32_t>>> got) noexcept
{
    using outcome = user_groups_counters::outcome;
    cache::entry made{uid, std::nullopt, !got, {}, l.failing_since};
    std::string why;
    try {
        if (got && *got)
            made.value = kept_form(uid, std::move(**got));
        if (!got)
            why = got.error().message();
    } catch (const std::bad_alloc&) {
        made.failed = true;
    }
    const outcome how = made.failed ? outcome::failed : made.value ? outcome::found : outcome::unknown;
    counters_.lookups[static_cast<std::size_t>(how)].add();
    made.until = home_.reactor().clock().now() + (made.failed  ? options_.kept_failure
                                                  : made.value ? options_.kept
                                                               : options_.kept_unknown);
    const answer say = told(made);
    try {
        if (made.failed && options_.logs && !std::exchange(told_failure_, true))
            log(log_level::warning, "nfs",
                "the groups of a user can't be found out, as manage_gids wants them: such users' calls are "
                "put "
                "off for a minute, and then they are in no groups but the one that the call names; see "
                "whether all sources of nsswitch.conf answer",
                {{"uid", std::to_string(uid)}, {"error", why}});
        known_.put(std::move(made));
    } catch (const std::bad_alloc&) {
        // Who waits has it, and who comes later asks again.
    }
    return say;
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
         "looked_up "
         "(the call waited for it), late (it was not there in time), or refused (too many lookups were under "
         "way). Where it is late or refused the client is asked to come again, for a minute at most.",
         metric_type::counter,
         "answers",
         {"result"},
         user_groups_counters::answers},
        [this](metric_sink& out) {
            static constexpr std::array<std::string_view, user_groups_counters::answers> results = {
                "cached", "looked_up", "late", "refused"};
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

bool caller_groups::are_missing(const rpc::call& c, const user_groups* of) noexcept
{
    return of != nullptr && !c.who().is_anonymous() && c.who().uid() != 0 && !c.known_groups();
}

task<bool> caller_groups::learn(rpc::call& c, user_groups* of)
{
    if (!are_missing(c, of))
        co_return true;
    const std::uint32_t uid = c.who().uid();
    const task_context& context = co_await current_context();
    if (const auto* known = known_.find(uid, context.shard->clock().now())) {
        c.set_known_groups(*known->value); // each has one, of nobody's number an empty one
        co_return true;
    }
    user_groups::answer said = co_await of->of(uid);
    if (!said.known)
        co_return false;
    c.set_known_groups(said.groups);
    try {
        known_.put({uid, std::move(said.groups), false, said.until});
    } catch (const std::bad_alloc&) {
        // The next call asks again.
    }
    co_return true;
}

} // namespace verbena::nfs
