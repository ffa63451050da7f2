// SPDX-License-Identifier: Apache-2.0
#include "wake_descriptor.hpp"

#include <verbena/core/reactor/io_watch.hpp>

#include <algorithm>
#include <cerrno>
#include <sys/timerfd.h>
#include <unistd.h>

namespace verbena {

result<std::unique_ptr<wake_descriptor>> wake_descriptor::create(int eventfd)
{
    net::unique_fd epoll(::epoll_create1(EPOLL_CLOEXEC));
    if (!epoll)
        return error::from_errno(errno, "epoll_create1");
    net::unique_fd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!timer)
        return error::from_errno(errno, "timerfd_create");
    const int timer_fd = timer.get();
    std::unique_ptr<wake_descriptor> made(new wake_descriptor(std::move(epoll), std::move(timer), eventfd));
    if (!made->add(eventfd, EPOLLIN, &made->eventfd_) || !made->add(timer_fd, EPOLLIN, &made->timer_))
        return error::from_errno(errno, "epoll_ctl");
    return made;
}

bool wake_descriptor::readable_at(std::optional<time_point> when, time_point now) noexcept
{
    // Setting it also takes back an expiry: nobody reads the timer.
    if (when == set_)
        return true;
    itimerspec spec{};
    if (when) {
        // Relative: the reactor's clock need not be the kernel's. All zero would mean never.
        const auto left = std::max<std::chrono::nanoseconds>(*when - now, std::chrono::nanoseconds(1));
        spec.it_value.tv_sec = left.count() / 1'000'000'000;
        spec.it_value.tv_nsec = left.count() % 1'000'000'000;
    }
    if (::timerfd_settime(timer_.get(), 0, &spec, nullptr) != 0)
        return false;
    set_ = when;
    return true;
}

// Level-triggered: what stays readable wakes again, and nothing has to be armed anew after each event.
bool wake_descriptor::add(int fd, io_watch& watch) noexcept { return add(fd, EPOLLIN | EPOLLRDHUP, &watch); }

bool wake_descriptor::add(int fd, unsigned events, void* what) noexcept
{
    epoll_event e{};
    e.events = events;
    e.data.ptr = what;
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &e) == 0;
}

void wake_descriptor::remove(int fd) noexcept { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void wake_descriptor::clear_eventfd() noexcept
{
    std::uint64_t count = 0;
    [[maybe_unused]] const auto n = ::read(eventfd_, &count, sizeof count);
}

} // namespace verbena
