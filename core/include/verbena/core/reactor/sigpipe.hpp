// SPDX-License-Identifier: Apache-2.0
// System calls that raise SIGPIPE and can't be told not to.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>

#pragma GCC visibility push(default)

namespace verbena {

/// While it lives, a SIGPIPE that this thread's system calls raise ends no process: it is taken at the end. Leaves errno as
/// it is. Two system calls, and one more where a signal may have come.
class sigpipe_guard {
public:
    /// Whether what the thread does meanwhile can raise SIGPIPE, and how one knows that it did.
    enum class comes : std::uint8_t {
        never,      ///< does nothing
        with_epipe, ///< a signal came if errno is EPIPE at the end
        silently,   ///< errno tells nothing
    };
    /// Blocks SIGPIPE for the calling thread, which also destroys the guard.
    explicit sigpipe_guard(comes how = comes::with_epipe) noexcept : how_(how)
    {
        if (how_ == comes::never)
            return;
        ::sigemptyset(&pipe_);
        ::sigaddset(&pipe_, SIGPIPE);
        ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    sigpipe_guard(const sigpipe_guard&) = delete;
    sigpipe_guard& operator=(const sigpipe_guard&) = delete;
    ~sigpipe_guard()
    {
        if (how_ == comes::never)
            return;
        const int why = errno;
        if (::sigismember(&before_, SIGPIPE) == 0) {
            const timespec at_once{};
            if (how_ == comes::silently || why == EPIPE)
                ::sigtimedwait(&pipe_, nullptr, &at_once);
            ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        }
        errno = why;
    }

private:
    comes how_;
    sigset_t pipe_;
    sigset_t before_;
};

} // namespace verbena

#pragma GCC visibility pop
