// SPDX-License-Identifier: Apache-2.0
// How an export is suspended and resumed, step by step, with steps that fail, hang and end late. Time is what the waiter says.
#include <boost/test/unit_test.hpp>

#include <verbena/protocols/storage/suspension.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <new>
#include <random>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

BOOST_AUTO_TEST_SUITE(suspension_test)

using namespace verbena;
using namespace verbena::storage;
using state = suspension::state;

namespace {

constexpr duration never = std::chrono::hours(1000);

/// A back end and a state layer whose steps take their time on a clock of their own, and fail as they are told.
struct fake final : suspendable, suspension_side {
    struct plan {
        duration takes{};
        std::string fails;        ///< with that
        unsigned times = 1000000; ///< so often; then it goes well at once
    };

    // suspendable
    std::optional<std::string> hold() override
    {
        did("hold");
        if (now < looking_until)
            return std::nullopt;
        if (!gone.empty())
            return gone;
        is_held = true;
        return std::string();
    }
    void release() noexcept override
    {
        did("release");
        is_held = false;
    }
    suspension_step find_nameless() override { return step("find_nameless"); }
    void want_leases() noexcept override { did("want_leases"); }
    std::size_t leases() noexcept override { return now < leases_until ? 3 : 0; }
    void shut() noexcept override
    {
        did("shut");
        is_shut = true;
    }
    void unshut() noexcept override
    {
        did("unshut");
        is_shut = false;
    }
    calls calls_under_way() override
    {
        BOOST_TEST(is_shut);
        calls out;
        if (now < silent_until)
            out.silent.push_back(1);
        else if (now < calls_until)
            out.running = 2;
        return out;
    }
    suspension_step sync() override { return step("sync"); }
    void let_go() noexcept override
    {
        did("let_go");
        has_let_go = true;
        is_there = false;
    }
    suspension_step still_open() override { return step("still_open"); }
    suspension_step come_back() override
    {
        const unsigned mine = ++attempt;
        return step("come_back", [this, mine](bool is_well) {
            if (!is_well || mine != attempt)
                return;
            is_there = true;
            has_let_go = is_shut = is_held = false;
        });
    }
    bool give_up() noexcept override
    {
        did("give_up");
        ++attempt;
        return is_held;
    }
    // suspension_side
    suspension_step recall() override { return step("recall"); }
    suspension_step let_go_of_locks() override
    {
        return step("let_go_of_locks", [this](bool) { has_locks = false; });
    }
    suspension_step restore(std::shared_ptr<restored_state> to) override
    {
        BOOST_TEST(is_there);
        return step("restore", [this, to](bool) {
            has_locks = true;
            to->files = 7;
        });
    }

    void did(const std::string& what) { all.push_back(what); }
    std::size_t count(const std::string& what) const { return std::size_t(std::ranges::count(all, what)); }
    // What ends late has its effect late, whether anybody waits for it or not.
    suspension_step step(const std::string& name, std::function<void(bool)> effect = {})
    {
        did(name);
        if (name == throws)
            throw std::bad_alloc();
        plan& p = plans[name];
        const bool is_planned = p.times > 0;
        p.times -= is_planned;
        const time_point ends = now + (is_planned ? p.takes : duration());
        const std::string text = is_planned ? p.fails : "";
        const auto done = std::make_shared<bool>(false);
        under_way.push_back([this, ends, text, done, effect] {
            if (now < ends)
                return false;
            *done = true;
            if (effect)
                effect(text.empty());
            return true;
        });
        wait(duration());
        return [done, text]() -> std::optional<std::string> {
            if (!*done)
                return std::nullopt;
            return text;
        };
    }
    void wait(duration d)
    {
        now += d;
        std::erase_if(under_way, [](const auto& f) { return f(); });
    }
    suspension::waiting waiting()
    {
        return {[this] { return now; }, [this](duration d) { wait(d); }};
    }
    bool is_served() const { return is_there && !is_shut && !is_held && !has_let_go && has_locks; }
    bool is_suspended() const { return !is_there && is_shut && is_held && has_let_go; }

    time_point now{std::chrono::hours(1)};
    time_point looking_until{}, leases_until{}, silent_until{}, calls_until{};
    std::string gone, throws;
    std::map<std::string, plan> plans;
    std::vector<std::function<bool()>> under_way;
    std::vector<std::string> all;
    bool is_held = false, is_shut = false, has_let_go = false, is_there = true, has_locks = true;
    unsigned attempt = 0;
};

std::string failure(suspension& of, bool resumes = false)
{
    try {
        if (resumes)
            (void)of.resume();
        else
            of.suspend();
    } catch (const suspension_failure& e) {
        return e.what();
    }
    return {};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

} // namespace

BOOST_AUTO_TEST_CASE(all_steps_in_their_order)
{
    fake f;
    suspension s(f, &f, {}, f.waiting());
    f.leases_until = f.now + std::chrono::seconds(1);
    f.calls_until = f.now + std::chrono::seconds(3);
    BOOST_TEST(!s.since());
    s.suspend();
    BOOST_TEST((s.now() == state::suspended));
    BOOST_TEST(s.since().has_value());
    BOOST_TEST(f.is_suspended());
    const std::vector<std::string> there = {
        "hold",   "find_nameless", "recall",        "want_leases",     "sync",   "shut",
        "recall", "sync",          "find_nameless", "let_go_of_locks", "let_go", "still_open"};
    BOOST_TEST((f.all == there));
    f.all.clear();
    BOOST_TEST(s.resume().files == 7u);
    const std::vector<std::string> back = {"come_back", "restore"};
    BOOST_TEST((f.all == back));
    BOOST_TEST((s.now() == state::served));
    BOOST_TEST(!s.since());
    BOOST_TEST(f.is_served());
}

BOOST_AUTO_TEST_CASE(what_refuses_leaves_all_as_it_was)
{
    struct refusal {
        const char* step;
        const char* text;
    };
    for (const refusal& r : {refusal{"find_nameless", "a file without a name"}, refusal{"recall", "a client"},
                             refusal{"sync", "the disk"}, refusal{"let_go_of_locks", "locks"}}) {
        fake f;
        f.plans[r.step] = {{}, r.text};
        suspension s(f, &f, {}, f.waiting());
        BOOST_TEST(failure(s) == r.text);
        BOOST_TEST(f.is_served(), r.step);
        BOOST_TEST((s.now() == state::served));
        BOOST_TEST(f.count("let_go") == 0u);
        f.plans.clear();
        s.suspend(); // and the next time it goes
        BOOST_TEST(f.is_suspended());
    }
}

BOOST_AUTO_TEST_CASE(what_hangs_is_named_and_leaves_all_as_it_was)
{
    for (const char* const step : {"find_nameless", "recall", "sync", "let_go_of_locks", "still_open"}) {
        fake f;
        f.plans[step] = {never, ""};
        suspension s(f, &f, {}, f.waiting());
        BOOST_TEST(has(failure(s), "has not ended within"), step);
        f.plans.clear();
        f.wait(never); // it ends at last, and nothing comes of it
        BOOST_TEST((f.is_there && !f.is_shut && !f.is_held), step);
        BOOST_TEST((s.now() == state::served), step);
    }
}

BOOST_AUTO_TEST_CASE(a_file_that_loses_its_name_meanwhile_refuses)
{
    fake f;
    f.calls_until = f.now + std::chrono::seconds(1);
    bool is_first = true; // look, which finds nothing
    const auto wait = [&](duration d) {
        if (std::exchange(is_first, false))
            f.plans["find_nameless"] = {{}, "file 7"};
        f.wait(d);
    };
    suspension s(f, &f, {}, {f.waiting().now, wait});
    BOOST_TEST(failure(s) == "file 7");
    BOOST_TEST(f.count("sync") == 2u);
    BOOST_TEST(f.is_served());
}

BOOST_AUTO_TEST_CASE(calls_that_do_not_end_and_shards_that_do_not_answer)
{
    fake f;
    suspension s(f, &f, {}, f.waiting());
    f.calls_until = f.now + never;
    BOOST_TEST(has(failure(s), "2 calls have not ended"));
    BOOST_TEST(f.is_served());
    BOOST_TEST(f.count("sync") == 1u); // before it was shut
    f.calls_until = {};
    f.silent_until = f.now + never;
    BOOST_TEST(has(failure(s), "Shard 1 does not answer"));
    BOOST_TEST(f.is_served());
}

BOOST_AUTO_TEST_CASE(who_looks_at_the_root_is_waited_for)
{
    fake f;
    suspension s(f, &f, {}, f.waiting());
    f.looking_until = f.now + std::chrono::seconds(2);
    s.suspend();
    BOOST_TEST(f.is_suspended());
    (void)s.resume();
    f.looking_until = f.now + never;
    BOOST_TEST(has(failure(s), "a look at its root has not ended"));
    BOOST_TEST(f.is_served());
    f.looking_until = {};
    f.gone = "nothing is there";
    BOOST_TEST(failure(s) == "nothing is there");
    BOOST_TEST(f.is_served());
}

BOOST_AUTO_TEST_CASE(clients_that_keep_leases_lose_them)
{
    fake f;
    suspension s(f, &f, {}, f.waiting());
    f.leases_until = f.now + never;
    const time_point before = f.now;
    s.suspend();
    BOOST_TEST(f.is_suspended());
    BOOST_TEST((f.now - before >= suspension::options().lease_patience));
}

BOOST_AUTO_TEST_CASE(what_stays_open_for_a_while_is_waited_for)
{
    fake f;
    suspension s(f, &f, {}, f.waiting());
    f.plans["still_open"] = {{}, "a descriptor", 20};
    s.suspend();
    BOOST_TEST(f.is_suspended());
    BOOST_TEST(f.count("still_open") == 21u);
    (void)s.resume();
    f.plans["still_open"] = {{}, "a descriptor"};
    BOOST_TEST(failure(s) == "a descriptor");
    BOOST_TEST(f.is_served());
    BOOST_TEST(f.count("restore") == 2u);
}

BOOST_AUTO_TEST_CASE(what_can_not_be_served_again_stays_suspended_and_says_so)
{
    fake f;
    suspension s(f, &f, {}, f.waiting());
    f.plans["still_open"] = {{}, "a descriptor"};
    f.plans["come_back"] = {{}, "another file system"};
    const std::string text = failure(s);
    BOOST_TEST(has(text, "a descriptor"));
    BOOST_TEST(has(text, "another file system"));
    BOOST_TEST((s.now() == state::suspended));
    BOOST_TEST(s.since().has_value());
    BOOST_TEST(failure(s, true) == "another file system");
    BOOST_TEST((s.now() == state::suspended));
    f.plans.clear();
    (void)s.resume();
    BOOST_TEST(f.is_served());
}

BOOST_AUTO_TEST_CASE(what_comes_back_late_changes_nothing)
{
    fake f;
    suspension s(f, &f, {}, f.waiting());
    s.suspend();
    f.plans["come_back"] = {std::chrono::seconds(30), "", 1};
    BOOST_TEST(has(failure(s, true), "the look at its root has not ended"));
    f.wait(std::chrono::seconds(60));
    BOOST_TEST((s.now() == state::suspended));
    BOOST_TEST(f.is_suspended());
    (void)s.resume();
    BOOST_TEST(f.is_served());
}

// As where there is no memory for one.
BOOST_AUTO_TEST_CASE(a_step_that_throws_leaves_all_as_it_was)
{
    for (const char* const step : {"find_nameless", "recall", "sync", "let_go_of_locks", "still_open"}) {
        fake f;
        f.throws = step;
        suspension s(f, &f, {}, f.waiting());
        BOOST_TEST(!failure(s).empty(), step);
        BOOST_TEST(f.is_served(), step);
        BOOST_TEST((s.now() == state::served), step);
    }
    fake f;
    suspension s(f, &f, {}, f.waiting());
    s.suspend();
    f.throws = "come_back";
    BOOST_TEST(!failure(s, true).empty());
    BOOST_TEST((s.now() == state::suspended));
    f.throws = "restore";
    BOOST_TEST(!failure(s, true).empty());
    BOOST_TEST((s.now() == state::served));
}

BOOST_AUTO_TEST_CASE(a_stop_of_the_program_ends_every_wait)
{
    for (const char* const step : {"find_nameless", "recall", "sync", "let_go_of_locks", "still_open"}) {
        fake f;
        f.plans[step] = {never, ""};
        std::stop_source stop;
        const auto wait = [&](duration d) {
            stop.request_stop();
            f.wait(d);
        };
        suspension s(f, &f, {}, {f.waiting().now, wait});
        const time_point before = f.now;
        BOOST_CHECK_THROW(s.suspend(stop.get_token()), suspension_failure);
        BOOST_TEST((f.now - before < std::chrono::seconds(1)), step);
    }
}

BOOST_AUTO_TEST_CASE(only_what_is_served_is_suspended_and_the_other_way_round)
{
    fake f;
    suspension s(f, &f, {}, f.waiting());
    BOOST_TEST(has(failure(s, true), "it is not suspended"));
    s.suspend();
    BOOST_TEST(has(failure(s), "resume it first"));
    (void)s.resume();
    BOOST_TEST(f.is_served());
}

BOOST_AUTO_TEST_CASE(a_look_for_what_clients_had_that_hangs_keeps_nobody_from_being_served)
{
    fake f;
    suspension s(f, &f, {}, f.waiting());
    s.suspend();
    f.plans["restore"] = {never, ""};
    BOOST_TEST(has(failure(s, true), "it is served again, but"));
    BOOST_TEST((s.now() == state::served));
    BOOST_TEST(!f.is_shut);
}

// Whatever fails, hangs or comes late: it is served or suspended as a whole, and says which.
BOOST_AUTO_TEST_CASE(nothing_is_ever_half_suspended)
{
    const std::vector<std::string> steps = {"find_nameless", "recall",    "sync",   "let_go_of_locks",
                                            "still_open",    "come_back", "restore"};
    for (unsigned seed = 0; seed < 2000; ++seed) {
        std::mt19937 random(seed);
        const auto below = [&](unsigned n) { return unsigned(random() % n); };
        fake f;
        suspension s(f, &f, {}, f.waiting());
        for (unsigned round = 0; round < 12; ++round) {
            f.plans.clear();
            for (const std::string& step : steps)
                if (below(4) == 0)
                    f.plans[step] = {std::chrono::seconds(below(3) * 6), below(2) == 0 ? "" : "it failed",
                                     1 + below(3)};
            f.calls_until = below(3) == 0 ? f.now + std::chrono::seconds(below(12)) : time_point();
            f.silent_until = below(5) == 0 ? f.now + std::chrono::seconds(below(12)) : time_point();
            const bool resumes = s.now() == state::suspended;
            const std::string text = failure(s, resumes);
            const bool is_served = s.now() == state::served;
            BOOST_REQUIRE((is_served || s.now() == state::suspended));
            BOOST_REQUIRE(s.since().has_value() == !is_served);
            BOOST_REQUIRE(f.is_there == is_served);
            BOOST_REQUIRE((!is_served || (!f.is_shut && !f.is_held && !f.has_let_go)));
            if (text.empty())
                BOOST_REQUIRE(is_served == resumes);
            f.wait(std::chrono::seconds(below(30)));
            BOOST_REQUIRE(f.is_there == is_served); // also when what hung has ended
            f.has_locks = f.has_locks || is_served;
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
