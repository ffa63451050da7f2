// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/reactor/request_list.hpp>

#include "../task/wait_text.hpp"

#include <verbena/core/task/trace_name.hpp>

#include <algorithm>
#include <exception>

namespace verbena {

using detail::request_place;

namespace {

// Between two parts of a look at many old requests. A timer that is due already would fire again in the same step of the shard.
constexpr auto pause_of_watch = std::chrono::milliseconds(1);

} // namespace

request_list::request_list(reactor& shard)
    : shard_(shard),
      now_kept_(std::make_unique<kept_of_period>()),
      kept_before_(std::make_unique<kept_of_period>())
{
    all_.push_front(told_);
}

request_list::~request_list() = default;

const listed_request* request_list::behind(request_place& place) noexcept
{
    request_place* at = all_.next(place);
    while (at != nullptr && at->since == time_point::max()) // another reader
        at = all_.next(*at);
    return static_cast<const listed_request*>(at);
}

// Entries stand in the order in which they came.
const listed_request* request_list::next(request_place& place, time_point until) noexcept
{
    const listed_request* const found = behind(place);
    if (found == nullptr || found->since() > until)
        return nullptr;
    all_.insert_after(const_cast<listed_request&>(*found), place);
    return found;
}

void request_list::set_slow(duration age) noexcept
{
    slow_ = std::max(age, duration::zero());
    timer::cancel();
    watch_is_due_ = slow_ != duration::zero();
    if (watch_is_due_ && behind(told_) != nullptr)
        begin_watch();
}

// For the oldest of which nothing was told: those that come meanwhile are due later.
void request_list::begin_watch() noexcept
{
    const listed_request* const first = behind(told_);
    watch_is_due_ = first == nullptr;
    if (first == nullptr)
        return;
    const time_point due = first->since() + slow_;
    const time_point now = shard_.now();
    shard_.timers().arm(*this, due > now ? due : now + pause_of_watch);
}

void request_list::on_timer() noexcept
{
    const time_point now = shard_.now();
    for (std::size_t i = 0; i < at_once; ++i) {
        const listed_request* const old = next(told_, now - slow_);
        if (old == nullptr)
            break;
        if (!old->may_take_long_)
            tell(*old);
    }
    begin_watch();
}

void request_list::tell(const listed_request& r) noexcept
{
    request_report what;
    what.since = r.since();
    r.report(what);
    count_of(what.protocol).add();
    // Of most nothing is written when a disk hangs.
    std::uint64_t suppressed = 0;
    if (!log_enabled(log_level::warning) || !slow_logged_.admit(std::chrono::steady_clock::now(), suppressed))
        return;
    try {
        const std::string waits = waits_for(r);
        log(log_level::warning, "requests", "a request has not been answered for long",
            {{"call", trace_name(what.trace)},
             {"peer", what.peer},
             {"protocol", what.protocol},
             {"version", what.version},
             {"transport", what.transport},
             {"operation", what.operation},
             {"object", what.object},
             {"waits_for", waits},
             {"seconds", std::chrono::duration_cast<std::chrono::seconds>(shard_.now() - r.since()).count()},
             {"suppressed", suppressed}});
    } catch (const std::exception&) { // no memory for a line: it is counted
    }
}

std::string request_list::waits_for(const listed_request& r) const
{
    return r.runner() == nullptr ? std::string() : detail::text_of_wait(*r.runner(), shard_);
}

counter& request_list::count_of(std::string_view protocol) noexcept
{
    for (slow_count& one : slow_counts_) {
        if (!one.is_set.load(std::memory_order_relaxed)) {
            one.protocol.append(&one == &slow_counts_.back() ? "other" : protocol);
            one.is_set.store(true, std::memory_order_release);
            return one.requests;
        }
        if (one.protocol.view() == protocol)
            return one.requests;
    }
    return slow_counts_.back().requests;
}

void request_list::expect(std::string_view protocol) noexcept { (void)count_of(protocol); }

void listed_request::keep(std::string_view status) noexcept { list_->look_whether_kept(*this, status); }

void request_list::look_whether_kept(listed_request& r, std::string_view status) noexcept
{
    const time_point now = shard_.now();
    const duration took = now - r.since();
    if (now >= period_ends_) {
        std::swap(now_kept_, kept_before_);
        now_kept_->count = 0;
        if (now >= period_ends_ + period)
            kept_before_->count = 0;
        period_ends_ = now + period;
        least_ = least_kept;
    }
    if (took < least_ || r.kept_ || r.may_take_long_)
        return;
    auto& all = now_kept_->all;
    const auto faster = [](const ended& a, const ended& b) { return a.took < b.took; };
    ended& place = now_kept_->count < kept ? all[now_kept_->count++] : *std::ranges::min_element(all, faster);
    place.what = request_report();
    place.what.since = r.since();
    r.report(place.what);
    place.what.status = short_text<32>(status);
    place.took = took;
    place.when = now;
    r.kept_ = true;
    if (now_kept_->count == kept)
        least_ = std::max(least_kept, std::ranges::min_element(all, faster)->took);
}

std::vector<request_list::ended> request_list::slowest() const
{
    std::vector<ended> all;
    const time_point now = shard_.now();
    for (const kept_of_period* const some : {kept_before_.get(), now_kept_.get()}) {
        for (std::size_t i = 0; i < some->count; ++i) {
            if (now - some->all[i].when <= 2 * period)
                all.push_back(some->all[i]);
        }
    }
    return all;
}

} // namespace verbena
