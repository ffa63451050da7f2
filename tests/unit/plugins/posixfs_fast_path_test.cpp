// SPDX-License-Identifier: Apache-2.0
// What steady state costs in posixfs: no heap allocation, and one sync for many.
#define BOOST_TEST_MODULE posixfs_fast_path
#include <boost/test/unit_test.hpp>

#include "../../../plugins/posixfs/sync_group.hpp"
#include "../allocation_count.hpp"
#include "temporary_directory.hpp"

#include <verbena/core/scope.hpp>
#include <verbena/plugins/posixfs.hpp>

#include <fcntl.h>
#include <unistd.h>

using namespace verbena;
using namespace verbena::storage;
using verbena::test::allocations;

namespace {

std::unique_ptr<reactor> make_reactor()
{
    auto r = reactor::create();
    BOOST_REQUIRE_MESSAGE(r, (r ? std::string() : r.error().message()));
    return std::move(*r);
}

task<std::uint64_t> allocations_of_steady_state(file_backend& fs)
{
    request r;
    r.who = credential(::geteuid(), ::getegid());
    set_attributes set;
    set.mode = 0600;
    auto made = co_await fs.create(r, fs.root(), "f", create_mode::guarded, set, 0);
    if (!made)
        co_return ~std::uint64_t(0);
    const handle f = made->made.handle;
    std::vector<std::byte> memory(4096);
    const std::span<const std::byte> piece(memory);
    std::uint64_t before = 0;
    for (int i = 0; i < 200; ++i) {
        if (i == 100)
            before = allocations.load();
        auto w = co_await fs.write(r, f, 0, std::span(&piece, 1), stability::unstable);
        auto n = co_await fs.read(r, f, 0, memory);
        auto a = co_await fs.getattr(r, f);
        auto l = co_await fs.lookup(r, fs.root(), "f");
        auto x = co_await fs.access(r, f, R_OK | W_OK);
        if (!w || !n || n->count != 4096 || !a || !l || !x)
            co_return ~std::uint64_t(0);
    }
    co_return allocations.load() - before;
}

task<void> one_sync(posixfs::sync_group& group, int fd, std::uint64_t inode, int& failed)
{
    auto done = co_await group.sync(posixfs::sync_group::what::metadata, fd, 1, inode);
    failed += done ? 0 : 1;
}

} // namespace

BOOST_AUTO_TEST_CASE(steady_state_allocates_nothing)
{
    suite::temporary_directory directory;
    auto shard = make_reactor();
    blocking_pool pool(2);
    posixfs::posixfs_options o;
    o.root = directory.path();
    auto fs = posixfs::open_posixfs(o, pool);
    BOOST_REQUIRE(fs);
    BOOST_TEST(run_until_complete(*shard, allocations_of_steady_state(**fs)) == 0u);
}

BOOST_AUTO_TEST_CASE(one_sync_serves_all_who_wait)
{
    suite::temporary_directory directory;
    const int fd = ::open(directory.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    BOOST_REQUIRE(fd >= 0);
    auto shard = make_reactor();
    blocking_pool pool(2);
    posixfs::sync_group group(pool);
    int failed = 0;
    auto all = [&]() -> task<void> {
        const task_context& context = co_await current_context();
        scope s(*context.shard);
        for (int i = 0; i < 200; ++i)
            s.spawn(one_sync(group, fd, 7, failed));
        co_await s.join();
    };
    run_until_complete(*shard, all());
    BOOST_TEST(failed == 0);
    // One that had begun, and one or two for all who came while it ran.
    BOOST_TEST(group.rounds() >= 1u);
    BOOST_TEST(group.rounds() <= 20u);
    ::close(fd);
}

BOOST_AUTO_TEST_CASE(a_failed_sync_fails_all_who_wait)
{
    auto shard = make_reactor();
    blocking_pool pool(2);
    posixfs::sync_group group(pool);
    int failed = 0;
    auto all = [&]() -> task<void> {
        const task_context& context = co_await current_context();
        scope s(*context.shard);
        for (int i = 0; i < 50; ++i)
            s.spawn(one_sync(group, -1, 7, failed));
        co_await s.join();
    };
    run_until_complete(*shard, all());
    BOOST_TEST(failed == 50);
    BOOST_TEST(group.failures() > 0u);
}
