// SPDX-License-Identifier: Apache-2.0
// A region that the kernel does not take away, when there is no memory to note that.
#include <boost/test/unit_test.hpp>

#include "fake_rdma_core.hpp"

#include <cstdlib>
#include <memory>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

namespace {

thread_local bool next_fails = false;

} // namespace

void* operator new(std::size_t size)
{
    void* const made = std::exchange(next_fails, false) ? nullptr : std::malloc(size);
    if (made == nullptr)
        throw std::bad_alloc();
    return made;
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

BOOST_AUTO_TEST_SUITE(rdma_no_memory_test)

using namespace verbena;
using namespace verbena::rdma_test;

// The memory must not become another's, whatever of the notes fails: that of its owner, or the line in the log.
BOOST_AUTO_TEST_CASE(memory_that_is_not_taken_away_stays_without_a_note)
{
    for (const bool is_log : {true, false}) {
        std::vector<std::byte> bytes(4096);
        const auto kept = std::make_shared<int>();
        {
            fixture f;
            const auto all = [&]() -> task<void> {
                ends seen;
                auto q = co_await f.connected(seen);
                verbs::grant_request r;
                r.memory = bytes;
                r.own_region = true;
                r.keep = kept;
                auto made = co_await f.impl_part().make_grants({&r, 1});
                BOOST_REQUIRE_MESSAGE(made, why(made));
                it().stuck_regions = 2;
                it().before_taken_away = [&] { next_fails = !is_log && it().stuck_regions == 1; };
                if (is_log)
                    set_log_capture(
                        [](void*, std::string_view line) {
                            if (line.find("does not take away") != line.npos)
                                throw std::bad_alloc();
                        },
                        nullptr);
                co_await f.impl_part().revoke({&r.made, 1});
                set_log_capture(nullptr, nullptr);
                it().before_taken_away = nullptr;
                BOOST_TEST(it().stuck_regions == 0);
                BOOST_TEST(kept.use_count() == 2);
            };
            run_until_complete(*f.shard, all());
        }
        // Without a note of the region it is there for ever, and so is its owner.
        BOOST_TEST(kept.use_count() == (is_log ? 1 : 2));
        if (!is_log)
            static const std::shared_ptr<int> no_leak = kept;
    }
}

BOOST_AUTO_TEST_SUITE_END()
