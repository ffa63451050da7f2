// SPDX-License-Identifier: Apache-2.0
#include "late_parts.hpp"

#include <verbena/core/reactor/simulated_shards.hpp>

#include <algorithm>
#include <cassert>
#include <optional>

namespace verbena {

// While it lives the other shards are elsewhere.
class simulated_shards::turn_of {
public:
    turn_of(std::deque<one>& shards, const one& next) noexcept : shards_(shards)
    {
        for (one& s : shards_)
            s.reactor->elsewhere_ = &s != &next;
    }
    turn_of(const turn_of&) = delete;
    ~turn_of()
    {
        for (one& s : shards_)
            s.reactor->elsewhere_ = false;
    }

private:
    std::deque<one>& shards_;
};

// While it lives a shard does not see its newest messages, as if they had been sent after it had looked.
class simulated_shards::late_messages {
public:
    late_messages(reactor& r, std::size_t count) noexcept : reactor_(r)
    {
        if (count == 0)
            return;
        remote_message* last = nullptr;
        remote_message* older = r.inbox_.exchange(nullptr, std::memory_order_acquire);
        for (newest_ = older; count > 0 && older != nullptr; --count) {
            last = older;
            older = older->next_;
        }
        if (last != nullptr)
            last->next_ = nullptr;
        put_back(older);
    }
    late_messages(const late_messages&) = delete;
    ~late_messages() { put_back(newest_); }

private:
    // Behind what came since, which is newer. Nobody else takes any out.
    void put_back(remote_message* list) noexcept
    {
        remote_message* there = nullptr;
        if (list == nullptr || reactor_.inbox_.compare_exchange_strong(there, list, std::memory_order_release,
                                                                       std::memory_order_acquire))
            return;
        while (there->next_ != nullptr)
            there = there->next_;
        there->next_ = list;
    }

    reactor& reactor_;
    remote_message* newest_ = nullptr;
};

simulated_shards::simulated_shards(virtual_clock& clock, std::uint64_t seed) noexcept
    : clock_(clock), random_(seed)
{
    for (int i = 0; i < 4; ++i) // so that neighbouring seeds part
        (void)draw();
}

simulated_shards::~simulated_shards() { stop(); }

shard& simulated_shards::add(memory_budget& budget)
{
    reactor_options o;
    o.clock = &clock_;
    o.ring_entries = 8; // nothing uses it
    o.seed = draw() | 1;
    o.index = static_cast<unsigned>(shards_.size());
    candidates_.reserve(shards_.size() + 1);
    one& made = shards_.emplace_back(o.index, reactor::create(o).value(), budget);
    for (one& s : shards_)
        s.messages_from.resize(shards_.size());
    return made.view;
}

std::uint64_t simulated_shards::draw() noexcept
{
    random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return random_ >> 33;
}

bool simulated_shards::turn(one& next, std::size_t late)
{
    assert(reactor::current() == nullptr && "simulated_shards are turned between turns, not in one");
    const auto at = static_cast<std::uint64_t>(clock_.now().time_since_epoch().count());
    for (const std::uint64_t word : {at, std::uint64_t(next.view.index())})
        trace_ = (trace_ ^ word) * 0x9e3779b97f4a7c15ULL + (trace_ >> 29);
    const late_messages held(*next.reactor, late);
    const turn_of its(shards_, next);
    look_at_inboxes();
    const bool any = next.reactor->turn();
    count_messages(next);
    return any;
}

void simulated_shards::look_at_inboxes() noexcept
{
    for (one& s : shards_)
        s.newest_known = s.reactor->inbox_.load(std::memory_order_relaxed);
}

// Nobody else had a turn since look_at_inboxes(), so the others' inboxes have only grown.
void simulated_shards::count_messages(const one& from) noexcept
{
    for (one& s : shards_) {
        if (&s == &from)
            continue;
        for (const remote_message* m = s.reactor->inbox_.load(std::memory_order_relaxed); m != s.newest_known;
             m = m->next_)
            ++s.messages_from[from.view.index()];
    }
}

simulated_shards::one& simulated_shards::draw_candidate() noexcept
{
    const auto picked = candidates_.begin() + static_cast<std::ptrdiff_t>(draw() % candidates_.size());
    one& next = **picked;
    candidates_.erase(picked);
    return next;
}

bool simulated_shards::turn_one_that_has_work()
{
    candidates_.clear();
    for (one& s : shards_) {
        if (s.reactor->has_work())
            candidates_.push_back(&s);
    }
    if (candidates_.empty())
        return false;
    one& next = draw_candidate();
    turn(next, draw() % 4 == 0 ? 1 + draw() % 4 : 0);
    return true;
}

// A source need not say what it would find. True if there was anything.
bool simulated_shards::turn_each()
{
    candidates_.clear();
    for (one& s : shards_)
        candidates_.push_back(&s);
    bool any = false;
    while (!candidates_.empty())
        any = turn(draw_candidate(), 0) || any;
    return any;
}

bool simulated_shards::go_to_the_next_timer()
{
    std::optional<time_point> first;
    for (one& s : shards_) {
        const auto next = s.reactor->timers().next();
        if (next && (!first || *next < *first))
            first = next;
    }
    if (!first)
        return false;
    clock_.advance_to(*first);
    return true;
}

// True if somebody called stop() of a reactor since. All are taken: they are run as one.
bool simulated_shards::take_stop() noexcept
{
    bool any = false;
    for (one& s : shards_)
        any = s.reactor->stop_.exchange(false, std::memory_order_acquire) || any;
    return any;
}

run_end simulated_shards::run()
{
    while (!take_stop()) {
        if (turn_one_that_has_work() || turn_each())
            continue;
        if (!go_to_the_next_timer())
            return run_end::nothing_left;
    }
    return run_end::stopped;
}

void simulated_shards::settle()
{
    while (turn_one_that_has_work() || turn_each()) {
    }
}

void simulated_shards::stop()
{
    const auto left_behind = [](const one& s) {
        return detail::left_scope::late(*s.reactor).left_behind.get();
    };
    for (one& s : shards_) {
        s.tasks.request_stop();
        if (scope* const left = left_behind(s))
            left->request_stop();
    }
    const auto has_tasks = [&](const one& s) {
        const scope* const left = left_behind(s);
        return s.tasks.live() != 0 || (left != nullptr && left->live() != 0);
    };
    // A task that never ends is left to its scope, which says so.
    while (std::ranges::any_of(shards_, has_tasks) &&
           (turn_one_that_has_work() || turn_each() || go_to_the_next_timer())) {
    }
    settle();
}

} // namespace verbena
