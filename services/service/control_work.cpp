// SPDX-License-Identifier: Apache-2.0
#include "control_work.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/task/exception.hpp>

#include <algorithm>
#include <exception>
#include <stop_token>
#include <utility>

namespace verbena::services {

namespace {

void carry_out(control_work& w, const std::stop_token& stop)
{
    try {
        w.answer = w.request->command->work(w.request->arguments, stop);
    } catch (...) {
        try {
            w.failure = what_of(std::current_exception());
            // Whoever asked may be gone.
            log(log_level::warning, "control", "an operator's command failed",
                {{"command", told_of(*w.request)}, {"cause", *w.failure}});
        } catch (const std::exception&) { // no memory
            if (!w.failure)
                w.failure.emplace();
        }
    }
}

} // namespace

std::optional<control_refusal> work_threads::why_not(const control_command& c) const
{
    if (stopped_)
        return control_refusal{"busy", "the service is stopping"};
    const auto now = std::chrono::steady_clock::now();
    for (const running& r : all_) {
        if (r.work->request->command != &c)
            continue;
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - r.work->since).count();
        return control_refusal{"busy", c.name + " is under way since " + std::to_string(seconds) +
                                           " s, by somebody else: wait until that has ended"};
    }
    if (all_.size() >= most)
        return control_refusal{"busy",
                               "there are " + std::to_string(most) +
                                   " commands under way, as many as may be: wait until one has ended"};
    return std::nullopt;
}

std::variant<std::shared_ptr<control_work>, control_refusal>
work_threads::begin(std::shared_ptr<const control_request> request, std::function<void()> wake)
{
    const std::scoped_lock lock(mutex_);
    std::erase_if(all_, [](const running& r) { return r.work->done.load(std::memory_order_acquire); });
    if (auto refused = why_not(*request->command))
        return std::move(*refused);
    auto made = std::make_shared<control_work>();
    made->request = std::move(request);
    made->since = std::chrono::steady_clock::now();
    running& r = all_.emplace_back();
    r.work = made;
    try {
        r.thread = std::jthread([made, wake = std::move(wake)](const std::stop_token& stop) {
            carry_out(*made, stop);
            made->done.store(true, std::memory_order_release);
            wake();
        });
    } catch (const std::exception& e) {
        all_.pop_back();
        return control_refusal{"failed", std::string("no thread can be had for it: ") + e.what()};
    }
    return made;
}

void work_threads::stop() noexcept
{
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
    for (running& r : all_)
        r.thread.request_stop();
}

void work_threads::finish() noexcept
{
    stop();
    for (;;) {
        std::jthread one;
        {
            const std::scoped_lock lock(mutex_);
            const auto next =
                std::ranges::find_if(all_, [](const running& r) { return r.thread.joinable(); });
            if (next == all_.end())
                return;
            one = std::move(next->thread);
        }
        one.join();
    }
}

std::vector<std::string> work_threads::under_way() const
{
    const std::scoped_lock lock(mutex_);
    std::vector<std::string> names;
    for (const running& r : all_) {
        if (!r.work->done.load(std::memory_order_acquire))
            names.push_back(r.work->request->command->name);
    }
    return names;
}

} // namespace verbena::services
