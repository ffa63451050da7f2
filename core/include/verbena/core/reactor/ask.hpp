// SPDX-License-Identifier: Apache-2.0
// ask(): a question to a shard from a thread that is none, which does not wait longer than it wants.
//
// The problem: runtime::call() waits until the shard has answered. A shard that hangs would hold its caller for as long,
// and what it was asked lies on the caller's stack.
#pragma once

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/task.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena {

namespace detail {

template<class F>
struct answer_of_shard {
    using type = std::invoke_result_t<F&, shard&>;
    static constexpr bool is_awaited = false;
};
template<class F>
    requires is_task<std::invoke_result_t<F&, shard&>>
struct answer_of_shard<F> {
    using type = typename task_value<std::invoke_result_t<F&, shard&>>::type;
    static constexpr bool is_awaited = true;
};

/// Owns itself until the shard has answered.
template<class F>
class shard_question final : remote_message, deferred {
public:
    using answer = typename answer_of_shard<F>::type;
    static std::future<answer> send(shard& s, F f)
    {
        auto* const made = new shard_question(s, std::move(f));
        std::future<answer> outcome = made->promise_.get_future();
        s.reactor().post_remote(*made);
        return outcome;
    }

private:
    shard_question(shard& s, F f) : shard_(s), function_(std::move(f)) {}
    void deliver() noexcept override { shard_.reactor().post(static_cast<deferred&>(*this)); }
    void run() noexcept override
    {
        std::unique_ptr<shard_question> self(this);
        try {
            if constexpr (answer_of_shard<F>::is_awaited)
                shard_.tasks().spawn(already_made, run_task(std::move(self)));
            else
                promise_.set_value(function_(shard_));
        } catch (...) {
            if (self) // else whoever waits hears that the promise is broken
                promise_.set_exception(std::current_exception());
        }
    }
    static task<void> run_task(std::unique_ptr<shard_question> self)
    {
        std::exception_ptr failed;
        try {
            answer got = co_await self->function_(self->shard_);
            self->promise_.set_value(std::move(got));
        } catch (...) {
            failed = std::current_exception();
        }
        if (failed)
            self->promise_.set_exception(failed);
    }

    shard& shard_;
    F function_;
    std::promise<answer> promise_;
};

} // namespace detail

/// Has `f(s)` run on the shard, as ask() does, and does not wait. The future has what it yields; if the shard ends before, an
/// exception. Throws std::bad_alloc, and has asked nothing then. Any thread.
template<class F>
auto begin_ask(shard& s, F f) -> std::future<typename detail::answer_of_shard<F>::type>
{
    return detail::shard_question<F>::send(s, std::move(f));
}

/// What `f(s)` yields on the shard, between its polls: a value, or what the task that it returns yields. Nothing where
/// there is no answer after `patience`. `f` runs all the same then, when the shard comes to it, so it owns what it
/// refers to, or that outlives the shards. What it throws is thrown here. Not from a shard; there, `co_await
/// s.run(f)`.
template<class F>
auto ask(shard& s, F f, std::chrono::milliseconds patience)
    -> std::optional<typename detail::answer_of_shard<F>::type>
{
    auto outcome = begin_ask(s, std::move(f));
    if (outcome.wait_for(patience) != std::future_status::ready)
        return std::nullopt;
    return outcome.get();
}

} // namespace verbena

#pragma GCC visibility pop
