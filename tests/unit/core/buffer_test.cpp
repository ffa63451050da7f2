// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE buffer
#include <boost/test/unit_test.hpp>

#include <verbena/core/buffer.hpp>
#include <verbena/core/scope.hpp>
#include <verbena/core/sleep.hpp>

#include <map>
#include <thread>

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
        BOOST_TEST(c.unique());
    }
    BOOST_TEST(pool.outstanding() == 0u);
    const auto used = budget.used();
    lease again = pool.try_acquire(8000);
    BOOST_TEST(budget.used() == used); // reused, not mapped anew
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
    auto r = reactor::create();
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
            s.spawn(want(pool, order, name));
        co_await s.join();
    };
    run_until_complete(**r, body());
    BOOST_TEST(order == "abc");
    BOOST_TEST(pool.waits() == 2u);
    BOOST_TEST(budget.used() <= budget.limit());
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
