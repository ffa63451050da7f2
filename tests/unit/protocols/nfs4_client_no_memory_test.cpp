// SPDX-License-Identifier: Apache-2.0
// Calls of NFSv4's client that go on where their caller is stopped: without memory for a part of one the caller hears
// so, and the next one is served. A program of its own: here each frame of a coroutine fails in its turn.
#include "nfs4_two_clients.hpp"

#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/frame_pool.hpp>

#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

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

BOOST_AUTO_TEST_SUITE(nfs4_client_no_memory_test)

using namespace verbena;
using namespace verbena::test;

namespace {

/// Takes all frames that are left from before, so that new ones come from the heap.
class no_frames_left {
public:
    no_frames_left()
    {
        for (std::size_t size = 64; size < 4096; size += 64) {
            for (const std::uint64_t before = fresh(); fresh() == before;)
                held_.emplace_back(allocate_frame(size), size);
        }
    }
    no_frames_left(const no_frames_left&) = delete;
    ~no_frames_left()
    {
        for (const auto& [frame, size] : held_)
            release_frame(frame, size);
    }

private:
    static std::uint64_t fresh() { return current_frame_pool_stats().fresh; }
    std::vector<std::pair<void*, std::size_t>> held_;
};

/// A call is over within an hour, with frame `at` failing, and again with memory enough. Whether there was such a
/// frame.
template<class Call>
bool fails(int at, Call call)
{
    bool failed = false;
    const auto run = [&] {
        two_clients f;
        f.holder.user.use_delegations(0);
        const nfs::v4::node what = f.make("f");
        std::unique_ptr<nfs::v4::file> used = f.open(f.holder, what, share4::access_both);
        const auto both = [&]() -> task<void> {
            bool is_told = false;
            const no_frames_left none;
            has_failed = false;
            fails_at = at;
            try {
                task<result<void>> first = call(f, what, *used);
                const auto done = co_await with_timeout(1h, std::move(first));
                is_told = done || done.error() != std::errc::timed_out;
            } catch (const std::bad_alloc&) {
                is_told = true;
            }
            fails_at = 0;
            failed = has_failed;
            BOOST_TEST(is_told, "frame " << at);
            task<result<void>> second = call(f, what, *used);
            const auto done = co_await with_timeout(1h, std::move(second));
            BOOST_TEST(done.has_value(), "frame " << at);
            const auto closed = co_await used->close();
            BOOST_TEST(closed.has_value());
        };
        f.run(both);
    };
    run();
    return failed;
}

template<class Call>
void each_frame_fails_in_its_turn(Call call)
{
    int at = 1;
    while (fails(at, call))
        ++at;
    BOOST_TEST(at > 10);
}

} // namespace

BOOST_AUTO_TEST_CASE(an_open_for_which_there_is_no_memory_ends)
{
    each_frame_fails_in_its_turn(
        [](two_clients& f, nfs::v4::node what, nfs::v4::file&) -> task<result<void>> {
            auto opened = co_await f.holder.user.open(what, share4::access_read);
            if (!opened)
                co_return opened.error();
            co_return co_await (*opened)->close();
        });
}

BOOST_AUTO_TEST_CASE(a_lock_for_which_there_is_no_memory_ends)
{
    each_frame_fails_in_its_turn([](two_clients&, nfs::v4::node, nfs::v4::file& of) -> task<result<void>> {
        auto locked = co_await of.lock({0, 9}, files::lock_type::write, false);
        if (!locked)
            co_return locked;
        co_return co_await of.unlock({0, 9});
    });
}

BOOST_AUTO_TEST_SUITE_END()
