// SPDX-License-Identifier: Apache-2.0
// Peers whose accesses to stores go by memory of a budget, which may be spent.
#pragma once

#include "iwarp_stores.hpp"

#include <verbena/core/net/net.hpp>
#include <verbena/core/net/peer_shares.hpp>

#include <arpa/inet.h>
#include <memory>
#include <netinet/in.h>
#include <sys/socket.h>
#include <utility>
#include <vector>

namespace verbena::iwarp_by_hand {

constexpr std::size_t kib = 1024;

struct budget_and_pool {
    memory_budget budget{std::size_t(1) << 20, 1, huge_pages::no};
    buffer_pool pool{budget, nullptr};
    peer_shares shares;
};

struct with_budget : budget_and_pool, with_stores {
    with_budget() { options.buffers = &pool; }
    /// Nobody else gets memory of the pool from now on.
    void spend()
    {
        for (std::size_t size = 256 * kib; size >= 4 * kib;) {
            if (lease l = pool.try_acquire(size))
                spent.push_back(std::move(l));
            else
                size /= 2;
        }
    }
    /// A connection beside others, which stay.
    int one_more()
    {
        const int peer = connected();
        all.push_back(std::move(queue_pair));
        return peer;
    }
    /// Likewise of the host that has this address.
    int one_more_of(const char* address)
    {
        const net::unique_fd listens(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in here{}, from{};
        socklen_t size = sizeof here;
        here.sin_family = from.sin_family = AF_INET;
        here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        BOOST_REQUIRE(::inet_pton(AF_INET, address, &from.sin_addr) == 1);
        BOOST_REQUIRE(::bind(listens.get(), reinterpret_cast<const sockaddr*>(&here), sizeof here) == 0);
        BOOST_REQUIRE(::listen(listens.get(), 1) == 0);
        BOOST_REQUIRE(::getsockname(listens.get(), reinterpret_cast<sockaddr*>(&here), &size) == 0);
        const int peer = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        peers.push_back(peer);
        BOOST_REQUIRE(::bind(peer, reinterpret_cast<const sockaddr*>(&from), sizeof from) == 0);
        BOOST_REQUIRE(::connect(peer, reinterpret_cast<const sockaddr*>(&here), sizeof here) == 0);
        const int adopted = ::accept4(listens.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        BOOST_REQUIRE(adopted >= 0);
        provider->adopt(adopted, *listener);
        write(peer, good_start);
        BOOST_TEST(read(peer, 24).size() == 24u);
        all.push_back(std::move(queue_pair));
        return peer;
    }
    void milliseconds(int n)
    {
        for (int i = 0; i < 10 * n; ++i) {
            clock.advance(100us);
            shard->turn();
        }
    }
    std::uint64_t in_use() const { return provider->counters().store_buffer_bytes; }
    std::uint64_t waits() const { return provider->counters().store_buffer_waits; }
    /// A Write of which more is to come.
    static bytes half(const verbs::grant& g, std::uint64_t offset, std::size_t size)
    {
        bytes made = message(g, offset, pattern(size, 1));
        made[2] = std::byte(0x81);
        return made;
    }
    /// What hangs goes on, and what comes next hangs.
    void one_goes_on()
    {
        store->free.set();
        store->free.reset();
    }
    std::vector<lease> spent;
    std::vector<std::unique_ptr<verbs::queue_pair>> all;
};

} // namespace verbena::iwarp_by_hand
