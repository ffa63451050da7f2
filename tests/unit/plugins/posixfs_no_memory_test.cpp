// SPDX-License-Identifier: Apache-2.0
// Locks of posixfs that other processes see, where memory runs out amid a step: what the kernel holds and what is known
// of it agree again. A program of its own: here each allocation that the lane's threads make for ranges fails in its
// turn.
#include "local_locks_fixture.hpp"

#include <new>

namespace {

std::atomic<int> fails_at{0}; // the allocation that fails, from 1; 0: none
std::atomic<bool> has_failed{false};

} // namespace

void* operator new(std::size_t size)
{
    const bool is_for_ranges = size % sizeof(verbena::files::locked_range) == 0;
    const bool counts = fails_at.load() > 0 && is_for_ranges && ::gettid() != ::getpid();
    const bool fails = counts && fails_at.fetch_sub(1) == 1;
    if (fails)
        has_failed = true;
    void* const made = fails ? nullptr : std::malloc(size);
    if (made == nullptr)
        throw std::bad_alloc();
    return made;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace suite {

BOOST_AUTO_TEST_SUITE(posixfs_no_memory_test)

BOOST_AUTO_TEST_CASE(the_kernel_has_what_the_table_has_though_memory_ran_out)
{
    int failures = 0;
    for (bool failed = true; failed; failures += failed) {
        exported e;
        const auto a = e.open("a");
        BOOST_REQUIRE(e.lock(a, "x", {0, 9}, read));
        has_failed = false;
        fails_at = failures + 1;
        const result<void> done = e.lock(a, "x", {20, 29}, write);
        const bool is_locked = done.has_value();
        if (is_locked)
            e.unlock(a, "x", {24, 25});
        fails_at = 0;
        BOOST_TEST(!is_denied(done));
        failed = has_failed;
        BOOST_TEST_CONTEXT("allocation " << failures + 1)
        {
            BOOST_REQUIRE(e.lock(a, "x", {60, 69}, read));
            e.unlock(a, "x", {60, 69});
            BOOST_TEST(e.local->sees(0) == F_RDLCK);
            BOOST_TEST(e.local->sees(20) == (is_locked ? F_WRLCK : F_UNLCK));
            BOOST_TEST(e.local->sees(24) == F_UNLCK);
            BOOST_TEST(e.local->sees(26) == (is_locked ? F_WRLCK : F_UNLCK));
            BOOST_TEST(e.local->sees(60) == F_UNLCK);
            if (is_locked)
                e.unlock(a, "x", {20, 29});
            BOOST_TEST(e.local->sees(20) == F_UNLCK);
        }
    }
    BOOST_TEST(failures > 2);
}

BOOST_AUTO_TEST_SUITE_END()

} // namespace suite
