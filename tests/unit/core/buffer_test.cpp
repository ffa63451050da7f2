// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>

#include "../lines_of_log.hpp"

#include <array>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

BOOST_AUTO_TEST_SUITE(buffer_test)

using namespace verbena;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_CASE(classes_and_sharing)
{
    memory_budget budget(1 << 20);
    buffer_pool pool(budget, nullptr);
    {
        lease a = pool.try_acquire(1);
        lease b = pool.try_acquire(4097);
        BOOST_TEST(a.size() == 4096u);
        BOOST_TEST(b.size() == 8192u);
        lease c = b.share();
        b.reset();
        BOOST_TEST(pool.outstanding() == 2u);
        BOOST_TEST(pool.outstanding_bytes() == 4096u + 8192);
        BOOST_TEST(c.unique());
    }
    BOOST_TEST(pool.outstanding() == 0u);
    const auto used = budget.used();
    lease again = pool.try_acquire(8000);
    BOOST_TEST(budget.used() == used); // reused, not mapped anew
}

BOOST_AUTO_TEST_CASE(a_lease_is_never_smaller_than_what_was_asked_for)
{
    memory_budget budget(std::size_t(256) << 20);
    buffer_pool pool(budget, nullptr);
    constexpr std::size_t most = buffer_pool::max_size;
    for (const std::size_t size : {std::size_t(1), std::size_t(4096), std::size_t(65537), most - 1, most})
        BOOST_TEST(pool.try_acquire(size).size() >= size);
    for (const std::size_t size : {most + 1, 2 * most, ~std::size_t(0)})
        BOOST_TEST(!pool.try_acquire(size));
}

// Not when somebody looks next: the clock stands still.
BOOST_AUTO_TEST_CASE(what_is_given_back_goes_to_who_waits_at_once)
{
    virtual_clock clock;
    reactor_options o;
    o.clock = &clock;
    auto r = reactor::create(o);
    BOOST_REQUIRE(r);
    memory_budget budget(64 << 10);
    buffer_pool pool(budget, r->get());
    lease all = pool.try_acquire(64 << 10);
    BOOST_REQUIRE(all);
    const time_point begun = clock.now();
    bool got = false;
    auto wait = [](buffer_pool& p, bool& to) -> task<void> {
        lease l = co_await p.acquire(64 << 10);
        to = bool(l);
    };
    scope s(**r);
    s.spawn([&] { return wait(pool, got); });
    BOOST_TEST(pool.waits() == 1u);
    all.reset();
    for (int i = 0; i < 3 && !got; ++i)
        (*r)->turn();
    BOOST_TEST(got);
    BOOST_TEST((clock.now() == begun));
}

BOOST_AUTO_TEST_CASE(an_observer_knows_all_memory_or_none)
{
    struct watcher final : buffer_pool_observer {
        bool on_added(std::span<std::byte> memory) noexcept override
        {
            if (known.size() == limit)
                return false;
            BOOST_TEST(known.emplace(memory.data(), memory.size()).second);
            return true;
        }
        void on_removed(std::span<std::byte> memory) noexcept override
        {
            BOOST_TEST(known.erase(memory.data()) == 1u);
        }
        bool covers(const lease& l) const
        {
            const auto i = known.upper_bound(l.data());
            return i != known.begin() && std::prev(i)->first + std::prev(i)->second >= l.data() + l.size();
        }
        std::map<std::byte*, std::size_t> known;
        std::size_t limit = 100;
    } all, few;
    few.limit = 2;
    memory_budget budget(256 << 20);
    {
        buffer_pool pool(budget, nullptr);
        lease before = pool.try_acquire(16 << 20);
        BOOST_REQUIRE(pool.observe(all));
        BOOST_TEST(all.covers(before));
        lease after = pool.try_acquire(4 << 20);
        BOOST_TEST(all.covers(after));
        BOOST_REQUIRE(pool.observe(few));
        const std::size_t had = budget.used();
        BOOST_TEST(!pool.try_acquire(8 << 20)); // refused by one: nobody keeps it
        BOOST_TEST(budget.used() == had);
        BOOST_TEST(all.known.size() == few.known.size());
        std::vector<lease> small; // in one slab: nothing more to register
        few.limit = 3;
        for (int i = 0; i < 100; ++i)
            small.push_back(pool.try_acquire(4096));
        BOOST_TEST(all.known.size() == 3u);
        BOOST_TEST(all.covers(small.front()));
        BOOST_TEST(all.covers(small.back()));
        few.limit = 1;
        watcher late;
        late.limit = 1;
        BOOST_TEST(!pool.observe(late));
        BOOST_TEST(late.known.empty());
    }
    BOOST_TEST(all.known.empty());
    BOOST_TEST(few.known.empty());
    BOOST_TEST(!all.is_linked());
}

BOOST_AUTO_TEST_CASE(the_budget_is_hard_and_waits_in_order)
{
    virtual_clock clock;
    reactor_options o;
    o.clock = &clock;
    auto r = reactor::create(o);
    BOOST_REQUIRE(r);
    memory_budget budget(64 << 10);
    buffer_pool pool(budget, r->get());
    BOOST_TEST(!pool.try_acquire(128 << 10));
    std::string order;
    auto want = [](buffer_pool& p, std::string& o, char name) -> task<void> {
        lease l = co_await p.acquire(64 << 10);
        if (l)
            o.push_back(name);
        co_await sleep_for(1ms);
    };
    auto body = [&]() -> task<void> {
        const task_context& context = co_await current_context();
        scope s(*context.shard);
        for (char name : {'a', 'b', 'c'})
            s.spawn([&] { return want(pool, order, name); });
        co_await s.join();
    };
    run_until_complete(**r, body());
    BOOST_TEST(order == "abc");
    BOOST_TEST(pool.waits() == 2u);
    BOOST_TEST(budget.used() <= budget.limit());
}

BOOST_AUTO_TEST_CASE(a_wait_without_prospect_ends)
{
    virtual_clock clock;
    reactor_options o;
    o.clock = &clock;
    auto r = reactor::create(o);
    BOOST_REQUIRE(r);
    memory_budget budget(64 << 10);
    buffer_pool pool(budget, r->get());
    auto body = [&]() -> task<void> {
        lease all = co_await pool.acquire(64 << 10);
        BOOST_TEST(bool(all));
        const time_point begun = clock.now();
        lease none = co_await pool.acquire(4096, 20ms);
        BOOST_TEST(!none);
        BOOST_TEST((clock.now() - begun == 20ms));
        all.reset();
        lease some = co_await pool.acquire(4096, 20ms);
        BOOST_TEST(bool(some));
    };
    run_until_complete(**r, body());
    BOOST_TEST(pool.waits() == 1u);
}

BOOST_AUTO_TEST_CASE(a_small_buffer_that_is_free_anyhow_waits_for_nobody)
{
    virtual_clock clock;
    reactor_options o;
    o.clock = &clock;
    auto r = reactor::create(o);
    BOOST_REQUIRE(r);
    memory_budget budget(1 << 20);
    buffer_pool pool(budget, r->get());
    bool all_came = false;
    auto wants_all = [&]() -> task<void> {
        const lease all = co_await pool.acquire(1 << 20);
        all_came = bool(all);
    };
    auto body = [&]() -> task<void> {
        scope s(**r);
        lease first = pool.try_acquire(4096);
        s.spawn(wants_all);
        co_await sleep_for(1ms);
        BOOST_TEST(pool.waits() == 1U);
        lease second = co_await pool.acquire(4096, 20ms);
        BOOST_TEST(bool(second));
        // What would take memory from the one that waits does wait, until some comes home that it could not use.
        lease third;
        auto wants_another = [&]() -> task<void> { third = co_await pool.acquire(4096, 10s); };
        std::vector<lease> rest;
        while (lease more = co_await pool.acquire(4096, 1ms))
            rest.push_back(std::move(more));
        BOOST_REQUIRE(!rest.empty());
        s.spawn(wants_another);
        co_await sleep_for(1ms);
        BOOST_TEST(!third);
        rest.pop_back();
        co_await sleep_for(1ms);
        BOOST_TEST(bool(third));
        BOOST_TEST(!all_came);
        rest.clear();
        first.reset();
        second.reset();
        third.reset();
        co_await s.join();
        BOOST_TEST(all_came);
    };
    run_until_complete(**r, body());
}

BOOST_AUTO_TEST_CASE(a_shortage_has_a_line_when_it_begins_and_one_when_it_is_over)
{
    virtual_clock clock;
    reactor_options o;
    o.clock = &clock;
    auto r = reactor::create(o);
    BOOST_REQUIRE(r);
    memory_budget budget(1 << 20);
    buffer_pool pool(budget, r->get()), other(budget, r->get());
    verbena::test::lines_of_log lines;
    lease all = pool.try_acquire(1 << 20);
    BOOST_REQUIRE(all);
    const auto pass = [&](std::chrono::seconds time) {
        clock.advance(time);
        for (int i = 0; i < 3; ++i)
            (*r)->turn();
    };
    const auto count = [&](std::string_view what) { return lines.count({what}); };
    BOOST_TEST(count("memory") == 0);
    for (int i = 0; i < 3; ++i) {
        BOOST_TEST(!pool.try_acquire(4096));
        BOOST_TEST(!other.try_acquire(4096));
        pass(9s);
    }
    BOOST_TEST(count("the memory for buffers is used up") == 1);
    BOOST_TEST(count("memory_mib") == 1);
    BOOST_TEST(count("there is memory for buffers again") == 0);
    all.reset();
    pass(1s);
    BOOST_TEST(count("there is memory for buffers again seconds=18") == 1);
    pass(60s);
    all = pool.try_acquire(1 << 20);
    BOOST_TEST(!pool.try_acquire(4096));
    BOOST_TEST(count("the memory for buffers is used up") == 2);
}

BOOST_AUTO_TEST_CASE(the_shortage_of_one_budget_is_not_that_of_another)
{
    virtual_clock clock;
    reactor_options o;
    o.clock = &clock;
    auto r = reactor::create(o);
    BOOST_REQUIRE(r);
    memory_budget first(1 << 20), second(2 << 20);
    buffer_pool pool(first, r->get()), other(second, r->get());
    verbena::test::lines_of_log lines;
    const lease all = pool.try_acquire(1 << 20), most = other.try_acquire(2 << 20);
    BOOST_TEST(!pool.try_acquire(4096));
    BOOST_TEST(!other.try_acquire(4096));
    BOOST_TEST(lines.count({"the memory for buffers is used up"}) == 2);
    BOOST_TEST(lines.count({"mebibytes=2"}) == 1);
    clock.advance(11s);
    for (int i = 0; i < 3; ++i)
        (*r)->turn();
    BOOST_TEST(lines.count({"there is memory for buffers again"}) == 2);
}

BOOST_AUTO_TEST_CASE(idle_memory_goes_where_a_device_registers_no_more)
{
    struct little final : buffer_pool_observer {
        bool on_added(std::span<std::byte> memory) noexcept override
        {
            if (known + memory.size() > std::size_t(4) << 20)
                return false;
            known += memory.size();
            return true;
        }
        void on_removed(std::span<std::byte> memory) noexcept override { known -= memory.size(); }
        std::size_t known = 0;
    } device;
    memory_budget budget(64 << 20);
    buffer_pool pool(budget, nullptr);
    BOOST_REQUIRE(pool.observe(device));
    lease small = pool.try_acquire(4096);
    lease medium = pool.try_acquire(64 << 10);
    BOOST_TEST(device.known == std::size_t(4) << 20);
    BOOST_TEST(!pool.try_acquire(1 << 20));
    medium.reset();
    lease large = pool.try_acquire(1 << 20);
    BOOST_TEST(bool(large));
    BOOST_TEST(device.known == std::size_t(4) << 20);
}

BOOST_AUTO_TEST_CASE(a_lease_dropped_elsewhere_comes_home)
{
    auto r = reactor::create();
    BOOST_REQUIRE(r);
    memory_budget budget(1 << 20);
    buffer_pool pool(budget, r->get());
    lease l = pool.try_acquire(4096);
    std::thread other([moved = std::move(l)]() mutable { moved.reset(); });
    other.join();
    BOOST_TEST(pool.outstanding() == 1u);
    (*r)->turn();
    BOOST_TEST(pool.outstanding() == 0u);
}

BOOST_AUTO_TEST_CASE(buffers_of_a_class_are_carved_from_slabs)
{
    constexpr std::size_t slab = std::size_t(2) << 20;
    memory_budget budget(64 << 20);
    BOOST_TEST(budget.slab_size() == slab);
    buffer_pool pool(budget, nullptr);
    std::vector<lease> all;
    for (int i = 0; i < 512; ++i) {
        all.push_back(pool.try_acquire(4096));
        std::memset(all.back().data(), i, 4096);
    }
    BOOST_TEST(budget.used() == slab);
    const auto begin = reinterpret_cast<std::uintptr_t>(all.front().data());
    BOOST_TEST(begin % slab == 0u); // the first buffer stands first, and the slab is aligned
    for (std::size_t i = 0; i < all.size(); ++i) {
        BOOST_TEST((reinterpret_cast<std::uintptr_t>(all[i].data()) - begin) / slab == 0u);
        BOOST_TEST((all[i].data()[4095] == std::byte(i)));
    }
    all.push_back(pool.try_acquire(4096));
    BOOST_TEST(budget.used() == 2 * slab);
    all.push_back(pool.try_acquire(8192)); // another class
    BOOST_TEST(budget.used() == 3 * slab);
    all.push_back(pool.try_acquire(4 << 20)); // a mapping of its own
    BOOST_TEST(budget.used() == 5 * slab);
    std::ptrdiff_t slabs = 0, bytes = 0;
    for (const auto k : {slab_kind::plain, slab_kind::transparent, slab_kind::huge}) {
        slabs += budget.slabs(k);
        bytes += budget.bytes(k);
    }
    BOOST_TEST(slabs == 4);
    BOOST_TEST(bytes == std::ptrdiff_t(5 * slab));
}

BOOST_AUTO_TEST_CASE(a_small_budget_has_small_slabs_and_room_for_every_class)
{
    for (const std::size_t limit : {std::size_t(4) << 20, std::size_t(16) << 20, std::size_t(512) << 20}) {
        memory_budget budget(limit, limit == std::size_t(512) << 20 ? 8 : 1);
        std::vector<std::unique_ptr<buffer_pool>> pools;
        std::vector<lease> all;
        for (int i = 0; i < (limit == std::size_t(512) << 20 ? 8 : 1); ++i) {
            pools.push_back(std::make_unique<buffer_pool>(budget, nullptr));
            for (std::size_t size = 4096; size <= 1 << 20; size *= 2) {
                all.push_back(pools.back()->try_acquire(size));
                BOOST_TEST(bool(all.back()));
            }
        }
        BOOST_TEST(budget.used() <= limit * 2 / 3);
    }
    memory_budget page(4096);
    buffer_pool pool(page, nullptr);
    BOOST_TEST(bool(pool.try_acquire(1)));
}

BOOST_AUTO_TEST_CASE(idle_slabs_are_kept_up_to_a_limit_and_go_when_room_is_needed)
{
    memory_budget budget(4 << 20);
    BOOST_TEST(budget.max_kept() == std::size_t(1) << 20);
    buffer_pool pool(budget, nullptr);
    std::vector<lease> all;
    for (int i = 0; i < 16; ++i)
        all.push_back(pool.try_acquire(128 << 10));
    BOOST_TEST(budget.used() == std::size_t(2) << 20);
    const std::byte* last = all.back().data();
    all.clear();
    BOOST_TEST(budget.used() == std::size_t(1) << 20);      // eight are kept
    BOOST_TEST(pool.try_acquire(128 << 10).data() == last); // the first ones went
    lease most = pool.try_acquire(4 << 20);
    BOOST_TEST(bool(most)); // and make room for others
    BOOST_TEST(budget.used() == budget.limit());
    BOOST_TEST(!pool.try_acquire(1));
}

BOOST_AUTO_TEST_CASE(room_is_made_by_slabs_that_lie_idle_longest)
{
    struct watcher final : buffer_pool_observer {
        bool on_added(std::span<std::byte>) noexcept override { return true; }
        void on_removed(std::span<std::byte> memory) noexcept override { removed.push_back(memory.data()); }
        std::vector<std::byte*> removed;
    } slabs;
    memory_budget budget(4 << 20); // slabs of 128 KiB
    buffer_pool pool(budget, nullptr);
    lease large = pool.try_acquire(256 << 10);
    lease cold = pool.try_acquire(128 << 10);
    lease warm = pool.try_acquire(128 << 10);
    lease small = pool.try_acquire(4096);
    BOOST_REQUIRE(pool.observe(slabs));
    const std::vector<std::byte*> in_turn{small.data(), cold.data(), large.data()};
    const std::byte* last = warm.data();
    small.reset();
    cold.reset();
    large.reset();
    warm.reset();
    BOOST_TEST(budget.used() == 5u * (128 << 10));
    const lease most = pool.try_acquire(2 << 20);
    const lease half = pool.try_acquire(1 << 20);
    const lease rest = pool.try_acquire(512 << 10); // asks for as many bytes of the idle ones
    BOOST_TEST(bool(rest));
    BOOST_TEST((slabs.removed == in_turn));
    BOOST_TEST(pool.try_acquire(128 << 10).data() == last);
}

// A load of large buffers leaves as many idle slabs as are kept. Small ones that then come and go share a slab that is idle in between.
BOOST_AUTO_TEST_CASE(a_slab_that_is_used_stays_and_one_that_lies_idle_goes)
{
    struct counting final : buffer_pool_observer {
        bool on_added(std::span<std::byte>) noexcept override { return ++added != 0; }
        void on_removed(std::span<std::byte>) noexcept override { ++removed; }
        unsigned added = 0, removed = 0;
    } slabs;
    memory_budget budget(64 << 20); // slabs of 2 MiB
    buffer_pool pool(budget, nullptr);
    std::vector<lease> all;
    for (int i = 0; i < 32; ++i)
        all.push_back(pool.try_acquire(1 << 20));
    all.clear();
    BOOST_TEST(budget.used() == budget.max_kept());
    BOOST_REQUIRE(pool.observe(slabs));
    slabs.added = 0;
    for (int i = 0; i < 100; ++i) {
        lease small = pool.try_acquire(4096);
        lease medium = pool.try_acquire(64 << 10);
        BOOST_REQUIRE(bool(small));
        BOOST_REQUIRE(bool(medium));
    }
    BOOST_TEST(slabs.added == 2U); // one for each size
    BOOST_TEST(slabs.removed == 2U);
    BOOST_TEST(budget.used() == budget.max_kept());
}

BOOST_AUTO_TEST_CASE(all_of_the_budget_can_be_had)
{
    memory_budget budget(4 << 20); // slabs of 128 KiB
    buffer_pool pool(budget, nullptr);
    std::vector<lease> all;
    all.push_back(pool.try_acquire(2 << 20));
    all.push_back(pool.try_acquire(1 << 20));
    all.push_back(pool.try_acquire(512 << 10));
    all.push_back(pool.try_acquire(256 << 10));
    all.push_back(pool.try_acquire(128 << 10));
    all.push_back(pool.try_acquire(32 << 10)); // a whole slab for it
    BOOST_TEST(budget.used() == budget.limit());
    all[4].reset();
    all[4] = pool.try_acquire(4096); // in the place of the one that became idle
    BOOST_TEST(budget.used() == budget.limit());
    while (lease l = pool.try_acquire(4096))
        all.push_back(std::move(l));
    // Also those of the slab of larger ones were given.
    BOOST_TEST(all.size() == 6u + 31 + 3);
    BOOST_TEST(all.back().size() == std::size_t(32) << 10);

    memory_budget odd((4 << 20) + 4096 * 3); // the rest is smaller than a slab
    buffer_pool other(odd, nullptr);
    std::vector<lease> rest;
    rest.push_back(other.try_acquire(4 << 20));
    for (int i = 0; i < 3; ++i)
        rest.push_back(other.try_acquire(4096));
    BOOST_TEST(bool(rest.back()));
    BOOST_TEST(odd.used() == odd.limit());
    BOOST_TEST(!other.try_acquire(4096));
}

BOOST_AUTO_TEST_CASE(huge_pages_are_used_where_there_are_any_unless_told_not_to)
{
    long free = 0;
    std::ifstream meminfo("/proc/meminfo");
    for (std::string word; meminfo >> word;) {
        if (word == "HugePages_Free:")
            meminfo >> free;
    }
    memory_budget with(64 << 20), without(64 << 20, 1, huge_pages::no);
    buffer_pool yes(with, nullptr), no(without, nullptr);
    const lease a = yes.try_acquire(4096), b = no.try_acquire(4096);
    std::memset(a.data(), 1, a.size());
    std::memset(b.data(), 1, b.size());
    BOOST_TEST((with.slabs(slab_kind::huge) == 1) == (free > 0));
    BOOST_TEST(without.slabs(slab_kind::plain) == 1);
    BOOST_TEST(without.bytes(slab_kind::plain) == std::ptrdiff_t(2) << 20);
}

BOOST_AUTO_TEST_SUITE_END()
