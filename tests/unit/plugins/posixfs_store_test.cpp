// SPDX-License-Identifier: Apache-2.0
// Files that peers reach by RDMA: as stores, which read and write by calls.
#include "backend_fixture.hpp"
#include "needs_root.hpp"
#include "temporary_directory.hpp"

#include <verbena/core/verbs/byte_store.hpp>
#include <verbena/plugins/posixfs.hpp>

#include <algorithm>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <utility>
#include <vector>

namespace {

int error_of_write = 0;
int error_of_read = 0;
int error_of_room = 0;
int error_of_write_back = 0;
std::size_t most_written = SIZE_MAX;
bool claims_to_be_fuse = false;
struct room {
    int mode = 0;
    std::uint64_t offset = 0, length = 0;
    bool operator==(const room&) const = default;
};
std::vector<room> asked;

} // namespace

// In place of libc's: of a disk that is full or fails.
extern "C" ssize_t pwritev(int fd, const iovec* vectors, int count, off_t offset)
{
    if (error_of_write != 0) {
        errno = error_of_write;
        return -1;
    }
    const iovec first{vectors->iov_base, std::min(vectors->iov_len, most_written)};
    return ::syscall(SYS_pwritev, fd, &first, count != 0 ? 1L : 0L, long(offset), 0L);
}
extern "C" ssize_t preadv2(int fd, const iovec* vectors, int count, off_t offset, int flags)
{
    if (error_of_read != 0) {
        errno = error_of_read;
        return -1;
    }
    return ::syscall(SYS_preadv2, fd, vectors, long(count), long(offset), 0L, long(flags));
}
extern "C" int fallocate(int fd, int mode, off_t offset, off_t length)
{
    asked.push_back({mode, static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(length)});
    if (error_of_room != 0) {
        errno = error_of_room;
        return -1;
    }
    return static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, length));
}
// What a file system is.
extern "C" int fstatfs(int fd, struct statfs* st) noexcept
{
    const int done = static_cast<int>(::syscall(SYS_fstatfs, fd, st));
    if (done == 0 && claims_to_be_fuse)
        st->f_type = FUSE_SUPER_MAGIC;
    return done;
}
extern "C" int sync_file_range(int fd, off64_t offset, off64_t size, unsigned flags)
{
    if (error_of_write_back != 0) {
        errno = std::exchange(error_of_write_back, 0); // it is told once
        return -1;
    }
    return static_cast<int>(::syscall(SYS_sync_file_range, fd, offset, size, flags));
}

namespace suite {

constexpr std::size_t most_descriptors = 640;
constexpr std::size_t most_stores = most_descriptors / 2 / 4;

std::unique_ptr<file_backend> make_backend(blocking_pool& pool, const backend_options& options)
{
    static temporary_directory where{"/var/tmp"};
    static const bool limited = [] {
        const rlimit few{most_descriptors, most_descriptors};
        return ::setrlimit(RLIMIT_NOFILE, &few) == 0;
    }();
    BOOST_REQUIRE(limited);
    posixfs::posixfs_options o;
    o.root = where.path();
    o.read_only = options.read_only;
    return std::move(*posixfs::open_posixfs(o, pool));
}

} // namespace suite

using namespace suite;

namespace {

constexpr std::uint64_t mib = 1 << 20;

struct stores : fixture {
    stores()
    {
        asked.clear();
        name = "f" + std::to_string(++files);
    }
    ~stores() { error_of_write = error_of_read = error_of_room = error_of_write_back = 0; }
    mapping map(const handle& f, std::uint64_t offset, std::uint64_t length, map_use use = map_use::write)
    {
        return must(fs->map(me, f, offset, length, use));
    }
    int write(const mapping& m, std::uint64_t offset, std::string_view text)
    {
        return fails(m.store->write(offset, bytes(text)));
    }
    std::string read(const mapping& m, std::uint64_t offset, std::size_t size)
    {
        std::string out(size, '?');
        const int failed = fails(m.store->read(offset, std::as_writable_bytes(std::span(out.data(), size))));
        return failed == 0 ? out : "error " + std::to_string(failed);
    }
    std::string name; // one for each case: all have one directory
    static inline int files = 0;
};

} // namespace

BOOST_AUTO_TEST_SUITE(posixfs_store_test)

BOOST_FIXTURE_TEST_CASE(what_is_written_to_a_store_is_in_the_file, stores)
{
    const handle f = make_file(name, "0123456789");
    const mapping m = map(f, 0, 100'000);
    BOOST_TEST(m.length == 100'000u);
    BOOST_TEST(m.parts.empty());
    BOOST_TEST(m.attrs.size == 10u);
    const auto before = stat(f);
    BOOST_TEST(write(m, 3, "abc") == 0);
    BOOST_TEST(get(me, f) == "012abc6789");
    BOOST_TEST(read(m, 2, 5) == "2abc6");
    BOOST_TEST((stat(f).change != before.change || stat(f).ctime != before.ctime));
    // Behind the end it makes the file longer.
    BOOST_TEST(write(m, 20, "end") == 0);
    BOOST_TEST(stat(f).size == 23u);
    put(me, f, 0, "put");
    BOOST_TEST(read(m, 0, 5) == "putab");
    BOOST_TEST(!m.store->write_failure());
}

BOOST_FIXTURE_TEST_CASE(what_lies_behind_the_end_reads_as_zeros, stores)
{
    const handle f = make_file(name, std::string(10'000, 'x'));
    const mapping m = map(f, 0, mib, map_use::read);
    BOOST_TEST(m.length == 10'000u);
    BOOST_TEST(read(m, 9'998, 6) == std::string("xx") + std::string(4, '\0'));
    BOOST_TEST(read(m, 20'000, 3) == std::string(3, '\0'));
    // Somebody local cuts it: no signal.
    set_attributes set;
    set.size = 5;
    must(fs->setattr(me, f, set, std::nullopt));
    BOOST_TEST(read(m, 3, 10'000) == std::string("xx") + std::string(9'998, '\0'));
    BOOST_TEST(map(f, 5, 10, map_use::read).length == 0u);
    BOOST_TEST(!map(f, 5, 10, map_use::read).store);
}

BOOST_FIXTURE_TEST_CASE(a_mapping_needs_the_rights_of_a_read_or_a_write, stores)
{
    needs_root("to act as another user");
    const handle f = make_file(name, "text", 0600);
    const request other = user(1234, 1234);
    BOOST_TEST(fails(fs->map(other, f, 0, 10, map_use::read)) == EACCES);
    BOOST_TEST(fails(fs->map(other, f, 0, 10, map_use::write)) == EACCES);
    BOOST_TEST(fails(fs->note_written(other, f, 1)) == EACCES);
    BOOST_TEST(fails(fs->note_written(other, f, 0)) == 0); // it does not open the file
    set_attributes set;
    set.mode = 0604;
    must(fs->setattr(me, f, set, std::nullopt));
    BOOST_TEST(fails(fs->map(other, f, 0, 10, map_use::read)) == 0);
    BOOST_TEST(fails(fs->map(other, f, 0, 10, map_use::write)) == EACCES);
    set.mode = 0602;
    must(fs->setattr(me, f, set, std::nullopt));
    BOOST_TEST(fails(fs->map(other, f, 0, 10, map_use::write)) == EACCES); // which is to read, too
}

// So that quotas bind, and set-id bits fall.
BOOST_FIXTURE_TEST_CASE(a_store_is_written_by_the_rights_of_its_caller, stores)
{
    needs_root("to act as another user");
    const handle f = make_file(name, "text", 04777);
    const request other = user(1234, 1234);
    const mapping m = must(fs->map(other, f, 0, 10, map_use::write));
    set_attributes set;
    set.mode = 04777;
    must(fs->setattr(me, f, set, std::nullopt));
    BOOST_TEST(stat(f).mode == 04777u);
    BOOST_TEST(write(m, 0, "x") == 0);
    BOOST_TEST(stat(f).mode == 0777u);
}

BOOST_FIXTURE_TEST_CASE(only_ranges_that_a_file_can_have_are_mapped, stores)
{
    const handle f = make_file(name, "text");
    constexpr std::uint64_t last = std::uint64_t(1) << 63;
    BOOST_TEST(fails(fs->map(me, f, 0, 0, map_use::read)) == EINVAL);
    BOOST_TEST(fails(fs->map(me, f, last - 10, 10, map_use::write)) == EFBIG);
    BOOST_TEST(fails(fs->map(me, f, ~std::uint64_t(0), 1, map_use::read)) == EFBIG);
    BOOST_TEST(fails(fs->map(me, f, 0, ~std::uint64_t(0), map_use::read)) == 0);
    BOOST_TEST(fails(fs->map(me, fs->root(), 0, 10, map_use::read)) == EISDIR);
    fs = make_backend(pool, {.read_only = true});
    BOOST_TEST(fails(fs->map(me, f, 0, 10, map_use::write)) == EROFS);
    BOOST_TEST(fails(fs->note_written(me, f, 10)) == EROFS);
}

// So a disk that is full says so before anything is written.
BOOST_FIXTURE_TEST_CASE(room_is_taken_before_anything_is_written, stores)
{
    const handle f = make_file(name, "text");
    BOOST_TEST(map(f, 0, mib, map_use::read).length == 4u);
    BOOST_TEST(asked.empty());
    BOOST_TEST(map(f, 4096, mib).length == mib);
    BOOST_TEST_REQUIRE(asked.size() == 1u);
    BOOST_TEST((asked[0] == room{FALLOC_FL_KEEP_SIZE, 4096, mib}));
    BOOST_TEST(stat(f).size == 4u);
    // A hole within the file stays one.
    set_attributes set;
    set.size = 8192;
    must(fs->setattr(me, f, set, std::nullopt));
    asked.clear();
    BOOST_TEST(map(f, 0, 8192).length == 8192u);
    BOOST_TEST(asked.empty());
    BOOST_TEST(map(f, 4096, 8192).length == 8192u);
    BOOST_TEST_REQUIRE(asked.size() == 1u);
    BOOST_TEST((asked[0] == room{FALLOC_FL_KEEP_SIZE, 8192, 4096}));
    // Some at once.
    error_of_room = EOPNOTSUPP; // of a file system that can't, whose writes take room as they come
    BOOST_TEST(map(f, 0, 1024 * mib).length == 64 * mib);
    BOOST_TEST((asked.back() == room{FALLOC_FL_KEEP_SIZE, 8192, 4 * mib}));
    // No more behind the end, wherever layouts begin: it would stay the file's.
    BOOST_TEST(map(f, 3 * mib, 64 * mib).length == 64 * mib);
    BOOST_TEST((asked.back() == room{FALLOC_FL_KEEP_SIZE, 3 * mib, mib + 8192}));
    asked.clear();
    BOOST_TEST(map(f, 4 * mib + 8192, mib).length == mib);
    BOOST_TEST(map(f, 1024 * mib, mib).length == mib);
    BOOST_TEST(asked.empty());
    for (const int failed : {ENOSPC, EDQUOT}) {
        error_of_room = failed;
        BOOST_TEST(fails(fs->map(me, f, 0, mib, map_use::write)) == failed);
    }
}

BOOST_FIXTURE_TEST_CASE(a_store_remembers_that_a_write_failed, stores)
{
    const handle f = make_file(name, "text");
    const mapping m = map(f, 0, mib);
    const mapping other = map(f, 0, mib);
    most_written = 2; // a disk that fills up takes some first
    BOOST_TEST(write(m, 0, "abcde") == 0);
    BOOST_TEST(get(me, f) == "abcde");
    most_written = SIZE_MAX;
    error_of_write = ENOSPC;
    BOOST_TEST(write(m, 0, "x") == ENOSPC);
    error_of_write = EIO;
    BOOST_TEST(write(m, 0, "x") == EIO);
    error_of_write = 0;
    BOOST_TEST(write(m, 0, "X") == 0);
    BOOST_TEST(m.store->write_failure().value() == ENOSPC);
    BOOST_TEST(m.store->write_failure().value() == ENOSPC);
    BOOST_TEST(get(me, f) == "Xbcde");
    // Where it failed, old bytes are not what the writer is to read; elsewhere they are.
    BOOST_TEST(read(m, 0, 2) == "error " + std::to_string(EIO));
    BOOST_TEST(read(m, 1, 4) == "bcde");
    BOOST_TEST(read(m, 0, 1) == "X"); // who asks whether the write has come
    BOOST_TEST(read(other, 0, 5) == "Xbcde");
    // The layout of which it is has lost bytes, and no other one.
    BOOST_TEST(!other.store->write_failure());
    BOOST_TEST(!map(f, 0, mib).store->write_failure());
}

// What lies between is read as ever.
BOOST_FIXTURE_TEST_CASE(writes_that_fail_far_apart_spoil_nothing_between_them, stores)
{
    const handle f = make_file(name, "text");
    const mapping m = map(f, 0, 64 * mib);
    BOOST_TEST(write(m, mib, "middle") == 0);
    error_of_write = EIO;
    BOOST_TEST(write(m, 0, "xx") == EIO);
    BOOST_TEST(write(m, 63 * mib, "yy") == EIO);
    error_of_write = 0;
    BOOST_TEST(read(m, mib, 6) == "middle");
    BOOST_TEST(read(m, 2, 2) == "xt");
    BOOST_TEST(read(m, 0, 2) == "error " + std::to_string(EIO));
    BOOST_TEST(read(m, 63 * mib + 1, 2) == "error " + std::to_string(EIO));
}

// The kernel tells it once to each descriptor; a write that was answered may be lost.
BOOST_FIXTURE_TEST_CASE(a_store_hears_of_what_could_not_be_written_back, stores)
{
    const handle f = make_file(name, "text");
    const mapping m = map(f, 0, mib);
    const mapping reader = map(f, 0, mib, map_use::read);
    const mapping other = map(f, 0, mib);
    BOOST_TEST(write(m, 0, "x") == 0);
    error_of_write_back = EIO;
    BOOST_TEST(!reader.store->write_failure()); // which has nothing to lose, and takes it from nobody
    BOOST_TEST(error_of_write_back == EIO);
    BOOST_TEST(m.store->write_failure().value() == EIO);
    BOOST_TEST(m.store->write_failure().value() == EIO);
    BOOST_TEST(other.store->write_failure().value() == EIO); // it has the same descriptor, perhaps
    BOOST_TEST(!map(f, 0, mib).store->write_failure());
}

// Of a file system that asks others, too: the descriptor by which it was written knows.
BOOST_FIXTURE_TEST_CASE(a_store_of_another_hosts_file_hears_of_what_could_not_be_written_back, stores)
{
    claims_to_be_fuse = true;
    fs = make_backend(pool, {});
    const handle f = make_file(name, "text");
    {
        const mapping m = map(f, 0, mib);
        BOOST_TEST(write(m, 0, "x") == 0);
        BOOST_TEST(!m.store->write_failure());
        error_of_write_back = EIO;
        BOOST_TEST(m.store->write_failure().value() == EIO);
    }
    fs.reset();
    claims_to_be_fuse = false;
}

BOOST_FIXTURE_TEST_CASE(a_read_that_fails_says_so, stores)
{
    const handle f = make_file(name, "text");
    const mapping m = map(f, 0, mib, map_use::read);
    error_of_read = EIO;
    BOOST_TEST(read(m, 0, 4) == "error " + std::to_string(EIO));
    error_of_read = EOPNOTSUPP; // of a file system that can't say so: the pool reads
    BOOST_TEST(read(m, 0, 4) == "text");
    error_of_read = EAGAIN;
    BOOST_TEST(read(m, 0, 4) == "text");
}

BOOST_FIXTURE_TEST_CASE(a_file_is_as_long_as_whoever_wrote_says, stores)
{
    const handle f = make_file(name, "0123456789");
    const auto grown = must(fs->note_written(me, f, 5000));
    BOOST_TEST(grown.before->size == 10u);
    BOOST_TEST(grown.after->size == 5000u);
    BOOST_TEST(get(me, f).substr(0, 12) == std::string("0123456789") + std::string(2, '\0'));
    // No shorter.
    BOOST_TEST(must(fs->note_written(me, f, 7)).after->size == 5000u);
    BOOST_TEST(must(fs->note_written(me, f, 0)).after->size == 5000u);
    // It takes room for a byte, and never sets a size: another one may have written behind that meanwhile.
    BOOST_TEST((asked.back() == room{0, 4999, 1}));
    error_of_room = EOPNOTSUPP; // nor would it write a zero
    BOOST_TEST(must(fs->note_written(me, f, 6000)).after->size == 5000u);
    error_of_room = ENOSPC;
    BOOST_TEST(fails(fs->note_written(me, f, 7000)) == ENOSPC);
    BOOST_TEST(fails(fs->note_written(me, f, std::uint64_t(1) << 63)) == EFBIG);
}

// They count among those that the caches keep within their budget, and have a bound of their own.
BOOST_FIXTURE_TEST_CASE(stores_have_a_bound, stores)
{
    const handle f = make_file(name, "text");
    std::vector<mapping> all;
    for (std::size_t i = 0; i < most_stores; ++i)
        all.push_back(map(f, 0, 10));
    BOOST_TEST(fails(fs->map(me, f, 0, 10, map_use::read)) == EMFILE);
    all.pop_back();
    BOOST_TEST(fails(fs->map(me, f, 0, 10, map_use::read)) == 0);
}

BOOST_FIXTURE_TEST_CASE(one_peer_has_half_of_the_stores, stores)
{
    const handle f = make_file(name, "text");
    request other = me;
    me.client = "192.0.2.1";
    other.client = "192.0.2.2";
    std::vector<mapping> all;
    for (std::size_t i = 0; i < most_stores / 2; ++i)
        all.push_back(map(f, 0, 10));
    BOOST_TEST(fails(fs->map(me, f, 0, 10, map_use::read)) == EMFILE);
    BOOST_TEST(fails(fs->map(other, f, 0, 10, map_use::read)) == 0);
    all.clear();
    BOOST_TEST(fails(fs->map(me, f, 0, 10, map_use::read)) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
