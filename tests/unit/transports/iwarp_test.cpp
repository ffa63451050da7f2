// SPDX-License-Identifier: Apache-2.0
// Two ends of the stack over a real TCP connection on loopback.
#include <boost/test/unit_test.hpp>

#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/transports/iwarp.hpp>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>

BOOST_AUTO_TEST_SUITE(iwarp_test)

using namespace verbena;
using namespace std::chrono_literals;
using verbs::opcode;
using verbs::status;

namespace {

struct recorder final : verbs::completion_handler {
    void on_completions(std::span<const verbs::completion> batch) noexcept override
    {
        for (const auto& c : batch)
            seen.push_back(c);
    }
    void on_disconnected(const error& cause) noexcept override
    {
        ended = true;
        why = cause;
    }
    const verbs::completion* find(std::uint64_t id) const
    {
        const auto i = std::ranges::find(seen, id, &verbs::completion::id);
        return i == seen.end() ? nullptr : &*i;
    }
    std::vector<verbs::completion> seen;
    bool ended = false;
    error why;
};

std::vector<std::byte> pattern(std::size_t n, unsigned seed = 1)
{
    std::vector<std::byte> v(n);
    for (std::size_t i = 0; i < n; ++i)
        v[i] = std::byte((i * 31 + seed) & 0xff);
    return v;
}

verbs::segment seg(std::vector<std::byte>& v) { return {v.data(), std::uint32_t(v.size()), 0}; }

// Both ends on one reactor; `body` runs when they are connected.
struct pair_of_ends {
    explicit pair_of_ends(iwarp::options o = {})
    {
        auto made = reactor::create();
        BOOST_REQUIRE(made);
        r = std::move(*made);
        server = iwarp::make_context(*r, o);
        client = iwarp::make_context(*r, o);
        server_domain = std::move(*server->make_domain());
        client_domain = std::move(*client->make_domain());
    }
    task<void> serve(verbs::listener& l)
    {
        auto request = co_await l.next();
        BOOST_REQUIRE(request);
        request_data.assign((*request)->private_data().begin(), (*request)->private_data().end());
        auto qp = co_await (*request)->make_queue_pair(*server_domain, verbs::queue_pair_options());
        BOOST_REQUIRE(qp);
        s = std::move(*qp);
        s->set_handler(&s_seen);
        verbs::connect_options o;
        const auto data = pattern(8, 9);
        o.private_data = data;
        auto accepted = co_await (*request)->accept(o);
        BOOST_REQUIRE(accepted);
    }
    task<void> main(std::function<task<void>(pair_of_ends&)>& body)
    {
        auto l = server->listen("127.0.0.1:0");
        BOOST_REQUIRE(l);
        scope children(*r);
        children.spawn([&] { return serve(**l); });
        const auto data = pattern(56, 3);
        verbs::connect_options o;
        o.private_data = data;
        std::vector<std::byte> reply;
        const std::string url = (*l)->local_url();
        auto qp = co_await client->connect(std::string_view(url).substr(8), *client_domain, o, reply);
        BOOST_REQUIRE_MESSAGE(qp, (qp ? std::string() : qp.error().message()));
        c = std::move(*qp);
        c->set_handler(&c_seen);
        co_await children.join();
        BOOST_TEST((request_data == data));
        BOOST_TEST((reply == pattern(8, 9)));
        co_await body(*this);
        s.reset();
        c.reset();
    }
    void run(std::function<task<void>(pair_of_ends&)> body) { run_until_complete(*r, main(body)); }
    task<void> until(const std::function<bool()>& done)
    {
        for (int i = 0; i < 5000 && !done(); ++i)
            co_await sleep_for(1ms);
        BOOST_TEST(done());
    }

    std::unique_ptr<reactor> r;
    std::unique_ptr<iwarp::context> server, client;
    std::unique_ptr<verbs::protection_domain> server_domain, client_domain;
    std::unique_ptr<verbs::queue_pair> s, c;
    recorder s_seen, c_seen;
    std::vector<std::byte> request_data;
};

// A peer that writes its FPDUs by hand, at the other end of a socket.
struct raw_peer {
    raw_peer() : r(std::move(*reactor::create())), provider(iwarp::make_context(*r))
    {
        domain = std::move(*provider->make_domain());
        listener = std::move(*provider->listen_adopted("iwarp://test"));
        BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
        provider->adopt(ends[0], *listener);
    }
    ~raw_peer() { ::close(ends[1]); }
    void send(const std::vector<std::byte>& b)
    {
        BOOST_REQUIRE(::write(ends[1], b.data(), b.size()) == std::ptrdiff_t(b.size()));
        sent += b.size();
    }
    /// One FPDU of an RDMA Write (RFC 5041 4.2).
    void write(std::uint32_t key, std::uint64_t offset, const std::vector<std::byte>& payload, bool last)
    {
        std::vector<std::byte> f;
        const auto put = [&](std::uint64_t v, int size) {
            while (size-- > 0)
                f.push_back(std::byte(v >> (8 * size)));
        };
        put(14 + payload.size(), 2);
        put(last ? 0xc140 : 0x8140, 2);
        put(key, 4);
        // Segments of one message follow each other.
        put(offset + behind, 8);
        behind = last ? 0 : behind + payload.size();
        f.insert(f.end(), payload.begin(), payload.end());
        f.resize((f.size() + 3) / 4 * 4 + 4);
        send(f);
    }
    task<void> all_read()
    {
        for (int i = 0; i < 5000 && provider->counters().bytes_received != sent; ++i)
            co_await sleep_for(1ms);
        BOOST_TEST(provider->counters().bytes_received == sent);
    }
    task<void> main(std::function<task<void>(raw_peer&)>& body)
    {
        // MPA revision 2, enhanced, IRD and ORD 0 (RFC 6581 6).
        std::vector<std::byte> hello(24);
        std::ranges::transform(std::string_view("MPA ID Req Frame\x10\x02\0\x04", 20), hello.begin(),
                               [](char c) { return std::byte(c); });
        send(hello);
        sent = 0; // start-up is not counted
        auto request = co_await listener->next();
        BOOST_REQUIRE(request);
        auto made = co_await (*request)->make_queue_pair(*domain, verbs::queue_pair_options());
        BOOST_REQUIRE(made);
        queue_pair = std::move(*made);
        queue_pair->set_handler(&seen);
        const verbs::connect_options o;
        const auto accepted = co_await (*request)->accept(o);
        BOOST_REQUIRE(accepted);
        co_await body(*this);
        queue_pair.reset();
    }
    void run(std::function<task<void>(raw_peer&)> body) { run_until_complete(*r, main(body)); }

    std::unique_ptr<reactor> r;
    std::unique_ptr<iwarp::context> provider;
    std::unique_ptr<verbs::protection_domain> domain;
    std::unique_ptr<verbs::listener> listener;
    std::unique_ptr<verbs::queue_pair> queue_pair;
    recorder seen;
    int ends[2] = {-1, -1};
    std::size_t sent = 0;
    std::uint64_t behind = 0;
};

result<void> post(verbs::queue_pair& q, std::uint64_t id, opcode op, std::span<const verbs::segment> sg,
                  const verbs::remote_segment& remote = {}, std::uint32_t invalidate = 0)
{
    verbs::send_request w;
    w.id = id;
    w.opcode = op;
    w.segments = sg;
    w.remote_address = remote.address;
    w.remote_key = remote.key;
    w.invalidate_key = invalidate;
    return q.post_send({&w, 1});
}

result<void> post_receive(verbs::queue_pair& q, std::uint64_t id, verbs::segment s)
{
    const verbs::receive_request w{id, s};
    return q.post_receive({&w, 1});
}

} // namespace

BOOST_AUTO_TEST_CASE(every_operation)
{
    for (auto crc : {iwarp::crc_mode::off, iwarp::crc_mode::on}) {
        iwarp::options o;
        o.crc = crc;
        pair_of_ends ends(o);
        ends.run([](pair_of_ends& e) -> task<void> {
            for (std::size_t size : {0u, 1u, 7u, 1000u, 8192u, 65536u, 1000001u}) {
                auto out = pattern(size, unsigned(size));
                std::vector<std::byte> in(size + 16);
                BOOST_REQUIRE(post_receive(*e.s, size * 10 + 1, seg(in)));
                const verbs::segment parts[] = {{out.data(), std::uint32_t(size / 3), 0},
                                                {out.data() + size / 3, std::uint32_t(size - size / 3), 0}};
                BOOST_REQUIRE(post(*e.c, size * 10 + 2, opcode::send, parts));
                co_await e.until(
                    [&] { return e.s_seen.find(size * 10 + 1) && e.c_seen.find(size * 10 + 2); });
                BOOST_TEST(e.s_seen.find(size * 10 + 1)->length == size);
                BOOST_TEST(std::equal(out.begin(), out.end(), in.begin()));

                // Write into, then read back from, granted memory of the server.
                std::vector<std::byte> memory(size);
                auto g = co_await e.server_domain->make_grant(
                    memory, verbs::access::remote_write | verbs::access::remote_read, e.s.get());
                BOOST_REQUIRE(g);
                const auto where = g->where();
                const verbs::segment all[] = {seg(out)};
                BOOST_REQUIRE(post(*e.c, size * 10 + 3, opcode::rdma_write, all, where));
                std::vector<std::byte> back(size);
                const verbs::segment sink[] = {seg(back)};
                BOOST_REQUIRE(post(*e.c, size * 10 + 4, opcode::rdma_read, sink, where));
                const std::function<bool()> done1 = [&] { return e.c_seen.find(size * 10 + 4) != nullptr; };
                co_await e.until(done1);
                BOOST_TEST_CONTEXT("size " << size << ": " << e.s_seen.why.message() << "; "
                                           << e.c_seen.why.message())
                BOOST_TEST((e.c_seen.find(size * 10 + 4)->status == status::success));
                BOOST_TEST((memory == out));
                BOOST_TEST((back == out));
            }
        });
    }
}

BOOST_AUTO_TEST_CASE(send_with_invalidate_revokes)
{
    pair_of_ends ends;
    ends.run([](pair_of_ends& e) -> task<void> {
        std::vector<std::byte> memory(4096);
        auto g = co_await e.client_domain->make_grant(memory, verbs::access::remote_write, e.c.get());
        BOOST_REQUIRE(g);
        std::vector<std::byte> in(64);
        BOOST_REQUIRE(post_receive(*e.c, 1, seg(in)));
        auto out = pattern(10);
        const verbs::segment all[] = {seg(out)};
        BOOST_REQUIRE(post(*e.s, 2, opcode::send_with_invalidate, all, {}, g->where().key));
        const auto key = g->where().key;
        const std::function<bool()> done2 = [&] { return e.c_seen.find(1) != nullptr; };
        co_await e.until(done2);
        BOOST_TEST(e.c_seen.find(1)->invalidated_key == key);
        BOOST_TEST(!g->valid());
        // Its key is dead: a Write under it ends the connection.
        BOOST_REQUIRE(post(*e.s, 3, opcode::rdma_write, all,
                           {key, 10, reinterpret_cast<std::uint64_t>(memory.data())}));
        const std::function<bool()> done3 = [&] { return e.s_seen.ended && e.c_seen.ended; };
        co_await e.until(done3);
        BOOST_TEST((e.client->counters().ends[std::size_t(iwarp::end_cause::access_error)] == 1u));
        BOOST_TEST((e.server->counters().ends[std::size_t(iwarp::end_cause::peer_terminate)] == 1u));
        BOOST_TEST((memory == std::vector<std::byte>(4096)));
    });
}

BOOST_AUTO_TEST_CASE(what_a_peer_may_not_touch)
{
    struct attempt {
        const char* name;
        verbs::access rights;
        bool other_connection;
        std::uint64_t shift;
        opcode op;
    };
    const attempt attempts[] = {
        {"write without the right", verbs::access::remote_read, false, 0, opcode::rdma_write},
        {"read without the right", verbs::access::remote_write, false, 0, opcode::rdma_read},
        {"another connection's key", verbs::access::remote_write, true, 0, opcode::rdma_write},
        {"beyond the end", verbs::access::remote_write, false, 1, opcode::rdma_write},
        {"before the start", verbs::access::remote_write, false, std::uint64_t(-1), opcode::rdma_write},
        {"read beyond the end", verbs::access::remote_read, false, 1, opcode::rdma_read},
    };
    for (const auto& a : attempts) {
        BOOST_TEST_CONTEXT(a.name)
        {
            pair_of_ends ends;
            ends.run([&a](pair_of_ends& e) -> task<void> {
                std::vector<std::byte> memory(1000);
                // A grant scoped to the other queue pair on this host stands for another client's.
                auto g = co_await e.server_domain->make_grant(memory, a.rights,
                                                              a.other_connection ? e.c.get() : e.s.get());
                BOOST_REQUIRE(g);
                auto where = g->where();
                where.address += a.shift;
                auto data = pattern(1000);
                const verbs::segment all[] = {seg(data)};
                BOOST_REQUIRE(post(*e.c, 1, a.op, all, where));
                const std::function<bool()> done4 = [&] { return e.s_seen.ended && e.c_seen.ended; };
                co_await e.until(done4);
                BOOST_TEST((e.server->counters().ends[std::size_t(iwarp::end_cause::access_error)] == 1u));
                BOOST_TEST((memory == std::vector<std::byte>(1000)));
                if (a.op == opcode::rdma_read)
                    BOOST_TEST((e.c_seen.find(1)->status != status::success));
            });
        }
    }
}

BOOST_AUTO_TEST_CASE(a_send_without_a_receive_ends_the_connection)
{
    pair_of_ends ends;
    ends.run([](pair_of_ends& e) -> task<void> {
        auto data = pattern(10);
        const verbs::segment all[] = {seg(data)};
        BOOST_REQUIRE(post(*e.c, 1, opcode::send, all));
        const std::function<bool()> done5 = [&] { return e.s_seen.ended && e.c_seen.ended; };
        co_await e.until(done5);
        BOOST_TEST((e.server->counters().ends[std::size_t(iwarp::end_cause::no_receive)] == 1u));
    });
}

BOOST_AUTO_TEST_CASE(an_orderly_end_drains_and_flushes)
{
    pair_of_ends ends;
    ends.run([](pair_of_ends& e) -> task<void> {
        auto out = pattern(3'000'000);
        std::vector<std::byte> in(out.size());
        std::vector<std::byte> spare(10);
        BOOST_REQUIRE(post_receive(*e.s, 1, seg(in)));
        BOOST_REQUIRE(post_receive(*e.s, 2, seg(spare)));
        const verbs::segment all[] = {seg(out)};
        BOOST_REQUIRE(post(*e.c, 3, opcode::send, all));
        e.c->disconnect();
        BOOST_TEST(!post(*e.c, 4, opcode::send, all));
        const std::function<bool()> done6 = [&] { return e.s_seen.ended && e.c_seen.ended; };
        co_await e.until(done6);
        BOOST_TEST((in == out));
        BOOST_TEST((e.s_seen.find(1)->status == status::success));
        BOOST_TEST((e.s_seen.find(2)->status == status::work_request_flushed));
        BOOST_TEST((e.c_seen.find(3)->status == status::success));
    });
}

// A peer must not find another connection's memory by guessing.
BOOST_AUTO_TEST_CASE(steering_tags_can_not_be_guessed)
{
    static constexpr std::size_t count = 4096;
    pair_of_ends ends;
    std::vector<std::byte> memory(4096);
    const auto tags_of = [&memory](verbs::protection_domain& domain,
                                   std::vector<std::uint32_t>& tags) -> task<void> {
        std::vector<verbs::grant> live;
        for (std::size_t i = 0; i < count; ++i) {
            auto made = co_await domain.make_grant(memory, verbs::access::remote_read, nullptr);
            BOOST_REQUIRE(made);
            tags.push_back(made->where().key);
            live.push_back(std::move(*made));
        }
    };
    std::vector<std::uint32_t> tags, others, again;
    run_until_complete(*ends.r, tags_of(*ends.server_domain, tags));
    run_until_complete(*ends.r, tags_of(*ends.client_domain, others));
    run_until_complete(*ends.r, tags_of(*ends.server_domain, again)); // of memory that had tags before

    for (unsigned bit = 0; bit < 32; ++bit) {
        const auto set = std::ranges::count_if(tags, [bit](std::uint32_t t) { return (t >> bit & 1) != 0; });
        // By chance one falls outside of this less than once in 10^36 runs.
        BOOST_TEST(set > 0.4 * count, "bit " << bit << " is set in " << set);
        BOOST_TEST(set < 0.6 * count, "bit " << bit << " is set in " << set);
    }
    const std::set<std::uint32_t> distinct(tags.begin(), tags.end());
    BOOST_TEST(distinct.size() == count);
    BOOST_TEST(!distinct.contains(0));
    std::set<std::uint32_t> steps, flips;
    for (std::size_t i = 1; i < count; ++i) {
        steps.insert(tags[i] - tags[i - 1]);
        flips.insert(tags[i] ^ tags[i - 1]);
    }
    // Of 2^32 values a few may come twice.
    BOOST_TEST(steps.size() > count - 8);
    BOOST_TEST(flips.size() > count - 8);
    const auto known = [&](std::uint32_t t) { return distinct.contains(t); };
    BOOST_TEST(std::ranges::count_if(others, known) < 8);
    BOOST_TEST(std::ranges::count_if(again, known) < 8);
}

BOOST_AUTO_TEST_CASE(large_payloads_are_placed_without_a_copy)
{
    pair_of_ends ends;
    ends.run([](pair_of_ends& e) -> task<void> {
        std::vector<std::byte> memory(8 << 20);
        auto g = co_await e.server_domain->make_grant(
            memory, verbs::access::remote_write | verbs::access::remote_read, e.s.get());
        BOOST_REQUIRE(g);
        auto out = pattern(memory.size(), 5);
        const verbs::segment all[] = {seg(out)};
        BOOST_REQUIRE(post(*e.c, 1, opcode::rdma_write, all, g->where()));
        std::vector<std::byte> back(memory.size());
        const verbs::segment sink[] = {seg(back)};
        BOOST_REQUIRE(post(*e.c, 2, opcode::rdma_read, sink, g->where()));
        const std::function<bool()> done7 = [&] { return e.c_seen.find(2) != nullptr; };
        co_await e.until(done7);
        BOOST_TEST((back == out));
        BOOST_TEST(e.server->counters().payload_copied_bytes == 0u);
        BOOST_TEST(e.client->counters().payload_copied_bytes == 0u);
    });
}

// Whatever a connection carried before: a peer may send a message in small FPDUs, then others in one large FPDU each.
BOOST_AUTO_TEST_CASE(large_payloads_behind_small_ones_are_placed_without_a_copy)
{
    constexpr std::size_t large = 16384;
    for (const std::size_t depth : {1u, 4u}) {
        for (const bool small_first : {false, true}) {
            BOOST_TEST_CONTEXT(depth << " at once, small ones first: " << small_first)
            raw_peer().run([depth, small_first](raw_peer& p) -> task<void> {
                std::vector<std::byte> memory(depth * large);
                auto g =
                    co_await p.domain->make_grant(memory, verbs::access::remote_write, p.queue_pair.get());
                BOOST_REQUIRE(g);
                const auto where = g->where();
                const auto& counters = p.provider->counters();
                if (small_first) {
                    const auto out = pattern(1400, 3);
                    for (const bool last : {false, false, true})
                        p.write(where.key, where.address, out, last);
                    co_await p.all_read();
                    // The first large one shows that the FPDUs are large now.
                    p.write(where.key, where.address, pattern(large), true);
                    co_await p.all_read();
                }
                const std::uint64_t before = counters.payload_copied_bytes;
                for (unsigned round = 0; round < 5; ++round) {
                    for (std::size_t i = 0; i < depth; ++i)
                        p.write(where.key, where.address + i * large, pattern(large, round + unsigned(i)),
                                true);
                    co_await p.all_read();
                    for (std::size_t i = 0; i < depth; ++i)
                        BOOST_TEST((pattern(large, round + unsigned(i)) ==
                                    std::vector(memory.begin() + std::ptrdiff_t(i * large),
                                                memory.begin() + std::ptrdiff_t((i + 1) * large))));
                }
                BOOST_TEST(counters.payload_copied_bytes - before == 0u);
            });
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
