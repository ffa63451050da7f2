// SPDX-License-Identifier: Apache-2.0
// Delegations: who gets one, what it is recalled for, also by version 3, and what becomes of those who don't give it back.
#include "nfs4_version3.hpp"

#include <verbena/core/task/event.hpp>
#include <verbena/protocols/storage/gated_backend.hpp>

#include <random>

BOOST_AUTO_TEST_SUITE(nfs4_delegations_test)

using namespace verbena;
using namespace verbena::test;
using deleg = open_delegation_type4;

namespace {

/// Writes and changes of directories wait while `holds`, and are looked at.
class watched_files final : public storage::gated_backend {
public:
    using gated_backend::gated_backend;
    bool gates(storage::operation op) const noexcept override
    {
        return op == storage::operation::write || op == storage::operation::create ||
               op == storage::operation::remove || op == storage::operation::rename;
    }
    task<result<void>> enter(storage::operation op, const storage::request&, std::uint64_t) override
    {
        entered += op == storage::operation::write;
        if (holds) {
            ++held;
            (void)co_await go.wait();
            --held;
        }
        if (before_a_write && op == storage::operation::write)
            before_a_write();
        co_return result<void>();
    }
    bool holds = false;
    int entered = 0, held = 0;
    event go;
    std::function<void()> before_a_write;
};

struct fixture : version3_fixture {
    fixture()
    {
        options[0].backend = &watched;
        options[0].local_writers = false;
        first_way = channel;
        second_way = std::make_shared<called_client>(pool);
    }
    ~fixture()
    {
        tasks.request_stop();
        watched.go.set();
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
    static OPEN4args wanting(OPEN4args args, std::uint32_t want)
    {
        args.share_access |= want;
        return args;
    }
    static nfsstat4 give_back(client4& c, const client4::opened& file)
    {
        return c.call(PUTFH4args{client4::handle_of(file)}, DELEGRETURN4args{file.res.delegation.stateid})
            .status();
    }
    /// `file` is there, and nobody has it open.
    void make(std::string_view name)
    {
        const auto made = second.open(wanting(second.creating(name), share4::want_no_delegation));
        BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
        close(second, made);
    }
    static void close(client4& c, const client4::opened& file)
    {
        BOOST_TEST(c.call(PUTFH4args{client4::handle_of(file)}, CLOSE4args{0, file.id}).status() ==
                   nfsstat4::ok);
    }
    /// The first client has a read delegation, and nothing else of the file.
    client4::opened delegated(std::string_view name)
    {
        make(name);
        const auto file = first.open(first.opening(name, share4::access_read));
        BOOST_TEST_REQUIRE(file.res.delegation.delegation_type == deleg::read);
        close(first, file);
        return file;
    }
    const files::state_stats& stats() { return commons->state.table().stats(); }

    watched_files watched{*files};
    client4 first{*this, "first"};
    client4 second{*this, "second"};
    std::shared_ptr<called_client> first_way, second_way;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(an_open_brings_what_its_access_is_good_for, fixture)
{
    begin();
    make("r");
    make("w");
    const auto reads = first.open(first.opening("r", share4::access_read));
    BOOST_TEST(reads.res.delegation.delegation_type == deleg::read);
    BOOST_TEST(!reads.res.delegation.recall);
    // Another reader has one as well.
    const auto reads_too = second.open(second.opening("r", share4::access_read));
    BOOST_TEST(reads_too.res.delegation.delegation_type == deleg::read);
    const auto writes = first.open(first.opening("w", share4::access_both));
    BOOST_TEST(writes.res.delegation.delegation_type == deleg::write);
    BOOST_TEST(writes.res.delegation.space_limit.filesize == UINT64_MAX);
    BOOST_TEST(stats().read_delegations.value() == 2);
    BOOST_TEST(stats().write_delegations.value() == 1);
    // The delegation alone is good for data.
    close(first, writes);
    BOOST_TEST(first.write(writes, "by delegation", writes.res.delegation.stateid) == nfsstat4::ok);
    BOOST_TEST(first.read(writes, writes.res.delegation.stateid) == "by delegation");
    BOOST_TEST(first.write(reads, "x", reads.res.delegation.stateid) == nfsstat4::openmode);
    BOOST_TEST(give_back(first, writes) == nfsstat4::ok);
    BOOST_TEST(give_back(first, writes) == nfsstat4::bad_stateid);
    BOOST_TEST(give_back(second, reads) == nfsstat4::bad_stateid); // another client's
    BOOST_TEST(stats().write_delegations.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(no_delegation_is_given_where_it_can_t_be_kept, fixture)
{
    begin();
    make("f");
    const auto refused = [&](client4& c, std::uint32_t want) {
        const auto file = c.open(wanting(c.opening("f", share4::access_read), want));
        BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
        close(c, file);
        return file.res.delegation;
    };
    auto none = refused(first, share4::want_no_delegation);
    BOOST_TEST(none.delegation_type == deleg::none_ext);
    BOOST_TEST(none.why == why_no_delegation4::not_wanted);
    // Somebody writes.
    const auto writes =
        second.open(wanting(second.opening("f", share4::access_write), share4::want_no_delegation));
    none = refused(first, share4::want_any_delegation);
    BOOST_TEST(none.delegation_type == deleg::none_ext);
    BOOST_TEST(none.why == why_no_delegation4::contention);
    BOOST_TEST(refused(first, 0).delegation_type == deleg::none);
    close(second, writes);
    // It could not be recalled.
    first_way->is_open = false;
    BOOST_TEST(refused(first, 0).delegation_type == deleg::none);
    BOOST_TEST(refused(first, share4::want_any_delegation).why == why_no_delegation4::resource);
    first_way->is_open = true;
    // Others change the files behind our back: another export.
    const auto elsewhere =
        first.call(PUTROOTFH4args(), LOOKUP4args{"deep"}, LOOKUP4args{"other"}, first.creating("g"));
    BOOST_TEST(elsewhere.status() == nfsstat4::ok);
    BOOST_TEST(stats().read_delegations.value() + stats().write_delegations.value() == 0);
    BOOST_TEST(refused(first, 0).delegation_type == deleg::read);
}

BOOST_FIXTURE_TEST_CASE(an_open_that_conflicts_waits_for_its_return, fixture)
{
    begin();
    const auto file = delegated("f");
    const auto writing_it = wanting(second.opening("f", share4::access_write), share4::want_no_delegation);
    BOOST_TEST(second.open(writing_it).status == nfsstat4::delay);
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    const called_client::heard& recall = first_way->calls[0];
    BOOST_CHECK(recall.operation == nfs_cb_opnum4::recall);
    BOOST_CHECK(recall.id == file.res.delegation.stateid);
    BOOST_CHECK(recall.handle == file.handle);
    BOOST_TEST(second_way->calls.empty());
    // Under the delegation the holder opens all the same, to have an open when it is gone.
    OPEN4args under = first.opening("f", share4::access_read);
    under.claim.claim = open_claim_type4::delegate_cur;
    under.claim.delegate_stateid = file.res.delegation.stateid;
    const auto opened = first.open(under);
    BOOST_TEST(opened.status == nfsstat4::ok);
    under.claim.claim = open_claim_type4::deleg_cur_fh;
    BOOST_TEST(first.call(PUTFH4args{client4::handle_of(file)}, under).status() == nfsstat4::ok);
    under.share_access = share4::access_write;
    BOOST_TEST(first.call(PUTFH4args{client4::handle_of(file)}, under).status() == nfsstat4::bad_stateid);
    BOOST_TEST(second.open(writing_it).status == nfsstat4::delay);
    BOOST_TEST(give_back(first, file) == nfsstat4::ok);
    BOOST_TEST(second.open(writing_it).status == nfsstat4::ok);
    BOOST_TEST(first_way->calls.size() == 1u); // one recall
    BOOST_TEST(stats().ended_recalls.value() == 1u);
    BOOST_TEST(stats().recall_microseconds.value() >= 2'000'000u); // as long as both waited
}

// As somebody local removes it. The client has opened it by itself, and says so now.
BOOST_FIXTURE_TEST_CASE(under_a_delegation_a_file_is_opened_that_has_lost_its_name, fixture)
{
    begin();
    const auto file = delegated("f");
    storage::request root;
    root.who = storage::credential(0, 0);
    BOOST_REQUIRE(run_until_complete(*shard, files->remove(root, files->root(), "f")));
    OPEN4args under = first.opening("f", share4::access_read);
    under.claim.claim = open_claim_type4::delegate_cur;
    under.claim.delegate_stateid = file.res.delegation.stateid;
    const auto opened = first.open(under);
    BOOST_TEST_REQUIRE(opened.status == nfsstat4::ok);
    BOOST_CHECK(opened.handle == file.handle);
    // Of another client's delegation, and of what is none.
    BOOST_TEST(second.open(under).status == nfsstat4::noent);
    under.claim.delegate_stateid = opened.id;
    BOOST_TEST(first.open(under).status == nfsstat4::noent);
}

BOOST_FIXTURE_TEST_CASE(an_open_that_cuts_the_file_conflicts_whatever_its_access, fixture)
{
    begin();
    const auto file = delegated("f");
    OPEN4args cuts = wanting(second.creating("f"), share4::want_no_delegation);
    cuts.share_access = share4::access_read | share4::want_no_delegation;
    attributes size;
    size.size = 0;
    size.present.set(attribute::size);
    std::array<std::byte, 64> memory;
    xdr::encoder out(memory);
    encode_attributes(out, size.present, size);
    xdr::decoder in(out.bytes());
    xdr::codec<fattr4>::decode(in, cuts.openhow.attrs);
    BOOST_TEST_REQUIRE(in.ok());
    BOOST_TEST(second.open(cuts).status == nfsstat4::delay);
    BOOST_TEST(give_back(first, file) == nfsstat4::ok);
    BOOST_TEST(second.open(cuts).status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(what_version_3_may_not_remove_is_not_recalled, fixture)
{
    begin();
    attributes values;
    values.mode = 0755;
    values.present.set(attribute::mode);
    const encoded others_may_look(values);
    CREATE4args creating;
    creating.objtype.type = nfs_ftype4::dir;
    creating.objname = "d";
    creating.createattrs = others_may_look.raw;
    answer4 made = second.call(PUTROOTFH4args(), LOOKUP4args{"export"}, creating, GETFH4args());
    made.good<PUTROOTFH4res>();
    made.good<LOOKUP4res>();
    made.good<CREATE4res>();
    const auto handle = made.good<GETFH4res>();
    const v3::nfs_fh3 directory = to_fh3(handle.object);
    const auto file = delegated("f");
    BOOST_TEST(give_back(first, file) == nfsstat4::ok);
    BOOST_TEST(second
                   .call(PUTFH4args{client4::handle_of(file)}, SAVEFH4args(), PUTROOTFH4args(),
                         LOOKUP4args{"export"}, LOOKUP4args{"d"}, LINK4args{"f"})
                   .status() == nfsstat4::ok);
    const auto again = first.open(first.opening("f", share4::access_read));
    BOOST_TEST_REQUIRE(again.res.delegation.delegation_type == deleg::read);
    user->uid = 2000;
    v3::REMOVE3args removing;
    removing.object = {directory, "f"};
    BOOST_TEST(call3<v3::REMOVE3res>(v3::procedure::remove, removing).status == v3::nfsstat3::acces);
    v3::RENAME3args renaming;
    renaming.from = {directory, "f"};
    renaming.to = {root3(), "g"};
    BOOST_TEST(call3<v3::RENAME3res>(v3::procedure::rename, renaming).status == v3::nfsstat3::acces);
    BOOST_TEST(first_way->calls.empty());
}

BOOST_FIXTURE_TEST_CASE(version_3_removes_no_other_file_than_was_asked_about, fixture)
{
    begin();
    make("g");
    const auto file = delegated("f");
    const auto removing = begin3<v3::REMOVE3res>(v3::procedure::remove, v3::REMOVE3args{{root3(), "f"}});
    BOOST_TEST(!removing->is_done);
    const auto renaming = [&]() -> task<void> {
        const storage::request me;
        for (const auto& [from, to] : {std::pair("f", "h"), std::pair("g", "f")}) {
            auto moving = files->rename(me, files->root(), from, files->root(), to);
            const auto moved = co_await moving;
            BOOST_TEST(moved.has_value());
        }
    };
    run_until_complete(*shard, renaming());
    BOOST_TEST(give_back(first, file) == nfsstat4::ok);
    turns();
    BOOST_TEST_REQUIRE(removing->is_done);
    BOOST_TEST(answer3<v3::REMOVE3res>(*removing).status == v3::nfsstat3::jukebox);
    BOOST_TEST(second.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"f"}).status() ==
               nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(version_3_renames_over_no_other_file_than_was_asked_about, fixture)
{
    begin();
    make("g");
    make("new");
    const auto file = delegated("f");
    const auto replacing =
        begin3<v3::RENAME3res>(v3::procedure::rename, v3::RENAME3args{{root3(), "new"}, {root3(), "f"}});
    BOOST_TEST(!replacing->is_done);
    const auto renaming = [&]() -> task<void> {
        const storage::request me;
        for (const auto& [from, to] : {std::pair("f", "h"), std::pair("g", "f")}) {
            auto moving = files->rename(me, files->root(), from, files->root(), to);
            const auto moved = co_await moving;
            BOOST_TEST(moved.has_value());
        }
    };
    run_until_complete(*shard, renaming());
    BOOST_TEST(give_back(first, file) == nfsstat4::ok);
    turns();
    BOOST_TEST_REQUIRE(replacing->is_done);
    BOOST_TEST(answer3<v3::RENAME3res>(*replacing).status == v3::nfsstat3::jukebox);
    BOOST_TEST(second.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"new"}).status() ==
               nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(what_version_3_changes_is_recalled_first, fixture)
{
    begin();
    const auto each = [&](const char* name, auto ask, bool by_write_delegation = false,
                          std::size_t asked_before = 0) {
        BOOST_TEST_CONTEXT(name)
        {
            client4::opened file;
            if (by_write_delegation) {
                make(name);
                file = first.open(first.opening(name, share4::access_both));
                BOOST_TEST_REQUIRE(file.res.delegation.delegation_type == deleg::write);
                close(first, file);
            } else {
                file = delegated(name);
            }
            const std::size_t before = first_way->calls.size();
            BOOST_TEST(ask(file) == v3::nfsstat3::jukebox);
            BOOST_TEST_REQUIRE(first_way->calls.size() == before + 1 + asked_before);
            BOOST_CHECK(first_way->calls.back().operation == nfs_cb_opnum4::recall);
            BOOST_TEST(give_back(first, file) == nfsstat4::ok);
            BOOST_TEST(ask(file) == v3::nfsstat3::ok);
        }
    };
    each("write",
         [&](const auto& file) { return call3<v3::WRITE3res>(v3::procedure::write, writing(file)).status; });
    each("setattr", [&](const auto& file) {
        v3::SETATTR3args args;
        args.object = to_fh3(file.handle);
        args.new_attributes.size = 0;
        return call3<v3::SETATTR3res>(v3::procedure::setattr, args).status;
    });
    each("mode", [&](const auto& file) {
        v3::SETATTR3args args;
        args.object = to_fh3(file.handle);
        args.new_attributes.mode = 0600;
        return call3<v3::SETATTR3res>(v3::procedure::setattr, args).status;
    });
    each("create", [&](const auto&) {
        v3::CREATE3args args;
        args.where = {root3(), "create"};
        args.obj_attributes.size = 0;
        return call3<v3::CREATE3res>(v3::procedure::create, args).status;
    });
    each("link", [&](const auto& file) {
        v3::LINK3args args;
        args.file = to_fh3(file.handle);
        args.link = {root3(), "linked"};
        return call3<v3::LINK3res>(v3::procedure::link, args).status;
    });
    each("renamed", [&](const auto&) {
        return call3<v3::RENAME3res>(v3::procedure::rename,
                                     v3::RENAME3args{{root3(), "renamed"}, {root3(), "another"}})
            .status;
    });
    make("source");
    each("overwritten", [&](const auto&) {
        return call3<v3::RENAME3res>(v3::procedure::rename,
                                     v3::RENAME3args{{root3(), "source"}, {root3(), "overwritten"}})
            .status;
    });
    each("removed", [&](const auto&) {
        return call3<v3::REMOVE3res>(v3::procedure::remove, v3::REMOVE3args{{root3(), "removed"}}).status;
    });
    // What only a write delegation is in the way of.
    each(
        "read",
        [&](const auto& file) {
            return call3<v3::READ3res>(v3::procedure::read, v3::READ3args{to_fh3(file.handle), 0, 10}).status;
        },
        true);
    each(
        "getattr",
        [&](const auto& file) {
            return call3<v3::GETATTR3res>(v3::procedure::getattr, v3::GETATTR3args{to_fh3(file.handle)})
                .status;
        },
        true, 1); // this client has no answer to CB_GETATTR
    // A reader is in no reader's way.
    const auto file = delegated("shared");
    const std::size_t before = first_way->calls.size();
    BOOST_TEST(call3<v3::READ3res>(v3::procedure::read, v3::READ3args{to_fh3(file.handle), 0, 10}).status ==
               v3::nfsstat3::ok);
    BOOST_TEST(call3<v3::GETATTR3res>(v3::procedure::getattr, v3::GETATTR3args{to_fh3(file.handle)}).status ==
               v3::nfsstat3::ok);
    BOOST_TEST(first_way->calls.size() == before);
}

BOOST_FIXTURE_TEST_CASE(what_another_client_changes_is_recalled_first, fixture)
{
    begin();
    const auto each = [&](const char* name, auto ask) {
        BOOST_TEST_CONTEXT(name)
        {
            const client4::opened file = delegated(name);
            const std::size_t before = first_way->calls.size();
            BOOST_TEST(ask(second, file) == nfsstat4::delay);
            BOOST_TEST(first_way->calls.size() == before + 1);
            BOOST_TEST(give_back(first, file) == nfsstat4::ok);
            BOOST_TEST(ask(second, file) == nfsstat4::ok);
        }
    };
    const auto mode = [&](client4& c, const client4::opened& file) {
        SETATTR4args args;
        attributes wanted;
        wanted.mode = 0640;
        wanted.present.set(attribute::mode);
        std::array<std::byte, 64> memory;
        xdr::encoder out(memory);
        encode_attributes(out, wanted.present, wanted);
        xdr::decoder in(out.bytes());
        xdr::codec<fattr4>::decode(in, args.obj_attributes);
        return c.call(PUTFH4args{client4::handle_of(file)}, args).status();
    };
    each("mode", mode);
    each("write", [](client4& c, const client4::opened& file) { return c.write(file, "x", stateid4()); });
    each("removed", [](client4& c, const client4::opened&) {
        return c.call(PUTROOTFH4args(), LOOKUP4args{"export"}, REMOVE4args{"removed"}).status();
    });
    each("renamed", [](client4& c, const client4::opened&) {
        return c.call(PUTROOTFH4args(), LOOKUP4args{"export"}, SAVEFH4args(), RENAME4args{"renamed", "other"})
            .status();
    });
    make("source");
    each("overwritten", [](client4& c, const client4::opened&) {
        return c
            .call(PUTROOTFH4args(), LOOKUP4args{"export"}, SAVEFH4args(),
                  RENAME4args{"source", "overwritten"})
            .status();
    });
    each("linked", [](client4& c, const client4::opened& file) {
        return c
            .call(PUTFH4args{client4::handle_of(file)}, SAVEFH4args(), PUTROOTFH4args(),
                  LOOKUP4args{"export"}, LINK4args{"to"})
            .status();
    });
    // The holder's own changes recall nothing.
    const auto own = delegated("own");
    const std::size_t before = first_way->calls.size();
    BOOST_TEST(mode(first, own) == nfsstat4::ok);
    BOOST_TEST(first.call(PUTROOTFH4args(), LOOKUP4args{"export"}, REMOVE4args{"own"}).status() ==
               nfsstat4::ok);
    BOOST_TEST(first_way->calls.size() == before);
}

BOOST_FIXTURE_TEST_CASE(a_holder_that_never_gives_back_loses_it, fixture)
{
    begin();
    const auto file = delegated("f");
    first_way->silent = true;
    BOOST_TEST(call3<v3::WRITE3res>(v3::procedure::write, writing(file)).status == v3::nfsstat3::jukebox);
    for (int i = 0; i < 9; ++i) { // both stay, and call
        pass(10s, 500ms);
        (void)flags(first);
        (void)flags(second);
        if (i == 7)
            BOOST_TEST(stats().revocations.value() == 0u);
    }
    BOOST_TEST(stats().revocations.value() == 1u);
    BOOST_TEST(call3<v3::WRITE3res>(v3::procedure::write, writing(file)).status == v3::nfsstat3::ok);
    first_way->silent = false;
    pass(2s, 100ms);
    (void)flags(first); // the lease is renewed, and the state layer asked
    BOOST_TEST((flags(first) & seq4_status::recallable_state_revoked) != 0u);
    BOOST_TEST((flags(second) & seq4_status::recallable_state_revoked) == 0u);
    const std::array<stateid4, 1> ids = {file.res.delegation.stateid};
    TEST_STATEID4args testing;
    testing.stateids = std::span<const stateid4>(ids);
    answer4 tested = first.call(testing);
    const auto codes = tested.good<TEST_STATEID4res>().status_codes;
    BOOST_TEST_REQUIRE(codes.size() == 1u);
    for (const nfsstat4 code : codes)
        BOOST_TEST(code == nfsstat4::deleg_revoked);
    BOOST_TEST(give_back(first, file) == nfsstat4::deleg_revoked);
    BOOST_TEST(first.call(FREE_STATEID4args{file.res.delegation.stateid}).status() == nfsstat4::ok);
    BOOST_TEST((flags(first) & seq4_status::recallable_state_revoked) == 0u);
    BOOST_TEST(give_back(first, file) == nfsstat4::bad_stateid);
}

BOOST_FIXTURE_TEST_CASE(a_recall_is_repeated_until_it_is_heard, fixture)
{
    begin();
    // The answer to OPEN has not come there yet.
    const auto file = delegated("f");
    first_way->says = nfsstat4::bad_stateid;
    BOOST_TEST(call3<v3::WRITE3res>(v3::procedure::write, writing(file)).status == v3::nfsstat3::jukebox);
    BOOST_TEST(first_way->calls.size() > 1u);
    first_way->says = nfsstat4::ok;
    pass(3s, 100ms);
    const std::size_t heard = first_way->calls.size();
    pass(10s, 100ms);
    BOOST_TEST(first_way->calls.size() == heard);
    BOOST_TEST(give_back(first, file) == nfsstat4::ok);
    // The connection goes, and the client comes by another one.
    const auto again = delegated("g");
    first_way->is_open = false;
    BOOST_TEST(call3<v3::WRITE3res>(v3::procedure::write, writing(again)).status == v3::nfsstat3::jukebox);
    BOOST_TEST((flags(first) & seq4_status::cb_path_down) != 0u);
    auto third_way = std::make_shared<called_client>(pool);
    third_way->last = first_way->last;
    way = third_way;
    BIND_CONN_TO_SESSION4args bind;
    bind.sessid = first.session;
    bind.dir = channel_dir_from_client4::fore_or_both;
    BOOST_TEST(compound(bind).status() == nfsstat4::ok);
    pass(3s, 100ms);
    BOOST_TEST_REQUIRE(third_way->calls.size() == 1u);
    BOOST_CHECK(third_way->calls[0].id == again.res.delegation.stateid);
    // One that came back meanwhile is not asked for.
    third_way->says = nfsstat4::delay;
    const auto last = delegated("h");
    BOOST_TEST(call3<v3::WRITE3res>(v3::procedure::write, writing(last)).status == v3::nfsstat3::jukebox);
    BOOST_TEST(give_back(first, last) == nfsstat4::ok);
    pass(3s, 100ms);
    const std::size_t asked = third_way->calls.size();
    pass(5s, 100ms);
    BOOST_TEST(third_way->calls.size() == asked);
}

BOOST_FIXTURE_TEST_CASE(nothing_is_granted_while_a_change_is_under_way, fixture)
{
    begin();
    make("f");
    const auto file =
        second.open(wanting(second.opening("f", share4::access_read), share4::want_no_delegation));
    watched.holds = true;
    auto c = call_of<v3::WRITE3res>(v3::procedure::write, writing(file));
    tasks.spawn([&]() -> task<void> { (void)co_await dispatcher->dispatch(*c); });
    turns();
    BOOST_TEST_REQUIRE(watched.entered == 1);
    const auto contended = first.open(first.opening("f", share4::access_read));
    BOOST_TEST(contended.status == nfsstat4::ok);
    BOOST_TEST(contended.res.delegation.delegation_type == deleg::none);
    watched.holds = false;
    watched.go.set();
    turns();
    close(first, contended);
    BOOST_TEST(first.open(first.opening("f", share4::access_read)).res.delegation.delegation_type ==
               deleg::read);
}

// It began when nobody had state of any file, so it did not look whose its name is.
BOOST_FIXTURE_TEST_CASE(nothing_is_granted_while_a_name_is_changed, fixture)
{
    begin();
    const auto each = [&](const char* what, auto ask) {
        BOOST_TEST_CONTEXT(what)
        {
            make("f");
            make("other");
            BOOST_TEST_REQUIRE(!commons->state.has_any_state());
            watched.holds = true;
            watched.go.reset();
            const std::shared_ptr<memory_call> c = ask();
            BOOST_TEST_REQUIRE(watched.held == 1);
            const auto contended = first.open(first.opening("f", share4::access_read));
            BOOST_TEST(contended.status == nfsstat4::ok);
            BOOST_TEST(contended.res.delegation.delegation_type == deleg::none);
            watched.holds = false;
            watched.go.set();
            turns();
            BOOST_TEST(c->is_done);
            close(first, contended);
            // Afterwards there are delegations again, of another file and while a name of a third one is changed.
            const auto other = first.open(first.opening("other", share4::access_read));
            BOOST_TEST(other.res.delegation.delegation_type == deleg::read);
            make("third");
            watched.holds = true;
            watched.go.reset();
            const auto removing =
                begin3<v3::REMOVE3res>(v3::procedure::remove, v3::REMOVE3args{{root3(), "third"}});
            BOOST_TEST_REQUIRE(watched.held == 1);
            const auto unrelated = second.open(second.opening("other", share4::access_read));
            BOOST_TEST(unrelated.res.delegation.delegation_type == deleg::read);
            watched.holds = false;
            watched.go.set();
            turns();
            close(first, other);
            close(second, unrelated);
            BOOST_TEST(give_back(first, other) == nfsstat4::ok);
            BOOST_TEST(give_back(second, unrelated) == nfsstat4::ok);
        }
    };
    const REMOVE4args removing{"f"};
    const RENAME4args away{"f", "away"};
    const auto of_second = [&](const auto&... ops) {
        return nfs4_fixture::begin(second.sequence(), PUTROOTFH4args(), LOOKUP4args{"export"}, ops...);
    };
    each("3 create", [&] {
        v3::CREATE3args args;
        args.where = {root3(), "f"};
        args.obj_attributes.size = 0;
        return begin3<v3::CREATE3res>(v3::procedure::create, args);
    });
    each("3 remove",
         [&] { return begin3<v3::REMOVE3res>(v3::procedure::remove, v3::REMOVE3args{{root3(), "f"}}); });
    each("3 rename", [&] {
        return begin3<v3::RENAME3res>(v3::procedure::rename,
                                      v3::RENAME3args{{root3(), "f"}, {root3(), "away"}});
    });
    each("4 remove", [&] { return of_second(removing); });
    each("4 rename", [&] { return of_second(SAVEFH4args(), away); });
}

// The promise that all of this is for, over a random walk of two clients and a caller of version 3.
BOOST_FIXTURE_TEST_CASE(nobody_writes_while_another_holds_a_read_delegation, fixture)
{
    begin();
    std::array<client4*, 2> clients = {&first, &second};
    std::array<std::shared_ptr<called_client>, 2> ways = {first_way, second_way};
    struct holding {
        client4::opened file;
        bool recalled = false;
    };
    std::array<std::map<std::string, holding>, 2> held;
    const std::array<std::string, 2> names = {"a", "b"};
    for (const auto& name : names)
        make(name);
    int writes = 0, grants = 0;
    std::string target;
    int writer = -1;
    watched.before_a_write = [&] {
        ++writes;
        for (int i = 0; i < 2; ++i)
            if (i != writer)
                BOOST_TEST(held[std::size_t(i)].count(target) == 0u, "a write under a delegation");
    };
    std::mt19937 random(20);
    const auto drop = [&](std::size_t i, bool all) {
        for (const auto& call : ways[i]->calls)
            for (auto& [name, h] : held[i])
                h.recalled = h.recalled || h.file.res.delegation.stateid == call.id;
        ways[i]->calls.clear();
        for (auto it = held[i].begin(); it != held[i].end();) {
            if (it->second.recalled && (all || random() % 2 == 0)) {
                BOOST_TEST(give_back(*clients[i], it->second.file) == nfsstat4::ok);
                it = held[i].erase(it);
            } else {
                ++it;
            }
        }
    };
    for (int step = 0; step < 600; ++step) {
        const std::size_t i = random() % 2;
        client4& c = *clients[i];
        target = names[random() % 2];
        switch (random() % 4) {
        case 0:
            if (held[i].count(target) == 0) {
                const auto file = c.open(c.opening(target, share4::access_read));
                if (file.status != nfsstat4::ok)
                    break;
                if (file.res.delegation.delegation_type == deleg::read) {
                    held[i][target].file = file;
                    ++grants;
                }
                close(c, file);
            }
            break;
        case 1: {
            const auto file =
                c.open(wanting(c.opening(target, share4::access_write), share4::want_no_delegation));
            if (file.status != nfsstat4::ok)
                break;
            writer = int(i);
            BOOST_TEST(c.write(file, "x") == nfsstat4::ok);
            writer = -1;
            close(c, file);
            break;
        }
        case 2: {
            v3::WRITE3args args;
            answer4 out = c.call(PUTROOTFH4args(), LOOKUP4args{"export"},
                                 LOOKUP4args{std::string_view(target)}, GETFH4args());
            out.good<PUTROOTFH4res>();
            out.good<LOOKUP4res>();
            out.good<LOOKUP4res>();
            const auto handle = out.good<GETFH4res>();
            args.file = to_fh3(handle.object);
            args.count = 4;
            args.data.length = 4;
            args.data.inline_bytes = std::as_bytes(std::span("text", 4));
            (void)call3<v3::WRITE3res>(v3::procedure::write, args);
            break;
        }
        default:
            drop(i, false);
            if (random() % 4 == 0) { // a rest follows each recall
                drop(0, true);
                drop(1, true);
                pass(70s, 5s);
            }
            (void)flags(first);
            (void)flags(second);
        }
    }
    BOOST_TEST(writes > 50);
    BOOST_TEST(grants > 20);
    BOOST_TEST(stats().revocations.value() == 0u);
}

BOOST_FIXTURE_TEST_CASE(what_minor_version_2_changes_is_recalled_first, fixture)
{
    begin();
    minor = 2;
    make("source");
    const auto source = first.open(wanting(first.opening("source"), share4::want_no_delegation));
    BOOST_TEST(first.write(source, std::string(1 << 16, 's')) == nfsstat4::ok);
    const stateid4 anonymous = stateid4::anonymous();
    const std::string_view name = "a", value = "1";
    const auto each = [&](const char* what, auto ask, nfsstat4 in_the_end = nfsstat4::ok) {
        BOOST_TEST_CONTEXT(what)
        {
            const client4::opened file = delegated(what);
            const std::size_t before = first_way->calls.size();
            BOOST_TEST(ask(client4::handle_of(file)) == nfsstat4::delay);
            BOOST_TEST(first_way->calls.size() == before + 1);
            BOOST_TEST(give_back(first, file) == nfsstat4::ok);
            BOOST_TEST(ask(client4::handle_of(file)) == in_the_end);
        }
    };
    each("allocate",
         [&](auto fh) { return second.call(PUTFH4args{fh}, ALLOCATE4args{anonymous, 0, 10}).status(); });
    each("deallocate",
         [&](auto fh) { return second.call(PUTFH4args{fh}, DEALLOCATE4args{anonymous, 0, 10}).status(); });
    each("copy", [&](auto fh) {
        COPY4args args;
        args.src_stateid = args.dst_stateid = anonymous;
        args.consecutive = args.synchronous = true;
        return second.call(PUTFH4args{client4::handle_of(source)}, SAVEFH4args(), PUTFH4args{fh}, args)
            .status();
    });
    each("clone", [&](auto fh) {
        return second
            .call(PUTFH4args{client4::handle_of(source)}, SAVEFH4args(), PUTFH4args{fh},
                  CLONE4args{anonymous, anonymous, 0, 0, 0})
            .status();
    });
    each("setxattr", [&](auto fh) {
        SETXATTR4args args;
        args.name = name;
        args.value = std::as_bytes(std::span(value));
        return second.call(PUTFH4args{fh}, args).status();
    });
    each(
        "removexattr", [&](auto fh) { return second.call(PUTFH4args{fh}, REMOVEXATTR4args{name}).status(); },
        nfsstat4::noxattr);
    // What is read alone a read delegation does not mind.
    const client4::opened file = delegated("looked_at");
    const std::size_t before = first_way->calls.size();
    const PUTFH4args there{client4::handle_of(file)};
    BOOST_TEST(second.call(there, SEEK4args{anonymous, 0, data_content4::hole}).status() == nfsstat4::nxio);
    BOOST_TEST(second.call(there, GETXATTR4args{name}).status() == nfsstat4::noxattr);
    BOOST_TEST(second.call(there, LISTXATTRS4args{0, 1000}).status() == nfsstat4::ok);
    BOOST_TEST(first_way->calls.size() == before);
}

// As with a write: a delegation that is granted meanwhile would not be recalled for it.
// EXCLUSIVE4_1 sets the attributes in a step of its own, and by then all see the file.
BOOST_FIXTURE_TEST_CASE(an_exclusive_creation_is_under_way, fixture)
{
    class slow_setting final : public storage::gated_backend {
    public:
        using gated_backend::gated_backend;
        bool gates(storage::operation op) const noexcept override
        {
            return op == storage::operation::setattr;
        }
        task<result<void>> enter(storage::operation, const storage::request&, std::uint64_t) override
        {
            if (holds) {
                ++held;
                (void)co_await go.wait();
                --held;
            }
            co_return result<void>();
        }
        bool holds = true;
        int held = 0;
        event go;
    };
    slow_setting slow(*files);
    options[0].backend = &slow;
    begin();
    OPEN4args creating = second.creating("f", createmode4::exclusive4_1);
    creating.share_access = share4::access_read | share4::want_no_delegation;
    const auto c = nfs4_fixture::begin(second.sequence(), PUTROOTFH4args(), LOOKUP4args{"export"}, creating);
    BOOST_TEST_REQUIRE(slow.held == 1);
    const auto contended = first.open(first.opening("f", share4::access_read));
    BOOST_TEST(contended.status == nfsstat4::ok);
    BOOST_TEST(contended.res.delegation.delegation_type == deleg::none);
    slow.holds = false;
    slow.go.set();
    turns();
    BOOST_TEST_REQUIRE(c->is_done);
    BOOST_TEST(answer_of(*c).status() == nfsstat4::ok);
    close(first, contended);
    // Whoever repeats the creation sets the attributes again, and others' delegations go first.
    const auto file = first.open(first.opening("f", share4::access_read));
    BOOST_TEST_REQUIRE(file.res.delegation.delegation_type == deleg::read);
    const std::size_t before = first_way->calls.size();
    BOOST_TEST(second.open(creating).status == nfsstat4::delay);
    BOOST_TEST(first_way->calls.size() == before + 1);
    BOOST_TEST(give_back(first, file) == nfsstat4::ok);
    BOOST_TEST(second.open(creating).status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(nothing_is_granted_while_minor_version_2_changes_a_file, fixture)
{
    class looked_at final : public storage::gated_backend {
    public:
        using gated_backend::gated_backend;
        bool gates(storage::operation op) const noexcept override
        {
            return op >= storage::operation::allocate && op != storage::operation::getxattr &&
                   op != storage::operation::listxattrs;
        }
        task<result<void>> enter(storage::operation, const storage::request&, std::uint64_t) override
        {
            ++entered;
            held += commons->state.operations().is_changed(file) ? 1 : 0;
            co_return result<void>();
        }
        server_commons* commons = nullptr;
        storage::handle file;
        int entered = 0;
        int held = 0;
    };
    looked_at looking(*files);
    options[0].backend = &looking;
    begin();
    minor = 2;
    looking.commons = &*commons;
    const auto file = first.open(first.creating("f"));
    const auto to = first.open(first.creating("to"));
    const std::string text(1 << 16, 'x');
    BOOST_TEST(first.write(file, text) == nfsstat4::ok);
    const auto look_at = [&](std::string_view name) {
        storage::request root;
        root.who = storage::credential(0, 0);
        const auto found = run_until_complete(*shard, files->lookup(root, files->root(), name));
        BOOST_REQUIRE(found);
        looking.file = files::file_key(exports.all()[0].id, found->found.handle);
    };
    const auto call = [&](const auto& args) {
        return first
            .call(PUTFH4args{client4::handle_of(file)}, SAVEFH4args(), PUTFH4args{client4::handle_of(to)},
                  args)
            .status();
    };
    look_at("to");
    BOOST_TEST(call(ALLOCATE4args{to.id, 0, 10}) == nfsstat4::ok);
    BOOST_TEST(call(DEALLOCATE4args{to.id, 0, 10}) == nfsstat4::ok);
    COPY4args copy;
    copy.src_stateid = file.id;
    copy.dst_stateid = to.id;
    BOOST_TEST(call(copy) == nfsstat4::ok);
    BOOST_TEST(call(CLONE4args{file.id, to.id, 0, 0, 0}) == nfsstat4::ok);
    SETXATTR4args set;
    set.name = "a";
    BOOST_TEST(call(set) == nfsstat4::ok);
    BOOST_TEST(call(REMOVEXATTR4args{"a"}) == nfsstat4::ok);
    BOOST_TEST(looking.entered == 6);
    BOOST_TEST(looking.held == 6);
}

// As a reload does that keeps a client out: it can't give anything back any more, and others would wait for that.
BOOST_FIXTURE_TEST_CASE(whom_an_export_keeps_out_has_no_delegation_of_it, fixture)
{
    begin();
    make("f");
    const auto mine = first.open(first.opening("f", share4::access_read));
    const auto theirs = second.open(second.opening("f", share4::access_read));
    BOOST_TEST_REQUIRE(mine.res.delegation.delegation_type == deleg::read);
    BOOST_TEST_REQUIRE(theirs.res.delegation.delegation_type == deleg::read);
    const auto take = [&](std::uint32_t via) {
        files::state_table::export_losses lost;
        std::size_t place = 0;
        while (commons->state.table().drop_export(
            via, files::state_table::export_state::delegations, place, lost,
            [](const files::client_label& who) { return who.name == "first"; })) {
        }
        return lost.delegations + lost.opens * 100;
    };
    const std::uint32_t id = exports.all()[0].id;
    BOOST_TEST(take(id + 1) == 0u); // of another export
    BOOST_TEST(take(id) == 1u);
    BOOST_TEST(stats().read_delegations.value() == 1);
    pass(2s, 1s);
    const auto told = [&](client4& c) {
        const auto res = compound(c.sequence()).good<SEQUENCE4res>();
        constexpr std::uint32_t losses = seq4_status::expired_some_state_revoked |
                                         seq4_status::admin_state_revoked |
                                         seq4_status::recallable_state_revoked;
        return res.status_flags & losses;
    };
    BOOST_TEST(told(first) == seq4_status::admin_state_revoked);
    BOOST_TEST(told(second) == 0u);
    // Though it is gone already its client hears of it at once, and once.
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    BOOST_CHECK(first_way->calls[0].operation == nfs_cb_opnum4::recall);
    BOOST_CHECK(first_way->calls[0].id == mine.res.delegation.stateid);
    BOOST_TEST(second_way->calls.empty());
    BOOST_TEST(give_back(first, mine) == nfsstat4::admin_revoked);
    BOOST_TEST(told(first) == seq4_status::admin_state_revoked); // that frees nothing
    BOOST_TEST(first.read(mine, mine.id) == "");                 // its open stays
    BOOST_TEST(give_back(second, theirs) == nfsstat4::ok);
    const stateid4 lost = mine.res.delegation.stateid;
    BOOST_TEST(second.call(FREE_STATEID4args{lost}).status() == nfsstat4::bad_stateid); // another client's
    BOOST_TEST(first.call(FREE_STATEID4args{lost}).status() == nfsstat4::ok);
    BOOST_TEST(told(first) == 0u);
    BOOST_TEST(first.call(FREE_STATEID4args{lost}).status() == nfsstat4::bad_stateid);
    pass(2s, 1s);
    BOOST_TEST(told(first) == 0u);
}

// It would repair what it is told for ever.
BOOST_FIXTURE_TEST_CASE(who_frees_nothing_is_told_for_a_lease_what_went_with_an_export, fixture)
{
    begin();
    const auto mine = first.open(wanting(first.creating("f"), share4::want_no_delegation));
    BOOST_TEST_REQUIRE(mine.status == nfsstat4::ok);
    files::state_table::export_losses lost;
    std::size_t place = 0;
    while (commons->state.table().drop_export(exports.all()[0].id, files::state_table::export_state::all,
                                              place, lost)) {
    }
    BOOST_TEST(lost.opens == 1u);
    pass(2s, 1s);
    const auto is_told = [&] {
        const auto res = compound(first.sequence()).good<SEQUENCE4res>();
        return (res.status_flags & seq4_status::admin_state_revoked) != 0;
    };
    const duration lease = commons->state.options().lease;
    for (duration t{}; t < lease; t += 10s) {
        BOOST_TEST(is_told());
        pass(10s, 1s);
    }
    pass(2s, 1s);
    BOOST_TEST(is_told() == false);
    // What it has lost it hears all the same.
    const std::array<stateid4, 1> asked{mine.id};
    TEST_STATEID4args testing;
    testing.stateids = std::span<const stateid4>(asked);
    answer4 tested = first.call(testing);
    int told = 0;
    for (const nfsstat4 status : tested.good<TEST_STATEID4res>().status_codes) {
        BOOST_TEST(status == nfsstat4::admin_revoked);
        ++told;
    }
    BOOST_TEST(told == 1);
    BOOST_TEST(first.call(FREE_STATEID4args{mine.id}).status() == nfsstat4::ok);
}

// One that does not know the delegation any more is asked no second time.
BOOST_FIXTURE_TEST_CASE(a_recall_of_what_went_with_an_export_ends_with_any_answer, fixture)
{
    begin();
    make("f");
    const auto mine = first.open(first.opening("f", share4::access_read));
    BOOST_TEST_REQUIRE(mine.res.delegation.delegation_type == deleg::read);
    first_way->says = nfsstat4::bad_stateid;
    files::state_table::export_losses lost;
    std::size_t place = 0;
    while (commons->state.table().drop_export(exports.all()[0].id, files::state_table::export_state::all,
                                              place, lost)) {
    }
    pass(60s, 1s);
    BOOST_TEST(first_way->calls.size() == 1u);
}

namespace {

/// The first client has delegations of more files than it is called about at once, and loses them with the export.
struct losing_fixture : fixture {
    void lose_many()
    {
        for (int i = 0; i < 9; ++i)
            (void)delegated("f" + std::to_string(i));
        files::state_table::export_losses lost;
        std::size_t place = 0;
        while (commons->state.table().drop_export(
            exports.all()[0].id, files::state_table::export_state::delegations, place, lost)) {
        }
        BOOST_TEST(lost.delegations == 9u);
        BOOST_TEST(stats().read_delegations.value() == 0);
    }
    std::uint64_t counted(callback_counters::outcome how) const
    {
        return commons->callbacks.counters()
            .calls[std::size_t(callback_counters::kind::recall)][std::size_t(how)]
            .value();
    }
    std::int64_t waiting() const { return commons->callbacks.counters().waiting.value(); }
};

} // namespace

// Recalls that others wait for would stand behind these.
BOOST_FIXTURE_TEST_CASE(who_can_t_be_called_is_not_called_later_for_what_went_with_an_export, losing_fixture)
{
    begin();
    make("g");
    lose_many();
    first_way->is_open = false;
    pass(1s, 10ms);
    BOOST_TEST(counted(callback_counters::outcome::unreachable) == 9u);
    BOOST_TEST(waiting() == 0);
    first_way->is_open = true;
    (void)first.call();
    const auto mine = first.open(first.opening("g", share4::access_read));
    BOOST_TEST_REQUIRE(mine.res.delegation.delegation_type == deleg::read);
    BOOST_TEST(second.open(second.opening("g")).status == nfsstat4::delay);
    pass(3s, 10ms);
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    BOOST_CHECK(first_way->calls[0].id == mine.res.delegation.stateid);
}

BOOST_FIXTURE_TEST_CASE(a_client_that_was_ended_is_not_told_what_went_with_an_export, losing_fixture)
{
    begin();
    lose_many();
    first_way->silent = true;
    pass(1s, 10ms);
    BOOST_TEST(first_way->calls.size() == 1u); // three wait for its slot, and five for these
    run_until_complete(*shard, [&]() -> task<void> {
        (void)co_await commons->evicted.end(text_of_client(first.id), duration::zero());
    }());
    pass(60s, 100ms);
    BOOST_TEST(first_way->calls.size() == 4u);
    BOOST_TEST(counted(callback_counters::outcome::unreachable) == 0u);
    BOOST_TEST(waiting() == 0);
}

// The reload may have been there before the delegation was.
BOOST_FIXTURE_TEST_CASE(an_open_that_a_reload_comes_between_brings_no_delegation, fixture)
{
    class slow_opening final : public storage::gated_backend {
    public:
        using gated_backend::gated_backend;
        bool gates(storage::operation op) const noexcept override { return op == storage::operation::open; }
        task<result<void>> enter(storage::operation, const storage::request&, std::uint64_t) override
        {
            if (holds) {
                ++held;
                (void)co_await go.wait();
                --held;
            }
            co_return result<void>();
        }
        bool holds = false;
        int held = 0;
        event go;
    };
    slow_opening slow(*files);
    options[0].backend = &slow;
    begin();
    make("f");
    slow.holds = true;
    const auto c = nfs4_fixture::begin(second.sequence(), PUTROOTFH4args(), LOOKUP4args{"export"},
                                       second.opening("f", share4::access_read));
    BOOST_TEST_REQUIRE(slow.held == 1);
    const auto list = std::make_shared<nfs::export_list>(*exports.newest(), 1);
    for (const nfs::export_options& each : exports.all())
        BOOST_REQUIRE(list->add(each));
    exports.publish(list, 0);
    slow.holds = false;
    slow.go.set();
    turns();
    BOOST_TEST_REQUIRE(c->is_done);
    BOOST_TEST(answer_of(*c).status() == nfsstat4::ok);
    BOOST_TEST(stats().read_delegations.value() == 0);
    BOOST_TEST(stats().opens.value() == 1);
    // The next one does.
    const auto file = first.open(first.opening("f", share4::access_read));
    BOOST_TEST(file.res.delegation.delegation_type == deleg::read);
}

BOOST_AUTO_TEST_SUITE_END()
