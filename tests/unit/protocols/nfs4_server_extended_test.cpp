// SPDX-License-Identifier: Apache-2.0
// Minor version 2: which there are, its attributes, and what it adds for data.
#include "nfs4_server.hpp"

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

} // namespace

struct fixture : nfs4_fixture {
    fixture()
    {
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
    BOOST_TEST(two.suppattr_exclcreat.test(attribute::mode_umask));
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

BOOST_AUTO_TEST_SUITE_END()
