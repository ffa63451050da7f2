// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/wire/v3/types.hpp>

#include <cerrno>
#include <string>

namespace verbena::nfs::v3 {
namespace {

class status_category_type final : public std::error_category {
public:
    const char* name() const noexcept override { return "nfs3"; }
    std::string message(int value) const override
    {
        const std::string code = to_string(static_cast<nfsstat3>(value));
        const std::string meaning = meaning_of(value);
        return meaning.empty() ? code : code + ": " + meaning;
    }

    std::error_condition default_error_condition(int value) const noexcept override
    {
        switch (static_cast<nfsstat3>(value)) {
        case nfsstat3::perm: return std::errc::operation_not_permitted;
        case nfsstat3::noent: return std::errc::no_such_file_or_directory;
        case nfsstat3::io: return std::errc::io_error;
        case nfsstat3::nxio: return std::errc::no_such_device_or_address;
        case nfsstat3::acces: return std::errc::permission_denied;
        case nfsstat3::exist: return std::errc::file_exists;
        case nfsstat3::xdev: return std::errc::cross_device_link;
        case nfsstat3::nodev: return std::errc::no_such_device;
        case nfsstat3::notdir: return std::errc::not_a_directory;
        case nfsstat3::isdir: return std::errc::is_a_directory;
        case nfsstat3::inval: return std::errc::invalid_argument;
        case nfsstat3::fbig: return std::errc::file_too_large;
        case nfsstat3::nospc: return std::errc::no_space_on_device;
        case nfsstat3::rofs: return std::errc::read_only_file_system;
        case nfsstat3::mlink: return std::errc::too_many_links;
        case nfsstat3::nametoolong: return std::errc::filename_too_long;
        case nfsstat3::notempty: return std::errc::directory_not_empty;
        case nfsstat3::notsupp: return std::errc::not_supported;
        default: return {value, *this};
        }
    }

private:
    // The words of POSIX where it knows the error; else what RFC 1813 2.6 says, in short.
    std::string meaning_of(int value) const
    {
        switch (static_cast<nfsstat3>(value)) {
        case nfsstat3::ok: return {};
        case nfsstat3::dquot: return std::generic_category().message(EDQUOT);
        case nfsstat3::stale: return std::generic_category().message(ESTALE);
        case nfsstat3::remote: return "The handle is of a file that is not the server's own";
        case nfsstat3::badhandle: return "The server can't read the file handle";
        case nfsstat3::not_sync: return "The file was changed meanwhile";
        case nfsstat3::bad_cookie: return "The place in the directory is no longer valid";
        case nfsstat3::toosmall: return "The answer does not fit into what was asked for";
        case nfsstat3::serverfault: return "The server failed";
        case nfsstat3::badtype: return "The server can't make files of this type";
        case nfsstat3::jukebox: return "The server is not ready yet; try again later";
        default: break;
        }
        const std::error_condition known = default_error_condition(value);
        return known.category() == std::generic_category() ? known.message() : std::to_string(value);
    }
};

} // namespace

const char* to_string(procedure value) noexcept
{
    switch (value) {
    case procedure::null: return "NULL";
    case procedure::getattr: return "GETATTR";
    case procedure::setattr: return "SETATTR";
    case procedure::lookup: return "LOOKUP";
    case procedure::access: return "ACCESS";
    case procedure::readlink: return "READLINK";
    case procedure::read: return "READ";
    case procedure::write: return "WRITE";
    case procedure::create: return "CREATE";
    case procedure::mkdir: return "MKDIR";
    case procedure::symlink: return "SYMLINK";
    case procedure::mknod: return "MKNOD";
    case procedure::remove: return "REMOVE";
    case procedure::rmdir: return "RMDIR";
    case procedure::rename: return "RENAME";
    case procedure::link: return "LINK";
    case procedure::readdir: return "READDIR";
    case procedure::readdirplus: return "READDIRPLUS";
    case procedure::fsstat: return "FSSTAT";
    case procedure::fsinfo: return "FSINFO";
    case procedure::pathconf: return "PATHCONF";
    case procedure::commit: return "COMMIT";
    }
    return "unknown";
}

const char* to_string(nfsstat3 status) noexcept
{
    switch (status) {
    case nfsstat3::ok: return "NFS3_OK";
    case nfsstat3::perm: return "NFS3ERR_PERM";
    case nfsstat3::noent: return "NFS3ERR_NOENT";
    case nfsstat3::io: return "NFS3ERR_IO";
    case nfsstat3::nxio: return "NFS3ERR_NXIO";
    case nfsstat3::acces: return "NFS3ERR_ACCES";
    case nfsstat3::exist: return "NFS3ERR_EXIST";
    case nfsstat3::xdev: return "NFS3ERR_XDEV";
    case nfsstat3::nodev: return "NFS3ERR_NODEV";
    case nfsstat3::notdir: return "NFS3ERR_NOTDIR";
    case nfsstat3::isdir: return "NFS3ERR_ISDIR";
    case nfsstat3::inval: return "NFS3ERR_INVAL";
    case nfsstat3::fbig: return "NFS3ERR_FBIG";
    case nfsstat3::nospc: return "NFS3ERR_NOSPC";
    case nfsstat3::rofs: return "NFS3ERR_ROFS";
    case nfsstat3::mlink: return "NFS3ERR_MLINK";
    case nfsstat3::nametoolong: return "NFS3ERR_NAMETOOLONG";
    case nfsstat3::notempty: return "NFS3ERR_NOTEMPTY";
    case nfsstat3::dquot: return "NFS3ERR_DQUOT";
    case nfsstat3::stale: return "NFS3ERR_STALE";
    case nfsstat3::remote: return "NFS3ERR_REMOTE";
    case nfsstat3::badhandle: return "NFS3ERR_BADHANDLE";
    case nfsstat3::not_sync: return "NFS3ERR_NOT_SYNC";
    case nfsstat3::bad_cookie: return "NFS3ERR_BAD_COOKIE";
    case nfsstat3::notsupp: return "NFS3ERR_NOTSUPP";
    case nfsstat3::toosmall: return "NFS3ERR_TOOSMALL";
    case nfsstat3::serverfault: return "NFS3ERR_SERVERFAULT";
    case nfsstat3::badtype: return "NFS3ERR_BADTYPE";
    case nfsstat3::jukebox: return "NFS3ERR_JUKEBOX";
    }
    return "NFS3ERR_unknown";
}

const std::error_category& status_category() noexcept
{
    static const status_category_type category;
    return category;
}

std::error_code make_error_code(nfsstat3 status) noexcept
{
    return {static_cast<int>(status), status_category()};
}

} // namespace verbena::nfs::v3
