// SPDX-License-Identifier: Apache-2.0
// A client of RTRS that does what the test says, and a disk that waits for the test.
#pragma once

#include <boost/test/unit_test.hpp>

#include <verbena/core/task/event.hpp>
#include <verbena/protocols/rtrs/wire.hpp>
#include <verbena/protocols/storage/block_backend.hpp>
#include <verbena/transports/loop.hpp>

#include <algorithm>
#include <memory>
#include <vector>

namespace verbena::rnbd_test {

inline rtrs::uuid id_of(unsigned n)
{
    rtrs::uuid id;
    id.bytes[0] = std::byte(n);
    return id;
}

// A connection that does what the test says.
class by_hand final : public verbs::completion_handler {
public:
    explicit by_hand(loop::context& d) : device_(d), domain_(std::move(*d.make_domain())), memory_(64 << 10)
    {
    }
    task<result<void>> connect(const char* address, const rtrs::connect_request& m)
    {
        const auto private_data = encode(m);
        verbs::connect_options o;
        o.private_data = private_data;
        o.initiator_depth = o.responder_resources = 0;
        if (!region_)
            region_ = std::move(*co_await domain_->register_memory(memory_));
        std::vector<std::byte> answer;
        auto made = co_await device_.connect(address, *domain_, o, answer);
        if (const auto reply = rtrs::decode_connect_reply(answer))
            told = *reply;
        if (!made)
            co_return made.error();
        pair = std::move(*made);
        pair->set_handler(this);
        for (unsigned i = 0; i < receives; ++i)
            post_receive();
        co_return result<void>();
    }
    void post_receive()
    {
        const verbs::receive_request r{0, {memory_.data() + 32768, 32768, 0}};
        BOOST_REQUIRE(pair->post_receive({&r, 1}));
    }
    void send(std::span<const std::byte> bytes)
    {
        std::ranges::copy(bytes, memory_.begin());
        const verbs::segment all{memory_.data(), std::uint32_t(bytes.size()), 0};
        verbs::send_request s;
        s.segments = {&all, 1};
        BOOST_REQUIRE(pair->post_send({&s, 1}));
    }
    void write(std::uint64_t address, std::uint32_t key, std::span<const std::byte> bytes,
               std::uint32_t immediate)
    {
        std::ranges::copy(bytes, memory_.begin());
        const verbs::segment all{memory_.data(), std::uint32_t(bytes.size()), 0};
        verbs::send_request w;
        w.opcode = verbs::opcode::write_with_immediate;
        w.segments = {&all, 1};
        w.remote_address = address;
        w.remote_key = key;
        w.immediate = immediate;
        if (bytes.empty())
            w.segments = {};
        BOOST_REQUIRE(pair->post_send({&w, 1}));
    }
    // Memory that the server may write.
    task<rtrs::descriptor> sink(std::uint32_t size)
    {
        auto made = co_await domain_->make_grant(std::span(memory_).subspan(16384, size),
                                                 verbs::access::remote_write, nullptr);
        BOOST_REQUIRE(made);
        sink_ = std::move(*made);
        const verbs::remote_segment at = sink_.where();
        co_return rtrs::descriptor{at.address, at.key, at.length};
    }
    std::span<const std::byte> read_into() const { return std::span(memory_).subspan(16384, 16384); }
    std::span<std::byte> read_into() { return std::span(memory_).subspan(16384, 16384); }
    // What was told of the chunks.
    std::vector<rtrs::descriptor> chunks() const
    {
        std::vector<rtrs::descriptor> all(64);
        const auto count = rtrs::decode_info_response({memory_.data() + 32768, 32768}, all);
        all.resize(count ? *count : 0);
        return all;
    }
    void on_completions(std::span<const verbs::completion> batch) noexcept override
    {
        for (const auto& c : batch) {
            if (verbs::has_immediate(c.opcode) && c.status == verbs::status::success) {
                immediates.push_back(c.immediate);
                if (const auto key = rtrs::decode_new_key({memory_.data() + 32768, c.length}))
                    keys.push_back(*key);
            } else if (c.opcode == verbs::opcode::receive && c.status == verbs::status::success)
                ++messages;
        }
    }
    void on_disconnected(const error&) noexcept override { ended = true; }

    std::unique_ptr<verbs::queue_pair> pair;
    rtrs::connect_reply told;
    std::vector<std::uint32_t> immediates;
    std::vector<rtrs::new_key> keys; // of chunks, from answers
    unsigned receives = 64;          // that it begins with
    unsigned messages = 0;
    bool ended = false;

private:
    loop::context& device_;
    std::unique_ptr<verbs::protection_domain> domain_;
    std::vector<std::byte> memory_;
    std::unique_ptr<verbs::region> region_;
    verbs::grant sink_;
};

// A disk that does what it is asked when it is let, and not before.
class stuck_disk final : public storage::block_backend {
public:
    std::string_view kind() const noexcept override { return "stuck"; }
    storage::block_properties properties() const noexcept override { return {.size = 1 << 20}; }
    task<result<void>> wait()
    {
        co_await over.wait_shielded();
        co_return result<void>();
    }
    task<result<void>> read(std::uint64_t, std::span<std::byte>) override { return wait(); }
    task<result<void>> write(std::uint64_t, std::span<const std::byte> from, bool) override
    {
        co_await over.wait_shielded();
        written.assign(from.begin(), from.end());
        co_return result<void>();
    }
    task<result<void>> flush() override { return wait(); }
    task<result<void>> discard(std::uint64_t, std::uint64_t) override { return wait(); }
    task<result<void>> write_zeroes(std::uint64_t, std::uint64_t, bool) override { return wait(); }
    event over;
    std::vector<std::byte> written;
};

// A request as a client writes it: `user` and the header behind it.
inline std::vector<std::byte> written(std::span<const std::byte> user, const rtrs::io_header& h)
{
    std::vector<std::byte> all(user.begin(), user.end());
    all.resize(user.size() + rtrs::read_header_size);
    all.resize(user.size() + encode(std::span(all).subspan(user.size()), h));
    return all;
}

} // namespace verbena::rnbd_test
