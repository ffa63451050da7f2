// SPDX-License-Identifier: Apache-2.0
// Raw verbs over iwarp between two processes.
//   iwarp_perf serve HOST:PORT POLICY CRC                              echoes Sends, grants memory to Writes
//   iwarp_perf pingpong HOST:PORT POLICY CRC SIZE ITERATIONS           Sends there and back
//   iwarp_perf write HOST:PORT POLICY CRC SIZE DEPTH WORKING_SET SECONDS   a stream of RDMA Writes
// POLICY: busy, adaptive or event. CRC: on or off. The clients print one line of JSON.
#include <verbena/core/task/scope.hpp>
#include <verbena/transports/iwarp.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using namespace verbena;
using clock_type = std::chrono::steady_clock;

namespace {

constexpr std::size_t granted = std::size_t(64) << 20;
constexpr std::size_t largest_send = std::size_t(1) << 20;
constexpr unsigned receives = 4;

[[noreturn]] void fail(const char* what, const std::string& why)
{
    std::fprintf(stderr, "iwarp_perf: %s: %s\n", what, why.c_str());
    std::exit(1);
}

template<class T>
T take(result<T> r, const char* what)
{
    if (!r)
        fail(what, r.error().message());
    return std::move(*r);
}

void must(const result<void>& r, const char* what)
{
    if (!r)
        fail(what, r.error().message());
}

// Notes what happened and wakes the coroutine that waits for it.
struct end final : verbs::completion_handler {
    void on_completions(std::span<const verbs::completion> batch) noexcept override
    {
        for (const auto& c : batch) {
            if (c.status != verbs::status::success)
                continue; // on_disconnected follows
            if (c.opcode == verbs::opcode::receive) {
                arrived.push_back(c);
            } else {
                ++sent;
            }
        }
        changed.set();
    }
    void on_disconnected(const error&) noexcept override
    {
        gone = true;
        changed.set();
    }
    void post_receive(std::size_t slot) const
    {
        const verbs::receive_request r{
            slot, {const_cast<std::byte*>(in.data()) + slot * slot_size, std::uint32_t(slot_size), 0}};
        must(qp->post_receive({&r, 1}), "post_receive");
    }
    void post_send(std::span<std::byte> bytes) const
    {
        const verbs::segment s{bytes.data(), std::uint32_t(bytes.size()), 0};
        verbs::send_request w;
        w.segments = {&s, 1};
        must(qp->post_send({&w, 1}), "post_send");
    }
    void prepare(std::size_t size)
    {
        slot_size = size;
        in.resize(size * receives);
        for (std::size_t i = 0; i < receives; ++i)
            post_receive(i);
    }

    std::unique_ptr<verbs::queue_pair> qp;
    std::vector<std::byte> in;
    std::size_t slot_size = 0;
    std::vector<verbs::completion> arrived;
    std::uint64_t sent = 0;
    event changed;
    bool gone = false;
};

struct where_to_write {
    std::uint64_t address;
    std::uint32_t key;
    std::uint32_t length;
};

task<void> echo(std::unique_ptr<verbs::connect_request> request, verbs::protection_domain& domain,
                std::span<std::byte> memory)
{
    end e;
    e.qp = take(co_await request->make_queue_pair(domain, verbs::queue_pair_options()), "make_queue_pair");
    e.qp->set_handler(&e);
    e.prepare(largest_send);
    auto g = take(co_await domain.make_grant(memory, verbs::access::remote_write, e.qp.get()), "make_grant");
    const auto range = g.where();
    const where_to_write told{range.address, range.key, range.length};
    verbs::connect_options o;
    o.private_data = std::as_bytes(std::span(&told, 1));
    const auto accepted = co_await request->accept(o);
    must(accepted, "accept");
    std::vector<verbs::completion> now;
    std::size_t unposted = receives;
    while (!e.gone) {
        co_await e.changed.wait();
        e.changed.reset();
        now.swap(e.arrived);
        for (const auto& c : now) {
            // The slot before last was echoed long ago: at most one Send is under way per peer.
            if (e.gone)
                break;
            e.post_send(std::span(e.in).subspan(c.id * e.slot_size, c.length));
            if (unposted != receives)
                e.post_receive(unposted);
            unposted = c.id;
        }
        now.clear();
    }
}

task<void> serve(iwarp::context& context, std::string address)
{
    auto domain = take(context.make_domain(), "make_domain");
    auto listener = take(context.listen(address), "listen");
    std::vector<std::byte> memory(granted);
    std::printf("%s\n", listener->local_url().c_str());
    std::fflush(stdout);
    for (;;) {
        auto request = co_await listener->next();
        co_await echo(take(std::move(request), "next"), *domain, memory);
    }
}

struct options {
    std::string command, address;
    wait_policy policy = wait_policy::busy;
    iwarp::options iwarp;
    std::size_t size = 0, count = 0, working_set = 0;
    double seconds = 0;
};

task<void> load(iwarp::context& context, options o)
{
    auto domain = take(context.make_domain(), "make_domain");
    end e;
    verbs::connect_options c;
    std::vector<std::byte> reply;
    auto connected = co_await context.connect(o.address, *domain, c, reply);
    e.qp = take(std::move(connected), "connect");
    e.qp->set_handler(&e);
    where_to_write to{};
    if (reply.size() < sizeof to)
        fail("connect", "the server said too little");
    std::memcpy(&to, reply.data(), sizeof to);
    if (o.command == "pingpong") {
        std::vector<std::byte> out(o.size, std::byte('p'));
        std::vector<std::uint32_t> took;
        took.reserve(o.count);
        e.prepare(o.size);
        const std::size_t warm = o.count / 10;
        auto begun = clock_type::now();
        for (std::size_t i = 0; i < o.count + warm; ++i) {
            const auto before = clock_type::now();
            if (i == warm)
                begun = before;
            e.post_send(out);
            while (e.arrived.empty() && !e.gone) {
                co_await e.changed.wait();
                e.changed.reset();
            }
            if (e.gone)
                fail("pingpong", "the peer went");
            const std::size_t slot = e.arrived.front().id;
            e.arrived.clear();
            e.post_receive(slot);
            if (i >= warm)
                took.push_back(static_cast<std::uint32_t>(
                    std::chrono::duration_cast<std::chrono::nanoseconds>(clock_type::now() - before)
                        .count()));
        }
        const double all = std::chrono::duration<double, std::micro>(clock_type::now() - begun).count();
        std::ranges::nth_element(took, took.begin() + std::ptrdiff_t(took.size() / 2));
        std::printf("{\"size\": %zu, \"half_round_trip_us\": %.3f, \"p50_us\": %.3f}\n", o.size,
                    all / double(o.count) / 2, took[took.size() / 2] / 2000.0);
    } else {
        const std::size_t slots = std::min<std::size_t>(o.working_set, to.length) / o.size;
        std::vector<std::byte> source(slots * o.size, std::byte('w'));
        e.prepare(64);
        std::uint64_t posted = 0, before = 0;
        const auto warm = clock_type::now() + std::chrono::milliseconds(200);
        auto begun = clock_type::now();
        bool counting = false;
        for (;;) {
            const auto now = clock_type::now();
            if (!counting && now >= warm) {
                counting = true;
                begun = now;
                before = e.sent;
            }
            if (counting && now - begun >= std::chrono::duration<double>(o.seconds))
                break;
            while (posted - e.sent < o.count) {
                const std::size_t at = posted++ % slots * o.size;
                const verbs::segment s{source.data() + at, std::uint32_t(o.size), 0};
                verbs::send_request w;
                w.opcode = verbs::opcode::rdma_write;
                w.segments = {&s, 1};
                w.remote_address = to.address + at;
                w.remote_key = to.key;
                must(e.qp->post_send({&w, 1}), "post_send");
            }
            co_await e.changed.wait();
            e.changed.reset();
            if (e.gone)
                fail("write", "the peer went");
        }
        // The echo of a Send behind the Writes says that all of them were placed.
        const std::uint64_t bytes = (posted - before) * o.size;
        e.post_send(std::span(source).first(8));
        while (e.arrived.empty() && !e.gone) {
            co_await e.changed.wait();
            e.changed.reset();
        }
        const double took = std::chrono::duration<double>(clock_type::now() - begun).count();
        const auto& s = context.counters();
        std::printf("{\"size\": %zu, \"depth\": %zu, \"mb_per_second\": %.1f, \"sends\": %llu, "
                    "\"bytes_sent\": %llu}\n",
                    o.size, o.count, double(bytes) / took / 1e6,
                    static_cast<unsigned long long>(s.sends.load()),
                    static_cast<unsigned long long>(s.bytes_sent.load()));
    }
    e.qp->disconnect();
    while (!e.gone) {
        co_await e.changed.wait();
        e.changed.reset();
    }
}

} // namespace

int main(int argc, char** argv)
{
    options o;
    const std::string usage = "serve|pingpong|write HOST:PORT POLICY on|off ...; see the head of the source";
    if (argc < 5)
        fail("usage", usage);
    o.command = argv[1];
    o.address = argv[2];
    o.policy = take(parse_wait_policy(argv[3]), "POLICY");
    o.iwarp.crc = std::strcmp(argv[4], "on") == 0 ? iwarp::crc_mode::on : iwarp::crc_mode::off;
    const int more = o.command == "serve" ? 0 : o.command == "pingpong" ? 2 : o.command == "write" ? 4 : -1;
    if (more < 0 || argc != 5 + more)
        fail("usage", usage);
    if (more >= 2) {
        o.size = std::strtoul(argv[5], nullptr, 0);
        o.count = std::strtoul(argv[6], nullptr, 0);
    }
    if (more == 4) {
        o.working_set = std::strtoul(argv[7], nullptr, 0);
        o.seconds = std::atof(argv[8]);
    }
    if (more > 0 && (o.size == 0 || o.size > largest_send || o.count == 0 || o.count > 1000000 ||
                     (more == 4 && (o.count > 256 || o.working_set < o.size))))
        fail("usage", "a size or depth that makes no sense");
    reactor_options r;
    r.policy = o.policy;
    auto shard = take(reactor::create(r), "reactor");
    auto context = iwarp::make_context(*shard, o.iwarp);
    if (o.command == "serve")
        run_until_complete(*shard, serve(*context, o.address));
    else
        run_until_complete(*shard, load(*context, o));
    return 0;
}
