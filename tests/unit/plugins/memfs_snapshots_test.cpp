// SPDX-License-Identifier: Apache-2.0
// Snapshots of memfs: what is in them stays as it was, whatever becomes of the files.
#include "memfs_snapshots.hpp"

#include <verbena/core/task/yield.hpp>

#include <algorithm>
#include <new>
#include <optional>

using namespace suite;

namespace {

int fails_at = 0; // the allocation that fails, from 1; 0: none

} // namespace

void* operator new(std::size_t size)
{
    const bool fails = fails_at > 0 && --fails_at == 0;
    void* const made = fails ? nullptr : std::malloc(size);
    if (made == nullptr)
        throw std::bad_alloc();
    return made;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

BOOST_FIXTURE_TEST_CASE(a_snapshot_has_all_files_as_they_were, snapshots)
{
    const handle d = make_directory(fs->root(), "d", 0750);
    const handle f = make_file(me, d, "f", std::string(2 * block, 'a') + "tail", 0640);
    must(fs->symlink(me, d, "l", "f", {}));
    must(fs->link(me, f, fs->root(), "again"));
    must(fs->setxattr(me, f, "colour", bytes("red"), xattr_mode::either));
    const attributes before = stat(f);
    const handle s = take("monday");
    put(me, f, 10, "changed");
    cut(f, block);
    must(fs->removexattr(me, f, "colour"));
    must(fs->remove(me, d, "l"));
    must(fs->rename(me, d, "f", fs->root(), "moved"));
    must(fs->rmdir(me, fs->root(), "d"));
    set_attributes mode;
    mode.mode = 0600;
    must(fs->setattr(me, f, mode, std::nullopt));

    const handle sd = find(s, "d");
    const handle sf = find(sd, "f");
    BOOST_TEST(get(me, sf, 0, 3 * block) == std::string(2 * block, 'a') + "tail");
    const attributes kept = stat(sf);
    BOOST_TEST((kept.size == before.size && kept.mode == before.mode && kept.links == 2u));
    BOOST_TEST((kept.mtime == before.mtime && kept.change == before.change));
    BOOST_TEST(kept.fileid != before.fileid);
    BOOST_TEST((find(s, "again") == sf));
    BOOST_TEST(must(fs->readlink(me, find(sd, "l"))) == "f");
    BOOST_TEST(must(fs->getxattr(me, sf, "colour")).size() == 3u);
    BOOST_TEST(stat(sd).mode == 0750u);
    BOOST_TEST(list(s).size() == 4u); // "." and "..", too
    BOOST_TEST((find(sd, "..") == s));
    BOOST_TEST((find(s, "..") == place()));
    BOOST_TEST((find(place(), "..") == fs->root()));
    BOOST_TEST(get(me, f, 0, 17) == std::string(10, 'a') + "changed");
}

BOOST_FIXTURE_TEST_CASE(the_root_finds_the_directory_of_snapshots_and_does_not_list_it, snapshots)
{
    make_file("f");
    take("one");
    BOOST_TEST(!list(fs->root()).contains(".snapshot"));
    BOOST_TEST(list(place()).contains("one"));
    // The name is taken, and stays there.
    BOOST_TEST(fails(fs->mkdir(me, fs->root(), ".snapshot", {})) == EEXIST);
    BOOST_TEST(fails(fs->create(me, fs->root(), ".snapshot", create_mode::guarded, {}, 0)) == EEXIST);
    BOOST_TEST(fails(fs->create(me, fs->root(), ".snapshot", create_mode::unchecked, {}, 0)) == EEXIST);
    BOOST_TEST(fails(fs->create(me, fs->root(), ".snapshot", create_mode::exclusive, {}, 7)) == EEXIST);
    BOOST_TEST(fails(fs->rmdir(me, fs->root(), ".snapshot")) == EROFS);
    BOOST_TEST(fails(fs->rename(me, fs->root(), ".snapshot", fs->root(), "x")) == EROFS);
    BOOST_TEST(fails(fs->rename(me, fs->root(), "f", fs->root(), ".snapshot")) == EROFS);
    // Elsewhere it is a name as any other.
    const handle d = make_directory(fs->root(), "d");
    BOOST_TEST(fails(fs->lookup(me, d, ".snapshot")) == ENOENT);
    make_directory(d, ".snapshot");
}

BOOST_FIXTURE_TEST_CASE(nothing_in_a_snapshot_is_changed, snapshots)
{
    const handle live = make_file("f", "text", 0666);
    make_directory(fs->root(), "d", 0777);
    const handle s = take("one");
    const handle f = find(s, "f"), d = find(s, "d");
    set_attributes some;
    some.mode = 0600;
    BOOST_TEST(fails(write(me, f, 0, "new")) == EROFS);
    BOOST_TEST(fails(fs->setattr(me, f, some, std::nullopt)) == EROFS);
    BOOST_TEST(fails(fs->setattr(me, s, some, std::nullopt)) == EROFS);
    BOOST_TEST(fails(fs->setattr(me, place(), some, std::nullopt)) == EROFS);
    BOOST_TEST(fails(fs->open(me, f, W_OK, open_right::asked)) == EROFS);
    BOOST_TEST(fails(fs->create(me, d, "new", create_mode::guarded, {}, 0)) == EROFS);
    BOOST_TEST(fails(fs->create(me, s, "f", create_mode::unchecked, {}, 0)) == EROFS);
    BOOST_TEST(fails(fs->create(me, place(), "new", create_mode::guarded, {}, 0)) == EROFS);
    BOOST_TEST(fails(fs->mkdir(me, d, "new", {})) == EROFS);
    BOOST_TEST(fails(fs->symlink(me, d, "new", "x", {})) == EROFS);
    BOOST_TEST(fails(fs->mknod(me, d, "new", file_type::fifo, 0, 0, {})) == EROFS);
    BOOST_TEST(fails(fs->remove(me, s, "f")) == EROFS);
    BOOST_TEST(fails(fs->rmdir(me, s, "d")) == EROFS);
    BOOST_TEST(fails(fs->remove(me, place(), "one")) == EISDIR);
    BOOST_TEST(fails(fs->rename(me, s, "f", fs->root(), "g")) == EROFS);
    BOOST_TEST(fails(fs->rename(me, fs->root(), "f", d, "g")) == EROFS);
    BOOST_TEST(fails(fs->rename(me, place(), "one", place(), "two")) == EROFS);
    BOOST_TEST(fails(fs->link(me, f, fs->root(), "g")) == EROFS);
    BOOST_TEST(fails(fs->allocate(me, f, 0, 10)) == EROFS);
    BOOST_TEST(fails(fs->deallocate(me, f, 0, 10)) == EROFS);
    BOOST_TEST(fails(fs->clone(me, live, 0, f, 0, 0)) == EROFS);
    BOOST_TEST(fails(fs->copy(me, live, 0, f, 0, 4)) == EROFS);
    BOOST_TEST(fails(fs->setxattr(me, f, "a", bytes("b"), xattr_mode::either)) == EROFS);
    BOOST_TEST(fails(fs->removexattr(me, f, "a")) == EROFS);
    BOOST_TEST(fails(fs->map(me, f, 0, 4, map_use::write)) == EROFS);
    BOOST_TEST(fails(fs->note_written(me, f, 10)) == EROFS);
    BOOST_TEST(must(fs->access(me, f, R_OK | W_OK)) == unsigned(R_OK));
    BOOST_TEST(must(fs->access(me, place(), R_OK | W_OK)) == unsigned(R_OK | W_OK));
    BOOST_TEST(get(me, f) == "text");
    // From there it comes back.
    const handle again = make_file("again");
    must(fs->clone(me, f, 0, again, 0, 0));
    put(me, again, 0, "T");
    BOOST_TEST(get(me, again) == "Text");
    BOOST_TEST(get(me, f) == "text");
}

BOOST_FIXTURE_TEST_CASE(files_of_a_snapshot_have_the_rights_that_they_had, snapshots)
{
    const handle mine = make_file("mine", "secret", 0600);
    take("one");
    set_attributes open_to_all;
    open_to_all.mode = 0644;
    must(fs->setattr(me, mine, open_to_all, std::nullopt));
    const request other = user(7, 7);
    const handle kept = find(find(place(), "one"), "mine");
    std::byte out[8];
    BOOST_TEST(fails(fs->read(other, kept, 0, out)) == EACCES);
    BOOST_TEST(fails(fs->open(other, kept, R_OK, open_right::asked)) == EACCES);
    BOOST_TEST(get(me, kept) == "secret");
    BOOST_TEST(get(other, mine) == "secret");
}

BOOST_FIXTURE_TEST_CASE(who_may_change_the_root_takes_snapshots_and_ends_them, snapshots)
{
    const request first = user(7, 7), second = user(8, 8);
    must(fs->mkdir(first, place(), "one", {}));
    BOOST_TEST(fails(fs->may_remove(second, place(), "one")) == 0);
    set_attributes mode;
    mode.mode = 01777;
    must(fs->setattr(me, fs->root(), mode, std::nullopt));
    BOOST_TEST(stat(place()).mode == 01777u);
    BOOST_TEST(fails(fs->may_remove(second, place(), "one")) == EPERM);
    BOOST_TEST(fails(fs->rmdir(second, place(), "one")) == EPERM);
    must(fs->rmdir(first, place(), "one"));
    mode.mode = 0755;
    must(fs->setattr(me, fs->root(), mode, std::nullopt));
    BOOST_TEST(fails(fs->mkdir(first, place(), "one", {})) == EACCES);
    take("one");
    BOOST_TEST(fails(fs->rmdir(first, place(), "one")) == EACCES);
    BOOST_TEST(fails(fs->rmdir(me, place(), "two")) == ENOENT);
    end("one");
}

BOOST_FIXTURE_TEST_CASE(names_and_numbers_of_snapshots_are_bounded, snapshots)
{
    BOOST_TEST(fails(fs->mkdir(me, place(), "", {})) == EINVAL);
    BOOST_TEST(fails(fs->mkdir(me, place(), "a/b", {})) == EINVAL);
    BOOST_TEST(fails(fs->mkdir(me, place(), std::string(256, 'x'), {})) == ENAMETOOLONG);
    BOOST_TEST(fails(fs->mkdir(me, place(), "..", {})) == EEXIST);
    take("one");
    BOOST_TEST(fails(fs->mkdir(me, place(), "one", {})) == EEXIST);
    take("two");
    take("three");
    BOOST_TEST(fails(fs->mkdir(me, place(), "four", {})) == ENOSPC);
    end("two");
    take("four");
    BOOST_TEST(memfs::snapshot_counts_of(*fs).snapshots == 3u);
}

BOOST_FIXTURE_TEST_CASE(files_and_names_of_snapshots_count, snapshots)
{
    for (int i = 0; i < 40; ++i)
        make_file("f" + std::to_string(i));
    const std::uint64_t files = free_files(), bytes_free = free_bytes();
    BOOST_TEST(files == 100u - 42);
    take("one");
    BOOST_TEST(free_files() == files - 41);
    BOOST_TEST(free_bytes() < bytes_free - 40 * 256);
    BOOST_TEST(fails(fs->mkdir(me, place(), "two", {})) == ENOSPC);
    BOOST_TEST(free_files() == files - 41);
    end("one");
    BOOST_TEST(free_files() == files);
    BOOST_TEST(free_bytes() == bytes_free);
}

BOOST_FIXTURE_TEST_CASE(what_a_snapshot_alone_keeps_takes_room_until_it_ends, snapshots)
{
    const handle f = make_file("f", std::string(10 * block, 'a'));
    const handle g = make_file("g");
    must(fs->clone(me, f, 0, g, 0, 4 * block));
    const std::uint64_t before = free_bytes();
    take("one");
    BOOST_TEST(held() == 0u);
    BOOST_TEST(free_bytes() + 4 * block > before); // its names
    put(me, f, 5 * block, "x");
    BOOST_TEST(held() == block);
    put(me, f, 5 * block + 7, "y");
    BOOST_TEST(held() == block);
    // A clone has these: nothing is kept by the snapshot alone.
    put(me, f, 0, "x");
    BOOST_TEST(held() == block);
    put(me, g, 0, "x");
    BOOST_TEST(held() == 2 * block);
    take("two");
    put(me, f, 5 * block, "z");
    BOOST_TEST(held() == 3 * block);
    end("one");
    BOOST_TEST(held() == block);
    end("two");
    BOOST_TEST(held() == 0u);
    BOOST_TEST(free_bytes() == before);
    // As removed files are in the end.
    take("three");
    must(fs->remove(me, fs->root(), "f"));
    BOOST_TEST(held() == 7 * block); // the clone has three
    BOOST_TEST(get(me, find(find(place(), "three"), "f"), 9 * block, block) == std::string(block, 'a'));
    end("three");
    BOOST_TEST(held() == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_full_file_system_says_so_and_changes_nothing, snapshots)
{
    constexpr std::uint64_t blocks = most_bytes / block;
    const handle f = make_file("f", std::string((blocks - 2) * block, 'a'));
    const handle s = take("one");
    put(me, f, 0, "x"); // the last block that there is
    BOOST_TEST(held() == block);
    BOOST_TEST(fails(write(me, f, block, "x")) == ENOSPC);
    put(me, f, 0, "y"); // its own
    BOOST_TEST(fails(fs->deallocate(me, f, block + 1, 10)) == ENOSPC);
    set_attributes size;
    size.size = 10 * block + 1;
    BOOST_TEST(fails(fs->setattr(me, f, size, std::nullopt)) == ENOSPC);
    BOOST_TEST(fails(fs->map(me, f, block, block, map_use::write)) == ENOSPC);
    const handle g = make_file("g");
    BOOST_TEST(fails(fs->copy(me, f, 0, f, 2 * block, block)) == ENOSPC);
    must(fs->deallocate(me, f, 5 * block, block));
    BOOST_TEST(fails(fs->clone(me, f, 0, g, 0, block)) == ENOSPC);
    cut(f, 10 * block); // whole blocks need none
    BOOST_TEST(held() == (blocks - 2 - 10 + 2) * block);
    BOOST_TEST(get(me, find(s, "f"), 0, (blocks - 2) * block) == std::string((blocks - 2) * block, 'a'));
    end("one");
    BOOST_TEST(stat(f).size == 10 * block);
    BOOST_TEST(held() == 0u);
    put(me, f, block, "x");
}

BOOST_FIXTURE_TEST_CASE(a_file_that_is_open_or_mapped_outlives_its_snapshot, snapshots)
{
    make_file("f", "text");
    make_file("g", std::string(block, 'g'));
    const handle s = take("one");
    const handle f = find(s, "f"), g = find(s, "g");
    std::optional<opened_file> opened = must(fs->open(me, f, R_OK, open_right::asked));
    std::optional<mapping> mapped = must(fs->map(me, g, 0, block, map_use::read));
    const std::uint64_t before = free_files();
    end("one");
    BOOST_TEST(free_files() == before + 1); // the root alone
    BOOST_TEST(fails(fs->getattr(me, s)) == ESTALE);
    BOOST_TEST(get(me, f) == "text");
    put(me, find(fs->root(), "g"), 0, "new");
    BOOST_TEST(held() == block);
    BOOST_TEST(char(mapped->parts[0].memory[0]) == 'g');
    opened.reset();
    mapped.reset();
    BOOST_TEST(fails(fs->getattr(me, f)) == ESTALE);
    BOOST_TEST(held() == 0u);
    BOOST_TEST(free_files() == before + 3);
}

BOOST_FIXTURE_TEST_CASE(a_snapshot_waits_for_memory_that_peers_have, snapshots)
{
    const handle f = make_file("f", std::string(block, 'a'));
    std::optional<mapping> mapped = must(fs->map(me, f, 0, block, map_use::write));
    BOOST_TEST(fails(fs->mkdir(me, place(), "one", {})) == EAGAIN);
    BOOST_TEST(list(place()).size() == 2u);
    std::shared_ptr<const void> none_else = fs->snapshots()->hold_back_mappings();
    BOOST_TEST(fails(fs->map(me, f, 0, block, map_use::read)) == EAGAIN);
    mapped->parts[0].memory[0] = std::byte('b');
    mapped.reset();
    const handle s = take("one");
    BOOST_TEST(fails(fs->map(me, f, 0, block, map_use::write)) == EAGAIN);
    (void)must(fs->map(me, find(s, "f"), 0, block, map_use::read));
    none_else.reset();
    // What a peer writes from now on is in memory of the file's own.
    mapped = must(fs->map(me, f, 0, block, map_use::write));
    BOOST_TEST(get(me, f, 0, 2) == "ba");
    mapped->parts[0].memory[0] = std::byte('c');
    BOOST_TEST(get(me, find(s, "f"), 0, 2) == "ba");
    // Those of snapshots are in nobody's way.
    mapped = must(fs->map(me, find(s, "f"), 0, block, map_use::read));
    put(me, f, 0, "d");
    BOOST_TEST(char(mapped->parts[0].memory[0]) == 'b');
    take("two");
}

BOOST_FIXTURE_TEST_CASE(the_keeper_tells_whose_files_are_in_a_snapshot, snapshots)
{
    const handle f = make_file("f");
    const handle s = take("one"), other = take("two");
    snapshot_keeper& keeper = *fs->snapshots();
    BOOST_TEST((keeper.takes_in(place()) && !keeper.takes_in(fs->root()) && !keeper.takes_in(s)));
    BOOST_TEST((keeper.has("one", find(s, "f")) && keeper.has("one", s)));
    BOOST_TEST((!keeper.has("one", f) && !keeper.has("one", find(other, "f")) && !keeper.has("three", s)));
}

BOOST_FIXTURE_TEST_CASE(files_of_one_snapshot_are_bounded, snapshots)
{
    for (int i = 0; i < 44; ++i)
        make_file("f" + std::to_string(i));
    make_file("g");
    BOOST_TEST(fails(fs->mkdir(me, place(), "one", {})) == ENOSPC);
    must(fs->remove(me, fs->root(), "g"));
    take("one"); // with the root
    // Files of snapshots are no files of the next one.
    end("one");
    take("two");
}

// Which it is not for its own: nobody's memory is taken for nothing.
BOOST_FIXTURE_TEST_CASE(a_snapshot_that_finds_no_room_says_so_before_peers_are_asked, snapshots)
{
    const handle f = make_file("f", "text");
    const auto mapped = must(fs->map(me, f, 0, block, map_use::write));
    BOOST_TEST(fails(fs->mkdir(me, place(), "one", {})) == EAGAIN);
    for (int i = 0; i < 44; ++i)
        make_file("f" + std::to_string(i));
    BOOST_TEST(fails(fs->mkdir(me, place(), "one", {})) == ENOSPC); // files of a snapshot
    must(fs->remove(me, fs->root(), "f0"));
    BOOST_TEST(fails(fs->mkdir(me, place(), "one", {})) == EAGAIN);
    fill();
    const handle long_named = make_file(std::string(255, 'x'));
    while (free_bytes() > 4 * 1024) // of names
        must(fs->setxattr(me, long_named, std::to_string(free_bytes()),
                          bytes(std::string(std::min<std::uint64_t>(free_bytes() - 2048, 32000), 'x')),
                          xattr_mode::either));
    must(fs->remove(me, fs->root(), "f1"));
    must(fs->remove(me, fs->root(), "f2"));
    BOOST_TEST(fails(fs->mkdir(me, place(), "one", {})) == ENOSPC); // bytes of names
}

BOOST_FIXTURE_TEST_CASE(files_that_snapshots_have_besides_count_before_peers_are_asked, snapshots)
{
    const handle f = make_file("f", "text");
    for (int i = 0; i < 39; ++i)
        make_file("f" + std::to_string(i));
    take("one");
    const auto mapped = must(fs->map(me, f, 0, block, map_use::write));
    BOOST_TEST(fails(fs->mkdir(me, place(), "two", {})) == ENOSPC); // max_files
}

// A file may have a block at several places, by CLONE.
BOOST_FIXTURE_TEST_CASE(a_block_at_two_places_of_a_file_needs_room_when_both_are_written, snapshots)
{
    const handle f = make_file("f", std::string(block, 'a'));
    must(fs->clone(me, f, 0, f, block, block));
    fill();
    const handle s = find(take("one"), "f");
    BOOST_TEST(fails(write(me, f, 0, std::string(2 * block, 'b'))) == ENOSPC);
    BOOST_TEST(fails(fs->deallocate(me, f, 1, 2 * block - 2)) == ENOSPC);
    BOOST_TEST(fails(fs->map(me, f, 0, 2 * block, map_use::write)) == ENOSPC);
    BOOST_TEST(fails(fs->map(me, f, 0, 2 * block, map_use::write_apart)) == ENOSPC);
    BOOST_TEST(held() == 0u);
    put(me, f, block, "b"); // the other place has it still
    BOOST_TEST(fails(write(me, f, 0, "b")) == ENOSPC);
    BOOST_TEST(get(me, s, 0, 2 * block) == std::string(2 * block, 'a'));
}

BOOST_FIXTURE_TEST_CASE(nobody_maps_files_of_a_snapshot_while_it_ends, snapshots)
{
    const handle f = make_file("f", "text");
    const handle one = find(take("one"), "f"), two = find(take("two"), "f");
    snapshot_keeper& keeper = *fs->snapshots();
    BOOST_TEST((keeper.hold_back_mappings_of("three") == nullptr));
    std::shared_ptr<const void> none_else = keeper.hold_back_mappings_of("one");
    BOOST_TEST(fails(fs->map(me, one, 0, block, map_use::read)) == EAGAIN);
    (void)must(fs->map(me, two, 0, block, map_use::read));
    (void)must(fs->map(me, f, 0, block, map_use::read));
    none_else.reset();
    (void)must(fs->map(me, one, 0, block, map_use::read));
    none_else = keeper.hold_back_mappings_of("one");
    end("one");
    none_else.reset();
    (void)must(fs->map(me, two, 0, block, map_use::read));
}

BOOST_AUTO_TEST_CASE(a_snapshot_ends_at_once_and_others_have_turns_while_it_is_freed)
{
    constexpr unsigned files = 2000;
    blocking_pool pool{1};
    auto shard = std::move(reactor::create().value());
    memfs::memfs_options options;
    options.snapshots = true;
    options.max_snapshots = 1;
    auto fs = std::move(memfs::open_memfs(options, pool).value());
    request me;
    me.who = credential(0, 0);
    unsigned seen = 0;
    const auto all = [&]() -> task<void> {
        const auto place = co_await fs->lookup(me, fs->root(), ".snapshot");
        for (unsigned i = 0; i < files; ++i)
            (void)co_await fs->create(me, fs->root(), std::to_string(i), create_mode::guarded, {}, 0);
        const auto before = co_await fs->statfs(me, fs->root());
        const auto taken = co_await fs->mkdir(me, place->found.handle, "one", {});
        BOOST_REQUIRE(taken);
        const auto kept = co_await fs->lookup(me, taken->made.handle, std::to_string(files - 1));
        BOOST_REQUIRE(kept);
        const auto opened = co_await fs->lookup(me, taken->made.handle, std::to_string(files - 2));
        auto open = co_await fs->open(me, opened->found.handle, R_OK, open_right::asked);
        BOOST_REQUIRE(open);
        std::optional<result<change>> ended;
        scope s(*shard);
        s.spawn([&]() -> task<void> {
            ended = co_await fs->rmdir(me, place->found.handle, "one");
            BOOST_TEST(ended->has_value());
        });
        while (!ended) {
            ++seen;
            const auto gone = co_await fs->lookup(me, place->found.handle, "one");
            BOOST_TEST(gone.error().errno_value() == ENOENT);
            const auto stale = co_await fs->getattr(me, kept->found.handle);
            BOOST_TEST(stale.error().errno_value() == ESTALE);
            const auto is_there = co_await fs->getattr(me, opened->found.handle);
            BOOST_TEST(is_there.has_value());
            if (seen == 1) {
                open = error::from_errno(EBADF); // closed before its turn
                const auto closed = co_await fs->getattr(me, opened->found.handle);
                BOOST_TEST(closed.error().errno_value() == ESTALE);
                open = co_await fs->open(me, fs->root(), R_OK, open_right::asked);
                // The next one waits for what is not freed yet.
                const auto next = co_await fs->mkdir(me, place->found.handle, "two", {});
                BOOST_TEST(next.has_value());
            }
            co_await yield();
        }
        co_await s.join();
        (void)co_await fs->rmdir(me, place->found.handle, "two");
        const auto after = co_await fs->statfs(me, fs->root());
        BOOST_TEST(after->free_files == before->free_files);
        BOOST_TEST(after->free_bytes == before->free_bytes);
    };
    run_until_complete(*shard, all());
    BOOST_TEST(seen > 0u);
}

BOOST_FIXTURE_TEST_CASE(where_memory_runs_out_there_is_no_snapshot_or_all_of_it, snapshots)
{
    make_directory(fs->root(), "a directory with a name of more than a few bytes");
    make_file("a file with a name of more than a few bytes", std::string(2 * block, 'a'));
    const std::uint64_t files = free_files(), bytes_free = free_bytes();
    const handle in = place();
    snapshot_keeper& keeper = *fs->snapshots();
    const std::string name = "a snapshot with a name of more than a few bytes";
    const set_attributes none;
    bool is_taken = false;
    int tries = 0;
    for (; !is_taken; ++tries) {
        const auto taking = [&]() -> task<bool> {
            try {
                fails_at = tries + 1;
                task<result<create_result>> making = fs->mkdir(me, in, name, none);
                const auto made = co_await making;
                fails_at = 0;
                co_return made.has_value();
            } catch (const std::bad_alloc&) {
                fails_at = 0;
                co_return false;
            }
        };
        is_taken = run(taking());
        BOOST_TEST(list(in).size() == (is_taken ? 3u : 2u));
        (void)keeper.has(name, in);
        BOOST_TEST(memfs::snapshot_counts_of(*fs).snapshots == (is_taken ? 1u : 0u));
        if (!is_taken)
            BOOST_TEST((free_files() == files && free_bytes() == bytes_free && held() == 0u));
    }
    BOOST_TEST(tries > 10);
    end(name);
    BOOST_TEST((free_files() == files && free_bytes() == bytes_free));
}

// A name leads somewhere, or is not there.
BOOST_FIXTURE_TEST_CASE(where_memory_runs_out_there_is_no_name_or_a_file, snapshots)
{
    const std::string name = "a file with a name of more than a few bytes";
    const std::uint64_t files = free_files(), bytes_free = free_bytes();
    const set_attributes none;
    const handle root = fs->root();
    bool is_made = false;
    int tries = 0;
    for (; !is_made; ++tries) {
        const auto making = [&]() -> task<bool> {
            try {
                fails_at = tries + 1;
                task<result<create_result>> create =
                    fs->create(me, root, name, create_mode::guarded, none, 0);
                const auto made = co_await create;
                fails_at = 0;
                co_return made.has_value();
            } catch (const std::bad_alloc&) {
                fails_at = 0;
                co_return false;
            }
        };
        is_made = run(making());
        BOOST_TEST(list(fs->root()).size() == (is_made ? 3u : 2u));
        if (!is_made)
            BOOST_TEST((free_files() == files && free_bytes() == bytes_free));
    }
    BOOST_TEST(tries > 4);
}

BOOST_AUTO_TEST_CASE(a_name_as_any_other_where_there_are_none)
{
    blocking_pool pool{1};
    auto shard = std::move(reactor::create().value());
    auto fs = std::move(memfs::open_memfs({}, pool).value());
    request me;
    me.who = credential(0, 0);
    BOOST_TEST(fs->snapshots() == nullptr);
    BOOST_TEST(!run_until_complete(*shard, fs->lookup(me, fs->root(), ".snapshot")).has_value());
    BOOST_TEST(run_until_complete(*shard, fs->mkdir(me, fs->root(), ".snapshot", {})).has_value());
    BOOST_TEST(run_until_complete(*shard, fs->lookup(me, fs->root(), ".snapshot")).has_value());
}

BOOST_FIXTURE_TEST_CASE(an_open_file_of_a_snapshot_says_where_it_lies, snapshots)
{
    const handle d = make_directory(fs->root(), "d");
    (void)make_file(me, d, "f");
    // A file that has lost its newest name together with the directory of that.
    const handle gone = make_directory(fs->root(), "gone");
    const handle twice = make_file("twice");
    must(fs->link(me, twice, gone, "newest"));
    must(fs->remove(me, gone, "newest"));
    must(fs->rmdir(me, fs->root(), "gone"));
    const handle root = take("monday");
    const auto in_it = must(fs->open(me, find(find(root, "d"), "f"), R_OK, open_right::asked)).file;
    BOOST_TEST(in_it->path_now() == "/.snapshot/monday/d/f");
    BOOST_TEST(must(fs->open(me, find(root, "twice"), R_OK, open_right::asked)).file->path_now().empty());
    end("monday");
    BOOST_TEST(in_it->path_now().empty());
}
