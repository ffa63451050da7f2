// SPDX-License-Identifier: Apache-2.0
// What clients are told and asked besides recalls: that a lock came free (CB_NOTIFY_LOCK), what they keep to themselves of a file
// (CB_GETATTR), and to give back what they don't use (CB_RECALL_ANY).
#include "nfs4_version3.hpp"

#include <verbena/core/task/event.hpp>
#include <verbena/protocols/storage/gated_backend.hpp>

#include <algorithm>
#include <random>
#include <utility>

BOOST_AUTO_TEST_SUITE(nfs4_asked_clients_test)

using namespace verbena;
using namespace verbena::test;
using outcome = callback_counters::outcome;
using kind = callback_counters::kind;

namespace {

struct fixture : version3_fixture {
    fixture()
    {
        options[0].local_writers = false;
        first_way = channel;
        second_way = std::make_shared<called_client>(pool);
    }
    ~fixture()
    {
        tasks.request_stop();
        while (tasks.live() != 0)
            shard->turn();
    }
    void begin()
    {
        connect(first);
        way = second_way;
        connect(second);
        add_version3();
        tend();
    }
    std::uint64_t count(kind k, outcome o) const
    {
        return commons->callbacks.counters().calls[std::size_t(k)][std::size_t(o)].value();
    }
    const files::state_stats& stats() { return commons->state.table().stats(); }

    // Locks.

    static OPEN4args plain(OPEN4args args)
    {
        args.share_access |= share4::want_no_delegation;
        return args;
    }
    nfsstat4 lock(client4& c, const client4::opened& file, std::string_view owner, nfs_lock_type4 type,
                  std::uint64_t offset = 0, stateid4* id = nullptr)
    {
        LOCK4args args;
        args.locktype = type;
        args.offset = offset;
        args.length = 10;
        args.locker.new_lock_owner = true;
        args.locker.open_stateid = file.id;
        args.locker.lock_owner.owner = std::as_bytes(std::span(owner));
        answer4 out = c.call(PUTFH4args{client4::handle_of(file)}, args);
        if (out.status() == nfsstat4::ok && id != nullptr) {
            out.good<PUTFH4res>();
            *id = out.good<LOCK4res>().lock_stateid;
        }
        return out.status();
    }
    nfsstat4 unlock(client4& c, const client4::opened& file, const stateid4& id)
    {
        LOCKU4args args;
        args.locktype = nfs_lock_type4::write;
        args.lock_stateid = id;
        args.length = 10;
        return c.call(PUTFH4args{client4::handle_of(file)}, args).status();
    }
    /// The first client has a range locked that the second one wants.
    void contend(client4::opened& held, client4::opened& wanted, stateid4& id)
    {
        held = first.open(plain(first.creating("f")));
        wanted = second.open(plain(second.opening("f")));
        BOOST_TEST_REQUIRE(lock(first, held, "holder", nfs_lock_type4::write, 0, &id) == nfsstat4::ok);
    }

    // Attributes.

    struct seen {
        nfsstat4 status = nfsstat4::ok;
        changeid4 change = 0;
        std::uint64_t size = 0;
    };
    seen look(client4& c, const client4::opened& file,
              bitmap4 wanted = {attribute::change, attribute::size, attribute::time_modify})
    {
        return told_in(c.call(PUTFH4args{client4::handle_of(file)}, GETATTR4args{wanted}));
    }
    /// By a GETATTR that was begun behind SEQUENCE and PUTFH, and has been answered.
    static seen told_in(memory_call& c)
    {
        BOOST_TEST_REQUIRE(c.is_done);
        answer4 out = answer_of(c);
        out.good<SEQUENCE4res>();
        return told_in(std::move(out));
    }
    /// Behind PUTFH.
    static seen told_in(answer4 out)
    {
        seen s;
        s.status = out.status();
        if (s.status != nfsstat4::ok)
            return s;
        out.good<PUTFH4res>();
        attributes values;
        BOOST_TEST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
        s.change = values.change;
        s.size = values.size;
        return s;
    }
    /// The first client has a write delegation, and says of the file what the server knows.
    client4::opened delegated(std::string_view name)
    {
        const client4::opened file = first.open(first.creating(name));
        BOOST_TEST_REQUIRE((file.res.delegation.delegation_type == open_delegation_type4::write));
        const seen own = look(first, file);
        says(own.change, own.size);
        return file;
    }
    void says(changeid4 change, std::uint64_t size)
    {
        attributes& said = first_way->values;
        said.present = {attribute::change, attribute::size};
        said.change = change;
        said.size = size;
    }
    static nfsstat4 give_back(client4& c, const client4::opened& file)
    {
        return c.call(PUTFH4args{client4::handle_of(file)}, DELEGRETURN4args{file.res.delegation.stateid})
            .status();
    }
    std::vector<nfs_cb_opnum4> heard(const std::shared_ptr<called_client>& by) const
    {
        std::vector<nfs_cb_opnum4> all;
        for (const called_client::heard& h : by->calls)
            all.push_back(h.operation);
        return all;
    }
    using operations = std::vector<nfs_cb_opnum4>;

    /// The second client does not answer what it was called for, and nothing else is begun.
    void hold_up_second()
    {
        second_way->silent = true;
        for (std::size_t i = 0; i < 4; ++i)
            commons->callbacks.recall_any(commons->sessions.find(second.session)->state(), i);
        turns();
    }
    std::int64_t waiting() const { return commons->callbacks.counters().waiting.value(); }

    client4 first{*this, "first"};
    client4 second{*this, "second"};
    std::shared_ptr<called_client> first_way, second_way;
};

/// Whether somebody may open a file takes its time while it is `held`.
class slow_files final : public storage::gated_backend {
public:
    using gated_backend::gated_backend;
    bool gates(storage::operation op) const noexcept override { return op == storage::operation::open; }
    task<result<void>> enter(storage::operation, const storage::request&, std::uint64_t) override
    {
        while (held)
            (void)co_await go.wait();
        co_return result<void>();
    }
    bool held = false;
    event go;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_waiter_hears_that_its_lock_is_free, fixture)
{
    begin();
    client4::opened held, wanted;
    stateid4 id;
    contend(held, wanted, id);
    BOOST_TEST((wanted.res.rflags & open4_result::may_notify_lock) != 0u);
    BOOST_TEST(lock(second, wanted, "waiter", nfs_lock_type4::writew) == nfsstat4::denied);
    BOOST_TEST(stats().lock_waiters.value() == 1);
    turns();
    BOOST_TEST(second_way->calls.empty());
    BOOST_TEST(unlock(first, held, id) == nfsstat4::ok);
    turns();
    BOOST_TEST_REQUIRE(second_way->calls.size() == 1u);
    const called_client::heard& h = second_way->calls[0];
    BOOST_TEST(h.operation == nfs_cb_opnum4::notify_lock);
    BOOST_TEST(h.owner == "waiter");
    BOOST_TEST(h.owner_client == second.id);
    BOOST_TEST(h.handle == wanted.handle);
    BOOST_TEST(count(kind::notify_lock, outcome::ok) == 1u);
    // Until it comes nobody is quicker, for a while.
    BOOST_TEST(lock(first, held, "another", nfs_lock_type4::write) == nfsstat4::denied);
    BOOST_TEST(lock(second, wanted, "waiter", nfs_lock_type4::writew) == nfsstat4::ok);
    BOOST_TEST(stats().lock_waiters.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(a_waiter_that_does_not_come_holds_nobody_up_for_long, fixture)
{
    begin();
    client4::opened held, wanted;
    stateid4 id;
    contend(held, wanted, id);
    BOOST_TEST(lock(second, wanted, "waiter", nfs_lock_type4::readw) == nfsstat4::denied);
    BOOST_TEST(unlock(first, held, id) == nfsstat4::ok);
    pass(1900ms, 100ms);
    BOOST_TEST(lock(first, held, "another", nfs_lock_type4::write) == nfsstat4::denied);
    pass(200ms, 100ms);
    BOOST_TEST(lock(first, held, "another", nfs_lock_type4::write) == nfsstat4::ok);
    BOOST_TEST(second_way->calls.size() == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_waiter_is_told_again_until_it_has_heard, fixture)
{
    begin();
    client4::opened held, wanted;
    stateid4 id;
    contend(held, wanted, id);
    BOOST_TEST(lock(second, wanted, "waiter", nfs_lock_type4::writew) == nfsstat4::denied);
    second_way->says = nfsstat4::delay;
    BOOST_TEST(unlock(first, held, id) == nfsstat4::ok);
    pass(100ms);
    BOOST_TEST(second_way->calls.size() > 1u);
    second_way->says = nfsstat4::ok;
    pass(200ms);
    BOOST_TEST(count(kind::notify_lock, outcome::ok) == 1u);
    // It has come by itself: nothing is left to be said.
    stateid4 mine;
    BOOST_TEST(lock(second, wanted, "waiter", nfs_lock_type4::writew, 0, &mine) == nfsstat4::ok);
    BOOST_TEST(lock(first, held, "another", nfs_lock_type4::writew) == nfsstat4::denied);
    first_way->says = nfsstat4::delay;
    BOOST_TEST(unlock(second, wanted, mine) == nfsstat4::ok);
    turns();
    const std::size_t told = first_way->calls.size();
    BOOST_TEST(told == 1u);
    BOOST_TEST(lock(first, held, "another", nfs_lock_type4::writew) == nfsstat4::ok);
    pass(2s, 50ms);
    BOOST_TEST(first_way->calls.size() == told);
}

// A client that does not answer makes us keep nothing without end.
BOOST_FIXTURE_TEST_CASE(a_waiter_is_told_once_however_often_it_asks_for_something_else, fixture)
{
    begin();
    client4::opened held, wanted;
    stateid4 id;
    contend(held, wanted, id);
    BOOST_TEST(lock(first, held, "beside", nfs_lock_type4::write, 20) == nfsstat4::ok);
    BOOST_TEST(lock(second, wanted, "waiter", nfs_lock_type4::writew) == nfsstat4::denied);
    hold_up_second();
    BOOST_TEST(unlock(first, held, id) == nfsstat4::ok);
    turns();
    BOOST_TEST(waiting() == 1);
    for (int i = 0; i < 10; ++i)
        BOOST_TEST(lock(second, wanted, "waiter", nfs_lock_type4::write, 20) == nfsstat4::denied);
    turns();
    BOOST_TEST(waiting() == 1);
}

BOOST_FIXTURE_TEST_CASE(a_client_that_hears_nothing_is_told_of_so_many_locks, fixture)
{
    begin();
    const auto file = second.open(plain(second.creating("f")));
    hold_up_second();
    const storage::handle handle(file.handle);
    files::lock_notice notice;
    notice.client = commons->sessions.find(second.session)->state();
    notice.file = &handle;
    for (int i = 0; i < 1500; ++i) {
        const std::string owner = std::to_string(i);
        notice.owner = std::as_bytes(std::span(owner));
        commons->callbacks.lock_available(notice);
    }
    turns();
    BOOST_TEST(waiting() == 1024);
    BOOST_TEST(commons->callbacks.counters().lost.value() == 1500u - 1024);
    // Others, and other things that it has to hear, are none of that.
    commons->callbacks.recall_any(notice.client, 1);
    turns();
    BOOST_TEST(waiting() == 1025);
    second_way->silent = false;
    pass(30s, 100ms);
    BOOST_TEST(waiting() == 0);
}

BOOST_FIXTURE_TEST_CASE(who_closes_a_file_waits_for_no_lock_of_it, fixture)
{
    begin();
    client4::opened held, wanted;
    stateid4 id;
    contend(held, wanted, id);
    client4 third(*this, "third");
    connect(third);
    const auto of_third = third.open(plain(third.opening("f")));
    BOOST_TEST(lock(second, wanted, "closes", nfs_lock_type4::writew) == nfsstat4::denied);
    BOOST_TEST(lock(third, of_third, "waiter", nfs_lock_type4::writew) == nfsstat4::denied);
    BOOST_TEST(unlock(first, held, id) == nfsstat4::ok); // it is kept for the first of them
    BOOST_TEST(lock(third, of_third, "waiter", nfs_lock_type4::writew) == nfsstat4::denied);
    BOOST_TEST(second.call(PUTFH4args{client4::handle_of(wanted)}, CLOSE4args{0, wanted.id}).status() ==
               nfsstat4::ok);
    BOOST_TEST(stats().lock_waiters.value() == 1);
    BOOST_TEST(lock(third, of_third, "waiter", nfs_lock_type4::writew) == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(who_does_not_wait_or_can_t_be_told_keeps_no_place, fixture)
{
    begin();
    client4::opened held, wanted;
    stateid4 id;
    contend(held, wanted, id);
    BOOST_TEST(lock(second, wanted, "waiter", nfs_lock_type4::write) == nfsstat4::denied);
    BOOST_TEST(stats().lock_waiters.value() == 0);
    second_way->is_open = false;
    BOOST_TEST(lock(second, wanted, "waiter", nfs_lock_type4::writew) == nfsstat4::denied);
    BOOST_TEST(stats().lock_waiters.value() == 0);
    // It was not told when it opened the file that it would hear.
    const auto deaf = second.open(plain(second.opening("f")));
    const auto other = second.open(plain(second.creating("g")));
    BOOST_TEST((deaf.res.rflags & open4_result::may_notify_lock) == 0u);
    second_way->is_open = true;
    stateid4 of_other;
    const auto mine = first.open(plain(first.opening("g")));
    BOOST_TEST(lock(first, mine, "holder", nfs_lock_type4::write, 0, &of_other) == nfsstat4::ok);
    BOOST_TEST(lock(second, other, "waiter", nfs_lock_type4::writew) == nfsstat4::denied);
    BOOST_TEST(stats().lock_waiters.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(a_waiter_that_has_given_up_is_forgotten, fixture)
{
    begin();
    client4::opened held, wanted;
    stateid4 id;
    contend(held, wanted, id);
    BOOST_TEST(lock(second, wanted, "given up", nfs_lock_type4::writew) == nfsstat4::denied);
    BOOST_TEST(lock(second, wanted, "waiter", nfs_lock_type4::writew) == nfsstat4::denied);
    for (int i = 0; i < 3; ++i) { // Linux asks each 30 s
        pass(30s, 1s);
        BOOST_TEST(first.call().status() == nfsstat4::ok);
        BOOST_TEST(lock(second, wanted, "waiter", nfs_lock_type4::writew) == nfsstat4::denied);
    }
    BOOST_TEST(stats().lock_waiters.value() == 1);
    BOOST_TEST(unlock(first, held, id) == nfsstat4::ok);
    turns();
    BOOST_TEST_REQUIRE(second_way->calls.size() == 1u);
    BOOST_TEST(second_way->calls[0].owner == "waiter");
}

// Owners of two clients want one range, and ask only once they are told. Some are killed while they wait, and some calls are answered
// late. Nobody has it beside another one, and nobody is forgotten.
BOOST_FIXTURE_TEST_CASE(who_waits_is_told_in_the_end, fixture)
{
    begin();
    struct owner {
        enum class state : std::uint8_t { idle, waits, holds };
        client4* client;
        client4::opened* file;
        std::string name;
        state is = state::idle;
        stateid4 id;
    };
    client4::opened of_first = first.open(plain(first.creating("f")));
    client4::opened of_second = second.open(plain(second.opening("f")));
    std::uint64_t told = 0, killed = 0;
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed)
        {
            std::minstd_rand random(static_cast<std::uint32_t>(seed));
            std::vector<owner> owners;
            for (int i = 0; i < 8; ++i)
                owners.push_back({i % 2 == 0 ? &first : &second,
                                  i % 2 == 0 ? &of_first : &of_second,
                                  std::to_string(seed) + "." + std::to_string(i),
                                  owner::state::idle,
                                  {}});
            const auto ask = [&](owner& o) {
                const nfsstat4 status = lock(*o.client, *o.file, o.name, nfs_lock_type4::writew, 0, &o.id);
                if (status == nfsstat4::ok)
                    for (const owner& other : owners)
                        BOOST_TEST_REQUIRE((other.is != owner::state::holds));
                else
                    BOOST_TEST_REQUIRE(status == nfsstat4::denied);
                o.is = status == nfsstat4::ok ? owner::state::holds : owner::state::waits;
            };
            const auto listen = [&] {
                turns();
                for (const auto& [way, client] :
                     {std::pair(first_way, &first), std::pair(second_way, &second)}) {
                    const std::vector<called_client::heard> calls = std::exchange(way->calls, {});
                    for (const called_client::heard& h : calls)
                        for (owner& o : owners)
                            if (o.client == client && o.name == h.owner && o.is == owner::state::waits) {
                                ++told;
                                ask(o);
                            }
                }
            };
            const auto release = [&](owner& o) {
                BOOST_TEST_REQUIRE(unlock(*o.client, *o.file, o.id) == nfsstat4::ok);
                o.is = owner::state::idle;
            };
            for (int step = 0; step < 60; ++step) {
                owner& o = owners[random() % owners.size()];
                for (const auto& way : {first_way, second_way})
                    way->says = random() % 4 == 0 ? nfsstat4::delay : nfsstat4::ok;
                if (o.is == owner::state::idle) {
                    ask(o);
                } else if (o.is == owner::state::holds) {
                    release(o);
                } else if (random() % 16 == 0) { // nobody says so
                    o.is = owner::state::idle;
                    o.name += "'";
                    ++killed;
                }
                listen();
                pass(std::chrono::milliseconds(random() % 40));
            }
            first_way->says = second_way->says = nfsstat4::ok;
            const auto waits = [](const owner& o) { return o.is == owner::state::waits; };
            for (int i = 0; i < 400 && std::ranges::any_of(owners, waits); ++i) {
                for (owner& o : owners)
                    if (o.is == owner::state::holds)
                        release(o);
                listen();
                pass(100ms);
            }
            BOOST_TEST(std::ranges::none_of(owners, waits));
            for (owner& o : owners)
                if (o.is == owner::state::holds)
                    release(o);
            pass(10s, 100ms); // whoever was killed is told, too
        }
    }
    BOOST_TEST(told > 300u);
    BOOST_TEST(killed > 30u);
    BOOST_TEST(stats().lock_waiters.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(a_holder_is_asked_for_attributes, fixture)
{
    begin();
    const auto file = delegated("f");
    const seen own = look(first, file);
    BOOST_TEST(heard(first_way).empty()); // nobody asks itself
    // It keeps nothing to itself.
    seen s = look(second, file);
    BOOST_TEST(s.status == nfsstat4::ok);
    BOOST_TEST(s.change == own.change);
    BOOST_TEST(s.size == 0u);
    BOOST_TEST(heard(first_way) == operations{nfs_cb_opnum4::getattr}, boost::test_tools::per_element());
    BOOST_TEST(first_way->calls[0].handle == file.handle);
    BOOST_TEST(look(second, file).change == own.change);
    // It has written: each answer is newer than the one before.
    says(own.change + 1, 1234);
    s = look(second, file);
    BOOST_TEST(s.size == 1234u);
    BOOST_TEST(s.change > own.change);
    const seen again = look(second, file);
    BOOST_TEST(again.change > s.change);
    BOOST_TEST(again.size == 1234u);
    // What it has sent meanwhile is the server's, and no older.
    BOOST_TEST(first.write(file, "text") == nfsstat4::ok);
    says(own.change, 4);
    s = look(second, file);
    BOOST_TEST(s.size == 4u);
    BOOST_TEST(s.change > again.change);
    BOOST_TEST(stats().recalls.value() == 0u);
    BOOST_TEST(count(kind::getattr, outcome::ok) == 5u);
    // What has nothing to do with it is not asked for.
    BOOST_TEST(look(second, file, {attribute::mode, attribute::owner}).status == nfsstat4::ok);
    BOOST_TEST(count(kind::getattr, outcome::ok) == 5u);
}

// RFC 8881 10.4.3: a size that is not the server's is a change that the holder keeps, whatever change attribute it
// says.
BOOST_FIXTURE_TEST_CASE(a_holder_that_says_another_size_has_changed_the_file, fixture)
{
    begin();
    const auto file = delegated("f");
    const seen own = look(first, file);
    says(own.change, 1234);
    seen last = own;
    for (int i = 0; i < 2; ++i) {
        const seen s = look(second, file);
        BOOST_TEST(s.size == 1234u);
        BOOST_TEST(s.change > last.change);
        last = s;
    }
    BOOST_TEST(first.write(file, "text") == nfsstat4::ok);
    says(own.change, 4);
    const seen s = look(second, file);
    BOOST_TEST(s.size == 4u);
    BOOST_TEST(s.change > last.change);
    const auto size3 = [&] {
        const auto res =
            call3<v3::GETATTR3res>(v3::procedure::getattr, v3::GETATTR3args{to_fh3(file.handle)});
        return res.obj_attributes.size;
    };
    BOOST_TEST(size3() == 4u);
    says(own.change, 77);
    BOOST_TEST(size3() == 77u);
    BOOST_TEST(stats().recalls.value() == 0u);
}

// Whatever the holder keeps, sends and gives back: others see its size, and a change attribute that is another one where the file is.
BOOST_FIXTURE_TEST_CASE(no_two_states_of_a_file_look_alike, fixture)
{
    begin();
    int asked = 0;
    for (std::uint32_t seed = 1; seed <= 20; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed)
        {
            std::minstd_rand random(seed);
            client4::opened file = delegated("f" + std::to_string(seed));
            changeid4 granted = look(first, file).change;
            std::uint64_t size = 0, version = 0, seen_version = 0;
            bool dirty = false;
            seen last = look(second, file);
            for (int step = 0; step < 40; ++step) {
                switch (random() % 5) {
                case 0: // it changes the file, and keeps that
                    size = random() % 1000 + 1;
                    ++version;
                    dirty = true;
                    break;
                case 1: // and sends it
                    if (dirty) {
                        SETATTR4args set;
                        attributes length;
                        length.present = {attribute::size};
                        length.size = size;
                        const encoded values(length);
                        set.stateid = file.id;
                        set.obj_attributes = values.raw;
                        BOOST_TEST(first.call(PUTFH4args{client4::handle_of(file)}, set).status() ==
                                   nfsstat4::ok);
                        dirty = false;
                    }
                    break;
                case 2: // and lets go
                    if (!dirty && random() % 4 == 0) {
                        BOOST_TEST(give_back(first, file) == nfsstat4::ok);
                        BOOST_TEST(first.call(PUTFH4args{client4::handle_of(file)}, CLOSE4args{0, file.id})
                                       .status() == nfsstat4::ok);
                        file = delegated("f" + std::to_string(seed));
                        granted = look(first, file).change;
                    }
                    break;
                default:
                    says(dirty ? granted + 1 : granted, size);
                    const seen now = look(second, file);
                    ++asked;
                    BOOST_TEST(now.status == nfsstat4::ok);
                    BOOST_TEST(now.size == size);
                    BOOST_TEST(now.change >= last.change);
                    if (version != seen_version)
                        BOOST_TEST(now.change > last.change);
                    last = now;
                    seen_version = version;
                }
            }
            BOOST_TEST(give_back(first, file) == nfsstat4::ok);
        }
    }
    BOOST_TEST(asked > 200);
    BOOST_TEST(stats().recalls.value() == 0u);
}

// Else whoever keeps that size would think that it is as new as what came behind it.
BOOST_FIXTURE_TEST_CASE(what_a_holder_says_is_no_newer_than_its_question, fixture)
{
    begin();
    const auto file = delegated("f");
    const seen own = look(first, file);
    first_way->says = nfsstat4::delay;
    const auto c = nfs4_fixture::begin(second.sequence(1), PUTFH4args{client4::handle_of(file)},
                                       GETATTR4args{{attribute::change, attribute::size}});
    BOOST_TEST(first.write(file, "text") == nfsstat4::ok);
    says(own.change + 1, 2);
    first_way->says = nfsstat4::ok;
    pass(50ms);
    BOOST_TEST_REQUIRE(c->is_done);
    answer4 out = answer_of(*c);
    out.good<SEQUENCE4res>();
    out.good<PUTFH4res>();
    attributes values;
    BOOST_TEST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
    BOOST_TEST(values.size == 2u);
    BOOST_TEST(values.change == own.change + 1);
    BOOST_TEST(look(second, file).change > values.change);
}

// Its size is not the one of before, but it keeps nothing.
BOOST_FIXTURE_TEST_CASE(what_a_holder_sends_while_it_is_asked_is_the_server_s, fixture)
{
    begin();
    const auto file = delegated("f");
    const seen own = look(first, file);
    first_way->says = nfsstat4::delay;
    const auto c = nfs4_fixture::begin(second.sequence(1), PUTFH4args{client4::handle_of(file)},
                                       GETATTR4args{{attribute::change, attribute::size}});
    BOOST_TEST(first.write(file, "text") == nfsstat4::ok);
    says(own.change, 4);
    first_way->says = nfsstat4::ok;
    pass(50ms);
    const seen told = told_in(*c);
    BOOST_TEST(told.size == 4u);
    BOOST_TEST(told.change == look(first, file).change);
    BOOST_TEST(look(second, file).change == told.change);
}

// A holder may say the size of before its WRITE, whose answer it does not have yet.
BOOST_FIXTURE_TEST_CASE(a_holder_that_was_wrong_has_no_change_attribute_go_back, fixture)
{
    begin();
    const auto file = delegated("f");
    const seen own = look(first, file);
    BOOST_TEST(first.write(file, "text") == nfsstat4::ok);
    const seen wrong = look(second, file);
    BOOST_TEST(wrong.size == own.size);
    says(own.change, 4);
    const seen right = look(second, file);
    BOOST_TEST(right.size == 4u);
    BOOST_TEST(right.change > wrong.change);
    BOOST_TEST(look(second, file).change == right.change);
}

BOOST_FIXTURE_TEST_CASE(version_3_sees_what_a_holder_says, fixture)
{
    begin();
    const auto file = delegated("f");
    const auto getattr3 = [&] {
        return call3<v3::GETATTR3res>(v3::procedure::getattr, v3::GETATTR3args{to_fh3(file.handle)});
    };
    const v3::GETATTR3res before = getattr3();
    says(first_way->values.change + 1, 77);
    const v3::GETATTR3res after = getattr3();
    BOOST_TEST(after.status == v3::nfsstat3::ok);
    BOOST_TEST(after.obj_attributes.size == 77u);
    BOOST_TEST((after.obj_attributes.mtime.seconds > before.obj_attributes.mtime.seconds ||
                (after.obj_attributes.mtime.seconds == before.obj_attributes.mtime.seconds &&
                 after.obj_attributes.mtime.nseconds > before.obj_attributes.mtime.nseconds)));
    BOOST_TEST(stats().recalls.value() == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_holder_that_does_not_answer_is_recalled, fixture)
{
    begin();
    const auto file = delegated("silent");
    first_way->silent = true;
    const auto c = nfs4_fixture::begin(second.sequence(), PUTFH4args{client4::handle_of(file)},
                                       GETATTR4args{{attribute::size}});
    BOOST_TEST(heard(first_way) == operations{nfs_cb_opnum4::getattr}, boost::test_tools::per_element());
    pass(900ms);
    BOOST_TEST(!c->is_done);
    BOOST_TEST(stats().recalls.value() == 0u);
    pass(200ms);
    BOOST_TEST(stats().recalls.value() == 1u);
    BOOST_TEST(!c->is_done);
    BOOST_TEST(give_back(first, file) == nfsstat4::ok);
    turns();
    BOOST_TEST_REQUIRE(c->is_done);
    BOOST_TEST(answer_of(*c).status() == nfsstat4::ok);
    pass(20s, 100ms);
    BOOST_TEST(count(kind::getattr, outcome::unanswered) == 1u);
}

// Answers of a client that keeps them and does not compare what it is asked.
BOOST_FIXTURE_TEST_CASE(an_answer_that_was_kept_is_not_taken_for_another_one, fixture)
{
    begin();
    const auto file = delegated("f"), other = delegated("g");
    first_way->replays = true;
    says(first_way->values.change + 1, 111);
    first_way->loses_answers = 1;
    const auto c = nfs4_fixture::begin(second.sequence(), PUTFH4args{client4::handle_of(file)},
                                       GETATTR4args{{attribute::size}});
    pass(900ms);
    says(first_way->values.change + 1, 222);
    const auto d = nfs4_fixture::begin(second.sequence(1), PUTFH4args{client4::handle_of(other)},
                                       GETATTR4args{{attribute::size}});
    // The first question holds up neither the second one nor the recall beyond its time.
    pass(200ms);
    BOOST_TEST(count(kind::getattr, outcome::unanswered) == 1u);
    BOOST_TEST(count(kind::recall, outcome::ok) == 1u);
    BOOST_TEST_REQUIRE(d->is_done);
    answer4 out = answer_of(*d);
    out.good<SEQUENCE4res>();
    out.good<PUTFH4res>();
    attributes values;
    BOOST_TEST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
    BOOST_TEST(values.size == 222u);
    BOOST_TEST((flags(first) & seq4_status::backchannel_fault) == 0u);
    BOOST_TEST(give_back(first, file) == nfsstat4::ok);
    turns();
    BOOST_TEST(c->is_done);
}

BOOST_FIXTURE_TEST_CASE(an_answer_without_what_was_asked_is_none, fixture)
{
    begin();
    const auto file = delegated("f");
    first_way->says_sequence_only = true;
    const auto c = nfs4_fixture::begin(second.sequence(), PUTFH4args{client4::handle_of(file)},
                                       GETATTR4args{{attribute::size}});
    BOOST_TEST(!c->is_done);
    BOOST_TEST(stats().recalls.value() == 1u);
    BOOST_TEST(count(kind::getattr, outcome::failed) == 1u);
    BOOST_TEST(count(kind::recall, outcome::ok) == 0u);
    first_way->says_sequence_only = false;
    pass(100ms);
    BOOST_TEST(count(kind::recall, outcome::ok) == 1u);
    BOOST_TEST(give_back(first, file) == nfsstat4::ok);
    turns();
    BOOST_TEST(c->is_done);
}

BOOST_FIXTURE_TEST_CASE(who_gives_back_is_not_asked_any_more, fixture)
{
    begin();
    const auto file = delegated("f");
    first_way->says = nfsstat4::badhandle;
    const auto c = nfs4_fixture::begin(second.sequence(), PUTFH4args{client4::handle_of(file)},
                                       GETATTR4args{{attribute::size}});
    BOOST_TEST(!c->is_done);
    BOOST_TEST(give_back(first, file) == nfsstat4::ok);
    pass(50ms);
    BOOST_TEST_REQUIRE(c->is_done);
    BOOST_TEST(answer_of(*c).status() == nfsstat4::ok);
    BOOST_TEST(stats().recalls.value() == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_holder_that_can_t_answer_is_recalled_at_once, fixture)
{
    begin();
    const auto file = delegated("f");
    first_way->says = nfsstat4::notsupp;
    const auto c = nfs4_fixture::begin(second.sequence(), PUTFH4args{client4::handle_of(file)},
                                       GETATTR4args{{attribute::size}});
    BOOST_TEST(stats().recalls.value() == 1u);
    BOOST_TEST(count(kind::getattr, outcome::failed) == 1u);
    first_way->says = nfsstat4::ok;
    BOOST_TEST(give_back(first, file) == nfsstat4::ok);
    turns();
    BOOST_TEST_REQUIRE(c->is_done);
    // One that says too little has not answered either.
    const auto other = delegated("g");
    first_way->values.present.reset(attribute::size);
    const auto d = nfs4_fixture::begin(second.sequence(), PUTFH4args{client4::handle_of(other)},
                                       GETATTR4args{{attribute::size}});
    BOOST_TEST(stats().recalls.value() == 2u);
    // Once it is recalled it is not asked any more.
    const auto e = nfs4_fixture::begin(second.sequence(1), PUTFH4args{client4::handle_of(other)},
                                       GETATTR4args{{attribute::size}});
    BOOST_TEST(count(kind::getattr, outcome::failed) == 2u);
    BOOST_TEST(give_back(first, other) == nfsstat4::ok);
    turns();
    BOOST_TEST(d->is_done);
    BOOST_TEST(e->is_done);
}

BOOST_FIXTURE_TEST_CASE(who_waited_for_a_recall_sees_what_the_holder_wrote_meanwhile, fixture)
{
    begin();
    const auto file = delegated("f");
    first_way->says = nfsstat4::notsupp;
    const auto c = nfs4_fixture::begin(second.sequence(), PUTFH4args{client4::handle_of(file)},
                                       GETATTR4args{{attribute::change, attribute::size}});
    BOOST_TEST(stats().recalls.value() == 1u);
    first_way->says = nfsstat4::ok;
    BOOST_TEST(first.write(file, "text") == nfsstat4::ok);
    BOOST_TEST(give_back(first, file) == nfsstat4::ok);
    turns();
    const seen told = told_in(*c);
    BOOST_TEST(told.size == 4u);
    BOOST_TEST(told.change == look(first, file).change);
}

BOOST_FIXTURE_TEST_CASE(who_asks_at_once_hears_one_answer, fixture)
{
    begin();
    const auto file = delegated("f");
    first_way->says = nfsstat4::delay;
    std::vector<std::shared_ptr<memory_call>> calls;
    for (std::uint32_t slot = 0; slot < 4; ++slot)
        calls.push_back(nfs4_fixture::begin(second.sequence(slot), PUTFH4args{client4::handle_of(file)},
                                            GETATTR4args{{attribute::size}}));
    BOOST_TEST(first_way->calls.size() == 1u);
    says(1, 55);
    first_way->says = nfsstat4::ok;
    pass(50ms);
    for (const auto& c : calls) {
        BOOST_TEST_REQUIRE(c->is_done);
        BOOST_TEST(answer_of(*c).status() == nfsstat4::ok);
    }
    BOOST_TEST(first_way->calls.size() == 2u);
    BOOST_TEST(count(kind::getattr, outcome::later) == 1u);
    BOOST_TEST(count(kind::getattr, outcome::ok) == 1u);
    BOOST_TEST(stats().recalls.value() == 0u);
}

// A file that was cut, or made exclusively, has the change attribute of afterwards.
BOOST_FIXTURE_TEST_CASE(what_an_open_changes_is_no_news_of_the_holder, fixture)
{
    begin();
    const auto is_unmodified = [&](const client4::opened& file) {
        BOOST_TEST_REQUIRE((file.res.delegation.delegation_type == open_delegation_type4::write));
        const seen own = look(first, file);
        says(own.change, own.size);
        const seen s = look(second, file);
        BOOST_TEST(s.change == own.change);
        BOOST_TEST(s.size == own.size);
        BOOST_TEST(give_back(first, file) == nfsstat4::ok);
    };
    is_unmodified(first.open(first.creating("exclusive", createmode4::exclusive4_1)));
    const auto made = second.open(plain(second.creating("cut")));
    BOOST_TEST(second.write(made, "text") == nfsstat4::ok);
    BOOST_TEST(second.call(PUTFH4args{client4::handle_of(made)}, CLOSE4args{0, made.id}).status() ==
               nfsstat4::ok);
    OPEN4args cutting = first.creating("cut");
    attributes size;
    size.present = {attribute::size};
    size.size = 0;
    const encoded none(size);
    cutting.openhow.attrs = none.raw;
    is_unmodified(first.open(cutting));
}

// What others changed while the open was under way the holder has seen.
BOOST_FIXTURE_TEST_CASE(what_changes_before_a_delegation_is_no_news_of_its_holder, fixture)
{
    slow_files slow(*files);
    options[0].backend = &slow;
    begin();
    const auto made = second.open(plain(second.creating("f")));
    slow.held = true;
    const auto c =
        nfs4_fixture::begin(first.sequence(), PUTROOTFH4args(), LOOKUP4args{"export"}, first.opening("f"));
    turns();
    BOOST_TEST(!c->is_done);
    BOOST_TEST(second.write(made, "text") == nfsstat4::ok);
    BOOST_TEST(second.call(PUTFH4args{client4::handle_of(made)}, CLOSE4args{0, made.id}).status() ==
               nfsstat4::ok);
    slow.held = false;
    slow.go.set();
    turns();
    BOOST_TEST_REQUIRE(c->is_done);
    BOOST_TEST_REQUIRE(stats().write_delegations.value() == 1);
    const seen own = look(first, made);
    says(own.change, own.size);
    const seen s = look(second, made);
    BOOST_TEST(s.change == own.change);
    BOOST_TEST(s.size == 4u);
}

BOOST_FIXTURE_TEST_CASE(clients_are_asked_to_give_back_before_none_is_left, fixture)
{
    state_limits.delegations = 8;
    begin();
    std::vector<client4::opened> files;
    const auto grab = [&](const std::string& name) {
        files.push_back(first.open(first.creating(name)));
        return files.back().res.delegation.delegation_type == open_delegation_type4::write;
    };
    for (int i = 0; i < 7; ++i)
        BOOST_TEST(grab("f" + std::to_string(i)));
    turns();
    BOOST_TEST(first_way->calls.empty());
    BOOST_TEST(grab("last"));
    turns();
    BOOST_TEST(heard(first_way) == operations{nfs_cb_opnum4::recall_any}, boost::test_tools::per_element());
    BOOST_TEST(first_way->calls[0].keep == 6u);
    // Then none is given, and nobody is pressed.
    BOOST_TEST(!grab("more"));
    turns();
    BOOST_TEST(first_way->calls.size() == 1u);
    pass(10s, 100ms);
    BOOST_TEST(!grab("even more"));
    turns();
    BOOST_TEST(first_way->calls.size() == 2u);
    BOOST_TEST(give_back(first, files[0]) == nfsstat4::ok);
    BOOST_TEST(grab("again"));
    BOOST_TEST(stats().recalls.value() == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
