// SPDX-License-Identifier: Apache-2.0
// RPC-over-RDMA version 1 by headers made one by one: what no requester of ours would send, and what a responder says.
#include "rpc_checks.hpp"
#include "rpc_server.hpp"

#include <verbena/protocols/rpc/message.hpp>
#include <verbena/protocols/rpcrdma/header.hpp>
#include <verbena/protocols/rpcrdma/private_data.hpp>

#include <algorithm>
#include <cstring>

namespace verbena::conform {
namespace {

using rpcrdma::header;
using rpcrdma::procedure;

constexpr auto written = verbs::access::local_write | verbs::access::remote_write;
constexpr std::uint32_t asked = 8; // credits

std::vector<std::byte> private_data(bool with_message, std::uint32_t size = 4096)
{
    std::vector<std::byte> all(rpc_mark.begin(), rpc_mark.end());
    if (with_message) {
        rpcrdma::private_message m;
        m.send_size = m.receive_size = size;
        const auto octets = rpcrdma::encode(m);
        all.insert(all.end(), octets.begin(), octets.end());
    }
    return all;
}

struct answer {
    rpcrdma::header head;
    std::vector<std::byte> body; ///< what follows the header
    std::size_t size;            ///< of the message
};

class raw_requester {
public:
    explicit raw_requester(target& t) : link(t.context), target_(t) {}
    task<std::vector<std::byte>> connect(bool with_message = true)
    {
        const auto data = private_data(with_message);
        auto said = co_await target_.connect_as(link, data);
        co_return said;
    }
    header begin()
    {
        header h;
        h.xid = ++xid_;
        h.credits = asked;
        return h;
    }
    /// A call with this header's XID.
    static std::vector<std::byte> call(const header& h, rpc_procedure p, std::uint32_t length = 0)
    {
        std::vector<std::byte> block(256);
        xdr::encoder out(block);
        rpc::call_header c;
        c.xid = h.xid;
        c.program = rpc_program;
        c.version = rpc_version;
        c.procedure = static_cast<std::uint32_t>(p);
        encode(out, c);
        if (p == rpc_procedure::produce || p == rpc_procedure::produce_text) {
            out.u32(length);
            out.u64(length + 7);
        }
        block.resize(out.size());
        return block;
    }
    /// Sends the header, of which `cut` octets are left out at its end, and `body`.
    task<void> send(const header& h, std::span<const std::byte> body, std::size_t cut = 0)
    {
        const auto to = link.outgoing(next_++ % end::slots);
        xdr::encoder out(to);
        encode(out, h);
        const std::size_t head = out.size() - cut;
        std::ranges::copy(body, to.begin() + static_cast<std::ptrdiff_t>(head));
        const std::uint64_t id = link.post(verbs::opcode::send, to.first(head + body.size()));
        co_await link.succeeded(id, "Send");
    }
    task<answer> receive()
    {
        const verbs::completion c = co_await link.received();
        const auto message = link.incoming(c);
        answer a;
        a.size = message.size();
        const auto found = rpcrdma::decode(message, a.head);
        need(found.action == rpcrdma::verdict::good,
             std::string("a reply's header: ") + (found.rule != nullptr ? found.rule : ""));
        const auto rest = message.subspan(found.offset);
        a.body.assign(rest.begin(), rest.end());
        link.release(c);
        co_return a;
    }
    /// Sends a call and takes its reply, which bears its XID.
    task<answer> exchange(const header& h, rpc_procedure p, std::uint32_t length = 0)
    {
        const auto body = call(h, p, length);
        co_await send(h, body);
        answer a = co_await receive();
        need(a.head.xid == h.xid, "the answer to another call");
        need(a.head.credits > 0, "a reply that grants no credit (RFC 8166 3.3.1)");
        co_return a;
    }
    /// The connection stands and serves.
    task<void> works_on()
    {
        const answer a = co_await exchange(begin(), rpc_procedure::null);
        (void)results(a.body, a.head.xid);
        need(a.head.proc == procedure::msg, "another kind of reply");
    }
    /// What follows the header of a successful reply.
    static std::span<const std::byte> results(std::span<const std::byte> message, std::uint32_t xid)
    {
        xdr::decoder in(message);
        rpc::reply_header r;
        decode(in, r);
        need(in.ok() && r.success() && r.xid == xid, "no successful reply");
        return in.rest();
    }
    /// As a result of `length` octets: behind their length, padded or not.
    static void need_item(std::span<const std::byte> got, std::uint32_t length)
    {
        std::vector<std::byte> wanted(xdr::padded(length));
        fill(std::span(wanted).first(length), length + 7);
        xdr::decoder in(got);
        need(in.u32() == length, "the length of a result");
        need(std::ranges::equal(in.rest(), wanted), "other octets came than were asked for");
    }

    end link;

private:
    target& target_;
    std::uint32_t xid_ = 0x76000000;
    std::size_t next_ = 0;
};

// --- connections ---

task<void> private_messages(target& t)
{
    // With the mark in front of it; our requester's own stands alone.
    raw_requester r(t);
    const auto said = co_await r.connect();
    const auto theirs = rpcrdma::find_private_message(said);
    need(theirs.has_value(), "the reply has no private message (RFC 8797)");
    need(theirs->send_size >= 1024 && theirs->receive_size >= 1024, "inline thresholds below 1,024 octets");
    // Beyond the threshold of those who say nothing.
    const std::uint32_t most = std::min<std::uint32_t>(theirs->send_size, 4096);
    if (most > 2048) {
        const answer a = co_await r.exchange(r.begin(), rpc_procedure::produce_text, 1500);
        raw_requester::need_item(raw_requester::results(a.body, a.head.xid), 1500);
    }
    co_await r.works_on();
}

task<void> without_private_message(target& t)
{
    raw_requester r(t);
    co_await r.connect(false);
    const answer a = co_await r.exchange(r.begin(), rpc_procedure::produce_text, 900);
    need(a.size <= rpcrdma::default_inline_threshold, "a message above 1,024 octets");
    raw_requester::need_item(raw_requester::results(a.body, a.head.xid), 900);
    // Nowhere to put it: not inline, whatever the two could have agreed on.
    const answer b = co_await r.exchange(r.begin(), rpc_procedure::produce_text, 1100);
    need(b.head.proc == procedure::error && b.head.error == rpcrdma::error_kind::chunk,
         "a reply above 1,024 octets to a peer that agreed to nothing");
    co_await r.works_on();
}

// --- chunks ---

// Pieces of the memory that is granted, with gaps between them.
constexpr std::pair<std::uint32_t, std::uint32_t> places[] = {{64, 1000}, {5001, 3}, {9000, 10000}};

template<class Add>
void add_places(const verbs::remote_segment& where, Add add)
{
    for (const auto& [at, length] : places)
        need(add(rpcrdma::segment{where.key, length, where.address + at}), "more segments than a header has");
}

// `total` octets of `stream` lie in the places, the rest of the memory is as it was, and the returned lengths say so.
void need_filled(std::span<const std::byte> memory, std::uint64_t seed, std::span<const std::byte> stream,
                 std::span<const rpcrdma::segment> returned)
{
    std::vector<std::byte> wanted(memory.size());
    fill(wanted, seed);
    need(returned.size() == std::size(places), "a chunk came back with other segments");
    std::size_t done = 0;
    for (std::size_t i = 0; i < std::size(places); ++i) {
        const std::size_t part = std::min<std::size_t>(stream.size() - done, places[i].second);
        need(returned[i].length == part, "the returned length of segment " + std::to_string(i));
        std::ranges::copy(stream.subspan(done, part), wanted.begin() + places[i].first);
        done += part;
    }
    need(done == stream.size(), "not all of a result was returned");
    need(std::ranges::equal(wanted, memory), "the octets in the chunk, or beside it, are others");
}

task<void> write_segments(target& t)
{
    raw_requester r(t);
    co_await r.connect();
    const auto memory = r.link.bulk(32768);
    const auto g = co_await r.link.grant(memory, written);
    for (const std::uint32_t length : {700u, 1002u, 4001u, 11003u}) {
        fill(memory, length);
        header h = r.begin();
        need(h.writes.add_chunk(), "a Write chunk");
        const auto add = [&h](const rpcrdma::segment& s) { return h.writes.add_segment(s); };
        add_places(g.where(), add);
        const answer a = co_await r.exchange(h, rpc_procedure::produce, length);
        need(a.head.proc == procedure::msg && a.head.writes.size() == 1, "the reply's Write list");
        std::vector<std::byte> item(length);
        fill(item, length + 7);
        need_filled(memory, length, item, a.head.writes.chunk(0));
        // The length word stays in the message, without the octets and their pad.
        xdr::decoder in(raw_requester::results(a.body, h.xid));
        need(in.u32() == length && in.at_end(), "what stands in the message beside the chunk");
    }
}

task<void> empty_write_chunk(target& t)
{
    raw_requester r(t);
    co_await r.connect();
    header h = r.begin();
    need(h.writes.add_chunk(), "a Write chunk");
    const answer a = co_await r.exchange(h, rpc_procedure::produce, 333);
    need(a.head.writes.size() == 1 && a.head.writes.chunk(0).empty(), "an empty chunk comes back as one");
    raw_requester::need_item(raw_requester::results(a.body, h.xid), 333);
}

task<void> unused_write_chunk(target& t)
{
    raw_requester r(t);
    co_await r.connect();
    const auto memory = r.link.bulk(32768);
    fill(memory, 5);
    const auto g = co_await r.link.grant(memory, written);
    header h = r.begin();
    need(h.writes.add_chunk(), "a Write chunk");
    const auto add = [&h](const rpcrdma::segment& s) { return h.writes.add_segment(s); };
    add_places(g.where(), add);
    const answer a = co_await r.exchange(h, rpc_procedure::null);
    need(a.head.writes.size() == 1, "the reply's Write list");
    need_filled(memory, 5, {}, a.head.writes.chunk(0));
}

task<void> reply_segments(target& t)
{
    constexpr std::uint32_t length = 7001;
    raw_requester r(t);
    co_await r.connect();
    const auto memory = r.link.bulk(32768);
    fill(memory, 6);
    const auto g = co_await r.link.grant(memory, written);
    header h = r.begin();
    h.has_reply_chunk = true;
    const auto add = [&h](const rpcrdma::segment& s) { return h.reply.push_back(s); };
    add_places(g.where(), add);
    const answer a = co_await r.exchange(h, rpc_procedure::produce_text, length);
    need(a.head.proc == procedure::nomsg && a.body.empty(),
         "a long reply is RDMA_NOMSG and nothing behind it");
    std::vector<std::byte> stream;
    const auto total = static_cast<std::size_t>(rpcrdma::total_length(a.head.reply.all()));
    for (const auto& [at, size] : places) {
        const std::size_t part = std::min<std::size_t>(total - stream.size(), size);
        const auto octets = memory.subspan(at, part);
        stream.insert(stream.end(), octets.begin(), octets.end());
    }
    need_filled(memory, 6, stream, a.head.reply.all());
    raw_requester::need_item(raw_requester::results(stream, h.xid), length);
    // Not needed: nothing is written there.
    header small = r.begin();
    small.has_reply_chunk = true;
    const auto add_small = [&small](const rpcrdma::segment& s) { return small.reply.push_back(s); };
    add_places(g.where(), add_small);
    const answer b = co_await r.exchange(small, rpc_procedure::null);
    need(b.head.proc == procedure::msg, "a short reply goes inline");
    need(rpcrdma::total_length(b.head.reply.all()) == 0, "an unused Reply chunk comes back with a length");
}

task<void> read_chunks_one_by_one(target& t)
{
    constexpr std::uint32_t length = 3001;
    raw_requester r(t);
    co_await r.connect();
    const auto memory = r.link.bulk(32768);
    const auto g = co_await r.link.grant(memory, verbs::access::remote_read);
    const verbs::remote_segment where = g.where();
    fill(memory, 9);
    // The argument of `digest` with and without its pad (RFC 8166 3.4.5.2), in segments, an empty one between them.
    for (const std::uint32_t total : {length, length + 3}) {
        header h = r.begin();
        auto body = raw_requester::call(h, rpc_procedure::digest);
        const auto position = static_cast<std::uint32_t>(body.size() + 4);
        body.resize(body.size() + 4);
        xdr::store_u32(&body[body.size() - 4], length);
        std::uint32_t at = 0;
        for (const std::uint32_t part : {1000u, 0u, total - 1000}) {
            need(h.reads.push_back({position, {where.key, part, where.address + at}}), "a Read segment");
            at += part;
        }
        co_await r.send(h, body);
        const answer a = co_await r.receive();
        need(a.head.xid == h.xid && a.head.proc == procedure::msg && a.head.reads.empty(),
             "the reply to a call with a Read chunk");
        xdr::decoder in(raw_requester::results(a.body, h.xid));
        need(in.u32() == length, "the length of the argument");
        need(in.u64() == sum(memory.first(length)), "other octets came than stood in the chunk");
    }
}

// --- errors ---

task<void> version_error(target& t)
{
    raw_requester r(t);
    co_await r.connect();
    for (const std::uint32_t version : {0u, 2u, 0xffffffffu}) {
        header h = r.begin();
        h.version = version;
        const answer a = co_await r.exchange(h, rpc_procedure::null);
        need(a.head.proc == procedure::error && a.head.error == rpcrdma::error_kind::version,
             "no ERR_VERS for version " + std::to_string(version));
        need(a.head.low_version <= 1 && a.head.high_version >= 1, "ERR_VERS without version 1");
        need(a.head.version == version, "ERR_VERS in another version than the call's");
    }
    co_await r.works_on();
}

task<void> refused(raw_requester& r, header h, rpc_procedure p, std::uint32_t length, const char* what)
{
    const answer a = co_await r.exchange(h, p, length);
    need(a.head.proc == procedure::error && a.head.error == rpcrdma::error_kind::chunk,
         std::string("no ERR_CHUNK for ") + what);
    co_await r.works_on();
}

task<void> chunk_error(target& t)
{
    raw_requester r(t);
    co_await r.connect();
    const auto memory = r.link.bulk(4096);
    fill(memory, 11);
    const std::uint64_t before = sum(memory);
    const auto g = co_await r.link.grant(memory, written);
    const verbs::remote_segment where = g.where();

    header h = r.begin();
    h.proc = static_cast<procedure>(7);
    co_await refused(r, h, rpc_procedure::null, 0, "an unknown procedure");
    h = r.begin();
    h.proc = procedure::msgp;
    co_await refused(r, h, rpc_procedure::null, 0, "RDMA_MSGP");
    h = r.begin();
    h.proc = procedure::nomsg;
    co_await refused(r, h, rpc_procedure::null, 0, "RDMA_NOMSG without a chunk");
    co_await refused(r, r.begin(), rpc_procedure::produce_text, 20000, "a reply that has no place");
    h = r.begin();
    need(h.writes.add_chunk() && h.writes.add_segment({where.key, 100, where.address}), "a Write chunk");
    co_await refused(r, h, rpc_procedure::produce, 3000, "a result larger than its Write chunk");
    h = r.begin();
    h.has_reply_chunk = true;
    need(h.reply.push_back({where.key, 100, where.address}), "a Reply chunk");
    co_await refused(r, h, rpc_procedure::produce_text, 20000, "a reply larger than its Reply chunk");
    need(sum(memory) == before, "a refused call's chunks were written to");

    h = r.begin();
    need(h.reads.push_back({4, {where.key, 100, where.address}}), "a Read segment");
    co_await r.send(h, {}, 16); // ends inside the segment
    const answer a = co_await r.receive();
    need(a.head.xid == h.xid && a.head.proc == procedure::error && a.head.error == rpcrdma::error_kind::chunk,
         "no ERR_CHUNK for a header that ends inside a segment");
    co_await r.works_on();
}

task<void> dropped(target& t)
{
    raw_requester r(t);
    co_await r.connect();
    header h = r.begin();
    h.proc = procedure::done;
    co_await r.send(h, {});
    co_await r.send(r.begin(), {}, 8); // 20 octets: less than a header
    h = r.begin();
    h.proc = procedure::error;
    co_await r.send(h, {});
    co_await r.works_on(); // whose reply would not be the next message otherwise
}

task<void> grants(target& t)
{
    raw_requester r(t);
    co_await r.connect();
    for (const std::uint32_t wanted : {1u, 4u, 100000u}) {
        header h = r.begin();
        h.credits = wanted;
        const answer a = co_await r.exchange(h, rpc_procedure::null);
        need(a.head.credits <= wanted, "more credits than were asked for");
    }
    header h = r.begin();
    const answer a = co_await r.exchange(h, rpc_procedure::null);
    const std::uint32_t granted = std::min(a.head.credits, asked);
    std::vector<std::uint32_t> open;
    for (std::uint32_t i = 0; i < granted; ++i) {
        h = r.begin();
        open.push_back(h.xid);
        const auto body = raw_requester::call(h, rpc_procedure::null);
        co_await r.send(h, body);
    }
    while (!open.empty()) {
        const answer one = co_await r.receive();
        need(std::erase(open, one.head.xid) == 1, "the answer to no call");
        need(one.head.credits > 0, "a reply that grants no credit");
    }
}

constexpr check all_header_checks[] = {
    {"RPC: private messages of RFC 8797, behind other octets", private_messages},
    {"RPC: without a private message 1,024 octets are the most", without_private_message},
    {"RPC: Write chunk of several segments", write_segments},
    {"RPC: empty Write chunk", empty_write_chunk},
    {"RPC: unused Write chunk", unused_write_chunk},
    {"RPC: Reply chunk of several segments", reply_segments},
    {"RPC: Read chunk with an empty segment, with and without its pad", read_chunks_one_by_one},
    {"RPC: ERR_VERS", version_error},
    {"RPC: ERR_CHUNK", chunk_error},
    {"RPC: RDMA_DONE, errors and messages too short are dropped", dropped},
    {"RPC: credits are granted within what is asked for", grants},
};

} // namespace

std::span<const check> rpc_header_checks() noexcept { return all_header_checks; }

} // namespace verbena::conform
