// SPDX-License-Identifier: Apache-2.0
// CB_COMPOUND as a client serves it: the rules of slots, and what each operation is answered. The server is made by hand.
#include "nfs4_server.hpp"

#include <verbena/protocols/nfs/client/v4/callback_service.hpp>

#include <array>
#include <optional>

BOOST_AUTO_TEST_SUITE(nfs4_callback_service_test)

using namespace verbena;
using namespace verbena::test;
using namespace verbena::nfs::v4;

namespace {

sessionid4 named(int n)
{
    sessionid4 id{};
    id[0] = std::byte(n);
    return id;
}

struct session_of_a_test final : called_session {
    bool is_session(const sessionid4& id) const noexcept override { return id == named(number); }
    bool is_being_made() const noexcept override { return being_made; }
    std::uint32_t minor_of_callbacks() const noexcept override { return minor; }
    callback_slots& slots_of_callbacks() noexcept override { return slots; }
    bool awaits_answer(const referring_call4& call) const noexcept override
    {
        return call.slotid == 3 && call.sequenceid == awaited;
    }
    nfsstat4 recalled(const CB_RECALL4args& args) override
    {
        ++recalls;
        return args.stateid.seqid == 66 ? nfsstat4::bad_stateid : nfsstat4::ok;
    }
    nfsstat4 recalled(const CB_RECALL_ANY4args&) override { return nfsstat4::ok; }
    nfsstat4 recalled(const CB_RECALL_SLOT4args& args) override
    {
        target = args.target_highest_slotid;
        return nfsstat4::ok;
    }
    nfsstat4 tell(const CB_GETATTR4args&, attributes& out) override
    {
        out.change = 17;
        out.size = 4711;
        out.present.set(attribute::change);
        out.present.set(attribute::size);
        return nfsstat4::ok;
    }
    void notified(const CB_NOTIFY_LOCK4args&) noexcept override { ++notices; }
    int number = 1;
    int notices = 0;
    bool being_made = false;
    std::uint32_t minor = 1;
    std::uint32_t awaited = 0;
    std::uint32_t target = 99;
    int recalls = 0;
    callback_slots slots;
};

struct fixture {
    fixture()
    {
        session.slots.reset(2);
        service.add(session);
    }
    ~fixture() { service.remove(session); }

    /// A CB_COMPOUND; its answer stands in `in` until the next one.
    template<class... Args>
    nfsstat4 call(const Args&... args)
    {
        last.emplace(world.pool, world.from);
        xdr::encoder out = last->begin(callback_service::program, 1, 1, nullptr);
        callback_head head;
        head.minorversion = minor;
        callback_request request(out, head);
        (request.add(args), ...);
        last->end(out);
        return answer();
    }
    nfsstat4 answer()
    {
        BOOST_TEST_REQUIRE(run_until_complete(*world.shard, service.dispatch(*last)));
        in = last->reply();
        BOOST_TEST_REQUIRE(last->header_of_reply.success());
        reply.emplace(in);
        return reply->status();
    }
    template<class Results>
    Results read()
    {
        Results res;
        (void)reply->read(res);
        BOOST_TEST_REQUIRE(in.ok());
        return res;
    }
    static CB_SEQUENCE4args sequence(std::uint32_t number, std::uint32_t slot = 0, std::uint32_t highest = 1)
    {
        CB_SEQUENCE4args args;
        args.sessionid = named(1);
        args.sequenceid = number;
        args.slotid = slot;
        args.highest_slotid = highest;
        return args;
    }
    static CB_RECALL4args recall(std::uint32_t number = 1)
    {
        CB_RECALL4args args;
        args.stateid.seqid = number;
        return args;
    }
    std::vector<std::byte> whole() const { return {last->whole_reply().begin(), last->whole_reply().end()}; }

    memory_server world;
    callback_service service{*world.shard};
    session_of_a_test session;
    std::uint32_t minor = 1;
    std::optional<memory_call> last;
    xdr::decoder in{std::span<const std::byte>()};
    std::optional<callback_reply> reply;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_callback_runs_and_its_number_is_used_up, fixture)
{
    BOOST_TEST(call(sequence(1), recall()) == nfsstat4::ok);
    const auto res = read<CB_SEQUENCE4res>();
    BOOST_CHECK(res.sessionid == named(1));
    BOOST_TEST(res.sequenceid == 1u);
    BOOST_TEST(res.slotid == 0u);
    BOOST_TEST(res.highest_slotid == 1u);
    BOOST_TEST(res.target_highest_slotid == 1u);
    BOOST_TEST(read<CB_RECALL4res>().status == nfsstat4::ok);
    BOOST_TEST(reply->complete());
    BOOST_TEST(call(sequence(2), recall(66)) == nfsstat4::bad_stateid); // uses it up as well
    BOOST_TEST(call(sequence(3), recall()) == nfsstat4::ok);
    BOOST_TEST(call(sequence(1, 1), recall()) == nfsstat4::ok); // each slot has its own
    BOOST_TEST(session.recalls == 4);
    BOOST_TEST(service.counts().callbacks.value() == 4u);
    BOOST_TEST(service.counts().recalls.value() == 4u);
}

BOOST_FIXTURE_TEST_CASE(a_repeat_is_answered_as_the_first_time, fixture)
{
    for (const std::uint32_t id : {1u, 66u}) {
        const std::uint32_t number = id == 1 ? 1 : 2;
        (void)call(sequence(number), recall(id));
        const auto first = whole();
        const int recalls = session.recalls;
        (void)call(sequence(number), recall(id));
        BOOST_CHECK(whole() == first);
        BOOST_TEST(session.recalls == recalls);
    }
    BOOST_TEST(service.counts().repeats.value() == 2u);
    // Another call by that number.
    BOOST_TEST(call(sequence(2), recall(1)) == nfsstat4::seq_false_retry);
    CB_SEQUENCE4args kept = sequence(2);
    kept.cachethis = true;
    BOOST_TEST(call(kept, recall(66)) == nfsstat4::seq_false_retry);
    BOOST_TEST(call(sequence(2), recall(66)) == nfsstat4::bad_stateid); // which did not change the slot
}

BOOST_FIXTURE_TEST_CASE(what_is_wrong_with_a_sequence_changes_nothing, fixture)
{
    BOOST_TEST(call(sequence(0), recall()) == nfsstat4::seq_misordered); // of a slot that had none
    BOOST_TEST(call(sequence(2), recall()) == nfsstat4::seq_misordered);
    BOOST_TEST(call(sequence(1, 2), recall()) == nfsstat4::badslot);
    BOOST_TEST(call(sequence(1, 0, 2), recall()) == nfsstat4::bad_high_slot);
    CB_SEQUENCE4args other = sequence(1);
    other.sessionid = named(2);
    BOOST_TEST(call(other, recall()) == nfsstat4::badsession);
    session.being_made = true; // its id may be that one
    BOOST_TEST(call(other, recall()) == nfsstat4::delay);
    session.being_made = false;
    minor = 2;
    BOOST_TEST(call(sequence(1), recall()) == nfsstat4::badsession);
    for (const std::uint32_t none : {0u, 3u}) {
        minor = none;
        BOOST_TEST(call(sequence(1), recall()) == nfsstat4::minor_vers_mismatch);
        BOOST_TEST(reply->head().operations == 0u);
    }
    minor = 1;
    BOOST_TEST(call(recall()) == nfsstat4::op_not_in_session);
    BOOST_TEST(call() == nfsstat4::ok);
    const CB_RECALL4args r = recall();
    BOOST_TEST(call(sequence(1), r, r, r, r, r, r, r, r) == nfsstat4::too_many_ops);
    BOOST_TEST(session.recalls == 0);
    BOOST_TEST(call(sequence(1), r, r, r, r, r, r, r) == nfsstat4::ok);
    BOOST_TEST(session.recalls == 7);
    BOOST_TEST(call(sequence(2), sequence(3)) == nfsstat4::sequence_pos);
    BOOST_TEST(read<CB_SEQUENCE4res>().status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(a_callback_waits_for_the_calls_that_it_refers_to, fixture)
{
    const std::array<referring_call4, 2> calls{{{7, 2}, {8, 3}}};
    std::array<referring_call_list4, 2> lists;
    lists[0].sessionid = named(9); // of somebody else
    lists[0].referring_calls = std::span<const referring_call4>(calls);
    lists[1].sessionid = named(1);
    lists[1].referring_calls = std::span<const referring_call4>(calls);
    CB_SEQUENCE4args args = sequence(1);
    args.referring_call_lists = std::span<const referring_call_list4>(lists);
    session.awaited = 8;
    BOOST_TEST(call(args, recall()) == nfsstat4::delay);
    BOOST_TEST(session.recalls == 0);
    session.awaited = 9; // that one has its answer
    BOOST_TEST(call(args, recall()) == nfsstat4::ok);
    session.awaited = 8;
    BOOST_TEST(call(args, recall()) == nfsstat4::ok); // a repeat has been answered already
    BOOST_TEST(session.recalls == 1);
}

BOOST_FIXTURE_TEST_CASE(each_operation_has_its_answer, fixture)
{
    CB_GETATTR4args getattr;
    getattr.attr_request = {attribute::change, attribute::size, attribute::mode};
    BOOST_TEST(call(sequence(1), getattr) == nfsstat4::ok);
    (void)read<CB_SEQUENCE4res>();
    attributes values;
    BOOST_TEST_REQUIRE(decode_attributes(read<CB_GETATTR4res>().obj_attributes, values));
    BOOST_TEST(values.change == 17u);
    BOOST_TEST(values.size == 4711u);
    BOOST_TEST(!values.present.test(attribute::mode));
    BOOST_TEST(call(sequence(2), CB_RECALL_ANY4args()) == nfsstat4::ok);
    BOOST_TEST(call(sequence(3), CB_NOTIFY_LOCK4args()) == nfsstat4::ok);
    BOOST_TEST(session.notices == 1);
    BOOST_TEST(call(sequence(4), CB_RECALL_SLOT4args{5}) == nfsstat4::ok);
    BOOST_TEST(session.target == 5u);
    std::uint32_t number = 4;
    BOOST_TEST(call(sequence(++number), CB_LAYOUTRECALL4args()) == nfsstat4::notsupp);
    BOOST_TEST(call(sequence(++number), CB_NOTIFY4args()) == nfsstat4::notsupp);
    BOOST_TEST(call(sequence(++number), CB_PUSH_DELEG4args()) == nfsstat4::notsupp);
    BOOST_TEST(call(sequence(++number), CB_RECALLABLE_OBJ_AVAIL4args()) == nfsstat4::notsupp);
    BOOST_TEST(call(sequence(++number), CB_WANTS_CANCELLED4args()) == nfsstat4::notsupp);
    BOOST_TEST(call(sequence(++number), CB_NOTIFY_DEVICEID4args()) == nfsstat4::notsupp);
    BOOST_TEST(call(sequence(++number), CB_OFFLOAD4args()) == nfsstat4::op_illegal); // of minor version 2
    session.minor = minor = 2;
    BOOST_TEST(call(sequence(++number), CB_OFFLOAD4args()) == nfsstat4::notsupp);
    // What failed is the last one.
    BOOST_TEST(call(sequence(++number), CB_NOTIFY4args(), recall()) == nfsstat4::notsupp);
    BOOST_TEST(session.recalls == 0);
}

BOOST_FIXTURE_TEST_CASE(what_cannot_be_read_is_said, fixture)
{
    (void)call(sequence(1), recall());
    last->cut_short(4);
    last->rewrite(40 + 4 + 4 + 4 + 4 + 4 + 16, 2); // the next number: RPC header, head, operation, session
    BOOST_TEST(answer() == nfsstat4::badxdr);
    BOOST_TEST(read<CB_SEQUENCE4res>().status == nfsstat4::ok);
    BOOST_TEST(call(sequence(3)) == nfsstat4::ok); // it was used up
    memory_call none(world.pool, world.from);
    xdr::encoder out = none.begin(callback_service::program, 1, 1, nullptr);
    none.end(out);
    BOOST_TEST_REQUIRE(run_until_complete(*world.shard, service.dispatch(none)));
    (void)none.reply();
    BOOST_TEST(!none.header_of_reply.success());
    memory_call null(world.pool, world.from);
    out = null.begin(callback_service::program, 1, 0, nullptr);
    null.end(out);
    BOOST_TEST_REQUIRE(run_until_complete(*world.shard, service.dispatch(null)));
    (void)null.reply();
    BOOST_TEST(null.header_of_reply.success());
}

BOOST_AUTO_TEST_SUITE_END()
