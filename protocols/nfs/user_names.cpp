// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/user_names.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/combine.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <new>
#include <utility>

namespace verbena::nfs::v4 {

namespace {

constexpr std::size_t max_name = 256; // LOGIN_NAME_MAX
constexpr std::size_t max_domain = 120;
constexpr std::uint32_t no_user = ~std::uint32_t(0);
constexpr const char* domain_of_none = "localdomain"; // as libnfsidmap's
// Of a page's names, how many are asked for ahead of the one that is waited for: others want a place too.
constexpr std::size_t ahead = 16;
// How long it is kept that something hangs.
constexpr duration kept_late = std::chrono::seconds(1);

const error no_answer(std::errc::io_error, "a lookup of a user or group");

char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_control(char c) noexcept { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

bool is_name(std::string_view name) noexcept
{
    return !name.empty() && name.size() <= max_name && std::ranges::none_of(name, is_control) &&
           is_utf8(name);
}

} // namespace

std::optional<named_owner> split_owner(std::string_view text) noexcept
{
    const std::size_t at = text.rfind('@');
    if (at == std::string_view::npos)
        return std::nullopt;
    const named_owner parts{text.substr(0, at), text.substr(at + 1)};
    if (!is_name(parts.name) || parts.domain.empty())
        return std::nullopt;
    return parts;
}

bool is_id_domain(std::string_view text) noexcept
{
    const auto fits = [](char c) {
        return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
               c == '.';
    };
    return !text.empty() && text.size() <= max_domain && std::ranges::all_of(text, fits);
}

bool is_same_domain(std::string_view a, std::string_view b) noexcept
{
    return std::ranges::equal(a, b, {}, lower, lower);
}

user_names::user_names(scope& lookups, name_source& source, user_names_options options)
    : lookups_(lookups), source_(source), options_(std::move(options)), ids_(options_), texts_(options_)
{
    if (!options_.domain.empty())
        domain_ = options_.domain;
}

void user_names::show_levels() noexcept
{
    counters_.under_way.set(static_cast<std::int64_t>(ids_.under_way.size() + texts_.under_way.size()));
    counters_.cached.set(static_cast<std::int64_t>(ids_.known.size() + texts_.known.size()));
}

// One that has been waited for in vain is not waited for again: else each call would take that long while the source hangs.
template<class Value>
task<bool> user_names::wait_for(std::shared_ptr<lookup<Value>> l, time_point deadline)
{
    const task_context& context = co_await current_context();
    const time_point now = context.shard->clock().now();
    const time_point until = std::min(deadline, l->begun + options_.patience);
    if (!l->over.is_set() && now < until) {
        const auto wait = [](std::shared_ptr<lookup<Value>> of) -> task<result<bool>> {
            const bool ended = co_await of->over.wait();
            co_return ended;
        };
        task<result<bool>> waiting = wait(l);
        (void)co_await with_timeout(until - now, std::move(waiting));
    }
    co_return l->over.is_set();
}

task<bool> user_names::knows_domain(time_point deadline)
{
    if (domain_)
        co_return true;
    const task_context& context = co_await current_context();
    const time_point now = context.shard->clock().now();
    // It could not be found out, some time ago.
    if (learning_domain_ && learning_domain_->over.is_set() && learning_domain_->until <= now)
        learning_domain_.reset();
    if (!asked_for_domain_)
        asked_for_domain_ = now;
    if (!learning_domain_) {
        learning_domain_ = std::make_shared<lookup<std::string>>();
        learning_domain_->begun = now;
        try {
            lookups_.spawn(already_made, learn_domain(learning_domain_));
        } catch (...) {
            learning_domain_.reset();
            throw;
        }
    }
    (void)co_await wait_for(learning_domain_, deadline);
    co_return domain_.has_value();
}

task<void> user_names::learn_domain(std::shared_ptr<lookup<std::string>> l)
{
    try {
        result<std::string> said = co_await source_.domain();
        if (said)
            domain_ = is_id_domain(*said) ? std::move(*said) : std::string(domain_of_none);
        if (said && options_.logs)
            log(log_level::info, "nfs", "names of users have the domain of this host",
                {{"id_domain", *domain_}});
        if (!said && options_.logs && !std::exchange(domain_failed_, true))
            log(log_level::warning, "nfs",
                "the domain of this host, which names of users have, can't be found out now; set id_domain",
                {{"error", said.error().message()}});
    } catch (const std::exception&) {
        // It is as if it could not be found out, unless it was.
    }
    l->until = lookups_.context().shard->clock().now() + options_.kept_failure;
    l->over.set();
}

// Nothing where too many are under way.
template<class Key, class Value, class Find>
std::shared_ptr<user_names::lookup<Value>> user_names::begin(direction<Key, Value>& in, const Key& key,
                                                             Find find)
{
    if (const auto before = in.under_way.find(key); before != in.under_way.end())
        return before->second;
    if (in.under_way.size() >= options_.most_under_way)
        return nullptr;
    auto made = std::make_shared<lookup<Value>>();
    made->begun = lookups_.context().shard->clock().now();
    made->failing_since = in.known.failing_since(key, made->begun, options_.most_later).value_or(made->begun);
    in.under_way.emplace(key, made);
    show_levels();
    try {
        lookups_.spawn(already_made, std::invoke(find, this, key, made));
    } catch (...) {
        in.under_way.erase(key); // else it would be under way for ever
        throw;
    }
    return made;
}

template<class Key, class Value>
void user_names::end(direction<Key, Value>& in, const Key& key, lookup<Value>& l,
                     result<std::optional<Value>> got,
                     std::array<counter, user_names_counters::outcomes>& counts)
{
    using outcome = user_names_counters::outcome;
    l.failed = !got;
    if (got)
        l.value = std::move(*got);
    else
        l.value = in.known.last(key);
    const outcome how = l.failed ? outcome::failed : l.value ? outcome::found : outcome::unknown;
    counts[static_cast<std::size_t>(how)].add();
    l.until = lookups_.context().shard->clock().now() + (l.failed  ? options_.kept_failure
                                                         : l.value ? options_.kept
                                                                   : options_.kept_unknown);
    try {
        in.known.put({key, l.value, l.failed, l.until, l.failing_since});
    } catch (const std::bad_alloc&) {
        // Who waits has it, and who comes later asks again.
    }
    in.under_way.erase(key);
    show_levels();
    l.over.set();
}

task<void> user_names::find_id(name_key key, std::shared_ptr<lookup<std::uint32_t>> l)
{
    result<std::optional<std::uint32_t>> got = no_answer;
    try {
        got = co_await source_.find_id(key.first, key.second);
    } catch (const std::exception&) {
        got = no_answer;
    }
    if (got && *got == no_user)
        got = std::optional<std::uint32_t>();
    end(ids_, key, *l, std::move(got), counters_.ids);
}

task<void> user_names::find_text(account who, std::shared_ptr<lookup<shared_text>> l)
{
    result<std::optional<shared_text>> text = no_answer;
    try {
        const auto got = co_await source_.find_name(who);
        // A name that can't be sent is as none: then it is the number that clients hear.
        if (got && *got && is_name(**got) && (*got)->size() + 1 + domain_->size() <= max_text)
            text = std::optional<shared_text>(std::make_shared<const std::string>(**got + '@' + *domain_));
        else if (got)
            text = std::optional<shared_text>();
    } catch (const std::exception&) {
        text = no_answer;
    }
    end(texts_, who, *l, std::move(text), counters_.names);
}

std::optional<std::uint32_t> user_names::known_id(account_kind kind, std::string_view text)
{
    const auto parts = split_owner(text);
    if (!parts || !domain_ || !is_same_domain(parts->domain, *domain_))
        return std::nullopt;
    return ids_.known.last(name_key{kind, parts->name});
}

// Whoever sets a name waits while it is looked up, but not for ever: a source may be off for good, and Linux' chown can't be interrupted.
user_names::id_answer user_names::id_not_found_out(time_point since, std::string_view text)
{
    if (lookups_.context().shard->clock().now() - since < options_.most_later)
        return id_answer{};
    if (options_.logs && !std::exchange(gave_up_, true))
        log(log_level::warning, "nfs",
            "a user or group's name could not be looked up for so long that it is refused now, as others "
            "will be; see whether all sources of nsswitch.conf answer",
            {{"name", text}});
    return id_answer{outcome::given_up, 0};
}

task<user_names::id_answer> user_names::id_of(account_kind kind, std::string text, time_point deadline)
{
    using answer = user_names_counters::answer;
    const auto parts = split_owner(text);
    if (!parts)
        co_return id_answer{outcome::unknown, 0};
    deadline = std::min(deadline, lookups_.context().shard->clock().now() + options_.patience);
    const bool has_domain = co_await knows_domain(deadline);
    if (!has_domain) {
        answered(answer::late);
        co_return id_not_found_out(*asked_for_domain_, text);
    }
    if (!is_same_domain(parts->domain, *domain_)) {
        answered(answer::foreign);
        co_return id_answer{outcome::unknown, 0};
    }
    // Not what it was before: who is given a file by that name may be somebody else today.
    const auto told = [&](const std::optional<std::uint32_t>& value, bool failed, time_point since) {
        if (failed)
            return id_not_found_out(since, text);
        return id_answer{value ? outcome::found : outcome::unknown, value.value_or(0)};
    };
    const name_key key{kind, parts->name};
    if (const auto* known = ids_.known.find(key, lookups_.context().shard->clock().now())) {
        answered(answer::cached);
        co_return told(known->value, known->failed, known->failing_since);
    }
    const auto l = begin(ids_, key, &user_names::find_id);
    if (!l) {
        answered(answer::refused);
        co_return id_not_found_out(full_since(ids_), text);
    }
    const bool ended = co_await wait_for(l, deadline);
    answered(ended ? answer::looked_up : answer::late);
    co_return ended ? told(l->value, l->failed, l->failing_since) : id_not_found_out(l->failing_since, text);
}

// Since when none of those that are under way has made place.
template<class Key, class Value>
time_point user_names::full_since(const direction<Key, Value>& in) noexcept
{
    time_point newest;
    for (const auto& [key, of] : in.under_way)
        newest = std::max(newest, of->begun);
    return newest;
}

// Good for moments: whoever asks then may have it looked up. `since`: when that began which was waited for in vain. What hangs for longer than
// calls wait is not to be asked for by each of them.
user_names::text_answer user_names::text_without_lookup(account who, time_point since)
{
    text_answer told;
    const time_point now = lookups_.context().shard->clock().now();
    if (now - since > options_.patience)
        told.until = now + kept_late;
    if (const auto before = texts_.known.last(who))
        told = {outcome::found, *before, now + options_.kept_failure};
    return told;
}

task<user_names::text_answer> user_names::text_of(account who, time_point deadline, bool may_begin)
{
    using answer = user_names_counters::answer;
    const auto told = [](const std::optional<shared_text>& value, bool failed, time_point until) {
        return text_answer{value    ? outcome::found
                           : failed ? outcome::later
                                    : outcome::unknown,
                           value.value_or(nullptr), until};
    };
    if (const auto* known = texts_.known.find(who, lookups_.context().shard->clock().now())) {
        answered(answer::cached);
        co_return told(known->value, known->failed, known->until);
    }
    if (!may_begin && !texts_.under_way.contains(who)) {
        answered(answer::late);
        co_return text_without_lookup(who, lookups_.context().shard->clock().now());
    }
    const auto l = begin(texts_, who, &user_names::find_text);
    if (!l) {
        answered(answer::refused);
        co_return text_without_lookup(who, full_since(texts_));
    }
    const bool ended = co_await wait_for(l, deadline);
    answered(ended ? answer::looked_up : answer::late);
    co_return ended ? told(l->value, l->failed, l->until) : text_without_lookup(who, l->begun);
}

task<std::vector<user_names::text_answer>> user_names::texts_of(std::vector<account> those,
                                                                time_point deadline)
{
    const task_context& context = co_await current_context();
    std::vector<text_answer> told(those.size());
    deadline = std::min(deadline, context.shard->clock().now() + options_.patience);
    const bool has_domain = co_await knows_domain(deadline);
    if (!has_domain) {
        answered(user_names_counters::answer::late);
        const time_point now = context.shard->clock().now();
        const auto l = learning_domain_; // none where there was no memory for it
        for (text_answer& each : told) {
            if (l && l->over.is_set())
                each.until = l->until;
            else if (l && now - l->begun > options_.patience)
                each.until = now + kept_late;
        }
        co_return told;
    }
    std::size_t begun = 0;
    bool waits = context.shard->clock().now() < deadline; // while it does, more is begun
    for (std::size_t i = 0; i < those.size(); ++i) {
        for (; waits && begun < those.size() && begun < i + ahead; ++begun) {
            if (texts_.known.find(those[begun], context.shard->clock().now()) == nullptr)
                (void)begin(texts_, those[begun], &user_names::find_text);
        }
        told[i] = co_await text_of(those[i], deadline, i < begun);
        waits = context.shard->clock().now() < deadline && !context.stop.stop_requested();
    }
    co_return told;
}

} // namespace verbena::nfs::v4
