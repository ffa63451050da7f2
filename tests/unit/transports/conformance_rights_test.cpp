// SPDX-License-Identifier: Apache-2.0
// Keys: what a peer may touch, and how the permission ends.

#include "conformance.hpp"

#include <array>
#include <cstring>

BOOST_AUTO_TEST_SUITE(conformance_rights_test)

using namespace verbena;
using namespace verbena::conformance;

namespace {

constexpr auto read_and_write = verbs::access::remote_read | verbs::access::remote_write;

// The narrowest grant that the provider has.
task<verbs::grant> narrow(fixture& f, side& s, memory& m, verbs::access rights, verbs::queue_pair* q)
{
    auto g = co_await s.domain->make_grant(m.bytes, rights, f.can().grant_per_queue_pair ? q : nullptr);
    BOOST_REQUIRE(g);
    co_return std::move(*g);
}

// `op` under `where`, from the client: the connection ends, and nothing was touched.
task<void> must_fail(fixture& f, connection& n, opcode op, const verbs::remote_segment& where, memory& target)
{
    const auto before = target.bytes;
    const auto content = pattern(where.length, 77);
    memory local(co_await registered(*f.client.domain, content));
    memory in(co_await registered(*f.server.domain, 16));
    BOOST_REQUIRE(post_receive(*n.s, 1, in.all()));
    BOOST_REQUIRE(post(*n.c, 2, op, {local.all()}, where));
    BOOST_REQUIRE(post(*n.c, 3, opcode::send, {local.part(0, 1)}));
    co_await f.both_ended(n);
    BOOST_TEST((target.bytes == before));
    BOOST_REQUIRE(n.c_seen.count(2) == 1u);
    BOOST_REQUIRE(n.c_seen.count(3) == 1u);
    // A Read always hears of it.
    if (op == opcode::rdma_read) {
        BOOST_TEST((local.bytes == content));
        BOOST_TEST(n.c_seen.find(2)->status != status::success);
    }
    if (f.can().completion_means_delivered) {
        BOOST_TEST(n.c_seen.find(2)->status == status::remote_access_error);
        BOOST_TEST(n.c_seen.find(3)->status == status::work_request_flushed);
    }
    // What was posted behind it never arrived, unless it was behind a Read, which is answered later (RFC 5040 5.5).
    if (f.can().completion_means_delivered || op != opcode::rdma_read)
        BOOST_TEST(n.s_seen.find(1)->status == status::work_request_flushed);
}

// `op` under `where`, which is `at` octets into `target`, from the client, where the provider does not check what forbids
// it: it is carried out, and the connection stands.
task<void> must_succeed(fixture& f, connection& n, opcode op, const verbs::remote_segment& where,
                        memory& target, std::size_t at)
{
    const auto before = target.bytes;
    const auto there = std::span(target.bytes).subspan(at, where.length);
    memory local(co_await registered(*f.client.domain, pattern(where.length, 77)));
    memory in(co_await registered(*f.server.domain, 16));
    BOOST_REQUIRE(!std::ranges::equal(local.bytes, there));
    BOOST_REQUIRE(post_receive(*n.s, 1, in.all()));
    BOOST_REQUIRE(post(*n.c, 2, op, {local.all()}, where));
    BOOST_REQUIRE(post(*n.c, 3, opcode::send, {local.part(0, 1)}));
    const std::function<bool()> over = [&] { return n.c_seen.find(3) && n.s_seen.find(1); };
    co_await f.until(over);
    BOOST_TEST_REQUIRE(n.c_seen.count(2) == 1u);
    BOOST_TEST(n.c_seen.find(2)->status == status::success);
    BOOST_TEST(n.s_seen.find(1)->status == status::success);
    BOOST_TEST(std::ranges::equal(local.bytes, there));
    BOOST_TEST((target.bytes == before) == (op == opcode::rdma_read));
    BOOST_TEST(n.c_seen.ends + n.s_seen.ends == 0u);
}

} // namespace

CONFORMANCE_CASE(what_a_peer_may_not_touch)
{
    struct attempt {
        const char* name;
        verbs::access rights;
        std::uint64_t shift;
        opcode op;
    };
    const attempt attempts[] = {
        {"write without the right", verbs::access::remote_read, 0, opcode::rdma_write},
        {"read without the right", verbs::access::remote_write, 0, opcode::rdma_read},
        {"write beyond the end", read_and_write, 1, opcode::rdma_write},
        {"read beyond the end", read_and_write, 1, opcode::rdma_read},
        {"write before the start", read_and_write, std::uint64_t(-1), opcode::rdma_write},
        {"read before the start", read_and_write, std::uint64_t(-1), opcode::rdma_read},
        {"write that wraps", read_and_write, std::uint64_t(1) << 63, opcode::rdma_write},
    };
    for (const auto& a : attempts) {
        BOOST_TEST_CONTEXT(a.name)
        {
            fixture f(p);
            f.run([&]() -> task<void> {
                connection n;
                co_await f.connect(n);
                memory target(co_await registered(*f.server.domain, pattern(1000)));
                auto g = co_await narrow(f, f.server, target, a.rights, n.s.get());
                auto where = g.where();
                BOOST_TEST(where.length == 1000u);
                where.address += a.shift;
                const bool lacks_the_right = a.op == opcode::rdma_read && a.rights != read_and_write;
                if (lacks_the_right && !f.can().checks_read_rights)
                    co_await must_succeed(f, n, a.op, where, target, 0);
                else
                    co_await must_fail(f, n, a.op, where, target);
            });
        }
    }
}

CONFORMANCE_CASE(what_lies_beside_a_grant_in_its_region)
{
    for (const opcode op : {opcode::rdma_write, opcode::rdma_read}) {
        for (const std::uint64_t shift : {std::uint64_t(1), std::uint64_t(-1)}) {
            BOOST_TEST_CONTEXT((op == opcode::rdma_read ? "read " : "write ") << std::int64_t(shift))
            {
                fixture f(p);
                f.run([&]() -> task<void> {
                    connection n;
                    co_await f.connect(n);
                    memory target(co_await registered(*f.server.domain, pattern(3000)));
                    auto g = co_await f.server.domain->make_grant(
                        std::span(target.bytes).subspan(1000, 1000), read_and_write,
                        f.can().grant_per_queue_pair ? n.s.get() : nullptr);
                    BOOST_REQUIRE(g);
                    auto where = g->where();
                    where.address += shift;
                    const std::size_t at = 1000 + shift;
                    if (f.can().checks_grant_bounds)
                        co_await must_fail(f, n, op, where, target);
                    else
                        co_await must_succeed(f, n, op, where, target, at);
                });
            }
        }
    }
}

CONFORMANCE_CASE(keys_that_are_no_keys)
{
    for (const bool reads : {false, true}) {
        const opcode op = reads ? opcode::rdma_read : opcode::rdma_write;
        BOOST_TEST_CONTEXT("revoked, then made again")
        {
            fixture f(p);
            f.run([&]() -> task<void> {
                connection n;
                co_await f.connect(n);
                memory target(co_await registered(*f.server.domain, 100));
                auto old = co_await narrow(f, f.server, target, read_and_write, n.s.get());
                const auto where = old.where();
                BOOST_TEST(old.valid());
                old = verbs::grant();
                old = verbs::grant();
                BOOST_TEST(!old.valid());
                auto current = co_await narrow(f, f.server, target, read_and_write, n.s.get());
                BOOST_TEST(current.where().key != where.key);
                // The old key with the new offsets: only the key is wrong.
                auto stale = current.where();
                stale.key = where.key;
                co_await must_fail(f, n, op, stale, target);
            });
        }
        BOOST_TEST_CONTEXT("of another protection domain")
        {
            fixture f(p);
            f.run([&]() -> task<void> {
                connection n;
                co_await f.connect(n);
                auto other = std::move(*f.server.context->make_domain());
                memory target(co_await registered(*other, 100));
                auto g = co_await other->make_grant(target.bytes, read_and_write, nullptr);
                BOOST_REQUIRE(g);
                co_await must_fail(f, n, op, g->where(), target);
            });
        }
        BOOST_TEST_CONTEXT("made up")
        {
            fixture f(p);
            f.run([&]() -> task<void> {
                connection n;
                co_await f.connect(n);
                memory target(co_await registered(*f.server.domain, 100));
                auto g = co_await narrow(f, f.server, target, read_and_write, n.s.get());
                auto where = g.where();
                where.key += 1;
                co_await must_fail(f, n, op, where, target);
            });
        }
    }
}

CONFORMANCE_CASE(a_write_of_nothing_needs_no_key_and_shows_nowhere)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory in(co_await registered(*f.server.domain, 8));
        memory out(co_await registered(*f.client.domain, pattern(8)));
        BOOST_REQUIRE(post_receive(*n.s, 1, in.all()));
        BOOST_REQUIRE(post(*n.c, 2, opcode::rdma_write, {}));
        BOOST_REQUIRE(post(*n.c, 3, opcode::send, {out.all()}));
        const std::function<bool()> over = [&] { return n.c_seen.find(3) && n.s_seen.find(1); };
        co_await f.until(over);
        BOOST_TEST(n.c_seen.find(2)->status == status::success);
        BOOST_TEST(n.c_seen.find(3)->status == status::success);
        BOOST_TEST(n.s_seen.seen.size() == 1u);
        BOOST_TEST((in.bytes == out.bytes));
    });
}

CONFORMANCE_CASE(a_grant_for_one_queue_pair)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n, other;
        co_await f.connect(n);
        co_await f.connect(other);
        memory target(co_await registered(*f.server.domain, 100));
        auto g = co_await f.server.domain->make_grant(target.bytes, read_and_write, n.s.get());
        if (!f.can().grant_per_queue_pair) {
            BOOST_REQUIRE(!g);
            BOOST_TEST((g.error() == std::errc::operation_not_supported));
            // One without a scope serves every connection of the domain.
            auto wide = co_await f.server.domain->make_grant(target.bytes, read_and_write, nullptr);
            BOOST_REQUIRE(wide);
            memory out(co_await registered(*f.client.domain, pattern(100)));
            BOOST_REQUIRE(post(*other.c, 1, opcode::rdma_write, {out.all()}, wide->where()));
            const std::function<bool()> written = [&] { return target.bytes == out.bytes; };
            co_await f.until(written);
            co_return;
        }
        BOOST_REQUIRE(g);
        const auto where = g->where();
        co_await must_fail(f, other, opcode::rdma_write, where, target);
        // The one that it is for is untouched by that.
        memory out(co_await registered(*f.client.domain, pattern(100)));
        BOOST_REQUIRE(post(*n.c, 1, opcode::rdma_write, {out.all()}, where));
        const std::function<bool()> written = [&] { return target.bytes == out.bytes; };
        co_await f.until(written);
        // Its queue pair gone, it serves no other, whatever address that one has.
        for (int i = 0; i < 8; ++i) {
            n.s.reset();
            n.c.reset();
            connection next;
            co_await f.connect(next);
            co_await must_fail(f, next, opcode::rdma_read, where, target);
            n.s = std::move(next.s);
            n.c = std::move(next.c);
            n.s->set_handler(nullptr);
            n.c->set_handler(nullptr);
        }
    });
}

namespace {

// A provider without remote invalidation refuses it, and everything is as before.
task<void> invalidates_nothing(fixture& f, connection& n, memory& out, verbs::grant& g, std::uint32_t key)
{
    const auto posted = post(*n.c, 2, opcode::send_with_invalidate, {out.all()}, {}, key);
    BOOST_REQUIRE(!posted);
    BOOST_TEST((posted.error() == std::errc::operation_not_supported));
    memory in(co_await registered(*f.server.domain, 100));
    BOOST_REQUIRE(post_receive(*n.s, 7, in.all()));
    BOOST_REQUIRE(post(*n.c, 7, opcode::send, {out.all()}));
    const std::function<bool()> there = [&] { return n.s_seen.good(7) && n.c_seen.good(7); };
    co_await f.until(there);
    BOOST_TEST(g.valid());
    BOOST_TEST(n.s_seen.find(7)->invalidated_key == 0u);
}

} // namespace

CONFORMANCE_CASE(send_with_invalidate)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory target(co_await registered(*f.server.domain, 100));
        memory in(co_await registered(*f.server.domain, 100));
        memory out(co_await registered(*f.client.domain, pattern(10)));
        auto g = co_await narrow(f, f.server, target, read_and_write, n.s.get());
        const auto where = g.where();
        if (!f.can().remote_invalidate) {
            co_await invalidates_nothing(f, n, out, g, where.key);
            co_return;
        }
        bool valid_at_delivery = true;
        n.s_seen.hook = [&](const verbs::completion& c) {
            if (c.id == 1 && c.status == status::success)
                valid_at_delivery = g.valid();
        };
        BOOST_REQUIRE(post_receive(*n.s, 1, in.all()));
        BOOST_REQUIRE(post(*n.c, 2, opcode::send_with_invalidate, {out.all()}, {}, where.key));
        const std::function<bool()> there = [&] { return n.s_seen.good(1); };
        co_await f.until(there);
        BOOST_TEST(n.s_seen.find(1)->invalidated_key == where.key);
        BOOST_TEST(!valid_at_delivery);
        BOOST_TEST(n.s_seen.ends == 0u);
        n.s_seen.seen.clear();
        n.c_seen.seen.clear();
        auto dead = where;
        dead.length = 10;
        co_await must_fail(f, n, opcode::rdma_write, dead, target);
    });
}

CONFORMANCE_CASE(send_with_invalidate_of_what_is_not_the_peers_to_invalidate)
{
    enum class what { made_up, of_another_domain };
    for (const what w : {what::made_up, what::of_another_domain}) {
        fixture f(p);
        f.run([&]() -> task<void> {
            connection n;
            co_await f.connect(n);
            auto other = std::move(*f.server.context->make_domain());
            memory target(co_await registered(*other, 100));
            auto g = co_await other->make_grant(target.bytes, read_and_write, nullptr);
            BOOST_REQUIRE(g);
            memory in(co_await registered(*f.server.domain, 100));
            memory out(co_await registered(*f.client.domain, pattern(10)));
            const std::uint32_t key = g->where().key + (w == what::made_up ? 1 : 0);
            if (!f.can().remote_invalidate) {
                co_await invalidates_nothing(f, n, out, *g, key);
                co_return;
            }
            BOOST_REQUIRE(post_receive(*n.s, 1, in.all()));
            BOOST_REQUIRE(post(*n.c, 2, opcode::send_with_invalidate, {out.all()}, {}, key));
            co_await f.both_ended(n);
            BOOST_TEST(n.s_seen.find(1)->status != status::success);
            BOOST_TEST(g->valid());
        });
    }
}

CONFORMANCE_CASE(local_invalidate)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory target(co_await registered(*f.server.domain, 100));
        auto g = co_await narrow(f, f.server, target, read_and_write, n.s.get());
        const auto where = g.where();
        const auto posted = post(*n.s, 9, opcode::local_invalidate, {}, {}, where.key);
        BOOST_REQUIRE(bool(posted) == f.can().local_invalidate);
        if (!posted) {
            BOOST_TEST((posted.error() == std::errc::operation_not_supported));
            BOOST_TEST(g.valid());
            co_return;
        }
        const std::function<bool()> done = [&] { return n.s_seen.find(9) != nullptr; };
        co_await f.until(done);
        BOOST_TEST(n.s_seen.find(9)->status == status::success);
        BOOST_TEST((n.s_seen.find(9)->opcode == opcode::local_invalidate));
        BOOST_TEST(!g.valid());
        co_await must_fail(f, n, opcode::rdma_write, where, target);
    });
}

CONFORMANCE_CASE(local_invalidate_of_a_dead_key_breaks_the_queue_pair)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory target(co_await registered(*f.server.domain, 100));
        auto g = co_await narrow(f, f.server, target, read_and_write, n.s.get());
        const auto key = g.where().key;
        g = verbs::grant();
        memory out(co_await registered(*f.server.domain, 10));
        // An error completes even if nobody asked for a completion.
        const auto posted = post(*n.s, 1, opcode::local_invalidate, {}, {}, key, false);
        BOOST_REQUIRE(bool(posted) == f.can().local_invalidate);
        if (!posted) {
            BOOST_TEST((posted.error() == std::errc::operation_not_supported));
            BOOST_TEST(n.s->connected());
            co_return;
        }
        BOOST_REQUIRE(post(*n.s, 2, opcode::send, {out.all()}));
        co_await f.both_ended(n);
        BOOST_REQUIRE(n.s_seen.count(1) == 1u);
        BOOST_TEST(n.s_seen.find(1)->status == status::local_protection_error);
        BOOST_REQUIRE(n.s_seen.count(2) == 1u);
        BOOST_TEST(n.s_seen.find(2)->status == status::work_request_flushed);
    });
}

CONFORMANCE_CASE(local_keys)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory in(co_await registered(*f.server.domain, 100));
        memory out(co_await registered(*f.client.domain, pattern(100)));
        BOOST_REQUIRE(post_receive(*n.s, 1, in.all()));
        std::vector<std::byte> unknown = pattern(100);
        const verbs::segment no_key{unknown.data(), 100, 0};
        BOOST_REQUIRE(post(*n.c, 2, opcode::send, {no_key}));
        if (!f.can().needs_local_keys) {
            const std::function<bool()> there = [&] { return n.s_seen.good(1); };
            co_await f.until(there);
            BOOST_TEST((in.bytes == unknown));
            co_return;
        }
        co_await f.both_ended(n);
        BOOST_TEST(n.c_seen.find(2)->status == status::local_protection_error);
        BOOST_TEST(n.s_seen.find(1)->status == status::work_request_flushed);
        // A grant lies in registered memory too.
        const auto refused = co_await f.server.domain->make_grant(unknown, read_and_write, nullptr);
        BOOST_TEST(!refused);
        // A key serves its own memory only, and its own domain.
        connection second;
        co_await f.connect(second);
        verbs::segment beyond = out.all();
        beyond.address += 1;
        BOOST_REQUIRE(post_receive(*second.s, 1, in.all()));
        BOOST_REQUIRE(post(*second.c, 2, opcode::send, {beyond}));
        co_await f.both_ended(second);
        BOOST_TEST(second.c_seen.find(2)->status == status::local_protection_error);
        connection third;
        co_await f.connect(third);
        verbs::segment foreign = in.all();
        foreign.local_key = out.all().local_key;
        const auto posted = post_receive(*third.s, 1, foreign);
        if (!posted) { // found out at once
            BOOST_TEST((posted.error() == std::errc::bad_address));
            co_return;
        }
        BOOST_REQUIRE(post(*third.c, 2, opcode::send, {out.all()}));
        co_await f.both_ended(third);
        BOOST_TEST(third.s_seen.find(1)->status == status::local_protection_error);
        BOOST_TEST(third.c_seen.find(2)->status == status::remote_operation_error);
    });
}

CONFORMANCE_CASE(grants_of_a_batch_revoked_together_and_made_again)
{
    constexpr std::size_t count = 200; // more than one doorbell's
    constexpr std::size_t each = 64;
    constexpr std::size_t rounds = 3; // windows that come back are bound again
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory target(co_await registered(*f.server.domain, count * each));
        memory out(co_await registered(*f.client.domain, pattern(count * each)));
        verbs::remote_segment dead;
        for (std::size_t round = 0; round < rounds; ++round) {
            std::ranges::fill(target.bytes, std::byte{});
            std::vector<verbs::grant_request> requests(count);
            for (std::size_t i = 0; i < count; ++i) {
                requests[i].memory = std::span(target.bytes).subspan(i * each, each);
                requests[i].rights = verbs::access::remote_write;
                requests[i].scope = f.can().grant_per_queue_pair ? n.s.get() : nullptr;
            }
            auto made = co_await f.server.domain->make_grants(requests);
            BOOST_REQUIRE_MESSAGE(made, why(made));
            std::vector<verbs::grant> grants;
            std::vector<std::uint32_t> keys;
            for (auto& r : requests) {
                grants.push_back(std::move(r.made));
                keys.push_back(grants.back().where().key);
            }
            std::ranges::sort(keys);
            BOOST_TEST((std::ranges::adjacent_find(keys) == keys.end()));
            n.c_seen.seen.clear();
            for (std::size_t i = 0; i < count; ++i)
                BOOST_REQUIRE(
                    post(*n.c, i, opcode::rdma_write, {out.part(i * each, each)}, grants[i].where()));
            const std::function<bool()> written = [&] { return target.bytes == out.bytes; };
            co_await f.until(written);
            // Its completions: the send queue has room for the next round.
            const std::function<bool()> all = [&] { return n.c_seen.seen.size() == count; };
            co_await f.until(all);
            dead = grants.back().where();
            co_await f.server.domain->revoke(grants);
            BOOST_TEST(std::ranges::none_of(grants, [](const auto& g) { return bool(g); }));
        }
#ifdef VERBENA_HAS_RDMA
        if (auto* device = dynamic_cast<rdma::context*>(f.server.context.get())) {
            const char* const forced = std::getenv("VERBENA_TEST_RDMA_GRANTS");
            const bool regions =
                forced != nullptr ? std::string(forced) == "region" : !f.can().grant_per_queue_pair;
            BOOST_TEST(device->counters().window_binds.load() == (regions ? 0 : count * rounds));
            BOOST_TEST(device->counters().region_grants.load() == (regions ? count * rounds : 0));
        }
#endif
        n.c_seen.seen.clear();
        co_await must_fail(f, n, opcode::rdma_write, dead, target);
    });
}

CONFORMANCE_CASE(revoking_takes_effect_at_once)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory target(co_await registered(*f.server.domain, 4 << 20));
        memory out(co_await registered(*f.client.domain, pattern(target.bytes.size())));
        auto g = co_await narrow(f, f.server, target, read_and_write, n.s.get());
        const auto where = g.where();
        // Many Writes on their way; some have arrived, most have not.
        for (std::uint64_t i = 0; i < 64; ++i) {
            auto at = where;
            at.address += i << 16;
            BOOST_REQUIRE(post(*n.c, i, opcode::rdma_write, {out.part(i << 16, 1 << 16)}, at));
        }
        g = verbs::grant();
        const auto at_revocation = target.bytes;
        // A device may have carried out all of them by now.
        if (p.device)
            (void)post(*n.c, 64, opcode::rdma_write, {out.part(1 << 16, 1 << 16)}, where);
        co_await f.both_ended(n);
        BOOST_TEST((target.bytes == at_revocation));
    });
}

// An RDMA Read may be anywhere on its way, the answer to it too.
CONFORMANCE_CASE(what_is_revoked_is_read_no_more)
{
    constexpr std::size_t size = 1 << 20;
    constexpr std::size_t each = 1 << 16;
    for (const auto delay :
         {0us, 10us, 40us, 70us, 100us, 150us, 200us, 300us, 500us, 800us, 1200us, 2000us, 3000us, 5000us}) {
        fixture f(p);
        f.run([&]() -> task<void> {
            connection n;
            co_await f.connect(n);
            memory source(
                co_await registered(*f.server.domain, std::vector<std::byte>(size, std::byte('x'))));
            memory sink(co_await registered(*f.client.domain, size));
            auto g = co_await narrow(f, f.server, source, verbs::access::remote_read, n.s.get());
            const auto where = g.where();
            for (std::size_t at = 0; at < size; at += each) {
                auto from = where;
                from.address += at;
                BOOST_REQUIRE(post(*n.c, at, opcode::rdma_read, {sink.part(at, each)}, from));
            }
            if (delay != 0us)
                co_await sleep_for(delay);
            g = verbs::grant();
            std::ranges::fill(source.bytes, std::byte('y'));
            // Where all were over by then, one more is refused.
            (void)post(*n.c, size, opcode::rdma_read, {sink.part(0, each)}, where);
            co_await f.both_ended(n);
            BOOST_TEST(std::ranges::count(sink.bytes, std::byte('y')) == 0);
            for (const auto& c : n.c_seen.seen) {
                const std::size_t at = c.id;
                BOOST_TEST((c.status != status::success || at == size ||
                            std::ranges::count(std::span(sink.bytes).subspan(at, each), std::byte('x')) ==
                                std::ptrdiff_t(each)));
            }
        });
    }
}

CONFORMANCE_CASE(a_renewable_grant)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection first, second, third;
        for (connection* n : {&first, &second, &third})
            co_await f.connect(*n);
        memory target(co_await registered(*f.server.domain, 3000));
        memory told(co_await registered(*f.server.domain, 64));
        memory in(co_await registered(*f.client.domain, 64));
        memory out(co_await registered(*f.client.domain, pattern(3000)));
        std::array<verbs::grant_request, 1> wanted;
        wanted[0].memory = target.bytes;
        wanted[0].rights = verbs::access::remote_write;
        wanted[0].renewable = true;
        const auto made = co_await f.server.domain->make_grants(wanted);
        BOOST_REQUIRE(bool(made) == f.can().renewable_grants);
        if (!made) {
            BOOST_TEST((made.error() == std::errc::operation_not_supported));
            co_return;
        }
        verbs::grant& g = wanted[0].made;
        BOOST_TEST(g.valid());
        std::uint64_t id = 100;
        // What the peer of `n` writes by `key`.
        const auto write = [&](connection& n, std::uint32_t key, std::size_t bytes) {
            const verbs::remote_segment at{key, std::uint32_t(bytes), g.where().address};
            BOOST_REQUIRE(post(*n.c, ++id, opcode::rdma_write, {out.part(0, bytes)}, at));
            return id;
        };
        const auto renewal = [&](opcode op) {
            verbs::send_request w;
            w.id = ++id;
            w.opcode = op;
            w.grant = &g;
            return w;
        };
        // The peer's end may say that it is over before the bytes are here.
        const auto placed = [&](std::size_t bytes) -> task<void> {
            const std::function<bool()> are_here = [&] {
                return target.bytes[bytes - 1] == out.bytes[bytes - 1];
            };
            co_await f.until(are_here);
        };
        const std::uint32_t old = g.where().key;
        write(first, old, 1000);
        co_await placed(1000);

        // The key may be told behind the bind, in one batch, by any queue pair of the domain.
        BOOST_REQUIRE(post_receive(*second.c, 1, in.all()));
        const std::uint32_t next = g.next_key();
        BOOST_TEST(next != old);
        std::memcpy(told.bytes.data(), &next, sizeof next);
        const verbs::segment message = told.part(0, sizeof next);
        std::array<verbs::send_request, 2> batch = {renewal(opcode::bind), verbs::send_request{}};
        batch[0].signalled = false;
        batch[1].id = ++id;
        batch[1].segments = {&message, 1};
        BOOST_REQUIRE(second.s->post_send(batch));
        const std::function<bool()> is_told = [&] { return second.c_seen.good(1); };
        co_await f.until(is_told);
        BOOST_TEST((std::equal(in.bytes.begin(), in.bytes.begin() + sizeof next, told.bytes.begin())));
        BOOST_TEST(g.where().key == next);
        write(second, next, 2000);
        co_await placed(2000);
        BOOST_TEST((std::equal(target.bytes.begin(), target.bytes.begin() + 2000, out.bytes.begin())));
        BOOST_TEST((target.bytes[2000] == std::byte(0)));

        // The old one is dead.
        write(first, old, 3000);
        co_await f.both_ended(first);
        BOOST_TEST((target.bytes[2000] == std::byte(0)));

        // So is that of an unbound one, once this has completed, and there is none until it is bound again.
        const verbs::send_request away = renewal(opcode::unbind);
        BOOST_REQUIRE(third.s->post_send({&away, 1}));
        BOOST_TEST((!f.can().renews_at_once || !g.valid()));
        const std::function<bool()> is_away = [&] { return third.s_seen.good(away.id); };
        co_await f.until(is_away);
        BOOST_TEST(!g.valid());
        write(second, next, 3000);
        co_await f.both_ended(second);
        BOOST_TEST((target.bytes[2000] == std::byte(0)));

        // More often than a device has keys for a window.
        for (unsigned i = 0; i < 260; ++i) {
            const verbs::send_request bind = renewal(opcode::bind);
            const std::uint32_t key = g.next_key();
            BOOST_REQUIRE(third.s->post_send({&bind, 1}));
            const std::function<bool()> is_bound = [&] { return third.s_seen.good(bind.id); };
            co_await f.until(is_bound);
            BOOST_TEST(g.valid());
            BOOST_TEST(g.where().key == key);
            target.bytes[0] = std::byte(0);
            write(third, key, 1);
            co_await placed(1);
            const verbs::send_request unbind = renewal(opcode::unbind);
            BOOST_REQUIRE(third.s->post_send({&unbind, 1}));
            const std::function<bool()> is_unbound = [&] { return third.s_seen.good(unbind.id); };
            co_await f.until(is_unbound);
        }
        BOOST_TEST(third.c_seen.ends == 0u);
        const std::span<verbs::grant> all(&wanted[0].made, 1);
        co_await f.server.domain->revoke(all);
    });
}

BOOST_AUTO_TEST_SUITE_END()
