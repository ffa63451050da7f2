// SPDX-License-Identifier: Apache-2.0
#include "receive_pool.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <new>

namespace verbena::rpcrdma {
namespace {

std::size_t receive_size(const responder_options& o) noexcept
{
    return std::max<std::size_t>(o.inline_size, buffer_pool::min_size);
}

// A message may be as large as the least buffer, whatever was agreed: it costs nothing.
std::uint32_t usable_size(const responder_options& o) noexcept
{
    return static_cast<std::uint32_t>(receive_size(o));
}

bool is_on_demand(const verbs::context& provider)
{
    return provider.query().shared_receives && provider.query().receives_on_demand;
}

credit_terms terms_of(const responder_options& o, bool on_demand) noexcept
{
    credit_terms t;
    t.most = std::max(1u, o.credits);
    t.idle = std::clamp(o.idle_credits, 1u, t.most);
    t.window = o.credit_window;
    t.idle_after = o.credit_idle;
    t.settling = o.credit_settling;
    t.most_raised = o.max_raised_bytes / receive_size(o);
    t.most_peer_raised = o.max_address_raised_bytes / receive_size(o);
    t.on_demand = on_demand;
    return t;
}

// The smallest queue that is of use; a device may make none as large as wanted.
constexpr std::uint32_t least_depth = 256;
constexpr std::uint32_t largest_depth = 8192;
constexpr std::uint32_t on_demand_depth = 1 << 20; // few of them ever stand

} // namespace

receive_pool::receive_pool(verbs::context& provider, buffer_pool& buffers, const responder_options& options,
                           responder_stats& stats)
    : provider_(provider),
      buffers_(buffers),
      options_(options),
      stats_(stats),
      on_demand_(is_on_demand(provider)),
      credits_(terms_of(options, on_demand_)),
      posted_(buffers, receive_size(options), usable_size(options)),
      tasks_(provider.shard(), nullptr, nullptr, "receives of a listener")
{
}

receive_pool::~receive_pool() { deferred::unlink(); }

task<void> receive_pool::open(verbs::protection_domain& domain)
{
    if (!provider_.query().shared_receives || (!on_demand_ && !options_.shares_standing_receives))
        co_return;
    verbs::shared_receive_queue_options o;
    o.depth = on_demand_ ? on_demand_depth : largest_depth;
    if (on_demand_)
        o.supply = this;
    for (; o.depth >= least_depth; o.depth /= 2) {
        auto made = co_await domain.make_shared_receive_queue(o);
        if (made) {
            queue_ = std::move(*made);
            co_return;
        }
        if (made.error() != std::errc::invalid_argument && made.error() != std::errc::not_enough_memory) {
            log(log_level::info, "rpcrdma", "each connection has receives of its own",
                {{"cause", made.error().message()}});
            co_return;
        }
    }
}

task<void> receive_pool::close()
{
    tasks_.request_stop();
    co_await tasks_.join();
    queue_.reset();
}

std::unique_ptr<posted_receives> receive_pool::own_receives()
{
    return std::make_unique<posted_receives>(buffers_, receive_size(options_), usable_size(options_));
}

// Messages without a credit are few: there is room for some on each connection, and for more of them together.
std::uint64_t receive_pool::target() const noexcept
{
    return credits_.promised() + credits_.accounts() + responder_options::receive_slack;
}

bool receive_pool::is_short() const noexcept
{
    return queue_ && !on_demand_ && posted_.held() < credits_.promised();
}

bool receive_pool::fill() noexcept
{
    if (!queue_ || on_demand_)
        return true;
    credits_.settle(provider_.shard().now());
    const auto filled = posted_.fill(target(), [this](const verbs::receive_request& r) { return post(r); });
    if (filled == posted_receives::outcome::no_memory) {
        stats_.receive_shortages.add();
        wait_for_memory();
    }
    return filled == posted_receives::outcome::done;
}

void receive_pool::receive_wanted() noexcept
{
    const auto post_one = [this](const verbs::receive_request& r) { return post(r); };
    if (posted_.fill(std::uint64_t(posted_.held()) + 1, post_one) == posted_receives::outcome::done)
        return;
    stats_.receive_shortages.add();
    hungry_ = true;
    wait_for_memory();
}

void receive_pool::receive_returned(std::uint64_t id) noexcept
{
    take(static_cast<std::uint32_t>(id)).reset();
}

bool receive_pool::is_hungry() const noexcept { return on_demand_ ? hungry_ : posted_.held() < target(); }

void receive_pool::wait_for_memory() noexcept
{
    if (!waits_ && !deferred::is_linked())
        provider_.shard().post(static_cast<deferred&>(*this));
}

void receive_pool::run() noexcept
{
    if (waits_ || tasks_.stop_requested())
        return;
    waits_ = true;
    try {
        tasks_.spawn(&receive_pool::await_memory, this);
    } catch (...) {
        waits_ = false; // the next message or completion asks again
    }
}

task<void> receive_pool::await_memory()
{
    constexpr auto pause_after_failure = std::chrono::milliseconds(10);
    try {
        while (is_hungry() && !tasks_.stop_requested()) {
            // In turns: who waits for a large buffer holds up those behind it who would do with less.
            lease memory = co_await buffers_.acquire(posted_.size(), buffer_pool::call_patience);
            if (!memory || tasks_.stop_requested())
                continue;
            const bool posted =
                posted_.add(std::move(memory), [this](const verbs::receive_request& r) { return post(r); });
            if (!posted) {
                // Those who wait ask no more by themselves.
                (void)co_await sleep_for(pause_after_failure);
                continue;
            }
            // It went to who waited for it, unless nobody does any more.
            if (queue_->standing() != 0)
                hungry_ = false;
        }
    } catch (const std::bad_alloc&) { // the next message asks again
    }
    waits_ = false;
}

} // namespace verbena::rpcrdma
