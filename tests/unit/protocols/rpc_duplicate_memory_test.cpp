// SPDX-License-Identifier: Apache-2.0
// The duplicate-request cache takes no more memory than it says.
#include <boost/test/unit_test.hpp>

#include "rpc_server.hpp"

#include <verbena/protocols/rpc/duplicate_request_cache.hpp>

BOOST_AUTO_TEST_SUITE(rpc_duplicate_memory_test)

using namespace verbena;
using namespace verbena::test;
using namespace std::chrono_literals;
using state = rpc::duplicate_request_cache::state;

namespace {

rpc::request_key key_of(std::uint32_t xid, std::string address = "192.0.2.1")
{
    rpc::request_key key;
    key.address = std::move(address);
    key.xid = xid;
    return key;
}

/// A cache of some shards that one of them looks into.
struct looked_into {
    looked_into(std::size_t shards, const rpc::duplicate_request_options& options) : cache(shards, options)
    {
        reactor_options of_shard;
        of_shard.clock = &clock;
        auto made = reactor::create(of_shard);
        BOOST_REQUIRE(made);
        here = std::move(*made);
    }
    /// A call with a reply of so many octets, which has as many data.
    state ask(rpc::request_key key, std::size_t octets, std::size_t data = 0)
    {
        const auto look = [&]() -> task<state> {
            rpc::duplicate_request_cache::visit v(cache, *here, key);
            const state s = co_await v.begin();
            if (s == state::fresh)
                v.remember(bytes(octets, std::byte(1)), std::vector<xdr::payload_item>(data));
            co_return s;
        };
        return run_until_complete(*here, look());
    }
    std::size_t room() const
    {
        std::size_t all = 0;
        for (std::size_t i = 0; i < cache.parts(); ++i)
            all += std::size_t(cache.stats(i).room.value());
        return all;
    }
    std::uint64_t evicted() const
    {
        std::uint64_t all = 0;
        for (std::size_t i = 0; i < cache.parts(); ++i)
            all += cache.stats(i).evicted.value();
        return all;
    }
    virtual_clock clock;
    std::unique_ptr<reactor> here;
    rpc::duplicate_request_cache cache;
};

} // namespace

// A place that had a long reply once does not keep its room.
BOOST_AUTO_TEST_CASE(long_replies_give_back_what_they_took)
{
    constexpr std::size_t usual = rpc::duplicate_request_options::usual_reply;
    rpc::duplicate_request_options options;
    options.max_entries = 4;
    looked_into one(1, options);
    for (std::uint32_t xid = 0; xid < 20; ++xid) {
        BOOST_CHECK(one.ask(key_of(xid), 4096, 16) == state::fresh);
        BOOST_TEST(one.room() <= 4 * (4096 + 16 * sizeof(xdr::payload_item)));
    }
    BOOST_TEST(one.room() == 4 * (4096 + 16 * sizeof(xdr::payload_item)));
    BOOST_TEST(one.cache.stats(0).bytes.value() == std::int64_t(one.room())); // the places of data, too
    for (std::uint32_t xid = 20; xid < 24; ++xid)
        BOOST_CHECK(one.ask(key_of(xid), 28) == state::fresh);
    BOOST_TEST(one.room() == 4 * usual);
    BOOST_TEST(one.cache.stats(0).bytes.value() == 4 * 28);
    BOOST_CHECK(one.ask(key_of(20), 28) == state::answered);
}

// For one that is longer than usual so many places go that all take no more than they may, and come back when it has gone.
BOOST_AUTO_TEST_CASE(long_replies_take_the_room_of_others)
{
    constexpr std::size_t usual = rpc::duplicate_request_options::usual_reply;
    rpc::duplicate_request_options options;
    options.max_entries = 10;
    options.max_bytes = 10 * usual;
    looked_into one(1, options);
    std::uint32_t xid = 0;
    for (; xid < 10; ++xid)
        BOOST_CHECK(one.ask(key_of(xid), 28) == state::fresh);
    BOOST_TEST(one.evicted() == 0u);
    BOOST_CHECK(one.ask(key_of(xid++), 5 * usual) == state::fresh);
    BOOST_TEST(one.room() == 10 * usual);
    BOOST_TEST(one.cache.stats(0).entries.value() == 6);
    BOOST_CHECK(one.ask(key_of(9), 28) == state::answered);
    BOOST_CHECK(one.ask(key_of(10), 28) == state::answered);
    BOOST_CHECK(one.ask(key_of(4), 28) == state::fresh); // it had to go
    // What takes more than all is not kept.
    BOOST_CHECK(one.ask(key_of(xid), 11 * usual) == state::fresh);
    BOOST_CHECK(one.ask(key_of(xid++), 28) == state::fresh);
    for (int i = 0; i < 20; ++i) {
        BOOST_CHECK(one.ask(key_of(xid++), 28) == state::fresh);
        BOOST_TEST(one.room() <= 10 * usual);
    }
    BOOST_TEST(one.cache.stats(0).entries.value() == 10);
}

// Of what all parts may take each has its own, and one of them may have the other half.
BOOST_AUTO_TEST_CASE(all_parts_together_take_what_is_promised)
{
    constexpr std::size_t usual = rpc::duplicate_request_options::usual_reply;
    rpc::duplicate_request_options options;
    options.max_entries = 64;
    options.max_bytes = 64 * usual;
    looked_into all(4, options);
    for (std::uint32_t xid = 0; xid < 400; ++xid) {
        const std::string address = "192.0.2." + std::to_string(xid % 50);
        BOOST_CHECK(all.ask(key_of(xid, address), xid % 3 == 0 ? 28 : 4 * usual) == state::fresh);
        BOOST_TEST(all.room() <= 64 * usual);
    }
    BOOST_TEST(all.room() > 32 * usual);
    // What is old makes room for another part, also of long ones.
    all.clock.advance(121s);
    all.here->turn();
    const std::uint64_t before = all.evicted();
    for (std::uint32_t xid = 1000; xid < 1008; ++xid)
        BOOST_CHECK(all.ask(key_of(xid), 4 * usual) == state::fresh);
    BOOST_TEST(all.evicted() == before);
    for (std::uint32_t xid = 1000; xid < 1008; ++xid)
        BOOST_CHECK(all.ask(key_of(xid), 4 * usual) == state::answered);
}

BOOST_AUTO_TEST_SUITE_END()
