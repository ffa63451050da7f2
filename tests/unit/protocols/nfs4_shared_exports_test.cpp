// SPDX-License-Identifier: Apache-2.0
// Two exports of one tree: they share what clients have open, locked and delegated, and each keeps to its own rules.
#include "nfs4_kept_store.hpp"
#include "nfs4_version3.hpp"

#include <verbena/protocols/storage/forwarding_backend.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

BOOST_AUTO_TEST_SUITE(nfs4_shared_exports_test)

using namespace verbena;
using namespace verbena::test;
using deleg = open_delegation_type4;

namespace {

/// Stands for the back end of one export. It must never be given an open_file that it has not made.
class jealous_files final : public storage::forwarding_backend {
public:
    using forwarding_backend::forwarding_backend;

    task<result<storage::opened_file>> open(const storage::request& r, const storage::handle& file,
                                            unsigned wanted, storage::open_right right) override
    {
        auto opening = forwarding_backend::open(r, file, wanted, right);
        auto got = co_await opening;
        if (got)
            made.push_back(got->file);
        co_return got;
    }
    task<result<storage::read_result>> read(const storage::request& r, const storage::handle& file,
                                            std::uint64_t offset, std::span<std::byte> out) override
    {
        look(r);
        return forwarding_backend::read(r, file, offset, out);
    }
    task<result<storage::write_result>> write(const storage::request& r, const storage::handle& file,
                                              std::uint64_t offset,
                                              std::span<const std::span<const std::byte>> data,
                                              storage::stability how) override
    {
        look(r);
        return forwarding_backend::write(r, file, offset, data, how);
    }
    task<result<storage::change>> setattr(const storage::request& r, const storage::handle& file,
                                          const storage::set_attributes& set,
                                          std::optional<storage::file_time> guard) override
    {
        look(r);
        return forwarding_backend::setattr(r, file, set, guard);
    }
    std::vector<std::shared_ptr<const storage::open_file>>
        made; // kept, so that none has another one's address
    int by_open = 0;

private:
    void look(const storage::request& r)
    {
        if (r.open == nullptr)
            return;
        ++by_open;
        const auto is_it = [&r](const auto& each) { return each.get() == r.open; };
        BOOST_TEST(std::ranges::any_of(made, is_it), "another back end's open_file");
    }
};

struct fixture : version3_fixture {
    fixture()
    {
        options[0].backend = &one;
        options[0].local_writers = false;
        second_export = &add("/again", again);
        second_export->local_writers = false;
        first_way = channel;
        second_way = std::make_shared<called_client>(pool);
    }
    ~fixture()
    {
        tasks.request_stop();
        while (tasks.live() != 0)
            shard->turn();
    }
    void connect_both()
    {
        connect(first);
        way = second_way;
        connect(second);
    }
    void ready()
    {
        connect_both();
        add_version3();
        tend();
    }
    /// By the export that is called so.
    client4::opened open(client4& c, std::string_view where, const OPEN4args& args)
    {
        answer4 out = c.call(PUTROOTFH4args(), LOOKUP4args{where}, args, GETFH4args());
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        client4::opened made;
        made.res = out.take<OPEN4res>();
        made.status = made.res.status;
        if (made.status == nfsstat4::ok) {
            made.id = made.res.stateid;
            const auto handle = out.good<GETFH4res>();
            made.handle.assign(handle.object.begin(), handle.object.end());
        }
        return made;
    }
    static OPEN4args plain(OPEN4args args)
    {
        args.share_access |= share4::want_no_delegation;
        return args;
    }
    static void close(client4& c, const client4::opened& file)
    {
        BOOST_TEST(c.call(PUTFH4args{client4::handle_of(file)}, CLOSE4args{0, file.id}).status() ==
                   nfsstat4::ok);
    }
    void make(std::string_view name)
    {
        const auto made = open(second, "export", plain(second.creating(name)));
        BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
        close(second, made);
    }
    /// The same file, as clients of another export know it.
    client4::opened by(std::string_view pseudo, const client4::opened& file) const
    {
        const auto opened = nfs::open_handle(key, client4::handle_of(file));
        BOOST_REQUIRE(opened);
        const auto made = nfs::sign_handle(key, nfs::export_id_of(pseudo), opened->inner);
        BOOST_REQUIRE(made);
        client4::opened out = file;
        out.handle.assign(made->bytes().begin(), made->bytes().end());
        return out;
    }
    static nfsstat4 give_back(client4& c, const client4::opened& file)
    {
        return c.call(PUTFH4args{client4::handle_of(file)}, DELEGRETURN4args{file.res.delegation.stateid})
            .status();
    }
    nfsstat4 lock(client4& c, const client4::opened& file, std::string_view owner,
                  nfs_lock_type4 type = nfs_lock_type4::write, stateid4* id = nullptr)
    {
        LOCK4args args;
        args.locktype = type;
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
    /// The call is done, and its last operation answered so.
    static nfsstat4 status_of(memory_call& c)
    {
        BOOST_TEST_REQUIRE(c.is_done);
        return answer_of(c).status();
    }
    const verbena::files::state_stats& stats() { return commons->state.table().stats(); }

    jealous_files one{*files}, again{*files};
    nfs::export_options* second_export = nullptr;
    client4 first{*this, "first"};
    client4 second{*this, "second"};
    std::shared_ptr<called_client> first_way, second_way;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(what_one_denies_the_other_denies, fixture)
{
    ready();
    OPEN4args denying = plain(first.creating("f"));
    denying.share_deny = share4::deny_write;
    const auto held = open(first, "export", denying);
    BOOST_TEST_REQUIRE(held.status == nfsstat4::ok);
    BOOST_TEST(open(second, "again", plain(second.opening("f"))).status == nfsstat4::share_denied);
    const auto reads = open(second, "again", plain(second.opening("f", share4::access_read)));
    BOOST_TEST_REQUIRE(reads.status == nfsstat4::ok);
    // Nor is it written by those without an open, of either version.
    const auto by_other = by("/again", held);
    BOOST_TEST(second.write(by_other, "text", stateid4()) == nfsstat4::locked);
    BOOST_TEST(call3<v3::WRITE3res>(v3::procedure::write, writing(by_other)).status == v3::nfsstat3::acces);
    close(second, reads);
    close(first, held);
    BOOST_TEST(call3<v3::WRITE3res>(v3::procedure::write, writing(by_other)).status == v3::nfsstat3::ok);
    BOOST_TEST(stats().files.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(what_is_open_is_not_removed_by_the_other, fixture)
{
    ready();
    OPEN4args denying = plain(first.creating("f"));
    denying.share_deny = share4::deny_write;
    const auto held = open(first, "export", denying);
    BOOST_TEST_REQUIRE(held.status == nfsstat4::ok);
    BOOST_TEST(second.call(PUTROOTFH4args(), LOOKUP4args{"again"}, REMOVE4args{"f"}).status() ==
               nfsstat4::file_open);
    close(first, held);
    BOOST_TEST(second.call(PUTROOTFH4args(), LOOKUP4args{"again"}, REMOVE4args{"f"}).status() ==
               nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(bytes_that_one_has_locked_are_locked_for_the_other, fixture)
{
    ready();
    const auto held = open(first, "export", plain(first.creating("f")));
    const auto wanted = open(second, "again", plain(second.opening("f")));
    stateid4 id;
    BOOST_TEST_REQUIRE(lock(first, held, "holder", nfs_lock_type4::write, &id) == nfsstat4::ok);
    LOCKT4args test;
    test.locktype = nfs_lock_type4::read;
    test.length = 10;
    test.owner.owner = std::as_bytes(std::span("waiter", 6));
    BOOST_TEST(second.call(PUTFH4args{client4::handle_of(wanted)}, test).status() == nfsstat4::denied);
    BOOST_TEST(lock(second, wanted, "waiter", nfs_lock_type4::writew) == nfsstat4::denied);
    BOOST_TEST(unlock(first, held, id) == nfsstat4::ok);
    turns();
    // It is told by the handle that it has asked with.
    BOOST_TEST_REQUIRE(second_way->calls.size() == 1u);
    BOOST_TEST(second_way->calls[0].operation == nfs_cb_opnum4::notify_lock);
    BOOST_TEST(second_way->calls[0].handle == wanted.handle);
    BOOST_TEST(lock(second, wanted, "waiter", nfs_lock_type4::writew) == nfsstat4::ok);
}

// Whoever holds the delegation is called by the handle that it knows, whichever way the other one comes.
BOOST_FIXTURE_TEST_CASE(a_delegation_is_recalled_for_the_other_export, fixture)
{
    ready();
    struct {
        std::string_view file, holder, other;
    } const rows[] = {{"f", "export", "/again"}, {"g", "again", "/export"}};
    for (const auto& row : rows) {
        make(row.file);
        first_way->calls.clear();
        const auto held = open(first, row.holder, first.opening(row.file));
        BOOST_TEST_REQUIRE(held.res.delegation.delegation_type == deleg::write);
        close(first, held);
        const auto writes = begin3<v3::WRITE3res>(v3::procedure::write, writing(by(row.other, held)));
        BOOST_TEST(!writes->is_done);
        BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
        BOOST_TEST(first_way->calls[0].operation == nfs_cb_opnum4::recall);
        BOOST_TEST(first_way->calls[0].handle == held.handle);
        BOOST_TEST(give_back(first, held) == nfsstat4::ok);
        turns();
        BOOST_TEST_REQUIRE(writes->is_done);
        BOOST_TEST(answer3<v3::WRITE3res>(*writes).status == v3::nfsstat3::ok);
    }
}

BOOST_FIXTURE_TEST_CASE(a_holder_is_asked_for_attributes_by_its_own_handle, fixture)
{
    ready();
    make("f");
    const auto held = open(first, "export", first.opening("f"));
    BOOST_TEST_REQUIRE(held.res.delegation.delegation_type == deleg::write);
    first_way->values.present = {attribute::change, attribute::size};
    first_way->values.change = 1;
    first_way->values.size = 77;
    answer4 out = second.call(PUTFH4args{client4::handle_of(by("/again", held))},
                              GETATTR4args{bitmap4{attribute::size}});
    BOOST_TEST_REQUIRE(out.status() == nfsstat4::ok);
    out.good<PUTFH4res>();
    attributes seen;
    BOOST_TEST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, seen));
    BOOST_TEST(seen.size == 77u);
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    BOOST_TEST(first_way->calls[0].operation == nfs_cb_opnum4::getattr);
    BOOST_TEST(first_way->calls[0].handle == held.handle);
}

// The open_file behind a stateid is of one back end, for the user that the client is there.
BOOST_FIXTURE_TEST_CASE(a_stateid_is_good_by_its_own_export_alone, fixture)
{
    ready();
    make("f");
    const auto mine = open(first, "export", first.opening("f"));
    BOOST_TEST_REQUIRE(mine.res.delegation.delegation_type == deleg::write);
    stateid4 locked;
    BOOST_TEST_REQUIRE(lock(first, mine, "owner", nfs_lock_type4::write, &locked) == nfsstat4::ok);
    BOOST_TEST(first.write(mine, "text") == nfsstat4::ok);
    BOOST_TEST(one.by_open > 0);
    const auto by_other = by("/again", mine);
    attributes empty;
    empty.present = {attribute::size};
    const encoded said(empty);
    SETATTR4args cut;
    cut.obj_attributes = said.raw;
    for (const stateid4& id : {mine.id, locked, mine.res.delegation.stateid}) {
        BOOST_TEST(first.write(by_other, "lost", id) == nfsstat4::bad_stateid);
        BOOST_TEST(first.read(by_other, id) == to_string(nfsstat4::bad_stateid));
        cut.stateid = id;
        BOOST_TEST(first.call(PUTFH4args{client4::handle_of(by_other)}, cut).status() ==
                   nfsstat4::bad_stateid);
    }
    BOOST_TEST(unlock(first, by_other, locked) == nfsstat4::bad_stateid);
    BOOST_TEST(lock(first, by_other, "another") == nfsstat4::bad_stateid);
    BOOST_TEST(first.call(PUTFH4args{client4::handle_of(by_other)}, CLOSE4args{0, mine.id}).status() ==
               nfsstat4::bad_stateid);
    BOOST_TEST(give_back(first, by("/again", mine)) == nfsstat4::bad_stateid);
    BOOST_TEST(again.by_open == 0);
    BOOST_TEST(first.read(mine, mine.id) == "text");
}

// One owner's name, two exports: two opens, each with an open_file of its own.
BOOST_FIXTURE_TEST_CASE(an_owner_opens_by_each_export, fixture)
{
    ready();
    make("f");
    const auto mine = open(first, "export", plain(first.opening("f")));
    const auto as_well = open(first, "again", plain(first.opening("f")));
    BOOST_TEST_REQUIRE((mine.status == nfsstat4::ok && as_well.status == nfsstat4::ok));
    BOOST_TEST((mine.id.other != as_well.id.other));
    BOOST_TEST(first.write(mine, "mine") == nfsstat4::ok);
    BOOST_TEST(first.write(as_well, "well") == nfsstat4::ok);
    BOOST_TEST((one.by_open == 1 && again.by_open == 1));
    close(first, mine);
    BOOST_TEST(first.read(as_well, as_well.id) == "well");
    close(first, as_well);
}

BOOST_FIXTURE_TEST_CASE(an_export_that_is_read_only_stays_so, fixture)
{
    second_export->read_only = true;
    ready();
    make("f");
    const auto writes = open(first, "export", plain(first.opening("f")));
    BOOST_TEST(open(first, "again", plain(first.opening("f"))).status == nfsstat4::rofs);
    const auto reads = open(first, "again", plain(first.opening("f", share4::access_read)));
    BOOST_TEST_REQUIRE((writes.status == nfsstat4::ok && reads.status == nfsstat4::ok));
    BOOST_TEST(first.write(reads, "text", writes.id) == nfsstat4::rofs);
    BOOST_TEST(first.write(writes, "text", reads.id) == nfsstat4::bad_stateid);
    BOOST_TEST(first.write(writes, "text") == nfsstat4::ok);
    BOOST_TEST(first.read(reads, reads.id) == "text");
    const auto by_other = writing(by("/again", writes));
    BOOST_TEST(call3<v3::WRITE3res>(v3::procedure::write, by_other).status == v3::nfsstat3::rofs);
}

// The client keeps two caches of the file, and does not know that.
BOOST_FIXTURE_TEST_CASE(ones_own_delegation_by_the_other_export_is_recalled, fixture)
{
    ready();
    make("f");
    const auto held = open(first, "export", first.opening("f"));
    BOOST_TEST_REQUIRE(held.res.delegation.delegation_type == deleg::write);
    close(first, held);
    const auto opens =
        begin(first.sequence(1), PUTROOTFH4args(), LOOKUP4args{"again"}, plain(first.opening("f")));
    BOOST_TEST(!opens->is_done);
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    BOOST_TEST(first_way->calls[0].operation == nfs_cb_opnum4::recall);
    BOOST_TEST(first_way->calls[0].handle == held.handle);
    BOOST_TEST(give_back(first, held) == nfsstat4::ok);
    turns();
    BOOST_TEST(status_of(*opens) == nfsstat4::ok);
}

// A file that is gone by name is found by its delegation, in the export that this is of.
BOOST_FIXTURE_TEST_CASE(what_is_gone_by_name_is_found_by_its_own_export, fixture)
{
    ready();
    make("f");
    const auto held = open(first, "again", first.opening("f"));
    BOOST_TEST_REQUIRE(held.res.delegation.delegation_type == deleg::write);
    storage::request root;
    root.who = storage::credential(0, 0);
    BOOST_REQUIRE(run_until_complete(*shard, files->remove(root, files->root(), "f")));
    OPEN4args args = first.opening("f");
    args.claim.claim = open_claim_type4::delegate_cur;
    args.claim.delegate_stateid = held.res.delegation.stateid;
    BOOST_TEST(open(first, "export", args).status == nfsstat4::noent);
    const auto opened = open(first, "again", args);
    BOOST_TEST_REQUIRE(opened.status == nfsstat4::ok);
    BOOST_TEST(opened.handle == held.handle);
}

namespace {

struct restarted_fixture : fixture {
    restarted_fixture() { store = &kept; }
    /// As by a kill. `names` are the exports that there are then.
    void restart(const std::vector<std::string>& names)
    {
        program.reset();
        commons.reset();
        std::erase_if(options,
                      [&](const auto& e) { return std::ranges::find(names, e.pseudo) == names.end(); });
        exports = nfs::export_table();
        ++begun.epoch;
        begun.reclaimers = kept.reclaimers();
        begun.lease_before = 90s;
        start();
    }
    void come_back(client4& c)
    {
        answer4 known = compound(c.exchange());
        const auto exchanged = known.good<EXCHANGE_ID4res>();
        c.id = exchanged.clientid;
        c.create_sequence = exchanged.sequenceid;
        c.open_session();
    }
    static client4::opened open_again(client4& c, const client4::opened& before, std::uint32_t access,
                                      std::uint32_t deny)
    {
        OPEN4args args = c.opening("", access, deny);
        args.claim.claim = open_claim_type4::previous;
        args.claim.delegate_type = deleg::none;
        answer4 out = c.call(PUTFH4args{client4::handle_of(before)}, args);
        client4::opened made = before;
        made.status = out.status();
        if (made.status == nfsstat4::ok) {
            out.good<PUTFH4res>();
            made.id = out.good<OPEN4res>().stateid;
        }
        return made;
    }
    kept_store kept;
};

} // namespace

// Which export has given the tree its number is forgotten with the start: who comes back has its handle.
BOOST_FIXTURE_TEST_CASE(what_is_reclaimed_counts_for_all_exports_that_are_left, restarted_fixture)
{
    connect_both();
    make("f");
    const auto mine =
        open(first, "again", plain(first.opening("f", share4::access_read, share4::deny_write)));
    const auto theirs = open(second, "again", plain(second.opening("f", share4::access_read)));
    BOOST_TEST_REQUIRE((mine.status == nfsstat4::ok && theirs.status == nfsstat4::ok));
    const std::uint32_t space = exports.by_id(nfs::export_id_of("/again"))->space;
    BOOST_TEST(space == nfs::export_id_of("/export"));
    // The first export is gone.
    restart({"/again", "/deep/other"});
    BOOST_TEST(exports.by_id(space) == nullptr);
    come_back(first);
    come_back(second);
    BOOST_TEST(open_again(first, mine, share4::access_read, share4::deny_write).status == nfsstat4::ok);
    BOOST_TEST(open_again(second, theirs, share4::access_write, share4::deny_none).status ==
               nfsstat4::reclaim_conflict);
    BOOST_TEST(open_again(second, theirs, share4::access_read, share4::deny_none).status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(a_reclaim_by_one_export_conflicts_with_one_by_the_other, restarted_fixture)
{
    connect_both();
    make("f");
    const auto mine =
        open(first, "export", plain(first.opening("f", share4::access_read, share4::deny_write)));
    const auto theirs = open(second, "again", plain(second.opening("f", share4::access_read)));
    BOOST_TEST_REQUIRE((mine.status == nfsstat4::ok && theirs.status == nfsstat4::ok));
    restart({"/export", "/again", "/deep/other"});
    come_back(first);
    come_back(second);
    BOOST_TEST(open_again(first, mine, share4::access_read, share4::deny_write).status == nfsstat4::ok);
    BOOST_TEST(open_again(second, theirs, share4::access_write, share4::deny_none).status ==
               nfsstat4::reclaim_conflict);
}

BOOST_FIXTURE_TEST_CASE(two_trees_share_nothing, fixture)
{
    ready();
    OPEN4args denying = plain(first.creating("f"));
    denying.share_deny = share4::deny_both;
    BOOST_TEST_REQUIRE(open(first, "export", denying).status == nfsstat4::ok);
    const auto deep = [&](const OPEN4args& args) {
        return second.call(PUTROOTFH4args(), LOOKUP4args{"deep"}, LOOKUP4args{"other"}, args).status();
    };
    OPEN4args elsewhere = plain(second.creating("f"));
    BOOST_TEST(deep(elsewhere) == nfsstat4::ok);
    const auto& all = exports.all();
    BOOST_TEST(all[0].space == all[2].space);
    BOOST_TEST(all[1].space == all[1].id);
}

BOOST_AUTO_TEST_SUITE_END()
