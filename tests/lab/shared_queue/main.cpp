// SPDX-License-Identifier: Apache-2.0
// shared_queue DEVICE: makes a shared receive queue there, with receives that stand, says `ready`, and keeps it until it
// learns that the device has gone; then it makes one on the device that takes its place, and says `again`.
#include <verbena/core/blocking.hpp>
#include <verbena/core/scope.hpp>
#include <verbena/core/sleep.hpp>
#include <verbena/transports/rdma.hpp>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

using namespace verbena;

namespace {

constexpr std::uint32_t depth = 64;
constexpr std::size_t bytes = 256;
constexpr auto patience = std::chrono::seconds(100);
constexpr auto pause = std::chrono::milliseconds(20);

template<class T>
void must(const result<T>& r, const char* what)
{
    if (!r)
        throw std::runtime_error(std::string(what) + ": " + r.error().message());
}

void say(const char* word)
{
    std::puts(word);
    std::fflush(stdout);
}

struct user {
    explicit user(rdma::context& c) : domain(c.make_domain()), memory(bytes * depth) {}

    task<result<void>> prepare()
    {
        must(domain, "a domain");
        verbs::shared_receive_queue_options o;
        o.depth = depth;
        auto queue = co_await (*domain)->make_shared_receive_queue(o);
        if (!queue)
            co_return queue.error();
        shared = std::move(*queue);
        auto made = co_await (*domain)->register_memory(memory);
        must(made, "memory");
        region = std::move(*made);
        for (std::uint32_t i = 0; i + 1 < depth; ++i)
            must(post(i), "a receive");
        co_return result<void>();
    }
    result<void> post(std::uint32_t i)
    {
        const verbs::receive_request r{i, {&memory[i * bytes], bytes, region->local_key()}};
        return shared->post_receive({&r, 1});
    }

    result<std::unique_ptr<verbs::protection_domain>> domain;
    std::vector<std::byte> memory;
    std::unique_ptr<verbs::region> region;
    std::unique_ptr<verbs::shared_receive_queue> shared;
};

task<void> run(rdma::context& c)
{
    user first(c);
    const auto ready = co_await first.prepare();
    must(ready, "a shared receive queue");
    say("ready");
    const time_point deadline = c.shard().clock().now() + patience;
    // Its memory may stay where it is; nothing else tells a user without connections.
    const auto over = [&c, deadline] { return c.shard().clock().now() >= deadline; };
    const auto& removed = c.counters().device_events[std::size_t(rdma::device_event::removed)];
    while (removed.load() == 0 && !over())
        co_await sleep_for(pause);
    const auto refused = first.post(depth - 1);
    say("gone");
    for (;;) {
        user second(c);
        const auto again = co_await second.prepare();
        if (again)
            break;
        if (over())
            must(again, "a shared receive queue on the device that came back");
        co_await sleep_for(pause);
    }
    // Told now: the end of this program lets the device go whatever else does.
    if (refused || refused.error() != std::errc::no_such_device)
        throw std::runtime_error("a receive is posted to a device that is gone");
    say("again");
}

} // namespace

int main(int argc, char** argv)
{
    if (argc != 2) {
        std::fprintf(stderr, "shared_queue: DEVICE\n");
        return 2;
    }
    try {
        auto shard = reactor::create();
        must(shard, "a shard");
        blocking_pool pool(2);
        rdma::options o;
        o.device = argv[1];
        const auto context = rdma::make_context(**shard, pool, o);
        must(context, "the device");
        run_until_complete(**shard, run(**context));
    } catch (const std::exception& e) {
        std::fprintf(stderr, "shared_queue: %s\n", e.what());
        return 1;
    }
    return 0;
}
