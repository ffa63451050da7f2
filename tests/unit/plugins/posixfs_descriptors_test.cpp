// SPDX-License-Identifier: Apache-2.0
// posixfs in a process that may open few files.
#include "../../../plugins/posixfs/descriptor_cache.hpp"
#include "../../../plugins/posixfs/directory.hpp"
#include "../../../plugins/posixfs/kernel_buffer.hpp"
#include "../../../plugins/posixfs/pins.hpp"
#include "backend_fixture.hpp"
#include "temporary_directory.hpp"

#include <verbena/plugins/posixfs.hpp>

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <sys/resource.h>

namespace suite {

namespace {

constexpr rlim_t limit = 200;
std::unique_ptr<temporary_directory> directory;

std::size_t open_now()
{
    std::size_t n = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
        ++n;
    return n;
}

/// Takes every descriptor that is left, but some.
struct none_left {
    explicit none_left(unsigned but = 0)
    {
        for (int fd = 0; (fd = ::fcntl(0, F_DUPFD_CLOEXEC, 3)) >= 0;)
            taken.push_back(fd);
        BOOST_REQUIRE(errno == EMFILE);
        for (; but != 0; --but) {
            ::close(taken.back());
            taken.pop_back();
        }
    }
    ~none_left()
    {
        for (const int fd : taken)
            ::close(fd);
    }
    std::vector<int> taken;
};

} // namespace

std::unique_ptr<file_backend> make_backend(blocking_pool& pool, const backend_options&)
{
    rlimit few{limit, limit};
    BOOST_REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    directory = std::make_unique<temporary_directory>();
    posixfs::posixfs_options o;
    o.root = directory->path();
    o.cached_files = 1000;
    auto fs = posixfs::open_posixfs(o, pool);
    BOOST_REQUIRE_MESSAGE(fs, (fs ? std::string() : fs.error().message()));
    return std::move(*fs);
}

} // namespace suite

using namespace suite;

BOOST_FIXTURE_TEST_CASE(half_of_them_is_for_files, fixture)
{
    std::vector<handle> files;
    const std::size_t before = open_now();
    for (int i = 0; i < 300; ++i) {
        files.push_back(make_file("f" + std::to_string(i), "x", 0666));
        BOOST_TEST_REQUIRE(open_now() <= before + limit / 2 + 8);
    }
    // Every file of several callers, readers and writers.
    std::byte out[8];
    for (const handle& f : files) {
        must(fs->read(me, f, 0, out));
        must(write(me, f, 0, "y", stability::file_sync));
        BOOST_TEST_REQUIRE(open_now() <= before + limit / 2 + 8);
    }
    BOOST_TEST(open_now() > before + limit / 8);
}

BOOST_FIXTURE_TEST_CASE(so_it_is_if_each_has_many_callers, fixture)
{
    std::vector<request> callers(4, me);
    for (std::uint32_t i = 0; i < callers.size(); ++i)
        callers[i].who.set_groups(std::vector<std::uint32_t>{i + 1});
    const std::size_t before = open_now();
    std::byte out[8];
    for (int i = 0; i < 60; ++i) {
        const handle f = make_file("f" + std::to_string(i), "x", 0666);
        for (const request& r : callers) {
            must(fs->read(r, f, 0, out));
            must(write(r, f, 0, "y"));
            BOOST_TEST_REQUIRE(open_now() <= before + limit / 2 + 8);
        }
    }
}

BOOST_FIXTURE_TEST_CASE(when_none_is_left_files_are_closed_for_what_comes, fixture)
{
    std::vector<handle> files;
    const auto fill = [&] {
        for (int i = 0; i < 20; ++i)
            files.push_back(make_file("f" + std::to_string(files.size()), "x"));
    };
    {
        fill();
        const none_left full;
        make_file("by create");
    }
    {
        fill();
        const none_left full;
        make_directory(fs->root(), "by mkdir");
    }
    {
        fill();
        const none_left full;
        must(fs->symlink(me, fs->root(), "by symlink", "x", {}));
    }
    {
        fill();
        const none_left full;
        must(fs->remove(me, fs->root(), "f0"));
    }
    {
        fill();
        const none_left full;
        must(fs->rename(me, fs->root(), "f1", fs->root(), "f2"));
    }
    {
        fill();
        const none_left full;
        must(fs->lookup(me, fs->root(), "f3"));
    }
    {
        fill();
        const none_left full;
        listing l;
        must(fs->readdir(me, fs->root(), 0, 0, false, l));
    }
    {
        fill();
        std::byte out[8];
        const none_left full;
        must(fs->read(me, files.back(), 0, out));
    }
    {
        fill();
        set_attributes set;
        set.mode = 0600;
        const none_left full;
        must(fs->setattr(me, files.back(), set, std::nullopt));
    }
    {
        fill();
        set_attributes set;
        set.size = 0;
        const none_left full;
        must(fs->setattr(me, files.back(), set, std::nullopt));
    }
    // The first step finds its one, and the cut none.
    for (const unsigned left : {0u, 1u}) {
        fill();
        set_attributes set;
        set.size = 0;
        const none_left full(left);
        must(fs->create(me, fs->root(), "f5", create_mode::unchecked, set, 0));
    }
    const handle inner = make_directory(make_directory(fs->root(), "outer"), "inner");
    for (const unsigned left : {0u, 1u, 2u}) {
        fill();
        const none_left full(left);
        must(fs->lookup(me, inner, ".."));
    }
}

BOOST_FIXTURE_TEST_CASE(listings_half_read_are_closed_too, fixture)
{
    for (int i = 0; i < 16; ++i) {
        const std::string name = "d" + std::to_string(i);
        const handle d = make_directory(fs->root(), name);
        std::ofstream(directory->path() / name / "e");
        listing one(1);
        must(fs->readdir(me, d, 0, 0, false, one));
        // So that nothing else can be closed.
        std::filesystem::remove_all(directory->path() / name);
        BOOST_TEST(fails(fs->getattr(me, d)) == ESTALE);
    }
    std::ofstream(directory->path() / "f");
    const none_left full;
    must(fs->lookup(me, fs->root(), "f"));
}

namespace {

/// Keeps a thread of the pool busy.
class gate final : public blocking_pool::job {
public:
    void execute() noexcept override { opened.get_future().wait(); }
    void deliver() noexcept override {}
    std::promise<void> opened;
};

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

/// A pool whose only thread is held, and a cache whose files it closes.
struct held_pool {
    held_pool() { BOOST_REQUIRE(pool.submit(busy)); }
    void end()
    {
        busy.opened.set_value();
        pool.finish();
    }
    /// A file of the cache, open by its own O_PATH descriptor; `blocks` of it are there, whatever its size.
    posixfs::file_ref file(off_t size, bool removed, off_t blocks = 0)
    {
        const std::string path = where.path() / "f";
        const int fd = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        BOOST_REQUIRE(fd >= 0);
        BOOST_REQUIRE(::ftruncate(fd, size) == 0);
        BOOST_REQUIRE((blocks == 0 || ::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, blocks) == 0));
        if (removed)
            ::unlink(path.c_str());
        struct stat st{};
        BOOST_REQUIRE(::fstat(fd, &st) == 0);
        return cache->insert(name, posixfs::unique_fd(fd), &mount, 0, st);
    }
    /// The same, dropped.
    int drop(off_t size, bool removed, off_t blocks = 0)
    {
        const int fd = file(size, removed, blocks)->path.get();
        cache->drop(name);
        return fd;
    }
    temporary_directory where;
    blocking_pool pool{1};
    gate busy;
    posixfs::mount_point mount;
    posixfs::removal_log removals;
    storage::sync_group syncs{pool};
    posixfs::pin_table pins{pool, removals, 1, {}};
    std::optional<posixfs::descriptor_cache> cache{std::in_place, 32, removals, pool, syncs, pins};
    const std::byte letter{'f'};
    const handle name{std::span(&letter, 1)};
};

} // namespace

BOOST_FIXTURE_TEST_CASE(what_frees_many_blocks_is_closed_by_the_pool, held_pool)
{
    BOOST_TEST(!is_open(drop(posixfs::large_file, false)));
    BOOST_TEST(!is_open(drop(posixfs::large_file - 1, true)));
    const int large = drop(posixfs::large_file, true);
    BOOST_TEST(is_open(large));
    const int preallocated = drop(0, true, posixfs::large_file);
    BOOST_TEST(is_open(preallocated));
    end();
    BOOST_TEST(!is_open(large));
    BOOST_TEST(!is_open(preallocated));
    // Nobody else can any more.
    BOOST_TEST(!is_open(drop(posixfs::large_file, true)));
}

// Its client is told nothing, as the file is open by its handle.
BOOST_FIXTURE_TEST_CASE(an_open_without_a_descriptor_is_counted_once, held_pool)
{
    const posixfs::file_ref f = file(1, false);
    const posixfs::pin_table::known_file known{name, f->path.get(), mount};
    {
        const none_left taken;
        const auto pin = pins.add(known);
        BOOST_TEST(bool(pin));
        BOOST_TEST(pins.keeps(known, false));
        BOOST_TEST(pins.counters().closed == 1u);
    }
    const auto pin = pins.add(known);
    BOOST_TEST(bool(pin));
    BOOST_TEST(posixfs::pin_table::held() == 1U);
    BOOST_TEST(pins.counters().closed == 1u);
    end();
}

BOOST_FIXTURE_TEST_CASE(so_it_is_by_who_held_it_last, held_pool)
{
    auto f = file(posixfs::large_file, true);
    const int fd = ::fcntl(f->path.get(), F_DUPFD_CLOEXEC, 3);
    auto sent = f->share(posixfs::unique_fd(fd));
    cache.reset();
    f = {};
    BOOST_TEST(is_open(fd));
    sent.reset();
    BOOST_TEST(is_open(fd));
    end();
    BOOST_TEST(!is_open(fd));
}

// They write behind, and may answer late.
BOOST_FIXTURE_TEST_CASE(files_of_other_hosts_are_closed_by_the_pool, held_pool)
{
    mount.local = false;
    const std::size_t held = posixfs::unique_fd::held();
    auto f = file(1, false);
    const int path = f->path.get();
    const int user = ::fcntl(path, F_DUPFD_CLOEXEC, 3);
    const int sync = ::fcntl(path, F_DUPFD_CLOEXEC, 3);
    f->find_or_add(credential(1, 1))->write = f->share(posixfs::unique_fd(user));
    f->sync.reset(sync);
    cache->drop(name);
    f = {};
    for (const int fd : {path, user, sync})
        BOOST_TEST(is_open(fd));
    // Or other files would have to go until they are.
    BOOST_TEST(posixfs::unique_fd::held() == held);
    end();
    for (const int fd : {path, user, sync})
        BOOST_TEST(!is_open(fd));
}

// Of two ACLs within a tick of the kernel's clock, the second of which leaves the mode as it is, neither ctime nor mode tell.
BOOST_FIXTURE_TEST_CASE(an_acl_that_is_set_has_everybody_asked_for_again, held_pool)
{
    const posixfs::file_ref f = file(1, false);
    struct stat st{};
    BOOST_REQUIRE(::fstat(f->path.get(), &st) == 0);
    auto user = f->find_or_add(credential(1001, 200));
    user->read_stamp = posixfs::permission_stamp(st, f->acl_changes);
    const auto holds = [&] {
        return (cache->find(name)->path.get() == f->path.get()) &&
               user->read_stamp == posixfs::permission_stamp(st, f->acl_changes);
    };
    BOOST_TEST(holds());
    removals.add(handle(std::as_bytes(std::span("other"))), posixfs::removal_log::event::new_acl);
    BOOST_TEST(holds());
    // By whatever shard; what was asked before it is told is worth nothing either.
    const posixfs::permission_stamp asked(st, f->acl_changes);
    removals.add(name, posixfs::removal_log::event::new_acl);
    BOOST_TEST(!holds());
    user->read_stamp = asked;
    BOOST_TEST(!holds());
    user->read_stamp = posixfs::permission_stamp(st, f->acl_changes);
    BOOST_TEST(holds());
    end();
}

// Whoever sets many ACLs has nobody close what is open, nor keep what was removed.
BOOST_FIXTURE_TEST_CASE(many_acls_close_nothing, held_pool)
{
    const posixfs::file_ref f = file(1, false);
    const std::uint64_t before = f->acl_changes;
    const auto set_many = [&] {
        const handle other(std::as_bytes(std::span("other")));
        for (std::size_t i = 0; i <= posixfs::removal_log::max_entries; ++i)
            removals.add(other, posixfs::removal_log::event::new_acl);
    };
    set_many();
    const posixfs::file_ref again = cache->find(name);
    BOOST_TEST_REQUIRE(bool(again));
    BOOST_TEST(again->path.get() == f->path.get());
    BOOST_TEST(f->acl_changes != before);
    removals.add(name);
    set_many();
    BOOST_TEST(!cache->find(name));
    end();
}

// The first time a name of it may have gone meanwhile.
BOOST_AUTO_TEST_CASE(an_entry_that_is_stale_for_good_is_there)
{
    unsigned looks = 0;
    const auto after = [&](int first, int second) {
        looks = 0;
        return posixfs::is_there([&] { return ++looks == 1 ? first : second; });
    };
    BOOST_TEST(after(0, ENOENT));
    BOOST_TEST(looks == 1u);
    BOOST_TEST(!after(ENOENT, 0));
    BOOST_TEST(after(EACCES, ENOENT));
    BOOST_TEST(!after(ESTALE, ENOENT));
    BOOST_TEST(after(ESTALE, 0));
    BOOST_TEST(after(ESTALE, ESTALE));
    BOOST_TEST(looks == 2u);
}

BOOST_AUTO_TEST_CASE(a_handle_whose_inode_number_is_just_given_away_is_asked_for_again)
{
    unsigned calls = 0;
    auto fails_until = [&](unsigned last, int then) {
        calls = 0;
        errno = 0;
        return posixfs::open_settled([&calls, last, then] {
            errno = ++calls < last ? ENOMEM : then;
            return errno == 0 ? 7 : -1;
        });
    };
    BOOST_TEST(fails_until(1, 0) == 7);
    BOOST_TEST(calls == 1U);
    BOOST_TEST(fails_until(100, ESTALE) == -1);
    BOOST_TEST(errno == ESTALE);
    BOOST_TEST(calls == 100U);
    BOOST_TEST(fails_until(3, 0) == 7);
    // Without memory for good.
    BOOST_TEST(fails_until(UINT_MAX, 0) == -1);
    BOOST_TEST(errno == ENOMEM);
    BOOST_TEST(calls == 1001U);
}
