// SPDX-License-Identifier: Apache-2.0
// RDMA layouts of files that are in no memory, on a disk that is slow, full, or broken.
#include <boost/test/unit_test.hpp>

#include "nfs4_layout_clients.hpp"
#include "nfs4_layout_user.hpp"
#include "nfs4_log_lines.hpp"
#include "storing_backend.hpp"

#include <verbena/core/task/event.hpp>

#include <algorithm>
#include <string>
#include <utility>

BOOST_AUTO_TEST_SUITE(nfs4_layout_stores_test)

using namespace verbena;
using namespace verbena::nfs::v4;
using namespace verbena::test;

namespace {

struct disk_of {
    explicit disk_of(storing_backend& files)
    {
        files.disk = [this](bool writes) -> task<int> {
            if (hangs)
                co_await free.wait_shielded();
            co_return writes ? error_of_write : error_of_read;
        };
    }
    void goes_on()
    {
        hangs = false;
        free.set();
    }
    bool hangs = false;
    event free;
    int error_of_write = 0, error_of_read = 0;
};

// A client of ours.
struct world : layout_world {
    explicit world(const verbs::capabilities& profile = loop::options().profile)
        : layout_world(profile, files_are::in_stores)
    {
    }
    ~world()
    {
        disk.goes_on();
        disk.error_of_write = disk.error_of_read = 0;
    }
    disk_of disk{stored};
};

verbs::capabilities without_stores()
{
    verbs::capabilities profile = loop::options().profile;
    profile.grants_stores = false;
    return profile;
}
struct world_without : world {
    world_without() : world(without_stores()) {}
};

// Clients by hand.
struct by_hand : layout_fixture {
    by_hand()
    {
        options[0].backend = &stored;
        begin();
        file = make(first, "f", "0123456789");
    }
    ~by_hand() { disk.goes_on(); }
    storing_backend stored{*files};
    disk_of disk{stored};
    client4::opened file;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_file_in_a_store_is_written_and_read_by_rdma, world)
{
    join(holder);
    const auto what = make("f", "");
    auto f = open(what);
    const std::string text = letters(1'000'000);
    for (std::size_t at = 0; at < text.size(); at += 100'000)
        write(*f, at, std::string_view(text).substr(at, 100'000));
    BOOST_TEST((whole(*f) == text));
    commit(*f);
    BOOST_TEST(counts().written_by_rdma == text.size());
    BOOST_TEST(counts().read_by_rdma == text.size());
    BOOST_TEST((there(what) == text));
    BOOST_TEST(stored.writes > 0u);
    BOOST_TEST(stored.reads > 0u);
    close(*f);
    pass(10ms);
    BOOST_TEST(stored.stores == 0u);
}

// The client keeps what it wrote until the server says that it has it.
BOOST_FIXTURE_TEST_CASE(what_a_full_disk_did_not_take_is_written_by_nfs, world)
{
    for (const int failed : {ENOSPC, EDQUOT, EIO}) {
        if (!holder.layouts)
            join(holder);
        const auto what = make("f" + std::to_string(failed), "");
        auto f = open(what);
        const std::string text = letters(200'000);
        const auto before = counts().written_by_nfs;
        write(*f, 0, std::string_view(text).substr(0, 100'000));
        disk.error_of_write = failed;
        write(*f, 100'000, std::string_view(text).substr(100'000, 50'000));
        disk.error_of_write = 0;
        write(*f, 150'000, std::string_view(text).substr(150'000));
        commit(*f);
        BOOST_TEST(counts().written_by_nfs - before == text.size());
        BOOST_TEST((there(what) == text));
        close(*f);
    }
}

BOOST_FIXTURE_TEST_CASE(what_a_disk_can_not_read_is_read_by_nfs, world)
{
    join(holder);
    const std::string text = letters(10'000);
    const auto what = make("f", text);
    auto f = open(what);
    BOOST_TEST((whole(*f) == text));
    disk.error_of_read = EIO;
    BOOST_TEST((read(*f, 0, 10'000) == text));
    BOOST_TEST(counts().read_by_nfs == text.size());
    disk.error_of_read = 0;
    close(*f);
}

// A device of hardware reaches memory alone.
BOOST_FIXTURE_TEST_CASE(where_a_device_reaches_memory_alone_there_are_no_layouts, world_without)
{
    const log_lines logged;
    join(holder);
    const auto what = make("f", "text");
    auto f = open(what);
    BOOST_TEST(whole(*f) == "text");
    BOOST_TEST(std::ranges::any_of(logged.all, [](const std::string& line) {
        return line.find("RDMA devices reach memory alone") != line.npos;
    }));
    BOOST_TEST(counts().read_by_nfs == 4u);
    BOOST_TEST(f->last_reason() == by_nfs::unavailable);
    BOOST_TEST(stored.stores == 0u);
    BOOST_TEST(program->counters().layouts_beyond_device.value() >= 1u);
    close(*f);
}

BOOST_FIXTURE_TEST_CASE(a_layout_of_a_store_is_one_extent, by_hand)
{
    const layout reads = get(first, file, layoutiomode4::read);
    BOOST_TEST_REQUIRE(reads.extents.size() == 1u);
    BOOST_TEST(reads.extents[0].length == 4096u);
    BOOST_TEST((reads.extents[0].state == extent_state::read_data));
    rdma_peer& peer = connect_to(first, reads);
    BOOST_TEST(take(peer, reads.memory(), 8, 6) == std::string("89\0\0\0\0", 6));
    const layout writes = get(first, file, asking(file.id, layoutiomode4::rw, 8192, 100'000, 100'000));
    BOOST_TEST_REQUIRE(writes.status == nfsstat4::ok);
    BOOST_TEST_REQUIRE(writes.extents.size() == 1u);
    BOOST_TEST(writes.offset == 8192u);
    BOOST_TEST(writes.length == 102'400u);
    BOOST_TEST((writes.extents[0].state == extent_state::read_write_data));
    BOOST_TEST(put(peer, writes.memory(), 1, "abc"));
    BOOST_TEST(size_of(first, file) == 8196u);
    BOOST_TEST(commit(first, file, committing(writes.id, 8195)).status == nfsstat4::ok);
    // A key is for what it was given for.
    BOOST_TEST(!put(peer, reads.memory(), 0, "x"));
}

BOOST_FIXTURE_TEST_CASE(a_layoutcommit_tells_of_what_is_lost_until_the_layout_is_back, by_hand)
{
    const std::pair<int, nfsstat4> all_errors[] = {
        {ENOSPC, nfsstat4::nospc}, {EDQUOT, nfsstat4::dquot}, {EIO, nfsstat4::io}, {EROFS, nfsstat4::rofs}};
    for (const auto& [failed, status] : all_errors) {
        const layout made = get(first, file, layoutiomode4::rw);
        rdma_peer& peer = connect_to(first, made);
        BOOST_TEST(put(peer, made.memory(), 0, "good"));
        disk.error_of_write = failed;
        BOOST_TEST(put(peer, made.memory(), 4, "bad")); // who writes is not told
        disk.error_of_write = 0;
        BOOST_TEST(put(peer, made.memory(), 8, "good"));
        for (int i = 0; i < 2; ++i)
            BOOST_TEST(commit(first, file, committing(made.id, 100)).status == status);
        BOOST_TEST(size_of(first, file) == 12u); // it is as long as before
        BOOST_TEST(give_back(first, file, returning(made.id)).status == nfsstat4::ok);
    }
    const layout made = get(first, file, layoutiomode4::rw);
    BOOST_TEST(commit(first, file, committing(made.id, 100)).status == nfsstat4::ok);
    BOOST_TEST(size_of(first, file) == 101u);
}

// A client has one stateid for all that it got of a file, and nobody knows which of it the bytes went by. Another
// client's is another.
BOOST_FIXTURE_TEST_CASE(a_layoutcommit_tells_of_what_any_of_the_layouts_has_lost, by_hand)
{
    constexpr std::uint64_t part = 65536;
    for (const bool is_first : {true, false}) {
        const layout one = get(first, file, asking(file.id, layoutiomode4::rw, 0, part, part));
        const layout two = get(first, file, asking(one.id, layoutiomode4::rw, part, part, part));
        BOOST_TEST_REQUIRE((one.status == nfsstat4::ok && two.status == nfsstat4::ok));
        const auto theirs = open(second, "f");
        const layout other = get(second, theirs, asking(theirs.id, layoutiomode4::rw, 2 * part, part, part));
        BOOST_TEST_REQUIRE(other.status == nfsstat4::ok);
        rdma_peer& peer = connect_to(first, two);
        disk.error_of_write = ENOSPC;
        BOOST_TEST(put(peer, is_first ? one.memory() : two.memory(), 0, "bad"));
        disk.error_of_write = 0;
        BOOST_TEST(put(peer, is_first ? two.memory() : one.memory(), 0, "good"));
        for (const std::uint64_t offset : {std::uint64_t(0), part}) {
            LAYOUTCOMMIT4args args = committing(two.id);
            args.offset = offset;
            args.length = part;
            BOOST_TEST(commit(first, file, args).status == nfsstat4::nospc);
        }
        BOOST_TEST(commit(second, theirs, committing(other.id, 2 * part)).status == nfsstat4::ok);
        BOOST_TEST(give_back(first, file, returning(two.id)).status == nfsstat4::ok);
        BOOST_TEST(give_back(second, theirs, returning(other.id)).status == nfsstat4::ok);
    }
}

// The sync that LAYOUTCOMMIT waited for may have been another one's, who alone was told.
BOOST_FIXTURE_TEST_CASE(a_layoutcommit_tells_of_what_its_sync_has_lost, by_hand)
{
    const layout made = get(first, file, layoutiomode4::rw);
    rdma_peer& peer = connect_to(first, made);
    BOOST_TEST(put(peer, made.memory(), 0, "text"));
    stored.lost_by_commit = EIO;
    BOOST_TEST(commit(first, file, committing(made.id, 3)).status == nfsstat4::io);
    BOOST_TEST(give_back(first, file, returning(made.id)).status == nfsstat4::ok);
}

// A write that a disk holds up ends before the layout is back, or else it would land on what others write then.
BOOST_FIXTURE_TEST_CASE(a_fence_waits_for_an_access_that_is_under_way, by_hand)
{
    const auto theirs = make(second, "other", "text");
    const layout made = get(first, file, layoutiomode4::rw);
    rdma_peer& peer = connect_to(first, made);
    disk.hangs = true;
    bool done = false;
    tasks.spawn([&]() -> task<void> { done = co_await peer.write(made.memory(), 0, "late"); });
    pass(10ms);
    BOOST_TEST(stored.writes == 1u);
    BOOST_TEST(!done);
    // However long it takes, also when a fence's time is over. Nothing else waits for that.
    bool others_go_on = false;
    tasks.spawn([&]() -> task<void> {
        co_await sleep_for(30s);
        BOOST_TEST(service->layouts().counts().segments == 1);
        others_go_on = !done;
        disk.goes_on();
    });
    const layout another = get(second, theirs, layoutiomode4::rw);
    BOOST_TEST(give_back(second, theirs, returning(another.id)).status == nfsstat4::ok);
    BOOST_TEST(give_back(first, file, returning(made.id)).status == nfsstat4::ok);
    BOOST_TEST(others_go_on);
    BOOST_TEST(done);
    BOOST_TEST(service->layouts().counts().segments == 0);
    BOOST_TEST(stored.stores == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
