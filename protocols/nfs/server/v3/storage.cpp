// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/v3/storage.hpp>

#include <cerrno>
#include <unistd.h>

namespace verbena::nfs::v3 {

namespace {

constexpr std::uint32_t permission_bits = 07777;
constexpr std::uint32_t no_id = ~std::uint32_t(0);
constexpr std::uint32_t nanoseconds_per_second = 1'000'000'000;

ftype3 to_ftype3(storage::file_type type) noexcept
{
    switch (type) {
    case storage::file_type::regular: return ftype3::reg;
    case storage::file_type::directory: return ftype3::dir;
    case storage::file_type::block_device: return ftype3::blk;
    case storage::file_type::character_device: return ftype3::chr;
    case storage::file_type::symlink: return ftype3::lnk;
    case storage::file_type::socket: return ftype3::sock;
    case storage::file_type::fifo: return ftype3::fifo;
    }
    return ftype3::reg;
}

nfstime3 to_nfstime3(const storage::file_time& time) noexcept
{
    return nfstime3::nearest(time.seconds, time.nanoseconds);
}

bool convert(const set_time3& from, storage::set_time& to) noexcept
{
    switch (from.how) {
    case time_how::dont_change: to.how = storage::set_time::kind::keep; break;
    case time_how::set_to_server_time: to.how = storage::set_time::kind::server_time; break;
    case time_how::set_to_client_time:
        to.how = storage::set_time::kind::value;
        to.value.seconds = from.time.seconds;
        to.value.nanoseconds = from.time.nseconds;
        return from.time.nseconds < nanoseconds_per_second;
    }
    return true;
}

nfsstat3 from_errno(int value) noexcept
{
    switch (value) {
    case EPERM: return nfsstat3::perm;
    case ENOENT: return nfsstat3::noent;
    case ENXIO: return nfsstat3::nxio;
    case EACCES: return nfsstat3::acces;
    // A directory that is a mount point: asking again would not help (RFC 1813 has no code for it).
    case EBUSY: return nfsstat3::acces;
    case EEXIST: return nfsstat3::exist;
    case EXDEV: return nfsstat3::xdev;
    case ENODEV: return nfsstat3::nodev;
    case ENOTDIR: return nfsstat3::notdir;
    case EISDIR: return nfsstat3::isdir;
    case EINVAL: return nfsstat3::inval;
    case ELOOP: return nfsstat3::inval; // a symbolic link, which is never followed here
    case EOVERFLOW:
    case EFBIG: return nfsstat3::fbig;
    case ENOSPC: return nfsstat3::nospc;
    case EROFS: return nfsstat3::rofs;
    case EMLINK: return nfsstat3::mlink;
    case ENAMETOOLONG: return nfsstat3::nametoolong;
    case ENOTEMPTY: return nfsstat3::notempty;
    case EDQUOT: return nfsstat3::dquot;
    case ESTALE: return nfsstat3::stale;
    case EREMOTE: return nfsstat3::remote;
    case EOPNOTSUPP:
    case ENOSYS: return nfsstat3::notsupp;
    // What the export is of is not there, as a disk that is not mounted yet: a client waits for it.
    case ENOMEDIUM:
    // Room of ours, not of the file system, or a wait that ended: later it may work.
    case EAGAIN:
    case ENOMEM:
    case ENFILE:
    case EMFILE:
    case ENOBUFS:
    case ETIMEDOUT:
    case ECANCELED:
    case EINTR: return nfsstat3::jukebox;
    default: return nfsstat3::io;
    }
}

} // namespace

nfsstat3 to_status(const error& failure) noexcept
{
    if (failure.code().category() != storage::storage_category())
        return from_errno(failure.errno_value());
    switch (storage::errc(failure.code().value())) {
    case storage::errc::bad_cookie: return nfsstat3::bad_cookie;
    case storage::errc::not_sync: return nfsstat3::not_sync;
    case storage::errc::bad_handle: return nfsstat3::badhandle;
    case storage::errc::too_small: return nfsstat3::toosmall;
    case storage::errc::crosses_mount: return nfsstat3::acces;
    case storage::errc::delayed: return nfsstat3::jukebox;
    }
    return nfsstat3::io;
}

fattr3 to_fattr3(const storage::attributes& attrs) noexcept
{
    fattr3 out;
    out.type = to_ftype3(attrs.type);
    out.mode = attrs.mode & permission_bits;
    out.nlink = attrs.links;
    out.uid = attrs.uid;
    out.gid = attrs.gid;
    out.size = attrs.size;
    out.used = attrs.used;
    out.rdev = {attrs.device_major, attrs.device_minor};
    out.fsid = attrs.fsid;
    out.fileid = attrs.fileid;
    out.atime = to_nfstime3(attrs.atime);
    out.mtime = to_nfstime3(attrs.mtime);
    out.ctime = to_nfstime3(attrs.ctime);
    return out;
}

post_op_attr to_post_op(const std::optional<storage::attributes>& attrs) noexcept
{
    return attrs ? post_op_attr(to_fattr3(*attrs)) : std::nullopt;
}

wcc_data to_wcc(const storage::change& change) noexcept
{
    wcc_data out;
    if (change.before)
        out.before = wcc_attr{change.before->size, to_nfstime3(change.before->mtime),
                              to_nfstime3(change.before->ctime)};
    out.after = to_post_op(change.after);
    return out;
}

nfsstat3 from_sattr3(const sattr3& from, storage::set_attributes& to) noexcept
{
    if (from.uid == no_id || from.gid == no_id)
        return nfsstat3::inval;
    if (from.mode)
        to.mode = *from.mode & permission_bits;
    to.uid = from.uid;
    to.gid = from.gid;
    to.size = from.size;
    const bool good_times = convert(from.atime, to.atime) && convert(from.mtime, to.mtime);
    return good_times ? nfsstat3::ok : nfsstat3::inval;
}

// RFC 1813 3.3.4. Deleting is a right on the directory; for a file itself it says nothing, so that
// bit is never given there.
std::uint32_t to_access3(std::uint32_t wanted, unsigned permissions, storage::file_type type) noexcept
{
    const bool directory = type == storage::file_type::directory;
    const bool search = (permissions & X_OK) != 0;
    std::uint32_t granted = 0;
    if ((permissions & R_OK) != 0)
        granted |= access3::read;
    if (search)
        granted |= directory ? access3::lookup : access3::execute;
    if ((permissions & W_OK) != 0) {
        // An entry of a directory that can't be searched can't be reached either.
        if (!directory)
            granted |= access3::modify | access3::extend;
        else if (search)
            granted |= access3::modify | access3::extend | access3::remove;
    }
    return granted & wanted;
}

unsigned to_permissions(std::uint32_t wanted, storage::file_type type) noexcept
{
    unsigned permissions = 0;
    if ((wanted & access3::read) != 0)
        permissions |= R_OK;
    if ((wanted & (access3::lookup | access3::execute)) != 0)
        permissions |= X_OK;
    if ((wanted & (access3::modify | access3::extend | access3::remove)) != 0)
        permissions |= type == storage::file_type::directory ? W_OK | X_OK : W_OK;
    return permissions;
}

} // namespace verbena::nfs::v3
