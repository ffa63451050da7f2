// SPDX-License-Identifier: Apache-2.0
// Threads that work for what a test's reactor waits for.
#pragma once

#include <verbena/core/reactor/reactor.hpp>

#include <thread>

namespace verbena::test {

/// Threads work for the back end: until they have, virtual time stands still, and nobody finds that there is nothing left to do.
class busy_threads final : public event_source {
public:
    bool poll() noexcept override
    {
        std::this_thread::yield();
        return false;
    }
    bool pending() const noexcept override { return true; }
};

} // namespace verbena::test
