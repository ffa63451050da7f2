// SPDX-License-Identifier: Apache-2.0
// Locks that our clients give up, or hear nothing of: what the server has all the same is undone, and what was locked before is as it was.
#include "nfs4_locking_clients.hpp"

BOOST_AUTO_TEST_SUITE(nfs4_client_undone_locks_test)

using namespace verbena;
using namespace verbena::test;
using fixture = locking_clients;

BOOST_FIXTURE_TEST_CASE(a_lock_whose_answer_never_came_is_undone, fixture)
{
    using fate = direct_transport::fate;
    // Under a delegation: the open stays at the server when the file is closed.
    close(*mine);
    close(*theirs);
    theirs.reset();
    holder.user.use_delegations(4);
    mine = open(holder, what, share4::access_both);
    int lost = 1;
    holder.wire.decide = [&](const sent_compound& call) {
        const bool locks = call.has(nfs_opnum4::lock);
        if ((!locks && !call.has(nfs_opnum4::locku)) || lost-- <= 0)
            return fate::arrives;
        return locks ? fate::reply_is_lost : fate::is_lost;
    };
    // Nobody knows the lock's stateid.
    BOOST_TEST((lock(*mine, 0, 9).error() == std::errc::timed_out));
    turns();
    BOOST_TEST(stats().locks.value() == 0);
    // It is known, and what was locked before is as it was.
    BOOST_TEST(lock(*mine, 5, 9, files_lock::read).has_value());
    lost = 1;
    BOOST_TEST(!lock(*mine, 0, 19).has_value());
    turns();
    BOOST_TEST(stats().locks.value() == 1);
    auto second = open(holder, what, share4::access_both);
    BOOST_TEST(lock(*second, 0, 4).has_value());
    BOOST_TEST(lock(*second, 5, 9, files_lock::read).has_value());
    BOOST_TEST(is_denied(*second, 9, 9));
    close(*second);
    // Whatever comes next asks again, if no answer came then either, and nothing is unlocked before.
    lost = 2;
    BOOST_TEST(!lock(*mine, 0, 19).has_value());
    turns();
    BOOST_TEST(stats().locks.value() == 1);
    lost = 1;
    BOOST_TEST(!unlock(*mine, 5, 9).has_value());
    BOOST_TEST(lock(*mine, 30, 39).has_value());
    BOOST_TEST(stats().locks.value() == 2);
    lost = 2;
    BOOST_TEST(!lock(*mine, 0, 19).has_value());
    turns();
    BOOST_TEST(unlock(*mine, 0, 100).has_value());
    BOOST_TEST(stats().locks.value() == 0);
    lost = 2;
    BOOST_TEST(!lock(*mine, 0, 19).has_value());
    turns();
    BOOST_TEST(stats().locks.value() == 1);
    BOOST_TEST(unlock(*mine, 0, 100).has_value()); // nothing is locked that anybody knows of
    BOOST_TEST(stats().locks.value() == 0);
    // Nothing else is sent before: it might come to be in doubt, too.
    lost = 2;
    BOOST_TEST(!lock(*mine, 0, 19).has_value());
    turns();
    lost = 1;
    BOOST_TEST(!lock(*mine, 40, 49).has_value());
    turns();
    BOOST_TEST(unlock(*mine, 0, 100).has_value());
    BOOST_TEST(stats().locks.value() == 0);
    // What is in doubt when the file is closed goes with the open.
    BOOST_TEST(holder.user.delegations() == 1u);
    lost = 1000;
    BOOST_TEST(!lock(*mine, 0, 9).has_value());
    BOOST_TEST(!run([&] { return mine->close(); }).has_value());
    mine.reset();
    turns();
    BOOST_TEST(holder.user.delegations() == 0u);
    BOOST_TEST(stats().locks.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(what_others_have_locked_or_a_restart_took_is_in_no_doubt, fixture)
{
    holder.wire.decide = [](const sent_compound& call) {
        return call.has(nfs_opnum4::lock) ? direct_transport::fate::is_lost : direct_transport::fate::arrives;
    };
    BOOST_TEST(!lock(*mine, 0, 9).has_value());
    turns();
    holder.wire.decide = nullptr;
    BOOST_TEST(lock(*theirs, 0, 9).has_value());
    holder.wire.sent.clear();
    BOOST_TEST(unlock(*mine, 0, 9).has_value());
    BOOST_TEST(unlock(*mine, 0, 9).has_value());
    BOOST_TEST(holder.wire.count(nfs_opnum4::lock) == 1u);
    BOOST_TEST(unlock(*theirs, 0, 9).has_value());
    holder.wire.decide = [](const sent_compound& call) {
        return call.has(nfs_opnum4::lock) ? direct_transport::fate::reply_is_lost
                                          : direct_transport::fate::arrives;
    };
    BOOST_TEST(!lock(*mine, 0, 9).has_value());
    turns();
    BOOST_TEST(stats().locks.value() == 1);
    restart(true);
    holder.wire.decide = nullptr;
    (void)good([&] { return holder.user.getattr(what.handle); });
    (void)good([&] { return other.user.getattr(what.handle); });
    BOOST_TEST(lock(*theirs, 0, 9).has_value());
    holder.wire.sent.clear();
    BOOST_TEST(lock(*mine, 20, 29).has_value());
    BOOST_TEST(holder.wire.count(nfs_opnum4::lock) == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_lock_that_was_given_up_in_a_session_that_is_lost_is_undone, fixture)
{
    event go;
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::lock) ? &go : nullptr;
    };
    bool refuses = true;
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::lock) && std::exchange(refuses, false))
            refuse_sequence(reply, nfsstat4::badsession);
    };
    scope gives_up(*shard);
    gives_up.spawn([&]() -> task<void> { (void)co_await mine->lock(bytes_of_it(0, 9), files_lock::write); });
    turns();
    BOOST_TEST(stats().locks.value() == 1);
    gives_up.request_stop();
    turns();
    holder.wire.holds_answer = nullptr;
    go.set();
    run([&]() -> task<void> { co_await gives_up.join(); });
    turns();
    BOOST_TEST(holder.user.session().sessions() == 2u);
    BOOST_TEST(stats().locks.value() == 0);
    BOOST_TEST(lock(*theirs, 0, 9).has_value());
    // One that was answered is in no doubt: nobody asks for it again.
    holder.wire.sent.clear();
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::lock))
            refuse_at(reply, 2, nfsstat4::delay);
    };
    scope also(*shard);
    also.spawn([&]() -> task<void> { (void)co_await mine->lock(bytes_of_it(0, 9), files_lock::write); });
    turns();
    also.request_stop();
    run([&]() -> task<void> { co_await also.join(); });
    pass(1s, 100ms);
    BOOST_TEST(holder.wire.count(nfs_opnum4::lock) == 1u);
    holder.wire.on_reply_to = nullptr;
}

namespace {

// mine->lock(0, 9) as `type`, which is given up when the server has locked it, and before the answer is here.
struct given_up {
    given_up(fixture& f, files_lock type) : f_(f), asking_(*f.shard)
    {
        f.holder.wire.holds_answer = [&](const sent_compound& call) {
            return call.has(nfs_opnum4::lock) ? &answer_ : nullptr;
        };
        asking_.spawn([&f, type]() -> task<void> { (void)co_await f.mine->lock(bytes_of_it(0, 9), type); });
        f.turns();
        asking_.request_stop();
        f.turns();
        f.holder.wire.holds_answer = nullptr;
    }
    void is_answered()
    {
        answer_.set();
        f_.run([&]() -> task<void> { co_await asking_.join(); });
        f_.turns();
    }

private:
    fixture& f_;
    event answer_;
    scope asking_;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(what_is_put_back_over_a_restart_is_as_it_was, fixture)
{
    for (const bool was_write : {true, false}) {
        const files_lock before = was_write ? files_lock::write : files_lock::read;
        BOOST_TEST(lock(*mine, 0, 9, before).has_value());
        given_up other_type(*this, was_write ? files_lock::read : files_lock::write);
        // What puts it back is under way when the server starts again.
        event go;
        holder.wire.gate = &go;
        other_type.is_answered();
        restart(true);
        holder.wire.gate = nullptr;
        go.set();
        turns();
        (void)good([&] { return other.user.getattr(what.handle); });
        pass(3s, 100ms);
        BOOST_TEST(text_of(*mine) == "text"); // nothing of it is lost
        BOOST_TEST(is_denied(*theirs, 0, 9));
        BOOST_TEST(is_denied(*theirs, 0, 9, files_lock::read) == was_write);
        BOOST_TEST(unlock(*theirs, 0, 9).has_value());
        BOOST_TEST(unlock(*mine, 0, 9).has_value());
    }
}

BOOST_FIXTURE_TEST_CASE(what_could_not_be_put_back_is_put_back_later, fixture)
{
    for (const bool was_write : {true, false}) {
        const files_lock before = was_write ? files_lock::write : files_lock::read;
        BOOST_TEST(lock(*mine, 0, 9, before).has_value());
        given_up other_type(*this, was_write ? files_lock::read : files_lock::write);
        holder.wire.decide = [](const sent_compound& call) {
            return call.has(nfs_opnum4::lock) ? direct_transport::fate::is_lost
                                              : direct_transport::fate::arrives;
        };
        other_type.is_answered();
        holder.wire.decide = nullptr;
        BOOST_TEST(text_of(*mine) == "text");
        BOOST_TEST(lock(*mine, 20, 29).has_value());
        BOOST_TEST(is_denied(*theirs, 0, 9));
        BOOST_TEST(is_denied(*theirs, 0, 9, files_lock::read) == was_write);
        BOOST_TEST(unlock(*theirs, 0, 9).has_value());
        BOOST_TEST(unlock(*mine, 0, 100).has_value());
    }
}

BOOST_FIXTURE_TEST_CASE(to_undo_a_doubt_gives_nothing_away, fixture)
{
    using fate = direct_transport::fate;
    // The server never had what is in doubt, or has undone it already.
    for (const bool was_undone : {false, true}) {
        BOOST_TEST(lock(*mine, 0, 9).has_value());
        write(*mine, was_undone ? "more" : "mine");
        BOOST_TEST(mine->uncommitted() == 4u);
        if (was_undone) {
            given_up reads(*this, files_lock::read);
            holder.wire.decide = [](const sent_compound& call) {
                return call.has(nfs_opnum4::lock) ? fate::reply_is_lost : fate::arrives;
            };
            reads.is_answered();
        } else {
            int lost = 2;
            holder.wire.decide = [&lost](const sent_compound& call) {
                return call.has(nfs_opnum4::lock) && lost-- > 0 ? fate::is_lost : fate::arrives;
            };
            BOOST_TEST(!lock(*mine, 0, 9, files_lock::read).has_value());
            turns();
        }
        holder.wire.decide = nullptr;
        scope waiting(*shard);
        bool has_it = false;
        waiting.spawn([&]() -> task<void> {
            has_it = (co_await theirs->lock(bytes_of_it(0, 9), files_lock::read, true)).has_value();
        });
        pass(10s, 100ms);
        // Whatever is locked now is so for a while before anything else is sent.
        event go;
        holder.wire.holds_answer = [&](const sent_compound& call) {
            return call.has(nfs_opnum4::lock) ? &go : nullptr;
        };
        holder.wire.sent.clear();
        scope locking(*shard);
        locking.spawn(
            [&]() -> task<void> { (void)co_await mine->lock(bytes_of_it(20, 29), files_lock::write); });
        pass(10s, 100ms);
        BOOST_TEST(holder.wire.count(nfs_opnum4::lock) == 1u);
        BOOST_TEST(holder.wire.count(nfs_lock_type4::read) == 0u);
        BOOST_TEST(!has_it);
        holder.wire.holds_answer = nullptr;
        go.set();
        run([&]() -> task<void> { co_await locking.join(); });
        BOOST_TEST(!has_it);
        BOOST_TEST(run([&] { return mine->commit(); }).has_value());
        BOOST_TEST(text_of(*mine) == (was_undone ? "more" : "mine"));
        BOOST_TEST(unlock(*mine, 0, 100).has_value());
        run([&]() -> task<void> { co_await waiting.join(); });
        BOOST_TEST(has_it);
        BOOST_TEST(unlock(*theirs, 0, 9).has_value());
    }
    // Nothing is locked for a moment that nobody wants.
    holder.wire.decide = [](const sent_compound& call) {
        return call.has(nfs_opnum4::lock) ? fate::is_lost : fate::arrives;
    };
    holder.wire.sent.clear();
    BOOST_TEST(!lock(*mine, 0, 9).has_value());
    turns();
    BOOST_TEST(holder.wire.count(nfs_opnum4::lock) == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::locku) == 1u);
    holder.wire.decide = nullptr;
    BOOST_TEST(lock(*theirs, 0, 9).has_value());
    BOOST_TEST(unlock(*theirs, 0, 9).has_value());
}

BOOST_FIXTURE_TEST_CASE(what_was_not_sent_is_in_no_doubt, fixture)
{
    (void)good([&] { return holder.user.getattr(what.handle); });
    holder.wire.sent.clear();
    holder.wire.has_no_room = true;
    BOOST_TEST((lock(*mine, 0, 9).error() == std::errc::not_enough_memory));
    turns();
    BOOST_TEST(!holder.wire.has_no_room);
    BOOST_TEST(holder.wire.count(nfs_opnum4::lock) == 0u);
    BOOST_TEST(unlock(*mine, 0, 9).has_value());
    BOOST_TEST(holder.wire.count(nfs_opnum4::lock) == 0u);
}

BOOST_FIXTURE_TEST_CASE(an_answer_that_tells_nothing_ends_no_doubt, fixture)
{
    close(*mine);
    close(*theirs);
    theirs.reset();
    holder.user.use_delegations(4);
    for (const bool is_session_lost : {false, true}) {
        mine = open(holder, what, share4::access_both);
        BOOST_TEST(holder.user.delegations() == 1u);
        int answered = 0;
        holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
            if (!call.has(nfs_opnum4::lock))
                return;
            if (is_session_lost && answered++ == 0)
                refuse_sequence(reply, nfsstat4::badsession);
            else
                refuse_at(reply, 2, nfsstat4::serverfault);
        };
        int lost = is_session_lost ? 0 : 1;
        holder.wire.decide = [&](const sent_compound& call) {
            return call.has(nfs_opnum4::lock) && lost-- > 0 ? direct_transport::fate::reply_is_lost
                                                            : direct_transport::fate::arrives;
        };
        holder.wire.sent.clear();
        BOOST_TEST(!lock(*mine, 0, 9).has_value());
        turns();
        BOOST_TEST(holder.wire.count(nfs_opnum4::lock) == (is_session_lost ? 3u : 2u));
        const auto refused = unlock(*mine, 0, 9);
        BOOST_TEST_REQUIRE(!refused);
        BOOST_TEST((refused.error().code() == make_error_code(nfsstat4::serverfault)));
        BOOST_TEST(stats().locks.value() == 1);
        BOOST_TEST(!run([&] { return mine->close(); }).has_value());
        mine.reset();
        turns();
        BOOST_TEST(holder.user.delegations() == 0u);
        BOOST_TEST(stats().locks.value() == 0);
    }
    // A refusal that the first one must have heard as well does.
    mine = open(holder, what, share4::access_both);
    holder.wire.on_reply_to = [](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::lock))
            refuse_at(reply, 2, nfsstat4::lock_notsupp);
    };
    holder.wire.decide = [lost = 1](const sent_compound& call) mutable {
        return call.has(nfs_opnum4::lock) && lost-- > 0 ? direct_transport::fate::is_lost
                                                        : direct_transport::fate::arrives;
    };
    BOOST_TEST(!lock(*mine, 0, 9).has_value());
    turns();
    BOOST_TEST(unlock(*mine, 0, 9).has_value());
    close(*mine); // our server has locked it: it goes with the open
    mine.reset();
    BOOST_TEST(holder.user.delegations() == 1u);
    holder.user.use_delegations(0);
    turns();
    BOOST_TEST(stats().locks.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(what_a_closed_file_could_not_unlock_goes_while_others_have_its_open, fixture)
{
    close(*mine);
    close(*theirs);
    for (const bool is_plain : {false, true}) {
        for (const bool is_known : {false, true}) {
            holder.user.use_delegations(4);
            mine = open(holder, what, share4::access_both);
            auto second = open(holder, what, share4::access_both);
            BOOST_TEST(holder.user.delegations() == 1u);
            if (is_plain) {
                holder.user.use_delegations(0);
                turns();
                BOOST_TEST(delegations() == 0u);
            }
            if (is_known)
                BOOST_TEST(lock(*mine, 0, 9).has_value());
            bool is_down = true;
            holder.wire.decide = [&](const sent_compound& call) {
                return is_down && call.has(nfs_opnum4::lock)    ? direct_transport::fate::reply_is_lost
                       : is_down && call.has(nfs_opnum4::locku) ? direct_transport::fate::is_lost
                                                                : direct_transport::fate::arrives;
            };
            if (!is_known)
                BOOST_TEST(!lock(*mine, 0, 9).has_value());
            BOOST_TEST(!run([&] { return mine->close(); }).has_value());
            mine.reset();
            pass(10s, 100ms);
            BOOST_TEST(holder.user.delegations() == 0u);
            BOOST_TEST(stats().locks.value() >= 1);
            is_down = false;
            pass(30s, 100ms);
            BOOST_TEST(stats().locks.value() == 0);
            theirs = open(other, what, share4::access_both);
            BOOST_TEST(lock(*theirs, 0, 9).has_value());
            close(*theirs);
            // Nobody asks any more.
            holder.wire.sent.clear();
            pass(29s, 100ms);
            BOOST_TEST(holder.wire.count(nfs_opnum4::lock) + holder.wire.count(nfs_opnum4::locku) == 0u);
            close(*second);
            holder.wire.decide = nullptr;
        }
    }
    theirs.reset();
}

BOOST_FIXTURE_TEST_CASE(after_a_restart_nobody_asks_for_what_a_closed_file_may_have_locked, fixture)
{
    close(*mine);
    close(*theirs);
    theirs.reset();
    for (const bool hears_before : {true, false}) {
        for (const bool is_known : {false, true}) {
            holder.user.use_delegations(4);
            mine = open(holder, what, share4::access_both);
            auto second = open(holder, what, share4::access_both);
            holder.user.use_delegations(0);
            turns();
            if (is_known)
                BOOST_TEST(lock(*mine, 0, 9).has_value());
            holder.wire.decide = [&](const sent_compound& call) {
                return call.has(nfs_opnum4::lock)    ? direct_transport::fate::reply_is_lost
                       : call.has(nfs_opnum4::locku) ? direct_transport::fate::is_lost
                                                     : direct_transport::fate::arrives;
            };
            if (!is_known)
                BOOST_TEST(!lock(*mine, 0, 9).has_value());
            BOOST_TEST(!run([&] { return mine->close(); }).has_value());
            mine.reset();
            turns();
            BOOST_TEST(stats().locks.value() == 1);
            restart(true);
            holder.wire.decide = nullptr;
            holder.wire.sent.clear();
            if (hears_before)
                (void)good([&] { return holder.user.getattr(what.handle); });
            pass(31s, 100ms);
            BOOST_TEST(holder.user.session().incarnation() == (hears_before ? 2u : 4u) + is_known);
            BOOST_TEST(holder.wire.count(nfs_opnum4::lock) == 0u);
            BOOST_TEST((holder.wire.count(nfs_opnum4::locku) == 0u) == (hears_before || !is_known));
            BOOST_TEST(holder.wire.count(nfs_opnum4::free_stateid) == 0u);
            BOOST_TEST(stats().locks.value() == 0);
            close(*second);
        }
    }
}

BOOST_FIXTURE_TEST_CASE(a_lock_that_fails_after_a_restart_is_in_no_doubt_for_what_was_before, fixture)
{
    for (const bool is_sent_again : {true, false}) {
        event go;
        holder.wire.gate = &go;
        scope locking(*shard);
        result<void> locked;
        locking.spawn(
            [&]() -> task<void> { locked = co_await mine->lock(bytes_of_it(0, 9), files_lock::write); });
        turns();
        restart(true);
        bool is_lost = !is_sent_again;
        holder.wire.decide = [&](const sent_compound& call) {
            return call.has(nfs_opnum4::reclaim_complete) && std::exchange(is_lost, false)
                       ? direct_transport::fate::is_lost
                       : direct_transport::fate::arrives;
        };
        bool is_up = false;
        holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
            is_up = is_up || call.has(nfs_opnum4::reclaim_complete);
            if (is_up && call.has(nfs_opnum4::lock))
                refuse_at(reply, 2, nfsstat4::serverfault);
        };
        holder.wire.sent.clear();
        holder.wire.gate = nullptr;
        go.set();
        run([&]() -> task<void> { co_await locking.join(); });
        turns();
        BOOST_TEST(!locked.has_value());
        BOOST_TEST(holder.wire.count(nfs_opnum4::exchange_id) == 1u);
        BOOST_TEST(holder.wire.count(nfs_opnum4::lock) == (is_sent_again ? 1u : 0u));
        holder.wire.on_reply_to = nullptr;
        holder.wire.decide = nullptr;
        // Nothing is to be undone first.
        BOOST_TEST(unlock(*mine, 0, 9).has_value());
        BOOST_TEST(holder.wire.count(nfs_opnum4::lock) == (is_sent_again ? 1u : 0u));
        (void)good([&] { return holder.user.getattr(what.handle); });
        (void)good([&] { return other.user.getattr(what.handle); });
        if (is_sent_again) // our server has locked it
            BOOST_TEST(lock(*mine, 0, 9).has_value());
        BOOST_TEST(unlock(*mine, 0, 9).has_value());
    }
}

BOOST_FIXTURE_TEST_CASE(what_is_lost_is_not_put_back, fixture)
{
    BOOST_TEST(lock(*mine, 0, 9, files_lock::read).has_value());
    given_up writes(*this, files_lock::write);
    holder.wire.on_reply_to = [](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::read))
            refuse_at(reply, 2, nfsstat4::admin_revoked);
    };
    BOOST_TEST(!run([&] { return mine->read(0, 10); }).has_value());
    holder.wire.on_reply_to = nullptr;
    writes.is_answered();
    BOOST_TEST(holder.wire.count(nfs_opnum4::lock) == 2u);
    BOOST_TEST((run([&] { return mine->read(0, 10); }).error() == std::errc::io_error));
    BOOST_TEST(unlock(*mine, 0, 9).has_value());
    BOOST_TEST(text_of(*mine) == "text");
    BOOST_TEST(lock(*theirs, 0, 9).has_value());
}

BOOST_FIXTURE_TEST_CASE(what_somebody_reads_meanwhile_or_is_revoked_is_lost_to_who_wrote, fixture)
{
    for (const bool is_revoked : {false, true}) {
        BOOST_TEST(lock(*mine, 0, 9).has_value());
        given_up reads(*this, files_lock::read);
        int answered = 0;
        if (is_revoked)
            holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
                if (call.has(nfs_opnum4::lock) && answered++ > 0)
                    refuse_at(reply, 2, nfsstat4::admin_revoked);
            };
        else
            BOOST_TEST(lock(*theirs, 5, 9, files_lock::read).has_value());
        holder.wire.sent.clear();
        reads.is_answered();
        holder.wire.on_reply_to = nullptr;
        BOOST_TEST(holder.wire.count(nfs_opnum4::free_stateid) == (is_revoked ? 1u : 0u));
        BOOST_TEST((run([&] { return mine->read(0, 10); }).error() == std::errc::io_error));
        BOOST_TEST(unlock(*mine, 0, 9).has_value());
        BOOST_TEST(text_of(*mine) == "text");
        if (!is_revoked) // else our server has it still
            BOOST_TEST(lock(*theirs, 0, 9).has_value());
        BOOST_TEST(unlock(*theirs, 0, 9).has_value());
    }
}

BOOST_AUTO_TEST_SUITE_END()
