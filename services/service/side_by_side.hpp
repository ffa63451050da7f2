// SPDX-License-Identifier: Apache-2.0
// Works that end one service, each on a thread of its own while there are any.
#pragma once

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

} // namespace verbena::services
