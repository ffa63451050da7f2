// SPDX-License-Identifier: Apache-2.0
// Minor version 2: which there are, its attributes, and what it adds for data.
#include "nfs4_server.hpp"

#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/nfs/server/v4/storage.hpp>
#include <verbena/protocols/storage/forwarding_backend.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>
#include <cerrno>
#include <set>
#include <tuple>

BOOST_AUTO_TEST_SUITE(nfs4_server_extended_test)

using namespace verbena;
using namespace verbena::test;

namespace {

/// Attributes with the memory that they lie in.
struct encoded {
    explicit encoded(const attributes& values)
    {
        xdr::encoder out(bytes);
        encode_attributes(out, values.present, values);
        xdr::decoder in(std::span<const std::byte>(bytes).first(out.size()));
        xdr::codec<fattr4>::decode(in, raw);
    }
    std::array<std::byte, 512> bytes{};
    fattr4 raw;
};

encoded masked(std::uint32_t mode, std::uint32_t umask)
{
    attributes values;
    values.mode_umask = {mode, umask};
    values.present.set(attribute::mode_umask);
    return encoded(values);
}

/// What memfs has at once, and shares between files.
constexpr std::uint64_t block = 65536;

/// The opcode, the status and what follows, as they travel.
std::vector<std::byte> wire(std::initializer_list<std::uint32_t> words)
{
    std::vector<std::byte> out(4 * words.size());
    std::size_t at = 0;
    for (const std::uint32_t word : words)
        xdr::store_u32(out.data() + 4 * at++, word);
    return out;
}

bool ends_with(const std::vector<std::byte>& reply, const std::vector<std::byte>& end)
{
    return reply.size() >= end.size() &&
           std::equal(end.begin(), end.end(), reply.end() - static_cast<std::ptrdiff_t>(end.size()));
}

COPY4args copying(const stateid4& from, const stateid4& to, std::uint64_t count = 0)
{
    COPY4args args;
    args.src_stateid = from;
    args.dst_stateid = to;
    args.count = count;
    args.consecutive = args.synchronous = true;
    return args;
}

/// Copies are counted, may be cut short or fail, and take time.
class slow_copies final : public storage::forwarding_backend {
public:
    slow_copies(storage::file_backend& below, virtual_clock& clock)
        : forwarding_backend(below, storage::filter_bytes::are_those_below), clock_(clock)
    {
    }
    task<result<storage::copy_result>> copy(const storage::request& r, const storage::handle& from,
                                            std::uint64_t from_offset, const storage::handle& to,
                                            std::uint64_t to_offset, std::uint64_t length) override
    {
        ++copies;
        longest = std::max(longest, length);
        if (copies == fails_at)
            co_return verbena::error::from_errno(ENOSPC);
        clock_.advance(takes);
        storage::copy_result done;
        if (pretends) {
            done.count = length;
            done.committed = committed;
            co_return done;
        }
        co_return co_await below().copy(r, from, from_offset, to, to_offset, length);
    }
    int copies = 0;
    int fails_at = 0;
    std::uint64_t longest = 0;
    duration takes{};
    bool pretends = false;
    storage::stability committed{};

private:
    virtual_clock& clock_;
};

} // namespace

/// Doesn't say what a file was before its extended attributes changed.
class forgetful_files final : public storage::forwarding_backend {
public:
    explicit forgetful_files(storage::file_backend& below)
        : forwarding_backend(below, storage::filter_bytes::are_those_below)
    {
    }
    task<result<storage::change>> setxattr(const storage::request& r, const storage::handle& file,
                                           std::string_view name, std::span<const std::byte> value,
                                           storage::xattr_mode mode) override
    {
        auto done = co_await forwarding_backend::setxattr(r, file, name, value, mode);
        if (done && forgets)
            done->before.reset();
        co_return done;
    }
    bool forgets = false;
};

struct fixture : nfs4_fixture {
    fixture()
    {
        options[0].backend = &forgetful;
        client.connect();
        minor = 2;
    }
    template<class... Args>
    answer4 here(const Args&... args)
    {
        return client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, args...);
    }
    template<class... Args>
    answer4 on(const client4::opened& file, const Args&... args)
    {
        return client.call(PUTFH4args{client4::handle_of(file)}, args...);
    }
    /// The attributes that the last of the operations behind PUTFH, a GETATTR, yields.
    attributes attributes_of(const client4::opened& file, bitmap4 wanted)
    {
        answer4 out = on(file, GETATTR4args{wanted});
        out.good<PUTFH4res>();
        attributes values;
        BOOST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
        return values;
    }
    client4::opened made(std::string_view name, std::string_view text = {})
    {
        client4::opened file = client.open(client.creating(name));
        BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
        if (!text.empty())
            BOOST_TEST_REQUIRE(client.write(file, text) == nfsstat4::ok);
        return file;
    }
    client4 client{*this, "a"};
    forgetful_files forgetful{*files};
};

BOOST_FIXTURE_TEST_CASE(a_minor_version_that_is_not_served_is_not_there, nfs4_fixture)
{
    start();
    for (std::uint32_t only = 1; only <= 2; ++only) {
        commons->minors = {false, only == 1, only == 2};
        for (std::uint32_t asked = 0; asked <= 3; ++asked) {
            client4 someone(*this, "c" + std::to_string(only));
            minor = asked;
            answer4 out = compound(someone.exchange());
            BOOST_TEST(out.status() == (asked == only ? nfsstat4::ok : nfsstat4::minor_vers_mismatch));
            BOOST_TEST(out.operations() == (asked == only ? 1u : 0u));
        }
    }
}

BOOST_FIXTURE_TEST_CASE(attributes_of_minor_version_2_are_its_own, fixture)
{
    const client4::opened file = made("f");
    const bitmap4 added{attribute::clone_blksize, attribute::mode_umask, attribute::xattr_support};
    const attributes two = attributes_of(file, {attribute::supported_attrs, attribute::clone_blksize,
                                                attribute::xattr_support, attribute::suppattr_exclcreat});
    BOOST_TEST(((two.supported_attrs & added) == added));
    // What can be set as a file is made, and not by its verifier (8881 5.8.1.14).
    const bitmap4 set_at_creation{attribute::size,  attribute::acl,         attribute::mode,
                                  attribute::owner, attribute::owner_group, attribute::mode_umask};
    BOOST_TEST((two.suppattr_exclcreat == set_at_creation));
    BOOST_TEST(two.present.test(attribute::clone_blksize));
    BOOST_TEST(two.present.test(attribute::xattr_support));
    // What is written alone can't be asked for.
    BOOST_TEST(on(file, GETATTR4args{{attribute::mode_umask}}).status() == nfsstat4::inval);
    minor = 1;
    const attributes one = attributes_of(file, {attribute::supported_attrs, attribute::clone_blksize});
    BOOST_TEST((one.supported_attrs & added).none());
    BOOST_TEST(!one.present.test(attribute::clone_blksize));
}

BOOST_FIXTURE_TEST_CASE(the_umask_comes_with_the_mode, fixture)
{
    const encoded attrs = masked(0666, 022);
    for (const createmode4 how : {createmode4::unchecked, createmode4::guarded, createmode4::exclusive4_1}) {
        const std::string name = "f" + std::to_string(int(how));
        OPEN4args args = client.creating(name, how);
        args.openhow.attrs = attrs.raw;
        const client4::opened file = client.open(args);
        BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
        BOOST_TEST(file.res.attrset.test(attribute::mode_umask));
        BOOST_TEST(attributes_of(file, {attribute::mode}).mode == 0644u);
    }
    CREATE4args directory;
    const encoded wide = masked(0777, 027);
    directory.objtype.type = nfs_ftype4::dir;
    directory.objname = "d";
    directory.createattrs = wide.raw;
    answer4 out = here(directory, GETATTR4args{{attribute::mode}});
    out.good<PUTROOTFH4res>();
    out.good<LOOKUP4res>();
    BOOST_TEST(out.good<CREATE4res>().attrset.test(attribute::mode_umask));
    attributes values;
    BOOST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
    BOOST_TEST(values.mode == 0750u);
    // Never of what is there (RFC 8275 3).
    SETATTR4args set;
    set.obj_attributes = attrs.raw;
    BOOST_TEST(on(made("g"), set).status() == nfsstat4::inval);
    minor = 1;
    OPEN4args old = client.creating("old");
    old.openhow.attrs = attrs.raw;
    BOOST_TEST(client.open(old).status == nfsstat4::attrnotsupp);
}

BOOST_FIXTURE_TEST_CASE(operations_of_minor_version_2_are_illegal_in_version_1, fixture)
{
    const client4::opened file = made("f");
    const answer4 later = on(file, OFFLOAD_CANCEL4args{file.id});
    BOOST_TEST(later.status() == nfsstat4::notsupp);
    BOOST_TEST(on(file, OFFLOAD_STATUS4args{file.id}).status() == nfsstat4::notsupp);
    BOOST_TEST(on(file, READ_PLUS4args{file.id, 0, 100}).status() == nfsstat4::notsupp);
    BOOST_TEST(on(file, WRITE_SAME4args{file.id, {}, {}}).status() == nfsstat4::notsupp);
    minor = 1;
    BOOST_TEST(on(file, OFFLOAD_CANCEL4args{file.id}).status() == nfsstat4::op_illegal);
}

BOOST_FIXTURE_TEST_CASE(seek_finds_data_and_holes, fixture)
{
    const client4::opened file = made("f");
    BOOST_TEST(client.write(file, "x", file.id, block) == nfsstat4::ok);
    BOOST_TEST(client.write(file, "x", file.id, 3 * block) == nfsstat4::ok);
    // SEEK, OK, not at the end, and where.
    BOOST_TEST(
        ends_with(on(file, SEEK4args{file.id, 0, data_content4::data}).bytes(), wire({69, 0, 0, 0, block})));
    BOOST_TEST(ends_with(on(file, SEEK4args{file.id, block, data_content4::hole}).bytes(),
                         wire({69, 0, 0, 0, 2 * block})));
    // The hole at the end, and no data behind a hole.
    BOOST_TEST(ends_with(on(file, SEEK4args{file.id, 3 * block, data_content4::hole}).bytes(),
                         wire({69, 0, 1, 0, 3 * block + 1})));
    BOOST_TEST(on(file, ALLOCATE4args{file.id, 5 * block, 1}).status() == nfsstat4::ok);
    BOOST_TEST(ends_with(on(file, SEEK4args{file.id, 4 * block, data_content4::data}).bytes(),
                         wire({69, 0, 1, 0, 5 * block + 1})));
    BOOST_TEST(on(file, SEEK4args{file.id, 5 * block + 1, data_content4::hole}).status() == nfsstat4::nxio);
    BOOST_TEST(on(file, SEEK4args{file.id, UINT64_MAX, data_content4::data}).status() == nfsstat4::nxio);
    BOOST_TEST(on(file, SEEK4args{file.id, 0, data_content4(2)}).status() == nfsstat4::union_notsupp);
    BOOST_TEST(here(SEEK4args{stateid4::anonymous(), 0, data_content4::data}).status() == nfsstat4::isdir);
    BOOST_TEST(client.call(PUTROOTFH4args(), SEEK4args{stateid4::anonymous(), 0, {}}).status() ==
               nfsstat4::isdir);
    BOOST_TEST(client.call(SEEK4args{file.id, 0, {}}).status() == nfsstat4::nofilehandle);
}

BOOST_FIXTURE_TEST_CASE(room_is_taken_and_given_back, fixture)
{
    const client4::opened file = made("f", "begin");
    const bitmap4 wanted{attribute::size, attribute::space_used, attribute::change};
    const attributes before = attributes_of(file, wanted);
    BOOST_TEST(ends_with(on(file, ALLOCATE4args{file.id, block, block}).bytes(), wire({59, 0})));
    const attributes taken = attributes_of(file, wanted);
    BOOST_TEST(taken.size == 2 * block);
    BOOST_TEST(taken.space_used == 2 * block);
    BOOST_TEST(taken.change != before.change);
    BOOST_TEST(ends_with(on(file, DEALLOCATE4args{file.id, 2, 2 * block - 2}).bytes(), wire({62, 0})));
    const attributes given = attributes_of(file, wanted);
    BOOST_TEST(given.size == 2 * block);
    BOOST_TEST(given.space_used == block);
    BOOST_TEST(given.change != taken.change);
    BOOST_TEST(client.read(file, file.id, 4) == std::string("be\0\0", 4));
    for (const auto& [offset, length, status] :
         std::initializer_list<std::tuple<std::uint64_t, std::uint64_t, nfsstat4>>{
             {0, 0, nfsstat4::inval},
             {1, UINT64_MAX, nfsstat4::inval},
             {0, UINT64_MAX, nfsstat4::fbig},
             {std::uint64_t(1) << 63, 1, nfsstat4::fbig}}) {
        BOOST_TEST(on(file, ALLOCATE4args{file.id, offset, length}).status() == status);
        BOOST_TEST(on(file, DEALLOCATE4args{file.id, offset, length}).status() == status);
    }
    BOOST_TEST(on(file, ALLOCATE4args{file.id, 0, std::uint64_t(1) << 40}).status() == nfsstat4::nospc);
    const stateid4 any = stateid4::anonymous();
    BOOST_TEST(on(file, ALLOCATE4args{any, 0, 1}).status() == nfsstat4::ok);
    BOOST_TEST(here(ALLOCATE4args{any, 0, 1}).status() == nfsstat4::wrong_type);
    BOOST_TEST(here(DEALLOCATE4args{any, 0, 1}).status() == nfsstat4::wrong_type);
    BOOST_TEST(client.call(ALLOCATE4args{any, 0, 1}).status() == nfsstat4::nofilehandle);
}

BOOST_FIXTURE_TEST_CASE(advice_is_heard_and_none_is_taken, fixture)
{
    const client4::opened file = made("f");
    IO_ADVISE4args args;
    args.stateid = file.id;
    args.hints.set(3);
    BOOST_TEST(ends_with(on(file, args).bytes(), wire({63, 0, 0})));
    args.stateid.other[0] ^= std::byte(1);
    BOOST_TEST(on(file, args).status() == nfsstat4::bad_stateid);
}

BOOST_FIXTURE_TEST_CASE(stateids_are_checked_as_those_of_reads_and_writes, fixture)
{
    const client4::opened reads = [&] {
        made("r", "text");
        return client.open(client.opening("r", share4::access_read));
    }();
    const client4::opened file = made("f", "text");
    stateid4 wrong = file.id;
    wrong.other[3] ^= std::byte(1);
    BOOST_TEST(on(file, SEEK4args{wrong, 0, data_content4::data}).status() == nfsstat4::bad_stateid);
    BOOST_TEST(on(file, ALLOCATE4args{wrong, 0, 1}).status() == nfsstat4::bad_stateid);
    BOOST_TEST(on(file, DEALLOCATE4args{wrong, 0, 1}).status() == nfsstat4::bad_stateid);
    // The same open owner has one stateid of a file, which has both accesses by now. Another client reads alone.
    client4 other(*this, "b");
    other.connect();
    const client4::opened theirs = other.open(other.opening("r", share4::access_read));
    const PUTFH4args there{client4::handle_of(theirs)};
    BOOST_TEST(other.call(there, SEEK4args{theirs.id, 0, data_content4::data}).status() == nfsstat4::ok);
    BOOST_TEST(other.call(there, ALLOCATE4args{theirs.id, 0, 1}).status() == nfsstat4::openmode);
    BOOST_TEST(other.call(there, DEALLOCATE4args{theirs.id, 0, 1}).status() == nfsstat4::openmode);
    const auto between = [&](const auto& args) {
        return client
            .call(PUTFH4args{client4::handle_of(reads)}, SAVEFH4args(), PUTFH4args{client4::handle_of(file)},
                  args)
            .status();
    };
    BOOST_TEST(between(copying(wrong, file.id)) == nfsstat4::bad_stateid);
    BOOST_TEST(between(copying(reads.id, wrong)) == nfsstat4::bad_stateid);
    BOOST_TEST(between(copying(file.id, reads.id)) == nfsstat4::bad_stateid); // each of the other file
    BOOST_TEST(between(CLONE4args{wrong, file.id, 0, 0, 0}) == nfsstat4::bad_stateid);
    BOOST_TEST(between(CLONE4args{reads.id, wrong, 0, 0, 0}) == nfsstat4::bad_stateid);
    BOOST_TEST(between(copying(reads.id, file.id)) == nfsstat4::ok);
    BOOST_TEST(between(CLONE4args{reads.id, file.id, 0, 0, 0}) == nfsstat4::ok);
    BOOST_TEST(other
                   .call(PUTFH4args{client4::handle_of(file)}, SAVEFH4args(), there,
                         copying(stateid4::anonymous(), theirs.id))
                   .status() == nfsstat4::openmode);
    // The current stateid, and the one that was saved with the saved handle (8881 16.2.3.1.2).
    const auto opening = client.opening("r");
    const auto creating = client.creating("f");
    BOOST_TEST(client
                   .call(PUTROOTFH4args(), LOOKUP4args{"export"}, opening, SAVEFH4args(), PUTROOTFH4args(),
                         LOOKUP4args{"export"}, creating, copying(stateid4::current(), stateid4::current()))
                   .status() == nfsstat4::ok);
    BOOST_TEST(between(copying(stateid4::current(), file.id)) == nfsstat4::bad_stateid);
    // A share that is denied binds those without an open.
    client4 third(*this, "c");
    third.connect();
    const client4::opened shut =
        third.open(third.opening("g", share4::access_both, share4::deny_both)).status == nfsstat4::noent
            ? [&] {
                  OPEN4args args = third.creating("g");
                  args.share_deny = share4::deny_both;
                  return third.open(args);
              }()
            : client4::opened();
    BOOST_TEST_REQUIRE(shut.status == nfsstat4::ok);
    const stateid4 any = stateid4::anonymous();
    BOOST_TEST(on(shut, SEEK4args{any, 0, data_content4::data}).status() == nfsstat4::locked);
    BOOST_TEST(on(shut, ALLOCATE4args{any, 0, 1}).status() == nfsstat4::locked);
}

BOOST_FIXTURE_TEST_CASE(bytes_are_copied_between_files, fixture)
{
    const client4::opened from = made("from", "0123456789");
    const client4::opened to = made("to", "abcdef");
    const auto between = [&](const COPY4args& args) {
        return client.call(PUTFH4args{client4::handle_of(from)}, SAVEFH4args(),
                           PUTFH4args{client4::handle_of(to)}, args);
    };
    COPY4args part = copying(from.id, to.id, 3);
    part.src_offset = 2;
    part.dst_offset = 4;
    // COPY, OK, no callback, three bytes, FILE_SYNC; behind the verifier: consecutive and synchronous.
    const answer4 done = between(part);
    std::vector<std::byte> end = wire({60, 0, 0, 0, 3, 2});
    const std::uint64_t verifier = files->write_verifier();
    end.resize(end.size() + 8);
    xdr::store_u64(end.data() + end.size() - 8, verifier);
    for (const std::byte b : wire({1, 1}))
        end.push_back(b);
    BOOST_TEST(ends_with(done.bytes(), end));
    BOOST_TEST(client.read(to, to.id) == "abcd234");
    // To the end, and as if the client had asked for it to go on behind its back.
    COPY4args rest = copying(from.id, to.id);
    rest.src_offset = 5;
    rest.synchronous = rest.consecutive = false;
    answer4 all = between(rest);
    all.good<PUTFH4res>();
    all.good<SAVEFH4res>();
    all.good<PUTFH4res>();
    const auto res = all.good<COPY4res>();
    BOOST_TEST(res.response.count == 5u);
    BOOST_TEST(!res.response.callback_id);
    BOOST_TEST(res.requirements.synchronous);
    BOOST_TEST(client.read(to, to.id) == "5678934");
    COPY4args wrong = copying(from.id, to.id, 1);
    wrong.src_offset = 10;
    BOOST_TEST(between(wrong).status() == nfsstat4::inval);
    wrong = copying(from.id, to.id, 11);
    BOOST_TEST(between(wrong).status() == nfsstat4::inval);
    wrong.count = UINT64_MAX;
    wrong.src_offset = 1;
    BOOST_TEST(between(wrong).status() == nfsstat4::inval);
    wrong = copying(from.id, to.id, 2);
    wrong.dst_offset = (std::uint64_t(1) << 63) - 2;
    BOOST_TEST(between(wrong).status() == nfsstat4::fbig);
    netloc4 somewhere;
    somewhere.name = "another.example";
    wrong = copying(from.id, to.id);
    wrong.source_server = std::span<const netloc4>(&somewhere, 1);
    BOOST_TEST(between(wrong).status() == nfsstat4::notsupp);
    BOOST_TEST(client.read(to, to.id) == "5678934");
    // Within one file.
    const auto within = [&](std::uint64_t dst) {
        COPY4args args = copying(from.id, from.id, 5);
        args.dst_offset = dst;
        return client.call(PUTFH4args{client4::handle_of(from)}, SAVEFH4args(), args).status();
    };
    // Also where the ranges lie apart (7862 15.2.3).
    for (const std::uint64_t dst : {0, 4, 5, 100})
        BOOST_TEST(within(dst) == nfsstat4::inval);
    BOOST_TEST(client.read(from, from.id) == "0123456789");
}

BOOST_FIXTURE_TEST_CASE(handles_of_a_copy_are_checked, fixture)
{
    const client4::opened file = made("f", "text");
    const stateid4 any = stateid4::anonymous();
    const PUTFH4args there{client4::handle_of(file)};
    const auto each = [&](const auto& args) {
        BOOST_TEST(client.call(there, args).status() == nfsstat4::nofilehandle);
        BOOST_TEST(client.call(args).status() == nfsstat4::nofilehandle);
        // A directory is none that can be copied from or to.
        BOOST_TEST(
            client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, SAVEFH4args(), there, args).status() ==
            nfsstat4::wrong_type);
        BOOST_TEST(
            client.call(there, SAVEFH4args(), PUTROOTFH4args(), LOOKUP4args{"export"}, args).status() ==
            nfsstat4::wrong_type);
        BOOST_TEST(client.call(there, SAVEFH4args(), PUTROOTFH4args(), args).status() == nfsstat4::rofs);
        BOOST_TEST(client.call(PUTROOTFH4args(), SAVEFH4args(), there, args).status() ==
                   nfsstat4::wrong_type);
        // Another export.
        const auto creating = client.creating("g");
        BOOST_TEST(client
                       .call(there, SAVEFH4args(), PUTROOTFH4args(), LOOKUP4args{"deep"},
                             LOOKUP4args{"other"}, creating, args)
                       .status() == nfsstat4::xdev);
    };
    each(copying(any, any));
    each(CLONE4args{any, any, 0, 0, 0});
}

BOOST_FIXTURE_TEST_CASE(a_long_copy_ends_after_a_part, nfs4_fixture)
{
    slow_copies slow(*files, clock);
    options[0].backend = &slow;
    client4 client(*this, "a");
    client.connect();
    minor = 2;
    const client4::opened from = client.open(client.creating("from"));
    const client4::opened to = client.open(client.creating("to"));
    BOOST_TEST(
        client.call(PUTFH4args{client4::handle_of(from)}, ALLOCATE4args{from.id, 0, 200u << 20}).status() ==
        nfsstat4::ok);
    const auto count = [&] {
        answer4 out = client.call(PUTFH4args{client4::handle_of(from)}, SAVEFH4args(),
                                  PUTFH4args{client4::handle_of(to)}, copying(from.id, to.id));
        out.good<PUTFH4res>();
        out.good<SAVEFH4res>();
        out.good<PUTFH4res>();
        return out.good<COPY4res>().response;
    };
    slow.pretends = true;
    // The least of what was committed is what is told.
    slow.committed = storage::stability::unstable;
    auto done = count();
    BOOST_TEST(done.count == server::max_copy);
    BOOST_CHECK(done.committed == stable_how4::unstable);
    BOOST_TEST(slow.longest == 4u << 20);
    BOOST_TEST(slow.copies == 16);
    // By its time.
    slow.takes = 700ms;
    slow.committed = storage::stability::file_sync;
    done = count();
    BOOST_TEST(done.count == 3u * 4u << 20);
    BOOST_CHECK(done.committed == stable_how4::file_sync);
    // By what fails: that is told when nothing was done.
    slow.takes = {};
    slow.copies = 0;
    slow.fails_at = 3;
    BOOST_TEST(count().count == 2u * 4u << 20);
    slow.copies = 0;
    slow.fails_at = 1;
    BOOST_TEST(client
                   .call(PUTFH4args{client4::handle_of(from)}, SAVEFH4args(),
                         PUTFH4args{client4::handle_of(to)}, copying(from.id, to.id))
                   .status() == nfsstat4::nospc);
    // memfs copies a part of that by itself, so that others have their turn.
    slow.fails_at = 0;
    slow.copies = 0;
    slow.pretends = false;
    BOOST_TEST(count().count == server::max_copy);
    BOOST_TEST(slow.copies == 64);
}

BOOST_FIXTURE_TEST_CASE(a_copy_lets_others_have_their_turn, fixture)
{
    const client4::opened from = made("from");
    const client4::opened to = made("to");
    BOOST_TEST(on(from, ALLOCATE4args{from.id, 0, 16u << 20}).status() == nfsstat4::ok);
    int turns_of_another = 0;
    tasks.spawn([&]() -> task<void> {
        while (turns_of_another < 1000) {
            const bool slept = co_await sleep_for(0ns);
            if (!slept)
                break; // the test is over
            ++turns_of_another;
        }
    });
    answer4 out = client.call(PUTFH4args{client4::handle_of(from)}, SAVEFH4args(),
                              PUTFH4args{client4::handle_of(to)}, copying(from.id, to.id));
    BOOST_TEST(out.status() == nfsstat4::ok);
    BOOST_TEST(turns_of_another >= 16);
}

BOOST_FIXTURE_TEST_CASE(a_clone_is_a_file_of_its_own, fixture)
{
    const client4::opened from = made("from", std::string(block, 'a') + "tail");
    const client4::opened to = made("to");
    const auto clone = [&](std::uint64_t src, std::uint64_t dst, std::uint64_t count) {
        return client.call(PUTFH4args{client4::handle_of(from)}, SAVEFH4args(),
                           PUTFH4args{client4::handle_of(to)}, CLONE4args{from.id, to.id, src, dst, count});
    };
    BOOST_TEST(attributes_of(from, {attribute::clone_blksize}).clone_blksize == block);
    const attributes before = attributes_of(to, {attribute::change});
    BOOST_TEST(ends_with(clone(0, 0, 0).bytes(), wire({71, 0})));
    const attributes after = attributes_of(to, {attribute::change, attribute::size});
    BOOST_TEST(after.size == block + 4);
    BOOST_TEST(after.change != before.change);
    BOOST_TEST(client.write(from, "b") == nfsstat4::ok);
    BOOST_TEST(client.read(to, to.id, 2) == "aa");
    BOOST_TEST(clone(1, 0, 0).status() == nfsstat4::inval);
    BOOST_TEST(clone(0, 0, 2 * block).status() == nfsstat4::inval);
    BOOST_TEST(client.read(to, to.id, 2) == "aa");
}

BOOST_FIXTURE_TEST_CASE(nothing_changes_through_a_read_only_export, fixture)
{
    const client4::opened file = made("f", "text");
    made("to");
    // The files of "/export" by another one, where nobody writes.
    nfs::export_options& shut = add("/shut", *files);
    shut.read_only = true;
    BOOST_REQUIRE(exports.add(shut));
    commons.emplace(exports, key, std::array{&home}, *store, verbena::files::state_options(), 1'700'000'000,
                    limits);
    program.emplace(*commons, home);
    dispatcher.emplace(*shard);
    dispatcher->add(*program);
    minor = 1;
    client.sequences.clear();
    client.connect();
    minor = 2;
    const stateid4 any = stateid4::anonymous();
    const auto there = [&](const auto& args) {
        return client
            .call(PUTROOTFH4args(), LOOKUP4args{"shut"}, LOOKUP4args{"f"}, SAVEFH4args(), PUTROOTFH4args(),
                  LOOKUP4args{"shut"}, LOOKUP4args{"to"}, args)
            .status();
    };
    SETXATTR4args set;
    set.name = "a";
    BOOST_TEST(there(ALLOCATE4args{any, 0, 10}) == nfsstat4::rofs);
    BOOST_TEST(there(DEALLOCATE4args{any, 0, 10}) == nfsstat4::rofs);
    BOOST_TEST(there(copying(any, any)) == nfsstat4::rofs);
    BOOST_TEST(there(CLONE4args{any, any, 0, 0, 0}) == nfsstat4::rofs);
    BOOST_TEST(there(set) == nfsstat4::rofs);
    BOOST_TEST(there(REMOVEXATTR4args{"a"}) == nfsstat4::rofs);
    // What reads may go on.
    BOOST_TEST(there(LISTXATTRS4args{0, 1000}) == nfsstat4::ok);
    BOOST_TEST(client
                   .call(PUTROOTFH4args(), LOOKUP4args{"shut"}, LOOKUP4args{"f"},
                         SEEK4args{any, 0, data_content4::data})
                   .status() == nfsstat4::ok);
    answer4 may = client.call(PUTROOTFH4args(), LOOKUP4args{"shut"}, LOOKUP4args{"f"},
                              ACCESS4args{access4::all_with_xattr});
    may.good<PUTROOTFH4res>();
    may.good<LOOKUP4res>();
    may.good<LOOKUP4res>();
    const auto access = may.good<ACCESS4res>();
    BOOST_TEST((access.access & access4::xawrite) == 0u);
    BOOST_TEST((access.supported & access4::xawrite) != 0u);
    BOOST_TEST((access.access & access4::xaread) != 0u);
}

namespace {

SETXATTR4args setting(std::string_view name, std::string_view value,
                      setxattr_option4 option = setxattr_option4::either)
{
    SETXATTR4args args;
    args.option = option;
    args.name = name;
    args.value = std::as_bytes(std::span(value));
    return args;
}

} // namespace

BOOST_FIXTURE_TEST_CASE(extended_attributes_come_and_go, fixture)
{
    const client4::opened file = made("f");
    BOOST_TEST(attributes_of(file, {attribute::xattr_support}).xattr_support);
    BOOST_TEST(on(file, GETXATTR4args{"a"}).status() == nfsstat4::noxattr);
    BOOST_TEST(on(file, REMOVEXATTR4args{"a"}).status() == nfsstat4::noxattr);
    BOOST_TEST(on(file, setting("a", "1", setxattr_option4::replace)).status() == nfsstat4::noxattr);
    // change_info is of the file.
    const attributes before = attributes_of(file, {attribute::change});
    answer4 out = on(file, setting("a", "one", setxattr_option4::create));
    const attributes after = attributes_of(file, {attribute::change});
    out.good<PUTFH4res>();
    const auto set = out.good<SETXATTR4res>();
    BOOST_TEST(set.cinfo.atomic);
    BOOST_TEST(set.cinfo.before == before.change);
    BOOST_TEST(set.cinfo.after == after.change);
    BOOST_TEST(before.change != after.change);
    // What the server has looked up ahead of the change is not from the same turn.
    forgetful.forgets = true;
    answer4 forgotten = on(file, setting("b", "1", setxattr_option4::create));
    forgotten.good<PUTFH4res>();
    const auto seen = forgotten.good<SETXATTR4res>();
    BOOST_TEST(!seen.cinfo.atomic);
    BOOST_TEST(seen.cinfo.before == after.change);
    BOOST_TEST(seen.cinfo.after == attributes_of(file, {attribute::change}).change);
    BOOST_TEST(on(file, REMOVEXATTR4args{"b"}).status() == nfsstat4::ok);
    BOOST_TEST(on(file, setting("a", "1", setxattr_option4::create)).status() == nfsstat4::exist);
    // GETXATTR, OK, three bytes and their pad.
    BOOST_TEST(ends_with(on(file, GETXATTR4args{"a"}).bytes(), wire({72, 0, 3, 0x6f6e6500})));
    BOOST_TEST(on(file, setting("a", "", setxattr_option4::replace)).status() == nfsstat4::ok);
    BOOST_TEST(ends_with(on(file, GETXATTR4args{"a"}).bytes(), wire({72, 0, 0})));
    answer4 gone = on(file, REMOVEXATTR4args{"a"});
    gone.good<PUTFH4res>();
    const auto removed = gone.good<REMOVEXATTR4res>();
    BOOST_TEST(removed.cinfo.before != removed.cinfo.after);
    BOOST_TEST(on(file, GETXATTR4args{"a"}).status() == nfsstat4::noxattr);
    // A directory has them as well, the pseudo file system has none.
    BOOST_TEST(here(setting("a", "1")).status() == nfsstat4::ok);
    BOOST_TEST(client.call(PUTROOTFH4args(), GETXATTR4args{"a"}).status() == nfsstat4::notsupp);
    BOOST_TEST(client.call(PUTROOTFH4args(), LISTXATTRS4args{0, 1000}).status() == nfsstat4::notsupp);
    BOOST_TEST(client.call(PUTROOTFH4args(), setting("a", "1")).status() == nfsstat4::rofs);
    BOOST_TEST(client.call(GETXATTR4args{"a"}).status() == nfsstat4::nofilehandle);
}

BOOST_FIXTURE_TEST_CASE(extended_attributes_have_limits, fixture)
{
    const client4::opened file = made("f");
    const std::string longest(250, 'n'), too_long(251, 'n');
    for (const auto& [name, status] : std::initializer_list<std::pair<std::string_view, nfsstat4>>{
             {"", nfsstat4::inval},
             {std::string_view("a\0b", 3), nfsstat4::inval},
             {too_long, nfsstat4::nametoolong}}) {
        BOOST_TEST(on(file, GETXATTR4args{name}).status() == status);
        BOOST_TEST(on(file, setting(name, "x")).status() == status);
        BOOST_TEST(on(file, REMOVEXATTR4args{name}).status() == status);
    }
    BOOST_TEST(on(file, setting(longest, "x")).status() == nfsstat4::ok);
    // More than any file system has.
    BOOST_CHECK(status_of_xattrs(verbena::error::from_errno(E2BIG)) == nfsstat4::xattr2big);
    BOOST_CHECK(status_of_storage(verbena::error::from_errno(E2BIG)) == nfsstat4::io);
    BOOST_CHECK(status_of_storage(verbena::error::from_errno(ENODATA)) == nfsstat4::io);
    const std::vector<std::byte> big(65536);
    storage::request root;
    root.who = storage::credential(0, 0);
    const auto there = run_until_complete(*shard, files->lookup(root, files->root(), "f"));
    BOOST_REQUIRE(there);
    BOOST_REQUIRE(run_until_complete(
        *shard, files->setxattr(root, there->found.handle, longest, big, storage::xattr_mode::replace)));
    answer4 out = on(file, GETXATTR4args{std::string_view(longest)});
    out.good<PUTFH4res>();
    BOOST_TEST(out.good<GETXATTR4res>().value.size() == big.size());
    // It is not cut where it does not fit.
    BOOST_TEST(compound(client.sequence(0, true), PUTFH4args{client4::handle_of(file)},
                        GETXATTR4args{std::string_view(longest)})
                   .status() == nfsstat4::rep_too_big_to_cache);
}

BOOST_FIXTURE_TEST_CASE(names_of_extended_attributes_are_listed_in_parts, fixture)
{
    const client4::opened file = made("f");
    // LISTXATTRS, OK, cookie 0, no name, and the end.
    BOOST_TEST(ends_with(on(file, LISTXATTRS4args{0, 16}).bytes(), wire({74, 0, 0, 0, 0, 1})));
    BOOST_TEST(on(file, LISTXATTRS4args{0, 15}).status() == nfsstat4::toosmall);
    std::set<std::string> all;
    for (int i = 0; i < 40; ++i) {
        all.insert("name" + std::to_string(i));
        BOOST_TEST(on(file, setting("name" + std::to_string(i), "v")).status() == nfsstat4::ok);
    }
    BOOST_TEST(on(file, LISTXATTRS4args{0, 16 + 11}).status() == nfsstat4::toosmall);
    const auto list = [&](std::uint32_t maxcount, auto between) {
        std::multiset<std::string> found;
        std::uint64_t cookie = 0;
        for (bool eof = false; !eof;) {
            answer4 out = on(file, LISTXATTRS4args{cookie, maxcount});
            out.good<PUTFH4res>();
            const auto res = out.good<LISTXATTRS4res>();
            std::size_t size = 16;
            for (const component4 name : res.names) {
                size += 4 + xdr::padded(name.size());
                found.emplace(name);
            }
            BOOST_TEST(size <= maxcount);
            BOOST_TEST((res.names.size() != 0 || res.eof));
            cookie = res.cookie;
            eof = res.eof;
            between();
        }
        return found;
    };
    const std::multiset<std::string> expected(all.begin(), all.end());
    BOOST_CHECK(list(1 << 20, [] {}) == expected);
    BOOST_CHECK(list(28, [] {}) == expected);
    // What comes and goes meanwhile hides no other name, and repeats none.
    int n = 0;
    const auto found = list(100, [&] {
        BOOST_TEST(on(file, setting("new" + std::to_string(n), "v")).status() == nfsstat4::ok);
        BOOST_TEST(on(file, REMOVEXATTR4args{n % 2 == 0 ? "name0" : "new0"}).status() ==
                   (n < 2 ? nfsstat4::ok : nfsstat4::noxattr));
        ++n;
    });
    BOOST_TEST(n > 2);
    for (const std::string& name : found)
        BOOST_TEST(found.count(name) == 1u, name);
    for (int i = 1; i < 40; ++i)
        BOOST_TEST(found.count("name" + std::to_string(i)) == 1u);
}

BOOST_FIXTURE_TEST_CASE(access_tells_of_extended_attributes, fixture)
{
    const client4::opened file = made("f");
    const auto ask = [&](const auto&... way) {
        answer4 out = client.call(way..., ACCESS4args{access4::all_with_xattr});
        for (std::size_t i = 0; i < sizeof...(way); ++i)
            out.take<PUTFH4res>();
        return out.good<ACCESS4res>();
    };
    constexpr std::uint32_t xattrs = access4::xaread | access4::xawrite | access4::xalist;
    auto res = ask(PUTFH4args{client4::handle_of(file)});
    BOOST_TEST((res.supported & xattrs) == xattrs);
    BOOST_TEST((res.access & xattrs) == xattrs);
    user->uid = 1001;
    res = ask(PUTFH4args{client4::handle_of(file)});
    BOOST_TEST((res.supported & xattrs) == xattrs);
    BOOST_TEST((res.access & xattrs) == access4::xalist);
    user->uid = 1000;
    minor = 1;
    BOOST_TEST(on(file, ACCESS4args{access4::xaread}).status() == nfsstat4::inval);
}

BOOST_FIXTURE_TEST_CASE(what_a_back_end_can_t_do_is_not_supported, nfs4_fixture)
{
    class plain final : public storage::forwarding_backend {
    public:
        explicit plain(storage::file_backend& below) : forwarding_backend(below) {}
        const storage::filesystem_info& info() const noexcept override { return none_; }
        task<result<storage::seek_result>> seek(const storage::request& r, const storage::handle& f,
                                                std::uint64_t at, storage::extent what) override
        {
            return file_backend::seek(r, f, at, what);
        }
        task<result<storage::change>> allocate(const storage::request& r, const storage::handle& f,
                                               std::uint64_t at, std::uint64_t n) override
        {
            return file_backend::allocate(r, f, at, n);
        }
        task<result<storage::copy_result>> copy(const storage::request& r, const storage::handle& f,
                                                std::uint64_t at, const storage::handle& to,
                                                std::uint64_t there, std::uint64_t n) override
        {
            return file_backend::copy(r, f, at, to, there, n);
        }
        task<result<storage::change>> clone(const storage::request& r, const storage::handle& f,
                                            std::uint64_t at, const storage::handle& to, std::uint64_t there,
                                            std::uint64_t n) override
        {
            return file_backend::clone(r, f, at, to, there, n);
        }
        task<result<std::vector<std::byte>>> getxattr(const storage::request& r, const storage::handle& f,
                                                      std::string_view name) override
        {
            return file_backend::getxattr(r, f, name);
        }

    private:
        storage::filesystem_info none_;
    };
    plain back_end(*files);
    options[0].backend = &back_end;
    client4 client(*this, "a");
    client.connect();
    minor = 2;
    const client4::opened file = client.open(client.creating("f"));
    const PUTFH4args there{client4::handle_of(file)};
    BOOST_TEST(client.write(file, "text") == nfsstat4::ok);
    BOOST_TEST(client.call(there, SEEK4args{file.id, 0, data_content4::data}).status() == nfsstat4::notsupp);
    BOOST_TEST(client.call(there, ALLOCATE4args{file.id, 0, 1}).status() == nfsstat4::notsupp);
    const client4::opened other = client.open(client.creating("g"));
    BOOST_TEST(
        client.call(there, SAVEFH4args(), PUTFH4args{client4::handle_of(other)}, copying(file.id, other.id))
            .status() == nfsstat4::notsupp);
    BOOST_TEST(client.call(there, SAVEFH4args(), CLONE4args{file.id, file.id, 0, 100, 0}).status() ==
               nfsstat4::notsupp);
    BOOST_TEST(client.call(there, GETXATTR4args{"a"}).status() == nfsstat4::notsupp);
    answer4 out = client.call(there, ACCESS4args{access4::all_with_xattr});
    out.good<PUTFH4res>();
    BOOST_TEST((out.good<ACCESS4res>().supported & ~access4::all) == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
