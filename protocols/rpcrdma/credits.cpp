// SPDX-License-Identifier: Apache-2.0
#include "credits.hpp"

#include <algorithm>

namespace verbena::rpcrdma {
namespace {

// Silent connections looked at for one that wants credits.
constexpr int max_looked_at = 16;

} // namespace

// --- the pool ---

void credit_pool::settle(time_point now) noexcept
{
    for (falling_hook* h; (h = falling_.front()) != nullptr && h->account.settled_ <= now;) {
        h->unlink();
        h->account.count(std::max({h->account.credits_, h->account.bound(now), terms_.idle}));
    }
}

// What they were told costs nothing as long as they are silent, and what they send then waits its turn.
void credit_pool::reclaim_silent(time_point now) noexcept
{
    if (!terms_.on_demand)
        return;
    for (int i = 0; i < max_looked_at; ++i) {
        raised_hook* const h = raised_list_.front();
        if (h == nullptr)
            return;
        credit_account& a = h->account;
        if (now - a.last_call_ > terms_.idle_after) {
            a.credits_ = terms_.idle;
            a.count(terms_.idle);
        } else {
            raised_list_.push_back(*h);
        }
    }
}

std::uint32_t credit_pool::promise(std::uint32_t wanted, bool of_raised, time_point now) noexcept
{
    settle(now);
    if (raised_ + wanted > terms_.most_raised)
        reclaim_silent(now);
    const std::uint64_t room = terms_.most_raised - std::min(raised_, terms_.most_raised);
    if (wanted <= room)
        return wanted;
    // Those that have more than their share get less with their next replies.
    wanting_until_ = now + terms_.idle_after;
    shares_ = raised_accounts_ + (of_raised ? 0 : 1);
    return static_cast<std::uint32_t>(room);
}

std::uint32_t credit_pool::fair(time_point now) const noexcept
{
    if (now >= wanting_until_)
        return terms_.most;
    const std::uint64_t share = terms_.most_raised / std::max<std::uint64_t>(shares_, 1);
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(terms_.idle + std::min<std::uint64_t>(share, terms_.most), terms_.most));
}

// --- an account ---

credit_account::credit_account(credit_pool& pool, std::uint64_t& of_peer) noexcept
    : pool_(pool),
      of_peer_(of_peer),
      idle_(pool.terms().idle),
      credits_(idle_),
      told_(idle_),
      believed_(idle_),
      counted_(idle_)
{
    ++pool_.accounts_;
    pool_.idle_ += idle_;
}

credit_account::~credit_account()
{
    count(idle_);
    --pool_.accounts_;
    pool_.idle_ -= idle_;
    pool_.owed_ -= owed_;
}

void credit_account::count(std::uint32_t counted) noexcept
{
    const std::int64_t more = std::int64_t(counted) - std::int64_t(counted_);
    const bool was_raised = counted_ > idle_;
    counted_ = counted;
    pool_.raised_ += static_cast<std::uint64_t>(more);
    of_peer_ += static_cast<std::uint64_t>(more);
    const bool is_raised = counted_ > idle_;
    if (is_raised && !was_raised) {
        ++pool_.raised_accounts_;
        pool_.raised_list_.push_back(raised_hook_);
    } else if (!is_raised && was_raised) {
        --pool_.raised_accounts_;
        raised_hook_.unlink();
    }
}

// How many calls it has under way can't be seen: a requester waits for credits where its calls are answered at once, too. So calls
// are counted that come within a window. One that could use a quarter of its credits at most, for a while, has half as many.
void credit_account::end_window(time_point now) noexcept
{
    peak_ = std::max(peak_, window_calls_);
    window_calls_ = 0;
    window_begun_ = now;
    if (now - period_begun_ < pool_.terms().idle_after)
        return;
    if (peak_ < credits_ / 4)
        credits_ = std::max(idle_, credits_ / 2);
    peak_ = 0;
    period_begun_ = now;
}

std::uint32_t credit_account::called(std::uint32_t wanted, time_point now) noexcept
{
    const credit_terms& terms = pool_.terms();
    if (now - last_call_ > terms.idle_after) {
        credits_ = idle_;
        window_calls_ = peak_ = 0;
        window_begun_ = period_begun_ = now;
    }
    last_call_ = now;
    if (now - window_begun_ > terms.window)
        end_window(now);
    if (++window_calls_ < credits_)
        return 0;
    end_window(now);
    const std::uint32_t want = std::min({terms.most, wanted, 2 * credits_, pool_.fair(now)});
    if (want <= credits_)
        return 0;
    std::uint32_t more = want > counted_ ? want - counted_ : 0;
    if (more != 0) {
        const bool is_only_one = of_peer_ == raised();
        if (!is_only_one && of_peer_ + more > terms.most_peer_raised)
            return 0;
        more = pool_.promise(more, raised() != 0, now);
        count(counted_ + more);
    }
    const std::uint32_t before = credits_;
    credits_ = std::max(credits_, std::min(want, counted_));
    return credits_ - before;
}

void credit_account::take_back(std::uint32_t raised) noexcept
{
    credits_ -= raised;
    count(std::max({credits_, told_, believed_, idle_}));
}

// What the requester may still take for its grant is promised; where a message can wait, only what it was told.
void credit_account::release(time_point now) noexcept
{
    const bool on_demand = pool_.terms().on_demand;
    const std::uint32_t keep = std::max({credits_, told_, idle_});
    const std::uint32_t now_due = on_demand ? keep : std::max(keep, bound(now));
    if (now_due < counted_)
        count(now_due);
    if (counted_ == keep)
        falling_hook_.unlink();
}

std::uint32_t credit_account::grant(std::uint32_t wanted, bool is_short, time_point now) noexcept
{
    credits_ = std::min(credits_, std::max(pool_.fair(now), idle_));
    const std::uint32_t granted = is_short ? 1 : std::max(1u, std::min(wanted, credits_));
    believed_ = bound(now);
    if (granted < told_) {
        settled_ = now + pool_.terms().settling;
        pool_.falling_.push_back(falling_hook_);
    } else if (granted > believed_) {
        believed_ = granted;
    }
    told_ = granted;
    release(now);
    return granted;
}

std::uint32_t credit_account::bound(time_point now) noexcept
{
    if (now >= settled_)
        believed_ = told_;
    return std::max(believed_, told_);
}

void credit_account::called_back(std::uint32_t most) noexcept
{
    if (owed_ == most)
        return;
    ++owed_;
    ++pool_.owed_;
}

void credit_account::answered_back() noexcept
{
    if (owed_ == 0)
        return;
    --owed_;
    --pool_.owed_;
}

} // namespace verbena::rpcrdma
