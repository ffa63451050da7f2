// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/state_home.hpp>
#include <verbena/protocols/nfs/server/v3/storage.hpp>
#include <verbena/protocols/nfs/server/v4/storage.hpp>

#include <cerrno>
#include <charconv>
#include <utility>

namespace verbena::nfs::v4 {

namespace {

constexpr std::uint32_t no_id = ~std::uint32_t(0);
constexpr std::uint64_t first_cookie = 3;
// Where cookies 0 to 2 of a back end go: no file system has such (ext4's go up to 2^63 - 1, but not to these).
constexpr std::uint64_t moved_cookies = 0x7fff'ffff'ffff'fff0;

nfstime4 to_time(const storage::file_time& time) noexcept { return {time.seconds, time.nanoseconds}; }

std::string_view write_id(std::array<char, 10>& to, std::uint32_t id) noexcept
{
    const auto end = std::to_chars(to.data(), to.data() + to.size(), id).ptr;
    return {to.data(), end};
}

void set_time(const settime4& from, storage::set_time& to) noexcept
{
    to.how = from.set_it == time_how4::set_to_server_time ? storage::set_time::kind::server_time
                                                          : storage::set_time::kind::value;
    to.value = {from.time.seconds, from.time.nseconds};
}

} // namespace

// The numbers below 10000 are the same, and those of version 3's own errors are too.
nfsstat4 status_of_storage(const error& failure) noexcept
{
    const v3::nfsstat3 status = v3::to_status(failure);
    switch (status) {
    case v3::nfsstat3::nxio:
    case v3::nfsstat3::nodev:
    case v3::nfsstat3::remote: return nfsstat4::io;
    case v3::nfsstat3::not_sync: return nfsstat4::not_same;
    default: return static_cast<nfsstat4>(status);
    }
}

nfsstat4 status_of_xattrs(const error& failure) noexcept
{
    if (failure.errno_value() == ENODATA)
        return nfsstat4::noxattr;
    if (failure.errno_value() == E2BIG)
        return nfsstat4::xattr2big;
    return status_of_storage(failure);
}

nfs_ftype4 to_ftype4(storage::file_type type) noexcept
{
    switch (type) {
    case storage::file_type::regular: return nfs_ftype4::reg;
    case storage::file_type::directory: return nfs_ftype4::dir;
    case storage::file_type::block_device: return nfs_ftype4::blk;
    case storage::file_type::character_device: return nfs_ftype4::chr;
    case storage::file_type::symlink: return nfs_ftype4::lnk;
    case storage::file_type::socket: return nfs_ftype4::sock;
    case storage::file_type::fifo: return nfs_ftype4::fifo;
    }
    return nfs_ftype4::reg;
}

nfsstat4 refuse_type(storage::file_type type) noexcept
{
    switch (type) {
    case storage::file_type::regular: return nfsstat4::ok;
    case storage::file_type::directory: return nfsstat4::isdir;
    case storage::file_type::symlink: return nfsstat4::symlink;
    default: return nfsstat4::wrong_type;
    }
}

change_info4 to_change_info(const storage::change& change) noexcept
{
    change_info4 info;
    info.after = change.after ? change_of(*change.after) : 0;
    info.before = change.before ? change_of(*change.before) : info.after;
    info.atomic = change.before && change.after;
    return info;
}

void object_values::set(const storage::attributes& attrs) noexcept
{
    all.present =
        all.present | bitmap4{attribute::type,          attribute::change,      attribute::size,
                              attribute::fileid,        attribute::mode,        attribute::numlinks,
                              attribute::rawdev,        attribute::space_used,  attribute::time_access,
                              attribute::time_metadata, attribute::time_modify, attribute::mounted_on_fileid};
    all.type = to_ftype4(attrs.type);
    all.change = change_of(attrs);
    all.size = attrs.size;
    all.fileid = attrs.fileid;
    all.mounted_on_fileid = mounted_on(attrs);
    all.mode = attrs.mode & 07777;
    all.numlinks = attrs.links;
    all.rawdev = {attrs.device_major, attrs.device_minor};
    all.space_used = attrs.used;
    all.time_access = to_time(attrs.atime);
    all.time_metadata = to_time(attrs.ctime);
    all.time_modify = to_time(attrs.mtime);
    if (attrs.birth) {
        all.time_create = to_time(*attrs.birth);
        all.present.set(attribute::time_create);
    }
    set_owners(attrs.uid, attrs.gid);
}

void object_values::set_owners(std::uint32_t of_user, std::uint32_t of_group) noexcept
{
    uid = of_user;
    gid = of_group;
    all.present.set(attribute::owner);
    all.present.set(attribute::owner_group);
    all.owner = write_id(owner, uid);
    all.owner_group = write_id(group, gid);
}

void object_values::set_name(account_kind kind, std::shared_ptr<const std::string> name) noexcept
{
    if (kind == account_kind::user) {
        owner_name = std::move(name);
        all.owner = std::string_view(*owner_name);
    } else {
        group_name = std::move(name);
        all.owner_group = std::string_view(*group_name);
    }
}

void object_values::set_handle(const file_handle& value) noexcept
{
    handle = value;
    all.filehandle = handle.bytes();
    all.present.set(attribute::filehandle);
}

void object_values::set_space(const storage::filesystem_stat& space) noexcept
{
    all.present =
        all.present | bitmap4{attribute::files_avail, attribute::files_free, attribute::files_total,
                              attribute::space_avail, attribute::space_free, attribute::space_total};
    all.files_avail = space.available_files;
    all.files_free = space.free_files;
    all.files_total = space.total_files;
    all.space_avail = space.available_bytes;
    all.space_free = space.free_bytes;
    all.space_total = space.total_bytes;
}

bool parse_owner(std::string_view text, std::uint32_t& id) noexcept
{
    if (text.empty() || (text.front() == '0' && text.size() > 1))
        return false;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), id);
    return failed == std::errc() && end == text.data() + text.size() && id != no_id;
}

nfsstat4 from_attributes(const attributes& from, storage::set_attributes& to) noexcept
{
    if (from.present.test(attribute::size))
        to.size = from.size;
    if (from.present.test(attribute::mode))
        to.mode = from.mode & 07777;
    if (from.present.test(attribute::mode_umask)) {
        to.mode = from.mode_umask.mode & 07777;
        to.umask = from.mode_umask.umask & 0777;
    }
    std::uint32_t id = 0;
    if (from.present.test(attribute::owner)) {
        if (!parse_owner(from.owner, id))
            return nfsstat4::badowner;
        to.uid = id;
    }
    if (from.present.test(attribute::owner_group)) {
        if (!parse_owner(from.owner_group, id))
            return nfsstat4::badowner;
        to.gid = id;
    }
    if (from.present.test(attribute::time_access_set))
        set_time(from.time_access_set, to.atime);
    if (from.present.test(attribute::time_modify_set))
        set_time(from.time_modify_set, to.mtime);
    // No file is longer than that.
    return to.size && *to.size > (~std::uint64_t(0) >> 1) ? nfsstat4::fbig : nfsstat4::ok;
}

nfsstat4 check_name(std::string_view name) noexcept
{
    if (name.empty())
        return nfsstat4::inval;
    if (name.size() > 255)
        return nfsstat4::nametoolong;
    if (name == "." || name == "..")
        return nfsstat4::badname;
    return name.find_first_of(std::string_view("/\0", 2)) == name.npos ? nfsstat4::ok : nfsstat4::badchar;
}

std::uint64_t to_wire_cookie(std::uint64_t cookie) noexcept
{
    return cookie < first_cookie ? moved_cookies + cookie : cookie;
}

bool from_wire_cookie(std::uint64_t wire, std::uint64_t& cookie) noexcept
{
    cookie = wire >= moved_cookies && wire - moved_cookies < first_cookie ? wire - moved_cookies : wire;
    return wire == 0 || wire >= first_cookie;
}

} // namespace verbena::nfs::v4
