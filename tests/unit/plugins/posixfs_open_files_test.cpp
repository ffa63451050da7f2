// SPDX-License-Identifier: Apache-2.0
// Files that clients have open: they outlive their names, and are used by the rights of the open.
#include "../../../plugins/posixfs/pins.hpp"
#include "backend_fixture.hpp"
#include "clock_by_hand.hpp"
#include "needs_root.hpp"
#include "temporary_directory.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/plugins/posixfs.hpp>

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>

#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <ostream>
#include <thread>

namespace suite {

std::unique_ptr<file_backend> make_backend(blocking_pool& pool, const backend_options&)
{
    static temporary_directory unused; // cases open their own
    posixfs::posixfs_options o;
    o.root = unused.path();
    return std::move(*posixfs::open_posixfs(o, pool));
}

namespace {

using opened = std::shared_ptr<const open_file>;

/// How a file loses its last name, "f". "g" may take its place.
enum class way { remove, rename_over, local_remove, local_rename_over };

struct where {
    const char* place;
    posixfs::handle_mode handles;
    way lost;
};

std::ostream& operator<<(std::ostream& to, const where& w)
{
    static constexpr const char* ways[] = {"remove", "rename over", "local remove", "local rename over"};
    return to << w.place << (w.handles == posixfs::handle_mode::path_table ? ", paths, " : ", handles, ")
              << ways[int(w.lost)];
}

std::vector<where> everywhere()
{
    std::vector<where> all;
    for (const char* place : {"/dev/shm", "/var/tmp"})
        for (const auto handles : {posixfs::handle_mode::automatic, posixfs::handle_mode::path_table})
            for (const way lost : {way::remove, way::rename_over, way::local_remove, way::local_rename_over})
                all.push_back({place, handles, lost});
    return all;
}

/// An export with two shards.
struct exported : fixture {
    explicit exported(const char* place = "/var/tmp", posixfs::posixfs_options o = {}) : directory(place)
    {
        o.root = directory.path();
        auto made = posixfs::open_posixfs(o, pool);
        BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
        fs = std::move(*made);
        reactor_options options;
        options.clock = &clock;
        for (auto* const to : {&shard, &other}) {
            auto r = reactor::create(options);
            BOOST_REQUIRE(r);
            *to = std::move(*r);
            ++options.index;
        }
    }
    explicit exported(const where& w)
        : exported(w.place, [&w] {
              posixfs::posixfs_options o;
              o.handles = w.handles;
              return o;
          }())
    {
    }
    ~exported()
    {
        fs.reset(); // before the shards, and these before the clock
        shard.reset();
    }

    /// Calls run on the other shard from here on.
    void change_shard() { std::swap(shard, other); }
    void pass(int seconds)
    {
        for (; seconds > 0; --seconds) {
            clock.advance(std::chrono::seconds(1));
            shard->turn();
            other->turn();
        }
    }
    std::string path(const char* name) const { return (directory.path() / name).string(); }
    opened open(const request& who, const handle& file, unsigned wanted = R_OK | W_OK)
    {
        return must(fs->open(who, file, wanted, open_right::asked)).file;
    }
    static request by(const opened& file, request who)
    {
        who.open = file.get();
        return who;
    }
    void lose_name(way how)
    {
        if (how == way::rename_over || how == way::local_rename_over)
            make_file("g", "another");
        switch (how) {
        case way::remove: must(fs->remove(me, fs->root(), "f")); break;
        case way::rename_over: must(fs->rename(me, fs->root(), "g", fs->root(), "f")); break;
        case way::local_remove: BOOST_REQUIRE(::unlink(path("f").c_str()) == 0); break;
        case way::local_rename_over:
            BOOST_REQUIRE(::rename(path("g").c_str(), path("f").c_str()) == 0);
            break;
        }
    }
    /// Has a shard close what it has cached but the newest.
    void fill_cache()
    {
        for (std::size_t i = 0; i <= posixfs::descriptor_cache::min_files; ++i)
            (void)run(fs->lookup(me, fs->root(), make_local("filler" + std::to_string(i))));
    }
    std::string make_local(const std::string& name)
    {
        std::ofstream(directory.path() / name).close();
        return name;
    }

    temporary_directory directory;
    clock_by_hand clock;
    std::unique_ptr<reactor> other;
};

/// Descriptors of the process that lead to this inode.
std::size_t descriptors_of(std::uint64_t inode)
{
    std::size_t n = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        struct stat st{};
        n += ::fstat(std::stoi(entry.path().filename()), &st) == 0 && st.st_ino == inode ? 1 : 0;
    }
    return n;
}

/// What `who` gets of each call that reads or writes `file`: 0 or an errno.
struct outcomes {
    int read, write, cut, allocate, seek, copy_from, copy_to, clone_from, clone_to;
};

outcomes use(exported& e, const request& who, const handle& file, const handle& free_for_all)
{
    outcomes o{};
    std::byte out[16];
    set_attributes cut;
    cut.size = 8192;
    request from = who;
    from.source = std::exchange(from.open, nullptr);
    o.read = e.fails(e.fs->read(who, file, 0, out));
    o.write = e.fails(e.write(who, file, 0, "text"));
    o.cut = e.fails(e.fs->setattr(who, file, cut, std::nullopt));
    o.allocate = e.fails(e.fs->allocate(who, file, 0, 4096));
    o.seek = e.fails(e.fs->seek(who, file, 0, extent::data));
    o.copy_from = e.fails(e.fs->copy(from, file, 0, free_for_all, 0, 4));
    o.copy_to = e.fails(e.fs->copy(who, free_for_all, 0, file, 0, 4));
    // Few file systems have clones, but rights are asked first.
    const auto is_refused = [](int failed) { return failed == EACCES ? EACCES : 0; };
    o.clone_from = is_refused(e.fails(e.fs->clone(from, file, 0, free_for_all, 0, 0)));
    o.clone_to = is_refused(e.fails(e.fs->clone(who, free_for_all, 0, file, 0, 0)));
    return o;
}

void are_all(const outcomes& o, int reading, int writing)
{
    for (const int read : {o.read, o.seek, o.copy_from, o.clone_from})
        BOOST_TEST(read == reading);
    for (const int written : {o.write, o.cut, o.allocate, o.copy_to, o.clone_to})
        BOOST_TEST(written == writing);
}

/// The lines of the log.
struct captured_log {
    captured_log()
    {
        set_log_capture(
            [](void* self, std::string_view line) {
                static_cast<captured_log*>(self)->lines.emplace_back(line);
            },
            this);
    }
    ~captured_log() { set_log_capture(nullptr, nullptr); }
    std::size_t count(std::string_view what) const
    {
        return std::size_t(std::ranges::count_if(
            lines, [what](const std::string& line) { return line.find(what) != std::string::npos; }));
    }
    std::vector<std::string> lines;
};

posixfs::posixfs_options few_kept(std::size_t most)
{
    posixfs::posixfs_options o;
    o.most_kept_files = most;
    o.cached_files = posixfs::descriptor_cache::min_files;
    return o;
}

} // namespace

} // namespace suite

using namespace suite;

BOOST_AUTO_TEST_SUITE(posixfs_open_files_test)

BOOST_DATA_TEST_CASE(a_file_outlives_its_name_while_it_is_open, boost::unit_test::data::make(everywhere()), w)
{
    exported e(w);
    const handle file = e.make_file("f", "text");
    const handle another = e.make_file("another", "more", 0666);
    const std::uint64_t inode = e.stat(file).fileid;
    opened first = e.open(e.me, file);
    opened second = e.open(e.me, file, R_OK);
    e.lose_name(w.lost);
    for (int shard = 0; shard < 2; ++shard, e.change_shard()) {
        const auto attrs = e.stat(file);
        BOOST_TEST(attrs.links == 0U);
        BOOST_TEST(attrs.fileid == inode);
        BOOST_TEST(e.get(e.me, file) == "text");
        e.put(e.by(first, e.me), file, 0, "TEXT");
        set_attributes cut;
        cut.size = 2;
        BOOST_TEST(e.must(e.fs->setattr(e.me, file, cut, std::nullopt)).after->size == 2U);
        BOOST_TEST(e.get(e.by(second, e.me), file) == "TE");
        e.must(e.fs->commit(e.me, file, 0, 0));
        cut.size = 0;
        e.must(e.fs->setattr(e.me, file, cut, std::nullopt));
        are_all(use(e, e.by(first, e.me), file, another), 0, 0);
        BOOST_TEST((e.must(e.fs->access(e.me, file, R_OK)) == unsigned(R_OK)));
        BOOST_TEST(e.fails(e.fs->link(e.me, file, e.fs->root(), "back")) == ENOENT);
        // Opened once more, by its handle.
        e.open(e.me, file);
        cut.size = 0;
        e.must(e.fs->setattr(e.me, file, cut, std::nullopt));
        e.put(e.me, file, 0, "text");
    }
    second.reset();
    BOOST_TEST(e.get(e.me, file) == "text");
    // Its room is free when each shard has had another call.
    first.reset();
    for (int shard = 0; shard < 2; ++shard, e.change_shard())
        e.stat(e.fs->root());
    BOOST_TEST(descriptors_of(inode) == 0U);
    BOOST_TEST(posixfs::pin_table::held() == 0U);
    for (int shard = 0; shard < 2; ++shard, e.change_shard())
        BOOST_TEST(e.fails(e.fs->getattr(e.me, file)) == ESTALE);
}

BOOST_DATA_TEST_CASE(a_file_that_nobody_has_open_goes_with_its_name,
                     boost::unit_test::data::make(everywhere()), w)
{
    exported e(w);
    const handle file = e.make_file("f", "text");
    const std::uint64_t inode = e.stat(file).fileid;
    for (int shard = 0; shard < 2; ++shard, e.change_shard())
        e.open(e.me, file);
    e.lose_name(w.lost);
    for (int shard = 0; shard < 2; ++shard, e.change_shard()) {
        BOOST_TEST(e.fails(e.fs->getattr(e.me, file)) == ESTALE);
        BOOST_TEST(e.fails(e.fs->open(e.me, file, R_OK, open_right::granted)) == ESTALE);
    }
    BOOST_TEST(descriptors_of(inode) == 0U);
}

BOOST_AUTO_TEST_CASE(a_file_that_was_moved_locally_is_found_by_its_path_handle)
{
    exported e({"/var/tmp", posixfs::handle_mode::path_table, way::remove});
    const handle file = e.make_file("f", "text");
    opened kept = e.open(e.me, file);
    BOOST_REQUIRE(::rename(e.path("f").c_str(), e.path("moved").c_str()) == 0);
    e.change_shard();
    BOOST_TEST(e.get(e.by(kept, e.me), file) == "text");
    kept.reset();
    BOOST_TEST(posixfs::pin_table::held() == 0U);
}

BOOST_DATA_TEST_CASE(who_has_it_open_is_not_asked_for_rights_again,
                     boost::unit_test::data::make({"/dev/shm", "/var/tmp"}), place)
{
    needs_root("to be several users");
    exported e(place);
    const request bob = user(1001, 1001, {7});
    const handle file = e.make_file("f", "text", 0666);
    const handle free_for_all = e.make_file("g", "text", 0666);
    const opened both = e.open(bob, file);
    const opened reading = e.open(bob, file, R_OK);
    const opened writing = e.open(bob, file, W_OK);
    set_attributes none;
    none.mode = 0;
    e.must(e.fs->setattr(e.me, file, none, std::nullopt));
    // On the first shard nothing is open for him yet; a second time it is.
    for (int round = 0; round < 2; ++round) {
        for (int shard = 0; shard < 2; ++shard, e.change_shard()) {
            are_all(use(e, bob, file, free_for_all), EACCES, EACCES);
            are_all(use(e, e.by(both, bob), file, free_for_all), 0, 0);
            are_all(use(e, e.by(reading, bob), file, free_for_all), 0, EACCES);
            are_all(use(e, e.by(writing, bob), file, free_for_all), EACCES, 0);
            // What was opened by his right is of no use to those who lack one, also as long as the file is as it was then.
            std::byte out[4];
            BOOST_TEST(e.fails(e.fs->read(e.by(both, bob), file, 0, out)) == 0);
            BOOST_TEST(e.fails(e.fs->read(bob, file, 0, out)) == EACCES);
            BOOST_TEST(e.fails(e.write(e.by(both, bob), file, 0, "")) == 0);
            BOOST_TEST(e.fails(e.write(bob, file, 0, "")) == EACCES);
            are_all(use(e, e.by(both, bob), file, free_for_all), 0, 0);
            are_all(use(e, bob, file, free_for_all), EACCES, EACCES);
            are_all(use(e, e.by(both, user(1001, 1001)), file, free_for_all), EACCES, EACCES);
            are_all(use(e, e.by(both, user(1002, 1001, {7})), file, free_for_all), EACCES, EACCES);
        }
    }
    // Other attributes are his who owns the file.
    set_attributes all;
    all.mode = 0666;
    BOOST_TEST(e.fails(e.fs->setattr(e.by(both, bob), file, all, std::nullopt)) == EPERM);
}

BOOST_AUTO_TEST_CASE(what_is_cached_is_sent_by_the_right_of_the_open)
{
    needs_root("to be several users");
    exported e("/dev/shm");
    const request bob = user(1001, 1001);
    const handle file = e.make_file("f", "text", 0666);
    const opened open = e.open(bob, file, R_OK);
    set_attributes none;
    none.mode = 0;
    e.must(e.fs->setattr(e.me, file, none, std::nullopt));
    BOOST_TEST(e.get(e.by(open, bob), file) == "text");
    BOOST_TEST(e.must(e.fs->locate(e.by(open, bob), file, 0, 4, storage::locatable::memory_or_file)).here);
    BOOST_TEST(!e.must(e.fs->locate(bob, file, 0, 4, storage::locatable::memory_or_file)).here);
}

BOOST_DATA_TEST_CASE(to_open_takes_a_right, boost::unit_test::data::make({false, true}), keep_shard_identity)
{
    needs_root("to be several users");
    posixfs::posixfs_options o;
    o.keep_shard_identity = keep_shard_identity;
    exported e("/var/tmp", o);
    const request bob = user(1001, 1001);
    const auto opens = [&](const handle& file, unsigned wanted) {
        return e.fails(e.fs->open(bob, file, wanted, open_right::asked));
    };
    const handle readable = e.make_file("readable", "", 0644);
    BOOST_TEST(opens(readable, R_OK) == 0);
    BOOST_TEST(opens(readable, W_OK) == EACCES);
    BOOST_TEST(opens(readable, R_OK | W_OK) == EACCES);
    const handle writable = e.make_file("writable", "", 0622);
    BOOST_TEST(opens(writable, R_OK) == EACCES);
    BOOST_TEST(opens(writable, W_OK) == 0);
    // Who may execute a file may read it.
    const handle executable = e.make_file("executable", "", 0711);
    BOOST_TEST(opens(executable, R_OK) == 0);
    BOOST_TEST(opens(executable, W_OK) == EACCES);
    const handle both = e.make_file("both", "", 0733);
    BOOST_TEST(opens(both, R_OK | W_OK) == 0);
    const handle closed = e.make_file("closed", "", 0600);
    BOOST_TEST(opens(closed, R_OK) == EACCES);
    BOOST_TEST(e.fails(e.fs->open(bob, closed, R_OK | W_OK, open_right::granted)) == 0);
    // Only regular files.
    BOOST_TEST(opens(e.fs->root(), R_OK) == EISDIR);
    const handle link = e.must(e.fs->symlink(e.me, e.fs->root(), "link", "f", {})).made.handle;
    BOOST_TEST(opens(link, R_OK) == EINVAL);
    BOOST_TEST(posixfs::pin_table::held() == 0U);
}

BOOST_AUTO_TEST_CASE(of_a_read_only_export_nothing_is_opened_to_write)
{
    posixfs::posixfs_options o;
    o.read_only = true;
    exported e("/var/tmp", o);
    const handle file = e.find(e.fs->root(), e.make_local("f"));
    BOOST_TEST(e.fails(e.fs->open(e.me, file, R_OK, open_right::asked)) == 0);
    BOOST_TEST(e.fails(e.fs->open(e.me, file, W_OK, open_right::asked)) == EROFS);
    BOOST_TEST(e.fails(e.fs->open(e.me, file, W_OK, open_right::granted)) == EROFS);
}

// What was made here is open for writing at first, by its maker.
BOOST_AUTO_TEST_CASE(an_open_file_is_in_the_way_of_no_lease)
{
    exported e;
    const handle file = e.make_file("f", "text");
    const opened kept = e.open(e.me, file, R_OK);
    BOOST_TEST(bool(e.must(e.fs->lease(file, [] {}))));
}

// Its maker's descriptor, which the cache has, keeps it as long as that is there.
BOOST_AUTO_TEST_CASE(what_was_just_made_gets_its_descriptor_later)
{
    for (const bool passes : {false, true}) {
        exported e("/var/tmp", few_kept(2));
        const handle file = e.make_file("f", "text");
        const opened kept = e.must(e.fs->open(e.me, file, R_OK, open_right::granted)).file;
        BOOST_TEST(posixfs::pin_table::held() == 0U);
        if (passes) {
            e.pass(3);
            BOOST_TEST(posixfs::pin_table::held() == 1U);
        }
        BOOST_REQUIRE(::unlink(e.path("f").c_str()) == 0);
        e.fill_cache();
        BOOST_TEST(e.get(e.by(kept, e.me), file) == "text");
        BOOST_TEST(bool(e.must(e.fs->lease(file, [] {}))));
    }
}

// One back end locks for all exports of a tree, also what is open by another one and has no name any more.
BOOST_AUTO_TEST_CASE(what_is_open_by_another_export_of_its_tree_is_found)
{
    exported e;
    posixfs::posixfs_options o;
    o.root = e.directory.path();
    auto second = posixfs::open_posixfs(o, e.pool);
    BOOST_REQUIRE(second);
    const handle file = e.must(e.fs->lookup(e.me, e.fs->root(), e.make_local("f"))).found.handle;
    e.fill_cache();
    opened kept = e.must((*second)->open(e.me, file, R_OK, open_right::asked)).file;
    BOOST_REQUIRE(::unlink(e.path("f").c_str()) == 0);
    BOOST_TEST(e.fails(e.fs->getattr(e.me, file)) == 0);
    e.pass(5);
    BOOST_TEST(e.fails(e.fs->getattr(e.me, file)) == 0);
    kept.reset();
    e.pass(60);
    BOOST_TEST(e.fails(e.fs->getattr(e.me, file)) == ESTALE);
}

// An open of what is cached costs no descriptor, and keeps it when the cache gives it up.
BOOST_AUTO_TEST_CASE(who_opens_what_is_cached_shares_its_descriptor)
{
    exported e("/var/tmp", few_kept(2));
    const handle file = e.must(e.fs->lookup(e.me, e.fs->root(), e.make_local("f"))).found.handle;
    const std::uint64_t inode = e.stat(file).fileid;
    BOOST_TEST(descriptors_of(inode) == 1U);
    opened kept = e.open(e.me, file);
    BOOST_TEST(posixfs::pin_table::held() == 1U);
    BOOST_TEST(descriptors_of(inode) == 1U);
    e.fill_cache();
    BOOST_TEST(descriptors_of(inode) == 1U);
    BOOST_REQUIRE(::unlink(e.path("f").c_str()) == 0);
    BOOST_TEST(e.fails(e.fs->getattr(e.me, file)) == 0);
    kept.reset();
    e.pass(60);
    BOOST_TEST(descriptors_of(inode) == 0U);
}

BOOST_AUTO_TEST_CASE(the_last_close_may_come_from_any_thread)
{
    exported e;
    const handle file = e.make_file("f", std::string(posixfs::large_file, 'x'));
    const std::uint64_t inode = e.stat(file).fileid;
    opened kept = e.open(e.me, file);
    e.must(e.fs->remove(e.me, e.fs->root(), "f"));
    std::thread([&] { kept.reset(); }).join();
    BOOST_TEST(e.fails(e.fs->getattr(e.me, file)) == ESTALE);
    e.pool.finish();
    BOOST_TEST(descriptors_of(inode) == 0U);
}

BOOST_AUTO_TEST_CASE(beyond_the_bound_the_longest_unused_is_closed)
{
    exported e("/var/tmp", few_kept(2));
    std::vector<handle> files;
    std::vector<opened> kept;
    for (const char* name : {"a", "b", "c", "d"}) {
        files.push_back(e.make_file(name, name));
        kept.push_back(e.open(e.me, files.back()));
        BOOST_TEST(posixfs::pin_table::held() <= 2U);
    }
    BOOST_TEST(posixfs::counters_of(*e.fs).closed == 2U);
    e.fill_cache();
    // "c" and "d" stayed open; "a" is opened again, and "c" closed for it.
    BOOST_TEST(e.get(e.by(kept[0], e.me), files[0]) == "a");
    BOOST_TEST(posixfs::counters_of(*e.fs).closed == 3U);
    BOOST_TEST(posixfs::pin_table::held() == 2U);
    BOOST_REQUIRE(::unlink(e.path("d").c_str()) == 0);
    e.fill_cache();
    BOOST_TEST(e.get(e.by(kept[3], e.me), files[3]) == "d");
    // One without a name is not closed.
    for (const std::size_t i : {1, 2, 0, 1}) {
        e.fill_cache();
        BOOST_TEST(e.get(e.me, files[i]).size() == 1U);
    }
    e.fill_cache();
    BOOST_TEST(e.get(e.by(kept[3], e.me), files[3]) == "d");
    BOOST_TEST(posixfs::counters_of(*e.fs).lost == 0U);
    kept.clear();
    BOOST_TEST(posixfs::pin_table::held() == 0U);
}

BOOST_AUTO_TEST_CASE(what_somebody_removed_unseen_is_not_closed_at_the_bound)
{
    exported e("/var/tmp", few_kept(2));
    const handle file = e.make_file("f", "text");
    const opened kept = e.open(e.me, file);
    const opened closable = e.open(e.me, e.make_file("a"));
    BOOST_REQUIRE(::unlink(e.path("f").c_str()) == 0);
    e.fill_cache();
    const opened closes_another = e.open(e.me, e.make_file("b"));
    BOOST_TEST(posixfs::counters_of(*e.fs).closed == 1U);
    BOOST_TEST(e.get(e.by(kept, e.me), file) == "text");
}

BOOST_AUTO_TEST_CASE(what_we_remove_ourselves_is_opened_first)
{
    for (const way how : {way::remove, way::rename_over}) {
        exported e("/var/tmp", few_kept(1));
        const handle file = e.make_file("f", "text");
        const opened kept = e.open(e.me, file);
        const opened closes_it = e.open(e.me, e.make_file("o"));
        e.fill_cache();
        BOOST_TEST(posixfs::counters_of(*e.fs).closed == 1U);
        e.lose_name(how);
        e.fill_cache();
        BOOST_TEST(e.get(e.by(kept, e.me), file) == "text");
        BOOST_TEST(posixfs::counters_of(*e.fs).lost == 0U);
    }
}

BOOST_AUTO_TEST_CASE(what_is_closed_and_removed_locally_is_lost_and_told)
{
    const captured_log log;
    exported e("/var/tmp", few_kept(1));
    std::vector<handle> files;
    std::vector<opened> kept;
    for (const char* name : {"f", "h", "o"}) {
        files.push_back(e.make_file(name, name));
        kept.push_back(e.open(e.me, files.back()));
    }
    e.fill_cache();
    for (const char* name : {"f", "h"})
        BOOST_REQUIRE(::unlink(e.path(name).c_str()) == 0);
    for (int again = 0; again < 2; ++again)
        for (const int i : {0, 1})
            BOOST_TEST(e.fails(e.fs->getattr(e.by(kept[i], e.me), files[i])) == ESTALE);
    BOOST_TEST(posixfs::counters_of(*e.fs).lost == 2U);
    BOOST_TEST(log.count("LimitNOFILE") == 1U);
    BOOST_TEST(log.count(e.directory.path().string()) == 1U);
}

// A shard has it in its cache yet, and finds it there when it looks for such files.
BOOST_AUTO_TEST_CASE(what_is_cached_and_without_a_name_stays_if_it_is_open)
{
    exported e("/var/tmp", few_kept(1));
    const handle file = e.make_file("f", "text");
    const opened kept = e.open(e.me, file);
    const opened closes_it = e.open(e.me, e.make_file("o"));
    BOOST_REQUIRE(::unlink(e.path("f").c_str()) == 0);
    e.pass(3);
    e.fill_cache();
    BOOST_TEST(e.get(e.by(kept, e.me), file) == "text");
    // Long unused it leaves the cache.
    e.pass(90);
    BOOST_TEST(e.get(e.by(kept, e.me), file) == "text");
}

// Or somebody asks for it there.
BOOST_AUTO_TEST_CASE(what_is_closed_and_removed_locally_is_taken_from_the_cache)
{
    exported e("/var/tmp", few_kept(2));
    const handle file = e.make_file("f", "text");
    const opened kept = e.open(e.me, file);
    opened others[2];
    for (int i = 0; i < 2; ++i)
        others[i] = e.open(e.me, e.make_file("o" + std::to_string(i)));
    BOOST_REQUIRE(::unlink(e.path("f").c_str()) == 0);
    BOOST_TEST(e.stat(file).links == 0U);
    e.fill_cache();
    BOOST_TEST(e.get(e.by(kept, e.me), file) == "text");
}

BOOST_AUTO_TEST_CASE(a_name_stays_if_nothing_can_keep_its_open_file)
{
    const captured_log log;
    exported e("/var/tmp", few_kept(1));
    opened first = e.open(e.me, e.make_file("first"));
    e.must(e.fs->remove(e.me, e.fs->root(), "first"));
    const handle file = e.make_file("f", "text");
    const opened kept = e.open(e.me, file);
    e.make_file("g");
    BOOST_TEST(e.fails(e.fs->remove(e.me, e.fs->root(), "f")) == EBUSY); // FILE_OPEN, or ACCES
    BOOST_TEST(e.fails(e.fs->rename(e.me, e.fs->root(), "g", e.fs->root(), "f")) == EBUSY);
    BOOST_TEST(posixfs::counters_of(*e.fs).refused == 2U);
    BOOST_TEST(log.count("LimitNOFILE") == 1U);
    // Of what nobody has open, and when there is room again.
    e.must(e.fs->remove(e.me, e.fs->root(), "g"));
    BOOST_TEST(e.get(e.me, e.find(e.fs->root(), "f")) == "text");
    first.reset();
    e.must(e.fs->remove(e.me, e.fs->root(), "f"));
    e.fill_cache();
    BOOST_TEST(e.get(e.by(kept, e.me), file) == "text");
}

namespace {

struct table {
    explicit table(std::size_t most) : pins(pool, log, most, "/export") {}
    posixfs::pin_table::known_file file(const handle& h) { return {h, fd.get(), mount}; }
    bool is_open(const handle& h)
    {
        posixfs::unique_fd out;
        return pins.open(h, out) == &mount && out;
    }
    temporary_directory where{"/var/tmp"};
    blocking_pool pool{1};
    posixfs::removal_log log;
    posixfs::mount_point mount;
    posixfs::unique_fd fd{::open(where.path().c_str(), O_PATH | O_CLOEXEC)};
    posixfs::pin_table pins;
    const handle a = handle(std::as_bytes(std::span("a")));
    const handle b = handle(std::as_bytes(std::span("b")));
};

} // namespace

BOOST_AUTO_TEST_CASE(while_a_name_goes_its_file_is_not_closed)
{
    table t(1);
    const auto a = t.pins.add(t.file(t.a));
    BOOST_REQUIRE(a);
    {
        const auto removing = t.pins.removing(t.file(t.a));
        BOOST_REQUIRE(removing);
        const auto b = t.pins.add(t.file(t.b));
        BOOST_REQUIRE(b);
        BOOST_TEST(t.is_open(t.a));
        BOOST_TEST(!t.is_open(t.b));
        BOOST_TEST(!t.pins.removing(t.file(t.b)));
    }
    BOOST_TEST(t.pins.keeps(t.file(t.a), false));
    const auto b = t.pins.add(t.file(t.b));
    BOOST_TEST(!t.is_open(t.a));
    BOOST_TEST(t.is_open(t.b));
}

BOOST_AUTO_TEST_CASE(so_it_is_with_what_is_opened_meanwhile)
{
    table t(1);
    {
        auto removing = t.pins.removing(t.file(t.a));
        BOOST_REQUIRE(removing);
        BOOST_TEST(!removing->keeps());
        BOOST_TEST(!t.pins.keeps(t.file(t.a), true)); // nobody has it open
        BOOST_TEST(posixfs::pin_table::held() == 0U);
        const auto a = t.pins.add(t.file(t.a));
        const auto b = t.pins.add(t.file(t.b));
        BOOST_TEST(t.is_open(t.a));
        BOOST_TEST(!t.is_open(t.b));
        BOOST_TEST(removing->keeps());
    }
    const auto b = t.pins.add(t.file(t.b));
    BOOST_TEST(t.is_open(t.b));
    const auto removing = t.pins.removing(t.file(t.b));
    const auto other = t.pins.removing(t.file(t.a));
    BOOST_REQUIRE(other);
    const auto a = t.pins.add(t.file(t.a));
    BOOST_REQUIRE(!a);
    BOOST_TEST(a.error().errno_value() == EAGAIN);
}

BOOST_AUTO_TEST_CASE(what_nobody_has_open_and_has_no_name_is_not_opened_without_a_descriptor)
{
    table t(1);
    const auto a = t.pins.add(t.file(t.a));
    const auto removing = t.pins.removing(t.file(t.a)); // so that there is no descriptor for another one
    const std::string path = (t.where.path() / "b").string();
    posixfs::unique_fd b(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    {
        const auto open = t.pins.add({t.b, b.get(), t.mount});
        BOOST_REQUIRE(open);
        BOOST_REQUIRE(::unlink(path.c_str()) == 0);
        BOOST_TEST(
            bool(t.pins.add({t.b, b.get(), t.mount}))); // who has it open already may be served from a cache
    }
    const auto open = t.pins.add({t.b, b.get(), t.mount});
    BOOST_REQUIRE(!open);
    BOOST_TEST(open.error().errno_value() == ESTALE);
    BOOST_TEST(!t.pins.keeps({t.b, b.get(), t.mount}, true));
}

BOOST_AUTO_TEST_CASE(a_peers_files_without_names_take_half_of_the_bound)
{
    const captured_log log;
    table t(4);
    struct made {
        handle name;
        std::string path;
        posixfs::unique_fd fd;
    };
    const auto make = [&](const std::string& name) {
        made m;
        m.name = handle(std::as_bytes(std::span(name)));
        m.path = (t.where.path() / name).string();
        m.fd.reset(::open(m.path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
        BOOST_REQUIRE(m.fd);
        return m;
    };
    const auto remove = [&](const made& m) -> int {
        auto removing = t.pins.removing({m.name, m.fd.get(), t.mount});
        if (!removing)
            return removing.error().errno_value();
        BOOST_REQUIRE(::unlink(m.path.c_str()) == 0);
        BOOST_TEST(removing->keeps());
        return 0;
    };
    const auto open = [&](const made& m, std::string_view by) {
        auto pin = t.pins.add({m.name, m.fd.get(), t.mount}, false, by);
        BOOST_REQUIRE(pin);
        return std::move(*pin);
    };
    const made files[] = {make("a"), make("b"), make("c"), make("d"), make("e")};
    std::vector<posixfs::pin_table::pin> greedy;
    for (int i = 0; i < 3; ++i) // one peer has all addresses of a /64
        greedy.push_back(open(files[i], i == 0 ? "2001:db8::1" : "2001:db8::2"));
    const auto other = open(files[3], "192.0.2.1");
    const auto unknown = open(files[4], {});
    BOOST_TEST(remove(files[0]) == 0);
    BOOST_TEST(remove(files[1]) == 0);
    BOOST_TEST(remove(files[2]) == EBUSY);
    BOOST_TEST(t.pins.counters().refused == 1U);
    BOOST_TEST(log.count("as one may have") == 1U);
    // One of several names may go, and so may files of others. In the end there is room again.
    const std::string link = files[2].path + "2";
    BOOST_REQUIRE(::link(files[2].path.c_str(), link.c_str()) == 0);
    BOOST_TEST(bool(t.pins.removing({files[2].name, files[2].fd.get(), t.mount})));
    BOOST_REQUIRE(::unlink(link.c_str()) == 0);
    BOOST_TEST(remove(files[3]) == 0);
    BOOST_TEST(remove(files[4]) == 0);
    greedy.erase(greedy.begin());
    BOOST_TEST(remove(files[2]) == 0);
    greedy.clear();
}

BOOST_AUTO_TEST_CASE(a_name_that_leads_to_another_file_than_the_victim_stays)
{
    exported e("/var/tmp", few_kept(2));
    const handle file = e.make_file("f", "text");
    const handle other = e.make_file("g");
    request only = e.me;
    only.victim = &other;
    BOOST_TEST(e.fails(e.fs->remove(only, e.fs->root(), "f")) == ESTALE);
    BOOST_TEST(e.get(e.me, e.find(e.fs->root(), "f")) == "text");
    only.victim = &file;
    e.must(e.fs->remove(only, e.fs->root(), "f"));
}

// As behind `rm -r` of a tree that clients have open.
BOOST_AUTO_TEST_CASE(files_without_names_hide_none_that_may_be_closed, *boost::unit_test::timeout(60))
{
    table t(310);
    const std::string path = (t.where.path() / "f").string();
    const posixfs::unique_fd fd(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    BOOST_REQUIRE(fd);
    std::vector<handle> names;
    for (int i = 0; i < 311; ++i)
        names.emplace_back(std::as_bytes(std::span(&i, 1)));
    std::vector<posixfs::pin_table::pin> pins;
    for (int i = 0; i < 310; ++i) {
        auto pin = t.pins.add({names[i], i < 300 ? fd.get() : t.fd.get(), t.mount});
        BOOST_REQUIRE(pin);
        pins.push_back(std::move(*pin));
    }
    BOOST_TEST(posixfs::pin_table::held() == 310U);
    BOOST_REQUIRE(::unlink(path.c_str()) == 0);
    auto last = t.pins.add(t.file(names[310]));
    BOOST_REQUIRE(last);
    BOOST_TEST(bool(t.pins.removing(t.file(names[310]))));
    BOOST_TEST(t.is_open(names[310]));
    BOOST_TEST(t.is_open(names[0]));
}

// Two shards open files and read them by their opens, a third one removes them and makes others, and few are kept open at a time.
BOOST_AUTO_TEST_CASE(no_open_is_lost_to_removals_of_ours_at_the_bound)
{
    constexpr int rounds = 150;
    ::umask(0);
    temporary_directory where("/var/tmp");
    blocking_pool pool(4);
    posixfs::posixfs_options o = few_kept(2);
    o.root = where.path();
    auto made = posixfs::open_posixfs(o, pool);
    BOOST_REQUIRE(made);
    const std::unique_ptr<file_backend> fs = std::move(*made);
    runtime_options options;
    options.shards = 3;
    auto started = runtime::start(options);
    BOOST_REQUIRE(started);
    runtime& shards = **started;
    request me;
    me.who = credential(::geteuid(), ::getegid());
    const char* const names[] = {"a", "b", "c", "d"};
    std::atomic<int> opened_ones = 0;
    std::atomic<int> failed = 0;
    const auto use_files = [&](shard&) -> task<int> {
        std::vector<std::pair<handle, opened>> held(3);
        for (int i = 0; i < rounds; ++i) {
            const char* const name = names[i % 4];
            auto file = co_await fs->create(me, fs->root(), name, create_mode::unchecked, {}, 0);
            if (!file)
                continue;
            auto open = co_await fs->open(me, file->made.handle, R_OK, open_right::asked);
            if (!open) // it was removed, or is just being removed
                continue;
            ++opened_ones;
            held[std::size_t(i % 3)] = {file->made.handle, std::move(open->file)};
            for (const auto& [h, by] : held) {
                if (!by)
                    continue;
                request r = me;
                r.open = by.get();
                std::byte out[1];
                const auto read = co_await fs->read(r, h, 0, out);
                failed += read ? 0 : 1;
            }
        }
        co_return 0;
    };
    const auto remove_files = [&](shard&) -> task<int> {
        for (int i = 0; i < 2 * rounds; ++i) {
            const auto gone = co_await fs->remove(me, fs->root(), names[i % 4]);
            (void)gone;
        }
        co_return 0;
    };
    std::vector<std::thread> users;
    for (const unsigned index : {1U, 2U})
        users.emplace_back([&, index] { (void)shards.run(index, use_files); });
    (void)shards.run(0, remove_files);
    for (std::thread& t : users)
        t.join();
    shards.stop();
    BOOST_TEST(failed == 0);
    BOOST_TEST(opened_ones > rounds / 2);
    BOOST_TEST(posixfs::counters_of(*fs).lost == 0U);
    BOOST_TEST(posixfs::pin_table::held() == 0U);
}

BOOST_AUTO_TEST_CASE(all_tables_have_one_bound)
{
    table one(1);
    table other(1);
    const auto a = one.pins.add(one.file(one.a));
    const auto b = other.pins.add(other.file(other.b));
    BOOST_TEST(!one.is_open(one.a));
    BOOST_TEST(other.is_open(other.b));
    BOOST_TEST(one.pins.counters().closed == 1U);
    BOOST_TEST(other.pins.counters().closed == 0U);
}

BOOST_FIXTURE_TEST_CASE(an_open_file_says_where_it_lies_now, exported)
{
    const handle directory_of_it = make_directory(fs->root(), "d");
    const std::string name = "line\nno \xff UTF-8";
    const opened o = open(me, make_file(me, directory_of_it, name));
    BOOST_TEST(o->path_now() == "/d/" + name);
    must(fs->rename(me, directory_of_it, name, directory_of_it, "g"));
    must(fs->rename(me, fs->root(), "d", fs->root(), "e"));
    BOOST_TEST(o->path_now() == "/e/g");
    must(fs->remove(me, directory_of_it, "g"));
    BOOST_TEST(o->path_now() == "/e/g (deleted)");
    // Out of the export, to a place whose name begins as the export's.
    const opened left = open(me, make_file("h"));
    const std::string outside = directory.path().string() + "-outside";
    BOOST_REQUIRE(::rename(path("h").c_str(), outside.c_str()) == 0);
    BOOST_TEST(left->path_now().empty());
    BOOST_REQUIRE(::unlink(outside.c_str()) == 0);
    // The folder itself gets another name.
    const opened stays = open(me, make_file("i"));
    const std::string folder = directory.path().string();
    BOOST_REQUIRE(::rename(folder.c_str(), outside.c_str()) == 0);
    BOOST_TEST(stays->path_now() == "/i");
    BOOST_REQUIRE(::rename(outside.c_str(), folder.c_str()) == 0);
}

BOOST_AUTO_TEST_CASE(an_open_file_without_a_descriptor_says_no_place)
{
    posixfs::posixfs_options o;
    o.most_kept_files = 1;
    exported e("/var/tmp", o);
    const handle f = e.make_file("f"), g = e.make_file("g");
    const opened one = e.open(e.me, f);
    const opened other = e.open(e.me, g);
    BOOST_TEST(one->path_now().empty());
    BOOST_TEST(other->path_now() == "/g");
}

BOOST_AUTO_TEST_SUITE_END()
