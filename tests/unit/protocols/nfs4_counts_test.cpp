// SPDX-License-Identifier: Apache-2.0
// Times and failures of operations of version 4, and what they count for the export.
#include "../lines_of_log.hpp"
#include "../log_at.hpp"
#include "nfs4_server.hpp"

#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/nfs/server/export_traffic.hpp>
#include <verbena/protocols/storage/forwarding_backend.hpp>

#include <cerrno>
#include <functional>
#include <map>
#include <utility>

BOOST_AUTO_TEST_SUITE(nfs4_counts_test)

using namespace verbena;
using namespace verbena::test;

namespace {

using pairs = std::map<std::pair<nfs_opnum4, nfsstat4>, std::uint64_t>;

/// READ waits 7 ms, and GETATTR keeps the processor for 2 ms.
struct slow_files final : storage::forwarding_backend {
    explicit slow_files(storage::file_backend& files)
        : forwarding_backend(files, storage::filter_bytes::may_differ)
    {
    }
    task<result<storage::read_result>> read(const storage::request& r, const storage::handle& file,
                                            std::uint64_t offset, std::span<std::byte> out) override
    {
        if (is_slow)
            (void)co_await sleep_for(7ms);
        co_return co_await below().read(r, file, offset, out);
    }
    task<result<storage::attributes>> getattr(const storage::request& r, const storage::handle& file) override
    {
        ++looks;
        if (is_slow)
            clock->advance(2ms);
        co_return co_await below().getattr(r, file);
    }
    task<result<storage::write_result>> write(const storage::request& r, const storage::handle& file,
                                              std::uint64_t offset,
                                              std::span<const std::span<const std::byte>> data,
                                              storage::stability stable) override
    {
        if (before_failure)
            before_failure();
        if (failure != 0)
            co_return error::from_errno(failure);
        co_return co_await below().write(r, file, offset, data, stable);
    }
    virtual_clock* clock = nullptr;
    bool is_slow = false;
    int looks = 0; // by getattr()
    int failure = 0;
    std::function<void()> before_failure;
};

struct counting : nfs4_fixture {
    counting()
    {
        slow.clock = &clock;
        options[0].backend = &slow;
        options[0].traffic = std::make_shared<nfs::export_traffic>(1, options[0].pseudo);
        options[1].traffic = std::make_shared<nfs::export_traffic>(1);
        client.connect();
    }
    histogram_snapshot time_of(nfs_opnum4 operation) const
    {
        histogram_snapshot h;
        program->counters().times[std::size_t(operation)].add_to(h);
        return h;
    }
    pairs errors() const
    {
        pairs all;
        program->counters().errors.each(
            [&](std::uint32_t operation, std::uint32_t status, std::uint64_t count) {
                all[{nfs_opnum4(operation), nfsstat4(status)}] = count;
            });
        return all;
    }
    nfs::export_counters& counted(std::size_t number) { return *options[number].traffic->on(0); }
    slow_files slow{*files};
    client4 client{*this, "a"};
};

} // namespace

BOOST_FIXTURE_TEST_CASE(each_operation_has_its_own_time, counting)
{
    const auto file = client.open(client.creating("f"));
    BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
    BOOST_TEST_REQUIRE((client.write(file, "content") == nfsstat4::ok));
    const auto before = time_of(nfs_opnum4::getattr);
    slow.is_slow = true;
    answer4 out = client.call(PUTFH4args{client4::handle_of(file)}, READ4args{file.id, 0, 4},
                              GETATTR4args{{attribute::size}}, READ4args{file.id, 0, 4});
    BOOST_TEST_REQUIRE((out.status() == nfsstat4::ok));
    const auto read = time_of(nfs_opnum4::read), getattr = time_of(nfs_opnum4::getattr);
    BOOST_TEST(read.count() == 2u);
    BOOST_TEST(read.sum_nanoseconds == 14'000'000u);
    BOOST_TEST(getattr.count() == before.count() + 1);
    BOOST_TEST(getattr.sum_nanoseconds - before.sum_nanoseconds == 2'000'000u);
    // What only names the object has none.
    for (const nfs_opnum4 none :
         {nfs_opnum4::sequence, nfs_opnum4::putfh, nfs_opnum4::getfh, nfs_opnum4::putrootfh})
        BOOST_TEST(time_of(none).count() == 0u);
    BOOST_TEST(time_of(nfs_opnum4::open).count() == 1u);
    BOOST_TEST(time_of(nfs_opnum4::exchange_id).count() == 1u);
    BOOST_TEST(time_of(nfs_opnum4::create_session).count() == 1u);
}

// Also where a transport uses a call again: what is known of the one before is not this one's.
BOOST_FIXTURE_TEST_CASE(a_call_takes_until_its_last_operation_has_ended, counting)
{
    const auto file = client.open(client.creating("f"));
    BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
    slow.is_slow = true;
    const auto c = prepare(1, [&](compound_request& out) {
        out.add(client.sequence(1, true));
        out.add(PUTFH4args{client4::handle_of(file)});
        out.add(GETATTR4args{{attribute::size}});
    });
    for (const std::chrono::milliseconds took : {2ms, 0ms}) { // the second is a repeat, which runs nothing
        const auto before = time_of_calls();
        BOOST_TEST_REQUIRE(run_until_complete(*shard, dispatcher->dispatch(*c)));
        BOOST_TEST((answer_of(*c).status() == nfsstat4::ok));
        BOOST_TEST((time_of_calls() - before == took));
        clock.advance(1s);
        shard->turn();
        c->rewind();
    }
}

BOOST_FIXTURE_TEST_CASE(failures_have_operation_and_status, counting)
{
    const pairs before = errors();
    BOOST_TEST((before == pairs()));
    BOOST_TEST((client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"absent"}).status() ==
                nfsstat4::noent));
    BOOST_TEST((client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"absent"}).status() ==
                nfsstat4::noent));
    BOOST_TEST((client.call(GETATTR4args{{attribute::size}}).status() == nfsstat4::nofilehandle));
    BOOST_TEST((errors() == pairs{{{nfs_opnum4::lookup, nfsstat4::noent}, 2},
                                  {{nfs_opnum4::getattr, nfsstat4::nofilehandle}, 1}}));
    metric_registry registry;
    const auto made = program->expose(registry);
    bool is_told = false;
    for (const metric_snapshot& f : registry.collect())
        for (const auto& series : f.samples)
            is_told = is_told || (f.family.name == "verbena_nfs_errors_total" && series.value == 2 &&
                                  series.labels == std::vector<std::string>{"4", "LOOKUP", "NFS4ERR_NOENT"});
    BOOST_TEST(is_told);
}

BOOST_FIXTURE_TEST_CASE(operations_count_for_the_export_that_they_are_on, counting)
{
    const auto file = client.open(client.creating("f"));
    BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
    BOOST_TEST_REQUIRE((client.write(file, "content") == nfsstat4::ok));
    BOOST_TEST(client.read(file, file.id) == "content");
    nfs::export_counters& here = counted(0);
    BOOST_TEST(here.reads.value() == 1u);
    BOOST_TEST(here.writes.value() == 1u);
    BOOST_TEST(here.bytes_read.value() == 7u);
    BOOST_TEST(here.bytes_written.value() == 7u);
    BOOST_TEST(here.others.value() == 2u); // OPEN, and the LOOKUP that led to the export
    for (const int failure : {ENOSPC, EDQUOT, EIO, ENXIO, ENOSPC, EACCES}) {
        slow.failure = failure;
        BOOST_TEST((client.write(file, "content") != nfsstat4::ok));
    }
    BOOST_TEST(here.writes.value() == 7u);
    BOOST_TEST(here.bytes_written.value() == 7u);
    BOOST_TEST(here.of(nfs::export_failure::space).value() == 2u);
    BOOST_TEST(here.of(nfs::export_failure::quota).value() == 1u);
    BOOST_TEST(here.of(nfs::export_failure::io).value() == 2u);
    BOOST_TEST((client
                    .call(PUTROOTFH4args(), LOOKUP4args{"deep"}, LOOKUP4args{"other"},
                          GETATTR4args{{attribute::size}})
                    .status() == nfsstat4::ok));
    // The first LOOKUP stayed in the pseudo file system.
    BOOST_TEST(counted(1).others.value() == 2u);
    BOOST_TEST(counted(1).of(nfs::export_failure::space).value() == 0u);
}

BOOST_FIXTURE_TEST_CASE(what_the_file_system_fails_has_a_line_with_the_client_and_the_cause, counting)
{
    const log_at level{log_level::warning};
    const lines_of_log lines;
    const auto file = client.open(client.creating("f"));
    BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
    for (const int failure : {EROFS, EIO, EIO, EACCES}) {
        slow.failure = failure;
        BOOST_TEST((client.write(file, "content") != nfsstat4::ok));
    }
    constexpr std::string_view what = "warning nfs: the file system of an export failed an operation";
    BOOST_TEST(counted(0).of(nfs::export_failure::read_only).value() == 1u);
    BOOST_TEST(lines.count({what, "export=/export operation=WRITE client=", "Read-only file system"}) == 1u);
    BOOST_TEST(lines.count({what, "Input/output error"}) == 1u);
    BOOST_TEST(lines.count({what}) == 2u);
}

// The back end refuses changes from then on, also those of calls under way.
BOOST_FIXTURE_TEST_CASE(what_a_reload_made_read_only_is_no_failure_of_its_file_system, counting)
{
    const log_at level{log_level::warning};
    const lines_of_log lines;
    const auto file = client.open(client.creating("f"));
    BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
    slow.failure = EROFS;
    slow.before_failure = [this] {
        const auto list = std::make_shared<nfs::export_list>(*exports.newest(), 1);
        for (nfs::export_options each : exports.all()) {
            each.read_only = true;
            BOOST_REQUIRE(list->add(each));
        }
        exports.publish(list, 0);
    };
    BOOST_TEST((client.write(file, "content") == nfsstat4::rofs));
    BOOST_TEST(counted(0).of(nfs::export_failure::read_only).value() == 0u);
    BOOST_TEST(lines.count({"failed an operation"}) == 0u);
}

// As Linux sends them: the WRITE has seen what the file is like now.
BOOST_FIXTURE_TEST_CASE(getattr_right_behind_write_asks_the_back_end_for_nothing, counting)
{
    const auto file = client.open(client.creating("f")), other = client.open(client.creating("g"));
    BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
    BOOST_TEST_REQUIRE(other.status == nfsstat4::ok);
    const PUTFH4args here{client4::handle_of(file)}, there{client4::handle_of(other)};
    const GETATTR4args look{{attribute::change, attribute::size}};
    const WRITE4args write{file.id, 3, stable_how4::unstable, std::as_bytes(std::span("text", 4))};
    const auto seen_in = [](answer4& out) {
        attributes values;
        BOOST_TEST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
        return values;
    };

    slow.looks = 0;
    answer4 out = client.call(here, write, look);
    BOOST_TEST_REQUIRE((out.status() == nfsstat4::ok));
    BOOST_TEST(slow.looks == 0);
    out.good<PUTFH4res>();
    out.good<WRITE4res>();
    const attributes told = seen_in(out);
    BOOST_TEST(told.size == 7u);
    out = client.call(here, look);
    BOOST_TEST(slow.looks == 1);
    out.good<PUTFH4res>();
    BOOST_TEST(seen_in(out).change == told.change);

    // Of another file, and behind another operation.
    out = client.call(here, write, there, look);
    BOOST_TEST(slow.looks == 2);
    out.good<PUTFH4res>();
    out.good<WRITE4res>();
    out.good<PUTFH4res>();
    BOOST_TEST(seen_in(out).size == 0u);
    out = client.call(here, write, look, look);
    BOOST_TEST((out.status() == nfsstat4::ok));
    BOOST_TEST(slow.looks == 3);
}

// As Linux sends them. What kind of file it is does not change; who may do what may.
BOOST_FIXTURE_TEST_CASE(access_behind_open_does_not_ask_what_kind_of_file_it_is, counting)
{
    const ACCESS4args ask{access4::all};
    const PUTROOTFH4args root;
    const LOOKUP4args folder{"export"};
    const auto supported_in = [](answer4& out) { return out.good<ACCESS4res>().supported; };

    BOOST_TEST_REQUIRE(client.open(client.creating("f")).status == nfsstat4::ok);
    answer4 out = client.call(root, folder, client.opening("f"));
    BOOST_TEST_REQUIRE((out.status() == nfsstat4::ok));
    slow.looks = 0;
    out = client.call(root, folder, client.opening("f"));
    const int without = std::exchange(slow.looks, 0);
    BOOST_TEST(without == 0); // nor what its directory is like: who found the name tells it
    out.good<PUTROOTFH4res>();
    out.good<LOOKUP4res>();
    const change_info4 told = out.good<OPEN4res>().cinfo;
    out = client.call(root, folder, GETATTR4args{{attribute::change}});
    out.good<PUTROOTFH4res>();
    out.good<LOOKUP4res>();
    attributes values;
    BOOST_TEST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
    BOOST_TEST(told.atomic);
    BOOST_TEST(told.before == values.change);
    BOOST_TEST(told.after == values.change);
    slow.looks = 0;
    out = client.call(root, folder, client.opening("f"), ask);
    BOOST_TEST_REQUIRE((out.status() == nfsstat4::ok));
    BOOST_TEST(slow.looks == without);

    // By the handle alone, without a name.
    const auto file = client.open(client.opening("f"));
    OPEN4args by_handle = client.opening("");
    by_handle.claim.claim = open_claim_type4::fh;
    const PUTFH4args there{client4::handle_of(file)};
    slow.looks = 0;
    out = client.call(there, by_handle);
    BOOST_TEST_REQUIRE((out.status() == nfsstat4::ok));
    const int by_open = std::exchange(slow.looks, 0);
    out = client.call(there, by_handle, ask);
    BOOST_TEST_REQUIRE((out.status() == nfsstat4::ok));
    BOOST_TEST(slow.looks == by_open);

    // A file that is made in a directory whose rights were asked for is none.
    out = client.call(root, folder, ask, client.creating("g"), ask);
    BOOST_TEST_REQUIRE((out.status() == nfsstat4::ok));
    out.good<PUTROOTFH4res>();
    out.good<LOOKUP4res>();
    const std::uint32_t of_folder = supported_in(out);
    out.good<OPEN4res>();
    const std::uint32_t of_file = supported_in(out);
    BOOST_TEST((of_folder & access4::lookup) != 0u);
    BOOST_TEST((of_folder & access4::execute) == 0u);
    BOOST_TEST((of_file & access4::lookup) == 0u);
    BOOST_TEST((of_file & access4::execute) != 0u);
    // Nor is what a name leads to.
    out = client.call(root, folder, ask, LOOKUP4args{"f"}, ask);
    BOOST_TEST_REQUIRE((out.status() == nfsstat4::ok));
    out.good<PUTROOTFH4res>();
    out.good<LOOKUP4res>();
    BOOST_TEST((supported_in(out) & access4::lookup) != 0u);
    out.good<LOOKUP4res>();
    BOOST_TEST((supported_in(out) & access4::execute) != 0u);
}

BOOST_AUTO_TEST_SUITE_END()
