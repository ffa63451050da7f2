// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include "../plugins/temporary_directory.hpp"

#include <verbena/core/net/net.hpp>
#include <verbena/core/reactor/file_read.hpp>
#include <verbena/core/reactor/file_write.hpp>
#include <verbena/core/task/scope.hpp>

#include <algorithm>
#include <array>
#include <fcntl.h>
#include <memory>
#include <unistd.h>
#include <vector>

BOOST_AUTO_TEST_SUITE(file_read_test)

using namespace verbena;

namespace {

constexpr std::size_t size = (std::size_t(1) << 20) + 3;

std::byte octet_at(std::size_t n) { return std::byte(n * 31 + n / 4096); }

std::unique_ptr<reactor> make(unsigned masked = 0)
{
    reactor_options o;
    o.masked_ring_features = masked;
    auto r = reactor::create(o);
    BOOST_REQUIRE_MESSAGE(r, (r ? std::string() : r.error().message()));
    return std::move(*r);
}

// A file of `size` octets of which nothing is in the page cache, where that can be had.
net::unique_fd cold_file(const std::string& path)
{
    net::unique_fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    BOOST_REQUIRE(file);
    std::vector<std::byte> data(size);
    for (std::size_t n = 0; n < size; ++n)
        data[n] = octet_at(n);
    BOOST_REQUIRE(::write(file.get(), data.data(), size) == ssize_t(size));
    BOOST_REQUIRE(::fsync(file.get()) == 0);
    ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
    return file;
}

task<void> read_at(int fd, std::size_t offset, std::size_t wanted, std::size_t& good)
{
    std::vector<std::byte> to(wanted);
    file_read one(fd, to, offset);
    const int n = co_await one;
    const std::size_t expected = offset < size ? std::min(wanted, size - offset) : 0;
    bool same = n == int(expected);
    for (std::size_t i = 0; same && i < expected; ++i)
        same = to[i] == octet_at(offset + i);
    good += same;
}

task<std::size_t> read_all_at_once(int fd, reactor& shard)
{
    std::size_t good = 0;
    scope reads(shard);
    for (std::size_t offset = 0; offset < size; offset += 16384)
        reads.spawn([&] { return read_at(fd, offset, 16384, good); });
    reads.spawn([&] { return read_at(fd, size - 5, 100, good); }); // what there is
    reads.spawn([&] { return read_at(fd, size, 100, good); });     // nothing
    reads.spawn([&] { return read_at(fd, size + 4096, 1, good); });
    co_await reads.join();
    co_return good;
}

task<int> read_fails(int fd)
{
    std::array<std::byte, 16> to{};
    file_read one(fd, to, 0);
    const int n = co_await one;
    co_return n;
}

task<void> write_at(int fd, std::size_t offset, std::size_t wanted, bool through, std::size_t& good)
{
    std::vector<std::byte> from(wanted);
    for (std::size_t i = 0; i < wanted; ++i)
        from[i] = octet_at(offset + i);
    file_write one(fd, from, offset, through);
    const int n = co_await one;
    good += n == int(wanted);
}

task<std::size_t> write_all_at_once(int fd, reactor& shard)
{
    std::size_t good = 0;
    scope writes(shard);
    for (std::size_t offset = 0; offset < size; offset += 16384)
        writes.spawn([&, offset] {
            return write_at(fd, offset, std::min<std::size_t>(16384, size - offset), offset % 32768 == 0,
                            good);
        });
    co_await writes.join();
    co_return good;
}

task<int> write_fails(int fd)
{
    const std::array<std::byte, 16> from{};
    file_write one(fd, from, 0, true);
    const int n = co_await one;
    co_return n;
}

} // namespace

BOOST_AUTO_TEST_CASE(many_writes_at_once_are_in_the_file)
{
    suite::temporary_directory directory;
    const auto all = unsigned(ring_feature::single_issuer) | unsigned(ring_feature::defer_taskrun);
    for (const unsigned masked : {0u, unsigned(ring_feature::defer_taskrun), all}) {
        const net::unique_fd file(
            ::open((directory.path() / "file").c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
        const auto shard = make(masked);
        BOOST_TEST(run_until_complete(*shard, write_all_at_once(file.get(), *shard)) ==
                   (size + 16383) / 16384);
        BOOST_TEST(run_until_complete(*shard, read_all_at_once(file.get(), *shard)) ==
                   (size + 16383) / 16384 + 3);
        BOOST_TEST(run_until_complete(*shard, write_fails(-1)) == -EBADF);
    }
}

BOOST_AUTO_TEST_CASE(many_at_once_bring_what_the_file_holds)
{
    suite::temporary_directory directory;
    const auto all = unsigned(ring_feature::single_issuer) | unsigned(ring_feature::defer_taskrun);
    for (const unsigned masked : {0u, unsigned(ring_feature::defer_taskrun), all}) {
        const auto file = cold_file((directory.path() / "file").string());
        const auto shard = make(masked);
        BOOST_TEST(run_until_complete(*shard, read_all_at_once(file.get(), *shard)) ==
                   (size + 16383) / 16384 + 3);
    }
}

BOOST_AUTO_TEST_CASE(errors_are_told)
{
    suite::temporary_directory directory;
    const auto shard = make();
    BOOST_TEST(run_until_complete(*shard, read_fails(-1)) == -EBADF);
    const net::unique_fd folder(::open(directory.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    BOOST_TEST(run_until_complete(*shard, read_fails(folder.get())) == -EISDIR);
}

BOOST_AUTO_TEST_SUITE_END()
