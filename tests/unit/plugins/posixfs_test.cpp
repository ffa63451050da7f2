// SPDX-License-Identifier: Apache-2.0
#include "backend_extents_suite.hpp"
#include "backend_suite.hpp"
#include "backend_walk_suite.hpp"
#include "needs_root.hpp"
#include "temporary_directory.hpp"

#include <verbena/core/scope.hpp>
#include <verbena/plugins/posixfs.hpp>

#include <fcntl.h>
#include <fstream>
#include <memory>
#include <sys/xattr.h>

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
