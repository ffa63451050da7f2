// SPDX-License-Identifier: Apache-2.0
// What is counted by operation, status and export, and what room an export has.
#include <boost/test/unit_test.hpp>

#include "../lines_of_log.hpp"
#include "../log_at.hpp"
#include "nfs3_server.hpp"

#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/nfs/server/export_room.hpp>
#include <verbena/protocols/nfs/server/export_traffic.hpp>
#include <verbena/protocols/nfs/server/status_counts.hpp>
#include <verbena/protocols/storage/forwarding_backend.hpp>

#include <chrono>
#include <map>
#include <utility>

BOOST_AUTO_TEST_SUITE(nfs_counts_test)

using namespace verbena;
using namespace verbena::test;
using namespace std::chrono_literals;

namespace {

using pairs = std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t>;

pairs told(const nfs::status_counts& counts)
{
    pairs all;
    counts.each([&](std::uint32_t operation, std::uint32_t status, std::uint64_t count) {
        BOOST_TEST(all.emplace(std::pair(operation, status), count).second, "a pair is told twice");
    });
    return all;
}

/// The only sample, or the one of these labels behind the first.
double sample(const metric_registry& registry, std::string_view family, std::string_view label = {})
{
    for (const metric_snapshot& f : registry.collect()) {
        for (const auto& series : f.samples) {
            if (f.family.name == family && (label.empty() || series.labels.back() == label))
                return series.value;
        }
    }
    return -1;
}

struct one_export : nfs3_fixture {
    one_export()
    {
        first.traffic = std::make_shared<nfs::export_traffic>(1, first.pseudo);
        second.traffic = std::make_shared<nfs::export_traffic>(1);
        id = files.add(1, "f", storage::file_type::regular);
        files[id].data = pattern(1000);
    }
    const nfs::export_counters& counted(const nfs::export_options& of) { return *of.traffic->on(0); }
    nfsstat3 write(std::span<const std::byte> bytes)
    {
        WRITE3args args;
        args.file = handle(id);
        args.count = args.data.length = std::uint32_t(bytes.size());
        args.data.inline_bytes = bytes;
        return call<WRITE3res>(procedure::write, args).status;
    }
    std::uint64_t id = 0;
};

/// statfs() waits until it is let go on.
struct slow_disk final : storage::forwarding_backend {
    using forwarding_backend::forwarding_backend;
    task<result<storage::filesystem_stat>> statfs(const storage::request& r,
                                                  const storage::handle& file) override
    {
        ++asked;
        who = r.who.uid;
        if (hangs)
            co_await answers.wait();
        co_return co_await below().statfs(r, file);
    }
    int asked = 0;
    std::uint32_t who = 1;
    bool hangs = false;
    event answers;
};

struct room_fixture {
    static std::unique_ptr<reactor> make_reactor(virtual_clock& c)
    {
        reactor_options o;
        o.clock = &c;
        return std::move(*reactor::create(o));
    }
    ~room_fixture()
    {
        disk.answers.set();
        tasks.request_stop();
        while (tasks.live() != 0)
            shard->turn();
    }
    void pass(duration d)
    {
        for (const time_point end = clock.now() + d; clock.now() < end;
             clock.advance(std::min<duration>(1s, end - clock.now())))
            turns();
        turns();
    }
    void turns()
    {
        for (int i = 0; i < 5; ++i)
            shard->turn();
    }
    double seconds_old() const { return std::chrono::duration<double>(room.last().value().age).count(); }
    virtual_clock clock;
    std::unique_ptr<reactor> shard = make_reactor(clock);
    scope tasks{*shard};
    fake_backend files;
    slow_disk disk{files};
    nfs::export_room room;
};

} // namespace

BOOST_AUTO_TEST_CASE(each_pair_has_a_count_of_its_own)
{
    auto counts = std::make_unique<nfs::status_counts>();
    counts->note(25, 70);
    counts->note(25, 10008);
    counts->note(25, 70);
    counts->note(0, 10044);
    BOOST_TEST((told(*counts) == pairs{{{25, 70}, 2}, {{25, 10008}, 1}, {{0, 10044}, 1}}));
    BOOST_TEST(counts->others() == 0u);
}

BOOST_AUTO_TEST_CASE(pairs_beyond_the_bound_are_counted_together)
{
    auto counts = std::make_unique<nfs::status_counts>();
    for (int round = 0; round < 2; ++round)
        for (std::uint32_t i = 0; i < nfs::status_counts::most + 10; ++i)
            counts->note(i % 76, 10000 + i / 76);
    const pairs all = told(*counts);
    BOOST_TEST(all.size() == nfs::status_counts::most);
    for (const auto& [pair, count] : all)
        BOOST_TEST(count == 2u);
    BOOST_TEST(counts->others() == 20u);
}

BOOST_FIXTURE_TEST_CASE(calls_of_version_3_count_for_their_export, one_export)
{
    READ3args read;
    read.file = handle(id);
    read.count = 400;
    BOOST_TEST((call<READ3res>(procedure::read, read).status == nfsstat3::ok));
    const auto bytes = pattern(70);
    BOOST_TEST((write(bytes) == nfsstat3::ok));
    GETATTR3args getattr;
    getattr.object = handle(fake_backend::root_id, &second);
    BOOST_TEST((call<GETATTR3res>(procedure::getattr, getattr).status == nfsstat3::ok));
    // Both names are of one call.
    RENAME3args rename;
    rename.from = in_root("f");
    rename.to = in_root("g");
    BOOST_TEST((call<RENAME3res>(procedure::rename, rename).status == nfsstat3::ok));
    const nfs::export_counters& here = counted(first);
    BOOST_TEST(here.reads.value() == 1u);
    BOOST_TEST(here.writes.value() == 1u);
    BOOST_TEST(here.others.value() == 1u);
    BOOST_TEST(here.bytes_read.value() == 400u);
    BOOST_TEST(here.bytes_written.value() == 70u);
    BOOST_TEST(counted(second).others.value() == 1u);
    BOOST_TEST(counted(second).bytes_read.value() == 0u);
}

// As RPC-over-RDMA does: each call begins in the slot that an earlier one had.
BOOST_FIXTURE_TEST_CASE(a_call_that_is_used_again_counts_anew, one_export)
{
    GETATTR3args here;
    here.object = handle(id);
    auto c = prepare(procedure::getattr, here);
    for (int i = 0; i < 3; ++i) {
        c->rewind();
        BOOST_REQUIRE(dispatch(*c));
    }
    BOOST_TEST(counted(first).others.value() == 3u);
    const auto bytes = pattern(70);
    WRITE3args there;
    there.file = handle(others.add(1, "g", storage::file_type::regular), &second);
    there.count = there.data.length = std::uint32_t(bytes.size());
    there.data.inline_bytes = bytes;
    xdr::encoder out = c->begin(100003, 3, static_cast<std::uint32_t>(procedure::write), &*user);
    encode(out, there);
    c->end(out);
    BOOST_REQUIRE(dispatch(*c));
    others.fail = error::from_errno(EIO);
    c->rewind();
    BOOST_REQUIRE(dispatch(*c));
    BOOST_TEST(counted(first).others.value() == 3u);
    BOOST_TEST(counted(first).writes.value() == 0u);
    BOOST_TEST(counted(second).writes.value() == 2u);
    BOOST_TEST(counted(second).bytes_written.value() == 70u);
    BOOST_TEST(counted(first).of(nfs::export_failure::io).value() == 0u);
    BOOST_TEST(counted(second).of(nfs::export_failure::io).value() == 1u);
}

BOOST_FIXTURE_TEST_CASE(failures_of_version_3_are_counted_by_procedure_status_and_export, one_export)
{
    const auto bytes = pattern(70);
    (void)handle(id);
    for (const int failure : {ENOSPC, EDQUOT, EIO, ENXIO, ENOSPC, EACCES}) {
        files.fail = error::from_errno(failure);
        BOOST_TEST((write(bytes) != nfsstat3::ok));
    }
    constexpr std::uint32_t of_write = 7;
    BOOST_TEST((told(program.counters().errors) == pairs{{{of_write, 28}, 2},
                                                         {{of_write, 69}, 1},
                                                         {{of_write, 5}, 1},
                                                         {{of_write, 6}, 1},
                                                         {{of_write, 13}, 1}}));
    BOOST_TEST(counted(first).of(nfs::export_failure::space).value() == 2u);
    BOOST_TEST(counted(first).of(nfs::export_failure::quota).value() == 1u);
    BOOST_TEST(counted(first).of(nfs::export_failure::io).value() == 2u);
    BOOST_TEST(counted(first).bytes_written.value() == 0u);

    metric_registry registry;
    const auto of_program = program.expose(registry);
    const auto of_export = nfs::expose(registry, *first.traffic, "/export");
    BOOST_TEST(sample(registry, "verbena_nfs_errors_total", "NFS3ERR_NOSPC") == 2);
    BOOST_TEST(sample(registry, "verbena_export_errors_total", "space") == 2);
    BOOST_TEST(sample(registry, "verbena_export_errors_total", "quota") == 1);
    BOOST_TEST(sample(registry, "verbena_export_errors_total", "io") == 2);
    BOOST_TEST(sample(registry, "verbena_export_operations_total", "write") == 6);
    // There from the start: a rule that asks for a rate sees the first failure.
    const auto of_other = nfs::expose(registry, *second.traffic, "/other");
    for (const metric_snapshot& f : registry.collect())
        if (f.family.name == "verbena_export_errors_total")
            BOOST_TEST(f.samples.size() == 8u);
}

// Else whoever runs the server learns of it from users alone.
BOOST_FIXTURE_TEST_CASE(what_the_file_system_fails_has_a_line_with_the_client_and_the_cure, one_export)
{
    const log_at level{log_level::warning};
    const lines_of_log lines;
    const auto bytes = pattern(70);
    for (const int failure : {ENOSPC, EDQUOT, EIO, EROFS, ENOSPC, EACCES}) {
        files.fail = error::from_errno(failure);
        BOOST_TEST((write(bytes) != nfsstat3::ok));
    }
    BOOST_TEST(counted(first).of(nfs::export_failure::space).value() == 2u);
    BOOST_TEST(counted(first).of(nfs::export_failure::read_only).value() == 1u);
    constexpr std::string_view what = "warning nfs: the file system of an export failed an operation";
    BOOST_TEST(lines.count({what}) == 4u); // each failure once a minute
    for (const std::string_view cause :
         {"No space left on device", "Disk quota exceeded", "Input/output error", "Read-only file system"})
        BOOST_TEST(lines.count({what, "export=/export operation=WRITE client=", cause, "cure="}) == 1u);
}

// A disk array that fails has hundreds of exports and shards say so at once.
BOOST_FIXTURE_TEST_CASE(lines_about_failures_of_all_exports_are_bounded_together, one_export)
{
    const log_at level{log_level::warning};
    const lines_of_log lines;
    nfs::failure_lines all(2, 1h);
    first.traffic->on(0)->lines = &all;
    const auto bytes = pattern(70);
    for (const int failure : {ENOSPC, EDQUOT, EIO, EROFS, EIO}) {
        files.fail = error::from_errno(failure);
        BOOST_TEST((write(bytes) != nfsstat3::ok));
    }
    BOOST_TEST(lines.count({"failed an operation"}) == 2u);
}

BOOST_AUTO_TEST_CASE(what_the_bound_of_all_exports_costs_is_counted)
{
    nfs::failure_lines all(2, 10s);
    nfs::failure_limiter a, b, c, d;
    const std::chrono::steady_clock::time_point start{};
    std::uint64_t suppressed = 0, left_out = 0;
    BOOST_TEST(all.admit(a, start + 1s, suppressed, left_out));
    BOOST_TEST(!all.admit(a, start + 1s, suppressed, left_out)); // its own limit: one a minute
    BOOST_TEST(all.admit(b, start + 1s, suppressed, left_out));
    BOOST_TEST(left_out == 0u);
    BOOST_TEST(!all.admit(c, start + 1s, suppressed, left_out));
    BOOST_TEST(!all.admit(d, start + 1s, suppressed, left_out));
    // The one that was suppressed of `a` is told by its own next line, those of `c` and `d` by any.
    BOOST_TEST(all.admit(a, start + 61s, suppressed, left_out));
    BOOST_TEST((suppressed == 1u && left_out == 2u));
    BOOST_TEST(all.admit(b, start + 61s, suppressed, left_out));
    BOOST_TEST((suppressed == 0u && left_out == 0u));
}

BOOST_FIXTURE_TEST_CASE(what_the_rule_of_an_export_refuses_is_no_failure_of_its_file_system, one_export)
{
    const log_at level{log_level::warning};
    const lines_of_log lines;
    second.read_only = true;
    LINK3args link;
    link.file = handle(id);
    link.link.dir = handle(fake_backend::root_id, &second);
    link.link.name = "g";
    BOOST_TEST((call<LINK3res>(procedure::link, link).status == nfsstat3::rofs));
    BOOST_TEST(counted(first).of(nfs::export_failure::read_only).value() == 0u);
    BOOST_TEST(counted(second).of(nfs::export_failure::read_only).value() == 0u);
    BOOST_TEST(lines.count({"failed an operation"}) == 0u);
}

// The back end refuses changes from then on, also those of calls under way.
BOOST_FIXTURE_TEST_CASE(what_a_reload_made_read_only_is_no_failure_of_its_file_system, one_export)
{
    const log_at level{log_level::warning};
    const lines_of_log lines;
    files.fail = error::from_errno(EROFS);
    files.meanwhile = [this] {
        const auto list = std::make_shared<nfs::export_list>(*exports.newest(), 1);
        for (nfs::export_options each : exports.all()) {
            each.read_only = true;
            BOOST_REQUIRE(list->add(each));
        }
        exports.publish(list, 0);
    };
    BOOST_TEST((write(pattern(70)) == nfsstat3::rofs));
    BOOST_TEST(counted(first).of(nfs::export_failure::read_only).value() == 0u);
    BOOST_TEST(lines.count({"failed an operation"}) == 0u);
}

BOOST_FIXTURE_TEST_CASE(room_is_asked_for_and_grows_old_while_a_disk_hangs, room_fixture)
{
    metric_registry registry;
    const auto registrations = nfs::expose(registry, room, "/export");
    BOOST_TEST(!room.last().has_value());
    BOOST_TEST(sample(registry, "verbena_export_size_bytes") == -1);
    tasks.spawn([this] { return room.tend(disk); });
    turns();
    BOOST_TEST(disk.asked == 1);
    BOOST_TEST(disk.who == 0u); // all users are told of the same room
    BOOST_TEST(sample(registry, "verbena_export_size_bytes") == 1000);
    BOOST_TEST(sample(registry, "verbena_export_free_bytes") == 600);
    BOOST_TEST(sample(registry, "verbena_export_available_bytes") == 500);
    BOOST_TEST(sample(registry, "verbena_export_files") == 100);
    BOOST_TEST(sample(registry, "verbena_export_free_files") == 60);
    BOOST_TEST(sample(registry, "verbena_export_room_age_seconds") == 0);
    pass(29s);
    BOOST_TEST(seconds_old() == 29);
    pass(2s);
    BOOST_TEST(disk.asked == 2);
    BOOST_TEST(seconds_old() <= 2);
    // Asked once, and not again while it hangs.
    disk.hangs = true;
    pass(60s);
    BOOST_TEST(disk.asked == 3);
    BOOST_TEST(seconds_old() >= 50);
    BOOST_TEST(sample(registry, "verbena_export_size_bytes") == 1000);
    BOOST_TEST(sample(registry, "verbena_export_room_age_seconds") >= 50);
    disk.hangs = false;
    disk.answers.set();
    turns();
    BOOST_TEST(seconds_old() <= 1);
    // What fails keeps the old numbers, too.
    files.fail = error::from_errno(EIO);
    pass(61s);
    BOOST_TEST(disk.asked >= 5);
    BOOST_TEST(seconds_old() >= 30);
    BOOST_TEST(room.last()->room.available_files == 50u);
    // Nobody may write for a time. It is asked for all the same.
    files.fail = {};
    room.show(false);
    BOOST_TEST(sample(registry, "verbena_export_size_bytes") == -1);
    BOOST_TEST(sample(registry, "verbena_export_room_age_seconds") == -1);
    pass(31s);
    BOOST_TEST(seconds_old() <= 31);
    room.show(true);
    BOOST_TEST(sample(registry, "verbena_export_size_bytes") == 1000);
    // Its back end is to go.
    BOOST_TEST(room.is_tended());
    room.end();
    turns();
    BOOST_TEST(!room.is_tended());
    BOOST_TEST(tasks.live() == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
