// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/reactor/shard.hpp>

#include <verbena/core/reactor/request_list.hpp>
#include <verbena/core/task/already_made.hpp>

namespace verbena {
namespace {

// What a request does here that another shard serves: who lists them sees by its name what it waits for there.
class part_of_request final : public listed_request {
public:
    part_of_request(std::uint64_t trace, unsigned home) noexcept : trace_(trace), home_(home) {}
    void report(request_report& into) const noexcept override
    {
        into.trace = trace_;
        into.protocol.append("shard");
        into.operation.append("for shard ").append(home_);
    }

private:
    const std::uint64_t trace_;
    const unsigned home_;
};

} // namespace

shard_stopped::shard_stopped() : std::runtime_error("shard::run: the shard had been asked to stop") {}

namespace detail {

void remote_run::leave(std::coroutine_handle<> h, const task_context& context) noexcept
{
    handle_ = h;
    home_ = context.shard;
    deadline_ = context.deadline;
    trace_id_ = context.trace_id;
    const bool stopped = !context.stop.subscribe(listener_);
    shard_.post_remote(there_);
    if (stopped)
        pass_the_stop_on();
}

void remote_run::pass_the_stop_on() noexcept
{
    stop_sent_ = true;
    shard_.post_remote(stop_);
}

void remote_run::came_back() noexcept
{
    listener_.unlink();
    if (!stop_sent_ || stop_taken_)
        go_on();
}

void remote_run::stop_came_back() noexcept { go_on(); }

void remote_run::go_on() noexcept
{
    mark_.clear();
    home_->post(handle_);
}

// Not here: a coroutine is never resumed inside a poll.
void remote_run::arrived() noexcept { shard_.post(start_); }

void remote_run::begin() noexcept
{
    if (tasks_.stop_requested()) {
        refused_ = true;
        go_home();
        return;
    }
    try {
        tasks_.spawn(already_made, serve());
    } catch (...) {
        failure_ = std::current_exception();
        go_home();
    }
}

task<void> remote_run::serve()
{
    part_of_request part(trace_id_, home_->index());
    served_by here(part);
    if (trace_id_ != 0) {
        shard_.requests().begin(part);
        part.may_take_long(); // the request itself is told of
        co_await here;
    }
    try {
        task_context context = co_await current_context();
        context.deadline = deadline_;
        context.trace_id = trace_id_;
        linked_scope running(context);
        if (stop_taken_)
            running.get().request_stop();
        running_ = &running.get();
        running.get().spawn(&remote_run::body, this);
        co_await running.get().join();
    } catch (...) {
        failure_ = std::current_exception();
    }
    running_ = nullptr;
    go_home();
}

void remote_run::stop_arrived() noexcept
{
    if (ended_) {
        home_->post_remote(late_stop_);
        return;
    }
    stop_taken_ = true;
    if (running_ != nullptr)
        running_->request_stop();
}

void remote_run::go_home() noexcept
{
    ended_ = true;
    home_->post_remote(back_); // and may be gone
}

} // namespace detail

} // namespace verbena
