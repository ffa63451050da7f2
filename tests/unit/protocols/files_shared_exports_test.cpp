// SPDX-License-Identifier: Apache-2.0
// Exports of one tree: they share what is open, locked and delegated, and each state belongs to the export by which its
// client got it.
#include "files_fixture.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

BOOST_AUTO_TEST_SUITE(files_shared_exports_test)

using namespace verbena;
using namespace verbena::files;
using namespace verbena::test;

namespace {

using enum share;

/// Where bytes are locked for the back end alone, which has no locks of its own here.
struct exports_fixture : files_fixture {
    static constexpr std::uint32_t one = 11, other = 22;

    exports_fixture()
    {
        a = client("a");
        b = client("b");
    }
    static exported_file file(std::uint32_t via, std::string_view name = "f")
    {
        return {file_named(name), via};
    }
    result<opened> open_by(std::uint32_t via, client_id c, share access, share deny = none,
                           delegation_want want = delegation_want::none)
    {
        open_request r = request(c, "o", "f", access, deny, want);
        r.file = file(via);
        return table->open(r);
    }
    result<stateid> lock_by(std::uint32_t via, client_id c, const stateid& open, std::string_view owner,
                            bool wait = false)
    {
        lock_request r = lock_of(c, open, "f");
        r.file = file(via);
        r.owner = owner_named(owner);
        r.wait = wait;
        return table->lock(r);
    }
    stateid delegation_by(std::uint32_t via, client_id c, share access = both)
    {
        const auto made = open_by(via, c, access, none, delegation_want::any);
        BOOST_REQUIRE((made && made->delegation));
        BOOST_REQUIRE(table->close(c, made->id, file(via)));
        return made->delegation->id;
    }
    bool is_gone() const { return table->stats().files.value() == 0; }

    client_id a = 0, b = 0;
};

} // namespace

// What is against it is found by either name.
BOOST_FIXTURE_TEST_CASE(shares_and_locks_count_for_all_exports, exports_fixture)
{
    const auto denies = open_by(one, a, both, write);
    BOOST_REQUIRE(denies);
    BOOST_TEST(is(open_by(other, b, write), errc::share_denied));
    BOOST_TEST(is(open_by(other, a, write), errc::share_denied)); // as by another owner
    BOOST_TEST(is(table->check(demand(operation::write, file(other))), errc::locked));
    const auto reads = open_by(other, b, read);
    BOOST_REQUIRE(reads);
    BOOST_REQUIRE(lock_by(one, a, denies->id, "l"));
    lock_request r = lock_of(b, reads->id, "f");
    r.file = file(other);
    r.type = lock_type::read;
    lock_holder holder;
    BOOST_TEST(is(table->lock(r, &holder), errc::denied));
    BOOST_TEST(holder.client == a);
    BOOST_REQUIRE(table->close(a, denies->id, file(one)));
    BOOST_REQUIRE(table->close(b, reads->id, file(other)));
    BOOST_TEST(is_gone());
}

// The two have different file systems for the client, so they are two opens, though its owner has one name.
BOOST_FIXTURE_TEST_CASE(an_owner_has_an_open_by_each_export, exports_fixture)
{
    const auto reads = open_by(one, a, read);
    const auto writes = open_by(other, a, write);
    BOOST_REQUIRE((reads && writes));
    BOOST_TEST((reads->id.other != writes->id.other));
    BOOST_TEST(is(table->check_io(a, reads->id, file(one), operation::write), errc::open_mode));
    BOOST_TEST(table->check_io(a, writes->id, file(other), operation::write).has_value());
    BOOST_REQUIRE(table->close(a, reads->id, file(one)));
    BOOST_TEST(table->check_io(a, writes->id, file(other), operation::write).has_value());
    BOOST_REQUIRE(table->close(a, writes->id, file(other)));
    BOOST_TEST(is_gone());
}

BOOST_FIXTURE_TEST_CASE(a_stateid_is_good_by_its_own_export_alone, exports_fixture)
{
    const auto open = open_by(one, a, both);
    BOOST_REQUIRE(open);
    const auto locked = lock_by(one, a, open->id, "l");
    BOOST_REQUIRE(locked);
    for (const operation op : {operation::read, operation::write, operation::set_size}) {
        BOOST_TEST(is(table->check_io(a, open->id, file(other), op), errc::bad_stateid));
        BOOST_TEST(is(table->check_io(a, *locked, file(other), op), errc::bad_stateid));
        BOOST_TEST(is(table->check_io(a, open->id, file(0), op), errc::bad_stateid));
        BOOST_TEST(table->check_io(a, open->id, file(one), op).has_value());
    }
    BOOST_TEST(is(lock_by(other, a, open->id, "m"), errc::bad_stateid));
    BOOST_TEST(is(table->unlock(a, *locked, file(other), {0, 9}), errc::bad_stateid));
    BOOST_TEST(is(table->downgrade(a, open->id, file(other), both, none), errc::bad_stateid));
    BOOST_TEST(is(table->renumber(a, open->id, file(other)), errc::bad_stateid));
    BOOST_TEST(is(table->close(a, open->id, file(other)), errc::bad_stateid));
    BOOST_REQUIRE(table->close(a, open->id, file(one)));

    const stateid held = delegation_by(one, a);
    BOOST_TEST(is(table->check_io(a, held, file(other), operation::read), errc::bad_stateid));
    BOOST_TEST(is(table->return_delegation(a, held, file(other)), errc::bad_stateid));
    open_request r = request(a, "o", "f", read);
    r.file = file(other);
    r.claim = open_claim::under_delegation;
    r.delegation = held;
    BOOST_TEST(is(table->open(r), errc::bad_stateid));
    BOOST_REQUIRE(table->return_delegation(a, held, file(one)));
    BOOST_TEST(is_gone());
}

// Its client caches the file a second time, and does not know that.
BOOST_FIXTURE_TEST_CASE(ones_own_delegation_by_another_export_is_in_the_way, exports_fixture)
{
    const stateid held = delegation_by(one, a);
    table->note_change(held, 5);
    BOOST_TEST(table->check(demand(operation::write, file(one), a)).has_value());
    BOOST_TEST(!table->writer_of(file(one), a));
    const auto asked = table->writer_of(file(other), a);
    BOOST_REQUIRE(asked);
    BOOST_TEST((asked->client == a && asked->via == one));
    BOOST_TEST(is(table->check(demand(operation::write, file(other), a)), errc::in_way));
    BOOST_TEST(is(open_by(other, a, read), errc::in_way));
    BOOST_TEST(is(make_way(demand(operation::write, file(other), a), 0s), errc::busy));
    BOOST_TEST_REQUIRE(handler.recalls.size() == 1u);
    BOOST_TEST((handler.recalls[0].id.other == held.other && handler.recalls[0].via == one));
    BOOST_REQUIRE(table->return_delegation(a, held, file(one)));
    BOOST_TEST(open_by(other, a, read).has_value());
}

BOOST_FIXTURE_TEST_CASE(none_is_granted_beside_ones_own_open_by_another_export, exports_fixture)
{
    const auto writes = open_by(other, a, write);
    BOOST_REQUIRE(writes);
    const auto reads = open_by(one, a, read, none, delegation_want::any);
    BOOST_REQUIRE(reads);
    BOOST_TEST(!reads->delegation);
    BOOST_TEST((reads->why == no_delegation::contention));
    BOOST_REQUIRE(table->close(a, reads->id, file(one)));
    BOOST_REQUIRE(table->close(a, writes->id, file(other)));
    // Each cache of one client may have one to read.
    const stateid mine = delegation_by(one, a, read);
    const stateid as_well = delegation_by(other, a, read);
    BOOST_TEST((mine.other != as_well.other));
    BOOST_TEST(table->stats().read_delegations.value() == 2);
}

// An open that is begun counts as one that is there.
BOOST_FIXTURE_TEST_CASE(none_is_granted_beside_ones_own_open_that_is_begun_by_another_export, exports_fixture)
{
    open_request r = request(a, "p", "f", write);
    r.file = file(other);
    pending_open begun;
    BOOST_REQUIRE(table->begin_open(r, begun));
    const auto reads = open_by(one, a, read, none, delegation_want::any);
    BOOST_REQUIRE(reads);
    BOOST_TEST(!reads->delegation);
}

BOOST_FIXTURE_TEST_CASE(a_waiter_hears_by_its_own_export, exports_fixture)
{
    std::vector<std::uint32_t> heard;
    struct listening final : state_handler {
        explicit listening(std::vector<std::uint32_t>& to) : by(to) {}
        void recall(const recall_notice&) noexcept override {}
        void recall_any(client_id, std::size_t) noexcept override {}
        void lock_available(const lock_notice& n) noexcept override { by.push_back(n.via); }
        time_point last_heard(client_id) noexcept override { return time_point::min(); }
        std::vector<std::uint32_t>& by;
    } listens(heard);
    table.reset();
    book.reset();
    book.emplace(*commons, place.here, *store, listens, options());
    table = std::make_unique<state_table>(*commons, *book, 0, place.here, listens);
    a = client("a");
    b = client("b");
    const auto mine = open_by(one, a, both);
    const auto theirs = open_by(other, b, both);
    const auto as_well = open_by(one, b, both);
    BOOST_REQUIRE((mine && theirs && as_well));
    const auto locked = lock_by(one, a, mine->id, "l");
    BOOST_REQUIRE(locked);
    BOOST_TEST(is(lock_by(other, b, theirs->id, "l", true), errc::denied));
    // What its client closes by another export does not end it.
    BOOST_REQUIRE(table->close(b, as_well->id, file(one)));
    BOOST_TEST(table->stats().lock_waiters.value() == 1);
    BOOST_REQUIRE(table->unlock(a, *locked, file(one), {0, 9}));
    BOOST_TEST((heard == std::vector<std::uint32_t>{other}));
    // And what it has open by another export does not keep it.
    const auto again = open_by(one, b, read);
    BOOST_REQUIRE(again);
    BOOST_REQUIRE(table->close(b, theirs->id, file(other)));
    BOOST_TEST(table->stats().lock_waiters.value() == 0);
    table.reset(); // before its handler
}

// As for a process that has the file by two mounts of this host.
BOOST_FIXTURE_TEST_CASE(an_owner_of_locks_is_one_by_all_exports, exports_fixture)
{
    const auto first = open_by(one, a, both);
    const auto second = open_by(other, a, both);
    BOOST_REQUIRE((first && second));
    BOOST_REQUIRE(lock_by(one, a, first->id, "l"));
    const auto moved = lock_by(other, a, second->id, "l");
    BOOST_REQUIRE(moved);
    BOOST_TEST(table->stats().locks.value() == 1);
    BOOST_TEST(is(lock_by(one, a, first->id, "m"), errc::denied));
    BOOST_REQUIRE(table->unlock(a, *moved, file(other), {0, 9}));
    BOOST_TEST(lock_by(one, a, first->id, "m").has_value());
}

BOOST_FIXTURE_TEST_CASE(what_is_told_of_a_state_names_its_export, exports_fixture)
{
    const auto open = open_by(one, a, read);
    const auto as_well = open_by(other, a, read);
    BOOST_REQUIRE((open && as_well));
    const auto holder = table->holder_of(as_well->id);
    BOOST_REQUIRE(holder);
    BOOST_TEST((holder->file.via == other && holder->file.key == file_named("f")));
    const auto all = table->files_of(a, 10);
    BOOST_REQUIRE(all);
    BOOST_TEST_REQUIRE(all->size() == 2u);
    BOOST_TEST((all->front().via == one && all->back().via == other));
}

// A host is one party, by whichever export it says the file.
BOOST_FIXTURE_TEST_CASE(a_host_unlocks_by_any_export, exports_fixture)
{
    const auto host = book->add_host("host", 0, false);
    BOOST_REQUIRE(host);
    owner_lock r;
    r.client = *host;
    r.file = file(one);
    r.owner = owner_named("svid");
    r.bytes = {0, 9};
    r.type = lock_type::write;
    BOOST_REQUIRE(table->lock_by_owner(r));
    BOOST_REQUIRE(table->unlock_by_owner(*host, file_named("f"), owner_named("svid"), {0, 9}));
    BOOST_TEST(table->stats().locks.value() == 0);
    BOOST_TEST(is_gone());
}

// --- An export that goes

namespace {

state_table::export_losses drop(state_table& table, std::uint32_t via,
                                state_table::export_state what = state_table::export_state::all)
{
    state_table::export_losses lost;
    std::size_t place = 0;
    while (table.drop_export(via, what, place, lost)) {
    }
    return lost;
}

} // namespace

BOOST_FIXTURE_TEST_CASE(what_clients_have_by_an_export_goes_with_it_alone, exports_fixture)
{
    const auto mine = open_by(one, a, both, write);
    const auto theirs = open_by(other, b, read);
    BOOST_REQUIRE((mine && theirs));
    BOOST_REQUIRE(lock_by(one, a, mine->id, "l"));
    open_request r = request(b, "d", "g", both, none, delegation_want::any);
    r.file = file(one, "g");
    const auto delegated = table->open(r);
    BOOST_REQUIRE((delegated && delegated->delegation));

    const auto lost = drop(*table, one);
    BOOST_TEST(lost.opens == 2u);
    BOOST_TEST(lost.locks == 1u);
    BOOST_TEST(lost.delegations == 1u);
    // Its client is told, and nobody waits for its answer.
    BOOST_TEST_REQUIRE(handler.recalls.size() == 1u);
    BOOST_TEST((handler.recalls[0].client == b && handler.recalls[0].via == one));
    BOOST_TEST(is(table->check_io(a, mine->id, file(one), operation::read), errc::admin_revoked));
    BOOST_TEST(is(table->check_io(b, mine->id, file(one), operation::read), errc::bad_stateid));
    BOOST_TEST(is(table->test_stateid(b, delegated->delegation->id), errc::admin_revoked));
    BOOST_TEST(table->check_io(b, theirs->id, file(other), operation::read).has_value());
    // What it denied and locked is free.
    const auto again = open_by(other, b, both);
    BOOST_REQUIRE(again);
    BOOST_TEST(lock_by(other, b, again->id, "m").has_value());
    BOOST_TEST(drop(*table, one).opens == 0u);
    BOOST_TEST(drop(*table, other).opens == 1u); // its owner has one
    BOOST_TEST(is_gone());
}

BOOST_FIXTURE_TEST_CASE(who_waits_for_a_lock_by_an_export_that_goes_waits_no_more, exports_fixture)
{
    const auto mine = open_by(other, a, both);
    const auto theirs = open_by(one, b, both);
    BOOST_REQUIRE((mine && theirs));
    BOOST_REQUIRE(lock_by(other, a, mine->id, "l"));
    BOOST_TEST(is(lock_by(one, b, theirs->id, "m", true), errc::denied));
    BOOST_TEST(table->stats().lock_waiters.value() == 1);
    (void)drop(*table, one);
    BOOST_TEST(table->stats().lock_waiters.value() == 0);
    BOOST_REQUIRE(table->close(a, mine->id, file(other)));
    BOOST_TEST(is_gone());
}

// More than one go takes, of several clients' files.
BOOST_FIXTURE_TEST_CASE(much_is_taken_in_parts, exports_fixture)
{
    constexpr std::size_t files = 1000;
    for (std::size_t i = 0; i < files; ++i) {
        open_request r = request(i % 2 == 0 ? a : b, "o", "f", read);
        r.file = file(one, "f" + std::to_string(i));
        const auto made = table->open(r);
        BOOST_REQUIRE(made);
        lock_request l = lock_of(r.client, made->id, "f");
        l.file = r.file;
        l.type = lock_type::read;
        BOOST_REQUIRE(table->lock(l));
    }
    state_table::export_losses lost;
    std::size_t place = 0, parts = 1;
    for (; table->drop_export(one, state_table::export_state::all, place, lost); ++parts)
        BOOST_TEST(lost.opens + lost.locks <= parts * 256);
    BOOST_TEST(parts > 4u);
    BOOST_TEST(lost.opens == files);
    BOOST_TEST(lost.locks == files);
    BOOST_TEST(is_gone());
}

// However much goes, no more than so many stateids of it are kept in mind, and each that is can be freed.
BOOST_FIXTURE_TEST_CASE(what_went_with_an_export_is_kept_in_mind_until_it_is_freed, exports_fixture)
{
    constexpr std::size_t files = 5000, kept = 4096;
    std::vector<std::pair<client_id, stateid>> gone;
    for (std::size_t i = 0; i < files; ++i) {
        open_request r = request(i % 2 == 0 ? a : b, "o", "f", read);
        r.file = file(one, "f" + std::to_string(i));
        const auto made = table->open(r);
        BOOST_TEST_REQUIRE(made.has_value());
        gone.emplace_back(r.client, made->id);
    }
    BOOST_TEST(!book->has_lost_by_admin(a));
    BOOST_TEST(drop(*table, one).opens == files);
    std::size_t known = 0;
    for (const auto& [who, id] : gone) {
        BOOST_TEST(is(run(table->free_stateid(who == a ? b : a, id)), errc::bad_stateid));
        if (is(table->test_stateid(who, id), errc::admin_revoked)) {
            ++known;
            BOOST_TEST(book->has_lost_by_admin(who));
            BOOST_TEST(run(table->free_stateid(who, id)).has_value());
        }
        BOOST_TEST(is(table->test_stateid(who, id), errc::bad_stateid));
    }
    BOOST_TEST(known == kept);
    BOOST_TEST(!book->has_lost_by_admin(a));
    BOOST_TEST(!book->has_lost_by_admin(b));
}

BOOST_FIXTURE_TEST_CASE(files_of_a_tree_are_found_until_all_is_gone, exports_fixture)
{
    const auto found = [this](std::uint32_t space) {
        state_table::file_search at;
        std::optional<bool> has;
        while (!has)
            has = table->has_files_in(space, at);
        return *has;
    };
    BOOST_TEST(!found(0));
    const auto mine = open_by(one, a, both);
    BOOST_REQUIRE(mine);
    BOOST_TEST(found(0));
    BOOST_TEST(!found(7));
    (void)drop(*table, one);
    BOOST_TEST(!found(0));
}

BOOST_AUTO_TEST_SUITE_END()
