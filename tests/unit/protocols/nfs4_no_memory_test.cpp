// SPDX-License-Identifier: Apache-2.0
// What the server of version 4 does once a lease goes on where memory ran out. A program of its own: here each allocation
// fails in its turn.
#include "nfs4_layouts_alone.hpp"
#include "nfs4_v40_client.hpp"
#include "used_up_frames.hpp"

#include <cstdlib>
#include <new>
#include <optional>
#include <thread>

namespace {

int fails_at = 0; // the allocation that fails, from 1; 0: none
bool has_failed = false;

} // namespace

void* operator new(std::size_t size)
{
    const bool fails = fails_at > 0 && --fails_at == 0;
    has_failed = has_failed || fails;
    void* const made = fails ? nullptr : std::malloc(size);
    if (made == nullptr)
        throw std::bad_alloc();
    return made;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

BOOST_AUTO_TEST_SUITE(nfs4_no_memory_test)

using namespace verbena;
using namespace verbena::test;
using namespace std::chrono_literals;

// An owner that nobody uses goes then, and whoever was to go without memory for it goes a lease later.
BOOST_AUTO_TEST_CASE(what_is_tended_once_a_lease_goes_on_where_there_was_no_memory)
{
    int failures = 0;
    for (bool failed = true; failed; failures += failed) {
        const auto tends = [&, at = failures + 1] {
            v40_fixture f;
            client0 a(f, "a");
            f.tasks.spawn([&] {
                a.connect();
                return f.commons->tend();
            });
            f.turns();
            const auto file = a.ready(a.creating("f"));
            BOOST_TEST(a.close(file).status == nfsstat4::ok);
            BOOST_TEST_REQUIRE(f.commons->v40.owners().size() == 1u);
            f.pass(60s, 1s);
            BOOST_TEST(a.renew() == nfsstat4::ok);
            f.pass(29s, 1s);
            std::optional<used_up_frames> used_up(std::in_place);
            has_failed = false;
            fails_at = at;
            f.pass(2s, 1s);
            fails_at = 0;
            used_up.reset();
            failed = has_failed;
            for (int i = 0; i < 4; ++i) {
                BOOST_TEST(a.renew() == nfsstat4::ok, "allocation " << at);
                f.pass(60s, 1s);
            }
            BOOST_TEST(f.commons->v40.owners().size() == 0u, "allocation " << at);
        };
        std::jthread(tends).join(); // a new one, so that no frame of a coroutine is left from a run before
    }
    BOOST_TEST(failures > 0);
}

// Its last step is on another shard. Whoever fills a hole that it may have told of waits for that step.
BOOST_AUTO_TEST_CASE(a_layout_without_memory_for_its_end_holds_up_nobody)
{
    using namespace layouts_alone;
    int failures = 0, refused = 0;
    for (bool failed = true; failed; failures += failed) {
        const auto asks = [&, at = failures + 1] {
            layouts_alone::data_server s;
            s.run([&]() -> task<void> {
                const auto f = co_await s.make("f", "");
                const bool put = co_await s.put(f, block, "text");
                BOOST_TEST_REQUIRE(put);
                const unsigned home = co_await s.home_of(f);
                auto c = co_await s.connect("c");
                const auto opened = co_await s.open(c, f);
                result<layouts::granted> got = error(std::errc::not_enough_memory);
                std::optional<used_up_frames> used_up(std::in_place);
                has_failed = false;
                fails_at = at;
                try {
                    got = co_await s.get(c, f, opened, lock_type::read, 0, 2 * block, 1 - home);
                } catch (const std::bad_alloc&) {
                }
                fails_at = 0;
                used_up.reset();
                failed = has_failed;
                if (got)
                    co_return;
                ++refused;
                (void)co_await sleep_for(10ms);
                BOOST_TEST(s.kind.counts().segments == 0, "allocation " << at);
                BOOST_TEST(s.server->grants() == 0u, "allocation " << at);
                auto writing = s.state->check_io_without_open(verbena::files::nobody, f.known,
                                                              verbena::files::operation::write, false);
                const auto may = co_await writing;
                BOOST_TEST(may.has_value(), "allocation " << at);
                const auto again = co_await s.get(c, f, opened, lock_type::read, 0, 2 * block, 1 - home);
                BOOST_TEST(again.has_value(), "allocation " << at);
            });
        };
        std::jthread(asks).join(); // a new one, so that no frame of a coroutine is left from a run before
    }
    BOOST_TEST(refused > 10);
}

BOOST_AUTO_TEST_SUITE_END()
