// SPDX-License-Identifier: Apache-2.0
// Operations of version 4 against recallable state of another kind than delegations, as layouts will be.
#include "files_memory.hpp"
#include "nfs4_called_client.hpp"

BOOST_AUTO_TEST_SUITE(nfs4_recallable_test)

using namespace verbena;
using namespace verbena::test;

namespace {

struct fixture : called_fixture {
    fixture()
    {
        first.connect();
        second.connect();
        tend();
    }
    ~fixture()
    {
        tasks.request_stop();
        while (tasks.live() != 0)
            shard->turn();
        program.reset();
        commons.reset(); // before the kind
    }
    files::state_table& table() { return commons->state.table(); }
    /// The first client has memory of the file, to write.
    files::stateid hold(const client4::opened& file)
    {
        files::hold_request r;
        r.by = {file.id.seqid, file.id.other};
        const auto holder = table().holder_of(r.by);
        BOOST_REQUIRE(holder);
        r.client = holder->client;
        r.file = holder->file;
        r.kind = &memory;
        r.bytes = all_bytes;
        r.type = files::lock_type::write;
        BOOST_REQUIRE(commons->state.clients().set_callable(r.client, true));
        const auto held = table().hold(r);
        BOOST_TEST_REQUIRE(held.has_value());
        return *held;
    }
    void give_back(const files::stateid& id)
    {
        const auto holder = table().holder_of(id);
        BOOST_REQUIRE(holder);
        BOOST_TEST(table().give_back(holder->client, id, holder->file, all_bytes, std::nullopt).has_value());
        turns();
    }

    memory_kind memory;
    client4 first{*this, "first"};
    client4 second{*this, "second"};
};

} // namespace

// By an open's stateid, too: the file was open before.
BOOST_FIXTURE_TEST_CASE(each_operation_is_asked_for_as_what_it_is, fixture)
{
    memory.against = {files::operation::set_size, files::operation::change_extents};
    const auto file = first.open(first.creating("f"));
    BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
    const auto of_second = second.open(second.creating("f"));
    BOOST_TEST_REQUIRE(of_second.status == nfsstat4::ok);
    const auto source = second.open(second.creating("source"));
    BOOST_TEST_REQUIRE(source.status == nfsstat4::ok);
    const PUTFH4args there{client4::handle_of(of_second)}, from_there{client4::handle_of(source)};
    const stateid4 id = of_second.id;
    minor = 2;
    const auto text = std::as_bytes(std::span("text", 4));
    BOOST_TEST(second.call(from_there, WRITE4args{source.id, 0, stable_how4::unstable, text}).status() ==
               nfsstat4::ok);
    attributes size;
    size.size = 2;
    size.present.set(attribute::size);
    const encoded cut(size);
    SETATTR4args set;
    set.stateid = id;
    set.obj_attributes = cut.raw;
    CLONE4args clone;
    clone.src_stateid = source.id;
    clone.dst_stateid = id;
    COPY4args copy;
    copy.src_stateid = source.id;
    copy.dst_stateid = id;
    copy.count = 4;
    copy.consecutive = copy.synchronous = true;
    const struct {
        const char* what;
        std::function<nfsstat4()> does;
    } all[] = {
        // CLONE before what makes the file longer, as it clones less than a block.
        {"SETATTR", [&] { return second.call(there, set).status(); }},
        {"CLONE", [&] { return second.call(from_there, SAVEFH4args(), there, clone).status(); }},
        {"COPY", [&] { return second.call(from_there, SAVEFH4args(), there, copy).status(); }},
        {"ALLOCATE", [&] { return second.call(there, ALLOCATE4args{id, 0, 10}).status(); }},
        {"DEALLOCATE", [&] { return second.call(there, DEALLOCATE4args{id, 0, 10}).status(); }},
    };
    for (const auto& one : all)
        BOOST_TEST_CONTEXT(one.what)
        {
            BOOST_TEST(one.does() == nfsstat4::ok);
            const files::stateid held = hold(file);
            memory.recalls.clear();
            BOOST_TEST(second.call(there, WRITE4args{id, 0, stable_how4::unstable, text}).status() ==
                       nfsstat4::ok);
            BOOST_TEST(memory.recalls.empty());
            BOOST_TEST(one.does() == nfsstat4::delay);
            BOOST_TEST(memory.recalls.size() == 1u);
            give_back(held);
            BOOST_TEST(one.does() == nfsstat4::ok);
            pass(61s, 1s); // nothing is given of a file soon after a recall
            for (client4* renewing : {&first, &second})
                BOOST_TEST(renewing->call().status() == nfsstat4::ok);
        }
}

// Who ends it waits for nothing, as others do that are served by the same task.
BOOST_FIXTURE_TEST_CASE(a_client_that_is_abandoned_costs_nobody_its_fences, fixture)
{
    memory.takes = 5s;
    const auto file = first.open(first.creating("f"));
    const auto holder = table().holder_of(hold(file));
    BOOST_REQUIRE(holder);
    const files::client_id client = holder->client;
    const time_point begun = clock.now();
    run_until_complete(*shard, commons->state.abandon(client));
    BOOST_TEST((clock.now() == begun));
    BOOST_TEST(!commons->state.clients().state_of(client).has_value());
    const auto made = run_until_complete(*shard, commons->state.add_client("a new one"));
    BOOST_TEST(made.has_value());
    BOOST_TEST((clock.now() == begun));
    BOOST_TEST(memory.ended.empty());
    pass(6s);
    BOOST_TEST(memory.ended.size() == 1u);
}

BOOST_AUTO_TEST_SUITE_END()
