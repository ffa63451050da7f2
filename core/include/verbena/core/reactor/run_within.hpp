// SPDX-License-Identifier: Apache-2.0
// A call that may block, for a thread that is no shard's and must not wait for ever.
#pragma once

#include <verbena/core/reactor/blocking.hpp>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena {

/// Whether nothing runs or waits on `lane` any more, within `patience`. Not on a shard.
inline bool idles_within(const blocking_pool& lane, std::chrono::steady_clock::duration patience) noexcept
{
    using clock = std::chrono::steady_clock;
    for (const auto until = clock::now() + patience;;
         std::this_thread::sleep_for(std::chrono::microseconds(50))) {
        const blocking_pool::occupation is = lane.look();
        if (is.running + is.queued == 0)
            return true;
        if (clock::now() >= until)
            return false;
    }
}

/// A call that begin_call() began. Whoever has this may give it up: the call goes on then, and its value goes away on
/// the lane's thread.
template<class T>
class begun_call {
public:
    /// Of the moments until which is waited: real time, as the disk takes that.
    using clock = std::chrono::steady_clock;

    /// Waits for the call's value, until `when` at most, and gives the call up. Nothing: it had not returned by then, or
    /// the lane had finished. Throws what the call threw in time. Called once. Not on a shard.
    std::optional<T> wait_until(clock::time_point when)
    {
        const auto to = std::move(to_);
        if (!to)
            return std::nullopt;
        std::unique_lock lock(to->mutex);
        if (!to->ends.wait_until(lock, when, [&to] { return to->is_over; }))
            return std::nullopt;
        if (to->thrown)
            std::rethrow_exception(to->thrown);
        return std::move(to->found);
    }

private:
    template<class F>
    friend begun_call<std::invoke_result_t<F&>> begin_call(blocking_pool& lane, F f);
    struct outcome {
        std::mutex mutex;
        std::condition_variable ends;
        bool is_over = false;
        std::optional<T> found;
        std::exception_ptr thrown;
    };
    template<class F>
    class call final : public blocking_pool::job {
    public:
        call(F&& f, std::shared_ptr<outcome> to) : function_(std::move(f)), to_(std::move(to)) {}
        ~call() = default;
        void execute() noexcept override
        {
            std::optional<T> found;
            std::exception_ptr thrown;
            try {
                found.emplace(function_());
            } catch (...) {
                thrown = std::current_exception();
            }
            {
                const std::lock_guard lock(to_->mutex);
                to_->found = std::move(found);
                to_->thrown = std::move(thrown);
                to_->is_over = true;
                to_->ends.notify_all();
            }
            delete this;
        }
        void deliver() noexcept override {}

    private:
        F function_;
        const std::shared_ptr<outcome> to_;
    };

    std::shared_ptr<outcome> to_;
};

/// Begins f() on a thread of `lane`, so that calls of several lanes can be waited for together. `f` owns what it uses,
/// as the call can't be recalled. Any thread.
template<class F>
begun_call<std::invoke_result_t<F&>> begin_call(blocking_pool& lane, F f)
{
    using begun = begun_call<std::invoke_result_t<F&>>;
    begun out;
    const auto to = std::make_shared<typename begun::outcome>();
    auto made = std::make_unique<typename begun::template call<F>>(std::move(f), to);
    if (!lane.submit(*made))
        return out;
    [[maybe_unused]] const auto* const deletes_itself = made.release();
    out.to_ = to;
    return out;
}

/// Calls f() on a thread of `lane` and waits for its value, for `patience` at most. Nothing: it has not returned by then. The call
/// can't be recalled: it goes on, and its value goes away on the lane's thread. So `f` owns what it uses. Throws what `f` threw in time.
/// Not on a shard. The lane has not finished.
template<class F>
std::optional<std::invoke_result_t<F&>> run_within(blocking_pool& lane, std::chrono::milliseconds patience,
                                                   F f)
{
    return begin_call(lane, std::move(f)).wait_until(std::chrono::steady_clock::now() + patience);
}

} // namespace verbena

#pragma GCC visibility pop
