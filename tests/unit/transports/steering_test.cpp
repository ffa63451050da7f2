// SPDX-License-Identifier: Apache-2.0
// The table of steering tags, and when memory that a tag named is touched no more, with two shards in one thread.
#include <boost/test/unit_test.hpp>

#include "../../../transports/common/steering.hpp"

#include <verbena/core/task/event.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <vector>

BOOST_AUTO_TEST_SUITE(steering_test)

using namespace verbena;
using verbs::access;

namespace {

struct owner final : steering::tag_owner {
    bool is_used_beside(const steering::lane*) const noexcept override { return beside; }
    bool beside = false;
};

struct user final : steering::lane_user {
    void settle_debts() noexcept override { ++asked; }
    unsigned asked = 0;
};

struct fixture {
    verbs::grant make(std::span<std::byte> memory, steering::magazine* at = nullptr)
    {
        verbs::grant_request r;
        r.memory = memory;
        r.rights = access::remote_write;
        r.keep = std::move(keep);
        const steering::tag_terms terms{domain, r};
        steering::record* const made = table.make(terms, at);
        BOOST_REQUIRE(made != nullptr);
        return verbs::grant(*made);
    }
    steering::finding look(std::uint32_t tag, std::size_t size = 1) const
    {
        return table.check(tag, 0, size, access::remote_write, domain, 0);
    }
    owner domain;
    verbs::memory_owner keep;
    steering::quiescence shards;
    steering::table table{shards};
    std::vector<std::byte> memory = std::vector<std::byte>(64);
};

} // namespace

// More than the first levels hold, so lines are full and larger levels are made while the tags in the smaller ones stand.
BOOST_FIXTURE_TEST_CASE(each_of_many_tags_names_its_own_memory, fixture)
{
    constexpr std::size_t count = 20'000;
    std::vector<std::byte> all(count);
    std::vector<verbs::grant> grants;
    std::set<std::uint32_t> tags;
    steering::magazine own;
    const auto add = [&](std::size_t i) {
        grants.push_back(make({&all[i], 1}, i % 2 == 0 ? &own : nullptr));
        tags.insert(grants.back().where().key);
    };
    for (std::size_t i = 0; i < count; ++i)
        add(i);
    BOOST_TEST(tags.size() == count);
    BOOST_TEST(!tags.contains(0));
    std::size_t right = 0;
    for (std::size_t i = 0; i < count; ++i)
        right += look(grants[i].where().key).address == &all[i];
    BOOST_TEST(right == count);
    // Half of them go. The others stay where they are, and what is made in the place of those has tags of its own.
    std::vector<std::uint32_t> gone;
    for (std::size_t i = 0; i < count; i += 2) {
        gone.push_back(grants[i].where().key);
        grants[i] = verbs::grant();
    }
    for (std::size_t i = 0; i < count; i += 2)
        grants[i] = make({&all[i], 1});
    right = 0;
    for (std::size_t i = 0; i < count; ++i)
        right += look(grants[i].where().key).address == &all[i];
    BOOST_TEST(right == count);
    tags.clear();
    for (const auto& g : grants)
        tags.insert(g.where().key);
    std::size_t dead = 0;
    for (const std::uint32_t tag : gone) // one that was drawn again, of 2^32, is another's
        dead += tags.contains(tag) || look(tag).fault == steering::fault::invalid_tag;
    BOOST_TEST(dead == gone.size());
    table.give_back(own);
}

// A tag that is drawn for a Read's sink stands in no table, and is none of those that do.
BOOST_FIXTURE_TEST_CASE(a_fresh_tag_is_nobodys, fixture)
{
    steering::magazine own;
    for (int i = 0; i < 1000; ++i)
        BOOST_TEST((look(table.fresh_tag(own)).fault == steering::fault::invalid_tag));
}

namespace {

class in_a_turn final : public deferred {
public:
    explicit in_a_turn(std::function<void()> f) : f_(std::move(f)) {}
    void run() noexcept override { f_(); }

private:
    std::function<void()> f_;
};

struct two_shards : fixture {
    two_shards()
    {
        keep = held;
        held.reset();
        domain.beside = true;
    }
    ~two_shards()
    {
        shards.leave(at_b);
        shards.leave(at_a);
    }
    bool is_kept() const { return !kept.expired(); }
    void in_a_turn_of_b(std::function<void()> f)
    {
        bool ran = false;
        in_a_turn work([&] {
            f();
            ran = true;
        });
        b->post(work);
        b->turn();
        BOOST_TEST(ran);
    }
    void drop_by_b(verbs::grant& g)
    {
        in_a_turn_of_b([&g] { g = verbs::grant(); });
    }

    std::unique_ptr<reactor> a = std::move(*reactor::create());
    std::unique_ptr<reactor> b = std::move(*reactor::create());
    user of_a, of_b;
    steering::magazine slots_of_a, slots_of_b;
    steering::lane& at_a = shards.enter(*a, of_a, slots_of_a);
    steering::lane& at_b = shards.enter(*b, of_b, slots_of_b);
    std::shared_ptr<const int> held = std::make_shared<int>(1);
    std::weak_ptr<const int> kept = held;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(memory_that_no_other_shard_touches_goes_at_once, two_shards)
{
    verbs::grant g = make(memory);
    drop_by_b(g);
    BOOST_TEST(!is_kept());
}

BOOST_FIXTURE_TEST_CASE(memory_that_another_shard_may_touch_goes_when_it_is_done, two_shards)
{
    verbs::grant g = make(memory);
    const std::uint32_t tag = g.where().key;
    {
        const steering::section here(at_a);
        BOOST_TEST(look(tag).rule == nullptr);
        drop_by_b(g); // in the middle of that
        BOOST_TEST((look(tag).fault == steering::fault::invalid_tag));
        BOOST_TEST(is_kept());
        b->turn();
        BOOST_TEST(is_kept());
    }
    BOOST_TEST(is_kept()); // nobody told
    BOOST_TEST(of_a.asked == 0U);
    a->turn();
    BOOST_TEST(of_a.asked == 1U); // for what its sockets still owe
    BOOST_TEST(!is_kept());
}

BOOST_FIXTURE_TEST_CASE(memory_that_a_socket_is_owed_goes_when_that_was_settled, two_shards)
{
    verbs::grant g = make(memory);
    at_a.set_debts(1);
    drop_by_b(g);
    BOOST_TEST(is_kept());
    a->turn();
    BOOST_TEST(of_a.asked == 1U);
    BOOST_TEST(!is_kept());
    at_a.set_debts(0);
}

// A peer of another shard invalidated the tag, and only that one has looked at what it owes.
BOOST_FIXTURE_TEST_CASE(what_the_owners_shard_owes_is_settled_though_the_tag_was_taken_elsewhere, two_shards)
{
    verbs::grant g = make(memory);
    BOOST_TEST(table.invalidate(g.where().key, domain, 0));
    BOOST_TEST(!g.valid());
    at_b.set_debts(1);
    drop_by_b(g);
    BOOST_TEST(of_b.asked == 1U);
    at_b.set_debts(0);
}

// Who waits for a shard waits until that has looked, whatever it takes away itself meanwhile.
BOOST_FIXTURE_TEST_CASE(a_shard_that_takes_something_away_has_not_looked_at_what_others_took, two_shards)
{
    const auto c = std::move(*reactor::create());
    steering::magazine slots;
    user third;
    steering::lane& at_c = shards.enter(*c, third, slots);
    at_b.set_debts(1);
    const std::uint64_t awaited = shards.begin(&at_a);
    BOOST_TEST(awaited != 0U);
    {
        const steering::section here(at_c);
        BOOST_TEST(shards.begin(&at_b) > awaited);
    }
    BOOST_TEST(!shards.is_over(awaited));
    BOOST_TEST(of_b.asked == 0U);
    b->turn();
    BOOST_TEST(of_b.asked == 1U);
    BOOST_TEST(shards.is_over(awaited));
    at_b.set_debts(0);
    shards.leave(at_c);
    c->turn();
}

// One section of the shard that drops it is none of another one's: it looks each tag up before it goes on.
BOOST_FIXTURE_TEST_CASE(a_shard_does_not_wait_for_itself, two_shards)
{
    verbs::grant g = make(memory);
    in_a_turn_of_b([&] {
        const steering::section here(at_b);
        g = verbs::grant();
        BOOST_TEST(!is_kept());
    });
}

BOOST_FIXTURE_TEST_CASE(a_shard_that_goes_is_waited_for_no_more, two_shards)
{
    steering::magazine slots;
    user third;
    steering::lane& at_c = shards.enter(*a, third, slots);
    verbs::grant g = make(memory);
    {
        const steering::section here(at_c);
        drop_by_b(g);
    }
    BOOST_TEST(is_kept());
    shards.leave(at_c);
    BOOST_TEST(!is_kept());
    a->turn(); // what was sent to it finds nobody
    BOOST_TEST(third.asked == 0U);
}

// Its reactor may be gone when the others are done.
BOOST_FIXTURE_TEST_CASE(a_shard_that_has_gone_is_told_nothing, two_shards)
{
    auto c = std::move(*reactor::create());
    steering::magazine slots;
    user third;
    steering::lane& at_c = shards.enter(*c, third, slots);
    steering::awaited_passing waiting;
    auto open = std::make_unique<steering::section>(at_a);
    const std::uint64_t epoch = shards.begin(&at_c);
    BOOST_TEST(epoch != 0U);
    shards.wait(at_c, epoch, waiting);
    waiting.unlink(); // as a connection that ends
    shards.leave(at_c);
    c.reset();
    open.reset();
    a->turn();
    BOOST_TEST(shards.is_over(epoch));
    BOOST_TEST(!waiting.done.is_set());
}

BOOST_FIXTURE_TEST_CASE(several_wait_each_for_what_it_took_away, two_shards)
{
    auto open = std::make_unique<steering::section>(at_a);
    steering::awaited_passing early, late;
    std::uint64_t one = 0, two = 0;
    in_a_turn_of_b([&] {
        one = shards.begin(&at_b);
        shards.wait(at_b, one, early);
        two = shards.begin(&at_b);
        shards.wait(at_b, two, late);
    });
    BOOST_TEST(one < two);
    BOOST_TEST(!shards.is_over(one));
    open.reset();
    a->turn();
    BOOST_TEST(shards.is_over(two));
    BOOST_TEST(!early.done.is_set()); // it is told on its own shard
    b->turn();
    BOOST_TEST(early.done.is_set());
    BOOST_TEST(late.done.is_set());
}

BOOST_AUTO_TEST_SUITE_END()
