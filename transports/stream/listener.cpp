// SPDX-License-Identifier: Apache-2.0
#include <verbena/transports/stream.hpp>

#include <verbena/core/net/refusals.hpp>
#include <verbena/core/task/exception.hpp>

#include <cerrno>
#include <new>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

namespace verbena::stream {

listener::listener(reactor& shard, net::unique_fd fd, const net::endpoint& where, handler h,
                   const listener_options& options)
    : io_watch(shard, fd.get(), 0),
      fd_(std::move(fd)),
      where_(where),
      handler_(std::move(h)),
      options_(options)
{
}

listener::~listener()
{
    stop(); // before fd_ closes the descriptor
}

result<std::unique_ptr<listener>> listener::open(reactor& shard, const net::endpoint& where, handler h,
                                                 const listener_options& options)
{
    auto fd = net::open_listener(where, options.socket);
    if (!fd)
        return fd.error();
    const auto bound = net::endpoint::local(fd->get());
    if (!bound)
        return bound.error();
    std::unique_ptr<listener> l(new listener(shard, std::move(*fd), *bound, std::move(h), options));
    l->want_read(true);
    return l;
}

std::string listener::local_url() const { return "tcp://" + where_.to_string(); }

// The connection stays in the queue, so the listener would be readable for ever: wait until somebody has closed something.
void listener::wait() noexcept
{
    stats_.exhausted.add();
    shard().timers().arm(resume_, shard().now() + pause);
    want_read(false);
}

void listener::spare_descriptor::take() noexcept
{
    if (fd_ < 0)
        fd_ = ::eventfd(0, EFD_CLOEXEC);
}

void listener::spare_descriptor::give_up() noexcept
{
    if (fd_ >= 0)
        ::close(std::exchange(fd_, -1));
}

// Somebody waits, and there is no descriptor. A pause that ended long ago was another one's.
bool listener::is_patience_over() noexcept
{
    const time_point now = shard().now();
    if (!full_since_ || now - *last_full_ > options_.patience)
        full_since_ = now;
    last_full_ = now;
    return now - *full_since_ >= options_.patience;
}

// The one that waits longest. False: nobody waits any more, or there is no descriptor to hear who does.
bool listener::turn_away() noexcept
{
    const auto next = net::accept(fd_.get());
    if (!next)
        return false;
    try {
        rlimit of_process{};
        (void)::getrlimit(RLIMIT_NOFILE, &of_process);
        const std::string said = "of which connections may have " + std::to_string(options_.max_descriptors);
        tell_refusal(verbena::refused::connection_descriptors,
                     {.peer = next->peer.address(),
                      .object = where_.to_string(),
                      .most = of_process.rlim_cur,
                      .said = options_.max_descriptors == SIZE_MAX ? std::string_view() : said});
    } catch (const std::bad_alloc&) {
        count_refusal(verbena::refused::connection_descriptors);
    }
    return true;
}

bool listener::turn_away_by_spare() noexcept
{
    if (!spare_.is_there())
        return false;
    spare_.give_up();
    const bool is_done = turn_away();
    spare_.take(); // or at the next accept that finds one
    return is_done;
}

bool listener::on_readable() noexcept
{
    for (int n = 0; n < max_accepts_per_poll; ++n) {
        if (net::unique_fd::held() >= options_.max_descriptors) {
            if (is_patience_over() && (turn_away() || turn_away_by_spare()))
                continue;
            wait();
            return true;
        }
        auto next = net::accept(fd_.get());
        if (!next) {
            const int code = next.error().errno_value();
            if (code == EAGAIN || code == EWOULDBLOCK)
                return n > 0;
            if ((code == EMFILE || code == ENFILE) && is_patience_over() && turn_away_by_spare())
                continue;
            wait();
            return true;
        }
        full_since_.reset();
        spare_.take();
        if (!net::set_no_delay(next->fd.get()) || !net::set_keep_alive(next->fd.get(), options_.keep_alive)) {
            stats_.failed.add(); // the peer has gone already
            continue;
        }
        stats_.accepted.add();
        try {
            handler_(std::move(next->fd), next->peer);
        } catch (...) {
            stats_.failed.add();
            log_limited(failed_log_, log_level::error, "stream",
                        "an exception kept a connection from being taken",
                        {{"peer", next->peer.address()}, {"exception", what_of(std::current_exception())}});
        }
    }
    return true;
}

metric_registrations expose(metric_registry& registry, const listener_stats& s)
{
    metric_group group(registry);
    group.add({"verbena_listener_failures_total",
               "Connections lost while they were accepted, and pauses because descriptors or "
               "memory ran out or connections have their share of descriptors.",
               metric_type::counter,
               "failures",
               {"reason"},
               2},
              [&s](metric_sink& out) {
                  out.value({"lost"}, value_of(s.failed));
                  out.value({"exhausted"}, value_of(s.exhausted));
              });
    return group.take();
}

} // namespace verbena::stream
