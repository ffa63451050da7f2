// SPDX-License-Identifier: Apache-2.0
#include "shard_watchdog.hpp"

#include <verbena/core/log.hpp>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace verbena::services {

namespace {

std::optional<std::uint64_t> number_in(const char* name)
{
    const char* const text = std::getenv(name);
    if (text == nullptr)
        return std::nullopt;
    const std::string_view all(text);
    std::uint64_t number = 0;
    const auto [end, failed] = std::from_chars(all.data(), all.data() + all.size(), number);
    if (failed != std::errc() || end != all.data() + all.size())
        return std::nullopt;
    return number;
}

} // namespace

std::optional<std::chrono::microseconds> watchdog_interval()
{
    if (std::getenv("WATCHDOG_PID") != nullptr && number_in("WATCHDOG_PID") != std::uint64_t(::getpid()))
        return std::nullopt;
    const auto interval = number_in("WATCHDOG_USEC");
    if (!interval || *interval == 0 || *interval > std::uint64_t(INT64_MAX) / 1000)
        return std::nullopt;
    return std::chrono::microseconds(*interval);
}

// A message, and behind it something in the queue of what is ready to run: a shard that only polls does not turn.
class shard_watchdog::pulse final : public remote_message, public deferred {
public:
    explicit pulse(reactor& shard) noexcept : shard_(shard) {}
    void deliver() noexcept override { shard_.post(static_cast<deferred&>(*this)); }
    void run() noexcept override
    {
        const std::shared_ptr<pulse> here = std::move(self_);
        is_asked_.store(false, std::memory_order_release);
    }
    bool has_answered() const noexcept { return !is_asked_.load(std::memory_order_acquire); }
    static void ask(const std::shared_ptr<pulse>& p) noexcept
    {
        p->asked_at = std::chrono::steady_clock::now();
        p->is_asked_.store(true, std::memory_order_relaxed);
        p->self_ = p;
        p->shard_.post_remote(*p);
    }
    // Of the thread that asks.
    bool is_told = false;
    std::chrono::steady_clock::time_point asked_at{};

private:
    reactor& shard_;
    std::atomic<bool> is_asked_{false};
    std::shared_ptr<pulse> self_; // while it is away
};

shard_watchdog::shard_watchdog(runtime& rt)
{
    for (std::size_t i = 0; i < rt.size(); ++i)
        pulses_.push_back(std::make_shared<pulse>(rt.at(i).reactor()));
}

shard_watchdog::~shard_watchdog() = default;

std::chrono::steady_clock::duration shard_watchdog::longest_silence() noexcept
{
    std::chrono::steady_clock::duration longest{0};
    for (const std::shared_ptr<pulse>& p : pulses_) {
        if (p->has_answered())
            pulse::ask(p);
        else
            longest = std::max(longest, std::chrono::steady_clock::now() - p->asked_at);
    }
    return longest;
}

bool shard_watchdog::ask() noexcept
{
    bool all = true;
    for (std::size_t i = 0; i < pulses_.size(); ++i) {
        const std::shared_ptr<pulse>& p = pulses_[i];
        if (p->has_answered()) {
            p->is_told = false;
            pulse::ask(p);
            continue;
        }
        all = false;
        if (std::exchange(p->is_told, true))
            continue;
        try {
            log(log_level::error, "service",
                "a shard does not run its tasks, so the service manager's watchdog is not answered; SIGUSR1 "
                "shows "
                "what the others do",
                {{"shard", i}});
        } catch (const std::bad_alloc&) { // the manager tells
        }
    }
    return all;
}

} // namespace verbena::services
