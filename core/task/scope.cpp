// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/task/scope.hpp>

#include "../last_words.hpp"
#include "../reactor/late_parts.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/queued_log.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/left_behind.hpp>

#include <cassert>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <string>

namespace verbena {

incomplete_run::incomplete_run(run_end why)
    : std::runtime_error(
          why == run_end::stopped
              ? "run_until_complete: somebody else called stop() of the reactor before the task had ended"
              : "run_until_complete: the task waits for something that can't happen: by the virtual clock "
                "nothing is ready "
                "and no timer is armed"),
      why_(why)
{
}

void detail::root_record::enter_group() noexcept { group_.enter(context()->shard->task_groups(), *this); }

namespace {

std::string described(const char* name, std::size_t live)
{
    return std::string("scope ") + (name != nullptr ? '"' + std::string(name) + "\" " : "(without a name) ") +
           "with " + std::to_string(live) + (live == 1 ? " live child" : " live children");
}

constexpr const char* rule = "a scope must be joined before it goes: request_stop(), then co_await join()\n";

} // namespace

void detail::scope_goes_with_children(reactor& shard, const char* name, std::size_t live) noexcept
{
    const std::string what = described(name, live);
    if (std::uncaught_exceptions() == 0) {
        write_last_words("verbena: " + what + " is destroyed; " + rule);
        std::abort();
    }
    write_to_log(log_level::error, "verbena: an exception leaves " + what + "; " + rule);
    left_scope::note(shard, name, live);
}

void detail::exception_leaves_task(const task_context* context) noexcept
{
    if (context != nullptr && context->shard != nullptr && left_scope::any(*context->shard))
        left_scope::end(*context->shard, ": " + what_of(std::current_exception()));
}

void detail::left_scope::note(reactor& r, const char* name, std::size_t live) noexcept
{
    r.left_scope_ = name;
    r.left_children_ = live;
}

void detail::left_scope::end(const reactor& r, const std::string& exception) noexcept
{
    write_last_words("verbena: the exception that left " + described(r.left_scope_, r.left_children_) +
                     exception + "\n");
    std::abort();
}

void detail::left_scope::never_ended(const reactor& r) noexcept
{
    if (any(r))
        write_to_log(log_level::error, "verbena: the shard goes; the children of a " +
                                           described(r.left_scope_, r.left_children_) +
                                           " that an exception left never ended\n");
}

void detail::run_to_the_end(driver& d, scope& s, const bool& ended)
{
    const run_end why = d.run();
    if (ended)
        return;
    s.request_stop();
    while (!ended) {
        if (d.run() == run_end::nothing_left && !ended) {
            detail::write_last_words(
                "verbena: run_until_complete: the task waits for something that can't happen, and is "
                "deaf to a stop; what it refers to would go before it\n");
            std::abort();
        }
    }
    throw incomplete_run(why);
}

namespace {

task<void> stop_after(scope& last, reactor& shard)
{
    co_await last.join();
    shard.stop();
}

} // namespace

scope& left_behind(reactor& shard)
{
    detail::late_parts& late = detail::left_scope::late(shard);
    if (!late.left_behind)
        late.left_behind = std::make_unique<scope>(shard, nullptr, &late.unhandled, "left behind");
    return *late.left_behind;
}

void end_left_behind(reactor& shard) noexcept
{
    detail::late_parts& late = detail::left_scope::late(shard);
    if (!late.left_behind || late.left_behind->live() == 0)
        return;
    std::unique_ptr<scope> watch;
    const auto ended = [&] {
        return late.left_behind->live() == 0 && (watch == nullptr || watch->live() == 0);
    };
    assert(shard.is_here() && "end_left_behind() on another thread or in another shard's turn");
    try {
        watch = std::make_unique<scope>(shard, nullptr, &late.unhandled, "end_left_behind");
        late.left_behind->request_stop();
        watch->spawn(stop_after, std::ref(*late.left_behind), std::ref(shard));
        while (!ended() && shard.run() == run_end::stopped) {
        }
    } catch (...) { // what a turn throws
        log(log_level::error, "core", "an exception left the last turns of a shard",
            {{"exception", what_of(std::current_exception())}});
    }
    if (ended())
        return;
    log(log_level::error, "core", "the shard goes, and what was left to it to end can't end",
        {{"tasks", late.left_behind->live()}});
    // Their frames refer to these.
    (void)watch.release();
    (void)late.left_behind.release();
}

} // namespace verbena
