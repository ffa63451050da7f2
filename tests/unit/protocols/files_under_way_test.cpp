// SPDX-License-Identifier: Apache-2.0
// What is under way on two shards, in one thread on one virtual clock.
#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/files/under_way.hpp>

#include <boost/test/unit_test.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

BOOST_AUTO_TEST_SUITE(files_under_way_test)

using namespace verbena;
using namespace verbena::files;
using namespace std::chrono_literals;

namespace {

storage::handle inner(std::string_view name)
{
    return storage::handle(std::as_bytes(std::span(name.data(), name.size())));
}
storage::handle key(std::string_view name) { return file_key(1, inner(name)); }

/// Whoever waits for the end of what is under way.
struct waiting {
    bool is_done = false;
    result<void> over = error(std::errc::invalid_argument);
    bool is(std::error_code why) const { return is_done && !over && over.error().code() == why; }
    bool is_over() const { return is_done && over; }
};

struct fixture {
    static std::unique_ptr<reactor> make(clock_source& clock)
    {
        reactor_options o;
        o.clock = &clock;
        auto r = reactor::create(o);
        BOOST_REQUIRE(r);
        return std::move(*r);
    }
    ~fixture()
    {
        callers.request_stop();
        turn();
    }
    void turn()
    {
        for (bool any = true; any;) {
            any = home->turn();
            any = there->turn() || any;
        }
    }
    void pass(duration d)
    {
        clock.advance(d);
        turn();
    }
    /// Asked on the first shard.
    void ask(waiting& w, std::string_view name, share access, duration patience = 1s)
    {
        callers.spawn([this, &w, file = key(name), access, patience]() -> task<void> {
            w.over = co_await all.ended(file, access, patience);
            w.is_done = true;
        });
        turn();
    }

    virtual_clock clock;
    std::unique_ptr<reactor> home = make(clock), there = make(clock);
    memory_budget budget{std::size_t(4) << 20};
    buffer_pool home_buffers{budget, home.get()}, there_buffers{budget, there.get()};
    scope home_tasks{*home}, there_tasks{*there}, callers{*home};
    shard first{0, *home, home_buffers, home_tasks}, second{1, *there, there_buffers, there_tasks};
    operations_under_way all{siphash_key{}};
    operations_here& here = all.on(first);
    operations_here& beside = all.on(second);
};

constexpr operation begun[] = {operation::read,           operation::write,  operation::set_attributes,
                               operation::set_size,       operation::remove, operation::rename,
                               operation::change_extents, operation::link};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_shard_has_one_list, fixture)
{
    BOOST_TEST(&all.on(first) == &here);
    BOOST_TEST(&all.on(second) == &beside);
    BOOST_TEST(&here != &beside);
}

// A read may not write memory that shards share.
BOOST_FIXTURE_TEST_CASE(changes_are_counted_and_what_moves_data_is_waited_for, fixture)
{
    for (const operation op : begun)
        for (operations_here* const where : {&here, &beside})
            for (const bool by_name : {false, true}) {
                if (by_name && op == operation::read)
                    continue;
                BOOST_TEST_CONTEXT("operation " << unsigned(op) << ", by its name " << by_name)
                {
                    under_way doing;
                    if (by_name)
                        doing.begin_by_name(*where, op);
                    else
                        doing.begin(*where, 1, inner("f"), op);
                    BOOST_TEST(all.is_changed(key("f")) == (op != operation::read));
                    BOOST_TEST(all.is_changed(key("g")) == by_name);
                    BOOST_TEST(all.is_changed(file_key(2, inner("f"))) == by_name);
                    for (const share access : {share::read, share::write, share::both}) {
                        waiting of_file, of_other, of_space;
                        ask(of_file, "f", access, 0s);
                        ask(of_other, "g", access, 0s);
                        BOOST_TEST(of_file.is_over() == !any(access & access_of(op)));
                        BOOST_TEST(of_other.is_over() == (!by_name || !any(access & access_of(op))));
                        if (!of_file.is_over())
                            BOOST_TEST(of_file.is(errc::busy));
                    }
                    doing.end();
                    BOOST_TEST(!all.is_changed(key("f")));
                    waiting after;
                    ask(after, "f", share::both, 0s);
                    BOOST_TEST(after.is_over());
                }
            }
}

BOOST_FIXTURE_TEST_CASE(whoever_waits_goes_on_as_soon_as_all_of_it_is_over, fixture)
{
    std::optional<under_way> early(std::in_place), far(std::in_place), other(std::in_place);
    early->begin(here, 1, inner("f"), operation::read);
    far->begin(beside, 1, inner("f"), operation::write);
    other->begin(here, 1, inner("g"), operation::write);
    waiting w, later;
    ask(w, "f", share::both);
    // What begins later meets what has been granted by then. Its end is no news for who does not wait for it.
    under_way late;
    late.begin(here, 1, inner("f"), operation::write);
    ask(later, "f", share::both);
    late.end();
    far.reset();
    pass(100ms);
    BOOST_TEST((!w.is_done && !later.is_done));
    late.begin(here, 1, inner("f"), operation::write);
    const time_point before = clock.now();
    early.reset();
    turn();
    BOOST_TEST((w.is_over() && later.is_over()));
    BOOST_CHECK(clock.now() == before); // what ends says so: nobody looks from time to time
}

BOOST_FIXTURE_TEST_CASE(several_may_wait_for_one, fixture)
{
    under_way doing;
    doing.begin(here, 1, inner("f"), operation::set_size);
    waiting one, another, of_reads;
    ask(one, "f", share::write);
    ask(another, "f", share::both);
    ask(of_reads, "f", share::read);
    BOOST_TEST((!one.is_done && !another.is_done && of_reads.is_over()));
    doing.end();
    turn();
    BOOST_TEST((one.is_over() && another.is_over()));
}

BOOST_FIXTURE_TEST_CASE(patience_is_that_of_all_shards_together, fixture)
{
    under_way near, far;
    near.begin(here, 1, inner("f"), operation::write);
    far.begin(beside, 1, inner("f"), operation::write);
    waiting w;
    ask(w, "f", share::write, 1s);
    pass(600ms);
    near.end();
    turn();
    BOOST_TEST(!w.is_done);
    pass(400ms);
    BOOST_TEST(w.is(errc::busy));
    // Nothing is left of who waited: the end of what he waited for reaches nobody.
    far.end();
    turn();
}

BOOST_FIXTURE_TEST_CASE(who_is_stopped_waits_no_more, fixture)
{
    for (operations_here* const where : {&here, &beside}) {
        under_way doing;
        doing.begin(*where, 1, inner("f"), operation::write);
        scope stopped(*home);
        waiting w;
        stopped.spawn([&]() -> task<void> {
            w.over = co_await all.ended(key("f"), share::write, 10s);
            w.is_done = true;
        });
        turn();
        BOOST_TEST(!w.is_done);
        stopped.request_stop();
        turn();
        BOOST_TEST(w.is(std::make_error_code(std::errc::operation_canceled)));
    }
}

// It takes no calls any more, and nobody knows what is under way there.
BOOST_FIXTURE_TEST_CASE(a_shard_that_has_stopped_is_not_taken_for_idle, fixture)
{
    there_tasks.request_stop();
    waiting w;
    ask(w, "f", share::write);
    BOOST_TEST(w.is(std::make_error_code(std::errc::operation_canceled)));
}

// Whose name it was is looked up after all.
BOOST_FIXTURE_TEST_CASE(what_begins_anew_is_over_for_who_waited, fixture)
{
    under_way doing;
    doing.begin_by_name(here, operation::set_size);
    waiting w;
    ask(w, "f", share::write);
    BOOST_TEST(!w.is_done);
    doing.begin(here, 1, inner("g"), operation::set_size);
    turn();
    BOOST_TEST(w.is_over());
    BOOST_TEST(all.is_changed(key("g")));
    BOOST_TEST(!all.is_changed(key("f")));
    doing.begin(here, 1, inner("g"), operation::read); // nothing is counted twice
    BOOST_TEST(!all.is_changed(key("g")));
}

BOOST_FIXTURE_TEST_CASE(files_of_one_bucket_are_taken_for_one, fixture)
{
    under_way doing;
    doing.begin(here, 1, inner("f"), operation::write);
    std::string other;
    for (unsigned i = 0; other.empty() && i < 1'000'000; ++i)
        if (all.is_changed(key(std::to_string(i))))
            other = std::to_string(i);
    BOOST_TEST_REQUIRE(!other.empty());
    under_way beside_it;
    beside_it.begin(beside, 1, inner(other), operation::write);
    doing.end();
    BOOST_TEST(all.is_changed(key("f")));
    // In the lists each stands for itself.
    waiting w;
    ask(w, "f", share::write, 0s);
    BOOST_TEST(w.is_over());
    beside_it.end();
    BOOST_TEST(!all.is_changed(key("f")));
}

// So that nobody can make files that take delegations from another one's.
BOOST_FIXTURE_TEST_CASE(a_key_decides_which_files_share_a_bucket, fixture)
{
    siphash_key drawn{};
    drawn[0] = std::byte(1);
    operations_under_way keyed(drawn);
    under_way doing, likewise;
    doing.begin(here, 1, inner("f"), operation::write);
    likewise.begin(keyed.on(first), 1, inner("f"), operation::write);
    unsigned shared = 0, in_both = 0;
    for (unsigned i = 0; i < 100'000; ++i) {
        if (!all.is_changed(key(std::to_string(i))))
            continue;
        ++shared;
        in_both += keyed.is_changed(key(std::to_string(i))) ? 1 : 0;
    }
    BOOST_TEST(shared > 10u);
    BOOST_TEST(in_both < shared / 4);
}

BOOST_AUTO_TEST_CASE(a_key_tells_its_space_and_its_handle)
{
    const auto opened = open_file_key(file_key(7, inner("some file")));
    BOOST_TEST_REQUIRE(opened.has_value());
    BOOST_TEST(opened->space == 7u);
    BOOST_TEST((opened->file == inner("some file")));
    BOOST_TEST(!open_file_key(inner("abcd")));
    // Of handles that are too long to have room what does not fit counts as well.
    std::string longest(storage::handle::max_size, 'x');
    const storage::handle one = file_key(7, inner(longest));
    longest.back() = 'y';
    BOOST_TEST((file_key(7, inner(longest)) != one));
}

BOOST_AUTO_TEST_SUITE_END()
