// SPDX-License-Identifier: Apache-2.0
// Operations that take their time: a client's lease does not end while its compound runs, and nobody is granted meanwhile what contradicts
// them.
#include "nfs4_version3.hpp"

#include <verbena/core/task/event.hpp>
#include <verbena/protocols/storage/gated_backend.hpp>

BOOST_AUTO_TEST_SUITE(nfs4_under_way_test)

using namespace verbena;
using namespace verbena::test;

namespace {

/// What reads or changes data waits while it is `held`.
class slow_files final : public storage::gated_backend {
public:
    using gated_backend::gated_backend;
    bool gates(storage::operation op) const noexcept override
    {
        return op == storage::operation::read || op == storage::operation::write ||
               op == storage::operation::setattr || op == storage::operation::create;
    }
    task<result<void>> enter(storage::operation, const storage::request&, std::uint64_t) override
    {
        ++waiting;
        entered += held;
        while (held)
            (void)co_await go.wait();
        --waiting;
        co_return result<void>();
    }
    void hold()
    {
        held = true;
        go.reset();
    }
    void release()
    {
        held = false;
        go.set();
    }
    bool held = false;
    int waiting = 0, entered = 0; // by now; of those that had to wait, all
    event go;
};

struct fixture : version3_fixture {
    fixture()
    {
        options[0].backend = &slow;
        first.connect();
        second.connect();
        add_version3();
        tend();
        file = first.open(first.creating("f"));
        BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
        BOOST_TEST(first.call(PUTFH4args{client4::handle_of(file)}, CLOSE4args{0, file.id}).status() ==
                   nfsstat4::ok);
    }
    ~fixture()
    {
        slow.release();
        tasks.request_stop();
        while (tasks.live() != 0)
            shard->turn();
    }
    /// The first client opens the file and denies others something; the answer may take its time.
    std::shared_ptr<memory_call> begin_open(std::uint32_t deny, std::string_view name = "f")
    {
        ++slot;
        return begin(first.sequence(slot), PUTROOTFH4args(), LOOKUP4args{"export"},
                     first.opening(name, share4::access_read, deny));
    }
    /// The second one reads or writes without an open.
    std::shared_ptr<memory_call> begin_read(stateid4 id = {})
    {
        return begin(second.sequence(1), PUTFH4args{client4::handle_of(file)}, READ4args{id, 0, 10});
    }
    std::shared_ptr<memory_call> begin_write()
    {
        return begin(second.sequence(1), PUTFH4args{client4::handle_of(file)},
                     WRITE4args{{}, 0, stable_how4::unstable, std::as_bytes(std::span("text", 4))});
    }
    static nfsstat4 status_of(memory_call& c) { return answer_of(c).status(); }
    const files::state_stats& stats() { return commons->state.table().stats(); }

    slow_files slow{*files};
    client4 first{*this, "a"}, second{*this, "b"};
    client4::opened file;
    std::uint32_t slot = 0;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_lease_does_not_end_while_a_compound_runs, fixture)
{
    const auto denying = first.open(first.opening("f", share4::access_read, share4::deny_write));
    BOOST_TEST_REQUIRE(denying.status == nfsstat4::ok);
    const OPEN4args writing = second.opening("f", share4::access_write);
    slow.hold();
    const auto c =
        begin(first.sequence(), PUTFH4args{client4::handle_of(file)}, READ4args{denying.id, 0, 10});
    BOOST_TEST_REQUIRE(slow.waiting == 1);
    // The second one renews its own meanwhile.
    for (int i = 0; i < 5; ++i) {
        pass(60s, 1s);
        BOOST_TEST(second.open(writing).status == nfsstat4::share_denied);
    }
    slow.release();
    turns();
    BOOST_TEST(answer_of(*c).status() == nfsstat4::ok);
    // It has a whole lease from the end of the compound on.
    pass(89s, 1s);
    BOOST_TEST(second.open(writing).status == nfsstat4::share_denied);
    pass(1s, 1s);
    BOOST_TEST(second.open(writing).status == nfsstat4::ok);
    BOOST_TEST(first.call(PUTROOTFH4args()).status() == nfsstat4::badsession);
}

BOOST_FIXTURE_TEST_CASE(a_session_stays_while_a_compound_of_its_runs, fixture)
{
    slow.hold();
    const auto c = begin(first.sequence(), PUTFH4args{client4::handle_of(file)}, READ4args{{}, 0, 10});
    BOOST_TEST_REQUIRE(slow.waiting == 1);
    BOOST_TEST(compound(DESTROY_SESSION4args{first.session}).status() == nfsstat4::delay);
    slow.release();
    turns();
    BOOST_TEST(answer_of(*c).status() == nfsstat4::ok);
    BOOST_TEST(compound(DESTROY_SESSION4args{first.session}).status() == nfsstat4::ok);
}

// A client whose connection broke sends a call again that the server still runs. After DELAY Linux waits for 15 s.
BOOST_FIXTURE_TEST_CASE(a_repeat_of_a_call_that_runs_gets_its_answer, fixture)
{
    for (const bool keep : {true, false}) {
        const SEQUENCE4args sequence = second.sequence(0, keep);
        const auto write = [&] {
            return begin(sequence, PUTFH4args{client4::handle_of(file)},
                         WRITE4args{{}, 0, stable_how4::unstable, std::as_bytes(std::span("text", 4))});
        };
        slow.hold();
        const auto call = write(), repeat = write(), another = write();
        BOOST_TEST(slow.waiting == 1);
        BOOST_TEST((!call->is_done && !repeat->is_done));
        BOOST_TEST_REQUIRE(another->is_done); // one waits, and no more
        BOOST_TEST(status_of(*another) == nfsstat4::delay);
        const time_point before = clock.now();
        slow.release();
        turns();
        BOOST_TEST_REQUIRE((call->is_done && repeat->is_done));
        BOOST_CHECK(clock.now() == before);
        BOOST_TEST(status_of(*call) == nfsstat4::ok);
        BOOST_TEST(status_of(*repeat) == nfsstat4::ok);
        BOOST_TEST(std::ranges::equal(call->whole_reply(), repeat->whole_reply()));
        BOOST_TEST(slow.entered == (keep ? 1 : 2)); // it ran once
    }
}

// It waits as a repeat does, since it begins like one.
BOOST_FIXTURE_TEST_CASE(another_call_by_the_number_of_one_that_runs_does_not_get_its_answer, fixture)
{
    const auto write = [this](const SEQUENCE4args& sequence, std::uint64_t offset, bool in_two) {
        const WRITE4args args{{}, offset, stable_how4::unstable, std::as_bytes(std::span("text", 4))};
        const PUTFH4args at{client4::handle_of(file)};
        const GETATTR4args look{{attribute::size}};
        const std::size_t whole = prepare(1, [&](compound_request& out) {
                                      out.add(sequence);
                                      out.add(at);
                                      out.add(args);
                                      out.add(look);
                                  })->size();
        border = in_two ? whole - 30 : 0; // amid what is to be written, and where
        auto begun = begin(sequence, at, args, look);
        border = 0;
        return begun;
    };
    int runs = 0;
    for (const bool keep : {true, false}) {
        for (const bool in_two : {false, true}) {
            SEQUENCE4args sequence = second.sequence(0, keep);
            slow.hold();
            auto call = write(sequence, 0, in_two), other = write(sequence, 8, false);
            BOOST_TEST((!call->is_done && !other->is_done));
            slow.release();
            turns();
            BOOST_TEST_REQUIRE((call->is_done && other->is_done));
            BOOST_TEST(status_of(*call) == nfsstat4::ok);
            BOOST_TEST(status_of(*other) == nfsstat4::seq_false_retry);

            sequence = second.sequence(0, keep);
            slow.hold();
            call = write(sequence, 0, in_two), other = write(sequence, 0, !in_two);
            slow.release();
            turns();
            BOOST_TEST_REQUIRE((call->is_done && other->is_done));
            BOOST_TEST(status_of(*call) == nfsstat4::ok);
            BOOST_TEST(status_of(*other) == nfsstat4::ok);
            BOOST_TEST(std::ranges::equal(call->whole_reply(), other->whole_reply()));
            runs += 2;
            BOOST_TEST(slow.entered == runs);
        }
    }
}

BOOST_FIXTURE_TEST_CASE(a_session_stays_while_a_repeat_waits_for_its_answer, fixture)
{
    const SEQUENCE4args sequence = second.sequence();
    const auto write = [&] {
        return begin(sequence, PUTFH4args{client4::handle_of(file)},
                     WRITE4args{{}, 0, stable_how4::unstable, std::as_bytes(std::span("text", 4))});
    };
    slow.hold();
    const auto call = write(), repeat = write();
    BOOST_TEST(compound(DESTROY_SESSION4args{second.session}).status() == nfsstat4::delay);
    BOOST_TEST(!repeat->is_done);
    slow.release();
    // The session goes as soon as the call has ended, whatever the repeat has heard by then.
    nfsstat4 destroyed = nfsstat4::delay;
    for (int i = 0; i < 20 && destroyed == nfsstat4::delay; ++i) {
        turns(1);
        destroyed = compound(DESTROY_SESSION4args{second.session}).status();
    }
    BOOST_TEST(destroyed == nfsstat4::ok);
    turns();
    BOOST_TEST_REQUIRE((call->is_done && repeat->is_done));
    BOOST_TEST(status_of(*call) == nfsstat4::ok);
    BOOST_TEST(status_of(*repeat) == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(a_repeat_that_waits_ends_with_its_call_when_the_server_stops, fixture)
{
    const SEQUENCE4args sequence = second.sequence();
    const auto write = [&] {
        return begin(sequence, PUTFH4args{client4::handle_of(file)},
                     WRITE4args{{}, 0, stable_how4::unstable, std::as_bytes(std::span("text", 4))});
    };
    slow.hold();
    const auto call = write(), repeat = write();
    BOOST_TEST((!call->is_done && !repeat->is_done));
    slow.release(); // as a back end does when it hears of the stop
    tasks.request_stop();
    turns();
    BOOST_TEST((call->is_done && repeat->is_done));
    BOOST_TEST(tasks.live() == 0u);
}

BOOST_FIXTURE_TEST_CASE(an_open_waits_for_what_it_denies, fixture)
{
    slow.hold();
    const auto write = begin_write();
    const auto opening = begin_open(share4::deny_write);
    BOOST_TEST_REQUIRE(slow.waiting == 1);
    pass(500ms);
    BOOST_TEST(!opening->is_done);
    // Its bits are in force already.
    const std::span<const std::byte> text = std::as_bytes(std::span("text", 4));
    BOOST_TEST(
        second.call(PUTFH4args{client4::handle_of(file)}, WRITE4args{{}, 0, stable_how4::unstable, text})
            .status() == nfsstat4::locked);
    BOOST_TEST(call3<v3::WRITE3res>(v3::procedure::write, writing(file)).status == v3::nfsstat3::acces);
    slow.release();
    pass(10ms, 1ms);
    BOOST_TEST(status_of(*write) == nfsstat4::ok);
    BOOST_TEST_REQUIRE(opening->is_done);
    BOOST_TEST(status_of(*opening) == nfsstat4::ok);
}

// What ends says so: nobody looks from time to time.
BOOST_FIXTURE_TEST_CASE(an_open_is_answered_as_soon_as_what_it_denies_is_over, fixture)
{
    slow.hold();
    const auto write = begin_write();
    const auto opening = begin_open(share4::deny_write);
    pass(500ms);
    BOOST_TEST_REQUIRE(!opening->is_done);
    const time_point before = clock.now();
    slow.release();
    turns();
    BOOST_TEST(write->is_done);
    BOOST_TEST_REQUIRE(opening->is_done);
    BOOST_TEST(status_of(*opening) == nfsstat4::ok);
    BOOST_CHECK(clock.now() == before);
}

BOOST_FIXTURE_TEST_CASE(an_open_does_not_wait_for_its_own_compound, fixture)
{
    const WRITE4args write{{}, 0, stable_how4::unstable, std::as_bytes(std::span("text", 4))};
    const auto c =
        begin(first.sequence(), PUTFH4args{client4::handle_of(file)}, write, write, write, PUTROOTFH4args(),
              LOOKUP4args{"export"}, first.opening("f", share4::access_read, share4::deny_write));
    BOOST_TEST_REQUIRE(c->is_done);
    BOOST_TEST(status_of(*c) == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(an_open_that_waits_too_long_comes_again, fixture)
{
    slow.hold();
    const auto read = begin_read();
    const auto opening = begin_open(share4::deny_read);
    pass(2s);
    BOOST_TEST_REQUIRE(opening->is_done);
    BOOST_TEST(status_of(*opening) == nfsstat4::delay);
    BOOST_TEST(stats().opens.value() == 0);
    // It never was.
    slow.release();
    turns();
    BOOST_TEST(status_of(*read) == nfsstat4::ok);
    BOOST_TEST(second.open(second.opening("f")).status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(an_open_waits_for_nothing_else, fixture)
{
    const auto other = second.open(second.creating("g"));
    slow.hold();
    const auto read = begin_read();
    BOOST_TEST_REQUIRE(slow.waiting == 1);
    const auto allows = begin_open(share4::deny_write);
    BOOST_TEST_REQUIRE(allows->is_done);
    BOOST_TEST(status_of(*allows) == nfsstat4::ok);
    const auto of_other = begin_open(share4::deny_both, "g");
    BOOST_TEST_REQUIRE(of_other->is_done); // the other client has it open
    BOOST_TEST(status_of(*of_other) == nfsstat4::share_denied);
    BOOST_TEST(second.call(PUTFH4args{client4::handle_of(other)}, CLOSE4args{0, other.id}).status() ==
               nfsstat4::ok);
    const auto again = begin_open(share4::deny_both, "g");
    BOOST_TEST_REQUIRE(again->is_done);
    BOOST_TEST(status_of(*again) == nfsstat4::ok);
}

// One that is closed, or whose client is gone, while it is used.
BOOST_FIXTURE_TEST_CASE(an_open_waits_for_what_a_closed_one_does, fixture)
{
    const auto mine = second.open(second.opening("f"));
    slow.hold();
    const auto write =
        begin(second.sequence(1), PUTFH4args{client4::handle_of(file)},
              WRITE4args{mine.id, 0, stable_how4::unstable, std::as_bytes(std::span("text", 4))});
    BOOST_TEST_REQUIRE(slow.waiting == 1);
    BOOST_TEST(second.call(PUTFH4args{client4::handle_of(file)}, CLOSE4args{0, mine.id}).status() ==
               nfsstat4::ok);
    const auto opening = begin_open(share4::deny_write);
    BOOST_TEST(!opening->is_done);
    slow.release();
    pass(10ms, 1ms);
    BOOST_TEST(status_of(*write) == nfsstat4::ok);
    BOOST_TEST_REQUIRE(opening->is_done);
    BOOST_TEST(status_of(*opening) == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(an_open_waits_for_version_3, fixture)
{
    v3::READ3args reading;
    reading.file = to_fh3(file.handle);
    reading.count = 10;
    v3::SETATTR3args cutting;
    cutting.object = to_fh3(file.handle);
    cutting.new_attributes.size = 0;
    v3::CREATE3args creating;
    creating.where.dir = root3();
    creating.where.name = "f";
    creating.obj_attributes.size = 0;
    const auto check = [&](std::shared_ptr<memory_call> c, std::uint32_t deny, bool waits) {
        BOOST_TEST_REQUIRE(!c->is_done);
        const auto opening = begin_open(deny);
        BOOST_TEST(opening->is_done != waits);
        slow.release();
        pass(10ms, 1ms);
        BOOST_TEST(c->is_done);
        BOOST_TEST_REQUIRE(opening->is_done);
        answer4 out = answer_of(*opening);
        BOOST_TEST_REQUIRE(out.status() == nfsstat4::ok);
        out.take<SEQUENCE4res>();
        out.take<PUTROOTFH4res>();
        out.take<LOOKUP4res>();
        const stateid4 id = out.good<OPEN4res>().stateid;
        BOOST_TEST(first.call(PUTFH4args{client4::handle_of(file)}, CLOSE4args{0, id}).status() ==
                   nfsstat4::ok);
        slow.hold();
        slot = 0;
    };
    BOOST_TEST_REQUIRE(second.open(second.creating("g")).status == nfsstat4::ok);
    slow.hold();
    for (const bool other : {false, true}) {
        const std::uint32_t write = other ? share4::deny_read : share4::deny_write;
        const std::uint32_t read = other ? share4::deny_write : share4::deny_read;
        check(begin3<v3::WRITE3res>(v3::procedure::write, writing(file)), write, !other);
        check(begin3<v3::READ3res>(v3::procedure::read, reading), read, !other);
        check(begin3<v3::SETATTR3res>(v3::procedure::setattr, cutting), write, !other);
        check(begin3<v3::CREATE3res>(v3::procedure::create, creating), write, !other);
    }
}

// Nobody has state of any file when it begins, so that it does not look whose its name is.
BOOST_FIXTURE_TEST_CASE(an_open_waits_for_a_create_of_version_3_that_began_before_any_state, fixture)
{
    v3::CREATE3args creating;
    creating.where.dir = root3();
    creating.where.name = "f";
    creating.obj_attributes.size = 0;
    BOOST_TEST_REQUIRE(!commons->state.has_any_state());
    slow.hold();
    const auto create = begin3<v3::CREATE3res>(v3::procedure::create, creating);
    BOOST_TEST_REQUIRE(slow.waiting == 1);
    const auto opening = begin_open(share4::deny_write);
    BOOST_TEST(!opening->is_done);
    const auto of_reads = begin_open(share4::deny_read, "f");
    BOOST_TEST(of_reads->is_done);
    slow.release();
    pass(10ms, 1ms);
    BOOST_TEST(create->is_done);
    BOOST_TEST_REQUIRE(opening->is_done);
    BOOST_TEST(status_of(*opening) == nfsstat4::ok);
}

// Else the lookup of the name would hold up whoever waits for what came before.
BOOST_FIXTURE_TEST_CASE(what_begins_by_a_name_is_no_longer_what_it_was, fixture)
{
    files::operations_here& here = commons->state.operations().on(commons->state.home());
    for (const bool has_state : {false, true}) {
        if (has_state) {
            file = first.open(first.creating("f"));
            BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
        }
        BOOST_TEST_REQUIRE(commons->state.has_any_state() == has_state);
        const storage::handle some(std::as_bytes(std::span("some file", 9)));
        files::under_way doing;
        BOOST_TEST(!commons->state.begin(doing, here, 1, some, files::operation::set_size));
        BOOST_TEST(commons->state.begin_by_name(doing, here, files::operation::remove) == has_state);
        // By its name alone it stands for all files, and with state the name is looked up first.
        BOOST_TEST(commons->state.operations().is_changed(files::file_key(1, some)) == !has_state);
    }
}

// The cut of an open is a write, whatever it opens for.
BOOST_FIXTURE_TEST_CASE(an_open_waits_for_the_cut_of_another, fixture)
{
    OPEN4args cutting = second.creating("f");
    cutting.share_access = share4::access_read;
    attributes size;
    size.present = {attribute::size};
    size.size = 0;
    const encoded none(size);
    cutting.openhow.attrs = none.raw;
    slow.hold();
    const auto cut = begin(second.sequence(1), PUTROOTFH4args(), LOOKUP4args{"export"}, cutting);
    BOOST_TEST_REQUIRE(slow.waiting == 1);
    const auto opening = begin_open(share4::deny_write);
    BOOST_TEST(!opening->is_done);
    slow.release();
    pass(10ms, 1ms);
    BOOST_TEST(status_of(*cut) == nfsstat4::ok);
    BOOST_TEST_REQUIRE(opening->is_done);
    BOOST_TEST(status_of(*opening) == nfsstat4::ok);
    BOOST_TEST(second.open(cutting).status == nfsstat4::share_denied);
}

BOOST_AUTO_TEST_SUITE_END()
