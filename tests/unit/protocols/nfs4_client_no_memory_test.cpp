// SPDX-License-Identifier: Apache-2.0
// Calls of NFSv4's client that go on where their caller is stopped: without memory for a part of one the caller hears
// so, and the next one is served. A program of its own: here each frame of a coroutine fails in its turn.
#include "nfs4_two_clients.hpp"

#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/frame_pool.hpp>
#include <verbena/core/task/sleep.hpp>

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

constexpr files::byte_range bytes{0, 9}, other_bytes{20, 29};

struct world : two_clients {
    ~world() { holder.wire.holds_answer = nullptr; }
    /// Whether a client that has nothing may lock what the calls lock, without the wait that it could be told to.
    task<bool> others_may_lock()
    {
        auto opened = co_await other.user.open(what, share4::access_both);
        if (!opened)
            co_return false;
        const auto locked = co_await (*opened)->lock(bytes, files::lock_type::write, false);
        const auto closed = co_await (*opened)->close();
        co_return locked&& closed;
    }
    /// Whether the client thinks that no OPEN is under way: then it takes no recall of what it does not know.
    bool asks_for_nothing()
    {
        CB_RECALL4args recall;
        recall.stateid.other.fill(std::byte(7));
        recall.fh = what.handle.bytes();
        return call_back(recall) == nfsstat4::bad_stateid;
    }

    nfs::v4::node what;
    std::unique_ptr<nfs::v4::file> used, second;
    event go; // of an answer that is held
};

/// A call is over within an hour, with frame `at` failing, and again with memory enough. Whether there was such a
/// frame. `delegates`: the file that is open has a delegation, so that another one needs no open of its own.
template<class Call>
bool fails(int at, Call call, bool delegates)
{
    bool failed = false;
    world w;
    w.holder.user.use_delegations(delegates ? 8 : 0);
    w.what = w.make("f");
    w.used = w.open(w.holder, w.what, share4::access_both);
    BOOST_TEST_REQUIRE(w.holder.user.delegations() == (delegates ? 1u : 0u));
    const auto both = [&]() -> task<void> {
        bool is_told = false;
        const no_frames_left none;
        has_failed = false;
        fails_at = at;
        try {
            task<result<void>> first = call(w);
            const auto done = co_await with_timeout(1h, std::move(first));
            is_told = done || done.error() != std::errc::timed_out;
        } catch (const std::bad_alloc&) {
            is_told = true;
        }
        fails_at = 0;
        failed = has_failed;
        BOOST_TEST(is_told, "frame " << at);
        task<result<void>> second = call(w);
        const auto done = co_await with_timeout(1h, std::move(second));
        BOOST_TEST(done.has_value(), "frame " << at);
        const bool may_lock = co_await w.others_may_lock();
        BOOST_TEST(may_lock, "frame " << at);
        const auto closed = co_await w.used->close();
        BOOST_TEST(closed.has_value());
    };
    w.run(both);
    BOOST_TEST(w.asks_for_nothing(), "frame " << at);
    return failed;
}

template<class Call>
void each_frame_fails_in_its_turn(Call call, bool delegates = false)
{
    int at = 1;
    while (fails(at, call, delegates))
        ++at;
    BOOST_TEST(at > 10);
}

} // namespace

BOOST_AUTO_TEST_CASE(an_open_for_which_there_is_no_memory_ends)
{
    each_frame_fails_in_its_turn([](world& w) -> task<result<void>> {
        auto opened = co_await w.holder.user.open(w.what, share4::access_read);
        if (!opened)
            co_return opened.error();
        co_return co_await (*opened)->close();
    });
}

BOOST_AUTO_TEST_CASE(a_lock_for_which_there_is_no_memory_ends)
{
    each_frame_fails_in_its_turn([](world& w) -> task<result<void>> {
        auto locked = co_await w.used->lock(bytes, files::lock_type::write, false);
        if (!locked)
            co_return locked;
        co_return co_await w.used->unlock(bytes);
    });
}

// If not at once, then before the next lock of the file.
BOOST_AUTO_TEST_CASE(what_is_locked_for_who_has_gone_is_undone_where_memory_ran_out)
{
    each_frame_fails_in_its_turn([](world& w) -> task<result<void>> {
        w.go.reset();
        w.holder.wire.holds_answer = [&w](const sent_compound& call) {
            return call.has(nfs_opnum4::lock) ? &w.go : nullptr;
        };
        const auto gives_up = [](world& of) -> task<result<void>> {
            task<result<void>> locking = of.used->lock(bytes, files::lock_type::write, false);
            const auto locked = co_await with_timeout(1s, std::move(locking));
            co_return locked;
        };
        bool lacks_memory = false;
        try {
            task<result<void>> giving_up = gives_up(w);
            (void)co_await giving_up;
        } catch (const std::bad_alloc&) {
            lacks_memory = true;
        }
        w.go.set();
        w.holder.wire.holds_answer = nullptr;
        (void)co_await sleep_for(1min);
        if (lacks_memory)
            co_return error(std::errc::not_enough_memory);
        auto another = co_await w.used->lock(other_bytes, files::lock_type::write, false);
        if (!another)
            co_return another;
        co_return co_await w.used->unlock(other_bytes);
    });
}

// While another file has the open, which keeps the lock.
BOOST_AUTO_TEST_CASE(what_a_closed_file_had_locked_goes_where_memory_ran_out)
{
    each_frame_fails_in_its_turn(
        [](world& w) -> task<result<void>> {
            if (w.second == nullptr) { // else its close() began nothing
                auto opened = co_await w.holder.user.open(w.what, share4::access_both);
                if (!opened)
                    co_return opened.error();
                w.second = std::move(*opened);
                auto locked = co_await w.second->lock(bytes, files::lock_type::write, false);
                if (!locked)
                    co_return locked;
            }
            auto closed = co_await w.second->close();
            w.second.reset();
            (void)co_await sleep_for(10min);
            co_return closed;
        },
        true);
}

BOOST_AUTO_TEST_CASE(an_open_that_is_begun_anew_without_memory_ends)
{
    each_frame_fails_in_its_turn([](world& w) -> task<result<void>> {
        w.holder.wire.on_reply_to = [forgets = true](const sent_compound& call,
                                                     std::vector<std::byte>& reply) mutable {
            if (call.has(nfs_opnum4::read) && std::exchange(forgets, false))
                refuse_at(reply, 2, nfsstat4::bad_stateid);
        };
        auto read = co_await w.used->read(0, 4);
        if (!read)
            co_return read.error();
        co_return result<void>();
    });
}

BOOST_AUTO_TEST_SUITE_END()
