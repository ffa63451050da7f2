// SPDX-License-Identifier: Apache-2.0
// READ and WRITE of version 4.1 take no memory from the heap, once the first have gone by: by the stateid of an open, of a lock or of a
// delegation, by none, and beside what others have.
#include <boost/test/unit_test.hpp>

#include "../allocation_count.hpp"
#include "nfs4_called_client.hpp"

#include <verbena/protocols/nfs/server/v4/v40_clients.hpp>

BOOST_AUTO_TEST_SUITE(nfs4_server_cost_test)

using namespace verbena;
using namespace verbena::test;

namespace {

constexpr bitmap4 for_the_cache{attribute::change,      attribute::size,          attribute::space_used,
                                attribute::time_access, attribute::time_metadata, attribute::time_modify};

struct fixture : called_fixture {
    fixture()
    {
        options[0].local_writers = false; // so that there are delegations
        options[0].traffic = std::make_shared<nfs::export_traffic>(1);
        connect(client);
        file = made_by(client, "f", share4::want_no_delegation);
    }
    static client4::opened made_by(client4& c, std::string_view name, std::uint32_t want)
    {
        OPEN4args args = c.creating(name);
        args.share_access |= want;
        client4::opened made = c.open(args);
        BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
        BOOST_TEST_REQUIRE(c.write(made, std::string(70'000, 'x')) == nfsstat4::ok);
        return made;
    }
    /// Allocations of as many calls with one sequence id after the other.
    task<std::uint64_t> repeat(memory_call& c, std::size_t sequence_at, std::uint32_t first,
                               std::uint32_t times)
    {
        std::uint64_t made = 0;
        for (std::uint32_t i = 0; i < times; ++i) {
            c.rewrite(sequence_at, first + i);
            const std::uint64_t before = allocations.load();
            const bool answers = co_await dispatcher->dispatch(c);
            made += allocations.load() - before;
            BOOST_REQUIRE(answers);
            const std::uint32_t status = xdr::load_u32(c.results().bytes().data() + rpc::success_header_size);
            BOOST_REQUIRE_MESSAGE(status == 0, "call " << i << ": " << nfsstat4(status));
        }
        co_return made;
    }
    template<class... Args>
    void costs_nothing(std::string_view what, const Args&... args)
    {
        const SEQUENCE4args sequence = client.sequence();
        const auto c = prepare(1, [&](compound_request& out) {
            out.add(sequence);
            (out.add(args), ...);
        });
        xdr::decoder in = c->args();
        rpc::call_header header;
        BOOST_REQUIRE(decode(in, header) == rpc::call_verdict::good);
        // Behind it are tag, minor version, number of operations, SEQUENCE's number and the session.
        const std::size_t at = in.position() + 4 * 4 + sequence.sessionid.size();
        std::uint32_t& last = client.sequences[0];
        constexpr std::uint32_t warm_up = 20, counted = 200;
        (void)run_until_complete(*shard, repeat(*c, at, last, warm_up));
        const std::uint64_t made = run_until_complete(*shard, repeat(*c, at, last + warm_up, counted));
        last += warm_up + counted - 1;
        BOOST_TEST(made == 0u, what << " made " << made << " allocations in " << counted << " calls");
        c->rewind();
    }
    void data_cost_nothing(std::string_view how, const stateid4& id)
    {
        const PUTFH4args put{client4::handle_of(file)};
        const std::string text(65'536, 'y');
        const auto bytes = std::as_bytes(std::span(text));
        for (const std::uint32_t size : {4096U, 65'536U}) {
            const std::string what = std::to_string(size) + " bytes by " + std::string(how);
            costs_nothing("READ of " + what, put, READ4args{id, 4096, size});
            costs_nothing("READ and GETATTR of " + what, put, READ4args{id, 4096, size},
                          GETATTR4args{for_the_cache});
            const WRITE4args write{id, 4096, stable_how4::unstable, bytes.first(size)};
            costs_nothing("WRITE of " + what, put, write);
            costs_nothing("WRITE and GETATTR of " + what, put, write, GETATTR4args{for_the_cache});
            costs_nothing("WRITE and COMMIT of " + what, put, write, COMMIT4args{});
        }
    }
    client4 client{*this, "mine"};
    client4::opened file;
};

} // namespace

BOOST_AUTO_TEST_CASE(allocations_are_counted)
{
    const std::uint64_t before = allocations.load();
    // A new expression could be optimised away; a call of the function can't.
    ::operator delete(::operator new(7));
    BOOST_TEST(allocations.load() == before + 1);
}

BOOST_FIXTURE_TEST_CASE(data_of_an_open_take_no_memory, fixture)
{
    stateid4 newest = file.id;
    newest.seqid = 0;
    data_cost_nothing("an open", newest);
    data_cost_nothing("nobody's stateid", stateid4{});
}

BOOST_FIXTURE_TEST_CASE(data_of_a_lock_take_no_memory, fixture)
{
    LOCK4args args;
    args.locktype = nfs_lock_type4::write;
    args.length = 1'000'000;
    args.locker.new_lock_owner = true;
    args.locker.open_stateid = file.id;
    args.locker.lock_owner.owner = std::as_bytes(std::span(std::string_view("owner")));
    answer4 locked = client.call(PUTFH4args{client4::handle_of(file)}, args);
    locked.good<PUTFH4res>();
    data_cost_nothing("a lock", locked.good<LOCK4res>().lock_stateid);
}

BOOST_FIXTURE_TEST_CASE(data_of_a_delegation_take_no_memory, fixture)
{
    file = made_by(client, "delegated", share4::want_write_delegation);
    BOOST_TEST_REQUIRE((file.res.delegation.delegation_type == open_delegation_type4::write));
    data_cost_nothing("a delegation", file.res.delegation.stateid);
    data_cost_nothing("an open beside a delegation", file.id);
}

// It ends whatever else does, so it must not fail.
BOOST_AUTO_TEST_CASE(to_end_the_confirmation_of_a_client_takes_no_memory)
{
    v40_clients clients({}, 1, 90s, {});
    const auto make = [&](std::uint8_t boot) {
        SETCLIENTID4args args;
        args.verifier[0] = std::byte(boot);
        args.id = std::as_bytes(std::span(std::string_view("name")));
        return clients.set(args, 1, "127.0.0.1", std::nullopt, time_point(), files::nobody);
    };
    for (std::uint8_t boot = 1; boot < 4; ++boot) {
        const v40_clients::made set = make(boot);
        BOOST_TEST_REQUIRE(set.status == nfsstat4::ok);
        const auto begun = clients.begin_confirming(set.client, set.confirm, 1, time_point(), files::nobody);
        BOOST_TEST_REQUIRE(begun.confirms);
        const std::uint64_t before = allocations.load();
        clients.end_confirming(set.client, files::client_id(boot));
        BOOST_TEST(allocations.load() == before);
        BOOST_TEST(clients.state_of(set.client) == files::client_id(boot));
        BOOST_TEST(clients.knows(files::client_id(boot)));
        BOOST_TEST(!clients.knows(files::client_id(boot - 1)));
    }
}

// Others hold what must be looked at: an open of the same file, a delegation and a lock of another one.
BOOST_FIXTURE_TEST_CASE(data_beside_what_others_have_take_no_memory, fixture)
{
    client4 other(*this, "theirs");
    connect(other);
    BOOST_TEST_REQUIRE(other.open(other.opening("f", share4::access_read)).status == nfsstat4::ok);
    const auto theirs = made_by(other, "g", share4::want_write_delegation);
    BOOST_TEST_REQUIRE((theirs.res.delegation.delegation_type == open_delegation_type4::write));
    data_cost_nothing("an open beside another client's", file.id);
}

BOOST_AUTO_TEST_SUITE_END()
