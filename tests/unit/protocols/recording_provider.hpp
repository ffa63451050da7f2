// SPDX-License-Identifier: Apache-2.0
// A verbs provider that only records: tests look at what was posted, and play the peer by writing bytes where it was granted.
#pragma once

#include "bytes.hpp"

#include <boost/test/unit_test.hpp>

#include <verbena/core/verbs/verbs.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace verbena::test {

using bytes = std::vector<std::byte>;

inline bytes words(std::initializer_list<std::uint32_t> values)
{
    bytes out;
    for (std::uint32_t v : values) {
        for (int shift = 24; shift >= 0; shift -= 8)
            out.push_back(std::byte(v >> shift));
    }
    return out;
}

inline bytes operator+(bytes a, const bytes& b)
{
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

inline std::uint32_t word(const bytes& b, std::size_t index) { return xdr::load_u32(b.data() + 4 * index); }

struct granted {
    std::span<std::byte> memory;
    verbs::access rights;
};

// All that the server can touch, by key.
struct world {
    std::map<std::uint32_t, granted> grants;
    std::uint32_t next_key = 0xabc00001;
    std::size_t regions = 0;
    std::function<result<void>()> before_grants; // may end the connection, or fail
};

class fake_region final : public verbs::region {
public:
    explicit fake_region(world& w) : world_(w) { ++world_.regions; }
    ~fake_region() override { --world_.regions; }
    std::uint32_t local_key() const noexcept override { return 0; }

private:
    world& world_;
};

class fake_grant final : public verbs::grant_slot {
public:
    fake_grant(world& w, std::span<std::byte> m, verbs::access rights)
        : world_(w), memory_(m), key_(w.next_key++)
    {
        w.grants[key_] = {m, rights};
    }
    verbs::remote_segment where() const noexcept override
    {
        return {key_, static_cast<std::uint32_t>(memory_.size()), 0x1122334400000000u + key_};
    }
    void drop() noexcept override
    {
        world_.grants.erase(key_);
        delete this;
    }
    bool valid() const noexcept override { return world_.grants.contains(key_); }

private:
    world& world_;
    std::span<std::byte> memory_;
    std::uint32_t key_;
};

class fake_domain final : public verbs::protection_domain {
public:
    explicit fake_domain(world& w) : world_(w) {}
    task<result<std::unique_ptr<verbs::region>>> register_memory(std::span<std::byte>) override
    {
        co_return std::unique_ptr<verbs::region>(std::make_unique<fake_region>(world_));
    }
    task<result<void>> add_pool(buffer_pool&) override { co_return result<void>(); }
    // Of no memory, so that the requester has to register what it grants.
    bool is_registered(std::span<const std::byte>) const noexcept override { return false; }
    task<result<void>> make_grants(std::span<verbs::grant_request> batch) override
    {
        if (world_.before_grants) {
            if (auto made = world_.before_grants(); !made)
                co_return made;
        }
        for (auto& r : batch) {
            BOOST_TEST(r.scope != nullptr);
            r.made = verbs::grant(*new fake_grant(world_, r.memory, r.rights));
        }
        co_return result<void>();
    }
    task<void> revoke(std::span<verbs::grant> batch) override
    {
        for (auto& g : batch)
            g = verbs::grant();
        co_return;
    }
    bool renews_at_once() const noexcept override { return false; }
    task<result<std::unique_ptr<verbs::shared_receive_queue>>>
    make_shared_receive_queue(const verbs::shared_receive_queue_options&) override
    {
        co_return error(std::errc::operation_not_supported, "not in this fake");
    }

private:
    world& world_;
};

class fake_queue_pair;

struct server {
    world memory;
    bytes private_data;   // of the requester
    bytes private_answer; // ours
    verbs::connect_options asked;
    unsigned connects = 0;
    fake_queue_pair* queue_pair = nullptr;
    std::deque<bytes> sent;
    std::deque<verbs::receive_request> receives;
};

class fake_queue_pair final : public verbs::queue_pair {
public:
    fake_queue_pair(server& s, verbs::protection_domain& d) : server_(s), domain_(d) { s.queue_pair = this; }
    ~fake_queue_pair() override
    {
        server_.queue_pair = nullptr;
        server_.receives.clear();
    }
    void set_handler(verbs::completion_handler* h) noexcept override { handler_ = h; }
    result<void> post_send(std::span<const verbs::send_request> batch) override
    {
        if (!connected_)
            return error(std::errc::not_connected, "post_send");
        for (const auto& r : batch) {
            BOOST_TEST((r.opcode == verbs::opcode::send));
            bytes message;
            for (const auto& s : r.segments)
                message.insert(message.end(), s.address, s.address + s.length);
            server_.sent.push_back(std::move(message));
            done_.push_back(r.id);
        }
        return {};
    }
    result<void> post_receive(std::span<const verbs::receive_request> batch) override
    {
        if (!connected_)
            return error(std::errc::not_connected, "post_receive");
        for (const auto& r : batch) {
            BOOST_TEST(r.segment.length >= 4096u);
            server_.receives.push_back(r);
        }
        return {};
    }
    void disconnect() noexcept override { end(error(std::errc::connection_reset, "orderly")); }
    void kill(const error& cause) noexcept override { end(cause); }
    bool connected() const noexcept override { return connected_; }
    verbs::protection_domain& domain() noexcept override { return domain_; }
    std::uint32_t max_reads() const noexcept override { return 0; }
    std::string_view peer_name() const noexcept override { return "fake:1"; }
    std::string_view peer_address() const noexcept override { return "fake"; }

    void end(const error& cause)
    {
        connected_ = false;
        if (!std::exchange(told_, true))
            handler_->on_disconnected(cause);
    }
    // As end() begins; the handler hears of it by end().
    void end_untold() { connected_ = false; }
    void deliver(const bytes& message)
    {
        BOOST_REQUIRE(!server_.receives.empty());
        const auto r = server_.receives.front();
        server_.receives.pop_front();
        std::copy(message.begin(), message.end(), r.segment.address);
        std::vector<verbs::completion> batch;
        for (std::uint64_t id : std::exchange(done_, {})) {
            verbs::completion c;
            c.id = id;
            batch.push_back(c);
        }
        verbs::completion c;
        c.id = r.id;
        c.opcode = verbs::opcode::receive;
        c.length = static_cast<std::uint32_t>(message.size());
        batch.push_back(c);
        handler_->on_completions(batch);
    }

private:
    server& server_;
    verbs::protection_domain& domain_;
    verbs::completion_handler* handler_ = nullptr;
    std::vector<std::uint64_t> done_;
    bool connected_ = true;
    bool told_ = false;
};

class fake_context final : public verbs::context, private verbs::device {
public:
    fake_context(reactor& r, server& s) : shard_(r), server_(s)
    {
        capabilities_.provider = "fake";
        capabilities_.remote_invalidate = true;
        capabilities_.grant_per_queue_pair = true;
    }
    const verbs::capabilities& query() const noexcept override { return capabilities_; }
    reactor& shard() noexcept override { return shard_; }
    verbs::device& device() noexcept override { return *this; }
    result<std::unique_ptr<verbs::protection_domain>> make_domain(std::string_view) override
    {
        return std::unique_ptr<verbs::protection_domain>(std::make_unique<fake_domain>(server_.memory));
    }
    result<std::unique_ptr<verbs::listener>> listen(std::string_view) override
    {
        return std::errc::not_supported;
    }
    task<result<std::unique_ptr<verbs::queue_pair>>> connect(std::string_view, verbs::protection_domain& d,
                                                             const verbs::connect_options& o,
                                                             std::vector<std::byte>& reply) override
    {
        ++server_.connects;
        server_.asked = o;
        server_.private_data.assign(o.private_data.begin(), o.private_data.end());
        reply = server_.private_answer;
        co_return std::unique_ptr<verbs::queue_pair>(std::make_unique<fake_queue_pair>(server_, d));
    }

private:
    reactor& shard_;
    server& server_;
    verbs::capabilities capabilities_;
};

} // namespace verbena::test
