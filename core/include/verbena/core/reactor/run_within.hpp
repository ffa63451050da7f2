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
#include <type_traits>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena {

/// Calls f() on a thread of `lane` and waits for its value, for `patience` at most. Nothing: it has not returned by then. The call
/// can't be recalled: it goes on, and its value goes away on the lane's thread. So `f` owns what it uses. Throws what `f` threw in time.
/// Not on a shard. The lane has not finished.
template<class F>
std::optional<std::invoke_result_t<F&>> run_within(blocking_pool& lane, std::chrono::milliseconds patience,
                                                   F f)
{
    using value = std::invoke_result_t<F&>;
    struct outcome {
        std::mutex mutex;
        std::condition_variable ends;
        bool is_over = false;
        std::optional<value> found;
        std::exception_ptr thrown;
    };
    class call final : public blocking_pool::job {
    public:
        call(F&& f, std::shared_ptr<outcome> to) : function_(std::move(f)), to_(std::move(to)) {}
        ~call() = default;
        void execute() noexcept override
        {
            std::optional<value> found;
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
    const auto to = std::make_shared<outcome>();
    auto made = std::make_unique<call>(std::move(f), to);
    if (!lane.submit(*made))
        return std::nullopt;
    [[maybe_unused]] const auto* const deletes_itself = made.release();
    std::unique_lock lock(to->mutex);
    if (!to->ends.wait_for(lock, patience, [&to] { return to->is_over; }))
        return std::nullopt;
    if (to->thrown)
        std::rethrow_exception(to->thrown);
    return std::move(to->found);
}

} // namespace verbena

#pragma GCC visibility pop
