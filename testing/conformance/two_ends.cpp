// SPDX-License-Identifier: Apache-2.0
// Checks of which a server has the other end, on this host or on another one.
#include "fixture.hpp"

#include <verbena/testing/conformance/target.hpp>

#include <algorithm>

namespace verbena::testing::conformance {
namespace two_ends {
namespace {

using verbs::access;

constexpr auto read_and_write = access::remote_read | access::remote_write;
constexpr std::size_t sizes[] = {1, 63, 64, 65, 4095, 4096, 4097, 65536, 1048573, end::bulk_size};

verbs::remote_segment opened(const message& m)
{
    return {static_cast<std::uint32_t>(m.a), static_cast<std::uint32_t>(m.c), m.b};
}

task<verbs::remote_segment> open(end& e, access rights, std::size_t bytes, std::uint64_t seed)
{
    const message m = co_await e.ask(request::open, std::uint64_t(rights), bytes, seed);
    co_return opened(m);
}

// --- connections ---

// connect() has compared what came back.
task<void> private_data(target& t)
{
    end e(t.context);
    co_await t.connect(e);
}

task<void> reject(target& t)
{
    end e(t.context);
    co_await e.prepare();
    greeting g;
    g.what = greeting::refuse_me;
    g.id = ++t.last_id;
    const auto data = g.write();
    verbs::connect_options o;
    o.private_data = data;
    std::vector<std::byte> reply;
    const auto made = co_await t.context.connect(t.address, e.domain(), o, reply);
    need(!made, "a connection that the peer rejects stands");
    need(made.error() == std::errc::connection_refused, "a reject is " + made.error().message());
    const auto said = greeting::read(reply);
    need(said, "the private data of a reject");
    need(said->id == g.id, "the private data of a reject are another's");
}

task<void> orderly_close(target& t)
{
    end e(t.context);
    const std::uint64_t id = co_await t.connect(e);
    co_await open(e, read_and_write, 4096, 1);
    e.pair().disconnect();
    const auto over = [&e] { return e.ended(); };
    co_await e.until(over, "the end of a connection that this end closes");
    need(e.why() == verbs::make_error_code(verbs::connection_end::orderly),
         "closed in good order, it ended with: " + e.why().message());
    need(e.flushed_receives() == end::slots && e.strays() == 0, "not every receive was flushed once");
    const std::uint64_t fate = co_await t.fate(id);
    need((fate & fate_orderly) != 0, "the peer didn't see a close in good order");
    need((fate & fate_flushed) != 0, "the peer's receives were not flushed once each");
}

task<void> kill_flushes(target& t)
{
    end e(t.context);
    const std::uint64_t id = co_await t.connect(e);
    const verbs::remote_segment where = co_await open(e, access::remote_read, end::bulk_size, 2);
    std::vector<std::uint64_t> ids;
    for (int i = 0; i < 16; ++i)
        ids.push_back(e.post(opcode::rdma_read, e.bulk(end::bulk_size), where));
    e.pair().kill(error(std::errc::connection_aborted, "a test"));
    need(e.ends() == 1, "kill() returned before the end was told");
    need(e.flushed_receives() == end::slots && e.strays() == 0, "not every receive was flushed once");
    for (const std::uint64_t one : ids) {
        const verbs::completion c = co_await e.finished(one);
        need(c.status == status::success || c.status == status::work_request_flushed,
             "a Read ended with " + std::string(verbs::to_string(c.status)));
    }
    const std::uint64_t fate = co_await t.fate(id);
    need((fate & fate_untouched) != 0, "memory that was open to read only has changed");
}

task<void> many_connections(target& t)
{
    std::vector<std::unique_ptr<end>> all;
    for (int i = 0; i < 8; ++i) {
        all.push_back(std::make_unique<end>(t.context));
        co_await t.connect(*all.back());
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
        const verbs::remote_segment where = co_await open(*all[i], read_and_write, 5000, i);
        fill(all[i]->bulk(5000), i + 100);
        const std::uint64_t id = all[i]->post(opcode::rdma_write, all[i]->bulk(5000), where);
        co_await all[i]->succeeded(id, "RDMA Write");
        if (i % 2 == 1) // ends one beside it, which disturbs none
            all[i - 1]->pair().kill(error(std::errc::connection_aborted, "a test"));
    }
    for (std::size_t i = 1; i < all.size(); i += 2) {
        const message m = co_await all[i]->ask(request::sum, 5000);
        need(m.a == sum(all[i]->bulk(5000)), "what one connection wrote is not there");
    }
}

// --- messages ---

task<void> sends_in_order(target& t)
{
    constexpr std::uint64_t count = end::slots - 4; // no more than the peer's receives
    end e(t.context);
    co_await t.connect(e);
    for (int round = 0; round < 8; ++round) {
        message m;
        m.what = request::expect;
        m.a = count;
        co_await e.send(m);
        std::uint64_t last = 0;
        for (std::uint32_t i = 0; i < count; ++i) {
            const std::size_t bytes = numbered(i, e.outgoing(i));
            last = e.post(opcode::send, e.outgoing(i).first(bytes));
        }
        const message reply = co_await e.receive(request::expect);
        need(reply.a == count,
             std::to_string(reply.a) + " of " + std::to_string(count) + " messages came whole and in order");
        co_await e.succeeded(last, "Send");
    }
}

task<void> too_long_a_message(target& t)
{
    end e(t.context);
    const std::uint64_t id = co_await t.connect(e);
    const std::uint64_t sent = e.post(opcode::send, e.bulk(end::slot + 1));
    const auto over = [&e] { return e.ended(); };
    co_await e.until(over, "the end of a connection whose receive was too short");
    const verbs::completion c = co_await e.finished(sent);
    // The peer's disconnect may overtake what it says of the Send.
    if (t.context.query().completion_means_delivered)
        need(c.status == status::remote_invalid_request || c.status == status::remote_operation_error ||
                 c.status == status::work_request_flushed,
             "a Send that fits no receive ended with " + std::string(verbs::to_string(c.status)));
    const std::uint64_t fate = co_await t.fate(id);
    need((fate & fate_orderly) == 0, "the peer saw a close in good order");
}

task<void> write_with_immediate(target& t)
{
    if (!t.context.query().write_with_immediate)
        throw not_supported("Write with Immediate");
    end e(t.context);
    co_await t.connect(e);
    const message theirs = co_await e.ask(request::takes_immediate);
    if (theirs.a == 0)
        throw not_supported("Write with Immediate of the peer");
    const verbs::remote_segment where = co_await open(e, read_and_write, 3000, 3);
    message m;
    m.what = request::immediate;
    co_await e.send(m);
    fill(e.bulk(3000), 4);
    const std::uint64_t id = e.post(opcode::write_with_immediate, e.bulk(3000), where, 0, 0xfedcba98);
    const message reply = co_await e.receive(request::immediate);
    need(reply.a == 0xfedcba98, "the immediate came as " + std::to_string(reply.a));
    need(reply.b == 3000, "the immediate tells of " + std::to_string(reply.b) + " octets");
    co_await e.succeeded(id, "Write with Immediate");
    const message there = co_await e.ask(request::sum, 3000);
    need(there.a == sum(e.bulk(3000)), "other data than were written");
}

task<void> inline_data(target& t)
{
    const std::size_t most = t.context.query().max_inline;
    if (most == 0)
        throw not_supported("inline data");
    end e(t.context);
    co_await t.connect(e);
    for (const std::size_t bytes : {std::size_t(1), most}) {
        const verbs::remote_segment where = co_await open(e, read_and_write, bytes, 12);
        std::vector<std::byte> data(bytes);
        fill(data, 13);
        const std::uint64_t wanted = sum(data);
        const std::uint64_t id = e.post(opcode::rdma_write, data, where, 0, 0, {.inline_data = true});
        std::ranges::fill(data, std::byte(0xee)); // it has been taken
        const message there = co_await e.ask(request::sum, bytes);
        need(there.a == wanted,
             "other data came than " + std::to_string(bytes) + " octets that were written");
        co_await e.succeeded(id, "RDMA Write of inline data");
    }
    if (most < message::size)
        co_return;
    message m;
    m.what = request::sum;
    m.a = most;
    std::vector<std::byte> data(message::size);
    m.write(data.data());
    const std::uint64_t id = e.post(opcode::send, data, {}, 0, 0, {.inline_data = true});
    std::ranges::fill(data, std::byte(0xee));
    (void)co_await e.receive(request::sum);
    co_await e.succeeded(id, "Send of inline data");
}

task<void> unsignalled(target& t)
{
    constexpr std::size_t piece = 1000;
    constexpr std::size_t count = 32;
    end e(t.context);
    co_await t.connect(e);
    const verbs::remote_segment where = co_await open(e, read_and_write, piece * count, 16);
    // Together more than the send queue holds.
    for (std::uint64_t round = 0; round < 32; ++round) {
        fill(e.bulk(piece * count), round);
        verbs::remote_segment at = where;
        std::uint64_t last = 0;
        for (std::size_t i = 0; i < count; ++i) {
            posting how;
            how.signalled = i + 1 == count;
            last = e.post(opcode::rdma_write, e.bulk(piece * count).subspan(i * piece, piece), at, 0, 0, how);
            at.address += piece;
        }
        co_await e.succeeded(last, "the one of many RDMA Writes that is signalled");
        const message there = co_await e.ask(request::sum, piece * count);
        need(there.a == sum(e.bulk(piece * count)), "other data than were written");
    }
    need(e.strays() == 0, "a request that is not signalled has a completion");
}

task<void> shared_receives(target& t)
{
    if (!t.context.query().shared_receives)
        throw not_supported("shared receive queues");
    end a(t.context);
    end b(t.context);
    co_await a.prepare();
    co_await a.share_receives();
    co_await b.prepare(&a);
    a.post_receives();
    co_await t.connect(a);
    co_await t.connect(b);
    const std::size_t size_a = 3000;
    const std::size_t size_b = 5000;
    co_await open(a, read_and_write, size_a, 14);
    co_await open(b, read_and_write, size_b, 15);
    fill(a.bulk(size_a), 14);
    fill(b.bulk(size_b), 15);
    message m;
    m.what = request::sum;
    for (std::size_t i = 0; i < end::slots; ++i) {
        m.a = size_a;
        co_await a.send(m);
        m.a = size_b;
        co_await b.send(m);
        const message to_b = co_await b.receive(request::sum);
        const message to_a = co_await a.receive(request::sum);
        need(to_a.a == sum(a.bulk(size_a)) && to_b.a == sum(b.bulk(size_b)),
             "a message came to the wrong connection");
    }
    a.pair().kill(error(std::errc::connection_aborted, "a test"));
    for (std::size_t i = 0; i < 2 * end::slots; ++i) {
        const message to_b = co_await b.ask(request::sum, size_b);
        need(to_b.a == sum(b.bulk(size_b)), "other data once the other connection had ended");
    }
    need(a.flushed_receives() == 0, "the end of one connection has flushed shared receives");
    need(a.shared()->standing() == end::slots, "receives are lost");
}

// --- RDMA Read and Write ---

task<void> writes(target& t)
{
    end e(t.context);
    co_await t.connect(e);
    const verbs::remote_segment where = co_await open(e, read_and_write, end::bulk_size, 5);
    for (const std::size_t bytes : sizes) {
        fill(e.bulk(bytes), bytes);
        const std::uint64_t id = e.post(opcode::rdma_write, e.bulk(bytes), where);
        const message m = co_await e.ask(request::sum, bytes);
        need(m.a == sum(e.bulk(bytes)),
             "other data came than " + std::to_string(bytes) + " octets that were written");
        co_await e.succeeded(id, "RDMA Write");
    }
}

task<void> reads(target& t)
{
    end e(t.context);
    co_await t.connect(e);
    for (const std::size_t bytes : sizes) {
        const verbs::remote_segment where = co_await open(e, access::remote_read, bytes, bytes + 1);
        const std::uint64_t id = e.post(opcode::rdma_read, e.bulk(bytes), where);
        co_await e.succeeded(id, "RDMA Read");
        std::vector<std::byte> wanted(bytes);
        fill(wanted, bytes + 1);
        need(alike(wanted, e.bulk(bytes)), "other data than the peer's " + std::to_string(bytes) + " octets");
    }
}

task<void> reads_at_once(target& t)
{
    constexpr std::size_t piece = 10000;
    constexpr std::size_t count = 64;
    end e(t.context);
    co_await t.connect(e);
    need(e.pair().max_reads() > 0, "no RDMA Read may be outstanding");
    verbs::remote_segment where = co_await open(e, access::remote_read, piece * count, 6);
    std::vector<std::uint64_t> ids;
    for (std::size_t i = 0; i < count; ++i) {
        ids.push_back(e.post(opcode::rdma_read, e.bulk(piece * count).subspan(i * piece, piece), where));
        where.address += piece;
    }
    for (const std::uint64_t id : ids)
        co_await e.succeeded(id, "one of many RDMA Reads");
    std::vector<std::byte> wanted(piece * count);
    fill(wanted, 6);
    need(alike(wanted, e.bulk(piece * count)), "other data than the peer's");
}

// One at a time is all that this end may send; those behind wait for it.
task<void> read_depth_of_1(target& t)
{
    constexpr std::size_t piece = 5000;
    constexpr std::size_t count = 16;
    end e(t.context);
    co_await t.connect(e, 1);
    need(e.pair().max_reads() == 1,
         std::to_string(e.pair().max_reads()) + " RDMA Reads at once, of 1 asked for");
    verbs::remote_segment where = co_await open(e, access::remote_read, piece * count, 17);
    std::uint64_t last = 0;
    for (std::size_t i = 0; i < count; ++i) {
        last = e.post(opcode::rdma_read, e.bulk(piece * count).subspan(i * piece, piece), where);
        where.address += piece;
    }
    co_await e.succeeded(last, "the last of many RDMA Reads");
    std::vector<std::byte> wanted(piece * count);
    fill(wanted, 17);
    need(alike(wanted, e.bulk(piece * count)), "other data than the peer's");
}

// What a Read brings is written back: without the fence, what was there before would be.
task<void> fence(target& t)
{
    constexpr std::size_t half = std::size_t(1) << 20;
    end e(t.context);
    co_await t.connect(e);
    for (std::uint64_t seed = 20; seed < 24; ++seed) {
        const verbs::remote_segment where = co_await open(e, read_and_write, 2 * half, seed);
        verbs::remote_segment behind = where;
        behind.address += half;
        fill(e.bulk(half), 18);
        e.post(opcode::rdma_read, e.bulk(half), where);
        const std::uint64_t id = e.post(opcode::rdma_write, e.bulk(half), behind, 0, 0, {.fence = true});
        co_await e.succeeded(id, "RDMA Write behind a fence");
        std::vector<std::byte> wanted(2 * half);
        fill(wanted, seed);
        std::copy_n(wanted.begin(), half, wanted.begin() + half);
        const message there = co_await e.ask(request::sum, 2 * half);
        need(there.a == sum(wanted), "the Write has not waited for the Read in front of it");
    }
}

// The server as requester, as it is in RPC-over-RDMA.
task<void> served_by_the_peer(target& t)
{
    end e(t.context);
    co_await t.connect(e);
    for (const std::size_t bytes : sizes) {
        const auto memory = e.bulk(bytes);
        const auto g = co_await e.grant(memory, read_and_write);
        fill(memory, bytes + 2);
        const auto where = g.where();
        const message read = co_await e.ask(request::pull, where.key, where.address, where.length);
        need(read.a == sum(memory), "the peer read other data");
        co_await e.ask(request::push, where.key, where.address, where.length, bytes + 3);
        std::vector<std::byte> wanted(bytes);
        fill(wanted, bytes + 3);
        need(alike(wanted, memory), "a Send came before the data that were written in front of it");
    }
}

task<void> remote_invalidate(target& t)
{
    if (!t.context.query().remote_invalidate)
        throw not_supported("remote invalidation");
    end e(t.context);
    co_await t.connect(e);
    const auto g = co_await e.grant(e.bulk(4096), read_and_write);
    const auto where = g.where();
    message m;
    m.what = request::push_last;
    m.a = where.key;
    m.b = where.address;
    m.c = where.length;
    m.d = 9;
    co_await e.send(m);
    const verbs::completion c = co_await e.received();
    if (message::read(e.incoming(c).data()).d != 0)
        throw not_supported("remote invalidation, by the peer");
    need(c.invalidated_key == where.key,
         "the receive tells of another key, " + std::to_string(c.invalidated_key));
    need(!g.valid(), "the key is still good");
}

task<void> local_invalidate(target& t)
{
    if (!t.context.query().local_invalidate)
        throw not_supported("local invalidation");
    end e(t.context);
    const std::uint64_t id = co_await t.connect(e);
    const auto memory = e.bulk(4096);
    const auto g = co_await e.grant(memory, read_and_write);
    const auto where = g.where();
    fill(memory, 19);
    const message read = co_await e.ask(request::pull, where.key, where.address, where.length);
    need(read.a == sum(memory), "the peer read other data");
    co_await e.succeeded(e.post(opcode::local_invalidate, {}, {}, where.key), "Local Invalidate");
    need(!g.valid(), "the key is still good");
    message m;
    m.what = request::push;
    m.a = where.key;
    m.b = where.address;
    m.c = where.length;
    m.d = 20;
    m.write(e.outgoing().data());
    const std::uint64_t sent = e.post(opcode::send, e.outgoing().first(message::size));
    const auto over = [&e] { return e.ended(); };
    co_await e.until(over, "the end of a connection whose peer writes by a key that was invalidated");
    // A peer is told of the Send before it acknowledges it (rxe), and its Write may come before that.
    const verbs::completion c = co_await e.finished(sent);
    need(c.status == status::success || c.status == status::work_request_flushed,
         "the Send to the peer ended with " + std::string(verbs::to_string(c.status)));
    need(sum(memory) == read.a, "the peer has written by a key that was invalidated");
    const std::uint64_t fate = co_await t.fate(id);
    need((fate & fate_ended) != 0, "the connection stands at the peer");
}

// --- rights ---

// One connection, one request that the peer's rights forbid, and one behind it.
template<opcode op, access rights, std::uint64_t shift, std::uint32_t other_key, bool revoked>
task<void> must_fail(target& t)
{
    if constexpr (op == opcode::rdma_read && rights == access::remote_write) {
        if (t.of_server != nullptr && !t.of_server->checks_read_rights)
            throw not_supported("the right to read, which the peer's provider doesn't check");
    }
    if constexpr (shift != 0) {
        if (t.of_server != nullptr && !t.of_server->checks_grant_bounds)
            throw not_supported("bounds of grants, which the peer's provider doesn't check");
    }
    end e(t.context);
    const std::uint64_t id = co_await t.connect(e);
    verbs::remote_segment where = co_await open(e, rights, 1000, 7);
    if (revoked)
        co_await e.ask(request::revoke);
    where.address += shift;
    where.key += other_key;
    fill(e.bulk(1000), 8);
    const std::uint64_t before = sum(e.bulk(1000));
    const std::uint64_t first = e.post(op, e.bulk(1000), where);
    // It arrives if the peer answers a Read later (RFC 5040 5.5).
    message said;
    said.what = request::nothing;
    said.write(e.outgoing().data());
    const std::uint64_t behind = e.post(opcode::send, e.outgoing().first(message::size));
    const verbs::completion a = co_await e.finished(first);
    const bool told = op == opcode::rdma_read || t.context.query().completion_means_delivered;
    need(a.status != status::success || !told, "it succeeded");
    const auto over = [&e] { return e.ended(); };
    co_await e.until(over, "the end of the connection");
    const verbs::completion b = co_await e.finished(behind);
    if (op == opcode::rdma_read)
        need(sum(e.bulk(1000)) == before, "the Read changed its sink");
    if (t.context.query().completion_means_delivered) {
        need(a.status == status::remote_access_error,
             "it ended with " + std::string(verbs::to_string(a.status)));
        need(b.status == status::work_request_flushed,
             "what was behind it ended with " + std::string(verbs::to_string(b.status)));
    }
    need(e.flushed_receives() == end::slots && e.strays() == 0, "not every receive was flushed once");
    const std::uint64_t fate = co_await t.fate(id);
    need((fate & fate_ended) != 0, "the connection stands at the peer");
    need((fate & fate_untouched) != 0, "the peer's memory has changed");
}

constexpr auto before_start = std::uint64_t(-1);

constexpr check all[] = {
    {"private data, both ways", "two ends", nullptr, private_data},
    {"reject with private data", "two ends", nullptr, reject},
    {"sends whole and in order, 40 to 65,536 octets", "two ends", nullptr, sends_in_order},
    {"RDMA Write, 1 octet to 8 MiB", "two ends", nullptr, writes},
    {"RDMA Read, 1 octet to 8 MiB", "two ends", nullptr, reads},
    {"64 RDMA Reads at once", "two ends", nullptr, reads_at_once},
    {"RDMA Reads at a depth of 1", "two ends", nullptr, read_depth_of_1},
    {"a fence waits for RDMA Reads", "two ends", nullptr, fence},
    {"the peer reads and writes, and its Send comes behind the data", "two ends", nullptr,
     served_by_the_peer},
    {"inline data", "two ends", nullptr, inline_data},
    {"requests that are not signalled", "two ends", nullptr, unsignalled},
    {"Write with Immediate", "two ends", nullptr, write_with_immediate},
    {"Send with Invalidate", "two ends", nullptr, remote_invalidate},
    {"Local Invalidate", "two ends", nullptr, local_invalidate},
    {"Write without the right", "two ends", nullptr,
     must_fail<opcode::rdma_write, access::remote_read, 0, 0, false>},
    {"Write beyond the end", "two ends", nullptr, must_fail<opcode::rdma_write, read_and_write, 1, 0, false>},
    {"Write before the start", "two ends", nullptr,
     must_fail<opcode::rdma_write, read_and_write, before_start, 0, false>},
    {"Write by a key made up", "two ends", nullptr,
     must_fail<opcode::rdma_write, read_and_write, 0, 1, false>},
    {"Write by a revoked key", "two ends", nullptr,
     must_fail<opcode::rdma_write, read_and_write, 0, 0, true>},
    {"Read without the right", "two ends", nullptr,
     must_fail<opcode::rdma_read, access::remote_write, 0, 0, false>},
    {"Read beyond the end", "two ends", nullptr, must_fail<opcode::rdma_read, read_and_write, 1, 0, false>},
    {"Read before the start", "two ends", nullptr,
     must_fail<opcode::rdma_read, read_and_write, before_start, 0, false>},
    {"Read by a key made up", "two ends", nullptr, must_fail<opcode::rdma_read, read_and_write, 0, 1, false>},
    {"Read by a revoked key", "two ends", nullptr, must_fail<opcode::rdma_read, read_and_write, 0, 0, true>},
    {"a message longer than its receive ends the connection", "two ends", nullptr, too_long_a_message},
    {"an orderly close flushes once at both ends", "two ends", nullptr, orderly_close},
    {"an abrupt end flushes once", "two ends", nullptr, kill_flushes},
    {"8 connections do not disturb each other", "two ends", nullptr, many_connections},
    {"two connections share their receives", "two ends", nullptr, shared_receives},
};

} // namespace
} // namespace two_ends

std::span<const check> checks_from_one_end() noexcept { return two_ends::all; }

task<std::uint64_t> target::connect(end& e, std::uint32_t reads)
{
    greeting g;
    g.id = ++last_id;
    const auto data = g.write();
    const auto reply = co_await connect_as(e, data, reads);
    const auto said = greeting::read(reply);
    need(said, "the reply's private data");
    need(said->id == g.id, "the reply's private data are another's");
    co_return g.id;
}

task<std::vector<std::byte>> target::connect_as(end& e, std::span<const std::byte> private_data,
                                                std::uint32_t reads)
{
    e.set_deadline(deadline);
    if (!e.is_prepared())
        co_await e.prepare();
    verbs::connect_options o;
    o.private_data = private_data;
    o.initiator_depth = reads;
    o.queue_pair.shared_receives = e.shared();
    std::vector<std::byte> reply;
    auto made = co_await context.connect(address, e.domain(), o, reply);
    if (const auto said = greeting::read(reply); !made && said && said->what == greeting::full)
        throw failure("connect: the other end has as many connections as it serves at once; wait for other "
                      "runs to end, or start it anew");
    need(made, "connect");
    e.adopt(std::move(*made));
    if (!context.query().completion_means_delivered)
        e.wake_peer(wakes);
    if (e.shared() == nullptr)
        e.post_receives();
    co_return reply;
}

task<std::uint64_t> target::fate(std::uint64_t id)
{
    const message m = co_await main.ask(request::fate, id);
    co_return m.a;
}

task<std::string> target::describe()
{
    message m;
    m.what = request::describe;
    co_await main.send(m);
    const verbs::completion c = co_await main.received();
    need(c.length >= message::size, "a description too short");
    const auto octets = main.incoming(c).subspan(message::size);
    std::string text(reinterpret_cast<const char*>(octets.data()), octets.size());
    main.release(c);
    co_return text;
}

task<void> target::leave()
{
    main.pair().disconnect();
    const auto over = [this] { return main.ended(); };
    co_await main.until(over, "the end of the connection that the server was asked by");
}

} // namespace verbena::testing::conformance
