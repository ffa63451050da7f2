// SPDX-License-Identifier: Apache-2.0
// How file handles name mounts beneath an export.
#include <boost/test/unit_test.hpp>

#include "../../../plugins/posixfs/fnv1a.hpp"
#include "../../../plugins/posixfs/mount_table.hpp"
#include "daemon_in_child.hpp"
#include "needs_root.hpp"
#include "temporary_directory.hpp"

#include <verbena/core/task/scope.hpp>

#include <atomic>
#include <cstdarg>
#include <cstring>
#include <fstream>
#include <linux/magic.h>
#include <map>
#include <sched.h>
#include <set>
#include <sys/mount.h>
#include <sys/statfs.h>

using namespace verbena::posixfs;

namespace {

std::string slow_path;
std::atomic<unsigned> slow_opens{0};
std::atomic<bool> refused{false};
std::atomic<bool> let_go{false};
std::atomic<bool> gave_up{false};
std::atomic<bool> one_id{false};

} // namespace

// In place of libc's: file systems in memory tell one id, as copies of a file system do.
extern "C" int fstatfs(int fd, struct statfs* st)
{
    const long failed = ::syscall(SYS_fstatfs, fd, st);
    if (failed == 0 && one_id && st->f_type == TMPFS_MAGIC) {
        const std::uint64_t id = 0x5555;
        std::memcpy(&st->f_fsid, &id, sizeof(id));
    }
    return int(failed);
}

// In place of libc's: one path waits, as for a server that is down, or is refused.
extern "C" int open(const char* path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (slow_path == path) {
        ++slow_opens;
        for (int i = 0; i < 3000 && !let_go; ++i)
            ::usleep(10'000);
        gave_up = !let_go;
        if (refused) {
            errno = EIO;
            return -1;
        }
    }
    return int(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

namespace {

std::unique_ptr<mount_point> mounted(int id, std::uint64_t identity)
{
    auto m = std::make_unique<mount_point>();
    m->id = id;
    m->identity = identity;
    return m;
}

int id_of(const mount_point* m) { return m == nullptr ? -1 : m->id; }

// Both have the key 0x33333333.
constexpr std::uint64_t one = 0x1111111122222222;
constexpr std::uint64_t other = 0x0000000033333333;

} // namespace

// What keys and file system ids are made of: clients keep both over restarts. Vectors of the algorithm's authors.
BOOST_AUTO_TEST_CASE(names_of_mounts_stay)
{
    static_assert(fnv1a_start == 0xcbf29ce484222325);
    BOOST_TEST(fnv1a("a") == 0xaf63dc4c8601ec8cu);
    BOOST_TEST(fnv1a("foobar") == 0x85944171f73967e8u);
    BOOST_TEST(fnv1a("bar", fnv1a("foo")) == 0x85944171f73967e8u);
}

BOOST_AUTO_TEST_CASE(mounts_are_found_by_id_and_by_key)
{
    mount_table t;
    BOOST_TEST(t.add(mounted(7, one)));
    BOOST_TEST(t.add(mounted(8, 0x44444444)));
    BOOST_TEST(id_of(t.by_id(8)) == 8);
    BOOST_TEST(id_of(t.by_id(9)) == -1);
    BOOST_TEST(id_of(t.by_key(0x33333333)) == 7);
    BOOST_TEST(id_of(t.by_key(0x44444444)) == 8);
    BOOST_TEST(id_of(t.by_key(0)) == -1);
}

BOOST_AUTO_TEST_CASE(mounts_whose_keys_agree_are_not_found_whichever_came_first)
{
    for (const auto& [first, second] : {std::pair(one, other), std::pair(other, one)}) {
        mount_table t;
        BOOST_TEST(t.add(mounted(7, first)));
        BOOST_TEST(t.add(mounted(8, 0x44444444)));
        BOOST_TEST(!t.add(mounted(9, second)));
        BOOST_TEST(id_of(t.by_key(0x33333333)) == -1);
        BOOST_TEST(id_of(t.by_id(7)) == -1);
        BOOST_TEST(id_of(t.by_id(9)) == -1);
        BOOST_TEST(t.has(7));
        BOOST_TEST(t.has(9));
        BOOST_TEST(id_of(t.by_id(8)) == 8);
    }
}

BOOST_AUTO_TEST_CASE(the_same_mounted_again_has_the_same_key)
{
    mount_table t;
    BOOST_TEST(t.add(mounted(7, one)));
    BOOST_TEST(t.add(mounted(8, one)));
    BOOST_TEST(id_of(t.by_key(0x33333333)) == 7);
    BOOST_TEST(id_of(t.by_id(8)) == 8);
}

// Mounted again it may have another device's number, as a disk has that was plugged in again; a copy is mounted elsewhere.
BOOST_AUTO_TEST_CASE(the_same_mounted_again_is_no_other_file_system)
{
    mount_table t;
    auto first = mounted(7, one);
    first->fsid = 5;
    first->dev = 1;
    BOOST_TEST(t.add(std::move(first)));
    BOOST_TEST(!t.has_another(5, 1, other));
    BOOST_TEST(!t.has_another(5, 2, one));
    BOOST_TEST(t.has_another(5, 2, other));
}

BOOST_AUTO_TEST_CASE(the_table_is_bounded)
{
    mount_table t;
    for (std::size_t i = 0; i < mount_table::max_mounts; ++i) {
        BOOST_TEST(!t.full());
        BOOST_TEST(t.add(mounted(int(i), i)));
    }
    BOOST_TEST(t.full());
}

namespace {

using namespace suite;

/// A mount beneath an export, and another one that came while the export was served.
struct two_mounts {
    two_mounts()
    {
        check(::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0,
              "a mount namespace of its own");
        mount_at("early");
        std::ofstream(directory.path() / "early" / "f") << "data";
        options.root = directory.path();
        options.crossmnt = true;
        server before(options);
        const handle early = before.run(before.fs->lookup(root, before.fs->root(), "early"))->found.handle;
        file = before.run(before.fs->lookup(root, early, "f"))->found.handle;
    }
    void mount_at(const char* name) const
    {
        const auto where = directory.path() / name;
        check(::mkdir(where.c_str(), 0777) == 0 &&
                  ::mount("none", where.c_str(), "tmpfs", 0, "size=1m,mode=0777") == 0,
              "a mount");
    }
    ~two_mounts()
    {
        for (const char* name : {"early", "late"})
            ::umount2((directory.path() / name).c_str(), MNT_DETACH);
    }
    temporary_directory directory;
    posixfs::posixfs_options options;
    request root = user(0);
    handle file; ///< of the early mount
};

task<void> enter(file_backend& fs, const request& who, bool& entered)
{
    const auto found = co_await fs.lookup(who, fs.root(), "late");
    entered = found.has_value();
}

/// What others do while a mount hangs.
task<void> beside(server& s, const two_mounts& m, bool& in_time, bool& early, bool& late)
{
    auto wait = [] { ::usleep(1000); };
    while (slow_opens == 0) {
        auto again = wait;
        co_await s.pool.run(std::move(again));
    }
    const auto found = co_await s.fs->getattr(m.root, m.file);
    early = found.has_value();
    co_await enter(*s.fs, m.root, late);
    in_time = !gave_up;
    let_go = true;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_mount_that_hangs_holds_nobody_who_wants_another)
{
    needs_root("to mount");
    in_child([] {
        two_mounts m;
        server s(m.options);
        m.mount_at("late");
        slow_path = m.directory.path() / "late";
        bool entered = false;
        bool in_time = false;
        bool early = false;
        bool late = true;
        auto all = [&]() -> task<result<void>> {
            const task_context& context = co_await current_context();
            scope calls(*context.shard);
            calls.spawn([&] { return enter(*s.fs, m.root, entered); });
            calls.spawn([&] { return beside(s, m, in_time, early, late); });
            co_await calls.join();
            co_return result<void>();
        };
        check(s.run(all()).has_value(), "all ends");
        check(in_time, "nobody waits until the mount is there");
        check(early, "what is on another mount is found");
        check(!late, "what is on this one is not");
        check(entered, "but by who waited");
        check(slow_opens == 1, "it is opened once");
    });
}

BOOST_AUTO_TEST_CASE(a_mount_that_cannot_be_entered_is_tried_once_a_second)
{
    needs_root("to mount");
    in_child([] {
        two_mounts m;
        server s(m.options);
        m.mount_at("late");
        refused = let_go = true;
        slow_path = m.directory.path() / "late";
        const auto began = std::chrono::steady_clock::now();
        for (int i = 0; i < 20; ++i) {
            const auto found = s.run(s.fs->lookup(m.root, s.fs->root(), "late"));
            check(!found && found.error() == errc::crosses_mount, "it is not entered");
        }
        const auto seconds = std::chrono::steady_clock::now() - began;
        check(slow_opens >= 1 && slow_opens <= unsigned(seconds / std::chrono::seconds(1)) + 1,
              "and not tried for each call");
    });
}

namespace {

/// Attributes of all that a listing shows.
struct attributes_listed final : directory_sink {
    bool take(const directory_entry& e) override
    {
        if (e.attrs)
            seen[std::string(e.name)] = *e.attrs;
        return true;
    }
    std::map<std::string, attributes> seen;
};

/// Whatever tells a client of a file tells it of the same file system, and no two file systems have one id.
void check_ids(handle_mode handles)
{
    two_mounts m;
    m.mount_at("late");
    std::ofstream(m.directory.path() / "late" / "f") << "data";
    m.options.handles = handles;
    server s(m.options);
    std::set<std::uint64_t> ids;
    std::set<std::uint64_t> roots;
    attributes_listed above;
    check(s.run(s.fs->readdir(m.root, s.fs->root(), 0, 0, true, above)).has_value(), "a listing");
    const attributes top = *s.run(s.fs->getattr(m.root, s.fs->root()));
    ids.insert(top.fsid);
    for (const char* name : {"early", "late"}) {
        const auto found = s.run(s.fs->lookup(m.root, s.fs->root(), name));
        check(found.has_value(), "a mount is entered");
        const std::uint64_t id = found->found.attrs->fsid;
        const handle& mounted = found->found.handle;
        ids.insert(id);
        roots.insert(found->found.attrs->fileid);
        check(above.seen.at(name).fsid == id, "its id in the listing above");
        check(s.run(s.fs->getattr(m.root, mounted))->fsid == id, "its id");
        const auto file = s.run(s.fs->lookup(m.root, mounted, "f"));
        check(file && file->found.attrs->fsid == id && file->directory->fsid == id, "its file's id");
        attributes_listed below;
        check(s.run(s.fs->readdir(m.root, mounted, 0, 0, true, below)).has_value(), "a listing of it");
        check(below.seen.at("f").fsid == id && below.seen.at(".").fsid == id, "the ids that it shows");
        const auto up = s.run(s.fs->lookup(m.root, mounted, ".."));
        check(up && up->found.attrs->fsid == top.fsid, "the id above it");
        const auto made = s.run(s.fs->mkdir(m.root, mounted, "d", {}));
        check(made && made->made.attrs->fsid == id, "a new directory's id");
    }
    check(ids.size() == 3, "no id is another's");
    check(roots.size() == 1, "though their roots have one number");
}

} // namespace

// Exports of one space share what clients have open, so it must be told of the same files alone.
BOOST_AUTO_TEST_CASE(one_tree_is_one_space_whichever_part_of_it_is_exported)
{
    needs_root("to mount");
    in_child([] {
        two_mounts m;
        m.mount_at("late");
        const auto early = m.directory.path() / "early", late = m.directory.path() / "late";
        const auto inside = early / "inside", bound = m.directory.path() / "bound";
        check(std::filesystem::create_directory(inside) && std::filesystem::create_directory(bound) &&
                  ::mount(inside.c_str(), bound.c_str(), nullptr, MS_BIND, nullptr) == 0,
              "a bind mount");
        std::ofstream(inside / "f") << "data";
        const auto options_of = [](const std::filesystem::path& root) {
            posixfs::posixfs_options o;
            o.root = root;
            return o;
        };
        const auto space_of = [](const posixfs::posixfs_options& o) {
            server s(o);
            return s.fs->info().file_space;
        };
        const std::uint64_t space = space_of(options_of(early));
        check(space != 0, "it is told");
        check(space_of(options_of(early)) == space, "by each back end");
        check(space_of(options_of(inside)) == space, "of a directory in it");
        check(space_of(options_of(bound)) == space, "of a bind mount");
        check(space_of(options_of(late)) != space, "another file system has another one");
        auto options = options_of(early);
        options.crossmnt = true;
        check(space_of(options) == 0, "with mounts beneath it it is not told");
        options = options_of(early);
        options.handles = handle_mode::path_table;
        check(space_of(options) == 0, "nor where handles are the server's own");
        server one(options_of(early)), other(options_of(bound));
        const handle folder = one.run(one.fs->lookup(m.root, one.fs->root(), "inside"))->found.handle;
        const handle file = one.run(one.fs->lookup(m.root, folder, "f"))->found.handle;
        check(folder == other.fs->root(), "one handle of the directory");
        check(other.run(other.fs->lookup(m.root, other.fs->root(), "f"))->found.handle == file,
              "and of a file in it");
        ::umount2(bound.c_str(), MNT_DETACH);
    });
}

BOOST_AUTO_TEST_CASE(mounts_found_by_path_have_ids_of_their_own)
{
    needs_root("to mount");
    in_child([] { check_ids(handle_mode::path_table); });
    in_child([] {
        one_id = true;
        check_ids(handle_mode::path_table);
    });
}

BOOST_AUTO_TEST_CASE(mounts_that_tell_one_id_have_ids_of_their_own)
{
    needs_root("to mount");
    in_child([] { check_ids(handle_mode::kernel); });
    in_child([] {
        one_id = true;
        check_ids(handle_mode::kernel);
    });
}

BOOST_AUTO_TEST_CASE(a_mount_that_comes_back_has_the_id_that_it_had)
{
    needs_root("to mount");
    in_child([] {
        one_id = true;
        two_mounts m;
        server s(m.options);
        const auto id = [&] {
            const auto found = s.run(s.fs->lookup(m.root, s.fs->root(), "early"));
            check(found.has_value(), "it is entered");
            return found ? found->found.attrs->fsid : 0;
        };
        const std::uint64_t before = id();
        const std::string early = m.directory.path() / "early";
        check(::umount2(early.c_str(), MNT_DETACH) == 0, "it is unmounted");
        check(::mount("none", early.c_str(), "tmpfs", 0, "size=1m,mode=0777") == 0, "it is mounted again");
        check(id() == before, "its id");
    });
}

namespace {

// Two mounts tell one number of their roots; what they cover is two directories.
void check_covered(handle_mode handles)
{
    two_mounts m;
    std::map<std::string, ino_t> covered;
    for (const char* name : {"early", "late"}) {
        struct stat st{};
        const std::string other = m.directory.path() / (std::string(name) + ".sibling");
        check(::mkdir(other.c_str(), 0777) == 0 && ::stat(other.c_str(), &st) == 0, "a directory");
    }
    ::umount2((m.directory.path() / "early").c_str(), MNT_DETACH);
    ::mkdir((m.directory.path() / "late").c_str(), 0777);
    for (const char* name : {"early", "late"}) {
        struct stat st{};
        check(::stat((m.directory.path() / name).c_str(), &st) == 0, "what is to be covered");
        covered[name] = st.st_ino;
        check(::mount("none", (m.directory.path() / name).c_str(), "tmpfs", 0, "size=1m,mode=0777") == 0,
              "a mount");
    }
    m.options.handles = handles;
    server s(m.options);
    attributes_listed above;
    check(s.run(s.fs->readdir(m.root, s.fs->root(), 0, 0, true, above)).has_value(), "a listing");
    for (const char* name : {"early", "late"}) {
        check(above.seen.at(name).covered_fileid == covered[name],
              "the covered directory's number in the listing");
        check(above.seen.at(name).fileid != covered[name], "the mount's number");
        const auto found = s.run(s.fs->lookup(m.root, s.fs->root(), name));
        check(found.has_value(), "a mount is entered");
        if (handles == handle_mode::path_table) // where nothing is known of mounts
            continue;
        check(found->found.attrs->covered_fileid == covered[name], "when it is looked up");
        check(s.run(s.fs->getattr(m.root, found->found.handle))->covered_fileid == covered[name],
              "and later");
        check(found->directory->covered_fileid == 0, "not above it");
    }
    check(above.seen.at("early").covered_fileid != above.seen.at("late").covered_fileid, "they are two");
    check(above.seen.at("late.sibling").covered_fileid == 0, "what is no mount covers nothing");
}

} // namespace

BOOST_AUTO_TEST_CASE(mounts_tell_what_they_cover)
{
    needs_root("to mount");
    in_child([] { check_covered(handle_mode::kernel); });
    in_child([] { check_covered(handle_mode::path_table); });
}
