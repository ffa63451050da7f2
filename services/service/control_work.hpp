// SPDX-License-Identifier: Apache-2.0
// Commands of the control plane that wait (control_command::work), each on a thread of its own. docs/internals/control.md.
#pragma once

#include "control_request.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

namespace verbena::services {

/// One that was begun.
struct control_work {
    std::shared_ptr<const control_request> request;
    std::chrono::steady_clock::time_point since;
    std::atomic<bool> done{false};
    // Its thread's until it is done.
    control_answer answer;
    std::optional<std::string> failure;
};

/// Any thread, except where it says so.
class work_threads {
public:
    static constexpr std::size_t most = 8; ///< at once

    work_threads() = default;
    work_threads(const work_threads&) = delete;
    ~work_threads() { finish(); }

    /// Begins the request's work, and calls `wake` on its thread when it is done. That thread blocks the signals that the calling one does. Refuses a command that is under way already, one that is
    /// one too many, and all after stop().
    std::variant<std::shared_ptr<control_work>, control_refusal>
    begin(std::shared_ptr<const control_request> request, std::function<void()> wake);
    /// Asks all that are under way to end soon; none begins any more.
    void stop() noexcept;
    /// stop(), and waits for them: for as long as what they wait for takes. One thread.
    void finish() noexcept;
    /// Names of those that are not done.
    std::vector<std::string> under_way() const;

private:
    struct running {
        std::shared_ptr<control_work> work;
        std::jthread thread;
    };
    std::optional<control_refusal> why_not(const control_command& c) const;

    mutable std::mutex mutex_;
    std::list<running> all_; // those that are done go when the next one begins
    bool stopped_ = false;
};

} // namespace verbena::services
