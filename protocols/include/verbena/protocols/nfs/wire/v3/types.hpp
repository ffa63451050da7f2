// SPDX-License-Identifier: Apache-2.0
// The basic data types of NFS version 3 (RFC 1813 section 2). Names are the RFC's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

#pragma GCC visibility push(default)

namespace verbena::nfs::v3 {

/// RPC's number of NFS, in each version.
inline constexpr std::uint32_t program = 100003;
/// RPC's version.
inline constexpr std::uint32_t version = 3;

/// Bytes of a file handle (RFC 1813 2.4).
inline constexpr std::uint32_t max_handle_size = 64; ///< NFS3_FHSIZE
/// Bytes of each verifier (RFC 1813 2.4).
inline constexpr std::uint32_t verifier_size = 8;
/// Names and paths on the wire have no limit in RFC 1813; ours are far above what a file system
/// takes, so that a server can answer nametoolong to what is merely too long for it.
inline constexpr std::uint32_t max_filename = 4096;
/// Bytes of a symbolic link's target; see max_filename.
inline constexpr std::uint32_t max_path = 65536;
/// The longest symbolic link that a caller makes room for.
inline constexpr std::uint32_t max_expected_path = 4096;

/// The procedures (RFC 1813 3.3).
enum class procedure : std::uint32_t {
    null = 0,
    getattr = 1,
    setattr = 2,
    lookup = 3,
    access = 4,
    readlink = 5,
    read = 6,
    write = 7,
    create = 8,
    mkdir = 9,
    symlink = 10,
    mknod = 11,
    remove = 12,
    rmdir = 13,
    rename = 14,
    link = 15,
    readdir = 16,
    readdirplus = 17,
    fsstat = 18,
    fsinfo = 19,
    pathconf = 20,
    commit = 21,
};
/// How many there are, NULL among them.
inline constexpr std::uint32_t procedure_count = 22;

/// "GETATTR" and so on; "unknown" for other values.
const char* to_string(procedure value) noexcept;

/// What a procedure is answered (RFC 1813 2.6).
enum class nfsstat3 : std::uint32_t {
    ok = 0,
    perm = 1,
    noent = 2,
    io = 5,
    nxio = 6,
    acces = 13,
    exist = 17,
    xdev = 18,
    nodev = 19,
    notdir = 20,
    isdir = 21,
    inval = 22,
    fbig = 27,
    nospc = 28,
    rofs = 30,
    mlink = 31,
    nametoolong = 63,
    notempty = 66,
    dquot = 69,
    stale = 70,
    remote = 71,
    badhandle = 10001,
    not_sync = 10002,
    bad_cookie = 10003,
    notsupp = 10004,
    toosmall = 10005,
    serverfault = 10006,
    badtype = 10007,
    jukebox = 10008,
};

/// All statuses but ok, in the order of RFC 1813 2.6.
inline constexpr std::array error_statuses = {
    nfsstat3::perm,        nfsstat3::noent,    nfsstat3::io,         nfsstat3::nxio,    nfsstat3::acces,
    nfsstat3::exist,       nfsstat3::xdev,     nfsstat3::nodev,      nfsstat3::notdir,  nfsstat3::isdir,
    nfsstat3::inval,       nfsstat3::fbig,     nfsstat3::nospc,      nfsstat3::rofs,    nfsstat3::mlink,
    nfsstat3::nametoolong, nfsstat3::notempty, nfsstat3::dquot,      nfsstat3::stale,   nfsstat3::remote,
    nfsstat3::badhandle,   nfsstat3::not_sync, nfsstat3::bad_cookie, nfsstat3::notsupp, nfsstat3::toosmall,
    nfsstat3::serverfault, nfsstat3::badtype,  nfsstat3::jukebox,
};

/// "NFS3ERR_STALE" and so on; "NFS3ERR_unknown" for values that RFC 1813 does not list.
const char* to_string(nfsstat3 status) noexcept;

/// Category "nfs3": values of nfsstat3. Where a POSIX errno means the same, codes compare equal to
/// the std::errc.
const std::error_category& status_category() noexcept;
/// So a status stands in an error.
std::error_code make_error_code(nfsstat3 status) noexcept;

/// What kind of file it is (RFC 1813 2.5).
enum class ftype3 : std::uint32_t { reg = 1, dir = 2, blk = 3, chr = 4, lnk = 5, sock = 6, fifo = 7 };

/// Bits of ACCESS (RFC 1813 3.3.4).
namespace access3 {
inline constexpr std::uint32_t read = 0x01;
inline constexpr std::uint32_t lookup = 0x02;
inline constexpr std::uint32_t modify = 0x04;
inline constexpr std::uint32_t extend = 0x08;
inline constexpr std::uint32_t remove = 0x10; ///< ACCESS3_DELETE
inline constexpr std::uint32_t execute = 0x20;
inline constexpr std::uint32_t all = 0x3f;
} // namespace access3

/// Bits of FSINFO's properties (RFC 1813 3.3.19).
namespace fsf3 {
inline constexpr std::uint32_t link = 0x01;
inline constexpr std::uint32_t symlink = 0x02;
inline constexpr std::uint32_t homogeneous = 0x08;
inline constexpr std::uint32_t can_set_time = 0x10;
} // namespace fsf3

/// Eight bytes that mean something to who made them alone.
using verifier3 = std::array<std::byte, verifier_size>;
/// Of READDIR's cookies: the server changes it when these are no longer good.
using cookieverf3 = verifier3;
/// Of an exclusive CREATE: the client draws it, so that a repeat is known.
using createverf3 = verifier3;
/// Of a server's life: what was written unstably under another one may be lost.
using writeverf3 = verifier3;

/// An opaque file handle, held inline.
class nfs_fh3 {
public:
    nfs_fh3() = default;

    /// False, and nothing changes, if there are more than max_handle_size bytes.
    [[nodiscard]] bool assign(std::span<const std::byte> bytes) noexcept
    {
        if (bytes.size() > max_handle_size)
            return false;
        size_ = static_cast<std::uint32_t>(bytes.size());
        if (size_ != 0)
            std::memcpy(data_.data(), bytes.data(), size_);
        return true;
    }

    /// As the server made it. Valid as long as the handle.
    std::span<const std::byte> bytes() const noexcept { return {data_.data(), size_}; }
    std::size_t size() const noexcept { return size_; }

    friend bool operator==(const nfs_fh3& a, const nfs_fh3& b) noexcept
    {
        return a.size_ == b.size_ && std::memcmp(a.data_.data(), b.data_.data(), a.size_) == 0;
    }

private:
    std::uint32_t size_ = 0;
    std::array<std::byte, max_handle_size> data_{};
};

/// The numbers of a device file (RFC 1813 2.5).
struct specdata3 {
    std::uint32_t specdata1 = 0; ///< major
    std::uint32_t specdata2 = 0; ///< minor

    friend bool operator==(const specdata3&, const specdata3&) = default;
};

/// Seconds since 1970, and nanoseconds (RFC 1813 2.5).
struct nfstime3 {
    std::uint32_t seconds = 0;
    std::uint32_t nseconds = 0;

    /// 32 bits of seconds without a sign reach from 1970 to 2106; what lies outside becomes the nearest time in it.
    static constexpr nfstime3 nearest(std::int64_t seconds, std::uint32_t nanoseconds) noexcept
    {
        constexpr std::uint32_t last = std::numeric_limits<std::uint32_t>::max();
        if (seconds < 0)
            return {0, 0};
        if (seconds > last)
            return {last, 999'999'999};
        return {static_cast<std::uint32_t>(seconds), nanoseconds};
    }

    friend bool operator==(const nfstime3&, const nfstime3&) = default;
};

/// The attributes of a file (RFC 1813 2.5). `fsid` tells the server's file systems apart, `fileid` the files of
/// one.
struct fattr3 {
    ftype3 type = ftype3::reg;
    std::uint32_t mode = 0;
    std::uint32_t nlink = 0;
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
    std::uint64_t size = 0;
    std::uint64_t used = 0; ///< bytes of disk space
    specdata3 rdev;
    std::uint64_t fsid = 0;
    std::uint64_t fileid = 0;
    nfstime3 atime;
    nfstime3 mtime;
    nfstime3 ctime;

    friend bool operator==(const fattr3&, const fattr3&) = default;
};

/// The attributes by which a client knows that somebody else changed a file (RFC 1813 2.5).
struct wcc_attr {
    std::uint64_t size = 0;
    nfstime3 mtime;
    nfstime3 ctime;

    friend bool operator==(const wcc_attr&, const wcc_attr&) = default;
};

/// Attributes behind an operation, where the server has them.
using post_op_attr = std::optional<fattr3>;
/// Attributes before it, where the server has them from the same moment.
using pre_op_attr = std::optional<wcc_attr>;
/// The handle of what was made, where the server tells.
using post_op_fh3 = std::optional<nfs_fh3>;

/// Weak cache consistency: a file before and behind an operation (RFC 1813 2.6).
struct wcc_data {
    pre_op_attr before;
    post_op_attr after;

    friend bool operator==(const wcc_data&, const wcc_data&) = default;
};

/// Where a time that is set comes from.
enum class time_how : std::uint32_t { dont_change = 0, set_to_server_time = 1, set_to_client_time = 2 };

/// set_atime and set_mtime.
struct set_time3 {
    time_how how = time_how::dont_change;
    nfstime3 time; ///< if set_to_client_time

    friend bool operator==(const set_time3&, const set_time3&) = default;
};

/// Attributes to be set; what has no value stays (RFC 1813 2.5).
struct sattr3 {
    std::optional<std::uint32_t> mode;
    std::optional<std::uint32_t> uid;
    std::optional<std::uint32_t> gid;
    std::optional<std::uint64_t> size;
    set_time3 atime;
    set_time3 mtime;

    friend bool operator==(const sattr3&, const sattr3&) = default;
};

/// A name in a directory (RFC 1813 2.5).
struct diropargs3 {
    nfs_fh3 dir;
    std::string_view name; ///< a view into the message
};

} // namespace verbena::nfs::v3

template<>
struct std::is_error_code_enum<verbena::nfs::v3::nfsstat3> : std::true_type {};

#pragma GCC visibility pop
