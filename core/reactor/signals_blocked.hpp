// SPDX-License-Identifier: Apache-2.0
// Signals are for the program's own threads: a thread that is started while this lives blocks them all, as threads inherit the mask.
#pragma once

#include <csignal>
#include <pthread.h>

namespace verbena::detail {

class signals_blocked {
public:
    signals_blocked() noexcept
    {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~signals_blocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    signals_blocked(const signals_blocked&) = delete;

private:
    sigset_t before_;
};

} // namespace verbena::detail
