// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include "../../../plugins/posixfs/file_status.hpp"
#include "../../../plugins/posixfs/handles.hpp"
#include "backend_fixture.hpp"
#include "temporary_directory.hpp"

#include <verbena/plugins/posixfs.hpp>

#include <cstdarg>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <future>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace verbena;
using namespace verbena::storage;

namespace {

bool is_xfs = false;
std::uint64_t device = 1;
std::uint64_t uuid[2] = {0x0123456789abcdef, 0x1111111111111111};
bool tells_uuid = true;
std::uint64_t subvolume = 0;
off_t longest = 0;

std::uint64_t fsid_of(const std::filesystem::path& folder)
{
    auto shard = reactor::create();
    BOOST_REQUIRE(shard);
    blocking_pool pool(1);
    posixfs::posixfs_options o;
    o.root = folder;
    auto fs = posixfs::open_posixfs(o, pool);
    BOOST_REQUIRE(fs);
    const request r = suite::user(::geteuid(), ::getegid());
    auto body = [&]() -> task<result<attributes>> {
        auto known = co_await (*fs)->getattr(r, (*fs)->root());
        co_return known;
    };
    const auto known = run_until_complete(**shard, body());
    BOOST_REQUIRE(known);
    return known->fsid;
}

} // namespace

// In place of libc's: of an XFS, whose id is its device's number, or of a subvolume of btrfs.
extern "C" int fstatfs(int fd, struct statfs* st)
{
    const long failed = ::syscall(SYS_fstatfs, fd, st);
    if (failed == 0 && is_xfs) {
        st->f_type = XFS_SUPER_MAGIC;
        std::memcpy(&st->f_fsid, &device, sizeof device);
    }
    if (failed == 0 && subvolume != 0) {
        st->f_type = BTRFS_SUPER_MAGIC;
        std::memcpy(&st->f_fsid, &subvolume, sizeof subvolume);
    }
    return int(failed);
}
extern "C" int ioctl(int fd, unsigned long request, ...) noexcept
{
    va_list more;
    va_start(more, request);
    void* const to = va_arg(more, void*);
    va_end(more);
    if (_IOC_TYPE(request) != 'X')
        return int(::syscall(SYS_ioctl, fd, request, to));
    if (!tells_uuid || _IOC_NR(request) != 100 || _IOC_SIZE(request) != 112) {
        errno = ENOTTY;
        return -1;
    }
    std::memcpy(static_cast<char*>(to) + 64, uuid, sizeof uuid);
    return 0;
}

// A file system whose files are shorter than what off_t can say.
extern "C" off_t lseek(int fd, off_t offset, int whence) noexcept
{
    if (longest != 0 && whence == SEEK_SET && offset > longest) {
        errno = EINVAL;
        return -1;
    }
    return ::syscall(SYS_lseek, fd, offset, whence);
}

BOOST_AUTO_TEST_CASE(of_xfs_it_outlives_the_number_of_the_device)
{
    suite::temporary_directory folder;
    is_xfs = true;
    const std::uint64_t first = fsid_of(folder.path());
    BOOST_TEST(first == (uuid[0] ^ uuid[1]));
    device = 2;
    BOOST_TEST(fsid_of(folder.path()) == first);
    uuid[0] = 5; // another file system
    BOOST_TEST(fsid_of(folder.path()) != first);
    tells_uuid = false; // better than none
    BOOST_TEST(fsid_of(folder.path()) == device);
    is_xfs = false;
    BOOST_TEST(fsid_of(folder.path()) != device);
}

// They are no mounts. Each has a device, which changes with each start, an id, and a root of number 256.
BOOST_AUTO_TEST_CASE(subvolumes_of_btrfs_have_ids_of_their_own)
{
    suite::temporary_directory folder;
    subvolume = 0x1000;
    posixfs::posixfs_options o;
    o.root = folder.path();
    const auto handles = posixfs::handle_source::open(o);
    BOOST_REQUIRE(handles);
    const posixfs::mount_point& mount = (*handles)->root_mount();
    struct stat st{};
    BOOST_REQUIRE(posixfs::file_status(mount.fd.get(), st) == 0);
    const auto id = [&] { return (*handles)->fsid_of(mount.fd.get(), st, mount); };
    BOOST_TEST(id() == 0x1000u);
    subvolume = 0x1001;
    BOOST_TEST(id() == 0x1000u); // of the mount itself nobody is asked
    st.st_dev += 1;
    BOOST_TEST(id() == 0x1001u);
    st.st_dev += 1; // after another start
    BOOST_TEST(id() == 0x1001u);
    subvolume = 0x1002;
    BOOST_TEST(id() == 0x1002u);
    subvolume = 0;
}

// As where the file system is frozen, and makes no file until it is thawed.
BOOST_AUTO_TEST_CASE(a_file_system_that_makes_no_file_does_not_hold_up_the_start)
{
    class frozen final : public blocking_pool::job {
    public:
        ~frozen() = default;
        void execute() noexcept override { thawed.get_future().wait(); }
        void deliver() noexcept override {}
        std::promise<void> thawed;
    } holds;
    suite::temporary_directory folder;
    blocking_pool pool(1);
    BOOST_REQUIRE(pool.submit(holds));
    posixfs::posixfs_options o;
    o.root = folder.path();
    longest = 12345;
    auto fs = posixfs::open_posixfs(o, pool);
    BOOST_REQUIRE(fs);
    BOOST_TEST((*fs)->info().max_file_size == std::uint64_t(INT64_MAX));
    holds.thawed.set_value();
    pool.finish();
    BOOST_TEST((*fs)->info().max_file_size == 12345u);
    longest = 0;
}

BOOST_AUTO_TEST_CASE(the_longest_file_is_found_out)
{
    suite::temporary_directory folder;
    posixfs::posixfs_options o;
    o.root = folder.path();
    const auto told = [&] {
        blocking_pool pool(1);
        auto fs = posixfs::open_posixfs(o, pool);
        BOOST_REQUIRE(fs);
        pool.finish(); // the start may not have waited so long
        return (*fs)->info().max_file_size;
    };
    // As the file system that the test runs on has it.
    const std::uint64_t real = told();
    const int fd = ::open((folder.path() / "f").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    BOOST_REQUIRE(fd >= 0);
    BOOST_TEST(::ftruncate(fd, off_t(real)) == 0);
    if (real < std::uint64_t(INT64_MAX))
        BOOST_TEST(::ftruncate(fd, off_t(real) + 1) != 0);
    ::close(fd);
    for (const off_t most : {off_t(1), off_t(INT32_MAX), (off_t(1) << 40) - 4096}) {
        longest = most;
        BOOST_TEST(told() == std::uint64_t(most));
    }
    // Where no file may be made nobody is asked.
    o.read_only = true;
    BOOST_TEST(told() == std::uint64_t(INT64_MAX));
    longest = 0;
    o.read_only = false;
    BOOST_TEST(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}
