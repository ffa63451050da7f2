// SPDX-License-Identifier: Apache-2.0
// A requester made by hand: calls with chunks in any form that RFC 8166 has, over loop or iwarp, to a responder on the same shard.
#pragma once

#include <boost/test/unit_test.hpp>

#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/rpcrdma/header.hpp>
#include <verbena/protocols/rpcrdma/private_data.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>
#include <verbena/transports/iwarp.hpp>
#include <verbena/transports/loop.hpp>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::test {

using bytes = std::vector<std::byte>;

/// A responder for `dispatcher`, and one connection to it.
class raw_requester final : private verbs::completion_handler {
public:
    raw_requester(reactor& shard, buffer_pool& pool, rpc::dispatcher& dispatcher, std::string_view transport,
                  const rpcrdma::responder_options& options = {})
        : shard_(shard), pool_(pool), options_(options)
    {
        if (transport == "loop") {
            fabric_ = loop::make_fabric(shard);
            server_ = fabric_->make_context();
            client_ = fabric_->make_context();
        } else {
            server_ = iwarp::make_context(shard);
            client_ = iwarp::make_context(shard);
        }
        auto made = server_->listen(fabric_ ? "server" : "127.0.0.1:0");
        BOOST_REQUIRE(made);
        listener_ = std::move(*made);
        tasks_.emplace(shard);
        tasks_->spawn(
            [&] { return rpcrdma::serve(*server_, *listener_, pool_, dispatcher, options_, stats); });
        bool connected = false;
        tasks_->spawn([&]() -> task<void> {
            domain_ = std::move(*client_->make_domain());
            (void)co_await domain_->add_pool(pool_);
            verbs::connect_options o;
            rpcrdma::private_message mine;
            mine.send_size = mine.receive_size = options_.inline_size;
            const auto said = encode(mine);
            o.private_data = said;
            bytes answer;
            const std::string url = listener_->local_url();
            auto pair = co_await client_->connect(url.substr(url.find("://") + 3), *domain_, o, answer);
            BOOST_REQUIRE_MESSAGE(pair, (pair ? std::string() : pair.error().message()));
            pair_ = std::move(*pair);
            pair_->set_handler(this);
            for (std::size_t i = 0; i < receives_.size(); ++i)
                receive(i);
            connected = true;
        });
        until([&] { return connected; });
    }
    ~raw_requester()
    {
        chunks_.clear();
        pair_.reset();
        sends_.clear();
        listener_->close();
        tasks_->request_stop();
        until([&] { return tasks_->live() == 0; });
        domain_.reset();
    }
    void until(const std::function<bool()>& done,
               std::source_location where = std::source_location::current())
    {
        for (int turns = 0; !done(); ++turns) {
            BOOST_REQUIRE_MESSAGE(turns < 100'000, "nothing came at line " << where.line());
            shard_.turn();
        }
    }

    /// Memory that the responder may read or write, gone with the next call.
    class chunk {
    public:
        std::span<std::byte> memory() const noexcept { return lease_.bytes().first(size_); }
        rpcrdma::segment where() const
        {
            const verbs::remote_segment s = grant_.where();
            return {s.key, static_cast<std::uint32_t>(size_), s.address};
        }

    private:
        friend class raw_requester;
        lease lease_;
        std::size_t size_ = 0;
        verbs::grant grant_;
    };
    chunk& expose(std::size_t size, verbs::access rights)
    {
        chunk& c = chunks_.emplace_back();
        c.lease_ = pool_.try_acquire(std::max<std::size_t>(size, 1));
        BOOST_REQUIRE(bool(c.lease_));
        c.size_ = size;
        std::ranges::fill(c.lease_.bytes(), std::byte('?'));
        bool done = false;
        tasks_->spawn([&]() -> task<void> {
            auto made = co_await domain_->make_grant(c.lease_.bytes(), rights, nullptr);
            BOOST_REQUIRE(made);
            c.grant_ = std::move(*made);
            done = true;
        });
        until([&] { return done; });
        return c;
    }
    chunk& readable(std::span<const std::byte> data)
    {
        chunk& c = expose(data.size(), verbs::access::remote_read);
        std::ranges::copy(data, c.memory().begin());
        return c;
    }
    chunk& writable(std::size_t size)
    {
        return expose(size, verbs::access::local_write | verbs::access::remote_write);
    }

    /// What comes back: its header, and what follows that.
    struct answer {
        rpcrdma::header header;
        bytes body;
    };
    /// Sends `body` behind `h`.
    void post(const rpcrdma::header& h, std::span<const std::byte> body)
    {
        lease memory = pool_.try_acquire(options_.inline_size);
        xdr::encoder out(memory.bytes());
        encode(out, h);
        out.opaque_fixed(body);
        BOOST_REQUIRE(out.ok());
        const verbs::segment local{memory.data(), static_cast<std::uint32_t>(out.size()), 0};
        verbs::send_request w;
        w.id = sent;
        w.segments = {&local, 1};
        BOOST_REQUIRE(pair_->post_send({&w, 1}));
        sends_.push_back(std::move(memory));
    }
    /// The next answer.
    answer next(std::source_location where = std::source_location::current())
    {
        until([&] { return !arrived_.empty(); }, where);
        const auto [slot, length] = arrived_.front();
        arrived_.pop_front();
        answer a;
        const std::span<const std::byte> message(receives_[slot].data(), length);
        const auto decoded = decode(message, a.header);
        BOOST_REQUIRE((decoded.action == rpcrdma::verdict::good));
        a.body.assign(message.begin() + std::ptrdiff_t(decoded.offset), message.end());
        receive(slot);
        return a;
    }
    /// Sends `body` behind `h`, and waits for the answer to its XID.
    answer call(const rpcrdma::header& h, std::span<const std::byte> body,
                std::source_location where = std::source_location::current())
    {
        post(h, body);
        answer a = next(where);
        BOOST_TEST(a.header.xid == h.xid);
        return a;
    }
    void forget_chunks() { chunks_.clear(); }
    /// A Send with 32 bits, which RPC-over-RDMA has no use for.
    void post_immediate()
    {
        verbs::send_request w;
        w.id = sent;
        w.opcode = verbs::opcode::send_with_immediate;
        BOOST_REQUIRE(pair_->post_send({&w, 1}));
    }
    /// As a client that dies.
    void vanish() { pair_->kill(error(std::errc::connection_aborted, "the requester is gone")); }
    /// The server's time to drain is over.
    void begin_stop()
    {
        listener_->close();
        tasks_->request_stop();
    }
    void stop_server()
    {
        begin_stop();
        until([&] { return tasks_->live() == 0; });
    }
    bool is_connected() const noexcept { return pair_->connected(); }
    void turn() { shard_.turn(); }

    rpcrdma::responder_stats stats;

private:
    static constexpr std::uint64_t sent = 1000; // ids below are of receives

    void receive(std::size_t slot)
    {
        receives_[slot] = pool_.try_acquire(options_.inline_size);
        const verbs::receive_request r{slot, {receives_[slot].data(), options_.inline_size, 0}};
        BOOST_REQUIRE(pair_->post_receive({&r, 1}));
    }
    void on_completions(std::span<const verbs::completion> batch) noexcept override
    {
        for (const verbs::completion& c : batch) {
            if (c.id < receives_.size() && c.status == verbs::status::success)
                arrived_.push_back({std::size_t(c.id), c.length});
        }
    }
    void on_disconnected(const error&) noexcept override {}

    reactor& shard_;
    buffer_pool& pool_;
    rpcrdma::responder_options options_;
    std::unique_ptr<loop::fabric> fabric_;
    std::unique_ptr<verbs::context> server_, client_;
    std::unique_ptr<verbs::listener> listener_;
    std::optional<scope> tasks_;
    std::unique_ptr<verbs::protection_domain> domain_;
    std::unique_ptr<verbs::queue_pair> pair_;
    std::array<lease, 4> receives_;
    std::vector<lease> sends_;
    struct arrival {
        std::size_t slot;
        std::uint32_t length;
    };
    std::deque<arrival> arrived_;
    std::deque<chunk> chunks_;
};

/// The same, for the log of a test.
inline bool is_error(const raw_requester::answer& a, rpcrdma::error_kind kind)
{
    return a.header.proc == rpcrdma::procedure::error && a.header.error == kind;
}

} // namespace verbena::test
