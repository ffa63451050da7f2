// SPDX-License-Identifier: Apache-2.0
// Keys: what a peer may touch, and how the permission ends.

#include "fixture.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace verbena::testing::conformance {
namespace rights {
namespace {

constexpr auto read_and_write = verbs::access::remote_read | verbs::access::remote_write;

// The narrowest grant that the provider has.
task<verbs::grant> narrow(fixture& f, side& s, memory& m, verbs::access rights, verbs::queue_pair* q)
{
    auto g = co_await s.domain->make_grant(m.bytes, rights, f.can().grant_per_queue_pair ? q : nullptr);
    VERBENA_MUST(g);
    co_return std::move(*g);
}

// `op` under `where`, from the client: the connection ends, and nothing was touched.
task<void> must_fail(fixture& f, connection& n, opcode op, const verbs::remote_segment& where, memory& target)
{
    const auto before = target.bytes;
    const auto content = pattern(where.length, 77);
    memory local(co_await registered(*f.client.domain, content));
    memory in(co_await registered(*f.server.domain, 16));
    VERBENA_MUST(post_receive(*n.s, 1, in.all()));
    VERBENA_MUST(post(*n.c, 2, op, {local.all()}, where));
    VERBENA_MUST(post(*n.c, 3, opcode::send, {local.part(0, 1)}));
    co_await f.both_ended(n);
    VERBENA_MUST(target.bytes == before);
    VERBENA_MUST_EQUAL(n.c_seen.count(2), 1u);
    VERBENA_MUST_EQUAL(n.c_seen.count(3), 1u);
    // A Read always hears of it.
    if (op == opcode::rdma_read) {
        VERBENA_MUST(local.bytes == content);
        VERBENA_MUST(n.c_seen.at(2).status != status::success);
    }
    if (f.can().completion_means_delivered) {
        VERBENA_MUST_EQUAL(n.c_seen.at(2).status, status::remote_access_error);
        VERBENA_MUST_EQUAL(n.c_seen.at(3).status, status::work_request_flushed);
    }
    // What was posted behind it never arrived, unless it was behind a Read, which is answered later (RFC 5040 5.5).
    if (f.can().completion_means_delivered || op != opcode::rdma_read)
        VERBENA_MUST_EQUAL(n.s_seen.at(1).status, status::work_request_flushed);
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
    VERBENA_MUST(!alike(local.bytes, there));
    VERBENA_MUST(post_receive(*n.s, 1, in.all()));
    VERBENA_MUST(post(*n.c, 2, op, {local.all()}, where));
    VERBENA_MUST(post(*n.c, 3, opcode::send, {local.part(0, 1)}));
    const std::function<bool()> over = [&] { return n.c_seen.find(3) && n.s_seen.find(1); };
    co_await f.until(over);
    VERBENA_MUST_EQUAL(n.c_seen.count(2), 1u);
    VERBENA_MUST_EQUAL(n.c_seen.at(2).status, status::success);
    VERBENA_MUST_EQUAL(n.s_seen.at(1).status, status::success);
    VERBENA_MUST(alike(local.bytes, there));
    VERBENA_MUST((target.bytes == before) == (op == opcode::rdma_read));
    VERBENA_MUST_EQUAL(n.c_seen.ends + n.s_seen.ends, 0u);
}

void what_a_peer_may_not_touch(subject& p)
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
        part(a.name, [&] {
            fixture f(p);
            f.run([&]() -> task<void> {
                connection n;
                co_await f.connect(n);
                memory target(co_await registered(*f.server.domain, pattern(1000)));
                auto g = co_await narrow(f, f.server, target, a.rights, n.s.get());
                auto where = g.where();
                VERBENA_MUST_EQUAL(where.length, 1000u);
                where.address += a.shift;
                const bool lacks_the_right = a.op == opcode::rdma_read && a.rights != read_and_write;
                if (lacks_the_right && !f.can().checks_read_rights)
                    co_await must_succeed(f, n, a.op, where, target, 0);
                else
                    co_await must_fail(f, n, a.op, where, target);
            });
        });
    }
}

void what_lies_beside_a_grant_in_its_region(subject& p)
{
    for (const opcode op : {opcode::rdma_write, opcode::rdma_read}) {
        for (const std::uint64_t shift : {std::uint64_t(1), std::uint64_t(-1)}) {
            part((op == opcode::rdma_read ? "read " : "write ") + std::to_string(std::int64_t(shift)), [&] {
                fixture f(p);
                f.run([&]() -> task<void> {
                    connection n;
                    co_await f.connect(n);
                    memory target(co_await registered(*f.server.domain, pattern(3000)));
                    auto g = co_await f.server.domain->make_grant(
                        std::span(target.bytes).subspan(1000, 1000), read_and_write,
                        f.can().grant_per_queue_pair ? n.s.get() : nullptr);
                    VERBENA_MUST(g);
                    auto where = g->where();
                    where.address += shift;
                    const std::size_t at = 1000 + shift;
                    if (f.can().checks_grant_bounds)
                        co_await must_fail(f, n, op, where, target);
                    else
                        co_await must_succeed(f, n, op, where, target, at);
                });
            });
        }
    }
}

void keys_that_are_no_keys(subject& p)
{
    for (const bool reads : {false, true}) {
        const opcode op = reads ? opcode::rdma_read : opcode::rdma_write;
        part("revoked, then made again", [&] {
            fixture f(p);
            f.run([&]() -> task<void> {
                connection n;
                co_await f.connect(n);
                memory target(co_await registered(*f.server.domain, 100));
                auto old = co_await narrow(f, f.server, target, read_and_write, n.s.get());
                const auto where = old.where();
                VERBENA_MUST(old.valid());
                old = verbs::grant();
                old = verbs::grant();
                VERBENA_MUST(!old.valid());
                auto current = co_await narrow(f, f.server, target, read_and_write, n.s.get());
                VERBENA_MUST(current.where().key != where.key);
                // The old key with the new offsets: only the key is wrong.
                auto stale = current.where();
                stale.key = where.key;
                co_await must_fail(f, n, op, stale, target);
            });
        });
        part("of another protection domain", [&] {
            fixture f(p);
            f.run([&]() -> task<void> {
                connection n;
                co_await f.connect(n);
                auto other = std::move(*f.server.context->make_domain());
                memory target(co_await registered(*other, 100));
                auto g = co_await other->make_grant(target.bytes, read_and_write, nullptr);
                VERBENA_MUST(g);
                co_await must_fail(f, n, op, g->where(), target);
            });
        });
        part("made up", [&] {
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
        });
    }
}

void a_write_of_nothing_needs_no_key_and_shows_nowhere(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory in(co_await registered(*f.server.domain, 8));
        memory out(co_await registered(*f.client.domain, pattern(8)));
        VERBENA_MUST(post_receive(*n.s, 1, in.all()));
        VERBENA_MUST(post(*n.c, 2, opcode::rdma_write, {}));
        VERBENA_MUST(post(*n.c, 3, opcode::send, {out.all()}));
        const std::function<bool()> over = [&] { return n.c_seen.find(3) && n.s_seen.find(1); };
        co_await f.until(over);
        VERBENA_MUST_EQUAL(n.c_seen.at(2).status, status::success);
        VERBENA_MUST_EQUAL(n.c_seen.at(3).status, status::success);
        VERBENA_MUST_EQUAL(n.s_seen.seen.size(), 1u);
        VERBENA_MUST(in.bytes == out.bytes);
    });
}

void a_grant_for_one_queue_pair(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n, other;
        co_await f.connect(n);
        co_await f.connect(other);
        memory target(co_await registered(*f.server.domain, 100));
        auto g = co_await f.server.domain->make_grant(target.bytes, read_and_write, n.s.get());
        if (!f.can().grant_per_queue_pair) {
            VERBENA_MUST(!g);
            VERBENA_MUST_EQUAL(g.error(), std::errc::operation_not_supported);
            // One without a scope serves every connection of the domain.
            auto wide = co_await f.server.domain->make_grant(target.bytes, read_and_write, nullptr);
            VERBENA_MUST(wide);
            memory out(co_await registered(*f.client.domain, pattern(100)));
            VERBENA_MUST(post(*other.c, 1, opcode::rdma_write, {out.all()}, wide->where()));
            const std::function<bool()> written = [&] { return target.bytes == out.bytes; };
            co_await f.until(written);
            co_return;
        }
        VERBENA_MUST(g);
        const auto where = g->where();
        co_await must_fail(f, other, opcode::rdma_write, where, target);
        // The one that it is for is untouched by that.
        memory out(co_await registered(*f.client.domain, pattern(100)));
        VERBENA_MUST(post(*n.c, 1, opcode::rdma_write, {out.all()}, where));
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

// A provider without remote invalidation refuses it, and everything is as before.
task<void> invalidates_nothing(fixture& f, connection& n, memory& out, verbs::grant& g, std::uint32_t key)
{
    const auto posted = post(*n.c, 2, opcode::send_with_invalidate, {out.all()}, {}, key);
    VERBENA_MUST(!posted);
    VERBENA_MUST_EQUAL(posted.error(), std::errc::operation_not_supported);
    memory in(co_await registered(*f.server.domain, 100));
    VERBENA_MUST(post_receive(*n.s, 7, in.all()));
    VERBENA_MUST(post(*n.c, 7, opcode::send, {out.all()}));
    const std::function<bool()> there = [&] { return n.s_seen.good(7) && n.c_seen.good(7); };
    co_await f.until(there);
    VERBENA_MUST(g.valid());
    VERBENA_MUST_EQUAL(n.s_seen.at(7).invalidated_key, 0u);
}

void send_with_invalidate(subject& p)
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
        VERBENA_MUST(post_receive(*n.s, 1, in.all()));
        VERBENA_MUST(post(*n.c, 2, opcode::send_with_invalidate, {out.all()}, {}, where.key));
        const std::function<bool()> there = [&] { return n.s_seen.good(1); };
        co_await f.until(there);
        VERBENA_MUST_EQUAL(n.s_seen.at(1).invalidated_key, where.key);
        VERBENA_MUST(!valid_at_delivery);
        VERBENA_MUST_EQUAL(n.s_seen.ends, 0u);
        n.s_seen.seen.clear();
        n.c_seen.seen.clear();
        auto dead = where;
        dead.length = 10;
        co_await must_fail(f, n, opcode::rdma_write, dead, target);
    });
}

void send_with_invalidate_of_what_is_not_the_peers_to_invalidate(subject& p)
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
            VERBENA_MUST(g);
            memory in(co_await registered(*f.server.domain, 100));
            memory out(co_await registered(*f.client.domain, pattern(10)));
            const std::uint32_t key = g->where().key + (w == what::made_up ? 1 : 0);
            if (!f.can().remote_invalidate) {
                co_await invalidates_nothing(f, n, out, *g, key);
                co_return;
            }
            VERBENA_MUST(post_receive(*n.s, 1, in.all()));
            VERBENA_MUST(post(*n.c, 2, opcode::send_with_invalidate, {out.all()}, {}, key));
            co_await f.both_ended(n);
            VERBENA_MUST(n.s_seen.at(1).status != status::success);
            VERBENA_MUST(g->valid());
        });
    }
}

void local_invalidate(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory target(co_await registered(*f.server.domain, 100));
        auto g = co_await narrow(f, f.server, target, read_and_write, n.s.get());
        const auto where = g.where();
        const auto posted = post(*n.s, 9, opcode::local_invalidate, {}, {}, where.key);
        VERBENA_MUST_EQUAL(bool(posted), f.can().local_invalidate);
        if (!posted) {
            VERBENA_MUST_EQUAL(posted.error(), std::errc::operation_not_supported);
            VERBENA_MUST(g.valid());
            co_return;
        }
        const std::function<bool()> done = [&] { return n.s_seen.find(9) != nullptr; };
        co_await f.until(done);
        VERBENA_MUST_EQUAL(n.s_seen.at(9).status, status::success);
        VERBENA_MUST(n.s_seen.at(9).opcode == opcode::local_invalidate);
        VERBENA_MUST(!g.valid());
        co_await must_fail(f, n, opcode::rdma_write, where, target);
    });
}

void local_invalidate_of_a_dead_key_breaks_the_queue_pair(subject& p)
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
        VERBENA_MUST_EQUAL(bool(posted), f.can().local_invalidate);
        if (!posted) {
            VERBENA_MUST_EQUAL(posted.error(), std::errc::operation_not_supported);
            VERBENA_MUST(n.s->connected());
            co_return;
        }
        VERBENA_MUST(post(*n.s, 2, opcode::send, {out.all()}));
        co_await f.both_ended(n);
        VERBENA_MUST_EQUAL(n.s_seen.count(1), 1u);
        VERBENA_MUST_EQUAL(n.s_seen.at(1).status, status::local_protection_error);
        VERBENA_MUST_EQUAL(n.s_seen.count(2), 1u);
        VERBENA_MUST_EQUAL(n.s_seen.at(2).status, status::work_request_flushed);
    });
}

void local_keys(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory in(co_await registered(*f.server.domain, 100));
        memory out(co_await registered(*f.client.domain, pattern(100)));
        VERBENA_MUST(post_receive(*n.s, 1, in.all()));
        std::vector<std::byte> unknown = pattern(100);
        const verbs::segment no_key{unknown.data(), 100, 0};
        VERBENA_MUST(post(*n.c, 2, opcode::send, {no_key}));
        if (!f.can().needs_local_keys) {
            const std::function<bool()> there = [&] { return n.s_seen.good(1); };
            co_await f.until(there);
            VERBENA_MUST(in.bytes == unknown);
            co_return;
        }
        co_await f.both_ended(n);
        VERBENA_MUST_EQUAL(n.c_seen.at(2).status, status::local_protection_error);
        VERBENA_MUST_EQUAL(n.s_seen.at(1).status, status::work_request_flushed);
        // A grant lies in registered memory too.
        const auto refused = co_await f.server.domain->make_grant(unknown, read_and_write, nullptr);
        VERBENA_MUST(!refused);
        // A key serves its own memory only, and its own domain.
        connection second;
        co_await f.connect(second);
        verbs::segment beyond = out.all();
        beyond.address += 1;
        VERBENA_MUST(post_receive(*second.s, 1, in.all()));
        VERBENA_MUST(post(*second.c, 2, opcode::send, {beyond}));
        co_await f.both_ended(second);
        VERBENA_MUST_EQUAL(second.c_seen.at(2).status, status::local_protection_error);
        connection third;
        co_await f.connect(third);
        verbs::segment foreign = in.all();
        foreign.local_key = out.all().local_key;
        const auto posted = post_receive(*third.s, 1, foreign);
        if (!posted) { // found out at once
            VERBENA_MUST_EQUAL(posted.error(), std::errc::bad_address);
            co_return;
        }
        VERBENA_MUST(post(*third.c, 2, opcode::send, {out.all()}));
        co_await f.both_ended(third);
        VERBENA_MUST_EQUAL(third.s_seen.at(1).status, status::local_protection_error);
        VERBENA_MUST_EQUAL(third.c_seen.at(2).status, status::remote_operation_error);
    });
}

void grants_of_a_batch_revoked_together_and_made_again(subject& p)
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
            VERBENA_MUST(made);
            std::vector<verbs::grant> grants;
            std::vector<std::uint32_t> keys;
            for (auto& r : requests) {
                grants.push_back(std::move(r.made));
                keys.push_back(grants.back().where().key);
            }
            std::ranges::sort(keys);
            VERBENA_MUST(std::ranges::adjacent_find(keys) == keys.end());
            n.c_seen.seen.clear();
            for (std::size_t i = 0; i < count; ++i)
                VERBENA_MUST(
                    post(*n.c, i, opcode::rdma_write, {out.part(i * each, each)}, grants[i].where()));
            const std::function<bool()> written = [&] { return target.bytes == out.bytes; };
            co_await f.until(written);
            // Its completions: the send queue has room for the next round.
            const std::function<bool()> all = [&] { return n.c_seen.seen.size() == count; };
            co_await f.until(all);
            dead = grants.back().where();
            co_await f.server.domain->revoke(grants);
            VERBENA_MUST(std::ranges::none_of(grants, [](const auto& g) { return bool(g); }));
        }
        n.c_seen.seen.clear();
        co_await must_fail(f, n, opcode::rdma_write, dead, target);
    });
}

void revoking_takes_effect_at_once(subject& p)
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
            VERBENA_MUST(post(*n.c, i, opcode::rdma_write, {out.part(i << 16, 1 << 16)}, at));
        }
        g = verbs::grant();
        const auto at_revocation = target.bytes;
        // A device may have carried out all of them by now.
        if (p.works_by_itself())
            (void)post(*n.c, 64, opcode::rdma_write, {out.part(1 << 16, 1 << 16)}, where);
        co_await f.both_ended(n);
        VERBENA_MUST(target.bytes == at_revocation);
    });
}

// An RDMA Read may be anywhere on its way, the answer to it too.
void what_is_revoked_is_read_no_more(subject& p)
{
    constexpr std::size_t size = 1 << 20;
    constexpr std::size_t each = 1 << 16;
    const std::vector<std::byte> whole(each, std::byte('x'));
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
                VERBENA_MUST(post(*n.c, at, opcode::rdma_read, {sink.part(at, each)}, from));
            }
            if (delay != 0us)
                co_await sleep_for(delay);
            g = verbs::grant();
            std::fill(source.bytes.begin(), source.bytes.end(), std::byte('y'));
            // Where all were over by then, one more is refused.
            (void)post(*n.c, size, opcode::rdma_read, {sink.part(0, each)}, where);
            co_await f.both_ended(n);
            VERBENA_MUST(std::memchr(sink.bytes.data(), 'y', size) == nullptr);
            for (const auto& c : n.c_seen.seen) {
                const std::size_t at = c.id;
                VERBENA_MUST(at <= size && at % each == 0); // one that was posted
                VERBENA_MUST(c.status != status::success || at + each > size ||
                             alike(std::span(sink.bytes).subspan(at, each), whole));
            }
        });
    }
}

void a_renewable_grant(subject& p)
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
        VERBENA_MUST_EQUAL(bool(made), f.can().renewable_grants);
        if (!made) {
            VERBENA_MUST_EQUAL(made.error(), std::errc::operation_not_supported);
            co_return;
        }
        verbs::grant& g = wanted[0].made;
        VERBENA_MUST(g.valid());
        std::uint64_t id = 100;
        // What the peer of `n` writes by `key`.
        const auto write = [&](connection& n, std::uint32_t key, std::size_t bytes) {
            const verbs::remote_segment at{key, std::uint32_t(bytes), g.where().address};
            VERBENA_MUST(post(*n.c, ++id, opcode::rdma_write, {out.part(0, bytes)}, at));
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
        VERBENA_MUST(post_receive(*second.c, 1, in.all()));
        const std::uint32_t next = g.next_key();
        VERBENA_MUST(next != old);
        std::memcpy(told.bytes.data(), &next, sizeof next);
        const verbs::segment message = told.part(0, sizeof next);
        std::array<verbs::send_request, 2> batch = {renewal(opcode::bind), verbs::send_request{}};
        batch[0].signalled = false;
        batch[1].id = ++id;
        batch[1].segments = {&message, 1};
        VERBENA_MUST(second.s->post_send(batch));
        const std::function<bool()> is_told = [&] { return second.c_seen.good(1); };
        co_await f.until(is_told);
        VERBENA_MUST(std::equal(in.bytes.begin(), in.bytes.begin() + sizeof next, told.bytes.begin()));
        VERBENA_MUST(g.where().key == next);
        write(second, next, 2000);
        co_await placed(2000);
        VERBENA_MUST(std::equal(target.bytes.begin(), target.bytes.begin() + 2000, out.bytes.begin()));
        VERBENA_MUST(target.bytes[2000] == std::byte(0));

        // The old one is dead.
        write(first, old, 3000);
        co_await f.both_ended(first);
        VERBENA_MUST(target.bytes[2000] == std::byte(0));

        // So is that of an unbound one, once this has completed, and there is none until it is bound again.
        const verbs::send_request away = renewal(opcode::unbind);
        VERBENA_MUST(third.s->post_send({&away, 1}));
        VERBENA_MUST(!f.can().renews_at_once || !g.valid());
        const std::function<bool()> is_away = [&] { return third.s_seen.good(away.id); };
        co_await f.until(is_away);
        VERBENA_MUST(!g.valid());
        write(second, next, 3000);
        co_await f.both_ended(second);
        VERBENA_MUST(target.bytes[2000] == std::byte(0));

        // More often than a device has keys for a window.
        for (unsigned i = 0; i < 260; ++i) {
            const verbs::send_request bind = renewal(opcode::bind);
            const std::uint32_t key = g.next_key();
            VERBENA_MUST(third.s->post_send({&bind, 1}));
            const std::function<bool()> is_bound = [&] { return third.s_seen.good(bind.id); };
            co_await f.until(is_bound);
            VERBENA_MUST(g.valid());
            VERBENA_MUST(g.where().key == key);
            target.bytes[0] = std::byte(0);
            write(third, key, 1);
            co_await placed(1);
            const verbs::send_request unbind = renewal(opcode::unbind);
            VERBENA_MUST(third.s->post_send({&unbind, 1}));
            const std::function<bool()> is_unbound = [&] { return third.s_seen.good(unbind.id); };
            co_await f.until(is_unbound);
        }
        VERBENA_MUST_EQUAL(third.c_seen.ends, 0u);
        const std::span<verbs::grant> all(&wanted[0].made, 1);
        co_await f.server.domain->revoke(all);
    });
}

constexpr check all[] = {
    {"what a peer may not touch", "rights", what_a_peer_may_not_touch, nullptr},
    {"what lies beside a grant in its region", "rights", what_lies_beside_a_grant_in_its_region, nullptr},
    {"keys that are no keys", "rights", keys_that_are_no_keys, nullptr},
    {"a write of nothing needs no key and shows nowhere", "rights",
     a_write_of_nothing_needs_no_key_and_shows_nowhere, nullptr},
    {"a grant for one queue pair", "rights", a_grant_for_one_queue_pair, nullptr},
    {"send with invalidate", "rights", send_with_invalidate, nullptr},
    {"send with invalidate of what is not the peers to invalidate", "rights",
     send_with_invalidate_of_what_is_not_the_peers_to_invalidate, nullptr},
    {"local invalidate", "rights", local_invalidate, nullptr},
    {"local invalidate of a dead key breaks the queue pair", "rights",
     local_invalidate_of_a_dead_key_breaks_the_queue_pair, nullptr},
    {"local keys", "rights", local_keys, nullptr},
    {"grants of a batch revoked together and made again", "rights",
     grants_of_a_batch_revoked_together_and_made_again, nullptr},
    {"revoking takes effect at once", "rights", revoking_takes_effect_at_once, nullptr},
    {"what is revoked is read no more", "rights", what_is_revoked_is_read_no_more, nullptr},
    {"a renewable grant", "rights", a_renewable_grant, nullptr},
};

} // namespace
} // namespace rights

std::span<const check> right_checks() noexcept { return rights::all; }

} // namespace verbena::testing::conformance
