// SPDX-License-Identifier: Apache-2.0
// A store with a disk that is slow, fails, or hangs, and a peer with grants of it.
#pragma once

#include "iwarp_by_hand.hpp"

#include <verbena/core/task/event.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace verbena::iwarp_by_hand {

struct test_store final : verbs::byte_store {
    explicit test_store(std::size_t size) : content(size) {}
    ~test_store() override { *gone = true; }

    task<result<void>> read(std::uint64_t offset, std::span<std::byte> out) override
    {
        log.push_back("read " + std::to_string(offset) + "+" + std::to_string(out.size()));
        if (hangs)
            co_await free.wait_shielded();
        if (fails)
            co_return error::from_errno(EIO, "the disk");
        for (std::size_t i = 0; i < out.size(); ++i)
            out[i] = offset + i < content.size() ? content[offset + i] : std::byte();
        co_return result<void>();
    }
    task<result<void>> write(std::uint64_t offset, std::span<const std::byte> data) override
    {
        log.push_back("write " + std::to_string(offset) + "+" + std::to_string(data.size()));
        if (throws)
            throw std::bad_alloc();
        if (hangs)
            co_await free.wait_shielded();
        if (fails) {
            failure = std::make_error_code(std::errc::no_space_on_device);
            co_return error(failure, "the disk");
        }
        content.resize(std::max(content.size(), std::size_t(offset) + data.size()));
        std::ranges::copy(data, content.begin() + std::ptrdiff_t(offset));
        co_return result<void>();
    }
    std::error_code write_failure() const noexcept override { return failure; }
    bytes part(std::size_t offset, std::size_t size) const
    {
        return bytes(content.begin() + std::ptrdiff_t(offset),
                     content.begin() + std::ptrdiff_t(offset + size));
    }
    /// What hangs goes on, and nothing hangs any more.
    void goes_on()
    {
        hangs = false;
        free.set();
    }

    bytes content;
    std::vector<std::string> log;
    bool hangs = false, fails = false, throws = false;
    std::error_code failure;
    event free;
    std::shared_ptr<bool> gone = std::make_shared<bool>(false);
};

inline bytes pattern(std::size_t size, unsigned seed)
{
    bytes made(size);
    for (std::size_t i = 0; i < size; ++i)
        made[i] = std::byte(i * 31 + seed + i / 251);
    return made;
}

constexpr auto both = verbs::access::remote_read | verbs::access::remote_write;

struct with_stores : with_grants {
    ~with_stores()
    {
        if (store)
            store->goes_on();
        take_back();
    }
    verbs::grant granted_store(std::uint64_t offset, std::uint32_t length, verbs::access rights = both)
    {
        verbs::grant_request asked;
        asked.store = store;
        asked.store_offset = offset;
        asked.store_length = length;
        asked.rights = rights;
        bool done = false;
        tasks->spawn([&]() -> task<void> {
            const auto made = co_await domain->make_grants({&asked, 1});
            BOOST_TEST(made.has_value());
            done = true;
        });
        until([&] { return done; });
        return std::move(asked.made);
    }
    /// Begins to revoke `grant`; `revoked` says when that is done.
    void begin_to_revoke()
    {
        tasks->spawn([this]() -> task<void> {
            co_await domain->revoke({&grant, 1});
            revoked = true;
        });
    }
    void take_back()
    {
        if (!grant)
            return;
        begin_to_revoke();
        until([&] { return revoked; });
    }
    /// A Write message of `content` to `offset` from the grant's first byte, in FPDUs of `step` octets.
    static bytes message(const verbs::grant& g, std::uint64_t offset, const bytes& content,
                         std::size_t step = 8192)
    {
        bytes all;
        for (std::size_t done = 0; done < content.size();) {
            const std::size_t part = std::min(step, content.size() - done);
            const bool last = done + part == content.size();
            bytes one = fpdu((last ? "c140" : "8140") + hex(g.where().key, 8) +
                                 hex(g.where().address + offset + done, 16),
                             part);
            std::copy_n(content.begin() + std::ptrdiff_t(done), part, one.begin() + 16);
            all = std::move(all) + one;
            done += part;
        }
        return all;
    }
    static bytes read_request(const verbs::grant& g, std::uint64_t offset, std::uint32_t size,
                              unsigned number = 1)
    {
        return fpdu("4141 00000000 00000001" + hex(number, 8) + "00000000 00000007" + hex(0, 16) +
                    hex(size, 8) + hex(g.where().key, 8) + hex(g.where().address + offset, 16));
    }
    /// The payload of a Read Response.
    bytes response(int peer, std::size_t size)
    {
        bytes got;
        bool last = false;
        while (!last) {
            const bytes head = read(peer, 16);
            BOOST_REQUIRE(head.size() == 16u);
            last = (head[2] & std::byte(0x40)) != std::byte();
            BOOST_REQUIRE(to_hex(std::span(head).subspan(3, 1)) == "42");
            const std::size_t ulpdu =
                std::to_integer<std::size_t>(head[0]) << 8 | std::to_integer<std::size_t>(head[1]);
            const std::size_t payload = ulpdu - 14;
            const bytes body = read(peer, payload + (4 - (ulpdu + 2) % 4) % 4 + 4);
            BOOST_REQUIRE(body.size() > payload);
            got = std::move(got) + bytes(body.begin(), body.begin() + std::ptrdiff_t(payload));
        }
        BOOST_TEST(got.size() == size);
        return got;
    }
    bool is_silent(int peer)
    {
        for (int i = 0; i < 20; ++i) {
            clock.advance(10us);
            shard->turn();
        }
        std::byte b;
        return ::recv(peer, &b, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
    }
    void expect_terminate(int peer, std::string_view code)
    {
        const bytes head = read(peer, 24);
        BOOST_REQUIRE(head.size() == 24u);
        BOOST_TEST(to_hex(std::span(head).subspan(2, 2)) == "4147");
        BOOST_TEST(to_hex(std::span(head).subspan(20, 2)) == code);
    }
    /// Sends all of it, as the other end takes it.
    void send_all(int peer, const bytes& b)
    {
        for (std::size_t done = 0; done < b.size();) {
            const ssize_t n = ::send(peer, b.data() + done, b.size() - done, MSG_DONTWAIT);
            if (n > 0)
                done += static_cast<std::size_t>(n);
            clock.advance(10us);
            shard->turn();
        }
    }
    std::string log() const
    {
        std::string all;
        for (const auto& line : store->log)
            all += (all.empty() ? "" : ", ") + line;
        return all;
    }

    std::shared_ptr<test_store> store = std::make_shared<test_store>(4096);
    verbs::grant grant;
    bool revoked = false;
};

} // namespace verbena::iwarp_by_hand
