// SPDX-License-Identifier: Apache-2.0
#include "fixture.hpp"

#include <verbena/core/task/combine.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <poll.h>

namespace verbena::testing::conformance {
namespace {

void must_be_alike(bool alike, const std::string& a, const std::string& b, const char* text, const char* file,
                   int line)
{
    if (!alike)
        must(false, (std::string(text) + " [" + a + ", " + b + "]").c_str(), file, line);
}

task<result<void>> as_result(task<void> t)
{
    co_await std::move(t);
    co_return result<void>();
}

// Whatever becomes of `body`.
task<void> note_end(task<void> body, bool& done, std::exception_ptr& failed)
{
    try {
        co_await std::move(body);
    } catch (...) {
        failed = std::current_exception();
    }
    done = true;
}

// Has children stop with the task that waits for them.
class stops_too final : public stop_listener {
public:
    explicit stops_too(scope& children) noexcept : children_(children) {}
    void on_stop() noexcept override { children_.request_stop(); }

private:
    scope& children_;
};

task<void> joined(scope& tasks) { co_await tasks.join(); }

// False: it was not readable for `limit`. A signal is no answer, so that a missed wake-up shows all the same.
bool becomes_readable(int fd, clock_source& clock, duration limit)
{
    const time_point end = clock.now() + limit;
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock.now()).count();
        pollfd one{fd, POLLIN, 0};
        const int found = ::poll(&one, 1, int(std::max<decltype(left)>(left, 0)));
        if (found >= 0 || errno != EINTR)
            return found == 1;
    }
}

} // namespace

void must(bool holds, const char* text, const char* file, int line)
{
    if (holds)
        return;
    if (const char* slash = std::strrchr(file, '/'))
        file = slash + 1;
    throw failure(std::string(file) + ":" + std::to_string(line) + ": " + text);
}

void must_equal(std::uint64_t a, std::uint64_t b, const char* text, const char* file, int line)
{
    must_be_alike(a == b, std::to_string(a), std::to_string(b), text, file, line);
}

void must_equal(status a, status b, const char* text, const char* file, int line)
{
    must_be_alike(a == b, std::string(verbs::to_string(a)), std::string(verbs::to_string(b)), text, file,
                  line);
}

void must_equal(const error& a, std::errc b, const char* text, const char* file, int line)
{
    must_be_alike(a == b, a.message(), std::make_error_code(b).message(), text, file, line);
}

void part(const std::string& name, const std::function<void()>& body)
{
    try {
        body();
    } catch (const failure& f) {
        throw failure(name + ": " + f.why);
    }
}

std::vector<std::byte> pattern(std::size_t n, std::size_t seed)
{
    std::vector<std::byte> v(n);
    std::byte* const at =
        v.data(); // much is made, and a call for each octet costs much where nothing is optimised
    for (std::size_t i = 0; i < n; ++i)
        at[i] = std::byte((i * 31 + i / 251 + seed) & 0xff);
    return v;
}

void recorder::on_completions(std::span<const verbs::completion> batch) noexcept
{
    for (const auto& c : batch) {
        expect(ends == 0, "a completion came after the end");
        seen.push_back(c);
        if (hook)
            hook(c);
    }
}

void recorder::on_disconnected(const error& cause) noexcept
{
    ++ends;
    why = cause;
}

void recorder::expect(bool holds, const char* text) noexcept
{
    if (!holds && complaint->empty())
        *complaint = text;
}

const verbs::completion* recorder::find(std::uint64_t id) const
{
    const auto i = std::ranges::find(seen, id, &verbs::completion::id);
    return i == seen.end() ? nullptr : &*i;
}

const verbs::completion& recorder::at(std::uint64_t id, int line, const char* file) const
{
    const verbs::completion* found = find(id);
    if (found == nullptr)
        must(false, ("request " + std::to_string(id) + " has no completion").c_str(), file, line);
    return *found;
}

std::size_t recorder::count(std::uint64_t id) const
{
    return std::size_t(std::ranges::count(seen, id, &verbs::completion::id));
}

std::vector<std::uint64_t> recorder::order(bool receives) const
{
    std::vector<std::uint64_t> ids;
    for (const auto& c : seen) {
        if ((c.opcode == opcode::receive) == receives)
            ids.push_back(c.id);
    }
    return ids;
}

task<memory> registered(verbs::protection_domain& d, std::vector<std::byte> content)
{
    auto made = co_await d.register_memory(content);
    VERBENA_MUST(made);
    co_return memory(std::move(content), std::move(*made));
}

task<memory> registered(verbs::protection_domain& d, std::size_t size)
{
    return registered(d, std::vector<std::byte>(size));
}

side::side(std::unique_ptr<verbs::context> c) : context(std::move(c))
{
    need(context != nullptr, "make_context() has made none");
    auto made = context->make_domain();
    VERBENA_MUST(made);
    domain = std::move(*made);
}

result<void> post(verbs::queue_pair& q, std::uint64_t id, opcode op, std::vector<verbs::segment> segments,
                  const verbs::remote_segment& remote, std::uint32_t invalidate, bool signalled)
{
    verbs::send_request w;
    w.id = id;
    w.opcode = op;
    w.signalled = signalled;
    w.segments = segments;
    w.remote_address = remote.address;
    w.remote_key = remote.key;
    w.invalidate_key = invalidate;
    return q.post_send({&w, 1});
}

result<void> post_receive(verbs::queue_pair& q, std::uint64_t id, const verbs::segment& s)
{
    const verbs::receive_request w{id, s};
    return q.post_receive({&w, 1});
}

fixture::fixture(subject& p)
    : under(p),
      server(under.make_context("server")),
      client(under.make_context("client")),
      over(check_time::end_for(p))
{
    auto l = server.context->listen(under.address());
    VERBENA_MUST(l);
    listener = std::move(*l);
    where = listener->local_url().substr(listener->local_url().find("://") + 3);
}

task<void> fixture::answer(connection& n, verbs::connect_options o)
{
    auto request = co_await with_timeout(waits_for_peer, listener->next());
    VERBENA_MUST(request);
    auto q = co_await (*request)->make_queue_pair(*server.domain, o.queue_pair);
    VERBENA_MUST(q);
    n.s = std::move(*q);
    n.s_seen.reports_to(complaint);
    n.s->set_handler(&n.s_seen);
    auto accepted = co_await (*request)->accept(o);
    VERBENA_MUST(accepted);
}

task<void> fixture::connect(connection& n, verbs::connect_options of_client, verbs::connect_options of_server)
{
    const auto answers = [&] { return answer(n, of_server); };
    const auto connects = [&]() -> task<void> {
        std::vector<std::byte> reply;
        auto q = co_await client.context->connect(where, *client.domain, of_client, reply);
        VERBENA_MUST(q);
        n.c = std::move(*q);
        n.c_seen.reports_to(complaint);
        n.c->set_handler(&n.c_seen);
    };
    co_await beside(answers, connects);
}

task<void> fixture::beside(const std::function<task<void>()>& child, const std::function<task<void>()>& body)
{
    const task_context& context = co_await current_context();
    scope children(shard());
    stops_too link(children);
    if (!context.stop.subscribe(link))
        children.request_stop();
    children.spawn([&child] { return child(); });
    std::exception_ptr ours;
    std::exception_ptr theirs;
    try {
        co_await body();
    } catch (...) {
        ours = std::current_exception();
    }
    const bool child_was_first = children.live() == 0;
    if (ours)
        children.request_stop();
    try {
        co_await children.join();
    } catch (...) {
        theirs = std::current_exception();
    }
    if (theirs && (!ours || child_was_first))
        std::rethrow_exception(theirs);
    if (ours)
        std::rethrow_exception(ours);
}

task<void> fixture::until(const std::function<bool()>& done, int line, const char* file)
{
    for (int i = 0; i < patience && !done(); ++i)
        co_await sleep_for(1ms);
    must(done(), "what must happen has not happened for 5 s", file, line);
}

task<void> fixture::both_ended(connection& n, int line, const char* file)
{
    for (int i = 0; i < patience && (n.c_seen.ends == 0 || n.s_seen.ends == 0); ++i)
        co_await sleep_for(1ms);
    // Long enough for a second end to show.
    co_await sleep_for(5ms);
    must_equal(n.c_seen.ends, 1u, "the client's end is told once", file, line);
    must_equal(n.s_seen.ends, 1u, "the server's end is told once", file, line);
}

void fixture::run(const std::function<task<void>()>& body)
{
    std::string late;
    try {
        const auto ended = run_until_complete(shard(), with_timeout(left(), as_result(body())));
        need(ended, "the check");
    } catch (const failure& f) {
        if (!is_over())
            throw;
        late = ": " + f.why;
    }
    need(!is_over(), "the check's time is over" + late);
    need(complaint.empty(), complaint);
}

void fixture::run_nested(const std::function<task<void>()>& body)
{
    const auto fd = shard().native_handle();
    VERBENA_MUST(fd);
    bool done = false;
    std::exception_ptr failed;
    scope tasks(shard());
    tasks.spawn([&] { return note_end(body(), done, failed); });
    constexpr duration silence = std::chrono::seconds(60);
    std::string stuck;
    while (!done && stuck.empty()) {
        if (shard().try_arm()) {
            const auto next = shard().timers().next();
            if (!shard().clock().is_virtual()) {
                if (!becomes_readable(*fd, shard().clock(), std::min(silence, left())) && !is_over())
                    stuck = "a host loop has waited 60 s for the shard's descriptor";
            } else if (next)
                shard().clock().advance_to(*next);
            else
                stuck = "nothing can happen any more, and a host loop waits";
        }
        shard().poll();
        // The provider may have a timer that arms itself for ever.
        if (is_over())
            stuck = "the check's time is over in a host loop";
    }
    if (!done)
        tasks.request_stop();
    run_until_complete(shard(), joined(tasks));
    need(stuck.empty(), stuck);
    if (failed)
        std::rethrow_exception(failed);
    need(complaint.empty(), complaint);
}

} // namespace verbena::testing::conformance
