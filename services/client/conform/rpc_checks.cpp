// SPDX-License-Identifier: Apache-2.0
// RPC-over-RDMA version 1 (RFC 8166, 8167) by our requester: each way in which a call and its reply can travel.
#include "rpc_checks.hpp"
#include "rpc_server.hpp"

#include <verbena/core/task/combine.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>

#include <algorithm>

namespace verbena::conform {
namespace {

constexpr std::uint32_t callback_credits = 4;
constexpr std::uint32_t calls_wanted = 64; // more than the server grants
constexpr std::uint32_t inline_sizes[] = {0, 1, 2, 3, 4, 100, 3000};
constexpr std::uint32_t chunk_sizes[] = {5000, 5001, 5003, 65536, 262143, max_item};
constexpr std::size_t call_room = 512; // header and small arguments

class doubling final : public conform_program {
public:
    doubling() noexcept : conform_program(rpc_callback_program) {}
    task<rpc::outcome> serve(rpc::call& c) override
    {
        const std::uint32_t number = c.args().u32();
        if (c.header().procedure != doubled || !c.args().at_end())
            co_return rpc::outcome::garbage_args;
        c.results().u32(2 * number);
        co_return rpc::outcome::success;
    }
};

// A requester, and what it can be asked for.
class caller {
public:
    explicit caller(target& t) : target_(t), callbacks_(t.context.shard())
    {
        callbacks_.add(program_);
        rpcrdma::requester_options o;
        o.client.hard = false;
        o.client.retries = 0;
        o.client.timeout = end::patience;
        o.client.max_calls = calls_wanted;
        o.callbacks = &callbacks_;
        o.callback_credits = callback_credits;
        client_ = rpcrdma::make_requester(t.context, t.buffers, t.address, o, &stats);
    }

    /// Once, so that a peer that is gone is a failure and not a wait.
    task<void> connect()
    {
        const auto connected = co_await client_->connect();
        need(connected, "connect");
    }
    task<rpc::request> begin(rpc_procedure p, std::size_t arguments = 0)
    {
        rpc::call_header header;
        header.program = rpc_program;
        header.version = rpc_version;
        header.procedure = static_cast<std::uint32_t>(p);
        lease block = co_await client_->acquire(call_room + arguments);
        need(bool(block), "memory for a call");
        co_return rpc::request(std::move(block), header);
    }
    task<rpc::reply> call(rpc::request& r, const char* what)
    {
        need(target_.context.shard().clock().now() < target_.deadline, "the check's time is over");
        auto answer = co_await client_->call(r);
        need(answer, what);
        co_return std::move(*answer);
    }
    task<bool> null()
    {
        rpc::request r = co_await begin(rpc_procedure::null);
        rpc::reply a = co_await call(r, "a call without arguments");
        need(a.results().at_end(), "a reply with more than there is to say");
        co_return true;
    }
    /// Has the server say what came of `bytes`, which travel as they must: in `pieces`, or in the message.
    task<void> digest(std::vector<std::size_t> pieces, bool in_message = false)
    {
        std::size_t length = 0;
        for (const std::size_t p : pieces)
            length += p;
        std::vector<std::byte> all(length);
        fill(all, length + 1);
        rpc::request r = co_await begin(rpc_procedure::digest, in_message ? length : 0);
        if (in_message) {
            r.message().opaque_var(all);
        } else {
            r.message().note_payload(static_cast<std::uint32_t>(length));
            rpc::payload argument;
            std::size_t at = 0;
            for (const std::size_t p : pieces) {
                if (p == 0)
                    continue;
                lease memory = co_await client_->acquire(std::max(p, buffer_pool::min_size));
                need(bool(memory), "memory for an argument");
                const auto bytes = memory.bytes().first(p);
                std::ranges::copy(std::span(all).subspan(at, p), bytes.begin());
                need(argument.append(std::move(memory), bytes), "more pieces than a payload has");
                at += p;
            }
            r.attach(std::move(argument));
        }
        rpc::reply a = co_await call(r, "a call with an argument");
        const std::uint32_t came = a.results().u32();
        const std::uint64_t checksum = a.results().u64();
        need(a.results().at_end(), "a reply of another length");
        need(came == length, std::to_string(came) + " of " + std::to_string(length) + " octets came");
        need(checksum == sum(all), "other octets came than were sent");
    }
    task<void> digest(std::size_t length, bool in_message = false)
    {
        std::vector<std::size_t> one(1, length);
        return digest(std::move(one), in_message);
    }
    /// Has the server make `length` octets; a Write chunk for them has `spare` octets more.
    task<void> produce(std::uint32_t length, std::uint32_t spare)
    {
        rpc::request r = co_await ask_for(rpc_procedure::produce, length);
        r.max_result = length + spare;
        rpc::reply a = co_await call(r, "a call with a large result");
        const auto ref = a.results().payload(max_item);
        need(a.results().at_end(), "a reply of another length");
        const auto data = a.take(ref);
        need(data, "the result");
        std::vector<std::byte> all;
        for (const auto piece : data->pieces())
            all.insert(all.end(), piece.begin(), piece.end());
        compare(all, length);
    }
    task<void> produce_text(std::uint32_t length)
    {
        rpc::request r = co_await ask_for(rpc_procedure::produce_text, length);
        r.max_reply = call_room + length;
        rpc::reply a = co_await call(r, "a call with a long reply");
        const auto all = a.results().opaque_var(max_item);
        need(a.results().at_end(), "a reply of another length");
        compare(all, length);
    }
    task<void> call_back(std::uint32_t number)
    {
        rpc::request r = co_await begin(rpc_procedure::call_back);
        r.message().u32(number);
        rpc::reply a = co_await call(r, "a call that the server answers after a call of its own");
        const std::uint32_t twice = a.results().u32();
        need(a.results().at_end() && twice == 2 * number, "another number than this end told the server");
    }
    task<void> close() { co_await client_->close(); }
    std::uint64_t connections() const noexcept { return client_->connections(); }

    rpcrdma::requester_stats stats;

private:
    task<rpc::request> ask_for(rpc_procedure p, std::uint32_t length)
    {
        rpc::request r = co_await begin(p);
        r.message().u32(length);
        r.message().u64(length + 7);
        co_return r;
    }
    static void compare(std::span<const std::byte> got, std::uint32_t length)
    {
        need(got.size() == length,
             std::to_string(got.size()) + " of " + std::to_string(length) + " octets came");
        std::vector<std::byte> wanted(length);
        fill(wanted, length + 7);
        need(std::ranges::equal(wanted, got), "other octets came than were asked for");
    }

    target& target_;
    doubling program_;
    rpc::service_dispatcher callbacks_;
    std::unique_ptr<rpc::client_transport> client_;
};

// Runs `body` with a requester that is closed whatever becomes of it.
template<task<void> (*body)(caller&)>
task<void> with_caller(target& t)
{
    caller c(t);
    std::exception_ptr failed;
    try {
        co_await c.connect();
        co_await body(c);
        need(c.connections() == 1, "the connection broke, and was made again");
        need(c.stats.errors.value() == 0 && c.stats.dropped.value() == 0, "messages that answer no call");
    } catch (...) {
        failed = std::current_exception();
    }
    co_await c.close();
    t.wakes += c.stats.wakes.value();
    if (failed)
        std::rethrow_exception(failed);
}

void need_chunks(std::uint64_t used, std::uint64_t calls, const char* kind)
{
    need(used == calls, std::to_string(used) + " of " + std::to_string(calls) + " calls had a " + kind);
}

task<void> inline_both_ways(caller& c)
{
    co_await c.null();
    for (const std::uint32_t n : inline_sizes) {
        co_await c.digest(n);
        co_await c.produce(n, 0);
        co_await c.produce_text(n);
    }
    const auto& s = c.stats;
    need(s.read_chunk_calls.value() + s.long_calls.value() + s.write_chunks.value() +
                 s.reply_chunks.value() ==
             0,
         "what fits inline went by a chunk");
}

task<void> read_chunk(caller& c)
{
    for (const std::uint32_t n : chunk_sizes)
        co_await c.digest(n);
    need_chunks(c.stats.read_chunk_calls.value(), std::size(chunk_sizes), "Read chunk");
}

task<void> read_segments(caller& c)
{
    const std::vector<std::size_t> four = {1000, 1, 70001, 333};
    co_await c.digest(four);
    const std::vector<std::size_t> three = {3, 8192, 4095};
    co_await c.digest(three);
    need_chunks(c.stats.read_chunk_calls.value(), 2, "Read chunk");
}

task<void> position_zero(caller& c)
{
    for (const std::uint32_t n : chunk_sizes)
        co_await c.digest(n, true);
    need_chunks(c.stats.long_calls.value(), std::size(chunk_sizes), "Position-Zero Read chunk");
}

task<void> write_chunk(caller& c)
{
    for (const std::uint32_t n : chunk_sizes) {
        co_await c.produce(n, 0);
        co_await c.produce(n, 4096);
    }
    co_await c.produce(1, 8192);
    co_await c.produce(0, 8192);
    need_chunks(c.stats.write_chunks.value(), 2 * std::size(chunk_sizes) + 2, "Write chunk");
}

task<void> reply_chunk(caller& c)
{
    for (const std::uint32_t n : chunk_sizes)
        co_await c.produce_text(n);
    need_chunks(c.stats.reply_chunks.value(), std::size(chunk_sizes), "Reply chunk");
}

task<void> more_calls_than_credits(caller& c)
{
    co_await c.null();
    std::vector<task<bool>> all;
    for (int i = 0; i < 200; ++i)
        all.push_back(c.null());
    const auto answered = co_await when_all(std::move(all));
    need(answered.size() == 200, "some calls have no answer");
    need(c.stats.credit_waits.value() > 0, "the server granted more credits than it has");
}

task<void> mixed_at_once(caller& c)
{
    std::vector<task<void>> all;
    for (std::size_t i = 0; i < 8; ++i) {
        all.push_back(c.digest(10000 + i));
        all.push_back(c.produce(static_cast<std::uint32_t>(20000 + i), 0));
        all.push_back(c.produce_text(static_cast<std::uint32_t>(30000 + i)));
        all.push_back(c.digest(40000 + i, true));
    }
    co_await when_all(std::move(all));
}

task<void> reverse_direction(caller& c)
{
    for (std::uint32_t i = 1; i <= 20; ++i)
        co_await c.call_back(i);
    need(c.stats.callbacks.value() == 20, "calls of the server were lost");
}

constexpr check all_rpc_checks[] = {
    {"RPC: calls and replies inline", with_caller<inline_both_ways>},
    {"RPC: Read chunk, 5,000 octets to 1 MiB", with_caller<read_chunk>},
    {"RPC: Read chunk of several segments", with_caller<read_segments>},
    {"RPC: Position-Zero Read chunk", with_caller<position_zero>},
    {"RPC: Write chunk, filled and not", with_caller<write_chunk>},
    {"RPC: Reply chunk", with_caller<reply_chunk>},
    {"RPC: chunks of all kinds at once", with_caller<mixed_at_once>},
    {"RPC: 200 calls at once wait for credits", with_caller<more_calls_than_credits>},
    {"RPC: the server calls back", with_caller<reverse_direction>},
};

} // namespace

std::span<const check> rpc_checks() noexcept { return all_rpc_checks; }

} // namespace verbena::conform
