// SPDX-License-Identifier: Apache-2.0
// A client's transport that hands its calls to the program of an nfs4_fixture, and loses what a test wants lost.
#pragma once

#include "nfs4_server.hpp"

#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/protocols/rpc/client.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace verbena::test {

/// What went out: the operations, and where they went.
struct sent_compound {
    std::uint32_t minor = 0;
    std::vector<nfs_opnum4> operations;
    std::optional<SEQUENCE4args> sequence;
    std::optional<channel_dir_from_client4> bound_as; ///< by BIND_CONN_TO_SESSION
    std::optional<stateid4> lock;                     ///< that LOCKU or FREE_STATEID names
    std::optional<nfs_lock_type4> locks_as;           ///< LOCK
    nfsstat4 status = nfsstat4::ok;                   ///< what came back

    bool has(nfs_opnum4 wanted) const noexcept
    {
        return std::find(operations.begin(), operations.end(), wanted) != operations.end();
    }
};

/// In place of what the server said: operation `place`, counted from SEQUENCE's 0, fails and is the last. Those between have nothing but a status.
inline void refuse_at(std::vector<std::byte>& reply, std::size_t place, nfsstat4 status)
{
    const std::size_t at = 24 + 12 + 8 + 36 + 8 * (place - 1); // heads of RPC and COMPOUND, SEQUENCE
    reply.resize(at + 8);
    xdr::store_u32(reply.data() + 24, static_cast<std::uint32_t>(status));
    xdr::store_u32(reply.data() + 24 + 8, static_cast<std::uint32_t>(place + 1));
    xdr::store_u32(reply.data() + at + 4, static_cast<std::uint32_t>(status));
}

/// SEQUENCE fails.
inline void refuse_sequence(std::vector<std::byte>& reply, nfsstat4 status)
{
    reply.resize(24 + 20);
    xdr::store_u32(reply.data() + 24, static_cast<std::uint32_t>(status));
    xdr::store_u32(reply.data() + 24 + 8, 1);
    xdr::store_u32(reply.data() + 24 + 16, static_cast<std::uint32_t>(status));
}

class direct_transport final : public rpc::client_transport {
public:
    enum class fate : std::uint8_t {
        arrives,
        runs_twice,   ///< the reply is lost, and the call sent again as it was
        is_lost,      ///< given up before it has run
        reply_is_lost ///< given up after it has run
    };

    explicit direct_transport(nfs4_fixture& f) : f_(f) {}

    task<result<void>> connect() override { co_return result<void>(); }
    task<result<rpc::reply>> call(rpc::request& r) override
    {
        std::vector<std::byte> message = whole(r);
        const std::size_t index = sent.size(); // which a test may clear meanwhile
        sent.push_back(parsed(message));
        if (sent.back().sequence)
            session = sent.back().sequence->sessionid;
        if (on_call)
            on_call(sent.back(), message);
        const task_context& context = co_await current_context();
        deadline = context.deadline;
        const fate f = decide ? decide(sent.back()) : fate::arrives;
        most_at_once = std::max(most_at_once, ++under_way);
        bool late = false;
        if (gate != nullptr && keeps_time) {
            const auto passed = co_await with_timeout(time, pass(*gate));
            late = !passed;
        } else if (gate != nullptr) {
            (void)co_await gate->wait();
        }
        --under_way;
        if (late)
            co_return error(std::errc::timed_out, "no reply");
        if (f == fate::is_lost)
            co_return error(std::errc::timed_out, "lost");
        auto answer = co_await run(message, index);
        if (f == fate::runs_twice)
            answer = co_await run(message, index);
        if (f == fate::reply_is_lost)
            co_return error(std::errc::timed_out, "lost");
        co_return std::move(answer);
    }
    task<void> close() override { co_return; }
    task<lease> acquire(std::size_t size) override
    {
        if (std::exchange(has_no_room, false))
            co_return lease();
        co_return co_await (memory != nullptr ? *memory : f_.pool).acquire(size);
    }
    std::string_view name() const noexcept override { return "direct"; }
    std::uint64_t connections() const noexcept override { return 1; }
    bool answered() const noexcept override { return true; }
    bool serves_calls() const noexcept override { return way != nullptr; }
    duration time_of_a_call() const noexcept override { return time; }

    std::size_t count(nfs_lock_type4 of) const noexcept
    {
        return static_cast<std::size_t>(
            std::ranges::count_if(sent, [&](const sent_compound& each) { return each.locks_as == of; }));
    }
    std::size_t count(nfs_opnum4 of) const noexcept
    {
        std::size_t n = 0;
        for (const sent_compound& each : sent)
            n += each.has(of) ? 1 : 0;
        return n;
    }

    std::vector<sent_compound> sent;
    sessionid4 session{}; ///< that the last call was of
    std::function<fate(const sent_compound&)> decide;
    std::function<void(const sent_compound&, std::vector<std::byte>&)> on_call; ///< may change what arrives
    std::function<void(std::vector<std::byte>&)> on_reply;                      ///< may change it
    std::function<void(const sent_compound&, std::vector<std::byte>&)> on_reply_to; ///< likewise
    buffer_pool* memory = nullptr;   ///< of messages, unless the fixture's is
    bool has_no_room = false;        ///< for the next call
    event* gate = nullptr;           ///< calls wait for it
    duration time = duration::max(); ///< of a call of a soft client, which the test enforces,
    bool keeps_time = false;         ///< or this does, for calls that wait for the gate
    time_point deadline;             ///< that the last call saw
    std::function<event*(const sent_compound&)>
        holds_answer;                          ///< what was answered waits for that, unless it is nullptr
    std::shared_ptr<rpc::reverse_channel> way; ///< the server's to the client
    std::size_t under_way = 0;
    std::size_t running = 0; ///< the server is at work on them
    std::size_t most_at_once = 0;

private:
    static task<result<void>> pass(event& gate)
    {
        const bool passed = co_await gate.wait();
        if (!passed)
            co_return error(std::errc::operation_canceled, "no reply");
        co_return result<void>();
    }
    static std::vector<std::byte> whole(rpc::request& r)
    {
        BOOST_REQUIRE(r.message().ok());
        std::vector<std::byte> out(r.message().bytes().begin(), r.message().bytes().end());
        if (!r.message().payloads().empty()) {
            BOOST_REQUIRE(r.message().payloads().size() == 1u);
            const xdr::payload_item item = r.message().payloads().front();
            BOOST_TEST(item.length == r.argument().size());
            std::vector<std::byte> data;
            for (const auto piece : r.argument().pieces())
                data.insert(data.end(), piece.begin(), piece.end());
            data.resize(xdr::padded(data.size()));
            out.insert(out.begin() + static_cast<std::ptrdiff_t>(item.offset), data.begin(), data.end());
        }
        return out;
    }
    static sent_compound parsed(std::span<const std::byte> message)
    {
        sent_compound out;
        xdr::decoder in(message);
        rpc::call_header header;
        decode(in, header);
        compound_arguments args(in);
        BOOST_REQUIRE(args.ok());
        out.minor = args.head().minorversion;
        while (args.next()) {
            out.operations.push_back(args.opcode());
            BOOST_REQUIRE(args.visit([&](const auto& of_one) {
                if constexpr (std::is_same_v<std::decay_t<decltype(of_one)>, SEQUENCE4args>)
                    out.sequence = of_one;
                if constexpr (std::is_same_v<std::decay_t<decltype(of_one)>, BIND_CONN_TO_SESSION4args>)
                    out.bound_as = of_one.dir;
                if constexpr (std::is_same_v<std::decay_t<decltype(of_one)>, LOCK4args>)
                    out.locks_as = of_one.locktype;
                if constexpr (std::is_same_v<std::decay_t<decltype(of_one)>, LOCKU4args>)
                    out.lock = of_one.lock_stateid;
                if constexpr (std::is_same_v<std::decay_t<decltype(of_one)>, FREE_STATEID4args>)
                    out.lock = of_one.stateid;
            }));
        }
        return out;
    }
    task<result<rpc::reply>> run(const std::vector<std::byte>& message, std::size_t index)
    {
        if (!f_.program)
            f_.start();
        memory_call c(f_.pool, f_.from);
        c.take(message);
        c.way = way;
        ++running;
        const bool replies = co_await f_.dispatcher->dispatch(c);
        --running;
        if (!replies)
            co_return error(std::errc::timed_out, "dropped");
        (void)c.reply();
        const sent_compound of = parsed(message);
        std::vector<std::byte> bytes(c.whole_reply().begin(), c.whole_reply().end());
        if (event* const held = holds_answer ? holds_answer(of) : nullptr)
            (void)co_await held->wait();
        if (on_reply)
            on_reply(bytes);
        if (on_reply_to)
            on_reply_to(of, bytes);
        lease memory = co_await f_.pool.acquire(std::max<std::size_t>(bytes.size(), buffer_pool::min_size));
        std::memcpy(memory.data(), bytes.data(), bytes.size());
        const std::span<const std::byte> view(memory.data(), bytes.size());
        rpc::reply answer(std::move(memory), view, {}, false);
        auto decoded = answer.decode_header();
        if (!decoded)
            co_return decoded.error();
        xdr::decoder head(answer.results());
        if (index < sent.size())
            sent[index].status = compound_reply(head).status();
        co_return std::move(answer);
    }
    nfs4_fixture& f_;
};

} // namespace verbena::test
