// SPDX-License-Identifier: Apache-2.0
// The client of version 4.1 beside a server that says yes to everything: READ, WRITE and COMMIT of an open file take no memory from
// the heap, once the first have gone by, and what was not asked for is given back.
#include <boost/test/unit_test.hpp>

#include "../allocation_count.hpp"

#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/nfs/client/v4/client.hpp>
#include <verbena/protocols/nfs/client/v4/file.hpp>

BOOST_AUTO_TEST_SUITE(nfs4_client_cost_test)

using namespace verbena;
using namespace verbena::test;
using namespace verbena::nfs::v4;

namespace {

constexpr std::uint32_t size_of_io = 4096;

/// Says yes to everything, without a server.
class yes_server final : public rpc::client_transport {
public:
    explicit yes_server(buffer_pool& b) : buffers_(b) {}
    task<result<void>> connect() override { co_return result<void>(); }
    task<result<rpc::reply>> call(rpc::request& r) override
    {
        xdr::decoder in(r.message().bytes());
        if (!r.message().payloads().empty()) {
            const xdr::payload_item item = r.message().payloads().front();
            in = xdr::decoder(r.message().bytes(), xdr::external_item{item.position, item.length});
        }
        rpc::call_header header;
        decode(in, header);
        lease memory = co_await buffers_.acquire(2 * size_of_io);
        xdr::encoder out(memory.bytes());
        for (const std::uint32_t word : {0U, 1U, 0U, 0U, 0U, 0U}) // an accepted reply
            out.u32(word);
        compound_arguments args(in);
        compound_results results(out, args.head().tag);
        while (args.next() && results.status() == nfsstat4::ok)
            args.visit([&](const auto& of_one) { answer(of_one, results); });
        const std::span<const std::byte> message(memory.data(), out.size());
        rpc::reply answered(std::move(memory), message, {}, false);
        const auto decoded = answered.decode_header();
        if (!decoded)
            co_return decoded.error();
        co_return std::move(answered);
    }
    task<void> close() override { co_return; }
    task<lease> acquire(std::size_t size) override { co_return co_await buffers_.acquire(size); }
    std::string_view name() const noexcept override { return "yes"; }
    std::uint64_t connections() const noexcept override { return 1; }
    bool answered() const noexcept override { return true; }

    open_delegation_type4 gives = open_delegation_type4::none;
    int returned = 0;
    bool knows_session = true; ///< else it says so once
    bool knows_client = true;  ///< likewise
    bool confirmed = false;    ///< what EXCHANGE_ID says of a client id, which is always the same
    int reclaimed = 0;         ///< opens
    int completed = 0;         ///< times that a client had reclaimed all

private:
    template<class Args>
    void answer(const Args& args, compound_results& out)
    {
        if constexpr (std::is_same_v<Args, GETATTR4args>) {
            attributes values;
            values.size = 1 << 30;
            values.present = {attribute::type, attribute::size};
            encode_attributes(out.begin(nfs_opnum4::getattr), args.attr_request, values);
            BOOST_REQUIRE(out.end());
        } else if constexpr (!std::is_same_v<Args, READDIR4args>) {
            results_of<Args> res;
            if constexpr (std::is_same_v<Args, SEQUENCE4args>) {
                if (!std::exchange(knows_session, true))
                    return out.fail(Args::opcode, nfsstat4::badsession);
            }
            if constexpr (std::is_same_v<Args, CREATE_SESSION4args>) {
                if (!std::exchange(knows_client, true))
                    return out.fail(Args::opcode, nfsstat4::stale_clientid);
            }
            if constexpr (std::is_same_v<Args, EXCHANGE_ID4args>)
                res.flags = confirmed ? exchgid4::confirmed_r : 0;
            if constexpr (std::is_same_v<Args, RECLAIM_COMPLETE4args>)
                ++completed;
            if constexpr (std::is_same_v<Args, OPEN4args>)
                reclaimed += args.claim.claim == open_claim_type4::previous ? 1 : 0;
            if constexpr (std::is_same_v<Args, SEQUENCE4args>) {
                res.sessionid = args.sessionid;
                res.sequenceid = args.sequenceid;
                res.slotid = args.slotid;
                res.highest_slotid = res.target_highest_slotid = 63;
            }
            if constexpr (std::is_same_v<Args, CREATE_SESSION4args>)
                res.fore_chan_attrs = args.fore_chan_attrs;
            if constexpr (std::is_same_v<Args, READ4args>)
                res.data = std::span<const std::byte>(zeroes_);
            if constexpr (std::is_same_v<Args, WRITE4args>)
                res.count = args.data.length;
            if constexpr (std::is_same_v<Args, OPEN4args>) {
                res.delegation.delegation_type = gives;
                res.delegation.stateid = {1, {std::byte(9)}};
            }
            if constexpr (std::is_same_v<Args, DELEGRETURN4args>)
                returned += args.deleg_stateid == stateid4{1, {std::byte(9)}} ? 1 : 0;
            BOOST_REQUIRE(out.add(res));
        }
    }
    buffer_pool& buffers_;
    std::array<std::byte, size_of_io> zeroes_{};
};

task<result<std::uint64_t>> work(client& c, std::span<const std::byte> data)
{
    node object;
    const std::array<std::byte, 4> bytes{std::byte(1)};
    object.handle = known_handle(bytes);
    auto opened = co_await c.open(object, share4::access_both);
    if (!opened)
        co_return opened.error();
    std::uint64_t before = 0;
    for (int i = 0; i < 1100; ++i) {
        if (i == 100)
            before = allocations;
        const std::uint64_t offset = std::uint64_t(size_of_io) * static_cast<unsigned>(i);
        auto read = co_await (*opened)->read(offset, size_of_io);
        if (!read)
            co_return read.error();
        auto written = co_await (*opened)->write(offset, rpc::payload(lease(), data));
        if (written && i % 8 == 7)
            written = co_await (*opened)->commit();
        if (!written)
            co_return written.error();
    }
    const std::uint64_t taken = allocations - before;
    auto closed = co_await (*opened)->close();
    if (!closed)
        co_return closed.error();
    co_await c.close();
    co_return taken;
}

struct fixture {
    static std::unique_ptr<reactor> make_reactor(virtual_clock& clock)
    {
        reactor_options options;
        options.clock = &clock;
        return std::move(*reactor::create(options));
    }
    virtual_clock clock;
    std::unique_ptr<reactor> shard = make_reactor(clock);
    memory_budget budget{std::size_t(64) << 20};
    buffer_pool pool{budget, shard.get()};
    yes_server server{pool};
    client c{server, nfs::identity(), "a client"};
};

task<result<void>> open_and_close(client& c)
{
    node object;
    const std::array<std::byte, 4> bytes{std::byte(1)};
    object.handle = known_handle(bytes);
    auto opened = co_await c.open(object, share4::access_read);
    if (!opened)
        co_return opened.error();
    auto made = co_await c.create(object.handle, "name", {}, open_how::guarded);
    if (!made)
        co_return made.error();
    auto closed = co_await (*opened)->close();
    if (closed)
        closed = co_await (*made)->close();
    co_await c.close();
    co_return closed;
}

} // namespace

BOOST_FIXTURE_TEST_CASE(a_delegation_that_nobody_wanted_is_given_back, fixture)
{
    for (const auto type : {open_delegation_type4::read, open_delegation_type4::write}) {
        server.returned = 0;
        server.gives = type;
        client each(server, nfs::identity(), "a client");
        BOOST_TEST(run_until_complete(*shard, open_and_close(each)).has_value());
        BOOST_TEST(server.returned == 2);
    }
}

namespace {

task<result<void>> read_of_a_server_that_forgets(client& c, yes_server& server)
{
    node object;
    const std::array<std::byte, 4> bytes{std::byte(1)};
    object.handle = known_handle(bytes);
    auto opened = co_await c.open(object, share4::access_read);
    if (!opened)
        co_return opened.error();
    server.gives = open_delegation_type4::read;
    server.knows_session = server.knows_client = false;
    auto read = co_await (*opened)->read(0, size_of_io);
    if (!read)
        co_return read.error();
    server.gives = open_delegation_type4::none;
    auto closed = co_await (*opened)->close();
    co_await c.close();
    co_return closed;
}

} // namespace

// The number of a client id may be that of an earlier one. Whether it is the same client the server says.
BOOST_FIXTURE_TEST_CASE(a_client_id_that_is_not_confirmed_has_nothing, fixture)
{
    for (const bool same : {false, true}) {
        server.reclaimed = server.completed = server.returned = 0;
        server.confirmed = same;
        client each(server, nfs::identity(), "a client");
        const auto done = run_until_complete(*shard, read_of_a_server_that_forgets(each, server));
        BOOST_TEST(done.has_value());
        BOOST_TEST(server.reclaimed == (same ? 0 : 1));
        BOOST_TEST(server.completed == (same ? 1 : 2));
        // What comes with a file that is taken back goes back too.
        BOOST_TEST(server.returned == server.reclaimed);
    }
}

BOOST_FIXTURE_TEST_CASE(data_take_no_memory_from_the_heap, fixture)
{
    const std::array<std::byte, size_of_io> data{};
    const auto taken = run_until_complete(*shard, work(c, data));
    BOOST_REQUIRE_MESSAGE(taken, (taken ? std::string() : taken.error().message()));
    BOOST_TEST(*taken == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
