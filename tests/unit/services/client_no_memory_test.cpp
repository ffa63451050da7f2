// SPDX-License-Identifier: Apache-2.0
// The command-line program without memory for a task: it tells so, and does not die of it. A program of its own: here
// each frame of a coroutine fails in its turn.
#include <boost/test/unit_test.hpp>

#include "client_texts.hpp"

#include <cstdlib>
#include <new>
#include <thread>

namespace {

thread_local int fails_at = 0; // the frame that fails, from 1; 0: none
thread_local bool has_failed = false;

} // namespace

// Frames come in units of 64 bytes (frame_pool.cpp).
void* operator new(std::size_t size)
{
    const bool fails = size % 64 == 0 && fails_at > 0 && fails_at-- == 1;
    has_failed = has_failed || fails;
    void* const made = fails ? nullptr : std::malloc(size);
    if (made == nullptr)
        throw std::bad_alloc();
    return made;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

BOOST_AUTO_TEST_SUITE(client_no_memory_test)

using namespace verbena;

namespace {

/// `body` once for each of the frames that it makes, which fails. Yields how often it ended by an exception.
template<class Body>
int each_frame_fails_in_its_turn(Body body)
{
    int at = 1;
    int thrown = 0;
    bool failed = true;
    while (failed) {
        const auto run = [&] {
            has_failed = false;
            BOOST_TEST_CONTEXT("frame " << at) { thrown += body(at) ? 0 : 1; }
            failed = has_failed;
        };
        std::jthread(run).join(); // a new one, so that no frame is left from a run before
        ++at;
    }
    BOOST_TEST(at > 4);
    return thrown;
}

} // namespace

// Whatever could not be made, the file is there, or the copy failed and says so. Then all goes on.
BOOST_AUTO_TEST_CASE(a_copy_fails_or_is_whole)
{
    int told = 0;
    each_frame_fails_in_its_turn([&](int at) {
        cli::runtime runtime(std::move(*reactor::create({})), cli::global_options());
        cli::copy_options o;
        o.checksum = true;
        o.quiet = true;
        cli::copier copier(runtime, o);
        test::text_store there(runtime.buffers());
        for (int i = 0; i < 100'000; ++i)
            there.files["from"] += static_cast<char>('a' + i % 23);
        const auto copy = [&](const char* name) -> task<void> {
            co_await copier.copy(there, "from", there, name);
        };
        bool is_thrown = false;
        fails_at = at;
        try {
            run_until_complete(runtime.shard(), copy("to"));
        } catch (const std::bad_alloc&) {
            is_thrown = true;
        }
        fails_at = 0;
        const auto failures = copier.totals().failures;
        told += failures != 0 ? 1 : 0;
        if (!is_thrown && failures == 0)
            BOOST_TEST((there.files["to"] == there.files["from"]));
        // After a failure for lack of memory the rest is left out.
        for (const char* again : {"1", "2", "3", "4", "5", "6", "7", "8", "9"}) {
            if (failures != 0)
                break;
            run_until_complete(runtime.shard(), copy(again));
            BOOST_TEST((there.files[again] == there.files["from"]));
        }
        BOOST_TEST(copier.totals().failures == failures);
        return !is_thrown;
    });
    BOOST_TEST(told > 2);
}

BOOST_AUTO_TEST_SUITE_END()
