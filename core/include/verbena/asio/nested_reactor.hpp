// SPDX-License-Identifier: Apache-2.0
// nested_reactor: a reactor in an io_context, so that a program of Asio's needs no second thread for it.
//
//     asio::io_context io;
//     auto shard = verbena::reactor::create().value();
//     verbena::nested_reactor nested(io, *shard);
//     io.run();
#pragma once

#include <verbena/asio/context.hpp>
#include <verbena/core/reactor/reactor.hpp>

#include <asio/error_code.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>

#include <cassert>
#include <memory>
#include <system_error>

#pragma GCC visibility push(default)

namespace verbena {

namespace detail {

/// What the handlers share with it, which may run after it.
class nested_reactor_state final : public std::enable_shared_from_this<nested_reactor_state>,
                                   public asio_guest {
public:
    nested_reactor_state(::asio::io_context& io, reactor& r)
        : reactor_(r), context_(asio_context_of(io)), readable_(io)
    {
        const auto fd = r.native_handle();
        if (!fd)
            throw std::system_error(fd.error().code(), fd.error().context());
        readable_.assign(*fd);
        context_->enter(r, *this);
    }
    void wake() noexcept override
    {
        if (posted_ || closed_)
            return;
        posted_ = true;
        ::asio::post(readable_.get_executor(), [self = shared_from_this()] { self->turn(); });
    }
    void close() noexcept
    {
        if (closed_)
            return;
        closed_ = true;
        context_->leave(*this);
        // Ends the wait. The descriptor is the reactor's.
        readable_.release();
    }

private:
    void turn()
    {
        posted_ = false;
        if (closed_)
            return;
        assert(reactor_.on_its_thread() && "an io_context with a nested_reactor is run by another thread");
        reactor_.poll();
        if (closed_) // by one of its tasks
            return;
        if (!reactor_.try_arm()) {
            wake();
        } else if (!waiting_) {
            waiting_ = true;
            readable_.async_wait(::asio::posix::stream_descriptor::wait_read,
                                 [self = shared_from_this()](const std::error_code&) {
                                     self->waiting_ = false;
                                     self->turn();
                                 });
        }
    }

    reactor& reactor_;
    const std::shared_ptr<asio_context> context_;
    ::asio::posix::stream_descriptor readable_;
    bool waiting_ = false; // for readable_
    bool posted_ = false;  // a turn
    bool closed_ = false;
};

} // namespace detail

/// Runs the turns of a reactor as handlers of an io_context, which sleeps for both. The reactor's policy does not matter.
///
/// What runs in the io_context meets it by use_task and async_run(), at no system call for a hop, and by shard_context. A handler
/// that uses the reactor otherwise (spawns a task, arms a timer) calls wake() afterwards.
///
/// All of it on the reactor's thread, which alone runs the io_context. Reactor and io_context outlive it. As an acceptor does, it keeps
/// io_context::run() from returning, until close() or io_context::stop().
class nested_reactor {
public:
    /// Throws std::system_error as reactor::native_handle() and asio::posix::stream_descriptor fail.
    nested_reactor(::asio::io_context& io, reactor& r)
        : state_(std::make_shared<detail::nested_reactor_state>(io, r))
    {
        wake();
    }
    nested_reactor(const nested_reactor&) = delete;
    ~nested_reactor() { close(); }

    /// The reactor was given something to do outside its turn, which it gets soon.
    void wake() noexcept { state_->wake(); }
    /// The reactor is nested no more; its own loop, or another nesting, may go on with it. In a task of the reactor too.
    void close() noexcept { state_->close(); }

private:
    const std::shared_ptr<detail::nested_reactor_state> state_;
};

} // namespace verbena

#pragma GCC visibility pop
