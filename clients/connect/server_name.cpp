// SPDX-License-Identifier: Apache-2.0
#include <verbena/clients/server_name.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/reactor/own_threads.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/left_behind.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

namespace verbena::rpc {

// Who asks may go before the resolver answers, so that this is of both.
struct server_name::question {
    question(std::string n, name_look_up f, blocking_pool& l)
        : name(std::move(n)), look_up(std::move(f)), lane(l)
    {
    }
    const std::string name;
    const name_look_up look_up;
    blocking_pool& lane;
    result<std::vector<net::endpoint>> found = error(std::errc::operation_canceled);
    event answered;
    std::atomic<bool> given_up{false}; // who asked has gone
    std::atomic<bool> begun{false};
};

server_name::server_name(reactor& shard, std::string name, duration limit, name_look_up look_up)
    : shard_(shard), name_(std::move(name)), limit_(limit), look_up_(std::move(look_up))
{
}

server_name::~server_name()
{
    if (question_)
        question_->given_up = true;
}

task<void> server_name::ask(std::shared_ptr<question> q)
{
    auto look = [&q = *q]() -> result<std::vector<net::endpoint>> {
        if (q.given_up) // what look_up refers to may be gone
            return error(std::errc::operation_canceled);
        q.begun = true;
        return q.look_up ? q.look_up(q.name) : net::resolve(q.name);
    };
    try {
        q->found = co_await q->lane.try_run(std::move(look));
    } catch (...) {
        q->found = error_of(std::current_exception(), "an exception left the look-up of a server's name");
    }
    q->answered.set();
}

// The job can't be recalled, so that a shard's end may take as long as the resolver does.
task<void> server_name::tell_of_wait(std::shared_ptr<question> q)
{
    const bool answered = co_await q->answered.wait();
    if (!answered && q->begun)
        log(log_level::warning, "rpc",
            "a shard ends when the look-up of a server's name has, which can't be recalled: do its name "
            "servers answer?",
            {{"name", q->name}});
}

task<result<void>> server_name::answer_to(std::shared_ptr<question> q)
{
    const bool answered = co_await q->answered.wait();
    if (!answered)
        co_return error(std::errc::operation_canceled);
    co_return result<void>();
}

result<std::vector<std::string>> server_name::known_or(const error& e) const
{
    if (known_.empty())
        return e;
    return known_;
}

task<result<std::vector<std::string>>> server_name::find()
{
    if (net::endpoint::parse(name_) || name_.starts_with('[')) { // no name stands in brackets
        known_.assign(1, name_);
        co_return known_;
    }
    if (question_ && question_->answered.is_set())
        question_.reset(); // nobody knows how old that is
    if (!question_) {
        const auto threads = own_threads_of(shard_);
        if (!threads)
            co_return known_or(threads.error());
        auto asked = std::make_shared<question>(name_, look_up_, (*threads)->names);
        left_behind(shard_).spawn(already_made, ask(asked));
        left_behind(shard_).spawn(already_made, tell_of_wait(asked));
        question_ = std::move(asked);
    }
    const std::shared_ptr<question> q = question_;
    const duration most = known_.empty() ? limit_ : std::min(limit_, patience);
    const auto waited = co_await with_timeout(most, answer_to(q));
    const task_context& context = co_await current_context();
    if (context.stop.stop_requested())
        co_return error(std::errc::operation_canceled);
    if (!waited)
        co_return known_or(error(std::errc::timed_out,
                                 "the look-up of the server's name takes too long: do its "
                                 "name servers answer?"));
    if (question_ == q) // else another one asked anew meanwhile
        question_.reset();
    if (!q->found)
        co_return known_or(q->found.error());
    if (q->found->empty())
        co_return known_or(error(std::errc::address_not_available, "the name has no address"));
    std::vector<std::string> all;
    for (const net::endpoint& e : *q->found) {
        if (all.size() == max_addresses)
            break;
        all.push_back(e.to_string());
    }
    known_ = std::move(all);
    co_return known_;
}

void server_name::connected(const std::string& address) noexcept
{
    try {
        address_ = address;
    } catch (...) { // std::bad_alloc: it is told to people alone
        address_.clear();
    }
}

} // namespace verbena::rpc
