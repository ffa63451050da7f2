// SPDX-License-Identifier: Apache-2.0
#include "../acl_text.hpp"
#include "extents_fixture.hpp"

#include <verbena/plugins/memfs.hpp>

namespace suite {

std::unique_ptr<file_backend> make_backend(blocking_pool& pool, const backend_options& options)
{
    memfs::memfs_options o;
    o.root_mode = 0777;
    o.read_only = options.read_only;
    o.max_bytes = 8 << 20;
    o.max_files = 1000;
    auto fs = memfs::open_memfs(o, pool);
    BOOST_REQUIRE(fs);
    return std::move(*fs);
}

bool tells_users_apart() { return true; }

} // namespace suite

using namespace suite;

BOOST_FIXTURE_TEST_CASE(space_is_bounded, fixture)
{
    const auto empty = must(fs->statfs(me, fs->root()));
    BOOST_TEST(empty.total_bytes == 8u << 20);
    const handle f = make_file("f");
    const std::string chunk(1 << 20, 'x');
    for (int i = 0; i < 7; ++i)
        put(me, f, std::uint64_t(i) << 20, chunk);
    // The name takes a little of the last block.
    BOOST_TEST(fails(write(me, f, 7 << 20, chunk)) == ENOSPC);
    put(me, f, 7 << 20, std::string_view(chunk).substr(64 << 10));
    BOOST_TEST(fails(write(me, f, 8 << 20, "x")) == ENOSPC);
    BOOST_TEST(must(fs->statfs(me, fs->root())).free_bytes < 64u << 10);
    put(me, f, 100, "there is room within");
    // A hole costs nothing.
    set_attributes set;
    set.size = std::uint64_t(1) << 50;
    must(fs->setattr(me, f, set, std::nullopt));
    must(fs->remove(me, fs->root(), "f"));
    BOOST_TEST(must(fs->statfs(me, fs->root())).free_bytes == 8u << 20);
    BOOST_TEST(must(fs->statfs(me, fs->root())).free_files == empty.free_files);
}

BOOST_FIXTURE_TEST_CASE(a_clone_is_a_file_of_its_own, extents)
{
    const std::uint64_t block = fs->info().clone_block;
    const std::string text = std::string(2 * block, 'a') + "tail";
    const handle from = make_file("from", text);
    const handle to = make_file("to", std::string(3 * block, 'b'));
    const auto free = [&] { return must(fs->statfs(me, fs->root())).free_bytes; };
    const std::uint64_t before = free();
    must(fs->clone(me, from, 0, to, block, block));
    BOOST_TEST((get(me, to, 0, 4 * block) ==
                std::string(block, 'b') + std::string(block, 'a') + std::string(block, 'b')));
    BOOST_TEST(free() == before);
    must(fs->clone(me, from, block, to, 3 * block, 0));
    BOOST_TEST(stat(to).size == 4 * block + 4);
    BOOST_TEST(get(me, to, 4 * block) == "tail");
    // Each pays for its blocks, and so can be written to whatever else there is.
    BOOST_TEST(free() == before - 2 * block);
    put(me, from, block, "changed");
    BOOST_TEST(get(me, to, 3 * block, 7) == "aaaaaaa");
    put(me, to, block, "other");
    BOOST_TEST(get(me, from, 0, 5) == "aaaaa");
    must(fs->deallocate(me, to, 3 * block, 10));
    BOOST_TEST(get(me, from, block, 7) == "changed");
    // Within a file, and holes too.
    must(fs->clone(me, to, 0, to, 2 * block, block));
    BOOST_TEST(get(me, to, 2 * block, 2) == "bb");
    set_attributes empty;
    empty.size = 0;
    must(fs->setattr(me, from, empty, std::nullopt));
    empty.size = 10 * block;
    must(fs->setattr(me, from, empty, std::nullopt));
    must(fs->clone(me, from, 0, to, 0, 0));
    BOOST_TEST(stat(to).used == 0u);
    BOOST_TEST(data(to, 0) == 10 * block);
    must(fs->remove(me, fs->root(), "from"));
    must(fs->remove(me, fs->root(), "to"));
    BOOST_TEST(free() == 8u << 20);
}

BOOST_FIXTURE_TEST_CASE(clones_are_checked, extents)
{
    const std::uint64_t block = fs->info().clone_block;
    const handle from = make_file("from", std::string(2 * block + 4, 'a'));
    const handle to = make_file("to", std::string(3 * block, 'b'));
    const auto refusal = [&](std::uint64_t at, std::uint64_t where, std::uint64_t length) {
        return fails(fs->clone(me, from, at, to, where, length));
    };
    BOOST_TEST(refusal(1, 0, 0) == EINVAL);
    BOOST_TEST(refusal(0, 1, 0) == EINVAL);
    BOOST_TEST(refusal(0, 0, 7) == EINVAL);
    BOOST_TEST(refusal(2 * block, 0, 5) == EINVAL);
    BOOST_TEST(refusal(3 * block, 0, 0) == EINVAL);
    BOOST_TEST(refusal(0, 0, ~std::uint64_t(0)) == EINVAL);
    // The rest of the target's last block would be lost.
    BOOST_TEST(refusal(0, 0, 0) == EINVAL);
    BOOST_TEST(refusal(0, (std::uint64_t(1) << 63) - block, 0) == EFBIG);
    BOOST_TEST(fails(fs->clone(me, from, 0, from, block, 2 * block)) == EINVAL);
    BOOST_TEST((get(me, to, 0, 3 * block) == std::string(3 * block, 'b')));
    const handle big = make_file("big", std::string(80 * block, 'x'));
    BOOST_TEST(fails(fs->clone(me, big, 0, to, 0, 0)) == ENOSPC);
    BOOST_TEST((get(me, to, 0, 3 * block) == std::string(3 * block, 'b')));
}

BOOST_FIXTURE_TEST_CASE(extended_attributes_are_bounded, extents)
{
    const auto free = [&] { return must(fs->statfs(me, fs->root())).free_bytes; };
    const handle f = make_file("f");
    const std::uint64_t before = free();
    const std::string value(65536, 'v');
    BOOST_TEST(set(me, f, "a", value) == 0);
    BOOST_TEST(free() < before - 65536);
    BOOST_TEST(set(me, f, "a", "small") == 0);
    BOOST_TEST(free() > before - 1024);
    BOOST_TEST(fails(fs->removexattr(me, f, "a")) == 0);
    BOOST_TEST(free() == before);
    int count = 0;
    while (count < 1000 && set(me, f, std::to_string(count), value) == 0)
        ++count;
    BOOST_TEST(count > 100);
    BOOST_TEST(set(me, f, "last", value) == ENOSPC);
    must(fs->remove(me, fs->root(), "f"));
    BOOST_TEST(free() == 8u << 20);
    // All names fit one list.
    const handle many = make_file("many");
    const std::string pad(240, 'n');
    count = 0;
    while (count < 1000 && set(me, many, pad + std::to_string(count), "") == 0)
        ++count;
    BOOST_TEST(count > 200);
    BOOST_TEST(count < 300);
}

// To take room is to count, not to fill it: a file of a petabyte is refused at once, one of a gigabyte taken at once.
BOOST_FIXTURE_TEST_CASE(room_that_was_taken_is_there, extents)
{
    const handle f = make_file("f");
    must(fs->allocate(me, f, 0, 7 << 20));
    BOOST_TEST(stat(f).used == 7u << 20);
    BOOST_TEST(data(f, 0) == 7u << 20);
    const handle other = make_file("other");
    const std::string chunk(1 << 20, 'x');
    BOOST_TEST(fails(write(me, other, 0, chunk)) == ENOSPC);
    put(me, f, 3 << 20, chunk);
    BOOST_TEST(stat(f).used == 7u << 20);
    BOOST_TEST(fails(fs->allocate(me, f, 0, 9 << 20)) == ENOSPC);
    must(fs->deallocate(me, f, 0, 7 << 20));
    BOOST_TEST(stat(f).used == 0u);
    put(me, other, 0, chunk);
}

BOOST_FIXTURE_TEST_CASE(files_are_bounded, fixture)
{
    for (int i = 1; i < 1000; ++i)
        make_file("f" + std::to_string(i));
    BOOST_TEST(fails(fs->create(me, fs->root(), "one_more", create_mode::guarded, {}, 0)) == ENOSPC);
    BOOST_TEST(fails(fs->mkdir(me, fs->root(), "one_more", {})) == ENOSPC);
    must(fs->remove(me, fs->root(), "f1"));
    make_file("one_more");
}

// Each of the thousand files could have as many names as a directory has room for.
BOOST_FIXTURE_TEST_CASE(names_and_targets_are_bounded, fixture)
{
    const handle f = make_file("f");
    const auto free = [&] { return must(fs->statfs(me, fs->root())).free_bytes; };
    const std::uint64_t before = free();
    const std::string pad(240, 'n');
    int links = 0;
    while (links < 20000 && fails(fs->link(me, f, fs->root(), pad + std::to_string(links))) == 0)
        ++links;
    BOOST_TEST(links > 8 << 10);
    BOOST_TEST(links < 16 << 10);
    BOOST_TEST(fails(fs->link(me, f, fs->root(), pad)) == ENOSPC);
    BOOST_TEST(fails(fs->symlink(me, fs->root(), "s", std::string(4000, 't'), {})) == ENOSPC);
    BOOST_TEST(fails(fs->create(me, fs->root(), pad + "f", create_mode::guarded, {}, 0)) == ENOSPC);
    // Shorter names make room, longer ones need it.
    must(fs->rename(me, fs->root(), pad + "0", fs->root(), "short"));
    must(fs->rename(me, fs->root(), "short", fs->root(), pad + "0"));
    for (int i = 0; i < links; ++i)
        must(fs->remove(me, fs->root(), pad + std::to_string(i)));
    BOOST_TEST(free() == before);
    must(fs->symlink(me, fs->root(), "s", std::string(4000, 't'), {}));
    BOOST_TEST(before - free() > 4000u);
    BOOST_TEST(fails(fs->symlink(me, fs->root(), "s", "other", {})) == EEXIST);
    must(fs->remove(me, fs->root(), "s"));
    BOOST_TEST(free() == before);

    // A name that takes another's place needs no room.
    make_file("s");
    make_file(pad);
    while (fails(fs->link(me, f, fs->root(), std::to_string(links))) == 0)
        ++links;
    BOOST_TEST(fails(fs->rename(me, fs->root(), "s", fs->root(), pad + "0")) == ENOSPC);
    must(fs->rename(me, fs->root(), "s", fs->root(), pad));
}

BOOST_FIXTURE_TEST_CASE(changes_carry_attributes_from_before, fixture)
{
    const handle f = make_file("f", "x");
    set_attributes set;
    set.mode = 0600;
    auto c = must(fs->setattr(me, f, set, std::nullopt));
    BOOST_REQUIRE(c.before);
    BOOST_TEST(c.before->mode == 0644u);
    BOOST_TEST(c.after->mode == 0600u);
    auto w = must(write(me, f, 1, "y"));
    BOOST_REQUIRE(w.file.before);
    BOOST_TEST(w.file.before->size == 1u);
    BOOST_TEST(w.file.after->size == 2u);
}

BOOST_FIXTURE_TEST_CASE(what_was_cut_off_stays_away, fixture)
{
    const handle f = make_file("f", "secret");
    set_attributes set;
    set.size = 2;
    must(fs->setattr(me, f, set, std::nullopt));
    set.size = 6;
    must(fs->setattr(me, f, set, std::nullopt));
    BOOST_TEST(get(me, f) == std::string("se\0\0\0\0", 6));
}

namespace {

/// Files with ACLs. alice (1000, group 100) owns what is made; bob (1001) is in group 200, carol (1002) in both.
struct with_acls : fixture {
    set_attributes setting(std::string_view text)
    {
        list = test::acl(text);
        set_attributes set;
        set.acl = list;
        return set;
    }
    void give(const handle& f, std::string_view text)
    {
        must(fs->setattr(alice, f, setting(text), std::nullopt));
    }
    std::string told(const handle& f) { return test::text_of(must(fs->getacl(me, f))); }
    /// Whether each of the three may: "a-c".
    template<class Call>
    std::string who_may(Call call)
    {
        std::string out;
        for (const auto& [letter, who] :
             {std::pair('a', &alice), std::pair('b', &bob), std::pair('c', &carol)}) {
            const int failed = call(*who);
            BOOST_TEST((failed == 0 || failed == EACCES || failed == EPERM), failed);
            out += failed == 0 ? letter : '-';
        }
        return out;
    }
    std::string readers(const handle& f)
    {
        std::byte out[8];
        return who_may([&](const request& r) { return fails(fs->read(r, f, 0, out)); });
    }
    std::string writers(const handle& f)
    {
        return who_may([&](const request& r) { return fails(write(r, f, 0, "x")); });
    }
    std::string rights(const handle& f, const request& who)
    {
        const unsigned has = must(fs->access(who, f, R_OK | W_OK | X_OK));
        return std::string((has & R_OK) != 0 ? "r" : "-") + ((has & W_OK) != 0 ? "w" : "-") +
               ((has & X_OK) != 0 ? "x" : "-");
    }
    request alice = user(1000, 100);
    request bob = user(1001, 200);
    request carol = user(1002, 100, {200});
    access_list list;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(an_acl_is_kept_as_given_and_gone_by, with_acls)
{
    BOOST_TEST(fs->info().acls);
    const handle f = make_file(alice, fs->root(), "f", "data", 0640);
    BOOST_TEST(told(f) == "A::OWNER@:rwatTcCy A::GROUP@:rtcy A::EVERYONE@:tcy");
    BOOST_TEST(readers(f) == "a-c");
    struct {
        const char *list, *readers, *writers;
        std::uint32_t mode;
    } const table[] = {
        // A DENY in front of an ALLOW, and behind it.
        {"D::1001:r A::EVERYONE@:r", "a-c", "a--", 0444},
        {"A::EVERYONE@:r D::1001:r", "abc", "a--", 0444},
        {"D::EVERYONE@:w A::1001:rw", "ab-", "a--", 0},
        // The file's group, a group by its number, and all.
        {"A::GROUP@:rwa", "a-c", "a-c", 060},
        {"D::GROUP@:r A::EVERYONE@:rwa", "ab-", "abc", 0626},
        {"A:g:200:rw", "abc", "abc", 0},
        {"D:g:200:r A::EVERYONE@:r", "a--", "a--", 0444},
        {"A::EVERYONE@:rwa", "abc", "abc", 0666},
        // One user by his number; what nobody says anything of is denied.
        {"A::1002:rw", "a-c", "a-c", 0},
        {"A::1001:r", "ab-", "a--", 0},
        {"", "a--", "a--", 0},
        // Who may execute may read.
        {"A::1001:x", "ab-", "a--", 0},
    };
    for (const auto& row : table) {
        give(f, row.list);
        BOOST_TEST_CONTEXT(row.list)
        {
            BOOST_TEST(told(f) == test::text_of(test::acl(row.list)));
            BOOST_TEST(readers(f) == row.readers);
            BOOST_TEST(writers(f) == row.writers); // the owner always, as without an ACL
            BOOST_TEST(stat(f).mode == row.mode);
        }
    }
    // ACCESS goes by it, also where the owner would be let in all the same; and root's is what is his anyway.
    give(f, "D::OWNER@:w A::1001:x A::EVERYONE@:r A::OWNER@:wa");
    BOOST_TEST(rights(f, alice) == "rw-"); // appending is not denied
    BOOST_TEST(rights(f, bob) == "r-x");
    BOOST_TEST(rights(f, carol) == "r--");
    BOOST_TEST(rights(f, me) == "rwx");
    give(f, "A::EVERYONE@:r");
    BOOST_TEST(rights(f, me) == "rw-");
    // To write at the end alone.
    give(f, "A::1001:a");
    BOOST_TEST(rights(f, bob) == "-w-");
    BOOST_TEST(fails(write(bob, f, stat(f).size - 1, "x")) == EACCES);
    BOOST_TEST(fails(write(bob, f, stat(f).size, "x")) == 0);
    BOOST_TEST(fails(write(bob, f, stat(f).size + 10, "x")) == 0);
    BOOST_TEST(fails(write(carol, f, stat(f).size, "x")) == EACCES);
    set_attributes cut;
    cut.size = 0;
    BOOST_TEST(fails(fs->setattr(bob, f, cut, std::nullopt)) == EACCES);
    BOOST_TEST(fails(fs->allocate(bob, f, 0, 1)) == EACCES);
    // An open gives no more.
    {
        const opened_file open = must(fs->open(bob, f, W_OK, open_right::asked));
        request appends = bob;
        appends.open = open.file.get();
        BOOST_TEST(fails(write(appends, f, stat(f).size - 1, "x")) == EACCES);
        BOOST_TEST(fails(write(appends, f, stat(f).size, "x")) == 0);
        BOOST_TEST(fails(fs->setattr(appends, f, cut, std::nullopt)) == EACCES);
    }
    give(f, "A::1001:w");
    must(fs->setattr(bob, f, cut, std::nullopt));
}

BOOST_FIXTURE_TEST_CASE(an_acl_says_who_changes_attributes, with_acls)
{
    const handle f = make_file(alice, fs->root(), "f", "data", 0600);
    const auto tries = [&](const char* given, set_attributes set) {
        give(f, given);
        return fails(fs->setattr(bob, f, set, std::nullopt));
    };
    set_attributes mode, times, touch, owner, group;
    mode.mode = 06755;
    times.mtime.how = set_time::kind::value;
    touch.mtime.how = set_time::kind::server_time;
    BOOST_TEST(tries("A::1001:rwaxtTcoNd", mode) == EPERM);
    BOOST_TEST(tries("A::1001:C", mode) == 0);
    BOOST_TEST(stat(f).mode == 0755u); // nobody else has programs run as the owner
    BOOST_TEST(tries("A::1001:rwaxtTcoNd", setting("A::1001:C")) == EPERM);
    BOOST_TEST(tries("A::1001:rwaxtcCoNd", times) == EPERM);
    BOOST_TEST(tries("A::1001:T", times) == 0);
    BOOST_TEST(tries("A::1001:rx", touch) == EACCES);
    BOOST_TEST(tries("A::1001:w", touch) == 0);
    BOOST_TEST(fails(fs->getacl(bob, f)) == EACCES);
    give(f, "A::1001:c");
    BOOST_TEST(fails(fs->getacl(bob, f)) == 0);
    BOOST_TEST(fails(fs->getacl(carol, f)) == EACCES);
    // The owner can't lock himself out.
    give(f, "D::EVERYONE@:rwaxtTcCo");
    BOOST_TEST(fails(fs->getacl(alice, f)) == 0);
    must(fs->setattr(alice, f, mode, std::nullopt));
    // To take a file, for oneself and a group of one's own.
    owner.uid = 1001;
    group.gid = 200;
    BOOST_TEST(tries("A::1001:rwaxtTcCN", owner) == EPERM);
    BOOST_TEST(tries("A::1001:rwaxtTcCN", group) == EPERM);
    BOOST_TEST(tries("A::1001:o", group) == 0);
    group.gid = 100;
    owner.uid = 1002;
    BOOST_TEST(tries("A::1001:o", group) == EPERM);
    BOOST_TEST(tries("A::1001:o", owner) == EPERM);
    owner.uid = 1001;
    BOOST_TEST(tries("A::1001:o", owner) == 0);
    BOOST_TEST(stat(f).uid == 1001u);
}

BOOST_FIXTURE_TEST_CASE(an_acl_of_a_directory_binds, with_acls)
{
    const handle d = must(fs->mkdir(alice, fs->root(), "d", setting("A::EVERYONE@:x"))).made.handle;
    BOOST_TEST(stat(d).mode == 0111u);
    make_file(me, d, "f");
    const auto tries = [&](const char* given, auto call) {
        give(d, given);
        return call();
    };
    const handle f = find(d, "f");
    listing l;
    const auto finds = [&] { return fails(fs->lookup(bob, d, "f")); };
    const auto lists = [&] { return fails(fs->readdir(bob, d, 0, 0, true, l)); };
    const auto makes = [&] { return fails(fs->create(bob, d, "g", create_mode::unchecked, {}, 0)); };
    const auto makes_directory = [&] { return fails(fs->mkdir(bob, d, "e", {})); };
    const auto links = [&] { return fails(fs->link(bob, f, d, "h")); };
    BOOST_TEST(tries("A::1001:r D::1001:x A::EVERYONE@:x", finds) == EACCES);
    BOOST_TEST(tries("A::1001:x", finds) == 0);
    BOOST_TEST(tries("A::1001:x", lists) == EACCES);
    BOOST_TEST(tries("A::1001:r", lists) == 0);
    BOOST_TEST(l.attrs.empty()); // to see what is in it takes the right to search
    BOOST_TEST(tries("A::1001:xa", makes) == EACCES);
    BOOST_TEST(tries("A::1001:xa", links) == EACCES);
    BOOST_TEST(tries("A::1001:xw", links) == 0);
    BOOST_TEST(tries("A::1001:xw", makes) == 0);
    BOOST_TEST(tries("A::1001:xw", makes_directory) == EACCES);
    BOOST_TEST(tries("A::1001:xa", makes_directory) == 0);
    const auto moves = [&] { return fails(fs->rename(bob, fs->root(), "m", d, "m")); };
    const auto moves_directory = [&] { return fails(fs->rename(bob, fs->root(), "n", d, "n")); };
    make_file(bob, fs->root(), "m");
    set_attributes all;
    all.mode = 0777;
    must(fs->mkdir(bob, fs->root(), "n", all));
    BOOST_TEST(tries("A::1001:xa", moves) == EACCES);
    BOOST_TEST(tries("A::1001:xw", moves) == 0);
    BOOST_TEST(tries("A::1001:xw", moves_directory) == EACCES);
    BOOST_TEST(tries("A::1001:xa", moves_directory) == 0);
}

// 8881 6.2.1.3.2.
BOOST_FIXTURE_TEST_CASE(who_may_remove, with_acls)
{
    const handle d = must(fs->mkdir(alice, fs->root(), "d", setting("A::EVERYONE@:x"))).made.handle;
    struct {
        const char *directory, *file;
        int plain, sticky; // how bob fails to remove alice's file
    } const table[] = {
        {"A::1001:x", nullptr, EACCES, EACCES}, {"A::1001:xw", nullptr, 0, EPERM},
        {"A::1001:xD", nullptr, 0, 0},          {"A::1001:xw D::1001:D", nullptr, EACCES, EACCES},
        {"A::1001:x", "A::1001:d", 0, 0},       {"A::1001:xw", "D::1001:d", EACCES, EACCES},
        {"A::1001:xD", "D::1001:d", 0, 0},      {"A::1001:x D::1001:D", "A::1001:d", 0, 0},
        {"A::1001:xw", "A::1002:d", 0, EPERM},  {"D::1001:x", "A::1001:d", EACCES, EACCES},
    };
    for (const auto& row : table) {
        for (const bool sticky : {false, true}) {
            set_attributes set = setting(row.directory);
            set.mode = sticky ? 01000 : 0;
            must(fs->setattr(alice, d, set, std::nullopt));
            const handle f = make_file(me, d, "f");
            must(fs->setattr(
                me, f,
                [] {
                    set_attributes s;
                    s.uid = 1000;
                    return s;
                }(),
                std::nullopt));
            if (row.file != nullptr)
                give(f, row.file);
            BOOST_TEST_CONTEXT(row.directory << " and " << (row.file != nullptr ? row.file : "a mode")
                                             << (sticky ? ", sticky" : ""))
            {
                const int wanted = sticky ? row.sticky : row.plain;
                BOOST_TEST(fails(fs->rename(bob, d, "f", fs->root(), "moved")) == wanted);
                if (wanted == 0)
                    must(fs->rename(me, fs->root(), "moved", d, "f"));
                BOOST_TEST(fails(fs->remove(bob, d, "f")) == wanted);
                if (wanted != 0)
                    must(fs->remove(me, d, "f"));
            }
        }
    }
}

// The right to remove what has a name is none to put something else there.
BOOST_FIXTURE_TEST_CASE(who_may_take_a_name, with_acls)
{
    struct {
        const char *directory, *victim;
        int file, subdirectory; // how bob fails to rename onto alice's
    } const table[] = {
        {"A::1001:x", "A::1001:d", EACCES, EACCES},
        {"A::1001:xD", nullptr, EACCES, EACCES},
        {"D::1001:wa A::1001:xD", nullptr, EACCES, EACCES},
        {"A::1001:xwD", nullptr, 0, EACCES},
        {"A::1001:xaD", nullptr, EACCES, 0},
        {"A::1001:xwa", "A::1001:d", 0, 0},
    };
    for (const auto& row : table) {
        const handle d = must(fs->mkdir(alice, fs->root(), "d", setting(row.directory))).made.handle;
        for (const bool directories : {false, true}) {
            const auto make = [&](const handle& in, const request& r, const char* name) {
                set_attributes mode;
                mode.mode = 0777;
                return directories ? must(fs->mkdir(r, in, name, mode)).made.handle
                                   : make_file(r, in, name, "", 0777);
            };
            set_attributes to_alice;
            to_alice.uid = 1000;
            const handle victim = make(d, me, "f");
            must(fs->setattr(me, victim, to_alice, std::nullopt));
            if (row.victim != nullptr)
                give(victim, row.victim);
            const handle mine = make(fs->root(), bob, "mine");
            BOOST_TEST_CONTEXT(row.directory << (directories ? ", a directory" : ", a file"))
            {
                const int wanted = directories ? row.subdirectory : row.file;
                BOOST_TEST(fails(fs->rename(bob, fs->root(), "mine", d, "f")) == wanted);
                BOOST_TEST((find(d, "f") == (wanted == 0 ? mine : victim)));
            }
            for (const auto& [in, name] : {std::pair(fs->root(), "mine"), std::pair(d, "f")})
                fails(directories ? fs->rmdir(me, in, name) : fs->remove(me, in, name));
        }
        must(fs->rmdir(me, fs->root(), "d"));
    }
}

// What chmod may not, an ACL may not either: have programs run as somebody else.
BOOST_FIXTURE_TEST_CASE(an_acl_leaves_no_more_set_id_bits_than_a_mode, with_acls)
{
    const handle f = make_file(alice, fs->root(), "f", "data");
    const auto mode_after = [&](std::uint32_t mode, std::uint32_t uid, std::uint32_t gid, const request& r,
                                std::string_view text) {
        set_attributes set;
        set.uid = uid;
        set.gid = gid;
        must(fs->setattr(me, f, set, std::nullopt));
        set = setting("A::1001:C");
        set.mode = mode;
        must(fs->setattr(me, f, set, std::nullopt));
        must(fs->setattr(r, f, setting(text), std::nullopt));
        return stat(f).mode;
    };
    BOOST_TEST(mode_after(02640, 1001, 100, bob, "A::OWNER@:rx A::GROUP@:x A::EVERYONE@:x") == 0511u);
    BOOST_TEST(mode_after(02640, 1001, 200, bob, "A::OWNER@:rx A::GROUP@:x") == 02510u);
    BOOST_TEST(mode_after(02640, 1001, 100, me, "A::OWNER@:rx A::GROUP@:x") == 02510u);
    BOOST_TEST(mode_after(04700, 1000, 200, bob, "A::1001:x") ==
               0u); // he holds WRITE_ACL, and is not the owner
    BOOST_TEST(mode_after(06700, 1000, 200, bob, "A::1001:x") == 0u);
    // And at the creation, below a directory whose group bob is not in.
    set_attributes set;
    set.mode = 02777;
    const handle d = must(fs->mkdir(alice, fs->root(), "d", set)).made.handle;
    set = setting("A::GROUP@:x");
    set.mode = 02644;
    const handle given = must(fs->create(bob, d, "given", create_mode::guarded, set, 0)).made.handle;
    BOOST_TEST(stat(given).gid == 100u);
    BOOST_TEST(stat(given).mode == 010u);
    BOOST_TEST(stat(must(fs->create(carol, d, "carols", create_mode::guarded, set, 0)).made.handle).mode ==
               02010u);
    set.mode = 0;
    BOOST_TEST(stat(must(fs->mkdir(bob, d, "sub", set)).made.handle).mode ==
               02010u); // as below any such directory
    give(d, "A:f:GROUP@:x A::EVERYONE@:rwaxD");
    set_attributes masked;
    masked.mode = 02777;
    masked.umask = 010;
    BOOST_TEST(stat(must(fs->create(bob, d, "masked", create_mode::guarded, masked, 0)).made.handle).mode ==
               0777u);
}

// 8881 6.4.1.
BOOST_FIXTURE_TEST_CASE(mode_and_acl_go_together, with_acls)
{
    const handle f = make_file(alice, fs->root(), "f", "data");
    set_attributes set;
    set.mode = 04700;
    must(fs->setattr(alice, f, set, std::nullopt));
    give(f, "D::1002:w A::1001:rwa A::1002:rwa A::OWNER@:r A::GROUP@:r");
    BOOST_TEST(stat(f).mode == 04440u);
    set.mode = 0640;
    must(fs->setattr(alice, f, set, std::nullopt));
    BOOST_TEST(stat(f).mode == 0640u);
    BOOST_TEST(told(f) == "A::OWNER@:rwatTcCy D::1002:w A::1001:r A::1002:r A::GROUP@:rtcy A::EVERYONE@:tcy");
    BOOST_TEST(readers(f) == "abc");
    BOOST_TEST(writers(f) == "a--");
    set.mode = 0600;
    must(fs->setattr(alice, f, set, std::nullopt));
    BOOST_TEST(readers(f) == "a--");
    // Both at once: the mode first.
    set = setting("A::1001:r A::OWNER@:x");
    set.mode = 02666;
    must(fs->setattr(alice, f, set, std::nullopt));
    BOOST_TEST(stat(f).mode == 02100u);
    BOOST_TEST(told(f) == "A::1001:r A::OWNER@:x");
    const auto before = stat(f).ctime;
    give(f, "A::1001:r A::OWNER@:x");
    BOOST_TEST((stat(f).ctime != before));
}

// 8881 6.4.3.
BOOST_FIXTURE_TEST_CASE(an_acl_is_inherited, with_acls)
{
    const handle d = must(fs->mkdir(alice, fs->root(), "d",
                                    setting("A:fd:1001:rwaxD A:fi:GROUP@:r A:dn:1002:rx A::EVERYONE@:rwax")))
                         .made.handle;
    set_attributes mode;
    mode.mode = 0666;
    mode.umask = 077; // which has no part in it (8275)
    const handle f = must(fs->create(alice, d, "f", create_mode::guarded, mode, 0)).made.handle;
    BOOST_TEST(told(f) == "A::OWNER@:rwatTcCy A::1001:rwaD A::GROUP@:rwatcy A::EVERYONE@:rwatcy");
    BOOST_TEST(stat(f).mode == 0666u);
    mode.mode = 0640;
    const handle less = must(fs->create(alice, d, "less", create_mode::exclusive, mode, 7)).made.handle;
    BOOST_TEST(told(less) == "A::OWNER@:rwatTcCy A::1001:r A::GROUP@:rtcy A::EVERYONE@:tcy");
    BOOST_TEST(readers(less) == "abc");
    BOOST_TEST(writers(less) == "a--");
    // Without a mode it is what is inherited.
    const handle plain = must(fs->create(alice, d, "plain", create_mode::guarded, {}, 0)).made.handle;
    BOOST_TEST(told(plain) == "A::1001:rwaxD A::GROUP@:r");
    BOOST_TEST(stat(plain).mode == 040u);
    const handle sub = must(fs->mkdir(alice, d, "sub", {})).made.handle;
    BOOST_TEST(told(sub) == "A:fd:1001:rwaxD A:fi:GROUP@:r A::1002:rx");
    const handle deep = must(fs->mkdir(bob, sub, "deep", {})).made.handle;
    BOOST_TEST(told(deep) == "A:fd:1001:rwaxD A:fi:GROUP@:r");
    // What is only handed on leaves the directory its mode.
    give(d, "A:fdi:1001:r A:fi:1002:r A::EVERYONE@:rwax");
    const handle passes = must(fs->mkdir(alice, d, "passes", {})).made.handle;
    BOOST_TEST(told(passes) == "A:fd:1001:r A:fi:1002:r");
    give(d, "A:fi:1002:r A::EVERYONE@:rwax");
    const handle only = must(fs->mkdir(alice, d, "only", {})).made.handle;
    BOOST_TEST(stat(only).mode == 0700u);
    BOOST_TEST(told(only) == "A::OWNER@:rwaxtTcCy A:fi:1002:r A::GROUP@:tcy A::EVERYONE@:tcy");
    // An ACL of its own takes the place of all that, and what hands nothing on leaves a mode alone.
    const handle own =
        must(fs->create(alice, d, "own", create_mode::guarded, setting("A::1002:r"), 0)).made.handle;
    BOOST_TEST(told(own) == "A::1002:r");
    give(d, "A::EVERYONE@:rwax");
    mode.mode = 0666;
    const handle without = must(fs->create(alice, d, "without", create_mode::guarded, mode, 0)).made.handle;
    BOOST_TEST(stat(without).mode == 0600u);
    // A symbolic link has none.
    give(d, "A:fd:1001:r A::EVERYONE@:rwax");
    const handle link = must(fs->symlink(alice, d, "link", "f", {})).made.handle;
    BOOST_TEST(told(link) == "A::OWNER@:rwaxtTcCy A::GROUP@:rwaxtcy A::EVERYONE@:rwaxtcy");
    BOOST_TEST(fails(fs->setattr(alice, link, setting("A::1001:r"), std::nullopt)) == EOPNOTSUPP);
    BOOST_TEST(fails(fs->setattr(alice, f, setting("A:f:1001:r"), std::nullopt)) == EOPNOTSUPP);
}

BOOST_FIXTURE_TEST_CASE(acls_take_room, with_acls)
{
    const auto free = [&] { return must(fs->statfs(me, fs->root())).free_bytes; };
    const std::uint64_t before = free();
    const handle d = must(fs->mkdir(alice, fs->root(), "d", {})).made.handle;
    const std::uint64_t plain = free();
    access_list many(1000, test::acl("A:fd:EVERYONE@:rwaxo")[0]);
    set_attributes set;
    set.acl = many;
    must(fs->setattr(alice, d, set, std::nullopt));
    BOOST_TEST(free() == plain - 1000 * sizeof(ace));
    const handle f = must(fs->create(alice, d, "f", create_mode::guarded, {}, 0)).made.handle;
    BOOST_TEST(free() < plain - 2000 * sizeof(ace));
    give(f, "A::1001:r");
    // Until there is none; what has no room is not set.
    put(me, f, 0, std::string(free() / (64 << 10) * (64 << 10), 'x'));
    int files = 0;
    while (fails(fs->create(alice, d, std::to_string(files), create_mode::guarded, {}, 0)) == 0)
        ++files;
    BOOST_TEST(files < 8);
    many.resize(1000 + free() / sizeof(ace) + 1);
    set.acl = many;
    BOOST_TEST(fails(fs->setattr(alice, d, set, std::nullopt)) == ENOSPC);
    // A mode parts what is handed on, too, and so needs room.
    int links = 0;
    while (fails(fs->symlink(alice, d, "s" + std::to_string(links), std::string(1000, 't'), {})) == 0)
        ++links;
    set_attributes mode;
    mode.mode = 0700;
    BOOST_TEST(fails(fs->setattr(alice, d, mode, std::nullopt)) == ENOSPC);
    BOOST_TEST(stat(d).mode == 0777u);
    for (int i = 0; i < links; ++i)
        must(fs->remove(alice, d, "s" + std::to_string(i)));
    for (int i = 0; i < files; ++i)
        must(fs->remove(alice, d, std::to_string(i)));
    must(fs->remove(alice, d, "f"));
    must(fs->rmdir(alice, fs->root(), "d"));
    BOOST_TEST(free() == before);
}

BOOST_FIXTURE_TEST_CASE(an_open_file_says_where_it_lies_now, fixture)
{
    const auto open = [&](const handle& f) { return must(fs->open(me, f, R_OK, open_right::asked)).file; };
    const handle d = make_directory(fs->root(), "d");
    const handle in_it = make_directory(d, "sub");
    const auto o = open(make_file(me, in_it, "f"));
    BOOST_TEST(o->path_now() == "/d/sub/f");
    must(fs->rename(me, fs->root(), "d", fs->root(), "e"));
    BOOST_TEST(o->path_now() == "/e/sub/f");
    must(fs->rename(me, in_it, "f", fs->root(), "g"));
    BOOST_TEST(o->path_now() == "/g");
    // Another file takes the name.
    (void)make_file("h");
    must(fs->rename(me, fs->root(), "h", fs->root(), "g"));
    BOOST_TEST(o->path_now().empty());
    // The directory where it had its name is gone.
    const auto nameless = open(make_file(me, in_it, "n"));
    must(fs->remove(me, in_it, "n"));
    must(fs->rmdir(me, d, "sub"));
    BOOST_TEST(nameless->path_now().empty());
}
