// SPDX-License-Identifier: Apache-2.0
// Works that end one service, each on a thread of its own while there are any.
#pragma once

#include <exception>
#include <future>
#include <system_error>
#include <utility>
#include <vector>

namespace verbena::services {

/// Begins `work` beside those of `all`. Where the system gives no thread (TasksMax=), it is done by who waits for it, in its
/// turn: a stop takes longer then, and ends all the same.
template<class Work>
void begin_beside(std::vector<std::future<void>>& all, Work work)
{
    try {
        all.push_back(std::async(std::launch::async, work));
    } catch (const std::system_error&) {
        all.push_back(std::async(std::launch::deferred, std::move(work)));
    }
}

/// Waits for all of them, and for those that stand behind one that failed, too. Throws what the first that failed threw.
inline void end_all(std::vector<std::future<void>>& all)
{
    std::exception_ptr failed;
    for (std::future<void>& each : all) {
        try {
            each.get();
        } catch (...) {
            if (!failed)
                failed = std::current_exception();
        }
    }
    if (failed)
        std::rethrow_exception(failed);
}

} // namespace verbena::services
