// SPDX-License-Identifier: Apache-2.0
// Attributes of directories from before a change: when posixfs gives them, and that they are true.
#include "../../../plugins/posixfs/change_order.hpp"
#include "backend_fixture.hpp"
#include "temporary_directory.hpp"

#include <verbena/plugins/posixfs.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <fcntl.h>
#include <fstream>
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <memory>
#include <set>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <thread>

namespace suite {

static std::unique_ptr<temporary_directory> exported;
static std::string exported_beneath;

std::unique_ptr<file_backend> make_backend(blocking_pool& pool, const backend_options&)
{
    exported = std::make_unique<temporary_directory>(exported_beneath);
    posixfs::posixfs_options o;
    o.root = exported->path();
    auto fs = posixfs::open_posixfs(o, pool);
    BOOST_REQUIRE_MESSAGE(fs, (fs ? std::string() : fs.error().message()));
    return std::move(*fs);
}

} // namespace suite

using namespace suite;
using posixfs::change_order;

namespace {

/// `c` has attributes from before, and they are those that `known` said last; then `known` is what it says.
void follows(const change& c, attributes& known)
{
    BOOST_REQUIRE(c.before);
    BOOST_REQUIRE(c.after);
    BOOST_TEST(c.before->size == known.size);
    BOOST_TEST(c.before->links == known.links);
    BOOST_TEST((c.before->mtime == known.mtime));
    BOOST_TEST((c.before->ctime == known.ctime));
    BOOST_TEST_REQUIRE(c.before->change.has_value());
    BOOST_TEST((c.before->change == known.change));
    known = *c.after;
}

task<void> make_one(file_backend& fs, const request& r, const handle& in, unsigned number,
                    std::vector<change>& changes)
{
    auto made = co_await fs.mkdir(r, in, std::to_string(number), {});
    if (made)
        changes.push_back(made->directory);
}

task<void> remove_one(file_backend& fs, const request& r, const handle& in, unsigned number,
                      std::vector<change>& changes)
{
    auto removed = co_await fs.rmdir(r, in, std::to_string(number));
    if (removed)
        changes.push_back(*removed);
}

/// What `one` says of the numbers below `count`, all begun before the first has ended.
task<std::vector<change>> all_at_once(decltype(make_one)& one, file_backend& fs, const request& r,
                                      const handle& in, unsigned count)
{
    std::vector<change> changes;
    const task_context& context = co_await current_context();
    scope all(*context.shard);
    for (unsigned i = 0; i < count; ++i)
        all.spawn([&] { return one(fs, r, in, i, changes); });
    co_await all.join();
    co_return changes;
}

struct beneath_memory {
    beneath_memory()
    {
        exported_beneath = "/dev/shm";
        struct statfs st{};
        BOOST_REQUIRE(::statfs(exported_beneath.c_str(), &st) == 0);
        BOOST_REQUIRE(st.f_type == TMPFS_MAGIC);
    }
    ~beneath_memory() { exported_beneath.clear(); }
};
/// With an export on tmpfs.
struct memory_fixture : beneath_memory, fixture {};

/// Holds a thread of the pool until it is let go.
struct occupant final : blocking_pool::job {
    explicit occupant(std::atomic<bool>& free) : let_go(free) {}
    void execute() noexcept override { let_go.wait(false); }
    void deliver() noexcept override {}
    std::atomic<bool>& let_go;
};

struct stat inode(ino_t number, time_t changed)
{
    struct stat st{};
    st.st_ino = number;
    st.st_ctim.tv_sec = changed;
    return st;
}

bool alone_at(change_order& order, const struct stat& st, time_t now)
{
    return order.is_alone(st, timespec{now, 0});
}

/// From now on no file system has files without names, as far as this thread goes.
void have_no_nameless_files()
{
    constexpr auto flags = offsetof(seccomp_data, args[2]); // the lower half
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, flags),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_TMPFILE & ~O_DIRECTORY, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{std::size(code), code};
    BOOST_REQUIRE(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    BOOST_REQUIRE(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    BOOST_REQUIRE(::openat(AT_FDCWD, "/dev/shm", O_TMPFILE | O_RDWR, 0600) < 0);
    BOOST_REQUIRE(errno == EOPNOTSUPP);
}

template<class Fixture>
struct changes_in_order : Fixture {
    using Fixture::find;
    using Fixture::fs;
    using Fixture::make_directory;
    using Fixture::me;
    using Fixture::must;
    using Fixture::run;
    using Fixture::stat;

    void one_by_one()
    {
        const handle d = make_directory(fs->root(), "d");
        const handle e = make_directory(fs->root(), "e");
        attributes in_d = stat(d);
        attributes in_e = stat(e);
        const auto made = must(fs->create(me, d, "f", create_mode::guarded, {}, 0));
        follows(made.directory, in_d);
        follows(must(fs->create(me, d, "x", create_mode::exclusive, {}, 7)).directory, in_d);
        follows(must(fs->mkdir(me, d, "sub", {})).directory, in_d);
        follows(must(fs->symlink(me, d, "s", "target", {})).directory, in_d);
        follows(must(fs->mknod(me, d, "p", file_type::fifo, 0, 0, {})).directory, in_d);
        follows(must(fs->link(me, made.made.handle, d, "g")).directory, in_d);
        follows(must(fs->rename(me, d, "g", d, "h")).to, in_d);
        const auto moved = must(fs->rename(me, d, "h", e, "h"));
        follows(moved.from, in_d);
        follows(moved.to, in_e);
        const auto moved_directory = must(fs->rename(me, d, "sub", e, "sub"));
        follows(moved_directory.from, in_d);
        follows(moved_directory.to, in_e);
        attributes in_sub = stat(find(e, "sub"));
        follows(must(fs->create(me, find(e, "sub"), "f", create_mode::guarded, {}, 0)).directory, in_sub);
        follows(must(fs->remove(me, find(e, "sub"), "f")), in_sub);
        follows(must(fs->rmdir(me, e, "sub")), in_e);
        set_attributes set;
        set.mode = 0700;
        follows(must(fs->setattr(me, d, set, std::nullopt)), in_d);
        follows(must(fs->remove(me, d, "f")), in_d);
    }
    /// Changes `d` until it is told from before. Each directory made in it is remembered too and may have taken its
    /// place, which hangs on their numbers; then it counts as changed by somebody else for a while.
    void until_told(const handle& d)
    {
        using namespace std::chrono_literals;
        const auto limit = std::chrono::steady_clock::now() + 60s;
        while (!must(fs->create(me, d, "probe", create_mode::unchecked, {}, 0)).directory.before) {
            BOOST_REQUIRE(std::chrono::steady_clock::now() < limit);
            must(fs->remove(me, d, "probe"));
            std::this_thread::sleep_for(50ms);
        }
        must(fs->remove(me, d, "probe"));
    }
    void at_once()
    {
        const handle d = make_directory(fs->root(), "d");
        constexpr unsigned count = 300;
        const auto made = run(all_at_once(make_one, *fs, me, d, count));
        BOOST_TEST_REQUIRE(made.size() == count);
        // Which of them are told from before may hang on chance, but none is told a lie.
        std::set<std::uint32_t> starts;
        unsigned told = 0;
        for (const change& c : made) {
            BOOST_REQUIRE(c.after);
            if (!c.before)
                continue;
            ++told;
            BOOST_TEST(c.after->links == c.before->links + 1);
            starts.insert(c.before->links);
        }
        BOOST_TEST(told > 0u);
        BOOST_TEST(starts.size() == told);
        until_told(d);
        const auto removed = run(all_at_once(remove_one, *fs, me, d, count));
        BOOST_TEST_REQUIRE(removed.size() == count);
        starts.clear();
        for (const change& c : removed) {
            BOOST_REQUIRE(c.before);
            BOOST_REQUIRE(c.after);
            BOOST_TEST(c.after->links == c.before->links - 1);
            starts.insert(c.before->links);
        }
        BOOST_TEST(starts.size() == count);
    }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(each_change_starts_where_the_last_one_ended, changes_in_order<fixture>)
{
    one_by_one();
}
BOOST_FIXTURE_TEST_CASE(so_it_does_in_memory, changes_in_order<memory_fixture>) { one_by_one(); }
BOOST_FIXTURE_TEST_CASE(changes_at_once_are_one_after_another, changes_in_order<fixture>) { at_once(); }
BOOST_FIXTURE_TEST_CASE(so_they_are_in_memory, changes_in_order<memory_fixture>) { at_once(); }

BOOST_FIXTURE_TEST_CASE(changes_in_memory_need_no_other_thread, memory_fixture)
{
    const handle d = make_directory(fs->root(), "d");
    std::atomic<bool> let_go = false;
    std::vector<std::unique_ptr<occupant>> occupants;
    while (occupants.size() < pool.threads()) {
        occupants.push_back(std::make_unique<occupant>(let_go));
        pool.submit(*occupants.back(), *shard);
    }
    const handle f = make_file(me, d, "f");
    BOOST_TEST(must(write(me, f, 0, "data", stability::file_sync)).count == 4u);
    must(fs->commit(me, f, 0, 0));
    set_attributes set;
    set.mode = 0600;
    must(fs->setattr(me, f, set, std::nullopt));
    must(fs->rename(me, d, "f", d, "g"));
    must(fs->link(me, f, d, "h"));
    must(fs->symlink(me, d, "s", "target", {}));
    must(fs->remove(me, d, "g"));
    make_directory(d, "e");
    must(fs->rmdir(me, d, "e"));
    BOOST_TEST(fails(fs->lookup(me, d, "g")) == ENOENT);
    BOOST_TEST((must(fs->lookup(me, d, "h")).found.handle == f));
    BOOST_TEST(get(me, f) == "data");
    let_go = true;
    let_go.notify_all();
    pool.finish();
    fs.reset();
    shard.reset(); // it still has what the occupants told it
}

// What a name led to last time is what is removed only if it still leads there.
BOOST_FIXTURE_TEST_CASE(a_removal_is_of_what_the_name_leads_to, memory_fixture)
{
    const handle d = make_directory(fs->root(), "d");
    const handle f = make_file(me, d, "f");
    must(write(me, f, 0, "data"));
    std::filesystem::rename(exported->path() / "d" / "f", exported->path() / "d" / "kept");
    std::ofstream(exported->path() / "d" / "f") << "another";
    must(fs->remove(me, d, "f"));
    BOOST_TEST(get(me, f) == "data");
    BOOST_TEST(!std::filesystem::exists(exported->path() / "d" / "f"));

    // Of two names one is left, and then none.
    BOOST_TEST((must(fs->lookup(me, d, "kept")).found.handle == f));
    must(fs->link(me, f, d, "second"));
    must(fs->remove(me, d, "kept"));
    BOOST_TEST(get(me, f) == "data");
    BOOST_TEST((must(fs->lookup(me, d, "second")).found.handle == f));
    must(fs->remove(me, d, "second"));
    BOOST_TEST(fails(fs->getattr(me, f)) == ESTALE);
    BOOST_TEST(fails(fs->remove(me, d, "second")) == ENOENT);
}

BOOST_FIXTURE_TEST_CASE(a_create_that_finds_the_file_changes_no_directory, fixture)
{
    const handle d = make_directory(fs->root(), "d");
    make_file(me, d, "f");
    attributes in_d = stat(d);
    follows(must(fs->create(me, d, "f", create_mode::unchecked, {}, 0)).directory, in_d);
    BOOST_TEST((in_d.ctime == stat(d).ctime));
}

BOOST_FIXTURE_TEST_CASE(of_a_file_nothing_is_told_from_before, fixture)
{
    const handle f = make_file("f", "x");
    set_attributes set;
    set.mode = 0600;
    const change c = must(fs->setattr(me, f, set, std::nullopt));
    BOOST_TEST(!c.before);
    BOOST_REQUIRE(c.after);
    BOOST_TEST(c.after->mode == 0600u);
}

BOOST_FIXTURE_TEST_CASE(after_a_local_change_nothing_is_told_from_before, fixture)
{
    const handle d = make_directory(fs->root(), "d");
    attributes known = stat(d);
    follows(must(fs->create(me, d, "f", create_mode::guarded, {}, 0)).directory, known);
    // Times may move in steps of milliseconds.
    int i = 0;
    const auto change_locally = [&] {
        for (known = stat(d); stat(d).ctime == known.ctime; ++i)
            std::ofstream(exported->path() / "d" / ("local" + std::to_string(i)));
    };
    change_locally();
    const change c = must(fs->create(me, d, "g", create_mode::guarded, {}, 0)).directory;
    BOOST_TEST(!c.before);
    BOOST_TEST(c.after.has_value());
    // It may change it again; the disk may have taken longer than a change is remembered.
    change_locally();
    BOOST_TEST(!must(fs->remove(me, d, "f")).before);
}

BOOST_AUTO_TEST_CASE(who_made_the_last_change)
{
    auto order = std::make_unique<change_order>();
    // Not changed for long, by anybody.
    BOOST_TEST(alone_at(*order, inode(1, 1000), 2000));
    // Nobody here changed it a second ago.
    BOOST_TEST(!alone_at(*order, inode(2, 1999), 2000));
    BOOST_TEST(!alone_at(*order, inode(2, 1999), 2001));
    BOOST_TEST(alone_at(*order, inode(2, 1999), 2002));
    // It was this server.
    order->remember(inode(1, 2000));
    BOOST_TEST(alone_at(*order, inode(1, 2000), 2000));
    // Somebody came between; what follows is ours, but he may come again.
    BOOST_TEST(!alone_at(*order, inode(1, 2005), 2005));
    order->remember(inode(1, 2006));
    BOOST_TEST(!alone_at(*order, inode(1, 2006), 2006));
    BOOST_TEST(!alone_at(*order, inode(1, 2006), 2007));
    BOOST_TEST(alone_at(*order, inode(1, 2006), 2008));
    // A time still to come.
    BOOST_TEST(!alone_at(*order, inode(3, 9000), 2008));
    // A new directory was made here, whatever had its number before.
    order->remember(inode(4, 1000));
    order->adopt(inode(4, 2008));
    BOOST_TEST(alone_at(*order, inode(4, 2008), 2008));
    // Told late, when it was changed again already.
    order->remember(inode(4, 2009));
    order->adopt(inode(4, 2008));
    BOOST_TEST(alone_at(*order, inode(4, 2009), 2009));
}

BOOST_AUTO_TEST_CASE(what_is_forgotten_counts_as_changed_by_others)
{
    auto order = std::make_unique<change_order>();
    for (ino_t i = 1; i <= 100 * change_order::stripes * change_order::remembered; ++i)
        order->remember(inode(i, 2000));
    BOOST_TEST(!alone_at(*order, inode(1, 2000), 2000));
    BOOST_TEST(alone_at(*order, inode(1, 2000), 2003));
}

BOOST_AUTO_TEST_CASE(file_systems_of_several_hosts)
{
    for (long type : {long(NFS_SUPER_MAGIC), long(FUSE_SUPER_MAGIC), long(CIFS_SUPER_MAGIC)})
        BOOST_TEST(posixfs::changed_by_other_hosts(type));
    // As a 32-bit f_type would show it.
    BOOST_TEST(posixfs::changed_by_other_hosts(long(int(CIFS_SUPER_MAGIC))));
    for (long type :
         {long(EXT4_SUPER_MAGIC), long(TMPFS_MAGIC), long(XFS_SUPER_MAGIC), long(BTRFS_SUPER_MAGIC)})
        BOOST_TEST(!posixfs::changed_by_other_hosts(type));
}

BOOST_FIXTURE_TEST_CASE(an_exclusive_file_has_its_verifier_before_its_name, memory_fixture)
{
    constexpr int files = 2000;
    const auto path = [](int i) { return exported->path() / std::to_string(i); };
    std::atomic<bool> watches = false;
    std::atomic<bool> over = false;
    int seen = 0;
    int without = 0;
    std::thread watcher([&] {
        watches = true;
        watches.notify_one();
        for (int i = 0; i < files && !over;) {
            struct stat st{};
            if (::lstat(path(i).c_str(), &st) != 0)
                continue;
            // A verifier is whole seconds; the time of making is not, but for one file in millions.
            without += st.st_mtim.tv_nsec != 0 || st.st_atim.tv_nsec != 0 ? 1 : 0;
            ++seen;
            ++i;
        }
    });
    watches.wait(false);
    for (int i = 0; i < files; ++i)
        must(fs->create(me, fs->root(), std::to_string(i), create_mode::exclusive, {}, 7));
    over = true;
    watcher.join();
    BOOST_TEST(seen > 0);
    BOOST_TEST(without == 0);
}

// The last of all, as the thread stays as it is.
BOOST_FIXTURE_TEST_CASE(exclusive_creates_where_no_file_is_without_a_name, memory_fixture)
{
    have_no_nameless_files();
    const handle f = must(fs->create(me, fs->root(), "f", create_mode::exclusive, {}, 7)).made.handle;
    BOOST_TEST((must(fs->create(me, fs->root(), "f", create_mode::exclusive, {}, 7)).made.handle == f));
    BOOST_TEST(fails(fs->create(me, fs->root(), "f", create_mode::exclusive, {}, 8)) == EEXIST);
    BOOST_TEST(must(write(me, f, 0, "data")).count == 4u);
    BOOST_TEST(get(me, f) == "data");
}
