// SPDX-License-Identifier: Apache-2.0
#include "limiter.hpp"

#include <algorithm>
#include <cassert>
#include <tuple>
#include <utility>

namespace verbena::filters {

namespace {

struct limit_rule {
    std::uint64_t value;
    std::uint64_t least;
    std::uint64_t most;
    const char* broken;
};

} // namespace

result<void> limiter::check(const limit_options& options)
{
    const auto burst = options.burst.count();
    const limit_rule rules[] = {
        {options.client_operations, 0, most_limited_operations,
         "limit, client_operations: over 1000000000 a second; take less, or 0 for no limit"},
        {options.total_operations, 0, most_limited_operations,
         "limit, total_operations: over 1000000000 a second; take less, or 0 for no limit"},
        {options.client_bytes == 0 ? least_limited_bytes : options.client_bytes, least_limited_bytes,
         most_limited_bytes,
         "limit, client_bytes: not within 1024 to 1000000000000 a second; take a number within, or 0 for no "
         "limit"},
        {options.total_bytes == 0 ? least_limited_bytes : options.total_bytes, least_limited_bytes,
         most_limited_bytes,
         "limit, total_bytes: not within 1024 to 1000000000000 a second; take a number within, or 0 for no "
         "limit"},
        {burst < 0 ? 0 : std::uint64_t(burst), 1, std::uint64_t(longest_burst.count()),
         "limit, burst: not within 1 to 60000 ms; take a time within"},
        {options.client_queue, 0, most_limited_waiting,
         "limit, client_queue: over 1048576 operations; take less"},
        {options.total_queue, 0, most_limited_waiting,
         "limit, total_queue: over 1048576 operations; take less"},
        {options.clients, 1, most_limited_clients,
         "limit, clients: not within 1 to 1048576; take a number within"},
    };
    for (const limit_rule& r : rules) {
        if (r.value < r.least || r.value > r.most)
            return error(std::errc::invalid_argument, r.broken, r.value);
    }
    return {};
}

limiter::limiter(const limit_options& options)
    : options_(options),
      client_operations_(options.client_operations, options.burst),
      client_bytes_(options.client_bytes, options.burst),
      total_operations_(options.total_operations, options.burst),
      total_bytes_(options.total_bytes, options.burst),
      operations_(total_operations_),
      bytes_(total_bytes_)
{
}

limiter::~limiter() { assert(counters_.waiting == 0 && "a filter must not go before its operations"); }

limiter::client* limiter::find_or_add(std::string_view name)
{
    if (const auto found = clients_.find(name); found != clients_.end())
        return &found->second;
    if (clients_.size() >= options_.clients) {
        const client* oldest = idle_.front();
        if (oldest == nullptr)
            return nullptr;
        clients_.erase(clients_.find(*oldest->name));
        ++counters_.forgotten;
    }
    const auto made = clients_
                          .emplace(std::piecewise_construct, std::forward_as_tuple(name),
                                   std::forward_as_tuple(std::ref(*this), std::ref(client_operations_),
                                                         std::ref(client_bytes_)))
                          .first;
    made->second.name = &made->first;
    idle_.push_back(made->second);
    return &made->second;
}

void limiter::take(client& c, std::uint64_t bytes) noexcept
{
    c.operations.take(1);
    c.bytes.take(bytes);
    operations_.take(1);
    bytes_.take(bytes);
}

bool limiter::passes_at_once(client& c, std::uint64_t bytes, time_point now) noexcept
{
    if (c.waiting_count > 0)
        return false;
    idle_.push_back(c); // the last one to be forgotten
    // Whoever is ready and not gone waits for the export.
    if (!ready_.empty() || lacks(c.operations, c.bytes, bytes, now) > duration::zero() ||
        lacks(operations_, bytes_, bytes, now) > duration::zero())
        return false;
    take(c, bytes);
    ++counters_.passed;
    return true;
}

bool limiter::try_enter(std::string_view name, std::uint64_t bytes, time_point now)
{
    std::lock_guard lock(mutex_);
    client* c = find_or_add(name.substr(0, longest_name));
    return c != nullptr && passes_at_once(*c, bytes, now);
}

limiter::shard_timer& limiter::timer_of(reactor& shard)
{
    shard_timer* free = nullptr;
    for (shard_timer& t : timers_) {
        if (t.users == 0)
            free = &t;
        else if (t.shard == &shard)
            return t;
    }
    if (free == nullptr)
        free = &timers_.emplace_back(*this);
    free->shard = &shard;
    return *free;
}

// The counter of why nobody may wait there any more, or nullptr.
std::uint64_t* limiter::refusal(const client* c) noexcept
{
    if (c == nullptr)
        return &counters_.refused_newcomers;
    if (c->waiting_count >= options_.client_queue)
        return &counters_.refused_by_client;
    return counters_.waiting >= options_.total_queue ? &counters_.refused_by_total : nullptr;
}

bool limiter::waits(awaiter& a, reactor& shard, const stop_token& stop)
{
    queue passed;
    {
        std::lock_guard lock(mutex_);
        const time_point now = shard.clock().now();
        client* c = find_or_add(a.name_);
        if (c != nullptr && passes_at_once(*c, a.bytes_, now)) {
            a.outcome_ = outcome::passed;
            return false;
        }
        if (std::uint64_t* count = refusal(c)) {
            ++*count;
            a.outcome_ = outcome::refused;
            return false;
        }
        shard_timer& timer = timer_of(shard);
        if (!stop.subscribe(a.listener_)) {
            ++counters_.cancelled;
            a.outcome_ = outcome::cancelled;
            return false;
        }
        a.shard_ = &shard;
        a.client_ = c;
        a.since_ = now;
        a.timer_ = &timer;
        ++timer.users;
        c->waiting.push_back(a);
        ++counters_.waiting;
        if (c->waiting_count++ == 0)
            ready_.push_back(*c);
        pump(now, passed);
        arm(timer);
    }
    wake(passed, shard);
    return true;
}

void limiter::pump(time_point now, queue& passed) noexcept
{
    throttled_.expire(now);
    total_opens_.reset();
    while (client* c = ready_.front()) {
        awaiter& first = *c->waiting.front();
        if (const duration d = lacks(c->operations, c->bytes, first.bytes_, now); d > duration::zero()) {
            c->unlink();
            throttled_.arm(*c, now + d);
            continue;
        }
        if (const duration d = lacks(operations_, bytes_, first.bytes_, now); d > duration::zero()) {
            total_opens_ = now + d;
            return;
        }
        take(*c, first.bytes_);
        first.outcome_ = outcome::passed;
        ++counters_.waited;
        // The clock of the shard where it began to wait may have been read a little later.
        counters_.waited_nanoseconds += std::uint64_t(std::max(now - first.since_, duration::zero()).count());
        if (c->waiting_count > 1)
            ready_.push_back(*c); // behind all others
        leave_queue(first);
        passed.push_back(first);
    }
}

// Its client is idle afterwards if it was the last one there.
void limiter::leave_queue(awaiter& a) noexcept
{
    client& c = *a.client_;
    a.unlink();
    --counters_.waiting;
    if (--c.waiting_count == 0) {
        c.cancel();
        idle_.push_back(c);
    }
}

// What a throttled client waits for may have come.
void limiter::look_again(client& c) noexcept
{
    if (!c.is_armed())
        return;
    c.cancel();
    ready_.push_back(c);
}

void limiter::arm(shard_timer& t) noexcept
{
    std::optional<time_point> next = throttled_.next();
    if (total_opens_ && (!next || *total_opens_ < *next))
        next = total_opens_;
    if (next && t.users > 0)
        t.shard->timers().arm(t, *next);
    else
        t.cancel();
}

void limiter::tick(shard_timer& t) noexcept
{
    queue passed;
    {
        std::lock_guard lock(mutex_);
        pump(t.shard->clock().now(), passed);
        arm(t);
    }
    wake(passed, *t.shard);
}

void limiter::stop(awaiter& a) noexcept
{
    queue passed;
    {
        std::lock_guard lock(mutex_);
        if (a.outcome_ != outcome::waits) // it has been woken, and goes on
            return;
        a.outcome_ = outcome::cancelled;
        ++counters_.cancelled;
        leave_queue(a);
        look_again(*a.client_); // the one behind it may want less
        pump(a.shard_->clock().now(), passed);
        arm(*a.timer_);
    }
    wake(passed, *a.shard_);
    a.deliver();
}

void limiter::resumed(awaiter& a) noexcept
{
    a.listener_.unlink();
    std::lock_guard lock(mutex_);
    if (--a.timer_->users == 0)
        a.timer_->cancel();
}

void limiter::wake(queue& passed, const reactor& here) noexcept
{
    while (awaiter* a = passed.pop_front()) {
        if (a->shard_ == &here)
            a->deliver();
        else
            a->shard_->post_remote(*a);
    }
}

void limiter::give_back(std::string_view name, std::uint64_t bytes) noexcept
{
    queue passed;
    // None before a shard's first turn. Then those that wait just hear of it later.
    reactor* const here = reactor::current();
    {
        std::lock_guard lock(mutex_);
        bytes_.give_back(bytes);
        const auto found = clients_.find(name.substr(0, longest_name));
        if (found != clients_.end()) {
            found->second.bytes.give_back(bytes);
            look_again(found->second);
        }
        if (counters_.waiting == 0 || here == nullptr)
            return;
        pump(here->clock().now(), passed);
        for (shard_timer& t : timers_) {
            if (t.shard == here)
                arm(t);
        }
    }
    wake(passed, *here);
}

limit_counters limiter::counters() const noexcept
{
    std::lock_guard lock(mutex_);
    limit_counters now = counters_;
    now.clients = clients_.size();
    return now;
}

} // namespace verbena::filters
