// SPDX-License-Identifier: Apache-2.0
// Layouts that are in somebody's way: how they are recalled, returned and fenced, and what holes have to do with it.
#include "nfs4_layout_clients.hpp"

#include <verbena/core/task/yield.hpp>
#include <verbena/protocols/storage/forwarding_backend.hpp>

#include <utility>

#include <set>

BOOST_AUTO_TEST_SUITE(nfs4_layout_recalls_test)

using namespace verbena;
using namespace verbena::test;
using mode = layoutiomode4;

namespace {

/// Maps to read, or to write, take their time; so do they before, or after, they look.
class slow_to_map final : public storage::forwarding_backend {
public:
    explicit slow_to_map(std::unique_ptr<storage::file_backend> below)
        : forwarding_backend(std::move(below), storage::filter_bytes::are_those_below)
    {
        own = this->below().info();
    }
    const storage::filesystem_info& info() const noexcept override { return own; }
    task<result<storage::mapping>> map(const storage::request& r, const storage::handle& file,
                                       std::uint64_t offset, std::uint64_t length,
                                       storage::map_use use) override
    {
        const duration before = use != storage::map_use::read ? before_write : duration::zero();
        const duration after = use == storage::map_use::read ? after_read : duration::zero();
        if (before > 0s)
            (void)co_await sleep_for(before);
        turns.insert(turn);
        ++maps;
        auto mapping = below().map(r, file, offset, length, use);
        auto got = co_await mapping;
        if (after > 0s)
            (void)co_await sleep_for(after);
        co_return got;
    }
    task<result<storage::change>> commit(const storage::request& r, const storage::handle& file,
                                         std::uint64_t offset, std::uint32_t count) override
    {
        ++commits;
        if (fails != 0)
            co_return error::from_errno(fails, "commit");
        auto committing = below().commit(r, file, offset, count);
        co_return co_await committing;
    }
    task<result<storage::change>> note_written(const storage::request& r, const storage::handle& file,
                                               storage::peer_writes what) override
    {
        if (before_commit > 0s)
            (void)co_await sleep_for(before_commit);
        auto noting = below().note_written(r, file, what);
        co_return co_await noting;
    }
    duration before_write{}, after_read{}, before_commit{};
    int turn = 0, maps = 0, commits = 0;
    int fails = 0; ///< an errno of commits
    storage::filesystem_info own;
    std::set<int> turns; ///< in which there were maps
};

struct fixture : layout_fixture {
    fixture()
    {
        slow = std::make_unique<slow_to_map>(make_files(lane));
        options[0].backend = slow.get();
    }
    ~fixture()
    {
        tasks.request_stop();
        for (int i = 0; i < 100 && tasks.live() != 0; ++i) {
            shard->turn();
            clock.advance(100ms);
        }
        program.reset();
        commons.reset();
    }
    static encoded size_0()
    {
        attributes values;
        values.size = 0;
        values.present.set(attribute::size);
        return encoded(values);
    }
    /// Cuts the file to nothing; it is still waiting when this returns, unless nothing holds it up.
    std::shared_ptr<memory_call> cut(client4& c, const client4::opened& file)
    {
        const encoded set = size_0();
        return begin_call(c, file, SETATTR4args{file.id, set.raw});
    }
    template<class Args>
    std::shared_ptr<memory_call> begin_call(client4& c, const client4::opened& file, const Args& args,
                                            std::uint32_t slot = 0)
    {
        return layout_fixture::called_fixture::begin(c.sequence(slot), PUTFH4args{client4::handle_of(file)},
                                                     args);
    }
    std::shared_ptr<memory_call> begin_writing(client4& c, const client4::opened& file, std::uint64_t at,
                                               std::uint32_t slot = 0)
    {
        static constexpr std::string_view text = "text";
        return begin_call(
            c, file, WRITE4args{file.id, at, stable_how4::unstable, std::as_bytes(std::span(text))}, slot);
    }
    static nfsstat4 status_of(memory_call& c)
    {
        BOOST_TEST_REQUIRE(c.is_done);
        return answer_of(c).status();
    }
    static layout layout_of_call(memory_call& c)
    {
        BOOST_TEST_REQUIRE(c.is_done);
        answer4 out = answer_of(c);
        out.good<SEQUENCE4res>();
        return layout_of(out);
    }
    std::pair<std::uint64_t, std::pair<std::int64_t, std::uint32_t>> change_of(const client4::opened& file)
    {
        GETATTR4args args;
        args.attr_request = {attribute::change, attribute::time_modify};
        answer4 out = second.call(PUTFH4args{client4::handle_of(file)}, args);
        out.good<PUTFH4res>();
        const auto res = out.good<GETATTR4res>();
        attributes values;
        BOOST_REQUIRE(decode_attributes(res.obj_attributes, values));
        return {values.change, {values.time_modify.seconds, values.time_modify.nseconds}};
    }
    std::int64_t segments()
    {
        turns();
        return service->layouts().counts().segments;
    }
    std::uint64_t recalls(callback_counters::outcome o) const
    {
        return commons->callbacks.counters()
            .calls[std::size_t(callback_counters::kind::layout_recall)][std::size_t(o)]
            .value();
    }
    std::unique_ptr<slow_to_map> slow;
};

} // namespace

// --- CB_LAYOUTRECALL

BOOST_FIXTURE_TEST_CASE(rule_13_a_layout_is_recalled_before_its_file_is_cut, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, mode::rw);
    rdma_peer& p = connect_to(first, made);
    const auto cutting = cut(second, open(second, "f"));
    BOOST_TEST(!cutting->is_done);
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    const called_client::heard& told = first_way->calls[0];
    BOOST_TEST((told.operation == nfs_cb_opnum4::layoutrecall));
    BOOST_TEST((told.layout.type == layouttype4::rdma));
    BOOST_TEST((told.layout.iomode == mode::any));
    BOOST_TEST(!told.layout.changed);
    BOOST_TEST((told.layout.recall.recalltype == layoutrecall_type4::file));
    BOOST_TEST((told.layout.recall.offset == 0u && told.layout.recall.length == UINT64_MAX));
    BOOST_TEST((told.handle == file.handle));
    // It has its next number, so that the client can tell whether it has seen all answers before it.
    BOOST_TEST((told.id.other == made.id.other && told.id.seqid == made.id.seqid + 1));
    // Until it is back its client goes on with what it has, and gets no more.
    BOOST_TEST(get(first, file, asking(made.id, mode::read)).status == nfsstat4::recallconflict);
    BOOST_TEST(get(first, file, asking(told.id, mode::rw)).status == nfsstat4::recallconflict);
    BOOST_TEST(put(p, made.memory(), 0, "last"));
    BOOST_TEST(commit(first, file, committing(made.id, 3)).status == nfsstat4::ok);
    BOOST_TEST(!cutting->is_done);
    const auto back = give_back(first, file, returning(told.id));
    BOOST_TEST((back.status == nfsstat4::ok && !back.stateid));
    turns();
    BOOST_TEST(status_of(*cutting) == nfsstat4::ok);
    BOOST_TEST(size_of(second, file) == 0u);
    BOOST_TEST(!put(p, made.memory(), 0, "lost"));
    BOOST_TEST(recalls(callback_counters::outcome::ok) == 1u);
    // The file has its rest, so that others have their turn.
    BOOST_TEST(get(first, file, asking(file.id, mode::rw)).status == nfsstat4::layouttrylater);
    pass(commons->state.options().rest_after_recall * 2);
    BOOST_TEST(get(first, file, asking(file.id, mode::rw)).status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(a_part_that_is_returned_ends_no_recall, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto one = get(first, file, asking(file.id, mode::rw, 0, block));
    const auto two = get(first, file, asking(one.id, mode::rw, block, block));
    const auto cutting = cut(second, open(second, "f"));
    const stateid4 told = first_way->calls.at(0).id;
    const auto part = give_back(first, file, returning(told, mode::any, 0, block));
    BOOST_TEST_REQUIRE((part.status == nfsstat4::ok && part.stateid.has_value()));
    BOOST_TEST(segments() == 1);
    BOOST_TEST(!cutting->is_done);
    // The recall's own number is good, also behind that of the part.
    BOOST_TEST(give_back(first, file, returning(told)).status == nfsstat4::ok);
    BOOST_TEST(segments() == 0);
    BOOST_TEST(status_of(*cutting) == nfsstat4::ok);
    BOOST_TEST(two.status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(a_client_that_has_forgotten_its_layout_loses_it_at_once, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, mode::rw);
    rdma_peer& p = connect_to(first, made);
    first_way->says = nfsstat4::nomatching_layout;
    const auto cutting = cut(second, open(second, "f"));
    turns();
    BOOST_TEST(status_of(*cutting) == nfsstat4::ok);
    BOOST_TEST(first_way->calls.size() == 1u);
    BOOST_TEST(recalls(callback_counters::outcome::ok) == 1u);
    BOOST_TEST(stats().revocations.value() == 0u);
    BOOST_TEST(segments() == 0);
    BOOST_TEST(!put(p, made.memory(), 0, "lost"));
    BOOST_TEST(give_back(first, file, returning(made.id)).status == nfsstat4::bad_stateid);
}

// It may have written before it forgot, and told nobody.
BOOST_FIXTURE_TEST_CASE(a_layout_to_write_that_is_forgotten_changes_its_file, fixture)
{
    begin();
    const auto forgets = [&](mode what, const char* name) {
        const auto file = make(first, name, "text");
        (void)get(first, file, what);
        first_way->says = nfsstat4::nomatching_layout;
        const auto before = change_of(file);
        OPEN4args denying =
            second.opening(name, share4::access_read | share4::want_no_delegation, share4::deny_both);
        close(first, file);
        const auto opening = layout_fixture::called_fixture::begin(second.sequence(), PUTROOTFH4args(),
                                                                   LOOKUP4args{"export"}, denying);
        turns();
        BOOST_TEST(status_of(*opening) == nfsstat4::ok);
        first_way->says = nfsstat4::ok;
        return change_of(file) > before;
    };
    BOOST_TEST(!forgets(mode::read, "read"));
    BOOST_TEST(forgets(mode::rw, "written"));
    BOOST_TEST(recalls(callback_counters::outcome::ok) == 2u);
}

BOOST_FIXTURE_TEST_CASE(a_client_that_asks_for_time_is_called_again, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, mode::rw);
    first_way->says = nfsstat4::delay;
    const auto cutting = cut(second, open(second, "f"));
    pass(100ms);
    BOOST_TEST(first_way->calls.size() >= 2u);
    BOOST_TEST(recalls(callback_counters::outcome::later) >= 2u);
    first_way->says = nfsstat4::ok;
    pass(100ms);
    const std::size_t calls = first_way->calls.size();
    BOOST_TEST(recalls(callback_counters::outcome::ok) == 1u);
    pass(500ms);
    BOOST_TEST(first_way->calls.size() == calls);
    BOOST_TEST(give_back(first, file, returning(made.id)).status == nfsstat4::ok);
    turns();
    BOOST_TEST(status_of(*cutting) == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(a_layout_that_is_not_returned_in_time_is_revoked, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, mode::rw);
    rdma_peer& p = connect_to(first, made);
    const auto mine = open(second, "f");
    const auto cutting = cut(second, mine);
    pass(2s);
    BOOST_TEST(status_of(*cutting) == nfsstat4::delay);
    BOOST_TEST(put(p, made.memory(), 0, "last"));
    for (int i = 0; i < 10; ++i) { // both renew their leases
        pass(10s, 1s);
        (void)first.call();
        (void)second.call();
    }
    BOOST_TEST(stats().revocations.value() == 1u);
    BOOST_TEST(segments() == 0);
    BOOST_TEST(!put(p, made.memory(), 0, "lost"));
    BOOST_TEST(give_back(first, file, returning(made.id)).status == nfsstat4::deleg_revoked);
    BOOST_TEST(commit(first, file, committing(made.id)).status == nfsstat4::deleg_revoked);
    BOOST_TEST((flags(first) & seq4_status::recallable_state_revoked) != 0u);
    BOOST_TEST(first.call(FREE_STATEID4args{made.id}).status() == nfsstat4::ok);
    const auto again = cut(second, mine);
    BOOST_TEST(status_of(*again) == nfsstat4::ok);
}

// It may have written, and told nobody: who has the file in a cache looks again.
BOOST_FIXTURE_TEST_CASE(a_layout_to_write_that_is_revoked_changes_its_file, fixture)
{
    begin();
    const auto change_after = [&](mode what, const char* name) {
        const auto file = make(first, name, "text");
        (void)get(first, file, what);
        const auto before = change_of(file);
        const auto cutting = cut(second, open(second, name));
        for (int i = 0; i < 10; ++i) {
            pass(10s, 1s);
            (void)first.call();
            (void)second.call();
        }
        BOOST_TEST(status_of(*cutting) == nfsstat4::delay);
        return change_of(file) > before;
    };
    BOOST_TEST(!change_after(mode::read, "read"));
    BOOST_TEST(change_after(mode::rw, "written"));
    BOOST_TEST(stats().revocations.value() == 2u);
}

BOOST_FIXTURE_TEST_CASE(what_a_client_had_is_out_of_reach_when_it_is_gone, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, mode::rw);
    rdma_peer& p = connect_to(first, made);
    const auto mine = open(second, "f");
    for (int i = 0; i < 20; ++i) { // the first one's lease ends
        pass(10s, 1s);
        (void)second.call();
    }
    const auto cutting = cut(second, mine);
    turns(50);
    BOOST_TEST(status_of(*cutting) == nfsstat4::ok);
    BOOST_TEST(segments() == 0);
    BOOST_TEST(!put(p, made.memory(), 0, "lost"));
}

BOOST_FIXTURE_TEST_CASE(a_client_without_layouts_keeps_its_connections_for_a_lease, fixture)
{
    begin();
    tasks.spawn([this] { return service->tend(); });
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, mode::rw);
    rdma_peer& p = connect_to(first, made);
    const duration lease = commons->state.options().lease;
    for (int i = 0; i < 6; ++i) {
        pass(lease / 2, 10s);
        BOOST_TEST(first.call(asking_of(made)).status() == nfsstat4::ok);
    }
    BOOST_TEST(p.is_up()); // it has a layout
    BOOST_TEST(give_back(first, file, returning(made.id)).status == nfsstat4::ok);
    BOOST_TEST(segments() == 0);
    const auto again = get(first, file, mode::rw);
    BOOST_TEST((again.extents[0].device_id == made.extents[0].device_id));
    BOOST_TEST(take(p, again.memory(), 0, 4) == "text");
    BOOST_TEST(give_back(first, file, returning(again.id)).status == nfsstat4::ok);
    pass(lease / 2, 10s);
    BOOST_TEST(p.is_up());
    pass(2 * lease, 10s);
    BOOST_TEST(!p.is_up());
    BOOST_TEST(data->count().connections == 0);
    BOOST_TEST(first.call(asking_of(made)).status() == nfsstat4::noent);
}

BOOST_FIXTURE_TEST_CASE(others_have_their_turn_while_much_is_mapped, fixture)
{
    begin();
    const auto file = make(first, "f", "");
    bool ends = false;
    tasks.spawn([&]() -> task<void> {
        while (!ends) {
            ++slow->turn;
            co_await yield();
        }
    });
    const std::uint64_t much = 20 << 20;
    const auto made = get(first, file, asking(file.id, mode::rw, 0, much, much));
    ends = true;
    turns();
    BOOST_TEST(made.status == nfsstat4::ok);
    BOOST_TEST(slow->maps >= 5);
    BOOST_TEST(slow->turns.size() == std::size_t(slow->maps));
}

BOOST_FIXTURE_TEST_CASE(a_client_with_a_layout_is_not_destroyed, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, mode::read);
    close(first, file);
    const auto end = [&] { return second.call(DESTROY_CLIENTID4args{first.id}).status(); };
    BOOST_TEST(first.call(DESTROY_SESSION4args{first.session}).status() == nfsstat4::ok);
    BOOST_TEST(end() == nfsstat4::clientid_busy);
    BOOST_TEST(segments() == 1);
    BOOST_TEST(made.status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(a_layout_is_recalled_before_its_file_is_removed, fixture)
{
    begin();
    (void)get(first, make(first, "f", "text"), mode::read);
    const auto remove = [&](client4& c, const char* name) {
        return layout_fixture::called_fixture::begin(c.sequence(), PUTROOTFH4args(), LOOKUP4args{"export"},
                                                     REMOVE4args{name});
    };
    const auto removing = remove(second, "f");
    BOOST_TEST(!removing->is_done);
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    answer4 all = first.call(returning(layoutreturn_type4::all));
    BOOST_TEST(all.status() == nfsstat4::ok);
    turns();
    BOOST_TEST(status_of(*removing) == nfsstat4::ok);
    BOOST_TEST(segments() == 0);
    // So is that of the client that removes it, and where another one takes its name.
    (void)get(first, make(first, "g", "text"), mode::read);
    const auto own = layout_fixture::called_fixture::begin(first.sequence(1), PUTROOTFH4args(),
                                                           LOOKUP4args{"export"}, REMOVE4args{"g"});
    BOOST_TEST(!own->is_done);
    BOOST_TEST(first_way->calls.size() == 2u);
    BOOST_TEST(first.call(returning(layoutreturn_type4::all)).status() == nfsstat4::ok);
    turns();
    BOOST_TEST(status_of(*own) == nfsstat4::ok);
    BOOST_TEST(segments() == 0);
}

// By the time at which its layouts are back another file has the name, whose layouts nobody has recalled.
BOOST_FIXTURE_TEST_CASE(a_removal_takes_no_other_file_than_was_asked_about, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, mode::read);
    (void)get(first, make(first, "g", "text"), mode::read);
    const auto removing = layout_fixture::called_fixture::begin(second.sequence(1), PUTROOTFH4args(),
                                                                LOOKUP4args{"export"}, REMOVE4args{"f"});
    BOOST_TEST(!removing->is_done);
    const auto rename = [&](const char* from, const char* to) {
        return second.call(PUTROOTFH4args(), LOOKUP4args{"export"}, SAVEFH4args(), RENAME4args{from, to})
            .status();
    };
    BOOST_TEST(rename("f", "h") == nfsstat4::ok);
    BOOST_TEST(rename("g", "f") == nfsstat4::ok);
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    BOOST_TEST(give_back(first, file, returning(first_way->calls[0].id)).status == nfsstat4::ok);
    turns();
    BOOST_TEST(status_of(*removing) == nfsstat4::delay);
    BOOST_TEST(second.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"f"}).status() ==
               nfsstat4::ok);
    BOOST_TEST(segments() == 1);
    BOOST_TEST(made.status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(a_rename_takes_the_place_of_no_other_file_than_was_asked_about, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    (void)get(first, file, mode::read);
    (void)get(first, make(first, "g", "text"), mode::read);
    (void)make(first, "new", "text");
    const auto begin_renaming = [&](const char* from, const char* to) {
        return called_fixture::begin(second.sequence(1), PUTROOTFH4args(), LOOKUP4args{"export"},
                                     SAVEFH4args(), RENAME4args{from, to});
    };
    const auto rename = [&](const char* from, const char* to) {
        return second.call(PUTROOTFH4args(), LOOKUP4args{"export"}, SAVEFH4args(), RENAME4args{from, to})
            .status();
    };
    const auto is_there = [&](const char* name) {
        return second.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{name}).status() ==
               nfsstat4::ok;
    };
    const auto renaming = begin_renaming("new", "f");
    BOOST_TEST(!renaming->is_done);
    BOOST_TEST(rename("f", "h") == nfsstat4::ok);
    BOOST_TEST(rename("g", "f") == nfsstat4::ok);
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    BOOST_TEST(give_back(first, file, returning(first_way->calls[0].id)).status == nfsstat4::ok);
    turns();
    BOOST_TEST(status_of(*renaming) == nfsstat4::delay);
    BOOST_TEST((is_there("new") && is_there("f") && is_there("h")));
    BOOST_TEST(segments() == 1);
}

// By whom it may be said, and what is in the way of it, is looked at before anybody gives anything up.
BOOST_FIXTURE_TEST_CASE(a_removal_that_is_refused_recalls_nothing, fixture)
{
    begin();
    const auto set = [&](const char* name, std::uint32_t mode) {
        attributes values;
        values.mode = mode;
        values.present.set(attribute::mode);
        const encoded changed(values);
        return second
            .call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{name},
                  SETATTR4args{stateid4::anonymous(), changed.raw})
            .status();
    };
    const auto make_directory = [&](const char* name) {
        CREATE4args args;
        args.objtype.type = nfs_ftype4::dir;
        args.objname = name;
        BOOST_TEST(second.call(PUTROOTFH4args(), LOOKUP4args{"export"}, args).status() == nfsstat4::ok);
    };
    const auto in = [](const char* name) {
        return std::tuple(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{name});
    };
    const auto call = [&](auto path, const auto&... args) {
        return std::apply([&](const auto&... each) { return second.call(each..., args...).status(); }, path);
    };
    make_directory("sticky");
    make_directory("full");
    OPEN4args args = first.creating("f");
    args.share_access |= share4::want_no_delegation;
    answer4 opened =
        first.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"sticky"}, args, GETFH4args());
    opened.good<PUTROOTFH4res>();
    opened.good<LOOKUP4res>();
    opened.good<LOOKUP4res>();
    client4::opened file;
    file.id = opened.good<OPEN4res>().stateid;
    const auto handle = opened.good<GETFH4res>();
    file.handle.assign(handle.object.begin(), handle.object.end());
    BOOST_TEST_REQUIRE(first.write(file, "text") == nfsstat4::ok);
    BOOST_TEST(set("sticky", 01777) == nfsstat4::ok);
    (void)get(first, file, mode::rw);
    user->uid = 2000;
    const auto refused = [&] {
        BOOST_TEST(call(in("sticky"), REMOVE4args{"f"}) == nfsstat4::perm);
        BOOST_TEST(second
                       .call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"sticky"}, SAVEFH4args(),
                             PUTROOTFH4args(), LOOKUP4args{"export"}, RENAME4args{"f", "g"})
                       .status() == nfsstat4::perm);
        // Nor where the other name can't be had: a directory stands there.
        BOOST_TEST(second
                       .call(PUTROOTFH4args(), LOOKUP4args{"export"}, SAVEFH4args(), LOOKUP4args{"sticky"},
                             RENAME4args{"full", "f"})
                       .status() != nfsstat4::ok);
    };
    refused();
    BOOST_TEST(first_way->calls.empty());
    BOOST_TEST(segments() == 1);
    // A client whose lease is over loses nothing by it.
    for (int i = 0; i < 10; ++i) {
        pass(10s, 1s);
        (void)second.call();
    }
    BOOST_TEST(stats().courtesy_clients.value() == 1);
    refused();
    BOOST_TEST(stats().courtesy_clients.value() == 1);
    BOOST_TEST(segments() == 1);
    // Who may takes its layout, and nothing else.
    user->uid = 1000;
    BOOST_TEST(call(in("sticky"), REMOVE4args{"f"}) == nfsstat4::ok);
    BOOST_TEST(segments() == 0);
    BOOST_TEST(stats().courtesy_clients.value() == 1);
    BOOST_TEST(stats().expired_clients.value() == 0u);
}

// Its memory is the client's as long as it has the file open.
BOOST_FIXTURE_TEST_CASE(a_removed_files_layout_goes_with_the_last_close, fixture)
{
    begin();
    const auto free_bytes = [&] {
        GETATTR4args args;
        args.attr_request.set(attribute::space_free);
        answer4 out = second.call(PUTROOTFH4args(), LOOKUP4args{"export"}, args);
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        attributes values;
        BOOST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
        return values.space_free;
    };
    const auto before = free_bytes();
    const auto file = make(first, "f", "text");
    BOOST_TEST(!get(first, file, mode::rw).return_on_close);
    BOOST_TEST(first.call(returning(layoutreturn_type4::all)).status() == nfsstat4::ok);
    const auto reads = open(first, "f", share4::access_read); // by the same owner
    BOOST_TEST((reads.id.other == file.id.other));
    const auto other = first.open([&] {
        OPEN4args args = first.opening("f", share4::access_read | share4::want_no_delegation);
        static const std::array<std::byte, 1> another{std::byte('x')};
        args.owner.owner = std::span<const std::byte>(another);
        return args;
    }());
    BOOST_TEST_REQUIRE(other.status == nfsstat4::ok);
    BOOST_TEST(second.call(PUTROOTFH4args(), LOOKUP4args{"export"}, REMOVE4args{"f"}).status() ==
               nfsstat4::ok);
    const auto made = get(first, file, asking(reads.id, mode::rw));
    BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
    BOOST_TEST(made.return_on_close);
    rdma_peer& p = connect_to(first, made);
    BOOST_TEST(put(p, made.memory(), 0, "mine"));
    close(first, reads);
    BOOST_TEST(segments() == 1); // the other owner has it open
    BOOST_TEST(put(p, made.memory(), 0, "mine"));
    close(first, other);
    BOOST_TEST(segments() == 0);
    BOOST_TEST(!put(p, made.memory(), 0, "lost"));
    BOOST_TEST(free_bytes() == before);
}

// The close is answered while the layout's memory is looked for.
BOOST_FIXTURE_TEST_CASE(a_removed_files_layout_is_not_given_behind_the_last_close, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    BOOST_TEST(second.call(PUTROOTFH4args(), LOOKUP4args{"export"}, REMOVE4args{"f"}).status() ==
               nfsstat4::ok);
    slow->after_read = 100ms;
    const auto asks = begin_call(first, file, asking(file.id, mode::read), 1);
    BOOST_TEST(!asks->is_done);
    close(first, file);
    pass(200ms);
    BOOST_TEST(layout_of_call(*asks).status == nfsstat4::recallconflict);
    BOOST_TEST(segments() == 0);
    BOOST_TEST(stats().other_states.value() == 0);
}

// The rules that it was asked by may admit its client no more.
BOOST_FIXTURE_TEST_CASE(what_was_asked_for_before_a_reload_is_not_given_behind_it, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    slow->after_read = 100ms;
    const auto asks = begin_call(first, file, asking(file.id, mode::read));
    BOOST_TEST(!asks->is_done);
    const auto list = std::make_shared<nfs::export_list>(*exports.newest(), 1);
    for (const nfs::export_options& each : exports.all())
        BOOST_REQUIRE(list->add(each));
    exports.publish(list, 0);
    pass(200ms);
    BOOST_TEST(layout_of_call(*asks).status == nfsstat4::layouttrylater);
    BOOST_TEST(segments() == 0);
    BOOST_TEST(get(first, file, asking(file.id, mode::read)).status == nfsstat4::ok);
}

// Nobody else wants the file: its memory is not kept for a client that may never come back.
BOOST_FIXTURE_TEST_CASE(what_a_client_had_goes_when_its_lease_is_over, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, mode::rw);
    rdma_peer& p = connect_to(first, made);
    (void)get(second, make(second, "g", "text"), mode::rw);
    const auto& o = commons->state.options();
    const auto before = change_of(file);
    for (duration t{}; t < o.lease + o.recall_time + 20s; t += 10s) {
        pass(10s, 1s);
        (void)second.call();
    }
    BOOST_TEST(segments() == 1);
    BOOST_TEST(second_way->calls.empty());
    // What it wrote, and told nobody, is there.
    BOOST_TEST((change_of(file) > before));
    // When it is back it hears that it has no layout, and has everything else.
    constexpr std::uint32_t losses =
        seq4_status::recallable_state_revoked | seq4_status::expired_some_state_revoked;
    BOOST_TEST((flags(first) & losses) == seq4_status::expired_some_state_revoked);
    pass(5s, 1s);
    BOOST_TEST((flags(first) & losses) == seq4_status::expired_some_state_revoked);
    BOOST_TEST((flags(second) & losses) == 0u);
    const std::array<stateid4, 2> asked{made.id, file.id};
    TEST_STATEID4args testing;
    testing.stateids = std::span<const stateid4>(asked);
    answer4 tested = first.call(testing);
    const auto codes = tested.good<TEST_STATEID4res>().status_codes;
    std::vector<nfsstat4> said;
    for (const nfsstat4 status : codes)
        said.push_back(status);
    BOOST_TEST((said == std::vector{nfsstat4::bad_stateid, nfsstat4::ok}));
    BOOST_TEST((flags(first) & losses) == 0u);
    pass(5s, 1s);
    BOOST_TEST((flags(first) & losses) == 0u);
    BOOST_TEST(!put(p, made.memory(), 0, "lost"));
    BOOST_TEST(commit(first, file, committing(made.id)).status == nfsstat4::bad_stateid);
    BOOST_TEST(give_back(first, file, returning(made.id)).status == nfsstat4::bad_stateid);
    BOOST_TEST(first.write(file, "mine") == nfsstat4::ok);
    pass(o.rest_after_recall * 2);
    (void)first.call();
    BOOST_TEST(get(first, file, asking(file.id, mode::rw)).status == nfsstat4::ok);
}

// One that never asks is not told for ever; nor is one that frees what it had.
BOOST_FIXTURE_TEST_CASE(what_a_client_had_is_told_of_for_a_lease, fixture)
{
    begin();
    const auto first_of = get(first, make(first, "f", "text"), mode::rw);
    const auto second_of = get(second, make(second, "g", "text"), mode::rw);
    const auto& o = commons->state.options();
    pass(o.lease + o.recall_time + 20s, 1s);
    BOOST_TEST(segments() == 0);
    const auto is_told = [&](client4& c) {
        return (flags(c) & seq4_status::expired_some_state_revoked) != 0;
    };
    BOOST_TEST(is_told(first));
    BOOST_TEST(is_told(second));
    BOOST_TEST(second.call(FREE_STATEID4args{second_of.id}).status() == nfsstat4::bad_stateid);
    for (duration t{}; t < o.lease; t += 10s) {
        BOOST_TEST(is_told(first));
        BOOST_TEST(!is_told(second));
        pass(10s, 1s);
    }
    pass(2s, 1s);
    BOOST_TEST(!is_told(first));
    pass(2s, 1s);
    BOOST_TEST(!is_told(first));
    BOOST_TEST(first_of.status == nfsstat4::ok);
}

// A file that is cut is not as long as before again, by what was about to be committed.
BOOST_FIXTURE_TEST_CASE(a_layout_is_committed_before_it_is_fenced, fixture)
{
    begin();
    const auto file = make(first, "f", "");
    const auto made = get(first, file, mode::rw);
    const auto mine = open(second, "f");
    slow->before_commit = 100ms;
    const auto committing_it = begin_call(first, file, committing(made.id, 4), 1);
    BOOST_TEST(!committing_it->is_done);
    const auto cutting = cut(second, mine);
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    // What is returned is out of reach when that is answered.
    const auto returning_it = begin_call(first, file, returning(first_way->calls[0].id), 2);
    BOOST_TEST(!returning_it->is_done);
    BOOST_TEST(!cutting->is_done);
    pass(200ms);
    BOOST_TEST(status_of(*returning_it) == nfsstat4::ok);
    BOOST_TEST(status_of(*committing_it) == nfsstat4::ok);
    BOOST_TEST(slow->commits == 1); // it is durable
    BOOST_TEST(status_of(*cutting) == nfsstat4::ok);
    BOOST_TEST(size_of(first, file) == 0u);
    BOOST_TEST(segments() == 0);
}

// --- Holes

BOOST_FIXTURE_TEST_CASE(a_write_recalls_layouts_that_tell_of_holes, fixture)
{
    begin();
    const auto file = make(first, "f", "");
    BOOST_TEST(first.write(file, "text", file.id, block) == nfsstat4::ok);
    const auto made = get(first, file, mode::read);
    BOOST_TEST(made.extents.at(0).state == extent_state::none_data);
    const auto writing = begin_writing(second, open(second, "f"), 0);
    BOOST_TEST(!writing->is_done);
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    BOOST_TEST(give_back(first, file, returning(first_way->calls[0].id)).status == nfsstat4::ok);
    turns();
    BOOST_TEST(status_of(*writing) == nfsstat4::ok);
    pass(commons->state.options().rest_after_recall * 2);
    const auto again = get(first, file, mode::read);
    BOOST_TEST(again.extents.at(0).state == extent_state::read_data);
}

BOOST_FIXTURE_TEST_CASE(whoever_fills_a_hole_has_layouts_recalled, fixture)
{
    begin();
    const auto file = make(first, "f", "");
    BOOST_TEST(first.write(file, "text", file.id, block) == nfsstat4::ok);
    (void)get(first, file, mode::read);
    // Without an open, as version 3 does.
    client4::opened anonymous = file;
    anonymous.id = stateid4::anonymous();
    const auto writing = begin_writing(second, anonymous, 0);
    BOOST_TEST(!writing->is_done);
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    BOOST_TEST(give_back(first, file, returning(first_way->calls[0].id)).status == nfsstat4::ok);
    turns();
    BOOST_TEST(status_of(*writing) == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(a_write_recalls_no_other_layouts, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, mode::read);
    rdma_peer& p = connect_to(first, made);
    BOOST_TEST(second.write(open(second, "f"), "more") == nfsstat4::ok);
    BOOST_TEST(first_way->calls.empty());
    BOOST_TEST(take(p, made.memory(), 0, 4) == "more");
    // Nor once the layouts with holes are back.
    const auto holes = make(first, "holes", "");
    BOOST_TEST(first.write(holes, "text", holes.id, block) == nfsstat4::ok);
    const auto data = get(first, holes, asking(holes.id, mode::read, block));
    const auto both = get(first, holes, asking(data.id, mode::read, 0, block));
    BOOST_TEST((data.extents.size() == 1u && both.extents.size() == 1u));
    BOOST_TEST(both.extents[0].state == extent_state::none_data);
    BOOST_TEST(give_back(first, holes, returning(both.id, mode::any, 0, block)).status == nfsstat4::ok);
    BOOST_TEST(second.write(open(second, "holes"), "more") == nfsstat4::ok);
    BOOST_TEST(first_way->calls.empty());
}

BOOST_FIXTURE_TEST_CASE(a_layouts_holder_fills_its_own_holes, fixture)
{
    begin();
    const auto file = make(first, "f", "");
    BOOST_TEST(first.write(file, "text", file.id, block) == nfsstat4::ok);
    const auto made = get(first, file, mode::read);
    BOOST_TEST(made.extents.at(0).state == extent_state::none_data);
    BOOST_TEST(first.write(file, "mine") == nfsstat4::ok);
    const auto writes = get(first, file, asking(made.id, mode::rw));
    BOOST_TEST(writes.status == nfsstat4::ok);
    BOOST_TEST(first_way->calls.empty());
}

BOOST_FIXTURE_TEST_CASE(rule_12_a_layout_to_write_recalls_layouts_that_tell_of_holes, fixture)
{
    begin();
    const auto file = make(first, "f", "");
    BOOST_TEST(first.write(file, "text", file.id, block) == nfsstat4::ok);
    const auto made = get(first, file, mode::read);
    const auto mine = open(second, "f");
    auto asks = begin_call(second, mine, asking(mine.id, mode::rw));
    BOOST_TEST(!asks->is_done);
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    // Its holder does not return it soon.
    pass(2s);
    BOOST_TEST(layout_of_call(*asks).status == nfsstat4::layouttrylater);
    asks = begin_call(second, mine, asking(mine.id, mode::rw));
    BOOST_TEST(give_back(first, file, returning(first_way->calls[0].id)).status == nfsstat4::ok);
    turns();
    BOOST_TEST(layout_of_call(*asks).status == nfsstat4::ok);
    BOOST_TEST(first_way->calls.size() == 1u);
    BOOST_TEST(made.status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(a_write_beside_the_look_at_a_hole_waits, fixture)
{
    begin();
    const auto file = make(first, "f", "");
    BOOST_TEST(first.write(file, "text", file.id, block) == nfsstat4::ok);
    const auto mine = open(second, "f");
    slow->after_read = 100ms;
    const auto asks = begin_call(first, file, asking(file.id, mode::read));
    const auto writing = begin_writing(second, mine, 0);
    BOOST_TEST((!asks->is_done && !writing->is_done));
    BOOST_TEST(first_way->calls.empty()); // it may be told of none
    pass(200ms);
    const auto made = layout_of_call(*asks);
    BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
    BOOST_TEST(made.extents.at(0).state == extent_state::none_data);
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    BOOST_TEST(first_way->calls[0].id.seqid > made.id.seqid);
    BOOST_TEST(!writing->is_done);
    BOOST_TEST(give_back(first, file, returning(first_way->calls[0].id)).status == nfsstat4::ok);
    turns();
    BOOST_TEST(status_of(*writing) == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(a_write_beside_the_look_at_a_file_without_holes_recalls_nothing, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto mine = open(second, "f");
    slow->after_read = 100ms;
    const auto asks = begin_call(first, file, asking(file.id, mode::read));
    const auto writing = begin_writing(second, mine, 0);
    BOOST_TEST((!asks->is_done && !writing->is_done));
    pass(200ms);
    BOOST_TEST(layout_of_call(*asks).status == nfsstat4::ok);
    BOOST_TEST(status_of(*writing) == nfsstat4::ok);
    BOOST_TEST(first_way->calls.empty());
}

// Else the answer could tell it of a hole that it has filled since.
BOOST_FIXTURE_TEST_CASE(a_write_of_the_holder_waits_until_it_is_told_of_holes, fixture)
{
    begin();
    const auto file = make(first, "f", "");
    BOOST_TEST(first.write(file, "text", file.id, block) == nfsstat4::ok);
    slow->after_read = 100ms;
    const auto asks = begin_call(first, file, asking(file.id, mode::read));
    const auto writing = begin_writing(first, file, 0, 1);
    BOOST_TEST((!asks->is_done && !writing->is_done));
    pass(200ms);
    BOOST_TEST(layout_of_call(*asks).extents.at(0).state == extent_state::none_data);
    BOOST_TEST(status_of(*writing) == nfsstat4::ok);
    BOOST_TEST(first_way->calls.empty());
}

BOOST_FIXTURE_TEST_CASE(a_layout_to_write_recalls_none_of_other_bytes, fixture)
{
    begin();
    const auto file = make(first, "f", "");
    BOOST_TEST(first.write(file, "text", file.id, 3 * block) == nfsstat4::ok);
    const auto made = get(first, file, asking(file.id, mode::read, 0, block));
    BOOST_TEST(made.extents.at(0).state == extent_state::none_data);
    const auto mine = open(second, "f");
    BOOST_TEST(get(second, mine, asking(mine.id, mode::rw, 2 * block, block)).status == nfsstat4::ok);
    BOOST_TEST(first_way->calls.empty());
}

BOOST_FIXTURE_TEST_CASE(no_hole_is_told_of_that_a_layout_is_about_to_fill, fixture)
{
    begin();
    const auto file = make(first, "f", "");
    BOOST_TEST(first.write(file, "text", file.id, block) == nfsstat4::ok);
    const auto mine = open(second, "f");
    slow->before_write = 100ms;
    const auto writes = begin_call(second, mine, asking(mine.id, mode::rw));
    BOOST_TEST(!writes->is_done);
    BOOST_TEST(get(first, file, asking(file.id, mode::read)).status == nfsstat4::layouttrylater);
    BOOST_TEST(segments() == 1); // the one that is being made
    pass(200ms);
    BOOST_TEST(layout_of_call(*writes).status == nfsstat4::ok);
    const auto made = get(first, file, mode::read);
    BOOST_TEST(made.extents.at(0).state == extent_state::read_data);
}

// --- The server, and its restart

// So much memory of the source can't be copied at once, and what is in peers' reach is not shared.
BOOST_FIXTURE_TEST_CASE(a_layout_is_recalled_before_much_of_its_file_is_cloned, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto filling = [&]() -> task<void> {
        storage::request me;
        me.who.uid = 0;
        const storage::handle root = slow->root();
        const std::string bytes(block, 'x');
        const std::array<std::span<const std::byte>, 1> pieces{std::as_bytes(std::span(bytes))};
        auto looking = slow->lookup(me, root, "f");
        const auto found = co_await looking;
        BOOST_REQUIRE(found);
        for (std::uint64_t i = 0; i < 66; ++i) {
            auto writing =
                slow->write(me, found->found.handle, i * block, pieces, storage::stability::unstable);
            const auto written = co_await writing;
            BOOST_REQUIRE(written);
        }
    };
    run_until_complete(*shard, filling());
    (void)get(first, file, mode::read);
    const auto to = make(second, "g", "");
    const auto from = open(second, "f");
    minor = 2;
    const auto clone = [&] {
        return second
            .call(PUTFH4args{client4::handle_of(from)}, SAVEFH4args(), PUTFH4args{client4::handle_of(to)},
                  CLONE4args{from.id, to.id, 0, 0, 0})
            .status();
    };
    BOOST_TEST(clone() == nfsstat4::delay);
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    BOOST_TEST((first_way->calls[0].operation == nfs_cb_opnum4::layoutrecall));
    BOOST_TEST(give_back(first, file, returning(first_way->calls[0].id)).status == nfsstat4::ok);
    turns();
    BOOST_TEST(clone() == nfsstat4::ok);
    BOOST_TEST(size_of(second, to) == 66 * block);
}

BOOST_FIXTURE_TEST_CASE(a_server_of_layouts_says_so, fixture)
{
    start_layouts();
    const auto says = [&](std::uint32_t asked) {
        EXCHANGE_ID4args args = first.exchange();
        args.flags = asked;
        answer4 out = compound(args);
        return out.good<EXCHANGE_ID4res>().flags & exchgid4::mask_pnfs;
    };
    BOOST_TEST(says(0) == exchgid4::use_pnfs_mds);
    BOOST_TEST(says(exchgid4::mask_pnfs) == exchgid4::use_pnfs_mds);
    BOOST_TEST(says(exchgid4::use_pnfs_mds) == exchgid4::use_pnfs_mds);
    // Who looks for something else is told that it is not here.
    BOOST_TEST(says(exchgid4::use_non_pnfs) == exchgid4::use_non_pnfs);
    BOOST_TEST(says(exchgid4::use_pnfs_ds) == exchgid4::use_non_pnfs);
}

BOOST_AUTO_TEST_CASE(a_server_without_an_export_of_layouts_is_none)
{
    fixture f;
    f.options[0].pnfs = false;
    f.begin();
    const client4 third(f, "third");
    EXCHANGE_ID4args args = third.exchange();
    answer4 out = f.compound(args);
    BOOST_TEST((out.good<EXCHANGE_ID4res>().flags & exchgid4::mask_pnfs) == exchgid4::use_non_pnfs);
    const auto file = f.make(f.first, "f", "text");
    BOOST_TEST(f.get(f.first, file, f.asking(file.id, mode::read)).status == nfsstat4::layoutunavailable);
}

// The device has nothing to do with that.
BOOST_FIXTURE_TEST_CASE(files_that_can_not_be_mapped_have_none, fixture)
{
    slow->own.map_block = 0;
    begin();
    const auto file = make(first, "f", "text");
    BOOST_TEST(get(first, file, asking(file.id, mode::read)).status == nfsstat4::layoutunavailable);
    BOOST_TEST(program->counters().layouts_unavailable.value() == 1u);
    BOOST_TEST(program->counters().layouts_beyond_device.value() == 0u);
}

// As COMMIT: a client forgets what it has written once this is answered.
BOOST_FIXTURE_TEST_CASE(a_layoutcommit_is_answered_when_the_file_is_durable, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, mode::rw);
    const int before = slow->commits;
    BOOST_TEST(commit(first, file, committing(made.id, 5)).status == nfsstat4::ok);
    BOOST_TEST(slow->commits == before + 1);
    slow->fails = EIO;
    BOOST_TEST(commit(first, file, committing(made.id)).status == nfsstat4::io);
    slow->fails = 0;
    BOOST_TEST(commit(first, file, committing(made.id)).status == nfsstat4::ok);
    BOOST_TEST(slow->commits == before + 3);
}

BOOST_FIXTURE_TEST_CASE(attributes_tell_of_layouts, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto ask = [&](bitmap4 wanted) {
        GETATTR4args args;
        args.attr_request = wanted;
        return args;
    };
    const bitmap4 wanted = {attribute::supported_attrs,  attribute::fs_layout_types,
                            attribute::layout_types,     attribute::layout_blksize,
                            attribute::layout_alignment, attribute::suppattr_exclcreat};
    answer4 out = first.call(PUTFH4args{client4::handle_of(file)}, ask(wanted));
    out.good<PUTFH4res>();
    attributes values;
    BOOST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
    BOOST_TEST((values.present == wanted));
    for (const auto& types : {values.fs_layout_types, values.layout_types}) {
        BOOST_TEST_REQUIRE(types.size() == 1u);
        BOOST_TEST((*types.begin() == layouttype4::rdma));
    }
    BOOST_TEST(values.layout_blksize == block);
    BOOST_TEST(values.layout_alignment == 1u);
    BOOST_TEST(values.supported_attrs.test(attribute::layout_types));
    // What is no hint for us is not taken for one.
    BOOST_TEST(!values.supported_attrs.test(attribute::layout_hint));
    BOOST_TEST(!values.suppattr_exclcreat.test(attribute::layout_hint));
    // Another export has none of them.
    answer4 other = first.call(PUTROOTFH4args(), LOOKUP4args{"deep"}, LOOKUP4args{"other"}, ask(wanted));
    other.good<PUTROOTFH4res>();
    other.good<LOOKUP4res>();
    other.good<LOOKUP4res>();
    BOOST_REQUIRE(decode_attributes(other.good<GETATTR4res>().obj_attributes, values));
    BOOST_TEST(!values.present.test(attribute::layout_types));
    BOOST_TEST(!values.supported_attrs.test(attribute::layout_blksize));
}

BOOST_FIXTURE_TEST_CASE(an_exclusive_creation_is_the_newer_one, fixture)
{
    begin();
    BOOST_TEST(first.open(first.creating("f", createmode4::exclusive)).status == nfsstat4::inval);
    BOOST_TEST(first.open(first.creating("f", createmode4::exclusive4_1)).status == nfsstat4::ok);
    OPEN4args args = first.creating("g", createmode4::exclusive);
    BOOST_TEST(first.call(PUTROOTFH4args(), LOOKUP4args{"deep"}, LOOKUP4args{"other"}, args).status() ==
               nfsstat4::ok);
}

namespace {

/// A start after one in which clients had "f" open.
struct restarted : fixture {
    restarted()
    {
        for (const char* key : {"first", "somebody"}) {
            begun.reclaimers.emplace_back();
            begun.reclaimers.back().key = key;
        }
        begun.lease_before = 90s;
        const auto creating = [&]() -> task<void> {
            const storage::request me;
            const storage::handle root = slow->root();
            storage::set_attributes set;
            set.mode = 0666;
            auto making = slow->create(me, root, "f", storage::create_mode::guarded, set, 0);
            const auto made = co_await making;
            BOOST_REQUIRE(made);
        };
        run_until_complete(*shard, creating());
    }
    /// `first` may reclaim, and has not said that it has.
    void come_back()
    {
        start_layouts();
        answer4 known = compound(first.exchange());
        const auto exchanged = known.good<EXCHANGE_ID4res>();
        first.id = exchanged.clientid;
        first.create_sequence = exchanged.sequenceid;
        open_session(first);
        way = second_way;
        connect(second);
        BOOST_TEST_REQUIRE(commons->state.is_in_grace());
    }
    client4::opened file_of_before(client4& c)
    {
        answer4 out = c.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"f"}, GETFH4args());
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        out.good<LOOKUP4res>();
        const auto handle = out.good<GETFH4res>();
        client4::opened file;
        file.handle.assign(handle.object.begin(), handle.object.end());
        file.id.seqid = 1;
        file.id.other[0] = std::byte(6); // of the start before
        return file;
    }
    LAYOUTCOMMIT4res reclaim(client4& c, std::uint64_t last)
    {
        const client4::opened file = file_of_before(c);
        LAYOUTCOMMIT4args again = committing(file.id, last);
        again.reclaim = true;
        return commit(c, file, again);
    }
};

} // namespace

// RFC 8881 18.42.3. Others may have cut the file since, and a commit would give it its old length back, in zeros.
BOOST_FIXTURE_TEST_CASE(rule_17_what_was_placed_before_a_restart_is_to_be_written_again, restarted)
{
    come_back();
    BOOST_TEST(reclaim(first, 3).status == nfsstat4::reclaim_bad);
    // Who has nothing to reclaim, or has said that it is done.
    BOOST_TEST(reclaim(second, 9).status == nfsstat4::no_grace);
    BOOST_TEST(first.call(client4::reclaimed()).status() == nfsstat4::ok);
    BOOST_TEST(reclaim(first, 9).status == nfsstat4::no_grace);
    BOOST_TEST(size_of(second, file_of_before(second)) == 0u);
    BOOST_TEST(slow->commits == 0);
    pass(100s, 1s);
    (void)first.call();
    BOOST_TEST(!commons->state.is_in_grace());
    BOOST_TEST(reclaim(first, 9).status == nfsstat4::no_grace);
}

BOOST_FIXTURE_TEST_CASE(a_restart_leaves_no_layouts, restarted)
{
    begin();
    BOOST_TEST_REQUIRE(commons->state.is_in_grace());
    const client4::opened file = file_of_before(first);
    BOOST_TEST(get(first, file, asking(file.id, mode::rw)).status == nfsstat4::grace);
    LAYOUTRETURN4args back = returning(file.id);
    back.reclaim = true;
    BOOST_TEST(give_back(first, file, back).status == nfsstat4::ok);
}

BOOST_AUTO_TEST_SUITE_END()
