// SPDX-License-Identifier: Apache-2.0
// What the program costs in steady state, and what it counts.
#include <boost/test/unit_test.hpp>

#include "../allocation_count.hpp"
#include "nfs3_server.hpp"

#include <verbena/protocols/nfs/server/v3/mount.hpp>
#include <verbena/protocols/nfs/server/v4/commons.hpp>
#include <verbena/protocols/nfs/user_groups.hpp>

#include <numeric>

BOOST_AUTO_TEST_SUITE(nfs3_server_cost_test)

using namespace verbena;
using namespace verbena::test;
using storage::file_type;

namespace {

struct fixture : nfs3_fixture {
    fixture() { first.traffic = std::make_shared<nfs::export_traffic>(1); }
    task<std::uint64_t> repeat(memory_call& c, int times)
    {
        const std::uint64_t before = allocations.load();
        for (int i = 0; i < times; ++i) {
            c.rewind();
            (void)co_await calls->dispatch(c);
        }
        co_return allocations.load() - before;
    }
    std::uint64_t counted() const
    {
        return first.traffic->total(&nfs::export_counters::reads) +
               first.traffic->total(&nfs::export_counters::writes) +
               first.traffic->total(&nfs::export_counters::others);
    }
    template<class Arguments>
    void costs_nothing(procedure what, const Arguments& args)
    {
        auto c = prepare(what, args);
        (void)run_until_complete(*shard, repeat(*c, 3));
        const std::uint64_t before = counted();
        const std::uint64_t made = run_until_complete(*shard, repeat(*c, 200));
        BOOST_TEST(made == 0u, to_string(what) << " made " << made << " allocations in 200 calls");
        BOOST_TEST(counted() == before + 200u, to_string(what) << " counts for its export");
        xdr::decoder in = c->reply();
        BOOST_TEST((nfsstat3(in.u32()) == nfsstat3::ok), to_string(what));
        c->rewind();
    }
    rpc::dispatcher* calls = &dispatcher;
};

} // namespace

BOOST_AUTO_TEST_CASE(allocations_are_counted)
{
    const std::uint64_t before = allocations.load();
    // A new expression could be optimised away; a call of the function can't.
    ::operator delete(::operator new(7));
    BOOST_TEST(allocations.load() == before + 1);
}

BOOST_FIXTURE_TEST_CASE(no_allocations_in_steady_state, fixture)
{
    const auto id = files.add(1, "f", file_type::regular);
    files[id].data = pattern(70'000);
    GETATTR3args getattr;
    getattr.object = handle(id);
    costs_nothing(procedure::getattr, getattr);
    LOOKUP3args lookup;
    lookup.what = in_root("f");
    costs_nothing(procedure::lookup, lookup);
    ACCESS3args access;
    access.object = handle(id);
    access.access = access3::all;
    costs_nothing(procedure::access, access);
    READ3args read;
    read.file = handle(id);
    read.count = 65'536;
    costs_nothing(procedure::read, read);
    const auto bytes = pattern(4096);
    WRITE3args write;
    write.file = handle(id);
    write.count = write.data.length = 4096;
    write.data.inline_bytes = bytes;
    costs_nothing(procedure::write, write);
    FSSTAT3args fsstat;
    fsstat.fsroot = root();
    costs_nothing(procedure::fsstat, fsstat);
    COMMIT3args commit;
    commit.file = handle(id);
    costs_nothing(procedure::commit, commit);
}

// What version 4's clients have of other files costs those of version 3 nothing.
BOOST_FIXTURE_TEST_CASE(no_allocations_beside_version_4, fixture)
{
    const auto id = files.add(1, "f", file_type::regular);
    files[id].data = pattern(70'000);
    const nfs_fh3 handle_of_f = handle(id);
    scope tasks(*shard);
    verbena::shard home(0, *shard, pool, tasks);
    files::no_recovery_store store;
    nfs::v4::server_commons commons(exports, key, std::array{&home}, store, {}, 0);
    files::state_table& table = commons.state.table();
    const files::client_id client = *commons.state.clients().add_client("k");
    BOOST_REQUIRE(run_until_complete(*shard, commons.state.clients().reclaim_complete(client)));
    files::open_request open;
    open.client = client;
    open.file = storage::handle(std::as_bytes(std::span("another")));
    BOOST_REQUIRE(table.open(open));
    BOOST_TEST(commons.state.has_any_state());
    server beside(exports, key, &commons.state, &home);
    rpc::service_dispatcher both(*shard);
    both.add(beside);
    calls = &both;
    READ3args read;
    read.file = handle_of_f;
    read.count = 4096;
    costs_nothing(procedure::read, read);
    const auto bytes = pattern(4096);
    WRITE3args write;
    write.file = handle_of_f;
    write.count = write.data.length = 4096;
    write.data.inline_bytes = bytes;
    costs_nothing(procedure::write, write);
    GETATTR3args getattr;
    getattr.object = handle_of_f;
    costs_nothing(procedure::getattr, getattr);
}

namespace {

/// Each user is in root's group and in as many others as an AUTH_SYS call could not name.
class many_groups final : public nfs::group_source {
public:
    task<result<std::optional<std::vector<std::uint32_t>>>> find_groups(std::uint32_t) override
    {
        std::vector<std::uint32_t> all(100);
        std::iota(all.begin(), all.end(), 0);
        co_return std::optional(std::move(all));
    }
};

} // namespace

// The list is looked up once, and in an export where root's group is another one it is made once.
BOOST_FIXTURE_TEST_CASE(no_allocations_for_groups_that_are_known, fixture)
{
    const auto id = files.add(1, "f", file_type::regular);
    scope tasks(*shard);
    verbena::shard home(0, *shard, pool, tasks);
    many_groups source;
    nfs::user_groups groups(home, source);
    exports.look_up_groups(groups);
    GETATTR3args getattr;
    getattr.object = handle(id);
    costs_nothing(procedure::getattr, getattr);
    user->uid = 1001;
    LOOKUP3args lookup;
    lookup.what = in_root("f");
    costs_nothing(procedure::lookup, lookup);
    BOOST_TEST(groups.counters().lookups[0].value() == 2u);
}

BOOST_FIXTURE_TEST_CASE(metrics_show_what_was_counted, fixture)
{
    start();
    nfs::mount3::mount_list mounts;
    nfs::mount3::server mount(exports, key, mounts);
    metric_registry registry;
    const auto files = program.expose(registry);
    const auto of_mount = mount.expose(registry);
    GETATTR3args args;
    (void)call<GETATTR3res>(procedure::getattr, args);
    double handles = 0;
    std::vector<std::string> names;
    for (const auto& family : registry.collect()) {
        names.push_back(family.family.name);
        for (const auto& series : family.samples) {
            if (family.family.name == "verbena_nfs_refusals_total" && series.labels.front() == "handle")
                handles = series.value;
        }
    }
    BOOST_TEST(handles == 1);
    const std::vector<std::string> expected = {
        "verbena_mount_mounts_total",   "verbena_mount_refusals_total", "verbena_nfs_errors_total",
        "verbena_nfs_read_bytes_total", "verbena_nfs_refusals_total",   "verbena_nfs_written_bytes_total"};
    BOOST_TEST(names == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
