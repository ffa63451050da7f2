// SPDX-License-Identifier: Apache-2.0
// What this codec writes, read by another one: libnfs's, which rpcgen made from RFC 1813. Each field
// is compared by its name, and what libnfs writes again must be the same bytes.
#include <boost/test/unit_test.hpp>

#include "nfs3_vectors.hpp"

#include <verbena/protocols/nfs/wire/portmap.hpp>
#include <verbena/protocols/nfs/wire/v3/mount.hpp>

#include <nfsc/libnfs-raw-mount.h>
#include <nfsc/libnfs-raw-nfs.h>
#include <nfsc/libnfs-raw-portmap.h>

#include <cstring>

BOOST_AUTO_TEST_SUITE(nfs3_oracle_test)

using namespace verbena::test;
namespace v3 = verbena::nfs::v3;
namespace mnt = verbena::nfs::mount3;
namespace pmap = verbena::nfs::portmap;
using verbena::xdr::encoder;

namespace {

/// Decodes what `write` writes with libnfs's `codec` and hands the result to `check`.
template<class T, class Write, class Check>
void oracle(std::uint32_t (*codec)(ZDR*, T*), Write&& write, Check&& check)
{
    std::vector<std::byte> block(4096);
    encoder out(block);
    write(out);
    BOOST_REQUIRE(out.ok());
    const std::string expected = to_hex(out.bytes());

    std::vector<char> message(out.size() + 1); // libnfs may end a string in place
    std::memcpy(message.data(), block.data(), out.size());
    ZDR in;
    zdrmem_create(&in, message.data(), static_cast<std::uint32_t>(out.size()), ZDR_DECODE);
    T value;
    std::memset(&value, 0, sizeof value);
    BOOST_REQUIRE(codec(&in, &value));
    BOOST_TEST(zdr_getpos(&in) == out.size());
    check(value);

    std::vector<char> again(4096);
    ZDR back;
    zdrmem_create(&back, again.data(), static_cast<std::uint32_t>(again.size()), ZDR_ENCODE);
    BOOST_REQUIRE(codec(&back, &value));
    BOOST_TEST(to_hex(std::as_bytes(std::span(again).first(zdr_getpos(&back)))) == expected);
    zdr_destroy(&back);
    zdr_destroy(&in);
}

template<class T, class Ours, class Check>
void same(std::uint32_t (*codec)(ZDR*, T*), const Ours& ours, Check&& check)
{
    oracle(codec, [&](encoder& out) { encode(out, ours); }, check);
}

template<class Bytes> // {length, pointer}
std::string bytes_of(const Bytes& bytes)
{
    return {bytes.data_val, bytes.data_len};
}

std::string verifier_of(const char (&bytes)[8]) { return {bytes, 8}; }

constexpr std::string_view handle_text = "\x01\x02\x03\x04\x05\x06";
v3::nfs_fh3 sample_handle() { return handle_of("010203040506"); }
v3::nfs_fh3 other_handle() { return handle_of("a1a2a3a4"); }
v3::diropargs3 sample_where() { return {sample_handle(), "name.c"}; }
v3::verifier3 sample_verifier()
{
    v3::verifier3 value;
    std::memcpy(value.data(), "verifier", 8);
    return value;
}
verbena::xdr::payload_ref inline_payload(std::string_view text)
{
    return {static_cast<std::uint32_t>(text.size()), 0, std::as_bytes(std::span(text)), false};
}

void is(const nfs_fh3& theirs, const v3::nfs_fh3& ours)
{
    BOOST_TEST(bytes_of(theirs.data) == text_of(ours.bytes()));
}

void is_where(const diropargs3& theirs)
{
    BOOST_TEST(bytes_of(theirs.dir.data) == handle_text);
    BOOST_TEST(std::string(theirs.name) == "name.c");
}

void is_time(const nfstime3& theirs, std::uint32_t seconds, std::uint32_t nseconds)
{
    BOOST_TEST(theirs.seconds == seconds);
    BOOST_TEST(theirs.nseconds == nseconds);
}

void is_sample(const fattr3& theirs)
{
    BOOST_TEST(theirs.type == NF3DIR);
    BOOST_TEST(theirs.mode == 0755u);
    BOOST_TEST(theirs.nlink == 3u);
    BOOST_TEST(theirs.uid == 1000u);
    BOOST_TEST(theirs.gid == 100u);
    BOOST_TEST(theirs.size == 0x100000002u);
    BOOST_TEST(theirs.used == 4096u);
    BOOST_TEST(theirs.rdev.specdata1 == 8u);
    BOOST_TEST(theirs.rdev.specdata2 == 9u);
    BOOST_TEST(theirs.fsid == 0xf5000000f6u);
    BOOST_TEST(theirs.fileid == 0x1d0000001eu);
    is_time(theirs.atime, 0x31, 0x32);
    is_time(theirs.mtime, 0x33, 0x34);
    is_time(theirs.ctime, 0x35, 0x36);
}

void is_sample(const post_op_attr& theirs)
{
    BOOST_TEST(theirs.attributes_follow == 1u);
    is_sample(theirs.post_op_attr_u.attributes);
}

/// Of sample_wcc_before().
void is_before(const wcc_data& theirs)
{
    BOOST_TEST(theirs.before.attributes_follow == 1u);
    BOOST_TEST(theirs.before.pre_op_attr_u.attributes.size == 0x100000000u);
    is_time(theirs.before.pre_op_attr_u.attributes.mtime, 0x41, 0x42);
    is_time(theirs.before.pre_op_attr_u.attributes.ctime, 0x43, 0x44);
    BOOST_TEST(theirs.after.attributes_follow == 0u);
}

v3::wcc_data sample_wcc_after()
{
    v3::wcc_data value;
    value.after = sample_fattr3();
    return value;
}

void is_after(const wcc_data& theirs)
{
    BOOST_TEST(theirs.before.attributes_follow == 0u);
    is_sample(theirs.after);
}

/// Of sample_sattr3().
void is_sample(const sattr3& theirs)
{
    BOOST_TEST(theirs.mode.set_it == 1u);
    BOOST_TEST(theirs.mode.set_mode3_u.mode == 0644u);
    BOOST_TEST(theirs.uid.set_it == 0u);
    BOOST_TEST(theirs.gid.set_it == 1u);
    BOOST_TEST(theirs.gid.set_gid3_u.gid == 100u);
    BOOST_TEST(theirs.size.set_it == 1u);
    BOOST_TEST(theirs.size.set_size3_u.size == 0x100000005u);
    BOOST_TEST(theirs.atime.set_it == SET_TO_SERVER_TIME);
    BOOST_TEST(theirs.mtime.set_it == SET_TO_CLIENT_TIME);
    is_time(theirs.mtime.set_mtime_u.mtime, 0x71, 0x72);
}

} // namespace

BOOST_AUTO_TEST_SUITE(arguments)

BOOST_AUTO_TEST_CASE(handle_alone)
{
    const auto handle = sample_handle();
    same(zdr_GETATTR3args, v3::GETATTR3args{handle}, [&](const auto& args) { is(args.object, handle); });
    same(zdr_READLINK3args, v3::READLINK3args{handle}, [&](const auto& args) { is(args.symlink, handle); });
    same(zdr_FSSTAT3args, v3::FSSTAT3args{handle}, [&](const auto& args) { is(args.fsroot, handle); });
    same(zdr_FSINFO3args, v3::FSINFO3args{handle}, [&](const auto& args) { is(args.fsroot, handle); });
    same(zdr_PATHCONF3args, v3::PATHCONF3args{handle}, [&](const auto& args) { is(args.object, handle); });
}

BOOST_AUTO_TEST_CASE(setattr)
{
    const v3::SETATTR3args ours{sample_handle(), sample_sattr3(), v3::nfstime3{5, 6}};
    same(zdr_SETATTR3args, ours, [&](const SETATTR3args& args) {
        is(args.object, ours.object);
        is_sample(args.new_attributes);
        BOOST_TEST(args.guard.check == 1u);
        is_time(args.guard.sattrguard3_u.obj_ctime, 5, 6);
    });
    v3::SETATTR3args uid_and_atime;
    uid_and_atime.new_attributes.uid = 77;
    uid_and_atime.new_attributes.atime = {v3::time_how::set_to_client_time, {8, 9}};
    same(zdr_SETATTR3args, uid_and_atime, [&](const SETATTR3args& args) {
        BOOST_TEST(args.new_attributes.mode.set_it == 0u);
        BOOST_TEST(args.new_attributes.uid.set_uid3_u.uid == 77u);
        is_time(args.new_attributes.atime.set_atime_u.atime, 8, 9);
        BOOST_TEST(args.new_attributes.mtime.set_it == DONT_CHANGE);
        BOOST_TEST(args.guard.check == 0u);
    });
}

BOOST_AUTO_TEST_CASE(names)
{
    same(zdr_LOOKUP3args, v3::LOOKUP3args{sample_where()}, [](const auto& args) { is_where(args.what); });
    same(zdr_REMOVE3args, v3::REMOVE3args{sample_where()}, [](const auto& args) { is_where(args.object); });
    same(zdr_RMDIR3args, v3::RMDIR3args{sample_where()}, [](const auto& args) { is_where(args.object); });
    same(zdr_RENAME3args, v3::RENAME3args{sample_where(), {other_handle(), "to"}}, [](const auto& args) {
        is_where(args.from);
        is(args.to.dir, other_handle());
        BOOST_TEST(std::string(args.to.name) == "to");
    });
    same(zdr_LINK3args, v3::LINK3args{other_handle(), sample_where()}, [](const auto& args) {
        is(args.file, other_handle());
        is_where(args.link);
    });
}

BOOST_AUTO_TEST_CASE(data)
{
    same(zdr_ACCESS3args, v3::ACCESS3args{sample_handle(), 0x2d}, [](const ACCESS3args& args) {
        is(args.object, sample_handle());
        BOOST_TEST(args.access == 0x2du);
    });
    same(zdr_READ3args, v3::READ3args{sample_handle(), 0x100000007, 4096}, [](const READ3args& args) {
        is(args.file, sample_handle());
        BOOST_TEST(args.offset == 0x100000007u);
        BOOST_TEST(args.count == 4096u);
    });
    const v3::WRITE3args write{sample_handle(), 0x100000007, 5, v3::stable_how::file_sync,
                               inline_payload("hello")};
    same(zdr_WRITE3args, write, [](const WRITE3args& args) {
        is(args.file, sample_handle());
        BOOST_TEST(args.offset == 0x100000007u);
        BOOST_TEST(args.count == 5u);
        BOOST_TEST(args.stable == FILE_SYNC);
        BOOST_TEST(bytes_of(args.data) == "hello");
    });
    same(zdr_COMMIT3args, v3::COMMIT3args{sample_handle(), 0x100000007, 4096}, [](const COMMIT3args& args) {
        is(args.file, sample_handle());
        BOOST_TEST(args.offset == 0x100000007u);
        BOOST_TEST(args.count == 4096u);
    });
}

BOOST_AUTO_TEST_CASE(new_objects)
{
    v3::CREATE3args create{sample_where(), v3::createmode3::guarded, sample_sattr3(), {}};
    same(zdr_CREATE3args, create, [](const CREATE3args& args) {
        is_where(args.where);
        BOOST_TEST(args.how.mode == GUARDED);
        is_sample(args.how.createhow3_u.g_obj_attributes);
    });
    create.mode = v3::createmode3::exclusive;
    create.verf = sample_verifier();
    same(zdr_CREATE3args, create, [](const CREATE3args& args) {
        BOOST_TEST(args.how.mode == EXCLUSIVE);
        BOOST_TEST(verifier_of(args.how.createhow3_u.verf) == "verifier");
    });
    same(zdr_MKDIR3args, v3::MKDIR3args{sample_where(), sample_sattr3()}, [](const MKDIR3args& args) {
        is_where(args.where);
        is_sample(args.attributes);
    });
    same(zdr_SYMLINK3args, v3::SYMLINK3args{sample_where(), sample_sattr3(), inline_payload("../ab")},
         [](const SYMLINK3args& args) {
             is_where(args.where);
             is_sample(args.symlink.symlink_attributes);
             BOOST_TEST(std::string(args.symlink.symlink_data) == "../ab");
         });
    same(zdr_MKNOD3args, v3::MKNOD3args{sample_where(), v3::ftype3::blk, sample_sattr3(), {8, 17}},
         [](const MKNOD3args& args) {
             is_where(args.where);
             BOOST_TEST(args.what.type == NF3BLK);
             is_sample(args.what.mknoddata3_u.blk_device.dev_attributes);
             BOOST_TEST(args.what.mknoddata3_u.blk_device.spec.specdata1 == 8u);
             BOOST_TEST(args.what.mknoddata3_u.blk_device.spec.specdata2 == 17u);
         });
    same(zdr_MKNOD3args, v3::MKNOD3args{sample_where(), v3::ftype3::sock, sample_sattr3(), {}},
         [](const MKNOD3args& args) {
             BOOST_TEST(args.what.type == NF3SOCK);
             is_sample(args.what.mknoddata3_u.sock_attributes);
         });
}

BOOST_AUTO_TEST_CASE(directories)
{
    same(zdr_READDIR3args, v3::READDIR3args{sample_handle(), 0x100000007, sample_verifier(), 8192},
         [](const READDIR3args& args) {
             is(args.dir, sample_handle());
             BOOST_TEST(args.cookie == 0x100000007u);
             BOOST_TEST(verifier_of(args.cookieverf) == "verifier");
             BOOST_TEST(args.count == 8192u);
         });
    same(zdr_READDIRPLUS3args,
         v3::READDIRPLUS3args{sample_handle(), 0x100000007, sample_verifier(), 512, 8192},
         [](const READDIRPLUS3args& args) {
             is(args.dir, sample_handle());
             BOOST_TEST(args.cookie == 0x100000007u);
             BOOST_TEST(verifier_of(args.cookieverf) == "verifier");
             BOOST_TEST(args.dircount == 512u);
             BOOST_TEST(args.maxcount == 8192u);
         });
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(results)

BOOST_AUTO_TEST_CASE(attributes)
{
    same(zdr_GETATTR3res, v3::GETATTR3res{v3::nfsstat3::ok, sample_fattr3()},
         [](const GETATTR3res& res) { is_sample(res.GETATTR3res_u.resok.obj_attributes); });
    same(zdr_GETATTR3res, v3::GETATTR3res{v3::nfsstat3::stale, {}},
         [](const GETATTR3res& res) { BOOST_TEST(res.status == NFS3ERR_STALE); });
    same(zdr_SETATTR3res, v3::SETATTR3res{v3::nfsstat3::ok, sample_wcc_before()},
         [](const SETATTR3res& res) { is_before(res.SETATTR3res_u.resok.obj_wcc); });
    same(zdr_SETATTR3res, v3::SETATTR3res{v3::nfsstat3::not_sync, sample_wcc_after()},
         [](const SETATTR3res& res) {
             BOOST_TEST(res.status == NFS3ERR_NOT_SYNC);
             is_after(res.SETATTR3res_u.resfail.obj_wcc);
         });
    same(zdr_ACCESS3res, v3::ACCESS3res{v3::nfsstat3::ok, sample_fattr3(), 0x2d}, [](const ACCESS3res& res) {
        is_sample(res.ACCESS3res_u.resok.obj_attributes);
        BOOST_TEST(res.ACCESS3res_u.resok.access == 0x2du);
    });
}

BOOST_AUTO_TEST_CASE(lookup)
{
    same(zdr_LOOKUP3res, v3::LOOKUP3res{v3::nfsstat3::ok, sample_handle(), sample_fattr3(), {}},
         [](const LOOKUP3res& res) {
             is(res.LOOKUP3res_u.resok.object, sample_handle());
             is_sample(res.LOOKUP3res_u.resok.obj_attributes);
             BOOST_TEST(res.LOOKUP3res_u.resok.dir_attributes.attributes_follow == 0u);
         });
    same(zdr_LOOKUP3res, v3::LOOKUP3res{v3::nfsstat3::noent, {}, {}, sample_fattr3()},
         [](const LOOKUP3res& res) {
             BOOST_TEST(res.status == NFS3ERR_NOENT);
             is_sample(res.LOOKUP3res_u.resfail.dir_attributes);
         });
}

BOOST_AUTO_TEST_CASE(data)
{
    same(zdr_READLINK3res, v3::READLINK3res{v3::nfsstat3::ok, sample_fattr3(), inline_payload("../ab")},
         [](const READLINK3res& res) {
             is_sample(res.READLINK3res_u.resok.symlink_attributes);
             BOOST_TEST(std::string(res.READLINK3res_u.resok.data) == "../ab");
         });
    same(zdr_READ3res, v3::READ3res{v3::nfsstat3::ok, sample_fattr3(), 5, true, inline_payload("hello")},
         [](const READ3res& res) {
             is_sample(res.READ3res_u.resok.file_attributes);
             BOOST_TEST(res.READ3res_u.resok.count == 5u);
             BOOST_TEST(res.READ3res_u.resok.eof == 1u);
             BOOST_TEST(bytes_of(res.READ3res_u.resok.data) == "hello");
         });
    same(zdr_READ3res, v3::READ3res{v3::nfsstat3::isdir, sample_fattr3(), 0, false, {}},
         [](const READ3res& res) {
             BOOST_TEST(res.status == NFS3ERR_ISDIR);
             is_sample(res.READ3res_u.resfail.file_attributes);
         });
    same(
        zdr_WRITE3res,
        v3::WRITE3res{v3::nfsstat3::ok, sample_wcc_before(), 9, v3::stable_how::data_sync, sample_verifier()},
        [](const WRITE3res& res) {
            is_before(res.WRITE3res_u.resok.file_wcc);
            BOOST_TEST(res.WRITE3res_u.resok.count == 9u);
            BOOST_TEST(res.WRITE3res_u.resok.committed == DATA_SYNC);
            BOOST_TEST(verifier_of(res.WRITE3res_u.resok.verf) == "verifier");
        });
    same(zdr_COMMIT3res, v3::COMMIT3res{v3::nfsstat3::ok, sample_wcc_after(), sample_verifier()},
         [](const COMMIT3res& res) {
             is_after(res.COMMIT3res_u.resok.file_wcc);
             BOOST_TEST(verifier_of(res.COMMIT3res_u.resok.verf) == "verifier");
         });
}

BOOST_AUTO_TEST_CASE(new_objects)
{
    const v3::CREATE3res ours{v3::nfsstat3::ok, sample_handle(), sample_fattr3(), sample_wcc_before()};
    const auto check = [](const auto& resok) {
        BOOST_TEST(resok.obj.handle_follows == 1u);
        is(resok.obj.post_op_fh3_u.handle, sample_handle());
        is_sample(resok.obj_attributes);
        is_before(resok.dir_wcc);
    };
    same(zdr_CREATE3res, ours, [&](const auto& res) { check(res.CREATE3res_u.resok); });
    same(zdr_MKDIR3res, ours, [&](const auto& res) { check(res.MKDIR3res_u.resok); });
    same(zdr_SYMLINK3res, ours, [&](const auto& res) { check(res.SYMLINK3res_u.resok); });
    same(zdr_MKNOD3res, ours, [&](const auto& res) { check(res.MKNOD3res_u.resok); });
    same(zdr_MKNOD3res, v3::MKNOD3res{v3::nfsstat3::badtype, {}, {}, sample_wcc_after()},
         [](const auto& res) {
             BOOST_TEST(res.status == NFS3ERR_BADTYPE);
             is_after(res.MKNOD3res_u.resfail.dir_wcc);
         });
}

BOOST_AUTO_TEST_CASE(names)
{
    const v3::REMOVE3res removed{v3::nfsstat3::ok, sample_wcc_before()};
    same(zdr_REMOVE3res, removed, [](const auto& res) { is_before(res.REMOVE3res_u.resok.dir_wcc); });
    same(zdr_RMDIR3res, removed, [](const auto& res) { is_before(res.RMDIR3res_u.resok.dir_wcc); });
    same(zdr_RENAME3res, v3::RENAME3res{v3::nfsstat3::ok, sample_wcc_before(), sample_wcc_after()},
         [](const auto& res) {
             is_before(res.RENAME3res_u.resok.fromdir_wcc);
             is_after(res.RENAME3res_u.resok.todir_wcc);
         });
    same(zdr_LINK3res, v3::LINK3res{v3::nfsstat3::ok, sample_fattr3(), sample_wcc_before()},
         [](const auto& res) {
             is_sample(res.LINK3res_u.resok.file_attributes);
             is_before(res.LINK3res_u.resok.linkdir_wcc);
         });
}

BOOST_AUTO_TEST_CASE(file_system)
{
    same(zdr_FSSTAT3res, v3::FSSTAT3res{v3::nfsstat3::ok, sample_fattr3(), 1, 2, 3, 4, 5, 6, 7},
         [](const FSSTAT3res& res) {
             const FSSTAT3resok& ok = res.FSSTAT3res_u.resok;
             is_sample(ok.obj_attributes);
             BOOST_TEST(ok.tbytes == 1u);
             BOOST_TEST(ok.fbytes == 2u);
             BOOST_TEST(ok.abytes == 3u);
             BOOST_TEST(ok.tfiles == 4u);
             BOOST_TEST(ok.ffiles == 5u);
             BOOST_TEST(ok.afiles == 6u);
             BOOST_TEST(ok.invarsec == 7u);
         });
    same(zdr_FSINFO3res,
         v3::FSINFO3res{
             v3::nfsstat3::ok, sample_fattr3(), 1, 2, 3, 4, 5, 6, 7, 0x800000000, {9, 10}, FSF3_HOMOGENEOUS},
         [](const FSINFO3res& res) {
             const FSINFO3resok& ok = res.FSINFO3res_u.resok;
             is_sample(ok.obj_attributes);
             BOOST_TEST(ok.rtmax == 1u);
             BOOST_TEST(ok.rtpref == 2u);
             BOOST_TEST(ok.rtmult == 3u);
             BOOST_TEST(ok.wtmax == 4u);
             BOOST_TEST(ok.wtpref == 5u);
             BOOST_TEST(ok.wtmult == 6u);
             BOOST_TEST(ok.dtpref == 7u);
             BOOST_TEST(ok.maxfilesize == 0x800000000u);
             is_time(ok.time_delta, 9, 10);
             BOOST_TEST(ok.properties == v3::fsf3::homogeneous);
         });
    same(zdr_PATHCONF3res,
         v3::PATHCONF3res{v3::nfsstat3::ok, sample_fattr3(), 1, 2, true, false, false, true},
         [](const PATHCONF3res& res) {
             const PATHCONF3resok& ok = res.PATHCONF3res_u.resok;
             is_sample(ok.obj_attributes);
             BOOST_TEST(ok.linkmax == 1u);
             BOOST_TEST(ok.name_max == 2u);
             BOOST_TEST(ok.no_trunc == 1u);
             BOOST_TEST(ok.chown_restricted == 0u);
             BOOST_TEST(ok.case_insensitive == 0u);
             BOOST_TEST(ok.case_preserving == 1u);
         });
}

BOOST_AUTO_TEST_CASE(readdir)
{
    oracle(
        zdr_READDIR3res,
        [](encoder& out) {
            v3::READDIR3args args;
            args.count = 1000;
            v3::readdir_writer writer(out, args, {v3::nfsstat3::ok, sample_fattr3(), sample_verifier()});
            BOOST_TEST(writer.add({11, "a", 12}));
            BOOST_TEST(writer.add({21, "name.c", 22}));
            writer.finish(true);
        },
        [](const READDIR3res& res) {
            const READDIR3resok& ok = res.READDIR3res_u.resok;
            is_sample(ok.dir_attributes);
            BOOST_TEST(verifier_of(ok.cookieverf) == "verifier");
            BOOST_TEST(ok.reply.eof == 1u);
            BOOST_REQUIRE(ok.reply.entries);
            BOOST_TEST(ok.reply.entries->fileid == 11u);
            BOOST_TEST(std::string(ok.reply.entries->name) == "a");
            BOOST_TEST(ok.reply.entries->cookie == 12u);
            const entry3* second = ok.reply.entries->nextentry;
            BOOST_REQUIRE(second);
            BOOST_TEST(second->fileid == 21u);
            BOOST_TEST(std::string(second->name) == "name.c");
            BOOST_TEST(!second->nextentry);
        });
}

BOOST_AUTO_TEST_CASE(readdirplus)
{
    oracle(
        zdr_READDIRPLUS3res,
        [](encoder& out) {
            v3::READDIRPLUS3args args;
            args.dircount = args.maxcount = 1000;
            v3::readdirplus_writer writer(out, args, {v3::nfsstat3::ok, {}, sample_verifier()});
            BOOST_TEST(writer.add({11, "a", 12, sample_fattr3(), sample_handle()}));
            BOOST_TEST(writer.add({21, "name.c", 22, {}, {}}));
            writer.finish(false);
        },
        [](const READDIRPLUS3res& res) {
            const READDIRPLUS3resok& ok = res.READDIRPLUS3res_u.resok;
            BOOST_TEST(ok.dir_attributes.attributes_follow == 0u);
            BOOST_TEST(verifier_of(ok.cookieverf) == "verifier");
            BOOST_TEST(ok.reply.eof == 0u);
            BOOST_REQUIRE(ok.reply.entries);
            BOOST_TEST(ok.reply.entries->fileid == 11u);
            is_sample(ok.reply.entries->name_attributes);
            is(ok.reply.entries->name_handle.post_op_fh3_u.handle, sample_handle());
            const entryplus3* second = ok.reply.entries->nextentry;
            BOOST_REQUIRE(second);
            BOOST_TEST(std::string(second->name) == "name.c");
            BOOST_TEST(second->cookie == 22u);
            BOOST_TEST(second->name_handle.handle_follows == 0u);
        });
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(other_programs)

BOOST_AUTO_TEST_CASE(mount)
{
    mnt::mountres3 mounted;
    mounted.fhandle = sample_handle();
    mounted.auth_flavor_count = 2;
    mounted.auth_flavors = {1, 390003};
    same(zdr_mountres3, mounted, [](const mountres3& res) {
        const mountres3_ok& ok = res.mountres3_u.mountinfo;
        BOOST_TEST(std::string(ok.fhandle.fhandle3_val, ok.fhandle.fhandle3_len) == handle_text);
        BOOST_REQUIRE(ok.auth_flavors.auth_flavors_len == 2u);
        BOOST_TEST(ok.auth_flavors.auth_flavors_val[0] == 1);
        BOOST_TEST(ok.auth_flavors.auth_flavors_val[1] == 390003);
    });
    mounted.status = mnt::mountstat3::notdir;
    same(zdr_mountres3, mounted, [](const mountres3& res) { BOOST_TEST(res.fhs_status == MNT3ERR_NOTDIR); });
    oracle(
        zdr_exports,
        [](encoder& out) {
            const std::string_view some_hosts[] = {"10.0.0.0/8", "host"};
            mnt::encode_export(out, "/a", some_hosts);
            mnt::encode_export(out, "/b", {});
            mnt::end_of_list(out);
        },
        [](exports list) {
            BOOST_REQUIRE(list);
            BOOST_TEST(std::string(list->ex_dir) == "/a");
            BOOST_REQUIRE(list->ex_groups);
            BOOST_TEST(std::string(list->ex_groups->gr_name) == "10.0.0.0/8");
            BOOST_REQUIRE(list->ex_groups->gr_next);
            BOOST_TEST(std::string(list->ex_groups->gr_next->gr_name) == "host");
            BOOST_REQUIRE(list->ex_next);
            BOOST_TEST(std::string(list->ex_next->ex_dir) == "/b");
            BOOST_TEST(!list->ex_next->ex_groups);
            BOOST_TEST(!list->ex_next->ex_next);
        });
    oracle(
        zdr_mountlist,
        [](encoder& out) {
            encode(out, mnt::mount_entry{"host", "/a"});
            mnt::end_of_list(out);
        },
        [](mountlist list) {
            BOOST_REQUIRE(list);
            BOOST_TEST(std::string(list->ml_hostname) == "host");
            BOOST_TEST(std::string(list->ml_directory) == "/a");
            BOOST_TEST(!list->ml_next);
        });
}

BOOST_AUTO_TEST_CASE(port_mapper)
{
    same(zdr_pmap2_mapping, pmap::mapping{100003, 3, pmap::protocol_tcp, 2049},
         [](const pmap2_mapping& args) {
             BOOST_TEST(args.prog == 100003u);
             BOOST_TEST(args.vers == 3u);
             BOOST_TEST(args.prot == 6u);
             BOOST_TEST(args.port == 2049u);
         });
    same(zdr_pmap3_mapping, pmap::rpcb{100003, 3, "rdma", "0.0.0.0.78.81", "1"},
         [](const pmap3_mapping& args) {
             BOOST_TEST(args.prog == 100003u);
             BOOST_TEST(args.vers == 3u);
             BOOST_TEST(std::string(args.netid) == "rdma");
             BOOST_TEST(std::string(args.addr) == "0.0.0.0.78.81");
             BOOST_TEST(std::string(args.owner) == "1");
         });
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE_END()
