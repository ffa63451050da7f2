// SPDX-License-Identifier: Apache-2.0
// What a host loop watches for a reactor that is nested in it: one descriptor that is readable when a message, a completion of
// the ring, something to read or the next timer is there.
//
// It is an epoll descriptor. The ring alone would not do: with DEFER_TASKRUN its eventfd is the only thing that tells a thread
// which waits elsewhere, and the kernel does not write to it from within a write to another eventfd (measured,
// docs/internals/reactor.md). So what a nested reactor wants to read is watched here.
#pragma once

#include <verbena/core/net/net.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/reactor/io_watch.hpp>
#include <verbena/core/result.hpp>

#include <array>
#include <memory>
#include <optional>
#include <sys/epoll.h>

namespace verbena {

/// Made lazily, by reactor::native_handle(). The reactor's thread only.
class wake_descriptor {
public:
    /// Watches `eventfd` too, to which other threads and the ring write. It stays the caller's and must outlive this. Fails as
    /// epoll_create1(2), epoll_ctl(2) and timerfd_create(2) do.
    static result<std::unique_ptr<wake_descriptor>> create(int eventfd);

    int get() const noexcept { return epoll_.get(); }
    /// From `when` on get() is readable, until another time is set; nullopt: no time makes it so. `now` is before `when`.
    /// A system call only where the time changes. False if the kernel refuses it.
    bool readable_at(std::optional<time_point> when, time_point now) noexcept;
    /// get() is readable while `fd` is, until remove(). False where epoll can't watch it: a file, a second watch of one
    /// descriptor, no memory.
    bool add(int fd, io_watch& watch) noexcept;
    void remove(int fd) noexcept;
    /// Calls ready(watch) for those that are readable, not all of very many, and empties the eventfd. True if any was.
    template<class Ready>
    bool look(Ready ready) noexcept
    {
        std::array<epoll_event, 64> found;
        const int n = ::epoll_wait(epoll_.get(), found.data(), int(found.size()), 0);
        for (int i = 0; i < n; ++i) {
            void* const what = found[std::size_t(i)].data.ptr;
            if (what == &eventfd_)
                clear_eventfd();
            else if (what != &timer_)
                ready(*static_cast<io_watch*>(what));
        }
        return n > 0;
    }

private:
    wake_descriptor(net::unique_fd epoll, net::unique_fd timer, int eventfd) noexcept
        : epoll_(std::move(epoll)), timer_(std::move(timer)), eventfd_(eventfd)
    {
    }
    bool add(int fd, unsigned events, void* what) noexcept;
    void clear_eventfd() noexcept;

    net::unique_fd epoll_;
    net::unique_fd timer_;
    int eventfd_;
    std::optional<time_point> set_;
};

} // namespace verbena
