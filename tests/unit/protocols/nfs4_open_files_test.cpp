// SPDX-License-Identifier: Apache-2.0
// Who has a file open keeps it, whatever others do to its name and its mode, until he closes it. With raw COMPOUNDs, among them those that
// Linux closes and gives back by.
#include "../plugins/temporary_directory.hpp"
#include "busy_threads.hpp"
#include "nfs4_called_host.hpp"

#include <verbena/plugins/posixfs.hpp>

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>

#include <filesystem>

BOOST_AUTO_TEST_SUITE(nfs4_open_files_test)

using namespace verbena;
using namespace verbena::test;
namespace data = boost::unit_test::data;

namespace {

const auto back_ends = data::make({"memfs", "posixfs"});
const auto minors = data::make({0u, 2u});

struct opened {
    stateid4 id;
    std::vector<std::byte> handle;
    open_delegation4 delegation;
    PUTFH4args at() const { return {std::span<const std::byte>(handle)}; }
};

struct fixture : v40_fixture {
    fixture(const std::string& back_end, std::uint32_t minor_version, bool delegates = false,
            std::size_t most_kept = 0)
    {
        if (delegates) {
            options[0].local_writers = false;
            hosts = &called;
        }
        if (back_end == "posixfs") {
            shard->add(threads);
            posixfs::posixfs_options o;
            o.root = directory.path();
            o.leases = false;
            o.most_kept_files = most_kept;
            std::filesystem::permissions(directory.path(), std::filesystem::perms::all);
            auto made = posixfs::open_posixfs(o, work);
            BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
            on_disk = std::move(*made);
            options[0].backend = on_disk.get();
        }
        start();
        minor = minor_version;
        if (minor == 0) {
            first0.emplace(*this, "first");
            second0.emplace(*this, "second");
            first0->connect();
            second0->connect();
        } else {
            first4.connect();
            second4.connect();
        }
        answer4 out = by(first, PUTROOTFH4args(), LOOKUP4args{"export"}, GETFH4args());
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        const auto res = out.good<GETFH4res>();
        root.assign(res.object.begin(), res.object.end());
    }
    ~fixture()
    {
        tasks.request_stop();
        while (tasks.live() != 0)
            shard->turn();
        program.reset();
        commons.reset();
        on_disk.reset();
        work.finish();
        threads.unlink();
    }

    static constexpr bool first = true, second = false;
    template<class... Args>
    answer4 by(bool who, const Args&... args)
    {
        if (minor == 0)
            return compound(args...);
        answer4 out = compound((who == first ? first4 : second4).sequence(), args...);
        out.good<SEQUENCE4res>();
        return out;
    }
    PUTFH4args at_root() const { return {std::span<const std::byte>(root)}; }
    OPEN4args opening(bool who, std::string_view name, std::uint32_t access)
    {
        if (minor == 0)
            return (who == first ? *first0 : *second0).opening(name, access);
        return (who == first ? first4 : second4).opening(name, access);
    }
    result<opened> open(bool who, OPEN4args args)
    {
        if (minor == 0) {
            client0& c = who == first ? *first0 : *second0;
            client0::opened made = c.open(args);
            if (made.status == nfsstat4::ok && (made.rflags & open4_result::confirm) != 0)
                made.id = c.confirm(made).open_stateid;
            if (made.status != nfsstat4::ok)
                return error::from_errno(EACCES, "open");
            return opened{made.id, made.handle, made.delegation};
        }
        const client4::opened made = (who == first ? first4 : second4).open(args);
        if (made.status != nfsstat4::ok)
            return error::from_errno(EACCES, "open");
        return opened{made.id, made.handle, made.res.delegation};
    }
    opened create(bool who, std::string_view name, std::uint32_t mode = 0644)
    {
        OPEN4args args = opening(who, name, share4::access_both);
        args.openhow.opentype = opentype4::create;
        attributes set;
        set.mode = mode;
        set.present = {attribute::mode};
        const encoded with(set);
        args.openhow.attrs = with.raw;
        auto made = open(who, args);
        BOOST_REQUIRE(made);
        BOOST_TEST(this->set_mode(who, *made, mode) == nfsstat4::ok); // whatever this process's umask is
        return *made;
    }
    nfsstat4 write(bool who, const opened& f, std::string_view text, std::uint64_t offset = 0)
    {
        return by(who, f.at(), WRITE4args{f.id, offset, stable_how4::file_sync, bytes_of(text)}).status();
    }
    std::string read(bool who, const opened& f, stateid4 id)
    {
        answer4 out = by(who, f.at(), READ4args{id, 0, 100});
        if (out.status() != nfsstat4::ok)
            return to_string(out.status());
        out.good<PUTFH4res>();
        const auto res = out.good<READ4res>();
        return {reinterpret_cast<const char*>(res.data.inline_bytes.data()), res.data.inline_bytes.size()};
    }
    std::string read(bool who, const opened& f) { return read(who, f, f.id); }
    nfsstat4 remove(bool who, std::string_view name)
    {
        return by(who, at_root(), REMOVE4args{name}).status();
    }
    nfsstat4 rename(bool who, std::string_view from, std::string_view to)
    {
        return by(who, at_root(), SAVEFH4args(), at_root(), RENAME4args{from, to}).status();
    }
    nfsstat4 set(bool who, const opened& f, const stateid4& id, const attributes& values)
    {
        const encoded with(values);
        return by(who, f.at(), SETATTR4args{id, with.raw}).status();
    }
    nfsstat4 set_size(bool who, const opened& f, std::uint64_t size)
    {
        attributes values;
        values.size = size;
        values.present = {attribute::size, attribute::time_modify_set}; // as Linux truncates
        return set(who, f, f.id, values);
    }
    nfsstat4 set_mode(bool who, const opened& f, std::uint32_t mode)
    {
        attributes values;
        values.mode = mode;
        values.present = {attribute::mode};
        return set(who, f, stateid4::anonymous(), values);
    }
    /// By somebody who asks no table of states.
    void on_local_remove(std::string_view name)
    {
        storage::file_backend& files = *options[0].backend;
        storage::request r;
        r.who.uid = r.who.gid = 0;
        const storage::handle top = files.root();
        auto gone = run_until_complete(*shard, files.remove(r, top, name));
        BOOST_REQUIRE(gone);
    }
    /// As Linux closes.
    nfsstat4 close(bool who, const opened& f)
    {
        CLOSE4args args;
        args.open_stateid = f.id;
        if (minor == 0)
            args.seqid = ++(who == first ? first0 : second0)->seqid;
        return by(who, f.at(), GETATTR4args{{attribute::size, attribute::numlinks}}, args).status();
    }
    std::uint64_t links(const opened& f)
    {
        answer4 out = by(first, f.at(), GETATTR4args{{attribute::numlinks}});
        out.good<PUTFH4res>();
        const auto res = out.good<GETATTR4res>();
        attributes values;
        BOOST_TEST_REQUIRE(decode_attributes(res.obj_attributes, values));
        return values.numlinks;
    }
    std::uint64_t free_room()
    {
        answer4 out = by(first, at_root(), GETATTR4args{{attribute::space_free}});
        out.good<PUTFH4res>();
        const auto res = out.good<GETATTR4res>();
        attributes values;
        BOOST_TEST_REQUIRE(decode_attributes(res.obj_attributes, values));
        return values.space_free;
    }

    called_hosts called{pool};
    busy_threads threads;
    suite::temporary_directory directory;
    blocking_pool work{2};
    std::unique_ptr<storage::file_backend> on_disk;
    std::optional<client0> first0, second0;
    client4 first4{*this, "first"}, second4{*this, "second"};
    std::vector<std::byte> root;
};

} // namespace

BOOST_DATA_TEST_CASE(a_file_that_is_open_outlives_its_name, back_ends* minors, back_end, minor_version)
{
    fixture f(back_end, minor_version);
    const std::uint64_t room = f.free_room();
    const opened file = f.create(f.first, "file");
    BOOST_TEST(f.write(f.first, file, "old text") == nfsstat4::ok);
    BOOST_TEST(f.remove(f.second, "file") == nfsstat4::ok);
    BOOST_TEST(f.links(file) == 0u);
    BOOST_TEST(f.read(f.first, file) == "old text");
    BOOST_TEST(f.write(f.first, file, "new") == nfsstat4::ok);
    BOOST_TEST(f.read(f.first, file) == "new text");
    BOOST_TEST(f.by(f.first, file.at(), COMMIT4args{0, 0}).status() == nfsstat4::ok);
    BOOST_TEST(f.set_size(f.first, file, 3) == nfsstat4::ok);
    BOOST_TEST(f.read(f.first, file) == "new");
    // Its name is free meanwhile, and another file.
    const opened other = f.create(f.second, "file");
    BOOST_TEST(f.read(f.second, other) == "");
    BOOST_TEST(f.read(f.first, file) == "new");
    BOOST_TEST(f.close(f.first, file) == nfsstat4::ok);
    BOOST_TEST(f.by(f.first, file.at(), GETATTR4args{{attribute::size}}).status() == nfsstat4::stale);
    BOOST_TEST(f.close(f.second, other) == nfsstat4::ok);
    BOOST_TEST(f.remove(f.second, "file") == nfsstat4::ok);
    if (std::string(back_end) == "memfs")
        BOOST_TEST(f.free_room() == room);
    BOOST_TEST(f.commons->state.stats().opens.value() == 0);
    BOOST_TEST(f.commons->state.stats().files.value() == 0);
}

BOOST_DATA_TEST_CASE(a_file_that_is_open_outlives_a_rename_over_it, back_ends* minors, back_end,
                     minor_version)
{
    fixture f(back_end, minor_version);
    const opened file = f.create(f.first, "program");
    BOOST_TEST(f.write(f.first, file, "old program") == nfsstat4::ok);
    const opened better = f.create(f.second, "program.new");
    BOOST_TEST(f.write(f.second, better, "new program") == nfsstat4::ok);
    BOOST_TEST(f.rename(f.second, "program.new", "program") == nfsstat4::ok);
    BOOST_TEST(f.read(f.first, file) == "old program");
    BOOST_TEST(f.read(f.second, better) == "new program");
    BOOST_TEST(f.close(f.first, file) == nfsstat4::ok);
    BOOST_TEST(f.read(f.first, file, stateid4::anonymous()) == to_string(nfsstat4::stale));
    BOOST_TEST(f.close(f.second, better) == nfsstat4::ok);
}

// Two have it open, by any of whom it stays.
BOOST_DATA_TEST_CASE(the_last_close_ends_a_file_without_a_name, back_ends* minors, back_end, minor_version)
{
    fixture f(back_end, minor_version);
    const opened file = f.create(f.first, "file", 0666);
    BOOST_TEST(f.write(f.first, file, "text") == nfsstat4::ok);
    const auto also = f.open(f.second, f.opening(f.second, "file", share4::access_read));
    BOOST_REQUIRE(also);
    BOOST_TEST(f.remove(f.second, "file") == nfsstat4::ok);
    BOOST_TEST(f.close(f.first, file) == nfsstat4::ok);
    BOOST_TEST(f.read(f.second, *also) == "text");
    BOOST_TEST(f.close(f.second, *also) == nfsstat4::ok);
    BOOST_TEST(f.read(f.first, file, stateid4::anonymous()) == to_string(nfsstat4::stale));
}

// A client that begins anew has nothing open any more.
BOOST_DATA_TEST_CASE(a_client_that_begins_anew_keeps_no_file, back_ends, back_end)
{
    fixture f(back_end, 2);
    const opened file = f.create(f.first, "file");
    BOOST_TEST(f.write(f.first, file, "text") == nfsstat4::ok);
    BOOST_TEST(f.remove(f.second, "file") == nfsstat4::ok);
    BOOST_TEST(f.read(f.second, file, stateid4::anonymous()) == "text");
    client4 again(f, "first", 2);
    again.connect();
    BOOST_TEST(f.read(f.second, file, stateid4::anonymous()) == to_string(nfsstat4::stale));
}

BOOST_DATA_TEST_CASE(a_file_that_is_locked_outlives_its_name, back_ends* minors, back_end, minor_version)
{
    fixture f(back_end, minor_version);
    const opened file = f.create(f.first, "file");
    BOOST_TEST(f.write(f.first, file, "text") == nfsstat4::ok);
    LOCK4args lock;
    if (f.minor == 0) {
        lock = f.first0->locking({nfsstat4::ok, file.id, file.handle, 0, {}}, 0, 100);
    } else {
        lock.locktype = nfs_lock_type4::write;
        lock.length = 100;
        lock.locker.new_lock_owner = true;
        lock.locker.open_stateid = file.id;
        lock.locker.lock_owner.owner = bytes_of("owner");
    }
    answer4 out = f.by(f.first, file.at(), lock);
    out.good<PUTFH4res>();
    const stateid4 locked = out.good<LOCK4res>().lock_stateid;
    BOOST_TEST(f.remove(f.second, "file") == nfsstat4::ok);
    BOOST_TEST(f.read(f.first, file, locked) == "text");
    BOOST_TEST(
        f.by(f.first, file.at(), WRITE4args{locked, 0, stable_how4::unstable, bytes_of("next")}).status() ==
        nfsstat4::ok);
    const LOCKU4args unlock{nfs_lock_type4::write, f.minor == 0 ? 1u : 0u, locked, 0, 100};
    BOOST_TEST(f.by(f.first, file.at(), unlock).status() == nfsstat4::ok);
    BOOST_TEST(f.close(f.first, file) == nfsstat4::ok);
}

// He was let in when he opened it. Others, and he without the open, are asked for their rights.
BOOST_DATA_TEST_CASE(an_open_outlives_a_change_of_mode, back_ends* minors, back_end, minor_version)
{
    fixture f(back_end, minor_version);
    f.user->uid = 2000;
    const opened owned = f.create(f.second, "file", 0666);
    BOOST_TEST(f.write(f.second, owned, "text") == nfsstat4::ok);
    f.user->uid = 1000;
    const auto file = f.open(f.first, f.opening(f.first, "file", share4::access_both));
    BOOST_REQUIRE(file);
    f.user->uid = 2000;
    BOOST_TEST(f.set_mode(f.second, owned, 0) == nfsstat4::ok);
    f.user->uid = 1000;
    BOOST_TEST(f.read(f.first, *file) == "text");
    BOOST_TEST(f.write(f.first, *file, "TEXT") == nfsstat4::ok);
    BOOST_TEST(f.set_size(f.first, *file, 2) == nfsstat4::ok);
    BOOST_TEST(f.read(f.first, *file) == "TE");
    BOOST_TEST(f.read(f.first, *file, stateid4::anonymous()) == to_string(nfsstat4::access));
    BOOST_TEST(!f.open(f.first, f.opening(f.first, "file", share4::access_read)));
    f.user->uid = 1001;
    BOOST_TEST(f.read(f.first, *file) == to_string(nfsstat4::access));
    BOOST_TEST(f.write(f.first, *file, "mine") == nfsstat4::access);
    BOOST_TEST(f.set_size(f.first, *file, 0) == nfsstat4::access);
    f.user->uid = 1000;
    BOOST_TEST(f.read(f.first, *file) == "TE");
    BOOST_TEST(f.close(f.first, *file) == nfsstat4::ok);
    f.user->uid = 2000;
    BOOST_TEST(f.close(f.second, owned) == nfsstat4::ok);
}

// What was opened to read is not written by the same stateid's rights, and after a downgrade no more.
BOOST_DATA_TEST_CASE(an_open_gives_the_rights_of_its_access_alone, back_ends, back_end)
{
    fixture f(back_end, 2);
    f.user->uid = 2000;
    const opened owned = f.create(f.second, "file", 0666);
    f.user->uid = 1000;
    const auto reads = f.open(f.first, f.opening(f.first, "file", share4::access_read));
    BOOST_REQUIRE(reads);
    const auto file = f.open(f.first, f.opening(f.first, "file", share4::access_write));
    BOOST_REQUIRE(file);
    f.user->uid = 2000;
    BOOST_TEST(f.set_mode(f.second, owned, 0) == nfsstat4::ok);
    f.user->uid = 1000;
    BOOST_TEST(f.write(f.first, *file, "text") == nfsstat4::ok);
    OPEN_DOWNGRADE4args less;
    less.open_stateid = file->id;
    less.share_access = share4::access_read;
    answer4 out = f.by(f.first, file->at(), less);
    out.good<PUTFH4res>();
    const stateid4 left = out.good<OPEN_DOWNGRADE4res>().open_stateid;
    BOOST_TEST(f.read(f.first, *file, left) == "text");
    BOOST_TEST(
        f.by(f.first, file->at(), WRITE4args{left, 0, stable_how4::unstable, bytes_of("more")}).status() ==
        nfsstat4::openmode);
}

// Whoever copies reads by one open and writes by another.
BOOST_DATA_TEST_CASE(copies_are_by_both_opens, back_ends, back_end)
{
    fixture f(back_end, 2);
    f.user->uid = 2000;
    const opened a = f.create(f.second, "a", 0666), b = f.create(f.second, "b", 0666);
    BOOST_TEST(f.write(f.second, a, "text") == nfsstat4::ok);
    f.user->uid = 1000;
    const auto from = f.open(f.first, f.opening(f.first, "a", share4::access_read));
    const auto to = f.open(f.first, f.opening(f.first, "b", share4::access_write));
    BOOST_REQUIRE(from && to);
    f.user->uid = 2000;
    BOOST_TEST(f.set_mode(f.second, a, 0) == nfsstat4::ok);
    BOOST_TEST(f.set_mode(f.second, b, 0) == nfsstat4::ok);
    BOOST_TEST(f.remove(f.second, "a") == nfsstat4::ok);
    BOOST_TEST(f.remove(f.second, "b") == nfsstat4::ok);
    f.user->uid = 1000;
    COPY4args copy;
    copy.src_stateid = from->id;
    copy.dst_stateid = to->id;
    BOOST_TEST(f.by(f.first, from->at(), SAVEFH4args(), to->at(), copy).status() == nfsstat4::ok);
    f.user->uid = 2000;
    BOOST_TEST(f.read(f.second, b) == "text");
    f.user->uid = 1000;
    copy.src_stateid = stateid4::anonymous();
    BOOST_TEST(f.by(f.first, from->at(), SAVEFH4args(), to->at(), copy).status() == nfsstat4::access);
    copy.src_stateid = from->id;
    copy.dst_stateid = stateid4::anonymous();
    BOOST_TEST(f.by(f.first, from->at(), SAVEFH4args(), to->at(), copy).status() == nfsstat4::access);
}

// No descriptor is left that would keep an open file without its name, so the file keeps the name. Nobody is told to come
// again: he would do so for as long as others keep their files open.
BOOST_DATA_TEST_CASE(a_name_that_an_open_file_can_not_spare_stays, minors, minor_version)
{
    fixture f("posixfs", minor_version, false, 1);
    const opened kept = f.create(f.first, "kept");
    BOOST_TEST(f.write(f.first, kept, "kept") == nfsstat4::ok);
    BOOST_TEST(f.remove(f.second, "kept") == nfsstat4::ok);
    const opened file = f.create(f.first, "file");
    BOOST_TEST(f.write(f.first, file, "text") == nfsstat4::ok);
    const opened better = f.create(f.second, "better");
    BOOST_TEST(f.close(f.second, better) == nfsstat4::ok);
    BOOST_TEST(f.remove(f.second, "file") == nfsstat4::file_open);
    BOOST_TEST(f.rename(f.second, "better", "file") == nfsstat4::file_open);
    BOOST_TEST(f.read(f.first, file) == "text");
    BOOST_TEST(f.read(f.first, kept) == "kept");
    BOOST_TEST(f.close(f.first, kept) == nfsstat4::ok);
    BOOST_TEST(f.rename(f.second, "better", "file") == nfsstat4::ok);
    BOOST_TEST(f.read(f.first, file) == "text");
    BOOST_TEST(f.close(f.first, file) == nfsstat4::ok);
}

// As Linux gives one back: after a look at the file.
BOOST_DATA_TEST_CASE(a_file_that_is_delegated_outlives_its_name, back_ends, back_end)
{
    fixture f(back_end, 0, true);
    f.tend();
    const opened made = f.create(f.first, "file", 0666);
    BOOST_TEST(f.write(f.first, made, "text") == nfsstat4::ok);
    BOOST_TEST(f.close(f.first, made) == nfsstat4::ok);
    if (made.delegation.delegation_type != open_delegation_type4::none)
        BOOST_TEST(f.compound(made.at(), DELEGRETURN4args{made.delegation.stateid}).status() == nfsstat4::ok);
    f.pass(1s);
    const auto file = f.open(f.first, f.opening(f.first, "file", share4::access_read));
    BOOST_REQUIRE(file);
    BOOST_TEST_REQUIRE(file->delegation.delegation_type == open_delegation_type4::read);
    const stateid4 delegation = file->delegation.stateid;
    // With the delegation alone.
    BOOST_TEST(f.close(f.first, *file) == nfsstat4::ok);
    f.on_local_remove("file");
    BOOST_TEST(f.links(*file) == 0u);
    BOOST_TEST(f.read(f.first, *file, delegation) == "text");
    BOOST_TEST(
        f.compound(file->at(), GETATTR4args{{attribute::size}}, DELEGRETURN4args{delegation}).status() ==
        nfsstat4::ok);
    BOOST_TEST(f.compound(file->at(), GETATTR4args{{attribute::size}}).status() == nfsstat4::stale);
}

BOOST_AUTO_TEST_SUITE_END()
