// SPDX-License-Identifier: Apache-2.0
#include "../acl_text.hpp"
#include "backend_fixture.hpp"
#include "needs_root.hpp"
#include "temporary_directory.hpp"

#include <verbena/core/task/scope.hpp>
#include <verbena/plugins/posixfs.hpp>

#include <atomic>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace suite {

std::unique_ptr<file_backend> make_backend(blocking_pool& pool, const backend_options& options)
{
    static std::unique_ptr<temporary_directory> directory;
    if (!options.read_only)
        directory = std::make_unique<temporary_directory>();
    posixfs::posixfs_options o;
    o.root = directory->path();
    o.read_only = options.read_only;
    o.async = options.async;
    auto fs = posixfs::open_posixfs(o, pool);
    BOOST_REQUIRE_MESSAGE(fs, (fs ? std::string() : fs.error().message()));
    return std::move(*fs);
}

bool tells_users_apart() { return ::geteuid() == 0; }

} // namespace suite

using namespace suite;

namespace {

std::atomic<bool> refuses_more{false};

} // namespace

// In place of libc's: there may be no room.
extern "C" int ftruncate(int fd, off_t size) noexcept
{
    errno = EFBIG;
    return refuses_more ? -1 : int(::syscall(SYS_ftruncate, fd, size));
}
extern "C" int fchownat(int fd, const char* path, uid_t uid, gid_t gid, int flags) noexcept
{
    errno = EDQUOT;
    return refuses_more ? -1 : int(::syscall(SYS_fchownat, fd, path, uid, gid, flags));
}

namespace {

/// A back end on a directory that outlives it.
struct restartable : fixture {
    restartable() { restart(); }
    void restart(posixfs::handle_mode handles = posixfs::handle_mode::automatic, std::size_t paths = 1000,
                 bool crossmnt = false)
    {
        fs.reset();
        posixfs::posixfs_options o;
        o.root = directory.path();
        o.handles = handles;
        o.path_table_entries = paths;
        o.crossmnt = crossmnt;
        auto opened = posixfs::open_posixfs(o, pool);
        BOOST_REQUIRE_MESSAGE(opened, (opened ? std::string() : opened.error().message()));
        fs = std::move(*opened);
    }
    temporary_directory directory;
};

task<void> write_stably(file_backend& fs, const request& r, const handle& file, unsigned& good)
{
    const std::byte data{'x'};
    const std::span<const std::byte> piece(&data, 1);
    auto written = co_await fs.write(r, file, 0, std::span(&piece, 1), stability::file_sync);
    good += written && written->file.after ? 1 : 0;
}

/// Writes that all find the file not yet open for writing.
task<unsigned> write_at_once(file_backend& fs, const request& r, const handle& file, unsigned count)
{
    unsigned good = 0;
    const task_context& context = co_await current_context();
    scope writes(*context.shard);
    for (unsigned i = 0; i < count; ++i)
        writes.spawn([&] { return write_stably(fs, r, file, good); });
    co_await writes.join();
    co_return good;
}

} // namespace

// ext4 and tmpfs, of which TMPDIR mostly is, share no extents.
BOOST_FIXTURE_TEST_CASE(times_of_birth_are_those_of_the_file_system, restartable)
{
    struct statx x{};
    BOOST_REQUIRE(::statx(AT_FDCWD, directory.path().c_str(), 0, STATX_BTIME, &x) == 0);
    BOOST_TEST(fs->info().birth_times == ((x.stx_mask & STATX_BTIME) != 0));
    const handle f = make_file("f");
    BOOST_REQUIRE(::statx(AT_FDCWD, (directory.path() / "f").c_str(), 0, STATX_BTIME, &x) == 0);
    if ((x.stx_mask & STATX_BTIME) != 0)
        BOOST_TEST((stat(f).birth == file_time{x.stx_btime.tv_sec, x.stx_btime.tv_nsec}));
    BOOST_TEST(fs->info().lasting_handles);
    restart(posixfs::handle_mode::path_table);
    BOOST_TEST(!fs->info().lasting_handles);
}

BOOST_FIXTURE_TEST_CASE(a_clone_shares_what_it_can_or_says_so, restartable)
{
    const std::uint64_t block = fs->info().clone_block;
    BOOST_TEST_REQUIRE(block != 0u);
    const handle from = make_file("from", std::string(block, 'a') + "tail");
    const handle to = make_file("to");
    const int how = fails(fs->clone(me, from, 0, to, 0, 0));
    BOOST_TEST((how == 0 || how == EOPNOTSUPP));
    BOOST_TEST(get(me, to) == (how == 0 ? std::string(block, 'a') + "tail" : ""));
    BOOST_TEST(fails(fs->clone(me, from, 0, fs->root(), 0, 0)) == EISDIR);
}

// RFC 8275 4: where a directory says what is inherited, the umask has no part in it.
BOOST_FIXTURE_TEST_CASE(a_default_acl_decides_instead_of_the_umask, restartable)
{
    struct entry {
        std::uint16_t tag, rights;
        std::uint32_t id;
    };
    struct {
        std::uint32_t version = 2;
        entry entries[3] = {{1, 7, ~0u}, {4, 6, ~0u}, {0x20, 4, ~0u}}; // owner, group, others
    } acl;
    const handle d = make_directory(fs->root(), "d");
    BOOST_TEST_REQUIRE(
        ::setxattr((directory.path() / "d").c_str(), "system.posix_acl_default", &acl, sizeof(acl), 0) == 0);
    set_attributes set;
    set.mode = 0666;
    set.umask = 077;
    BOOST_TEST(must(fs->create(me, d, "f", create_mode::guarded, set, 0)).made.attrs->mode == 0664u);
    BOOST_TEST(must(fs->create(me, fs->root(), "f", create_mode::guarded, set, 0)).made.attrs->mode == 0600u);
}

namespace {

/// The value of an extended attribute in hexadecimal digits; "none" where there is no such.
std::string xattr_of(const std::filesystem::path& path, const char* name)
{
    std::array<unsigned char, 1024> value;
    const ssize_t n = ::getxattr(path.c_str(), name, value.data(), value.size());
    if (n < 0)
        return errno == ENODATA ? "none" : std::to_string(errno);
    std::string out;
    for (ssize_t i = 4; i < n; i += 8) {
        const auto* entry = value.data() + i;
        out += std::to_string(entry[0]) + ":" + std::to_string(entry[2]);
        if (entry[0] == 2 || entry[0] == 8)
            out += "(" + std::to_string(entry[4] | entry[5] << 8) + ")";
        out += ' ';
    }
    return out;
}

struct with_acls : restartable {
    with_acls()
    {
        BOOST_REQUIRE_MESSAGE(fs->info().acls, "the file system of TMPDIR has no ACLs: choose another one");
        needs_root("to be several users");
    }
    set_attributes setting(std::string_view text)
    {
        list = test::acl(text);
        set_attributes set;
        set.acl = list;
        return set;
    }
    std::string told(const handle& f) { return test::text_of(must(fs->getacl(me, f))); }
    std::string access_of(const char* name) { return xattr_of(directory.path() / name, access); }
    std::string default_of(const char* name) { return xattr_of(directory.path() / name, inherited); }

    static constexpr const char* access = "system.posix_acl_access";
    static constexpr const char* inherited = "system.posix_acl_default";
    request alice = user(1000, 100);
    request bob = user(1001, 200);
    access_list list;
};

} // namespace

// What is set is the kernel's own: local processes see it, and it is the kernel that goes by it.
BOOST_FIXTURE_TEST_CASE(an_acl_is_a_posix_acl_of_the_file, with_acls)
{
    const handle f = make_file(alice, fs->root(), "f", "data", 0640);
    BOOST_TEST(told(f) == "A::OWNER@:rwatTcCy A::GROUP@:rtcy A::EVERYONE@:tcy");
    std::byte out[8];
    BOOST_TEST(fails(fs->read(bob, f, 0, out)) == EACCES);
    const auto changed =
        must(fs->setattr(alice, f, setting("A::OWNER@:rwa A::1001:r A:g:300:rx A::GROUP@:r"), std::nullopt));
    BOOST_TEST(access_of("f") == "1:6 2:4(1001) 4:4 8:5(300) 16:5 32:0 ");
    BOOST_TEST(changed.after->mode == 0650u); // the group's bits show the mask
    BOOST_TEST(told(f) == "D::OWNER@:x A::OWNER@:rwatTcCy D::1001:x A::1001:rtcy A::GROUP@:rtcy "
                          "A:g:300:rxtcy A::EVERYONE@:tcy");
    BOOST_TEST(must(fs->access(bob, f, R_OK | W_OK | X_OK)) == unsigned(R_OK));
    BOOST_TEST(get(bob, f) == "data");
    // A mode takes the mask along, here and in what is read.
    set_attributes mode;
    mode.mode = 0600;
    must(fs->setattr(alice, f, mode, std::nullopt));
    BOOST_TEST(access_of("f") == "1:6 2:4(1001) 4:4 8:5(300) 16:0 32:0 ");
    BOOST_TEST(told(f) == "A::OWNER@:rwatTcCy A::1001:tcy A::GROUP@:tcy A:g:300:tcy A::EVERYONE@:tcy");
    BOOST_TEST(fails(fs->read(bob, f, 0, out)) == EACCES);
    // With both the mode comes first; what names nobody is a mode alone.
    set_attributes both = setting("A::OWNER@:rwa A::EVERYONE@:r");
    both.mode = 0777;
    must(fs->setattr(alice, f, both, std::nullopt));
    BOOST_TEST(stat(f).mode == 0644u);
    BOOST_TEST(access_of("f") == "none");
}

BOOST_FIXTURE_TEST_CASE(who_may_set_an_acl, with_acls)
{
    const handle f = make_file(alice, fs->root(), "f", "data", 0666);
    BOOST_TEST(fails(fs->setattr(bob, f, setting("A::1001:r"), std::nullopt)) == EPERM);
    // Nothing is cut off for a list that is refused then.
    set_attributes cut = setting("A::1001:r");
    cut.size = 0;
    BOOST_TEST(fails(fs->setattr(bob, f, cut, std::nullopt)) == EPERM);
    cut = setting("D::1001:t");
    cut.size = 0;
    BOOST_TEST(fails(fs->setattr(alice, f, cut, std::nullopt)) == EOPNOTSUPP);
    BOOST_TEST(get(alice, f) == "data");
    BOOST_TEST(access_of("f") == "none");
    BOOST_TEST(stat(f).mode == 0666u);
    must(fs->setattr(me, f, setting("A::1001:r"), std::nullopt));
    // Root may. What the file can't have:
    BOOST_TEST(fails(fs->setattr(alice, f, setting("A:f:1001:r"), std::nullopt)) == EOPNOTSUPP);
    const handle link = must(fs->symlink(alice, fs->root(), "link", "f", {})).made.handle;
    BOOST_TEST(fails(fs->setattr(alice, link, setting("A::1001:r"), std::nullopt)) == EOPNOTSUPP);
    BOOST_TEST(told(link) == "A::OWNER@:rwaxtTcCy A::GROUP@:rwaxtcy A::EVERYONE@:rwaxtcy");
    BOOST_TEST(access_of("f") == "1:0 2:4(1001) 4:0 16:4 32:0 ");
}

BOOST_FIXTURE_TEST_CASE(what_is_inherited_is_the_default_acl, with_acls)
{
    const char* const given =
        "A::OWNER@:rwaxD A::EVERYONE@:rx A:fdi:OWNER@:rwaxD A:fdi:1001:rwaxD A:fdi:GROUP@:rx";
    const handle d = must(fs->mkdir(alice, fs->root(), "d", setting(given))).made.handle;
    BOOST_TEST(access_of("d") == "none");
    BOOST_TEST(default_of("d") == "1:7 2:7(1001) 4:5 16:7 32:0 ");
    BOOST_TEST(told(d) == "A::OWNER@:rwaxDtTcCy A::GROUP@:rxtcy A::EVERYONE@:rxtcy "
                          "A:fdi:OWNER@:rwaxDtTcCy A:fdi:1001:rwaxDtcy A:fdi:GROUP@:rxtcy "
                          "A:fdi:EVERYONE@:tcy");
    set_attributes mode;
    mode.mode = 0660;
    const handle f = must(fs->create(alice, d, "f", create_mode::guarded, mode, 0)).made.handle;
    BOOST_TEST(access_of("d/f") == "1:6 2:7(1001) 4:5 16:6 32:0 ");
    BOOST_TEST(told(f) == "A::OWNER@:rwatTcCy A::1001:rwatcy A::GROUP@:rtcy A::EVERYONE@:tcy");
    must(fs->mkdir(alice, d, "sub", mode));
    BOOST_TEST(default_of("d/sub") == "1:7 2:7(1001) 4:5 16:7 32:0 ");
    // A list of its own takes the place of what it would inherit.
    must(fs->create(alice, d, "own", create_mode::guarded, setting("A::OWNER@:rwa A::1002:r"), 0));
    BOOST_TEST(access_of("d/own") == "1:6 2:4(1002) 4:0 16:4 32:0 ");
    must(fs->mkdir(alice, d, "plain", setting("A::OWNER@:rwaxD")));
    BOOST_TEST(default_of("d/plain") == "none");
    // What can't be had is not made.
    BOOST_TEST(fails(fs->create(alice, d, "none", create_mode::guarded, setting("A:fd:1002:r"), 0)) ==
               EOPNOTSUPP);
    BOOST_TEST(fails(fs->mkdir(alice, d, "none", setting("A:fdn:1002:r"))) == EOPNOTSUPP);
    BOOST_TEST(fails(fs->lookup(alice, d, "none")) == ENOENT);
    // Without such entries it goes.
    must(fs->setattr(alice, d, setting("A::OWNER@:rwaxD"), std::nullopt));
    BOOST_TEST(default_of("d") == "none");
    must(fs->setattr(alice, d, setting("A::OWNER@:rwaxD"), std::nullopt));
}

// More entries than most lists have, which lie in more room.
BOOST_FIXTURE_TEST_CASE(a_long_acl_is_read_whole, with_acls)
{
    const handle f = make_file(alice, fs->root(), "f");
    std::string text = "A::OWNER@:rwa";
    for (int i = 0; i < 300; ++i)
        text += " A::" + std::to_string(5000 + i) + ":r";
    must(fs->setattr(alice, f, setting(text), std::nullopt));
    BOOST_TEST(must(fs->getacl(me, f)).size() == 303u);
    // One that the file system has no room for is refused as a whole.
    for (int i = 300; i < 9000; ++i)
        text += " A::" + std::to_string(5000 + i) + ":r";
    const int refused = fails(fs->setattr(alice, f, setting(text), std::nullopt));
    BOOST_TEST((refused == ENOSPC || refused == E2BIG || refused == EINVAL), refused);
    BOOST_TEST(must(fs->getacl(me, f)).size() == 303u);
}

// Nothing else is done before it, and nobody has more meanwhile.
BOOST_FIXTURE_TEST_CASE(an_acl_that_fails_leaves_all_as_it_was, with_acls)
{
    std::string many = "A::OWNER@:rwa";
    for (int i = 0; i < 9000; ++i)
        many += " A::" + std::to_string(5000 + i) + ":r";
    const handle f = make_file(alice, fs->root(), "f", "data", 0640);
    set_attributes set = setting(many);
    set.mode = 0666;
    set.size = 0;
    set.gid = 100;
    BOOST_TEST(fails(fs->setattr(alice, f, set, std::nullopt)) != 0);
    BOOST_TEST(stat(f).mode == 0640u);
    BOOST_TEST(get(alice, f) == "data");
    // Who may not have the rest of it has no ACL either.
    set = setting("A::OWNER@:r A::1001:r");
    set.uid = 1001;
    BOOST_TEST(fails(fs->setattr(alice, f, set, std::nullopt)) == EPERM);
    BOOST_TEST(access_of("f") == "none");
    // Nor has one who may, where the kernel has no room for the rest.
    must(fs->setattr(alice, f, setting("A::OWNER@:rwa A::1002:rwa A::GROUP@:r"), std::nullopt));
    for (const bool size : {true, false}) {
        set = setting("A::OWNER@:r A::1001:r");
        if (size)
            set.size = 2'000'000;
        else
            set.gid = 100;
        refuses_more = true;
        BOOST_TEST(fails(fs->setattr(alice, f, set, std::nullopt)) == (size ? EFBIG : EDQUOT));
        refuses_more = false;
        BOOST_TEST(access_of("f") == "1:6 2:6(1002) 4:4 16:6 32:0 ");
        BOOST_TEST(stat(f).mode == 0660u);
    }
    must(fs->setattr(alice, f, setting("A::OWNER@:rwa A::GROUP@:r"), std::nullopt));
    BOOST_TEST(access_of("f") == "none");
    // Of a directory's two lists both are set or none.
    const handle d = must(fs->mkdir(alice, fs->root(), "d", setting("A:fd:OWNER@:rwaxD"))).made.handle;
    BOOST_TEST(fails(fs->setattr(alice, d, setting(many + " A:fdi:1001:r"), std::nullopt)) != 0);
    BOOST_TEST(default_of("d") == "1:7 4:0 32:0 ");
    set = setting("A:fdi:1001:rx");
    set.gid = 100;
    refuses_more = true;
    BOOST_TEST(fails(fs->setattr(alice, d, set, std::nullopt)) == EDQUOT);
    refuses_more = false;
    BOOST_TEST(default_of("d") == "1:7 4:0 32:0 ");
    BOOST_TEST(stat(d).mode == 0700u);
    // The bits above are the mode's, and those below the ACL's, also of what is cut, and shut to its owner.
    set = setting("A::EVERYONE@:r A::1001:r");
    set.mode = 05777;
    set.size = 2;
    must(fs->setattr(alice, f, set, std::nullopt));
    BOOST_TEST(stat(f).mode == 05444u);
    BOOST_TEST(get(alice, f) == "da");
    BOOST_TEST(access_of("f") == "1:4 2:4(1001) 4:4 16:4 32:4 ");
    // Likewise of what is made; where the list can't be had, nothing is.
    for (const create_mode how : {create_mode::exclusive, create_mode::guarded}) {
        const std::string name = how == create_mode::exclusive ? "exclusive" : "guarded";
        set = setting("D::EVERYONE@:t");
        BOOST_TEST(fails(fs->create(alice, fs->root(), name, how, set, 7)) == EOPNOTSUPP);
        BOOST_TEST(fails(fs->lookup(alice, fs->root(), name)) == ENOENT);
        set = setting("A::OWNER@:r");
        set.mode = 01666;
        for (int twice = 0; twice < (how == create_mode::exclusive ? 2 : 1); ++twice)
            BOOST_TEST(must(fs->create(alice, fs->root(), name, how, set, 7)).made.attrs->mode == 01400u);
    }
    const handle made = must(fs->mkdir(alice, fs->root(), "e", setting("A::EVERYONE@:rx"))).made.handle;
    BOOST_TEST(stat(made).mode == 0555u);
}

BOOST_FIXTURE_TEST_CASE(first_writes_at_once_are_synced_by_open_descriptors, restartable)
{
    for (int i = 0; i < 200; ++i) {
        const std::string name = std::to_string(i);
        std::ofstream(directory.path() / name);
        const handle f = find(fs->root(), name);
        BOOST_TEST_REQUIRE(run(write_at_once(*fs, me, f, 8)) == 8u);
    }
}

BOOST_FIXTURE_TEST_CASE(handles_survive_restart_and_rename, restartable)
{
    needs_root("for the kernel's handles");
    const handle root = fs->root();
    const handle d = make_directory(root, "d");
    const handle f = make_file(me, d, "f", "data");
    const std::uint64_t fsid = stat(f).fsid;
    const handle x = must(fs->create(me, root, "x", create_mode::exclusive, {}, 42)).made.handle;
    const std::uint64_t verifier = fs->write_verifier();
    restart();
    std::filesystem::rename(directory.path() / "d", directory.path() / "e");
    BOOST_TEST((fs->root() == root));
    BOOST_TEST(get(me, f) == "data");
    BOOST_TEST(stat(f).fsid == fsid);
    BOOST_TEST((find(root, "e") == d));
    const auto repeated = must(fs->create(me, root, "x", create_mode::exclusive, {}, 42));
    BOOST_TEST((repeated.made.handle == x));
    BOOST_TEST(repeated.existed);
    BOOST_TEST(fails(fs->create(me, root, "x", create_mode::exclusive, {}, 43)) == EEXIST);
    BOOST_TEST(fs->write_verifier() != verifier);
    // At most 14 bytes where the kernel's handle takes 12, so that a protocol has room in 32.
    BOOST_TEST(f.bytes().size() <= 14u);
}

BOOST_FIXTURE_TEST_CASE(changes_behind_the_server_are_seen, restartable)
{
    const handle root = fs->root();
    const handle f = make_file("f", "x");
    BOOST_TEST(get(me, f) == "x");
    std::filesystem::remove(directory.path() / "f");
    BOOST_TEST(fails(fs->getattr(me, f)) == ESTALE);
    BOOST_TEST(fails(write(me, f, 0, "y")) == ESTALE);
    BOOST_TEST(fails(fs->lookup(me, root, "f")) == ENOENT);
    const handle d = make_directory(root, "d");
    const handle e = make_directory(d, "e");
    BOOST_TEST((find(e, "..") == d));
    temporary_directory outside;
    std::filesystem::rename(directory.path() / "d" / "e", outside.path() / "e");
    BOOST_TEST(fails(fs->lookup(me, e, "..")) == ESTALE);
}

BOOST_FIXTURE_TEST_CASE(what_was_moved_out_of_the_export_is_left, restartable)
{
    const handle d = make_directory(fs->root(), "d");
    const handle below = make_directory(d, "below");
    temporary_directory outside;
    std::filesystem::rename(directory.path() / "d", outside.path() / "d");
    restart(); // a directory that is open is looked for when it is opened again
    for (const handle& moved : {d, below}) {
        BOOST_TEST(fails(fs->mkdir(me, moved, "new", {})) == ESTALE);
        BOOST_TEST(fails(fs->lookup(me, moved, "below")) == ESTALE);
        BOOST_TEST(fails(fs->getattr(me, moved)) == ESTALE);
    }
    BOOST_TEST(!std::filesystem::exists(outside.path() / "d" / "new"));
    std::filesystem::rename(outside.path() / "d", directory.path() / "again");
    BOOST_TEST((find(d, "below") == below));
}

BOOST_FIXTURE_TEST_CASE(the_path_table, restartable)
{
    restart(posixfs::handle_mode::path_table, 16);
    const handle root = fs->root();
    const handle d = make_directory(root, "d");
    const handle f = make_file(me, d, "f", "data");
    BOOST_TEST((find(d, "f") == f));
    must(fs->rename(me, root, "d", root, "e"));
    BOOST_TEST(get(me, f) == "data");
    const handle old = f;
    restart(posixfs::handle_mode::path_table, 16);
    BOOST_TEST(fails(fs->getattr(me, old)) == ESTALE);
    // The table is bounded: what was unused longest goes stale when nothing else remembers it.
    const handle again = find(fs->root(), "e");
    for (int i = 0; i < 40; ++i)
        make_file("f" + std::to_string(i));
    BOOST_TEST((find(fs->root(), "e") == again));
    std::filesystem::remove(directory.path() / "f39");
    std::filesystem::create_symlink("/etc/passwd", directory.path() / "f39");
    BOOST_TEST(int(must(fs->lookup(me, fs->root(), "f39")).found.attrs->type) == int(file_type::symlink));
}

// A path may lead to another mount, of which the root's kind says nothing: it may be another host's, or on a disk.
BOOST_FIXTURE_TEST_CASE(paths_beneath_crossmnt_are_taken_for_any_file_system, restartable)
{
    for (const bool crossmnt : {false, true}) {
        restart(posixfs::handle_mode::path_table, 1000, crossmnt);
        const std::string name = crossmnt ? "b" : "a";
        must(fs->mkdir(me, fs->root(), name, {}));
        const handle d = find(fs->root(), name);
        must(fs->mkdir(me, d, "first", {}));
        BOOST_TEST(must(fs->mkdir(me, d, "second", {})).directory.before.has_value() == !crossmnt);
    }
}

BOOST_FIXTURE_TEST_CASE(a_shard_is_the_daemon_again_after_its_turn, restartable)
{
    needs_root("to act for others");
    make_file("f", "x", 0600);
    must(fs->lookup(user(1000, 1000), fs->root(), "f"));
    // Opening root's file needs root's identity.
    BOOST_TEST(std::filesystem::file_size(directory.path() / "f") == 1u);
    BOOST_TEST(::open((directory.path() / "f").c_str(), O_RDONLY | O_CLOEXEC) >= 0);
}

BOOST_FIXTURE_TEST_CASE(a_listing_of_many_entries_in_small_steps, restartable)
{
    constexpr std::size_t files = 20'000;
    for (std::size_t i = 0; i < files; ++i)
        ::close(::open((directory.path() / ("f" + std::to_string(i))).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC,
                       0644));
    listing all;
    std::uint64_t verifier = 0;
    for (bool end = false; !end;) {
        all.room = 150;
        auto r = must(fs->readdir(me, fs->root(), all.last, verifier, true, all));
        verifier = r.verifier;
        end = r.end;
    }
    BOOST_TEST(all.seen.size() == files + 2);
    BOOST_TEST(all.handles.size() == files + 2);
}

BOOST_AUTO_TEST_CASE(a_root_that_cannot_be_served_is_refused)
{
    blocking_pool pool(1);
    posixfs::posixfs_options o;
    o.root = "/nonexistent";
    auto missing = posixfs::open_posixfs(o, pool);
    BOOST_REQUIRE(!missing);
    BOOST_TEST(missing.error().errno_value() == ENOENT);
    o.root = "/etc/passwd";
    auto file = posixfs::open_posixfs(o, pool);
    BOOST_REQUIRE(!file);
    BOOST_TEST(file.error().errno_value() == ENOTDIR);
}

namespace {

/// Removes and renames what is yet to come when the first entry is told.
struct meddling_sink final : directory_sink {
    bool take(const directory_entry& e) override
    {
        if (taken.empty())
            meddle();
        taken[std::string(e.name)] = e.attrs.has_value() && e.handle.has_value();
        return true;
    }
    std::function<void()> meddle;
    std::map<std::string, bool> taken;
};

} // namespace

// The kernel lists many names at a time, and each is looked at later.
BOOST_FIXTURE_TEST_CASE(names_that_go_while_a_directory_is_listed_are_left_out, restartable)
{
    for (const auto mode : {posixfs::handle_mode::automatic, posixfs::handle_mode::path_table}) {
        restart(mode);
        const auto listed = directory.path() / "listed";
        const auto elsewhere = directory.path() / "elsewhere";
        std::filesystem::create_directory(listed);
        std::filesystem::create_directory(elsewhere);
        for (int i = 0; i < 300; ++i)
            std::ofstream(listed / std::to_string(i)) << "data";
        meddling_sink sink;
        sink.meddle = [&] {
            for (int i = 0; i < 300; i += 2)
                std::filesystem::remove(listed / std::to_string(i));
            for (int i = 1; i < 300; i += 2)
                std::filesystem::rename(listed / std::to_string(i), elsewhere / std::to_string(i));
        };
        const auto done = must(fs->readdir(me, find(fs->root(), "listed"), 0, 0, true, sink));
        BOOST_TEST(done.end);
        BOOST_TEST(sink.taken.size() > 2u);
        BOOST_TEST(sink.taken.size() < 150u); // those that had been looked at before
        for (const auto& [name, described] : sink.taken)
            BOOST_TEST((described || name == ".."), name);
        std::filesystem::remove_all(listed);
        std::filesystem::remove_all(elsewhere);
    }
}
